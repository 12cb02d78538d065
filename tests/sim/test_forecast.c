/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts against what really came: a pool serves the first part of each workload and remembers
 * its requests; from that, nine other pools are forecast (three sizes, three policies); then those
 * pools serve all of it, and what they hit after the moment of the forecast is compared. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/htab.h"
#include "kvpool/forecast.h"
#include "tests/sim/workload.h"
#include "tests/support/check_main.h"

#define REQUESTS         30000
#define ASKED_AT         20000
#define SIZES            SCENE(3, 1, 1)
#define POLICIES         3
#define QUADRATIC_TOKENS 26700.0
#define NEAR             0.03  /* on what promises it: stationary, news, flash */
#define NEAR_ENOUGH      0.06  /* else, or it says that it is uncertain */
#define RUNNING_NEAR     0.025 /* of what the running pool really hit */
#define LOOK_BLOCKS      30000 /* of 4 MiB: what a GPU of 141 GB has beside an 8B model */
#define LOOK_POINTS      5     /* a quarter of that up to four times */

static const double sizes[] = {0.05, 0.01, 0.2};
static const struct evict_policy_ops *const policies[POLICIES] = {&evict_zipf, &evict_lru,
                                                                  &evict_s3fifo};

static struct workload_spec
spec_of(size_t number)
{
    struct workload_spec spec = workload_ci[number];

    spec.requests = REQUESTS;
    return spec;
}

static struct forecast_config
config_of(const struct workload *w)
{
    return (struct forecast_config){
        .policy = &evict_zipf,
        .block_count = (uint32_t)(0.05 * (double)w->corpus_blocks),
        .block_tokens = WORKLOAD_BLOCK_TOKENS,
        .quadratic_tokens = QUADRATIC_TOKENS,
        .in_flight = 1,
    };
}

static size_t
wants_of(const struct replay_trace *trace, uint32_t request, struct kvpool_want *wants)
{
    size_t count = 0;

    for (uint32_t i = trace->starts[request]; i < trace->starts[request + 1]; i++) {
        uint64_t name = trace->docs[i] * UINT64_C(0x9e3779b97f4a7c15);

        wants[count] = (struct kvpool_want){.n_tokens = trace->tokens[trace->docs[i]]};
        memcpy(wants[count++].key.bytes, &name, sizeof(name));
    }
    return count;
}

/* Serves requests [0, ASKED_AT) and remembers them. */
static void
serve(const struct workload *w, const struct forecast_config *config, struct traffic *traffic)
{
    struct kvpool_config pool_config = {.block_count = config->block_count,
                                        .block_tokens = config->block_tokens,
                                        .policy = config->policy,
                                        .quadratic_tokens = config->quadratic_tokens};
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&pool_config, &pool), ST_OK);
    for (uint32_t r = 0; r < ASKED_AT; r++) {
        struct kvpool_want wants[16];
        size_t count = wants_of(&w->trace, r, wants);
        struct kvpool_claim *claim = NULL;

        ck_assert_int_eq(kvpool_claim(pool, wants, count, 0, 1, &claim), ST_OK);
        traffic_request(traffic, 1, 0);
        for (size_t i = 0; i < count; i++) {
            traffic_document(traffic, &wants[i]);
            if (wants[i].must_build) {
                kvpool_doc_seal(pool, wants[i].doc, 0);
            }
        }
        kvpool_claim_release(pool, &claim, 0);
    }
    kvpool_destroy(&pool);
}

static double
what_came(const struct workload *w, const struct forecast_config *config,
          const struct forecast_point *point)
{
    struct replay_config replay_config = {
        .policy = point->policy,
        .block_count = point->block_count,
        .block_tokens = config->block_tokens,
        .seed = 17,
        .quadratic_tokens = config->quadratic_tokens,
        .in_flight = 1,
        .uncounted = ASKED_AT,
    };
    struct replay_result result;

    ck_assert_int_eq(replay_run(&w->trace, &replay_config, &result), ST_OK);
    return (double)result.tokens_hit / (double)result.tokens;
}

static bool
is_promised(const struct workload_spec *spec)
{
    return strcmp(spec->kind, "stat") == 0 || strcmp(spec->kind, "news") == 0
           || strcmp(spec->kind, "flash") == 0;
}

static void
compare(const struct workload_spec *spec, const struct workload *w,
        const struct forecast_config *config, const struct forecast_point *point, double was)
{
    double came = what_came(w, config, point), off = fabs(point->hit_ratio - came);
    bool is_running = point->policy == config->policy && point->block_count == config->block_count;

    printf("%-9s %-6s %6u blocks: forecast %.3f, came %.3f%s%s\n", spec->name, point->policy->name,
           point->block_count, point->hit_ratio, came,
           point->uncertain == NULL ? "" : ", uncertain: ",
           point->uncertain == NULL ? "" : point->uncertain);
    if (is_promised(spec)) {
        ck_assert_double_le(off, NEAR);
    } else if (point->uncertain == NULL) {
        ck_assert_double_le(off, NEAR_ENOUGH);
    }
    if (is_running) {
        ck_assert_double_le(fabs(point->hit_ratio - was), RUNNING_NEAR);
    }
}

