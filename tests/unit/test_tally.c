/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/tally.h"
#include "tests/support/check_main.h"

static const struct tally_options options = {.percentiles = {50, 90, 99}, .n_percentiles = 3};

/* A request sent at 1 s whose outputs come at these milliseconds after it. */
static struct outcome
outcome_at(const uint32_t *ms, size_t count, uint32_t end_ms, uint32_t tokens)
{
    struct outcome outcome;

    outcome_begin(&outcome, 990000, 1000000);
    for (size_t i = 0; i < count; i++) {
        outcome_output(&outcome, "x", 1, 1000000 + ms[i] * UINT64_C(1000));
    }
    outcome.output_tokens = tokens;
    outcome_end(&outcome, NULL, 1000000 + end_ms * UINT64_C(1000));
    return outcome;
}

START_TEST(ttft_is_from_send_to_first_output_and_gaps_are_between_outputs)
{
    const uint32_t ms[] = {30, 40, 70};
    struct outcome o = outcome_at(ms, 3, 75, 4);

    ck_assert(o.is_ok);
    ck_assert_double_eq(outcome_ttft_ms(&o), 30);
    ck_assert_double_eq(outcome_e2el_ms(&o), 75);
    ck_assert_double_eq(outcome_tpot_ms(&o), (75 - 30) / 3.0);
    ck_assert_uint_eq(o.n_gaps, 2);
    ck_assert_uint_eq(o.gaps_us[0], 10000);
    ck_assert_uint_eq(o.gaps_us[1], 30000);
    outcome_deinit(&o);
}
END_TEST

START_TEST(an_answer_without_output_is_a_failure_and_one_token_has_no_tpot)
{
    const uint32_t ms[] = {5};
    struct outcome none = outcome_at(NULL, 0, 9, 0), one = outcome_at(ms, 1, 6, 1);

    ck_assert(!none.is_ok);
    ck_assert_str_eq(none.error, "the answer had no output");
    ck_assert_double_eq(outcome_tpot_ms(&one), 0);
    outcome_deinit(&none);
    outcome_deinit(&one);
}
END_TEST

START_TEST(equal_texts_have_equal_hashes_however_they_were_cut)
{
    struct outcome a, b, c;

    outcome_begin(&a, 0, 0);
    outcome_begin(&b, 0, 0);
    outcome_begin(&c, 0, 0);
    outcome_output(&a, "Lisbon", 6, 1);
    outcome_output(&b, "Lis", 3, 1);
    outcome_output(&b, "bon", 3, 2);
    outcome_output(&c, "lisbon", 6, 1);
    ck_assert_uint_eq(a.text_hash, b.text_hash);
    ck_assert_uint_ne(a.text_hash, c.text_hash);
    outcome_deinit(&a);
    outcome_deinit(&b);
    outcome_deinit(&c);
}
END_TEST

START_TEST(a_metric_is_what_numpy_says_of_the_same_samples)
{
    double samples[] = {4, 1, 3, 2};
    struct metric m = metric_of(samples, 4, &options);

    /* numpy: mean 2.5, std 1.118033988749895, percentile 50, 90, 99: 2.5, 3.7, 3.97 */
    ck_assert_double_eq(m.mean, 2.5);
    ck_assert_double_eq_tol(m.std, 1.118033988749895, 1e-15);
    ck_assert_double_eq(m.median, 2.5);
    ck_assert_double_eq_tol(m.percentiles[1], 3.7, 1e-12);
    ck_assert_double_eq_tol(m.percentiles[2], 3.97, 1e-12);
    ck_assert_uint_eq(metric_of(samples, 0, &options).count, 0);
    ck_assert_double_eq(metric_of(samples, 1, &options).percentiles[2], 1);
}
END_TEST

START_TEST(cold_and_warm_are_apart_and_failures_are_counted_once)
{
    const uint32_t fast[] = {10, 20}, slow[] = {100, 120};
    struct outcome outcomes[3] = {outcome_at(fast, 2, 20, 2), outcome_at(slow, 2, 120, 2),
                                  outcome_at(NULL, 0, 1, 0)};
    struct tally all, cold, warm;

    outcomes[0].is_warm = outcomes[0].has_reuse = outcomes[1].has_reuse = true;
    outcomes[0].documents = outcomes[0].documents_hit = outcomes[1].documents = 5;
    outcomes[1].documents_hit = 3;
    outcomes[0].document_tokens = outcomes[0].tokens_reused = outcomes[1].document_tokens = 100;
    outcomes[1].tokens_reused = 40;
    ck_assert_int_eq(tally_make(outcomes, 3, TALLY_ALL, &options, &all), ST_OK);
    ck_assert_int_eq(tally_make(outcomes, 3, TALLY_COLD, &options, &cold), ST_OK);
    ck_assert_int_eq(tally_make(outcomes, 3, TALLY_WARM, &options, &warm), ST_OK);
    ck_assert_uint_eq(all.completed, 2);
    ck_assert_uint_eq(all.failed, 1);
    ck_assert_double_eq(all.ttft.mean, 55);
    ck_assert_double_eq(cold.ttft.median, 100);
    ck_assert_double_eq(warm.ttft.median, 10);
    ck_assert_uint_eq(all.itl.count, 2);
    ck_assert_uint_eq(all.documents_hit, 8);
    ck_assert_uint_eq(all.tokens_reused, 140);
    ck_assert_double_eq(all.late_ms_max, 10);
    for (int i = 0; i < 3; i++) {
        outcome_deinit(&outcomes[i]);
    }
}
END_TEST

