/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/philox.h"
#include "kernels/sample.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

static const struct sample_params greedy = {.top_p = 1, .repetition_penalty = 1};
static const struct sample_params plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static enum status
sample_one(const float *logits, uint32_t V, struct sample_params params,
           struct sample_result *result)
{
    float *space = malloc(sample_workspace_bytes(1, V));
    enum status st = sample_ref((struct sample_args){logits, &params, result, space, 1, V});

    free(space);
    return st;
}

/* Counts n draws with counters 0, 1, ... */
static void
draw_many(const float *logits, uint32_t V, struct sample_params params, uint32_t n, uint32_t *count)
{
    struct sample_result result;

    memset(count, 0, V * sizeof(*count));
    for (uint32_t i = 0; i < n; i++) {
        params.counter = i;
        ck_assert_int_eq(sample_one(logits, V, params, &result), ST_OK);
        count[result.id]++;
    }
}

START_TEST(philox_gives_the_published_words)
{
    /* Known answers that come with the authors' Random123 library. */
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    const uint32_t want_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t want_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t out[4];

    philox4x32(zero, zero, out);
    ck_assert_mem_eq(out, want_zero, sizeof(out));
    philox4x32(ones, ones, out);
    ck_assert_mem_eq(out, want_ones, sizeof(out));
    for (uint64_t i = 0; i < 1000; i++) {
        double u = philox_uniform(1, i);

        ck_assert(u >= 0.0 && u < 1.0);
    }
}
END_TEST

START_TEST(greedy_takes_the_largest_and_the_lowest_id_of_equals)
{
    const float logits[] = {-1, 3, 2, 3, -INFINITY};
    struct sample_result result;

    ck_assert_int_eq(sample_one(logits, 5, greedy, &result), ST_OK);
    ck_assert_uint_eq(result.id, 1);
    ck_assert_uint_eq(result.n_top, 0);
    ck_assert_int_eq(sample_one(logits, 1, greedy, &result), ST_OK);
    ck_assert_uint_eq(result.id, 0);
    ck_assert_float_eq(result.logprob, 0.0f);
}
END_TEST

START_TEST(log_probabilities_are_those_of_the_softmax_at_temperature_one)
{
    const float logits[] = {(float)log(0.125), (float)log(0.5), (float)log(0.125),
                            (float)log(0.25)};
    struct sample_params params = plain;
    struct sample_result result;

    params.temperature = 0.01f; /* changes the draw, not what is reported */
    params.n_logprobs = 3;
    ck_assert_int_eq(sample_one(logits, 4, params, &result), ST_OK);
    ck_assert_uint_eq(result.id, 1);
    assert_close(result.logprob, log(0.5), 0.0, 4 * EPS_F32, "logprob", 0);
    ck_assert_uint_eq(result.n_top, 3);
    ck_assert_uint_eq(result.top_ids[0], 1);
    ck_assert_uint_eq(result.top_ids[1], 3);
    ck_assert_uint_eq(result.top_ids[2], 0); /* ties: the lower id */
    assert_close(result.top_logprobs[1], log(0.25), 0.0, 4 * EPS_F32, "top", 1);
    assert_close(result.top_logprobs[2], log(0.125), 0.0, 4 * EPS_F32, "top", 2);
    params.n_logprobs = SAMPLE_LOGPROBS_MAX;
    ck_assert_int_eq(sample_one(logits, 4, params, &result), ST_OK);
    ck_assert_uint_eq(result.n_top, 4);
    ck_assert_uint_eq(result.top_ids[3], 2);
}
END_TEST

START_TEST(the_penalty_touches_each_id_of_the_history_once)
{
    const float logits[] = {2, -2, 1.5f, -INFINITY};
    const uint32_t history[] = {0, 1, 0, 0, 3};
    struct sample_params params = greedy;
    struct sample_result result;

    params.repetition_penalty = 2;
    params.history = history;
    params.n_history = 5;
    params.n_logprobs = 4;
    ck_assert_int_eq(sample_one(logits, 4, params, &result), ST_OK);
    ck_assert_uint_eq(result.id, 2); /* 1, -4, 1.5 */
    double log_sum = log(exp(1) + exp(-4) + exp(1.5));

    assert_close(result.logprob, 1.5 - log_sum, 0.0, 4 * EPS_F32, "logprob", 0);
    assert_close(result.top_logprobs[1], 1 - log_sum, 0.0, 4 * EPS_F32, "top", 1);
    assert_close(result.top_logprobs[2], -4 - log_sum, 0.0, 4 * EPS_F32, "top", 2);
    ck_assert(isinf(result.top_logprobs[3]));
}
END_TEST

