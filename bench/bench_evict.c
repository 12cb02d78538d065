/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction policies on synthetic traffic, each as a share of the offline optimum.
 *
 *     bench_evict [ci|full [SEED [WORKLOAD...]]]     a table; without arguments: ci, seed 1, all
 *
 * The policies are the product's, run through its own pool (kvpool/replay); lfu-history and oracle
 *     bench_evict [ci|full [SEED [WORKLOAD...]]]     a table; without arguments: ci, seed 1, all
 * ratio, and each policy's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/optimum.h"
#include "tests/sim/yardsticks.h"

#define QUADRATIC_TOKENS 26700.0 /* Llama 3.1 8B */
#define POLICIES         6

static const struct evict_policy_ops *const policies[POLICIES] = {
    &evict_zipf, &evict_lru, &evict_s3fifo, &evict_arc, &evict_lfu_history, &evict_oracle,
};

static const double ci_budgets[] = {0.01, 0.05, 0.2, 0};
static const double full_budgets[] = {0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 0};

/* Sums over cells, for the last lines. */
struct sums {
    uint32_t cells;
    double of_optimum[POLICIES];
    double worst_of_best, worst_of_lru, over_lru;
    double references, seconds;
};

static double
now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double
hit_ratio(const struct workload *w, const struct evict_policy_ops *policy, uint32_t blocks,
          uint64_t seed)
{
    struct replay_config config = {
        .policy = policy,
        .block_count = blocks,
        .block_tokens = WORKLOAD_BLOCK_TOKENS,
        .seed = seed + 1,
        .quadratic_tokens = QUADRATIC_TOKENS,
        .in_flight = 1,
        .uncounted = w->trace.request_count / 4,
    };
    struct replay_result result;

    if (replay_run(&w->trace, &config, &result) != ST_OK) {
        (void)fprintf(stderr, "bench_evict: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
    return (double)result.tokens_hit / (double)result.tokens;
}

static void
add_cell(struct sums *sums, const double hits[POLICIES], double optimum)
{
    double best = 0;

    for (int p = 0; p < POLICIES; p++) {
        sums->of_optimum[p] += hits[p] / optimum;
        if (p >= 1 && p <= 4 && hits[p] > best) {
            best = hits[p];
        }
    }
    sums->cells++;
    sums->over_lru += hits[0] / hits[1];
    sums->worst_of_best = fmin(sums->worst_of_best, hits[0] / best);
    sums->worst_of_lru = fmin(sums->worst_of_lru, hits[0] / hits[1]);
}

static void
run_workload(const struct workload_spec *spec, uint64_t seed, const double *budgets,
             struct sums *sums)
{
    struct workload w;

    workload_make(spec, seed, &w);
    yardsticks_follow(&w);
    for (; *budgets > 0; budgets++) {
        uint32_t blocks = (uint32_t)(*budgets * (double)w.corpus_blocks);
        double hits[POLICIES], optimum;

        /* Pools that hold little more than one request say nothing about a policy. */
        if (blocks < 1.3 * spec->per_request * (double)w.corpus_blocks / spec->docs) {
            continue;
        }
        optimum = optimum_run(&w.trace, blocks, WORKLOAD_BLOCK_TOKENS, spec->requests / 4);
        printf("%-14s %2llu %5.3f %.4f ", spec->name, (unsigned long long)seed, *budgets, optimum);
        for (int p = 0; p < POLICIES; p++) {
            double start = now_s();

            hits[p] = hit_ratio(&w, policies[p], blocks, seed);
            if (p == 0) {
                sums->seconds += now_s() - start;
                sums->references += w.trace.starts[w.trace.request_count];
            }
            printf(" %.4f", hits[p]);
        }
        printf("\n");
        (void)fflush(stdout);
        add_cell(sums, hits, optimum);
    }
    workload_deinit(&w);
}

static bool
is_wanted(const char *name, int argc, char **argv)
{
    bool is_named = argc <= 3;

    for (int i = 3; i < argc; i++) {
        is_named = is_named || strcmp(argv[i], name) == 0;
    }
    return is_named;
}

int
main(int argc, char **argv)
{
    bool is_full = argc > 1 && strcmp(argv[1], "full") == 0;
    const struct workload_spec *specs = is_full ? workload_full : workload_ci;
    size_t count = is_full ? workload_full_count : workload_ci_count;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct sums sums = {.worst_of_best = INFINITY, .worst_of_lru = INFINITY};

    printf("workload     seed  pool optimum");
    for (int p = 0; p < POLICIES; p++) {
        printf(" %s", policies[p]->name);
    }
    printf("\n");
    for (size_t i = 0; i < count; i++) {
        if (is_wanted(specs[i].name, argc, argv)) {
            run_workload(&specs[i], seed, is_full ? full_budgets : ci_budgets, &sums);
        }
    }
    printf("\n%u cells, mean share of the optimum:", sums.cells);
    for (int p = 0; p < POLICIES; p++) {
        printf(" %s %.4f", policies[p]->name, sums.of_optimum[p] / sums.cells);
    }
    printf("\nzipf against the best of the others but the oracle: at least %.4f; against lru: at "
           "least %.4f, mean %.4f\n",
           sums.worst_of_best, sums.worst_of_lru, sums.over_lru / sums.cells);
    printf("%.3f us a reference with the pool around it\n", sums.seconds * 1e6 / sums.references);
    return EXIT_SUCCESS;
}
