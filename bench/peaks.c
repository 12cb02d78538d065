/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/peaks.h"

#include <stdlib.h>

#include "common/mem.h"

struct change {
    uint64_t at_us;
    int by; /* of the requests that are open */
};

static int
in_order(const void *a, const void *b)
{
    const struct change *x = a, *y = b;

    return x->at_us != y->at_us ? (x->at_us < y->at_us ? -1 : 1) : x->by - y->by;
}

static size_t
most_open(struct change *changes, size_t count)
{
    size_t open = 0, most = 0;

    qsort(changes, count, sizeof(changes[0]), in_order);
    for (size_t i = 0; i < count; i++) {
        open += changes[i].by > 0 ? 1u : (size_t)-1;
        most = open > most ? open : most;
    }
    return most;
}

static void
count_outputs(const struct outcome *o, uint64_t from_us, uint32_t *seconds)
{
    uint64_t at_us = o->first_us;

    seconds[(at_us - from_us) / 1000000]++;
    for (size_t g = 0; g < o->n_gaps; g++) {
        at_us += o->gaps_us[g];
        seconds[(at_us - from_us) / 1000000]++;
    }
}

enum status
peaks_of(const struct outcome *outcomes, size_t count, struct peaks *peaks_out)
{
    struct peaks peaks = {0};
    struct change *changes = mem_zalloc(2 * count, sizeof(*changes));
    uint64_t from_us = UINT64_MAX, to_us = 0;
    size_t n = 0;

    for (size_t i = 0; changes != NULL && i < count; i++) {
        const struct outcome *o = &outcomes[i];

        if (o->is_ok) {
            changes[n++] = (struct change){o->sent_us, 1};
            changes[n++] = (struct change){o->end_us, -1};
            from_us = o->sent_us < from_us ? o->sent_us : from_us;
            to_us = o->end_us > to_us ? o->end_us : to_us;
        }
    }
    size_t n_seconds = n == 0 ? 1 : (to_us - from_us) / 1000000 + 1;
    uint32_t *seconds = mem_zalloc(n_seconds, sizeof(*seconds));
    enum status st = changes != NULL && seconds != NULL ? ST_OK : ERR(ST_NO_MEMORY, "peaks");

    if (st == ST_OK) {
        peaks.requests = most_open(changes, n);
        for (size_t i = 0; i < count; i++) {
            if (outcomes[i].is_ok) {
                count_outputs(&outcomes[i], from_us, seconds);
            }
        }
        for (size_t i = 0; i < n_seconds; i++) {
            peaks.outputs_per_s =
                seconds[i] > peaks.outputs_per_s ? seconds[i] : peaks.outputs_per_s;
        }
        *peaks_out = peaks;
    }
    mem_free(changes);
    mem_free(seconds);
    return st;
}
