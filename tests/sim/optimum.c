/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/optimum.h"

#include <stdio.h>
#include <stdlib.h>

#include "kvpool/evict_heap.h"

#define NEVER UINT32_MAX

struct optimum {
    const struct replay_trace *trace;
    uint32_t block_tokens;
    uint32_t *next_use;     /* [references] request of the next one, or NEVER */
    struct evict_doc *docs; /* [doc_count] */
    struct evict_heap heap; /* of residents, the one needed latest on top */
    uint64_t used;
};

static void *
must_have(void *storage)
{
    if (storage == NULL) {
        (void)fprintf(stderr, "optimum: no memory\n");
        abort();
    }
    return storage;
}

static void
find_next_uses(struct optimum *o)
{
    const struct replay_trace *trace = o->trace;
    uint32_t *last = must_have(malloc(trace->doc_count * sizeof(*last)));

    for (uint32_t doc = 0; doc < trace->doc_count; doc++) {
        last[doc] = NEVER;
    }
    for (uint32_t r = trace->request_count; r-- > 0;) {
        for (uint32_t i = trace->starts[r]; i < trace->starts[r + 1]; i++) {
            o->next_use[i] = last[trace->docs[i]];
            last[trace->docs[i]] = r;
        }
    }
    free(last);
}

static void
bring_in(struct optimum *o, struct evict_doc *doc, uint32_t next_use, uint32_t block_count)
{
    o->used += doc->n_blocks - doc->blocks_resident;
    doc->blocks_resident = doc->n_blocks;
    evict_heap_remove(&o->heap, doc);
    evict_heap_push(&o->heap, doc, -(double)next_use);
    while (o->used > block_count) {
        struct evict_doc *victim = o->heap.entries[0].doc;
        uint64_t going = o->used - block_count;

        going = going < victim->blocks_resident ? going : victim->blocks_resident;
        victim->blocks_resident -= (uint32_t)going;
        o->used -= going;
        if (victim->blocks_resident == 0) {
            evict_heap_remove(&o->heap, victim);
        }
    }
}

double
optimum_run(const struct replay_trace *trace, uint32_t block_count, uint32_t block_tokens,
            uint32_t uncounted)
{
    struct optimum o = {.trace = trace, .block_tokens = block_tokens};
    uint64_t asked = 0, hit = 0;

    o.next_use =
        must_have(malloc((size_t)trace->starts[trace->request_count] * sizeof(*o.next_use)));
    o.docs = must_have(calloc(trace->doc_count, sizeof(*o.docs)));
    if (evict_heap_init(&o.heap, trace->doc_count) != ST_OK) {
        (void)must_have(NULL);
    }
    find_next_uses(&o);
    for (uint32_t doc = 0; doc < trace->doc_count; doc++) {
        o.docs[doc].n_blocks = (trace->tokens[doc] + block_tokens - 1) / block_tokens;
    }
    for (uint32_t r = 0; r < trace->request_count; r++) {
        for (uint32_t i = trace->starts[r]; r >= uncounted && i < trace->starts[r + 1]; i++) {
            uint32_t tokens = trace->tokens[trace->docs[i]];
            uint64_t resident = (uint64_t)o.docs[trace->docs[i]].blocks_resident * block_tokens;

            asked += tokens;
            hit += resident < tokens ? resident : tokens;
        }
        for (uint32_t i = trace->starts[r]; i < trace->starts[r + 1]; i++) {
            bring_in(&o, &o.docs[trace->docs[i]], o.next_use[i], block_count);
        }
    }
    free(o.next_use);
    free(o.docs);
    evict_heap_deinit(&o.heap);
    return asked == 0 ? 0 : (double)hit / (double)asked;
}
