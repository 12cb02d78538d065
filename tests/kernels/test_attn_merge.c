/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/attn_merge.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

enum {
    D = 64
};

static enum status
merge(const float *o, const float *ml, const uint32_t *first, float *out, uint32_t n_rows,
      uint32_t H)
{
    return attn_merge_ref((struct attn_merge_args){
        .o = o, .ml = ml, .partial_first = first, .out = out, .n_rows = n_rows, .H = H, .D = D});
}

START_TEST(two_partials_worked_out_by_hand_merge)
{
    /* Scores ln 1, ln 2 | ln 5: weights 1, 2, 5 of 8; values 8, 0 | 16. */
    float o[2 * D] = {0}, out[D];
    const float ml[] = {(float)log(2), 1.5f, (float)log(5), 1.0f};
    const uint32_t first[] = {0, 2};

    o[0] = 0.5f * 8;
    o[D] = 16;
    ck_assert_int_eq(merge(o, ml, first, out, 1, 1), ST_OK);
    assert_close(out[0], (8 * 1 + 16 * 5) / 8.0, 0.0, 8 * EPS_F32, "out", 0);
    ck_assert_float_eq(out[1], 0.0f);
}
END_TEST

START_TEST(no_partial_or_only_identities_give_zero)
{
    float o[2 * D] = {0}, out[2 * D];
    const float ml[] = {-INFINITY, 0, -INFINITY, 0};
    const uint32_t first[] = {0, 0, 2};

    memset(out, 0xff, sizeof(out));
    ck_assert_int_eq(merge(o, ml, first, out, 2, 1), ST_OK);
    for (int d = 0; d < 2 * D; d++) {
        ck_assert_float_eq(out[d], 0.0f);
    }
    ck_assert_int_eq(merge(o, ml, first, out, 0, 1), ST_OK);
}
END_TEST

START_TEST(an_identity_changes_no_bit_wherever_it_stands)
{
    struct rng rng = {test_seed()};
    float *o = rng_floats(&rng, 4 * D), out[D], want[D];
    const uint32_t three[] = {0, 3}, two[] = {0, 2};

    for (int at = 0; at < 3; at++) {
        float with_o[3 * D] = {0}, with_ml[6], ml[] = {1.5f, 2, -3, 1};

        for (int i = 0, from = 0; i < 3; i++) {
            with_ml[2 * i] = i == at ? -INFINITY : ml[2 * from];
            with_ml[2 * i + 1] = i == at ? 0 : ml[2 * from + 1];
            if (i != at) {
                memcpy(&with_o[i * D], &o[from * D], D * sizeof(float));
                from++;
            }
        }
        ck_assert_int_eq(merge(o, ml, two, want, 1, 1), ST_OK);
        ck_assert_int_eq(merge(with_o, with_ml, three, out, 1, 1), ST_OK);
        ck_assert_mem_eq(out, want, sizeof(out));
    }
    free(o);
}
END_TEST

/* n partials in any order, against the formula in float64.  Each merge rounds o twice and exp once.
 */
START_TEST(any_order_of_partials_merges_to_the_same_result)
{
    enum {
        N = 12,
        ROUNDS = 200
    };
    struct rng rng = {test_seed()};

    for (int round = 0; round < ROUNDS; round++) {
        float *o = rng_floats(&rng, N * D), ml[2 * N], out[D];
        const uint32_t first[] = {0, N};
        double top = -INFINITY, sum = 0;

        for (int i = 0; i < N; i++) {
            ml[2 * i] = rng_normal(&rng) * 20;
            ml[2 * i + 1] = 1 + (float)rng_below(&rng, 100);
            top = fmax(top, (double)ml[2 * i]);
        }
        for (int i = N - 1; i > 0; i--) { /* a shuffle, values with their weights */
            int j = (int)rng_below(&rng, (uint32_t)i + 1);

            for (int d = 0; d < D + 2; d++) {
                float *a = d < D ? &o[i * D + d] : &ml[2 * i + d - D];
                float *b = d < D ? &o[j * D + d] : &ml[2 * j + d - D], keep = *a;

                *a = *b;
                *b = keep;
            }
        }
        for (int i = 0; i < N; i++) {
            sum += exp(ml[2 * i] - top) * ml[2 * i + 1];
        }
        ck_assert_int_eq(merge(o, ml, first, out, 1, 1), ST_OK);
        for (int d = 0; d < D; d++) {
            double want = 0, magnitude = 0;

            for (int i = 0; i < N; i++) {
                want += exp(ml[2 * i] - top) * o[i * D + d] / sum;
                magnitude += exp(ml[2 * i] - top) * fabs((double)o[i * D + d]) / sum;
            }
            /* Differences of m up to 240 are exact to 240 eps, which exp turns into relative error.
             */
            assert_close(out[d], want, magnitude * (4 * N + 240) * EPS_F32, 0.0, "out", (size_t)d);
        }
        free(o);
    }
}
END_TEST

START_TEST(rows_go_where_row_ids_say)
{
    struct rng rng = {test_seed()};
    float *o = rng_floats(&rng, 2 * 2 * D), out[5 * 2 * D];
    const float ml[] = {0, 1, 0, 1, 0, 1, 0, 1};
    const uint32_t first[] = {0, 1, 2}, ids[] = {4, 1};

    memset(out, 0xff, sizeof(out));
    ck_assert_int_eq(attn_merge_ref((struct attn_merge_args){o, ml, first, ids, out, 2, 2, D}),
                     ST_OK);
    ck_assert_mem_eq(&out[4 * 2 * D], o, 2 * D * sizeof(float));
    ck_assert_mem_eq(&out[1 * 2 * D], o + 2 * D, 2 * D * sizeof(float));
    ck_assert(isnan(out[0]) && isnan(out[2 * 2 * D]) && isnan(out[3 * 2 * D]));
    free(o);
}
END_TEST

START_TEST(a_nan_partial_shows_in_its_row)
{
    float o[2 * D] = {0}, out[D];
    const float ml[] = {0, 1, -INFINITY, NAN}; /* a chunk whose every score was NaN */
    const uint32_t first[] = {0, 2};

    ck_assert_int_eq(merge(o, ml, first, out, 1, 1), ST_OK);
    ck_assert(isnan(out[0]));
}
END_TEST

CHECK_MAIN("attn_merge", two_partials_worked_out_by_hand_merge,
           no_partial_or_only_identities_give_zero, an_identity_changes_no_bit_wherever_it_stands,
           any_order_of_partials_merges_to_the_same_result, rows_go_where_row_ids_say,
           a_nan_partial_shows_in_its_row)