/* Pearson's statistic against probabilities; ids of probability 0 must not be drawn. */
static double
chi_square(const uint32_t *count, const double *p, uint32_t V, uint32_t n)
{
    double sum = 0;

    for (uint32_t v = 0; v < V; v++) {
        if (p[v] == 0.0) {
            ck_assert_uint_eq(count[v], 0);
            continue;
        }
        sum += (count[v] - n * p[v]) * (count[v] - n * p[v]) / (n * p[v]);
    }
    return sum;
}

#define CHI_SQUARE_3 16.27 /* quantile 0.999 of 3 degrees of freedom; seeds are fixed */
#define CHI_SQUARE_1 10.83
#define DRAWS        20000

START_TEST(draws_follow_the_softmax_at_their_temperature)
{
    const float logits[] = {0.3f, -1.2f, 1.1f, -INFINITY, 0.0f};
    const float temperatures[] = {0.5f, 1.0f, 1.7f};
    uint32_t count[5];

    for (int i = 0; i < 3; i++) {
        struct sample_params params = plain;
        double p[5], sum = 0;

        for (int v = 0; v < 5; v++) {
            p[v] = exp(logits[v] / temperatures[i]);
            sum += p[v];
        }
        for (int v = 0; v < 5; v++) {
            p[v] /= sum;
        }
        params.temperature = temperatures[i];
        params.seed = 42;
        draw_many(logits, 5, params, DRAWS, count);
        ck_assert_double_lt(chi_square(count, p, 5, DRAWS), CHI_SQUARE_3);
        params.top_k = 4; /* the other way to draw: from a sorted list */
        draw_many(logits, 5, params, DRAWS, count);
        ck_assert_double_lt(chi_square(count, p, 5, DRAWS), CHI_SQUARE_3);
    }
}
END_TEST

/* 1/2, 1/4, 1/8, 1/8, out of order. */
static const float halves[] = {-2.07944154f, -0.693147182f, -2.07944154f, -1.38629436f};

START_TEST(top_k_keeps_k_and_the_lower_id_of_equals)
{
    const double two[] = {0, 2.0 / 3, 0, 1.0 / 3}, three[] = {1.0 / 7, 4.0 / 7, 0, 2.0 / 7};
    const double four[] = {1.0 / 8, 1.0 / 2, 1.0 / 8, 1.0 / 4};
    struct sample_params params = plain;
    struct sample_result result;
    uint32_t count[4];

    params.top_k = 1;
    params.temperature = 100;
    ck_assert_int_eq(sample_one(halves, 4, params, &result), ST_OK);
    ck_assert_uint_eq(result.id, 1);
    params.temperature = 1;
    params.top_k = 2;
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, two, 4, DRAWS), CHI_SQUARE_1);
    params.top_k = 3;
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, three, 4, DRAWS), CHI_SQUARE_3);
    params.top_k = 1000; /* more than there are */
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, four, 4, DRAWS), CHI_SQUARE_3);
}
END_TEST

START_TEST(top_p_keeps_the_token_that_crosses)
{
    const double one[] = {0, 1, 0, 0}, two[] = {0, 2.0 / 3, 0, 1.0 / 3};
    const double three[] = {1.0 / 7, 4.0 / 7, 0, 2.0 / 7};
    struct sample_params params = plain;
    uint32_t count[4];

    params.top_p = 1e-6f;
    draw_many(halves, 4, params, 1000, count);
    chi_square(count, one, 4, 1000);
    params.top_p = 0.499f;
    draw_many(halves, 4, params, 1000, count);
    chi_square(count, one, 4, 1000);
    params.top_p = 0.501f;
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, two, 4, DRAWS), CHI_SQUARE_1);
    params.top_p = 0.751f;
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, three, 4, DRAWS), CHI_SQUARE_3);
    /* After top_k = 2 the mass is 3/4: 0.6 of it is below 1/2, so one token is enough. */
    params.top_k = 2;
    params.top_p = 0.6f;
    draw_many(halves, 4, params, 1000, count);
    chi_square(count, one, 4, 1000);
}
END_TEST

