/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/gemm_cpu.h"
#include "kernels/ops.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

/* The instance's product, of weights that it gets packed, into memory full of NaN. */
static float *
product(const struct ops *ops, const float *x, const float *w, uint32_t M, uint32_t N, uint32_t K)
{
    float *y = malloc(((size_t)M * N + 1) * sizeof(*y));
    float *packed = malloc((size_t)N * K * sizeof(*packed));

    memcpy(packed, w, (size_t)N * K * sizeof(*packed));
    ck_assert_int_eq(panel_pack(PANEL_F32, packed, N, K), ST_OK);
    memset(y, 0xff, ((size_t)M * N + 1) * sizeof(*y));
    ck_assert_int_eq(
        ops->gemm(ops, (struct gemm_args){.x = x, .w = packed, .y = y, .M = M, .N = N, .K = K}),
        ST_OK);
    free(packed);
    ck_assert(isnan(y[(size_t)M * N])); /* nothing behind the end was written */
    return y;
}

static struct ops *
new_ops(uint32_t threads)
{
    struct ops *ops = NULL;

    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = threads}, &ops), ST_OK);
    return ops;
}

START_TEST(the_twin_gives_a_hand_computed_product)
{
    const float x[] = {1, 2, 3, -1, 0, 0.5f}, w[] = {1, 1, 1, 2, -1, 4};
    float y[4];

    ck_assert_int_eq(gemm_ref((struct gemm_args){.x = x, .w = w, .y = y, .M = 2, .N = 2, .K = 3}),
                     ST_OK);
    ck_assert_float_eq(y[0], 6.0f);
    ck_assert_float_eq(y[1], 12.0f);
    ck_assert_float_eq(y[2], -0.5f);
    ck_assert_float_eq(y[3], 0.0f);
}
END_TEST

/* K sums in float32, one after the other: error at most K eps sum|x w|. */
static void
compare_shape(const struct ops *ops, struct rng *rng, uint32_t M, uint32_t N, uint32_t K)
{
    float *x = rng_floats(rng, (size_t)M * K), *w = rng_floats(rng, (size_t)N * K);
    float *y = product(ops, x, w, M, N, K);

    for (uint32_t m = 0; m < M; m++) {
        for (uint32_t n = 0; n < N; n++) {
            double want = 0.0, magnitude = 0.0;

            for (uint32_t k = 0; k < K; k++) {
                double term = (double)x[(size_t)m * K + k] * w[(size_t)n * K + k];

                want += term;
                magnitude += fabs(term);
            }
            assert_close(y[(size_t)m * N + n], want, K * EPS_F32 * magnitude, 0.0, "y",
                         (size_t)m * N + n);
        }
    }
    free(x);
    free(w);
    free(y);
}

START_TEST(every_edge_of_a_tile_equals_the_twin)
{
    const uint32_t Ms[] = {1, 2, 3, 4, 5, 6, 7, 13, 33};
    const uint32_t Ns[] = {1, 15, 16, 17, 31, 32, 47, 48, 49, 97};
    const uint32_t Ks[] = {1, 2, 63, 64};
    struct ops *ops = new_ops(2);
    struct rng rng = {test_seed()};

    for (size_t m = 0; m < 9; m++) {
        for (size_t n = 0; n < 10; n++) {
            for (size_t k = 0; k < 4; k++) {
                compare_shape(ops, &rng, Ms[m], Ns[n], Ks[k]);
            }
        }
    }
    compare_shape(ops, &rng, 3, 960, 576);
    compare_shape(ops, &rng, 20, 576, 1536);
    ops_destroy(&ops);
}
END_TEST

START_TEST(nothing_to_multiply_is_fine)
{
    struct ops *ops = new_ops(2);
    float x = 1, w = 1, y = 3;

    ck_assert_int_eq(
        ops->gemm(ops, (struct gemm_args){.x = &x, .w = &w, .y = &y, .M = 0, .N = 1, .K = 1}),
        ST_OK);
    ck_assert_int_eq(
        ops->gemm(ops, (struct gemm_args){.x = &x, .w = &w, .y = &y, .M = 1, .N = 0, .K = 1}),
        ST_OK);
    ck_assert_float_eq(y, 3.0f);
    ck_assert_int_eq(
        ops->gemm(ops, (struct gemm_args){.x = &x, .w = &w, .y = &y, .M = 1, .N = 1, .K = 0}),
        ST_INVALID);
    ops_destroy(&ops);
}
END_TEST

