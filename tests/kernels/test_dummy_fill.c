/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "kernels/dummy_fill.h"
#include "tests/support/check_main.h"

#define SCALE 0x1p-13f

static void
fill(float *out, uint64_t count, uint64_t seed, uint32_t stream)
{
    struct dummy_fill_args args = {out, count, seed, stream, 0, SCALE};

    ck_assert_int_eq(dummy_fill_ref(args), ST_OK);
}

START_TEST(a_value_depends_on_seed_stream_and_place_alone)
{
    static float whole[1000], part[1000];

    fill(whole, 1000, 7, 3);
    for (uint64_t count = 0; count < 40; count++) {
        part[count] = 9;
        fill(part, count, 7, 3);
        ck_assert_mem_eq(part, whole, count * sizeof(float));
        ck_assert_float_eq(part[count], 9); /* nothing past the end */
    }
    fill(part, 1000, 8, 3);
    ck_assert_mem_ne(part, whole, sizeof(whole));
    fill(part, 1000, 7, 4);
    ck_assert_mem_ne(part, whole, sizeof(whole));
    fill(part, 1000, 7 + (1ull << 32), 3);
    ck_assert_mem_ne(part, whole, sizeof(whole));
}
END_TEST

START_TEST(the_first_values_are_those_of_philox_by_hand)
{
    const uint32_t key[2] = {5, 0}, counter[4] = {1, 0, 2, 0};
    uint32_t words[4];
    float out[32];

    philox4x32(key, counter, words);
    fill(out, 32, 5, 2);
    for (uint32_t i = 0; i < 16; i++) {
        float byte = (float)(words[i / 4] >> 8 * (i % 4) & 255);

        ck_assert_float_eq(out[16 + i], (2 * byte - 255) * SCALE);
    }
}
END_TEST

START_TEST(values_are_exact_in_bfloat16_and_look_uniform)
{
    enum {
        COUNT = 1 << 20
    };
    static float out[COUNT];
    double sum = 0, squares = 0;
    uint32_t inexact = 0;

    fill(out, COUNT, 1, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t bits;

        memcpy(&bits, &out[i], sizeof(bits));
        inexact += (bits & 0xffff) != 0;
        sum += (double)out[i];
        squares += (double)out[i] * (double)out[i];
    }
    ck_assert_uint_eq(inexact, 0);
    double deviation = sqrt(squares / COUNT);

    /* sqrt((256^2 - 1) / 3) steps; four standard errors of a mean of 2^20. */
    ck_assert_double_eq_tol(deviation, 147.8 * (double)SCALE, 1e-4);
    ck_assert_double_eq_tol(sum / COUNT, 0, 4 * deviation / 1024);
}
END_TEST

START_TEST(without_scale_all_is_the_center)
{
    float out[17];

    ck_assert_int_eq(dummy_fill_ref((struct dummy_fill_args){out, 17, 1, 0, 1, 0}), ST_OK);
    for (uint32_t i = 0; i < 17; i++) {
        ck_assert_float_eq(out[i], 1);
    }
}
END_TEST

CHECK_MAIN("dummy_fill", a_value_depends_on_seed_stream_and_place_alone,
           the_first_values_are_those_of_philox_by_hand,
           values_are_exact_in_bfloat16_and_look_uniform, without_scale_all_is_the_center)