START_TEST(min_p_is_relative_to_the_best)
{
    const double one[] = {0, 1, 0, 0}, two[] = {0, 2.0 / 3, 0, 1.0 / 3};
    struct sample_params params = plain;
    uint32_t count[4];

    params.min_p = 0.49f;
    draw_many(halves, 4, params, DRAWS, count);
    ck_assert_double_lt(chi_square(count, two, 4, DRAWS), CHI_SQUARE_1);
    params.min_p = 0.51f;
    draw_many(halves, 4, params, 1000, count);
    chi_square(count, one, 4, 1000);
    params.min_p = 1;
    draw_many(halves, 4, params, 1000, count);
    chi_square(count, one, 4, 1000);
    /* At temperature 2 the second is 1/sqrt(2) of the best: temperature comes first. */
    params.temperature = 2;
    params.min_p = 0.7f;
    draw_many(halves, 4, params, 1000, count);
    ck_assert_uint_gt(count[3], 0);
    ck_assert_uint_eq(count[0] + count[2], 0);
}
END_TEST

START_TEST(a_draw_depends_on_seed_and_counter_alone)
{
    enum {
        V = 1000,
        R = 8
    };
    struct rng rng = {test_seed()};
    float *row = rng_floats(&rng, V), *logits = malloc(sizeof(float) * R * V);
    float *space = malloc(sample_workspace_bytes(R, V));
    struct sample_params params[R];
    struct sample_result results[R], alone;
    uint32_t different = 0;

    for (int r = 0; r < R; r++) {
        memcpy(logits + r * V, row, V * sizeof(float));
        params[r] = plain;
        params[r].seed = 5;
        params[r].counter = (uint64_t)r;
        params[r].top_p = r % 2 == 0 ? 1 : 0.95f;
    }
    ck_assert_int_eq(sample_ref((struct sample_args){logits, params, results, space, R, V}), ST_OK);
    for (int r = 0; r < R; r++) {
        ck_assert_int_eq(sample_one(row, V, params[r], &alone), ST_OK);
        ck_assert_uint_eq(alone.id, results[r].id);
        different += results[r].id != results[0].id;
        params[r].seed = UINT64_C(5) << 32;
        ck_assert_int_eq(sample_one(row, V, params[r], &alone), ST_OK);
        different += results[r].id != alone.id;
    }
    ck_assert_uint_gt(different, R);
    free(row);
    free(logits);
    free(space);
}
END_TEST

static void
refuse(const float *logits, uint32_t V, struct sample_params params, const char *why)
{
    struct sample_result result;

    ck_assert_int_eq(sample_one(logits, V, params, &result), ST_INVALID);
    ck_assert_msg(strstr(status_detail(), why) != NULL, "\"%s\" lacks \"%s\"", status_detail(),
                  why);
}