START_TEST(goodput_counts_those_below_all_limits)
{
    const uint32_t fast[] = {10, 20}, slow[] = {100, 120};
    struct outcome outcomes[2] = {outcome_at(fast, 2, 20, 2), outcome_at(slow, 2, 120, 2)};
    struct tally_options limits = options;
    struct tally tally;

    ck_assert_int_eq(tally_parse_goodput("ttft:50,e2el:30", &limits), ST_OK);
    ck_assert_int_eq(tally_make(outcomes, 2, TALLY_ALL, &limits, &tally), ST_OK);
    ck_assert_uint_eq(tally.good, 1);
    ck_assert_int_eq(tally_parse_goodput("ttft:5", &limits), ST_OK);
    ck_assert_int_eq(tally_make(outcomes, 2, TALLY_ALL, &limits, &tally), ST_OK);
    ck_assert_uint_eq(tally.good, 0);
    ck_assert_int_eq(tally_parse_goodput("ttft", &limits), ST_INVALID);
    ck_assert_int_eq(tally_parse_goodput("ttft:-1", &limits), ST_INVALID);
    ck_assert_int_eq(tally_parse_goodput("itl:5", &limits), ST_INVALID);
    ck_assert_int_eq(tally_parse_percentiles("50,99.9", &limits), ST_OK);
    ck_assert_uint_eq(limits.n_percentiles, 2);
    ck_assert_int_eq(tally_parse_percentiles("50,101", &limits), ST_INVALID);
    ck_assert_int_eq(tally_parse_percentiles("50,,9", &limits), ST_INVALID);
    outcome_deinit(&outcomes[0]);
    outcome_deinit(&outcomes[1]);
}
END_TEST

/* What readers of `vllm bench serve` look for. */
/* Three, the third sent as the second ends; outputs in the first second and the third. */
START_TEST(peaks_are_of_one_instant_and_of_one_second)
{
    const uint32_t early[] = {100, 200, 2100}, mid[] = {30}, late[] = {999, 1500};
    struct outcome o[] = {outcome_at(early, 3, 2500, 3), outcome_at(mid, 1, 500, 1),
                          outcome_at(late, 2, 3000, 2), outcome_at(NULL, 0, 4000, 0)};
    struct peaks peaks;

    o[2].sent_us = 1500000;
    o[2].first_us += 500000; /* 1.499 s after the first was sent, then 2.0 s */
    ck_assert_int_eq(peaks_of(o, 4, &peaks), ST_OK);
    ck_assert_uint_eq(peaks.requests, 2);
    ck_assert_uint_eq(peaks.outputs_per_s, 3); /* 0.1, 0.2 and 0.03 s */
    o[2].sent_us--;
    ck_assert_int_eq(peaks_of(o, 4, &peaks), ST_OK);
    ck_assert_uint_eq(peaks.requests, 3);
    ck_assert_int_eq(peaks_of(o + 3, 1, &peaks), ST_OK); /* none was answered */
    ck_assert(peaks.requests == 0 && peaks.outputs_per_s == 0);
    for (size_t i = 0; i < 4; i++) {
        outcome_deinit(&o[i]);
    }
}
END_TEST

START_TEST(json_and_block_have_the_keys_that_readers_know)
{
    static const char *const keys[] = {"completed",
                                       "total_input_tokens",
                                       "total_output_tokens",
                                       "duration",
                                       "request_throughput",
                                       "output_throughput",
                                       "total_token_throughput",
                                       "request_goodput",
                                       "max_output_tokens_per_s",
                                       "max_concurrent_requests",
                                       "mean_ttft_ms",
                                       "median_tpot_ms",
                                       "std_itl_ms",
                                       "p99_e2el_ms"};
    static const char *const lines[] = {"Successful requests:",
                                        "Benchmark duration (s):",
                                        "Request throughput (req/s):",
                                        "Peak output token throughput (tok/s):",
                                        "Peak concurrent requests:",
                                        "Mean TTFT (ms):",
                                        "P99 ITL (ms):"};
    const uint32_t ms[] = {10, 20};
    struct outcome o = outcome_at(ms, 2, 20, 2);
    struct json_object *object = json_object_new_object();
    struct tally tally;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    ck_assert_int_eq(tally_make(&o, 1, TALLY_ALL, &options, &tally), ST_OK);
    tally_to_json(object, &tally, &options, 2.0);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        ck_assert_msg(json_object_object_get_ex(object, keys[i], NULL), "%s", keys[i]);
    }
    tally_print(out, "lazy", &tally, &tally, &tally, &options, 2.0);
    (void)fclose(out);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ck_assert_msg(strstr(text, lines[i]) != NULL, "%s", lines[i]);
    }
    free(text);
    json_object_put(object);
    outcome_deinit(&o);
}
END_TEST

CHECK_MAIN("tally", ttft_is_from_send_to_first_output_and_gaps_are_between_outputs,
           an_answer_without_output_is_a_failure_and_one_token_has_no_tpot,
           equal_texts_have_equal_hashes_however_they_were_cut,
           a_metric_is_what_numpy_says_of_the_same_samples,
           cold_and_warm_are_apart_and_failures_are_counted_once,
           goodput_counts_those_below_all_limits, peaks_are_of_one_instant_and_of_one_second,
           json_and_block_have_the_keys_that_readers_know)
