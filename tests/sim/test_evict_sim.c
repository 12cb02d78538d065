/* SPDX-License-Identifier: Apache-2.0 */
/* The eviction policies on synthetic traffic: 13 workloads, three pools, three seeds, run through
 * the pool itself.  What is held is what the study promised (bench/results has the numbers).
 *
 * Deterministic, so a failure is a change of a policy, not luck.  Under sanitizers and valgrind one
 * seed is enough: then it is about memory, not about ratios. */
#include <math.h>
#include <string.h>

#include "tests/sim/optimum.h"
#include "tests/sim/yardsticks.h"
#include "tests/support/check_main.h"

#define SEEDS            SCENE(3, 1, 1)
#define BUDGETS          3
#define WORKLOADS_MAX    16
#define QUADRATIC_TOKENS 26700.0 /* Llama 3.1 8B */

static const double budgets[BUDGETS] = {0.01, 0.05, 0.2};

enum policy {
    ZIPF,
    LRU,
    S3FIFO,
    ARC,
    LFU_HISTORY,
    ORACLE,
    ZIPF_AHEAD, /* with eight requests of the queue in sight */
    POLICIES,
};

static const struct evict_policy_ops *const policies[POLICIES] = {
    &evict_zipf,        &evict_lru,    &evict_s3fifo, &evict_arc,
    &evict_lfu_history, &evict_oracle, &evict_zipf,
};

struct cell {
    const struct workload_spec *spec;
    uint64_t seed;
    double budget;
    double optimum;
    double hit[POLICIES]; /* share of the document tokens */
};

static struct cell cells[WORKLOADS_MAX * SEEDS * BUDGETS];
static size_t cell_count;

static struct replay_result
replay(const struct workload *w, enum policy policy, uint32_t blocks, uint64_t seed)
{
    struct replay_config config = {
        .policy = policies[policy],
        .block_count = blocks,
        .block_tokens = WORKLOAD_BLOCK_TOKENS,
        .seed = seed + 1,
        .quadratic_tokens = QUADRATIC_TOKENS,
        .in_flight = 1,
        .ahead = policy == ZIPF_AHEAD ? 8 : 0,
        .uncounted = w->trace.request_count / 4,
    };
    struct replay_result result;

    if (replay_run(&w->trace, &config, &result) != ST_OK) {
        (void)fprintf(stderr, "replay: %s\n", status_detail());
        abort(); /* not ck_assert: the cells are made before Check runs */
    }
    return result;
}

static double
ratio(const struct replay_result *result)
{
    return (double)result->tokens_hit / (double)result->tokens;
}

static void
run_cell(const struct workload *w, struct cell *cell)
{
    uint32_t blocks = (uint32_t)(cell->budget * (double)w->corpus_blocks);

    cell->optimum =
        optimum_run(&w->trace, blocks, WORKLOAD_BLOCK_TOKENS, w->trace.request_count / 4);
    for (int policy = 0; policy < POLICIES; policy++) {
        struct replay_result result = replay(w, (enum policy)policy, blocks, cell->seed);

        cell->hit[policy] = ratio(&result);
    }
}

/* All cells, once for all tests: Check runs each of them in a process forked from this one. */
static void
run_cells(void)
{
    for (size_t i = 0; i < workload_ci_count; i++) {
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct workload w;

            workload_make(&workload_ci[i], seed, &w);
            yardsticks_follow(&w);
            for (size_t b = 0; b < BUDGETS; b++) {
                struct cell *cell = &cells[cell_count++];

                *cell = (struct cell){.spec = &workload_ci[i], .seed = seed, .budget = budgets[b]};
                run_cell(&w, cell);
            }
            workload_deinit(&w);
        }
    }
}

static double
best_of_others(const struct cell *cell)
{
    return fmax(fmax(cell->hit[LRU], cell->hit[ARC]),
                fmax(cell->hit[S3FIFO], cell->hit[LFU_HISTORY]));
}

/* Every cell holds the claim `ratio >= least`; prints the worst. */
static void
hold_everywhere(const char *what, double (*value)(const struct cell *), double least,
                const char *only_kind)
{
    const struct cell *worst = NULL;

    for (size_t i = 0; i < cell_count; i++) {
        if (only_kind != NULL && strcmp(cells[i].spec->kind, only_kind) != 0) {
            continue;
        }
        if (worst == NULL || value(&cells[i]) < value(worst)) {
            worst = &cells[i];
        }
    }
    ck_assert_ptr_nonnull(worst);
    printf("%s: at least %.4f (%s, seed %llu, pool %.2f), to be %.3f\n", what, value(worst),
           worst->spec->name, (unsigned long long)worst->seed, worst->budget, least);
    ck_assert_double_ge(value(worst), least);
}

static double
mean(double (*value)(const struct cell *))
{
    double sum = 0;

    for (size_t i = 0; i < cell_count; i++) {
        sum += value(&cells[i]);
    }
    return sum / (double)cell_count;
}

static double
of_optimum(const struct cell *cell)
{
    return cell->hit[ZIPF] / cell->optimum;
}

static double
of_best(const struct cell *cell)
{
    return cell->hit[ZIPF] / best_of_others(cell);
}

static double
of_lru(const struct cell *cell)
{
    return cell->hit[ZIPF] / cell->hit[LRU];
}

static double
of_oracle(const struct cell *cell)
{
    return cell->hit[ZIPF] / cell->hit[ORACLE];
}

static double
of_lfu_history(const struct cell *cell)
{
    return cell->hit[ZIPF] / cell->hit[LFU_HISTORY];
}