START_TEST(logits_that_are_no_numbers_are_refused_by_row_and_id)
{
    const float nan[] = {0, NAN, 0}, inf[] = {0, 1, INFINITY}, nothing[] = {-INFINITY, -INFINITY};
    struct sample_params two[2] = {greedy, greedy};
    struct sample_result results[2];
    const float rows[] = {0, 1, 2, NAN};
    float space[8];

    refuse(nan, 3, greedy, "row 0: the logit of id 1 is nan");
    refuse(inf, 3, plain, "row 0: the logit of id 2 is inf");
    refuse(nothing, 2, plain, "every logit is -inf");
    ck_assert_int_eq(sample_ref((struct sample_args){rows, two, results, space, 2, 2}), ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 1: the logit of id 1 is nan");
    ck_assert_int_eq(sample_ref((struct sample_args){rows, two, results, space, 0, 2}), ST_OK);
}
END_TEST

START_TEST(parameters_out_of_range_are_refused_by_name)
{
    const float logits[] = {1, 2};
    const uint32_t history[] = {2}, first[] = {0};
    struct sample_params bad;

    bad = plain, bad.temperature = -0.1f;
    refuse(logits, 2, bad, "temperature");
    bad = plain, bad.temperature = NAN;
    refuse(logits, 2, bad, "temperature");
    bad = plain, bad.top_p = 0;
    refuse(logits, 2, bad, "top_p 0");
    bad = plain, bad.top_p = 1.5f;
    refuse(logits, 2, bad, "top_p 1.5");
    bad = plain, bad.min_p = -1;
    refuse(logits, 2, bad, "min_p");
    bad = plain, bad.repetition_penalty = 0;
    refuse(logits, 2, bad, "repetition_penalty");
    bad = plain, bad.repetition_penalty = 1e-39f, bad.history = first, bad.n_history = 1;
    refuse(logits, 2, bad, "repetition_penalty");
    bad = plain, bad.n_logprobs = SAMPLE_LOGPROBS_MAX + 1;
    refuse(logits, 2, bad, "21 logprobs");
    bad = plain, bad.history = history, bad.n_history = 1;
    refuse(logits, 2, bad, "history holds id 2");
    refuse(logits, 0, plain, "vocabulary of 0");
}
END_TEST

START_TEST(a_whole_vocabulary_is_summed_to_a_float)
{
    enum {
        V = 49152
    };
    struct rng rng = {test_seed()};
    float *logits = rng_floats(&rng, V);
    struct sample_params params = greedy;
    struct sample_result result;
    double sum = 0;
    uint32_t best = 0;

    for (uint32_t v = 0; v < V; v++) {
        logits[v] *= 4;
        sum += exp(logits[v]);
        best = logits[v] > logits[best] ? v : best;
    }
    params.n_logprobs = SAMPLE_LOGPROBS_MAX;
    ck_assert_int_eq(sample_one(logits, V, params, &result), ST_OK);
    ck_assert_uint_eq(result.id, best);
    ck_assert_uint_eq(result.top_ids[0], best);
    for (uint32_t i = 0; i < SAMPLE_LOGPROBS_MAX; i++) {
        assert_close(result.top_logprobs[i], logits[result.top_ids[i]] - log(sum), 0.0, 4 * EPS_F32,
                     "top", i);
        ck_assert(i == 0 || result.top_logprobs[i] <= result.top_logprobs[i - 1]);
    }
    free(logits);
}
END_TEST

START_TEST(adjustments_are_added_after_the_penalty_and_bans_hold)
{
    const float logits[] = {2, 4, 1, 0};
    const uint32_t history[] = {1};
    const struct sample_adjust adjusts[] = {{0, 1.5f}, {1, 1.0f}, {3, -INFINITY}};
    struct sample_params params = greedy;
    struct sample_result result;

    params.repetition_penalty = 2;
    params.history = history;
    params.n_history = 1;
    params.adjusts = adjusts;
    params.n_adjusts = 3;
    params.n_logprobs = 4;
    ck_assert_int_eq(sample_one(logits, 4, params, &result), ST_OK);
    ck_assert_uint_eq(result.id, 0); /* 3.5 against 4 / 2 + 1 */
    ck_assert_float_eq_tol(result.logprob - result.top_logprobs[1], 0.5f, 1e-6f);
    ck_assert_uint_eq(result.top_ids[1], 1);
    ck_assert_uint_eq(result.top_ids[3], 3);
    ck_assert(isinf(result.top_logprobs[3]));
}
END_TEST

START_TEST(only_allowed_ids_are_drawn_and_without_one_the_row_is_refused)
{
    enum {
        V = 70
    };
    float logits[V] = {0};
    uint32_t allowed[3] = {0, 0, 0}, count[V];
    struct sample_params params = plain;
    struct sample_result result;

    allowed[1] = 1u << 3; /* 35 */
    allowed[2] = 1u << 2; /* 66 */
    params.allowed = allowed;
    logits[7] = 30; /* the best one may not come */
    draw_many(logits, V, params, 200, count);
    ck_assert_uint_eq(count[35] + count[66], 200);
    ck_assert(count[35] > 50 && count[66] > 50);
    params.top_k = 5;
    params.top_p = 0.9f;
    draw_many(logits, V, params, 50, count);
    ck_assert_uint_eq(count[35] + count[66], 50);
    ck_assert_int_eq(sample_one(logits, V, params, &result), ST_OK);
    ck_assert_float_eq_tol(result.logprob, logf(0.5f), 1e-5f);
    allowed[1] = allowed[2] = 0;
    ck_assert_int_eq(sample_one(logits, V, params, &result), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "no id is allowed"));
}
END_TEST

CHECK_MAIN("sample", philox_gives_the_published_words,
           greedy_takes_the_largest_and_the_lowest_id_of_equals,
           log_probabilities_are_those_of_the_softmax_at_temperature_one,
           the_penalty_touches_each_id_of_the_history_once,
           adjustments_are_added_after_the_penalty_and_bans_hold,
           only_allowed_ids_are_drawn_and_without_one_the_row_is_refused,
           draws_follow_the_softmax_at_their_temperature, top_k_keeps_k_and_the_lower_id_of_equals,
           top_p_keeps_the_token_that_crosses, min_p_is_relative_to_the_best,
           a_draw_depends_on_seed_and_counter_alone,
           logits_that_are_no_numbers_are_refused_by_row_and_id,
           parameters_out_of_range_are_refused_by_name, a_whole_vocabulary_is_summed_to_a_float)