START_TEST(a_forecast_comes_true_or_says_that_it_is_uncertain)
{
    struct workload_spec spec = spec_of((size_t)_i);
    struct forecast_point points[SIZES * POLICIES];
    struct forecast_config config;
    struct forecast forecast;
    struct traffic *traffic = NULL;
    struct traffic_window window;
    struct traffic_trace trace;
    struct workload w;

    workload_make(&spec, 1, &w);
    config = config_of(&w);
    ck_assert_int_eq(traffic_new(&traffic), ST_OK);
    serve(&w, &config, traffic);
    ck_assert_int_eq(traffic_copy(traffic, &window), ST_OK);
    ck_assert_int_eq(traffic_number(&window, &trace), ST_OK);
    for (size_t i = 0; i < SIZES * POLICIES; i++) {
        points[i] = (struct forecast_point){
            .policy = policies[i / SIZES],
            .block_count = (uint32_t)(sizes[i % SIZES] * (double)w.corpus_blocks)};
    }
    ck_assert_int_eq(forecast_run(&trace, &config, points, SIZES * POLICIES, &forecast), ST_OK);
    for (size_t i = 0; i < SIZES * POLICIES; i++) {
        compare(&spec, &w, &config, &points[i], forecast.hit_ratio);
    }
    ck_assert_int_eq(forecast_look(&trace, &config, &forecast), ST_OK);
    printf("%-9s hit %.3f, once %.3f, drift %.2f, prefix cache %.4f, alpha %.2f\n", spec.name,
           forecast.hit_ratio, forecast.one_time_share, forecast.drift, forecast.prefix_hit_ratio,
           traffic_alpha(&trace.trace));
    ck_assert_double_lt(forecast.prefix_hit_ratio, forecast.hit_ratio);
    if (strcmp(spec.kind, "stat") == 0) {
        ck_assert_double_le(fabs(traffic_alpha(&trace.trace) - spec.alpha),
                            spec.alpha <= 1.5 ? 0.1 : 0.25);
    }
    traffic_trace_deinit(&trace);
    traffic_window_deinit(&window);
    traffic_destroy(&traffic);
    workload_deinit(&w);
}
END_TEST

/* A field of /proc/self/status, in bytes. */
static uint64_t
memory_of(const char *field)
{
    FILE *status = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    ck_assert_ptr_nonnull(status);
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib = strtoull(line + strlen(field), NULL, 10);
        }
    }
    ck_assert_int_eq(fclose(status), 0);
    ck_assert_uint_gt(kib, 0);
    return kib << 10;
}

/* From now on the peak counts anew. */
static void
forget_peak(void)
{
    FILE *refs = fopen("/proc/self/clear_refs", "w");

    ck_assert_msg(refs != NULL && fputs("5", refs) >= 0 && fclose(refs) == 0, "no clear_refs");
}

/* As much as the ring holds, ten documents a request, three of four found. */
static void
fill_ring(struct traffic *traffic, const struct workload *w)
{
    for (uint32_t r = 0; r < w->trace.request_count; r++) {
        struct kvpool_want wants[16];
        size_t count = wants_of(&w->trace, r, wants);

        traffic_request(traffic, 8, 64);
        for (size_t i = 0; i < count; i++) {
            wants[i].tokens_ready = htab_mix(r * 16 + i) % 4 == 0 ? 0 : wants[i].n_tokens;
            traffic_document(traffic, &wants[i]);
        }
    }
}

START_TEST(a_look_at_all_that_is_remembered_needs_less_than_sixteen_mebibytes)
{
    struct workload_spec spec = {"look",           "stat", 0.7, .docs = 1000000, .per_request = 10,
                                 .requests = 13107};
    struct forecast_config config = {.policy = &evict_zipf,
                                     .block_count = LOOK_BLOCKS,
                                     .block_tokens = 32,
                                     .quadratic_tokens = QUADRATIC_TOKENS,
                                     .in_flight = 8,
                                     .own_blocks = 64};
    struct forecast_point points[LOOK_POINTS];
    struct traffic_window window;
    struct traffic_trace trace;
    struct traffic *traffic = NULL;
    struct forecast forecast;
    struct workload w;
    uint64_t before, peak;
    clock_t start;

    if (SCENE(false, true, true)) {
        return; /* their shadow is larger than what is measured */
    }
    workload_make(&spec, 1, &w);
    for (uint32_t d = 0; d < w.trace.doc_count; d++) {
        w.trace.tokens[d] = 50 + d % 200; /* short, so that many fit */
    }
    for (size_t i = 0; i < LOOK_POINTS; i++) {
        points[i] =
            (struct forecast_point){.policy = &evict_zipf, .block_count = LOOK_BLOCKS / 4 << i};
    }
    before = memory_of("VmRSS:");
    forget_peak();
    start = clock();
    ck_assert_int_eq(traffic_new(&traffic), ST_OK);
    fill_ring(traffic, &w);
    ck_assert_int_eq(traffic_copy(traffic, &window), ST_OK);
    ck_assert_int_eq(traffic_number(&window, &trace), ST_OK);
    traffic_window_deinit(&window);
    ck_assert_int_eq(forecast_run(&trace, &config, points, LOOK_POINTS, &forecast), ST_OK);
    ck_assert_int_eq(forecast_look(&trace, &config, &forecast), ST_OK);
    peak = memory_of("VmHWM:");
    printf("a look at %u references to %u documents, pools up to %u blocks: %.1f MiB, %.2f s\n",
           trace.trace.starts[trace.trace.request_count], trace.trace.doc_count,
           points[LOOK_POINTS - 1].block_count, (double)(peak - before) / (1 << 20),
           (double)(clock() - start) / CLOCKS_PER_SEC);
    ck_assert_uint_lt(peak - before, 16u << 20);
    traffic_trace_deinit(&trace);
    traffic_destroy(&traffic);
    workload_deinit(&w);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("forecast");
    TCase *tcase = tcase_create("forecast");

    tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS);
    tcase_add_loop_test(tcase, a_forecast_comes_true_or_says_that_it_is_uncertain, 0,
                        SCENE((int)workload_ci_count, (int)workload_ci_count, 2));
    tcase_add_test(tcase, a_look_at_all_that_is_remembered_needs_less_than_sixteen_mebibytes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
