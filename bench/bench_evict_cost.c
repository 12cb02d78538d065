/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy costs a reference, and whether a large memory has a latency cliff: Zipf traffic of
 * ten documents a request over corpora of 5 000 to 1 000 000 documents, through the whole pool,
 * which holds a tenth of them.  `lru` does next to nothing, so what is above it is the policy's
 * own. The last columns are over requests: claim, seal and release of ten documents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/htab.h"
#include "kvpool/kvpool.h"
#include "tests/sim/workload.h"

#define DOCS_MAX 16

static const struct {
    uint32_t docs, requests;
} sizes[] = {{5000, 40000}, {100000, 60000}, {1000000, 100000}};

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "bench_evict_cost: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static double
cpu_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void
serve(struct kvpool *pool, const struct replay_trace *trace, uint32_t request)
{
    struct kvpool_want wants[DOCS_MAX];
    struct kvpool_claim *claim = NULL;
    size_t count = 0;

    for (uint32_t i = trace->starts[request]; i < trace->starts[request + 1]; i++) {
        uint64_t name = htab_mix((uint64_t)trace->docs[i] + 1);

        wants[count] = (struct kvpool_want){.n_tokens = trace->tokens[trace->docs[i]]};
        memcpy(wants[count++].key.bytes, &name, sizeof(name));
    }
    must(kvpool_claim(pool, wants, count, 0, 1, &claim));
    for (size_t i = 0; i < count; i++) {
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
measure(const struct workload *w, const struct evict_policy_ops *policy)
{
    struct kvpool_config config = {.block_count = (uint32_t)(w->corpus_blocks / 10),
                                   .block_tokens = WORKLOAD_BLOCK_TOKENS,
                                   .policy = policy,
                                   .quadratic_tokens = 26700};
    uint32_t requests = w->trace.request_count, half = requests / 2;
    double *us = calloc(requests, sizeof(*us)), sum = 0;
    struct kvpool_stats stats;
    struct kvpool *pool = NULL;

    if (us == NULL) {
        exit(EXIT_FAILURE);
    }
    must(kvpool_new(&config, &pool));
    for (uint32_t r = 0; r < requests; r++) {
        double start = cpu_us();

        serve(pool, &w->trace, r);
        us[r] = cpu_us() - start;
        sum += r >= half ? us[r] : 0;
    }
    qsort(us + half, requests - half, sizeof(*us), compare_doubles);
    kvpool_stats(pool, &stats);
    printf("%8u %8u %-7s %12.2f %10.1f %9.1f %9.1f\n", w->trace.doc_count, stats.documents,
           policy->name, sum / (requests - half) / 10, us[half + (requests - half) / 2],
           us[half + (uint32_t)(0.999 * (requests - half))], us[requests - 1]);
    (void)fflush(stdout);
    kvpool_destroy(&pool);
    free(us);
}

int
main(void)
{
    printf("  corpus resident policy  us/reference  median us  p99.9 us    max us\n");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct workload_spec spec = {"cost",
                                     "stat",
                                     0.9,
                                     .docs = sizes[i].docs,
                                     .per_request = 10,
                                     .requests = sizes[i].requests};
        struct workload w;

        workload_make(&spec, 1, &w);
        for (size_t p = 0; evict_policy_names[p] != NULL; p++) {
            measure(&w, evict_policy_find(evict_policy_names[p]));
        }
        workload_deinit(&w);
    }
    return EXIT_SUCCESS;
}