START_TEST(a_row_has_the_same_bits_alone_and_among_seventy)
{
    enum {
        M = 70,
        N = 101,
        K = 577
    };
    struct ops *ops = new_ops(2);
    struct rng rng = {test_seed()};
    float *x = rng_floats(&rng, (size_t)M * K), *w = rng_floats(&rng, (size_t)N * K);
    float *all = product(ops, x, w, M, N, K);

    for (uint32_t n_rows = 1; n_rows < M; n_rows++) {
        uint32_t first = rng_below(&rng, M - n_rows + 1);
        float *some = product(ops, x + (size_t)first * K, w, n_rows, N, K);

        ck_assert_msg(memcmp(some, all + (size_t)first * N, (size_t)n_rows * N * sizeof(float))
                          == 0,
                      "rows %u..%u alone differ", first, first + n_rows);
        free(some);
    }
    free(x);
    free(w);
    free(all);
    ops_destroy(&ops);
}
END_TEST

START_TEST(a_row_has_the_same_bits_in_any_place_and_with_any_number_of_threads)
{
    enum {
        M = 70,
        N = 101,
        K = 130
    };
    struct rng rng = {test_seed()};
    float *x = rng_floats(&rng, (size_t)M * K), *w = rng_floats(&rng, (size_t)N * K);
    float *moved = malloc(sizeof(float) * M * K);
    struct ops *one = new_ops(1), *five = new_ops(5);
    float *a = product(one, x, w, M, N, K), *b;

    for (uint32_t m = 0; m < M; m++) {
        memcpy(moved + (size_t)((m * 31 + 7) % M) * K, x + (size_t)m * K, K * sizeof(float));
    }
    b = product(five, moved, w, M, N, K);
    for (uint32_t m = 0; m < M; m++) {
        ck_assert_int_eq(
            memcmp(a + (size_t)m * N, b + (size_t)((m * 31 + 7) % M) * N, N * sizeof(float)), 0);
    }
    free(x);
    free(w);
    free(moved);
    free(a);
    free(b);
    ops_destroy(&one);
    ops_destroy(&five);
}
END_TEST

START_TEST(every_row_of_a_packed_weight_comes_back)
{
    const uint32_t Ns[] = {1, 16, 35, 48}, Ks[] = {1, 8, 33};
    struct rng rng = {test_seed()};
    float row[33];

    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 3; j++) {
            uint32_t N = Ns[i], K = Ks[j];
            float *w = rng_floats(&rng, (size_t)N * K), *packed = malloc(sizeof(*w) * N * K);

            memcpy(packed, w, sizeof(*w) * N * K);
            ck_assert_int_eq(panel_pack(PANEL_F32, packed, N, K), ST_OK);
            for (uint32_t n = 0; n < N; n++) {
                panel_unpack_row(PANEL_F32, packed, N, K, n, row);
                ck_assert_mem_eq(row, &w[(size_t)n * K], sizeof(*w) * K);
            }
            free(w);
            free(packed);
        }
    }
}
END_TEST

START_TEST(a_nan_stays_in_its_row)
{
    enum {
        M = 20,
        N = 50,
        K = 64
    };
    struct ops *ops = new_ops(2);
    struct rng rng = {test_seed()};
    float *x = rng_floats(&rng, (size_t)M * K), *w = rng_floats(&rng, (size_t)N * K), *y;

    x[3 * K + 5] = NAN;
    x[17 * K + 1] = INFINITY;
    y = product(ops, x, w, M, N, K);
    for (uint32_t i = 0; i < M * N; i++) {
        ck_assert(!isnan(y[i]) == (i / N != 3));
        ck_assert(!isinf(y[i]) == (i / N != 17));
    }
    free(x);
    free(w);
    free(y);
    ops_destroy(&ops);
}
END_TEST

CHECK_MAIN("gemm", the_twin_gives_a_hand_computed_product, every_edge_of_a_tile_equals_the_twin,
           nothing_to_multiply_is_fine, a_row_has_the_same_bits_alone_and_among_seventy,
           a_row_has_the_same_bits_in_any_place_and_with_any_number_of_threads,
           every_row_of_a_packed_weight_comes_back, a_nan_stays_in_its_row)
