/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/rmsnorm.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

START_TEST(a_hand_computed_row_comes_out)
{
    /* x + delta = (3, 4); mean square 12.5; 12.5 + 3.5 = 16 -> divided by 4. */
    float x[] = {1, 1}, out[2];
    const float delta[] = {2, 3}, weight[] = {1, -2};

    ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){x, delta, weight, out, 1, 2, 3.5f}), ST_OK);
    ck_assert_float_eq(x[0], 3.0f);
    ck_assert_float_eq(x[1], 4.0f);
    ck_assert_float_eq(out[0], 0.75f);
    ck_assert_float_eq(out[1], -2.0f);
}
END_TEST

START_TEST(without_delta_the_stream_is_untouched)
{
    struct rng rng = {test_seed()};

    for (uint32_t C = 1; C < 70; C++) {
        float *x = rng_floats(&rng, 3 * C), *weight = rng_floats(&rng, C);
        float *before = malloc(3 * C * sizeof(float)), *out = malloc(3 * C * sizeof(float));

        memcpy(before, x, 3 * C * sizeof(float));
        ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){x, NULL, weight, out, 3, C, 1e-5f}),
                         ST_OK);
        ck_assert_mem_eq(before, x, 3 * C * sizeof(float));
        for (uint32_t i = 0; i < 3 * C; i++) {
            long double sum = 0;

            for (uint32_t c = 0; c < C; c++) {
                sum += (long double)x[i / C * C + c] * x[i / C * C + c];
            }
            double want = (double)(x[i] / sqrtl(sum / C + 1e-5f) * weight[i % C]);

            assert_close(out[i], want, 0.0, 2 * EPS_F32, "out",
                         i); /* sums in double: one rounding */
        }
        free(x);
        free(weight);
        free(before);
        free(out);
    }
}
END_TEST

START_TEST(a_row_of_zeros_gives_zeros_and_a_nan_stays_in_its_row)
{
    float x[] = {0, 0, NAN, 1, 1, 1}, out[6];
    const float weight[] = {1, 1};

    ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){x, NULL, weight, out, 3, 2, 1e-5f}), ST_OK);
    ck_assert_float_eq(out[0], 0.0f);
    ck_assert(isnan(out[2]) && isnan(out[3]));
    ck_assert(isfinite(out[4]));
}
END_TEST

START_TEST(no_rows_are_fine_and_rows_of_nothing_are_refused)
{
    float x = 1, out = 7;

    ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){&x, NULL, &x, &out, 0, 1, 0}), ST_OK);
    ck_assert_float_eq(out, 7.0f);
    ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){&x, NULL, &x, &out, 1, 0, 0}), ST_INVALID);
}
END_TEST

CHECK_MAIN("rmsnorm", a_hand_computed_row_comes_out, without_delta_the_stream_is_untouched,
           a_row_of_zeros_gives_zeros_and_a_nan_stays_in_its_row,
           no_rows_are_fine_and_rows_of_nothing_are_refused)
