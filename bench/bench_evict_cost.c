/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy costs a reference, and whether a large memory has a latency cliff: Zipf traffic of
 * ten documents a request over corpora of 5 000 to 1 000 000 documents, through the whole pool,
 * which holds a tenth of them.  `lru` does next to nothing, so what is above it is the policy's
 * own. The last columns are over requests: claim, seal and release of ten documents.  CPU time; the
 * least of several rounds where a round is short. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/htab.h"
#include "kvpool/kvpool.h"
#include "tests/sim/workload.h"

#define DOCS_MAX     16
#define PER_REQUEST  10
#define POLICIES_MAX 8

static const struct {
    uint32_t docs, requests, rounds;
} sizes[] = {{5000, 40000, 5}, {100000, 60000, 5}, {1000000, 100000, 1}};

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

struct cost {
    uint32_t documents;                      /* resident at the end */
    double reference, median, p999, slowest; /* us */
};

static struct cost
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
    struct cost cost = {.documents = stats.documents,
                        .reference = sum / (requests - half) / PER_REQUEST,
                        .median = us[half + (requests - half) / 2],
                        .p999 = us[half + (uint32_t)(0.999 * (requests - half))],
                        .slowest = us[requests - 1]};

    kvpool_destroy(&pool);
    free(us);
    return cost;
}

static double
least(double a, double b)
{
    return a < b ? a : b;
}

/* All policies in turn, several times.  Others only add to a time, so the least of them counts. */
static void
compare(const struct workload *w, uint32_t rounds)
{
    struct cost costs[POLICIES_MAX];

    for (uint32_t round = 0; round < rounds; round++) {
        for (size_t p = 0; evict_policy_names[p] != NULL; p++) {
            struct cost cost = measure(w, evict_policy_find(evict_policy_names[p]));

            if (round == 0) {
                costs[p] = cost;
            }
            costs[p].reference = least(costs[p].reference, cost.reference);
            costs[p].median = least(costs[p].median, cost.median);
            costs[p].p999 = least(costs[p].p999, cost.p999);
            costs[p].slowest = least(costs[p].slowest, cost.slowest);
        }
    }
    for (size_t p = 0; evict_policy_names[p] != NULL; p++) {
        printf("%8u %8u %-7s %12.2f %10.1f %9.1f %9.1f\n", w->trace.doc_count, costs[p].documents,
               evict_policy_names[p], costs[p].reference, costs[p].median, costs[p].p999,
               costs[p].slowest);
    }
    (void)fflush(stdout);
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
                                     .per_request = PER_REQUEST,
                                     .requests = sizes[i].requests};
        struct workload w;

        workload_make(&spec, 1, &w);
        compare(&w, sizes[i].rounds);
        workload_deinit(&w);
    }
    return EXIT_SUCCESS;
}
