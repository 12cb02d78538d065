/* SPDX-License-Identifier: Apache-2.0 */
/* What the pool costs a request: claim and release of ten hot documents, and of ten cold ones that
 * evict as many blocks as they take.  No device, no lock: this is the scheduler's own time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/htab.h"
#include "kvpool/kvpool.h"

#define RUNS             21
#define REQUESTS_PER_RUN 20000
#define DOCS             10
#define DOC_TOKENS       200
#define BLOCK_TOKENS     32
#define OWN_BLOCKS       10
#define HOT_DOCS         1000

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "bench_kvpool: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static struct kvpool_want
want(uint64_t number)
{
    struct kvpool_want w = {.n_tokens = DOC_TOKENS};
    uint64_t hash = htab_mix(number);

    memcpy(w.key.bytes, &hash, sizeof(hash));
    return w;
}

/* One request over ten documents in a row. */
static void
serve(struct kvpool *pool, uint64_t first)
{
    struct kvpool_want wants[DOCS];
    struct kvpool_claim *claim;

    for (uint64_t i = 0; i < DOCS; i++) {
        wants[i] = want(first + i);
    }
    must(kvpool_claim(pool, wants, DOCS, OWN_BLOCKS, 1, &claim));
    for (int i = 0; i < DOCS; i++) {
        if (wants[i].must_build) {
            kvpool_doc_seal(pool, wants[i].doc, 0);
        }
    }
    kvpool_claim_release(pool, &claim, 0);
}

static int
compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void
measure(struct kvpool *pool, const char *what, bool is_cold)
{
    static uint64_t cold = 1000000;
    double us[RUNS];

    for (int run = 0; run < RUNS; run++) {
        uint64_t start_us = clock_now_us();

        for (uint64_t i = 0; i < REQUESTS_PER_RUN; i++) {
            serve(pool, is_cold ? cold : i * DOCS % HOT_DOCS);
            cold += is_cold ? DOCS : 0;
        }
        us[run] = (double)(clock_now_us() - start_us) / REQUESTS_PER_RUN;
    }
    qsort(us, RUNS, sizeof(us[0]), compare_doubles);
    printf("%-34s %7.2f us a request (%.2f .. %.2f over %d runs)\n", what, us[RUNS / 2], us[0],
           us[RUNS - 1], RUNS);
    printf("{\"bench\":\"kvpool\",\"case\":\"%s\",\"docs\":%d,\"doc_tokens\":%d,\"us\":%.3f}\n",
           what, DOCS, DOC_TOKENS, us[RUNS / 2]);
}

int
main(void)
{
    struct kvpool_config config = {.block_count = 16384,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = 0.5};
    struct kvpool_stats stats;
    struct kvpool *pool;

    must(kvpool_new(&config, &pool));
    for (uint64_t i = 0; i < HOT_DOCS; i += DOCS) {
        serve(pool, i);
    }
    measure(pool, "claim and release, hot", false);
    measure(pool, "claim, evict, seal, release, cold", true);
    kvpool_stats(pool, &stats);
    printf("hits %" PRIu64 ", evicted blocks %" PRIu64 "\n", stats.doc_hits, stats.blocks_evicted);
    kvpool_destroy(&pool);
    return EXIT_SUCCESS;
}