static double
gain_of_looking_ahead(const struct cell *cell)
{
    return cell->hit[ZIPF_AHEAD] - cell->hit[ZIPF];
}

START_TEST(zipf_hits_most_of_what_the_future_would_allow)
{
    printf("mean share of the optimum %.4f, to be 0.885\n", mean(of_optimum));
    ck_assert_double_ge(mean(of_optimum), 0.885);
}
END_TEST

START_TEST(zipf_is_never_far_behind_the_best_of_the_others)
{
    hold_everywhere("of the best of lru, arc, s3fifo, lfu-history", of_best, 0.97, NULL);
}
END_TEST

START_TEST(zipf_beats_lru_by_a_fifth_and_never_loses_much_to_it)
{
    printf("mean over lru %.4f, to be 1.20\n", mean(of_lru));
    ck_assert_double_ge(mean(of_lru), 1.20);
    hold_everywhere("of lru", of_lru, 0.98, NULL);
}
END_TEST

START_TEST(on_stationary_traffic_zipf_comes_near_those_who_know_the_popularities)
{
    hold_everywhere("stationary, of the oracle", of_oracle, 0.94, "stat");
    hold_everywhere("stationary, of lfu-history", of_lfu_history, 0.98, "stat");
    hold_everywhere("scans, of lfu-history", of_lfu_history, 0.99, "scan");
}
END_TEST

START_TEST(looking_at_the_queue_never_costs_and_usually_pays)
{
    printf("mean gain of eight requests in sight %.4f, to be 0.004\n", mean(gain_of_looking_ahead));
    ck_assert_double_ge(mean(gain_of_looking_ahead), 0.004);
    hold_everywhere("gain of eight requests in sight", gain_of_looking_ahead, -0.003, NULL);
}
END_TEST

START_TEST(the_same_seed_gives_the_same_hits)
{
    struct workload w;
    struct replay_result a, b;

    workload_make(&workload_ci[workload_ci_count - 1], 7, &w);
    a = replay(&w, ZIPF, 2000, 5);
    b = replay(&w, ZIPF, 2000, 5);
    ck_assert_uint_eq(a.tokens_hit, b.tokens_hit);
    ck_assert_uint_eq(a.blocks_evicted, b.blocks_evicted);
    workload_deinit(&w);
}
END_TEST

/* Hot documents, then a crawler: every request cites documents that nobody will ever cite again. */
START_TEST(a_scan_of_five_thousand_documents_costs_the_hot_set_less_than_five_points)
{
    static const struct workload_spec hot = {"hot",        "stat",           1.1,
                                             .docs = 2000, .per_request = 5, .requests = 6000};
    struct replay_trace scanned = {.request_count = 0};
    struct workload w;
    struct replay_result quiet, after;
    uint32_t before = 4000, scans = 1000, blocks, n = 0;

    workload_make(&hot, 3, &w);
    blocks = (uint32_t)(0.1 * (double)w.corpus_blocks);
    scanned.request_count = w.trace.request_count + scans;
    scanned.doc_count = w.trace.doc_count + 5 * scans;
    scanned.starts = calloc(scanned.request_count + 1, sizeof(uint32_t));
    scanned.docs = calloc(5 * scanned.request_count, sizeof(uint32_t));
    scanned.tokens = calloc(scanned.doc_count, sizeof(uint32_t));
    memcpy(scanned.tokens, w.trace.tokens, w.trace.doc_count * sizeof(uint32_t));
    for (uint32_t r = 0; r < scanned.request_count; r++) {
        bool is_scan = r >= before && r < before + scans;
        uint32_t from = r < before ? r : r - scans;

        for (uint32_t i = 0; i < 5; i++, n++) {
            scanned.docs[n] = is_scan ? w.trace.doc_count + 5 * (r - before) + i
                                      : w.trace.docs[w.trace.starts[from] + i];
            scanned.tokens[scanned.docs[n]] = is_scan ? 500 : w.trace.tokens[scanned.docs[n]];
        }
        scanned.starts[r + 1] = n;
    }
    struct replay_config config = {
        .policy = &evict_zipf,
        .block_count = blocks,
        .block_tokens = WORKLOAD_BLOCK_TOKENS,
        .in_flight = 1,
        .uncounted = before,
    };
    ck_assert_int_eq(replay_run(&w.trace, &config, &quiet), ST_OK);
    config.uncounted = before + scans;
    ck_assert_int_eq(replay_run(&scanned, &config, &after), ST_OK);
    printf("hot set: %.4f of its tokens hit, after the scan %.4f\n", ratio(&quiet), ratio(&after));
    ck_assert_uint_eq(quiet.tokens, after.tokens);
    ck_assert_double_gt(ratio(&after), ratio(&quiet) - 0.05);
    replay_trace_deinit(&scanned);
    workload_deinit(&w);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {
        zipf_hits_most_of_what_the_future_would_allow,
        zipf_is_never_far_behind_the_best_of_the_others,
        zipf_beats_lru_by_a_fifth_and_never_loses_much_to_it,
        on_stationary_traffic_zipf_comes_near_those_who_know_the_popularities,
        looking_at_the_queue_never_costs_and_usually_pays,
        the_same_seed_gives_the_same_hits,
        a_scan_of_five_thousand_documents_costs_the_hot_set_less_than_five_points,
    };

    run_cells();
    return check_run("evict_sim", tests, sizeof(tests) / sizeof(tests[0]), CHECK_TIMEOUT_SECONDS);
}
