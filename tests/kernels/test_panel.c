/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle of quantised weights is model/dequant, which knows nothing of panels. */
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_cpu.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "model/dequant.h"
#include "model/quant.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

static const struct {
    enum panel_form form;
    enum gguf_tensor_type type;
} forms[] = {
    {PANEL_Q8_0, GGUF_TENSOR_Q8_0}, {PANEL_Q4_0, GGUF_TENSOR_Q4_0}, {PANEL_Q4_1, GGUF_TENSOR_Q4_1}};

#define FORMS (sizeof(forms) / sizeof(forms[0]))

struct weight {
    uint8_t *packed;
    float *plain; /* [N, K], what the rows mean */
};

/* Random rows; some of the scales are subnormal, infinite or no number where it `is_wild`. */
static struct weight
new_weight(struct rng *rng, size_t f, uint32_t N, uint32_t K, bool is_wild)
{
    size_t count = (size_t)N * K, bytes = dequant_bytes(forms[f].type, count);
    struct weight weight = {.packed = malloc(bytes), .plain = malloc(count * sizeof(float))};
    float *values = rng_floats(rng, count);

    quant(forms[f].type, values, count, weight.packed);
    free(values);
    for (size_t at = 0; is_wild && at < bytes; at += dequant_bytes(forms[f].type, PANEL_UNIT)) {
        uint16_t half = (uint16_t)rng_below(rng, 1 << 16);

        memcpy(weight.packed + at, &half, sizeof(half));
    }
    dequant(forms[f].type, weight.packed, count, weight.plain);
    ck_assert_uint_eq(panel_row_bytes(forms[f].form, K) * N, bytes);
    ck_assert_int_eq(panel_pack(forms[f].form, weight.packed, N, K), ST_OK);
    return weight;
}

static void
free_weight(struct weight *weight)
{
    free(weight->packed);
    free(weight->plain);
}

static bool
is_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof(a)) == 0;
}

/* A row of the identity picks a column; of scales that are no numbers it makes what it must. */
START_TEST(every_element_of_a_quantised_panel_is_the_float_that_the_file_means)
{
    enum {
        K = 2 * PANEL_UNIT,
        N = 5 * PANEL_ROWS
    };
    const uint32_t Ms[] = {1, 2, 3, 4, 5, 6, K};
    static float x[K * K], y[K * N];
    struct rng rng = {test_seed()};

    for (uint32_t i = 0; i < K; i++) {
        x[i * K + i] = 1.0f;
    }
    for (size_t i = 0; i < FORMS * 7 * 10; i++) {
        size_t f = i / 70;
        uint32_t M = Ms[i % 7];
        struct weight w = new_weight(&rng, f, N, K, true);

        for (uint32_t first = 0; first < K; first += M) {
            struct gemm_args args = {.x = &x[first * K],
                                     .w = w.packed,
                                     .y = &y[first * N],
                                     .M = K - first < M ? K - first : M,
                                     .N = N,
                                     .K = K,
                                     .form = forms[f].form};

            for (uint32_t unit = 0; unit < gemm_cpu_units(&args); unit++) {
                gemm_cpu_unit(&args, unit);
            }
        }
        for (uint32_t at = 0; at < K * N; at++) {
            float want = 0.0f;

            for (uint32_t k = 0; k < K; k++) {
                want += x[at / N * K + k] * w.plain[at % N * K + k];
            }
            ck_assert_msg(is_same(y[at], want), "form %d, M %u, row %u, column %u: %a, not %a",
                          forms[f].form, M, at % N, at / N, (double)y[at], (double)want);
        }
        free_weight(&w);
    }
}
END_TEST

START_TEST(every_row_of_a_quantised_weight_comes_back)
{
    const uint32_t Ns[] = {1, 16, 35, 48}, Ks[] = {32, 96};
    struct rng rng = {test_seed()};
    float row[96];

    for (size_t i = 0; i < FORMS * 4 * 2; i++) {
        size_t f = i / 8;
        uint32_t N = Ns[i / 2 % 4], K = Ks[i % 2];
        struct weight w = new_weight(&rng, f, N, K, true);

        for (uint32_t n = 0; n < N; n++) {
            panel_unpack_row(forms[f].form, w.packed, N, K, n, row);
            for (uint32_t k = 0; k < K; k++) {
                ck_assert(is_same(row[k], w.plain[(size_t)n * K + k]));
            }
        }
        free_weight(&w);
    }
}
END_TEST

/* Sums are the same run over k, whatever the weights are stored as. */
START_TEST(products_of_quantised_weights_have_the_bits_of_those_of_their_floats)
{
    const uint32_t Ms[] = {1, 2, 3, 6, 7, 35}, Ns[] = {1, 47, 48, 160};
    const uint32_t Ks[] = {32, 576, 1536 + 64};
    struct ops *ops = NULL;
    struct rng rng = {test_seed()};

    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 2}, &ops), ST_OK);
    for (size_t i = 0; i < FORMS * 6 * 4 * 3; i++) {
        size_t f = i / (6 * 4 * 3);
        uint32_t M = Ms[i / 12 % 6], N = Ns[i / 3 % 4], K = Ks[i % 3];
        struct weight w = new_weight(&rng, f, N, K, false);
        float *x = rng_floats(&rng, (size_t)M * K);
        float *a = malloc(sizeof(*a) * M * N), *b = malloc(sizeof(*b) * M * N);
        struct gemm_args args = {
            .x = x, .w = w.packed, .y = a, .M = M, .N = N, .K = K, .form = forms[f].form};

        memset(a, 0xff, sizeof(*a) * M * N);
        ck_assert_int_eq(ops->gemm(ops, args), ST_OK);
        ck_assert_int_eq(panel_pack(PANEL_F32, w.plain, N, K), ST_OK);
        args.w = w.plain;
        args.y = b;
        args.form = PANEL_F32;
        ck_assert_int_eq(ops->gemm(ops, args), ST_OK);
        ck_assert_msg(memcmp(a, b, sizeof(*a) * M * N) == 0, "form %d, M %u, N %u, K %u",
                      forms[f].form, M, N, K);
        free(x);
        free(a);
        free(b);
        free_weight(&w);
    }
    ops_destroy(&ops);
}
END_TEST

START_TEST(columns_that_fill_no_unit_are_refused)
{
    struct ops *ops = NULL;
    float x[33] = {0}, y[1];
    uint8_t w[64] = {0};

    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 1}, &ops), ST_OK);
    ck_assert_int_eq(
        ops->gemm(ops,
                  (struct gemm_args){
                      .x = x, .w = w, .y = y, .M = 1, .N = 1, .K = 33, .form = PANEL_Q8_0}),
        ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "matrix product over 33 columns of quantised weights: not in 32s");
    ops_destroy(&ops);
}
END_TEST

CHECK_MAIN("panel", every_element_of_a_quantised_panel_is_the_float_that_the_file_means,
           every_row_of_a_quantised_weight_comes_back,
           products_of_quantised_weights_have_the_bits_of_those_of_their_floats,
           columns_that_fill_no_unit_are_refused)
