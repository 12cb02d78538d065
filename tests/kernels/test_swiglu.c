/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/simd.h"
#include "kernels/swiglu.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

/* exp within 2 ulp, one rounding each for sum, quotient and product. */
#define SWIGLU_REL (8 * EPS_F32)

START_TEST(every_width_around_a_vector_equals_the_formula)
{
    struct rng rng = {test_seed()};

    for (uint32_t F = 0; F < 40; F++) {
        float *in = rng_floats(&rng, 3 * 2 * F), *out = malloc((3 * F + 1) * sizeof(float));

        out[3 * F] = 7.0f;
        ck_assert_int_eq(swiglu_ref((struct swiglu_args){in, out, 3, F}), ST_OK);
        for (uint32_t i = 0; i < 3 * F; i++) {
            double g = in[i / F * 2 * F + i % F], u = in[i / F * 2 * F + F + i % F];

            assert_close(out[i], g / (1 + exp(-g)) * u, 1e-37, SWIGLU_REL, "out", i);
        }
        ck_assert_float_eq(out[3 * F], 7.0f);
        free(in);
        free(out);
    }
}
END_TEST

START_TEST(the_whole_range_of_gates_equals_the_formula)
{
    for (double g = -120; g < 120; g += 0.0137) {
        const float in[] = {(float)g, 2.0f};
        float out;

        ck_assert_int_eq(swiglu_ref((struct swiglu_args){in, &out, 1, 1}), ST_OK);
        /* Below -87 exp(-g) overflows on the way: the result, under 1e-35, may be 0. */
        assert_close(out, 2.0 * in[0] / (1 + exp(-(double)in[0])), 1e-35, SWIGLU_REL, "g", 0);
    }
}
END_TEST

START_TEST(nan_and_infinity_stand_where_the_formula_has_them)
{
    const float in[] = {NAN, 1, INFINITY, -INFINITY, 1, NAN, 1, 1};
    float out[4];

    ck_assert_int_eq(swiglu_ref((struct swiglu_args){in, out, 1, 4}), ST_OK);
    ck_assert(isnan(out[0])); /* gate */
    ck_assert(isnan(out[1])); /* up */
    ck_assert(isinf(out[2]) && out[2] > 0);
    ck_assert(isnan(out[3])); /* -inf / inf */
}
END_TEST

START_TEST(the_vector_exponential_is_within_two_ulp)
{
    struct rng rng = {test_seed()};

    for (int i = 0; i < 200000; i++) {
        f32x8 x, y;
        float in[SIMD_F32], out[SIMD_F32];

        for (int lane = 0; lane < SIMD_F32; lane++) {
            in[lane] = (float)((double)(rng_next(&rng) >> 11) * 0x1p-53 * 175.7 - 87.0);
        }
        simd_load(&x, in);
        simd_exp(&y, &x);
        simd_store(out, &y);
        for (int lane = 0; lane < SIMD_F32; lane++) {
            assert_close(out[lane], exp(in[lane]), 0.0, 4 * EPS_F32, "exp", (size_t)lane);
        }
    }
    f32x8 x = {-INFINITY, -88, INFINITY, NAN, 0, -0.0f, 89, 88.72f}, y;
    float out[SIMD_F32];

    simd_exp(&y, &x);
    simd_store(out, &y);
    ck_assert_float_eq(out[0], 0.0f);
    ck_assert_float_eq(out[1], 0.0f);
    ck_assert(isinf(out[2]) && isnan(out[3]));
    ck_assert_float_eq(out[4], 1.0f);
    ck_assert_float_eq(out[5], 1.0f);
    ck_assert(isinf(out[6]) && isfinite(out[7]));
}
END_TEST

START_TEST(the_exponential_of_a_softmax_has_the_same_bits)
{
    struct rng rng = {test_seed()};

    for (int i = 0; i < 50000; i++) {
        f32x8 x, y, want;

        for (int lane = 0; lane < SIMD_F32; lane++) {
            x[lane] = (float)((double)(rng_next(&rng) >> 11) * -0x1p-53 * 90.0);
        }
        simd_exp_fall(&y, &x);
        simd_exp(&want, &x);
        ck_assert_mem_eq(&y, &want, sizeof(y));
    }
    f32x8 x = {-INFINITY, -87.0f, -87.01f, NAN, 0, -0.0f, -1e30f, -0x1p-149f}, y, want;

    simd_exp_fall(&y, &x);
    simd_exp(&want, &x);
    for (int lane = 0; lane < SIMD_F32; lane++) {
        ck_assert(lane == 3 ? isnan(y[lane]) : y[lane] == want[lane]);
    }
}
END_TEST

CHECK_MAIN("swiglu", every_width_around_a_vector_equals_the_formula,
           the_whole_range_of_gates_equals_the_formula,
           nan_and_infinity_stand_where_the_formula_has_them,
           the_vector_exponential_is_within_two_ulp, the_exponential_of_a_softmax_has_the_same_bits)
