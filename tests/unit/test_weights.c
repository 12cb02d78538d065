/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "model/dequant.h"
#include "model/gguf_write.h"
#include "model/quant.h"
#include "model/tiny_model.h"
#include "model/weights.h"
#include "tests/support/check_main.h"

#define NAME "test.gguf"

START_TEST(units_of_every_type_expand_to_numbers_made_by_hand)
{
    /* d = 0.5 is 0x3800 as a half, m = -2 is 0xc000. */
    uint8_t q8[34] = {0x00, 0x38, 0, 1, 0xff, 0x7f, 0x80};
    uint8_t q40[18] = {0x00, 0x38, 0x80, 0xf0};
    uint8_t q41[20] = {0x00, 0x38, 0x00, 0xc0, 0x10, 0xf2};
    uint8_t half[] = {0x00, 0x3c, 0x01, 0x00, 0xff, 0x7b, 0x00, 0xfc, 0x00, 0x80, 0xff, 0x83};
    uint8_t bf16[] = {0x80, 0x3f, 0x49, 0x40};
    float x[32];

    dequant(GGUF_TENSOR_Q8_0, q8, 32, x);
    ck_assert(x[0] == 0 && x[1] == 0.5f && x[2] == -0.5f && x[3] == 63.5f && x[4] == -64);
    dequant(GGUF_TENSOR_Q4_0, q40, 32, x);
    ck_assert(x[0] == -4 && x[1] == -4 && x[2] == -4); /* nibbles 0, 0, 0; each less 8 */
    ck_assert(x[16] == 0 && x[17] == 3.5f && x[18] == -4);
    dequant(GGUF_TENSOR_Q4_1, q41, 32, x);
    ck_assert(x[0] == -2 && x[1] == -1 && x[16] == -1.5f && x[17] == 5.5f && x[31] == -2);
    dequant(GGUF_TENSOR_F16, half, 6, x);
    ck_assert(x[0] == 1 && x[1] == 0x1p-24f && x[2] == 65504 && x[3] == -INFINITY);
    ck_assert(x[4] == 0 && signbit(x[4]) && x[5] == -0x3ffp-24f);
    dequant(GGUF_TENSOR_BF16, bf16, 2, x);
    ck_assert(x[0] == 1 && x[1] == 3.140625f);
    dequant(GGUF_TENSOR_F32, &(float){7}, 1, x);
    ck_assert(x[0] == 7);
}
END_TEST

START_TEST(every_finite_half_survives_the_way_there_and_back)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        uint16_t half = (uint16_t)bits, back;
        float value;

        dequant(GGUF_TENSOR_F16, &half, 1, &value);
        if ((bits & 0x7c00) == 0x7c00) {
            ck_assert_msg(!isfinite(value), "0x%04x", half);
            continue;
        }
        quant(GGUF_TENSOR_F16, &value, 1, &back);
        ck_assert_msg(back == half, "0x%04x became 0x%04x", half, back);
    }
}
END_TEST

START_TEST(bfloat16_rounds_to_nearest_even_and_keeps_nan)
{
    /* 1 + 2^-8 lies halfway between 1 and 1 + 2^-7; 1 + 3 * 2^-8 between 1 + 2^-7 and 1 + 2^-6. */
    const float x[] = {1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-8f + 0x1p-20f, -1, 3.4e38f};
    uint32_t nan_bits = 0x7f800001;
    uint16_t y[5];
    float nan;

    dequant_to_bf16(x, 5, y);
    ck_assert_uint_eq(y[0], 0x3f80);
    ck_assert_uint_eq(y[1], 0x3f82);
    ck_assert_uint_eq(y[2], 0x3f81);
    ck_assert_uint_eq(y[3], 0xbf80);
    ck_assert_uint_eq(y[4], 0x7f80);
    memcpy(&nan, &nan_bits, sizeof(nan));
    dequant_to_bf16(&nan, 1, y);
    ck_assert_uint_gt(y[0] & 0x7fff, 0x7f80);
}
END_TEST

START_TEST(quantised_numbers_come_back_within_half_a_level)
{
    static const struct {
        enum gguf_tensor_type type;
        float levels; /* over the spread of the numbers, which is 2 */
    } cases[] = {{GGUF_TENSOR_Q8_0, 254}, {GGUF_TENSOR_Q4_0, 14}, {GGUF_TENSOR_Q4_1, 15}};
    float x[32], y[32];
    uint8_t unit[64];

    for (int i = 0; i < 32; i++) {
        x[i] = sinf((float)i * 1.7f);
    }
    for (size_t c = 0; c < 3; c++) {
        quant(cases[c].type, x, 32, unit);
        dequant(cases[c].type, unit, 32, y);
        for (int i = 0; i < 32; i++) { /* half a level, and the half-precision scale's rounding */
            ck_assert_float_le(fabsf(x[i] - y[i]), 1.0f / cases[c].levels + 2e-3f);
        }
    }
}
END_TEST

/* -- Loading ------------------------------------------------------------------------------- */

struct fixture {
    void *bytes;
    size_t length;
    struct gguf *gguf;
    struct model_config config;
    struct weights_plan plan;
    uint8_t *memory;
};

static void
open_tiny(struct fixture *f, struct tiny_model_config tiny, enum weight_type type)
{
    *f = (struct fixture){0};
    ck_assert_int_eq(tiny_model_make(&tiny, &f->bytes, &f->length), ST_OK);
    ck_assert_int_eq(gguf_open_bytes(NAME, f->bytes, f->length, &f->gguf), ST_OK);
    ck_assert_int_eq(model_config_from_gguf(f->gguf, &f->config), ST_OK);
    ck_assert_int_eq(weights_plan(&f->config, type, &f->plan), ST_OK);
    f->memory = aligned_alloc(WEIGHT_ALIGN, f->plan.bytes);
    ck_assert_ptr_nonnull(f->memory);
}

static void
close_tiny(struct fixture *f)
{
    gguf_close(&f->gguf);
    mem_free(f->bytes);
    free(f->memory);
}

static const float *
floats(const struct fixture *f, enum weight kind, uint32_t layer)
{
    return (const float *)(const void *)(f->memory + weights_offset(&f->plan, kind, layer));
}

static void
expect_rows(const struct fixture *f, const char *name, const float *got)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(f->gguf, name);

    ck_assert_ptr_nonnull(tensor);
    ck_assert_mem_eq(tensor->data, got, tensor->bytes);
}

START_TEST(a_plan_aligns_every_weight_and_lets_none_overlap)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct fixture f;
    size_t end = 0;

    tiny.C = 96; /* rows that are no multiple of the alignment */
    tiny.has_tied_embeddings = false;
    for (int type = WEIGHT_F32; type <= WEIGHT_BF16; type++) {
        open_tiny(&f, tiny, (enum weight_type)type);
        size_t unit = type == WEIGHT_F32 ? 4 : 2;
        size_t C = f.config.C, F = f.config.F, V = f.config.V, q = f.config.H * f.config.D;
        const size_t sizes[WEIGHT_KINDS] = {V * C, V * C, C,         C,    2 * q * C,
                                            C * q, C,     2 * F * C, C * F};
        end = 0;
        for (uint32_t layer = 0; layer < f.config.L; layer++) {
            for (int kind = 0; kind < WEIGHT_KINDS; kind++) {
                size_t at = weights_offset(&f.plan, (enum weight)kind, layer);

                ck_assert_uint_eq(at % WEIGHT_ALIGN, 0);
                if (layer == 0 || f.plan.stride[kind] != 0) {
                    ck_assert_uint_ge(at, end);
                    ck_assert_uint_lt(at - end, WEIGHT_ALIGN);
                    end = at + sizes[kind] * unit;
                }
            }
        }
        ck_assert_uint_ge(f.plan.bytes, end);
        ck_assert_uint_lt(f.plan.bytes - end, WEIGHT_ALIGN);
        close_tiny(&f);
    }
}
END_TEST

START_TEST(a_size_that_overflows_is_refused)
{
    struct model_config config = {
        .L = 1, .C = UINT32_MAX, .H = 1, .Hkv = 1, .D = 256, .F = UINT32_MAX, .V = UINT32_MAX};
    struct weights_plan plan;

    ck_assert_int_eq(weights_plan(&config, WEIGHT_F32, &plan), ST_INVALID);
    ck_assert_str_eq(status_detail(), "the weights' size overflows 64 bits");
}
END_TEST

START_TEST(rows_of_q_and_k_become_halves_and_fused_weights_lie_in_order)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct fixture f;

    open_tiny(&f, tiny, WEIGHT_F32);
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_OK);
    size_t C = f.config.C, D = f.config.D;
    const float *from = gguf_tensor_find(f.gguf, "blk.1.attn_q.weight")->data;
    const float *to = floats(&f, WEIGHT_QKV, 1);
    for (size_t row = 0; row < f.config.H * D; row++) {
        size_t pair = row % D / 2, second = row % 2; /* neighbours in the file */
        size_t target = row / D * D + pair + second * D / 2;

        ck_assert_mem_eq(to + target * C, from + row * C, C * sizeof(float));
    }
    from = gguf_tensor_find(f.gguf, "blk.1.attn_k.weight")->data;
    to += f.config.H * D * C;
    ck_assert_mem_eq(to, from, C * sizeof(float));                 /* row 0 stays */
    ck_assert_mem_eq(to + D / 2 * C, from + C, C * sizeof(float)); /* 1 -> D/2 */
    ck_assert_mem_eq(to + C, from + 2 * C, C * sizeof(float));     /* 2 -> 1 */
    ck_assert_mem_eq(to + (2 * D - 1) * C, from + (2 * D - 1) * C, C * sizeof(float));
    to += f.config.Hkv * D * C;
    expect_rows(&f, "blk.1.attn_v.weight", to);
    expect_rows(&f, "blk.0.ffn_gate.weight", floats(&f, WEIGHT_GATE_UP, 0));
    expect_rows(&f, "blk.0.ffn_up.weight", floats(&f, WEIGHT_GATE_UP, 0) + f.config.F * C);
    expect_rows(&f, "blk.1.ffn_down.weight", floats(&f, WEIGHT_DOWN, 1));
    expect_rows(&f, "blk.1.attn_output.weight", floats(&f, WEIGHT_ATTN_OUT, 1));
    expect_rows(&f, "blk.1.attn_norm.weight", floats(&f, WEIGHT_ATTN_NORM, 1));
    expect_rows(&f, "blk.1.ffn_norm.weight", floats(&f, WEIGHT_FFN_NORM, 1));
    expect_rows(&f, "output_norm.weight", floats(&f, WEIGHT_OUT_NORM, 0));
    expect_rows(&f, "token_embd.weight", floats(&f, WEIGHT_EMBED, 0));
    expect_rows(&f, "token_embd.weight", floats(&f, WEIGHT_OUTPUT, 0)); /* tied */
    close_tiny(&f);
}
END_TEST

START_TEST(an_output_matrix_of_its_own_is_loaded)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct fixture f;

    tiny.has_tied_embeddings = false;
    tiny.rope = TINY_MODEL_ROPE_FREQS;
    open_tiny(&f, tiny, WEIGHT_F32);
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_OK);
    expect_rows(&f, "output.weight", floats(&f, WEIGHT_OUTPUT, 0));
    ck_assert_uint_ne(f.plan.base[WEIGHT_OUTPUT], f.plan.base[WEIGHT_EMBED]);
    close_tiny(&f);
}
END_TEST

START_TEST(every_type_loads_as_float32_rounded_to_bfloat16)
{
    static const enum gguf_tensor_type types[] = {GGUF_TENSOR_F32,  GGUF_TENSOR_F16,
                                                  GGUF_TENSOR_BF16, GGUF_TENSOR_Q8_0,
                                                  GGUF_TENSOR_Q4_0, GGUF_TENSOR_Q4_1};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct tiny_model_config tiny = tiny_model_defaults();
        struct fixture wide, narrow;

        tiny.type = types[i];
        tiny.C = 288; /* a row that is no multiple of the chunk */
        open_tiny(&wide, tiny, WEIGHT_F32);
        open_tiny(&narrow, tiny, WEIGHT_BF16);
        ck_assert_int_eq(weights_load(wide.gguf, &wide.config, &wide.plan, wide.memory, NULL, NULL),
                         ST_OK);
        ck_assert_int_eq(
            weights_load(narrow.gguf, &narrow.config, &narrow.plan, narrow.memory, NULL, NULL),
            ST_OK);
        const float *x = floats(&wide, WEIGHT_QKV, 1);
        const uint8_t *y = narrow.memory + weights_offset(&narrow.plan, WEIGHT_QKV, 1);
        uint16_t *expected = mem_zalloc((size_t)tiny.C * tiny.D, sizeof(*expected));
        ck_assert_ptr_nonnull(expected);
        dequant_to_bf16(x, (size_t)tiny.C * tiny.D, expected);
        ck_assert_mem_eq(y, expected, (size_t)tiny.C * tiny.D * sizeof(*expected));
        mem_free(expected);
        close_tiny(&wide);
        close_tiny(&narrow);
    }
}
END_TEST

/* Rows of Q are permuted as a whole, so kept rows are the file's bytes. */
START_TEST(matrices_of_one_quantised_type_are_kept_and_norms_are_not)
{
    static const struct {
        enum gguf_tensor_type from;
        enum weight_type kept;
    } cases[] = {{GGUF_TENSOR_Q8_0, WEIGHT_Q8_0},
                 {GGUF_TENSOR_Q4_0, WEIGHT_Q4_0},
                 {GGUF_TENSOR_Q4_1, WEIGHT_Q4_1},
                 {GGUF_TENSOR_F16, WEIGHT_F32}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tiny_model_config tiny = tiny_model_defaults();
        struct fixture f;

        tiny.type = cases[i].from;
        open_tiny(&f, tiny, WEIGHT_F32);
        ck_assert_int_eq(weights_plan_kept(f.gguf, &f.config, WEIGHT_F32, &f.plan), ST_OK);
        for (int kind = 0; kind < WEIGHT_KINDS; kind++) {
            ck_assert_int_eq(f.plan.type[kind],
                             weights_is_norm((enum weight)kind) ? WEIGHT_F32 : cases[i].kept);
        }
        ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_OK);
        if (cases[i].kept != WEIGHT_F32) {
            const struct gguf_tensor *q = gguf_tensor_find(f.gguf, "blk.1.attn_q.weight");
            const uint8_t *to = f.memory + weights_offset(&f.plan, WEIGHT_QKV, 1);
            size_t row = weights_row_bytes(cases[i].kept, f.config.C);

            ck_assert_mem_eq(to + row, (const uint8_t *)q->data + 2 * row, row); /* 2 -> 1 */
            expect_rows(&f, "token_embd.weight", floats(&f, WEIGHT_OUTPUT, 0));
        }
        expect_rows(&f, "blk.1.ffn_norm.weight", floats(&f, WEIGHT_FFN_NORM, 1));
        close_tiny(&f);
    }
}
END_TEST

static void
count_progress(void *arg, size_t bytes_done, size_t bytes_total)
{
    size_t *last = arg;

    ck_assert_uint_gt(bytes_done, *last);
    ck_assert_uint_le(bytes_done, bytes_total);
    *last = bytes_done;
}

START_TEST(progress_grows_to_the_whole_and_nothing_is_allocated)
{
    struct fixture f;
    uint64_t before;
    size_t last = 0;

    open_tiny(&f, tiny_model_defaults(), WEIGHT_BF16);
    before = mem_allocations();
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, count_progress, &last),
                     ST_OK);
    ck_assert_uint_eq(mem_allocations(), before);
    ck_assert_uint_gt(last, f.plan.bytes * 99 / 100);
    close_tiny(&f);
}
END_TEST

/* Changes the tensor's name in the file's bytes and expects the load to be refused. */
static void
expect_refusal(const char *from, const char *to, const char *reason)
{
    struct fixture f;

    ck_assert_uint_eq(strlen(from), strlen(to));
    open_tiny(&f, tiny_model_defaults(), WEIGHT_F32);
    gguf_close(&f.gguf);
    char *at = memmem(f.bytes, f.length, from, strlen(from));
    ck_assert_ptr_nonnull(at);
    memcpy(at, to, strlen(to));
    ck_assert_int_eq(gguf_open_bytes(NAME, f.bytes, f.length, &f.gguf), ST_OK);
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_INVALID);
    ck_assert_msg(strncmp(status_detail(), reason, strlen(reason)) == 0, "got \"%s\", not \"%s\"",
                  status_detail(), reason);
    close_tiny(&f);
}

START_TEST(tensors_that_are_strange_are_refused_by_name)
{
    static const char *const strangers[] = {"blk.1.attn_q.biases", "blk.9.attn_q.weight",
                                            "blq.1.attn_q.weight", "blk.1.rope_fr.weigh"};

    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        char reason[128];

        (void)snprintf(reason, sizeof(reason), NAME ": tensor %s is not part of a model that is",
                       strangers[i]);
        expect_refusal("blk.1.attn_q.weight", strangers[i], reason);
    }
}
END_TEST

START_TEST(a_tensor_that_is_missing_or_of_another_shape_is_refused)
{
    struct fixture f;

    open_tiny(&f, tiny_model_defaults(), WEIGHT_F32);
    f.config.has_tied_embeddings = false;
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": tensor output.weight is missing");
    close_tiny(&f);

    open_tiny(&f, tiny_model_defaults(), WEIGHT_F32);
    f.config.F *= 2;
    ck_assert_int_eq(weights_load(f.gguf, &f.config, &f.plan, f.memory, NULL, NULL), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": tensor blk.0.ffn_gate.weight is [128, 256], not 512 "
                                           "rows of 128");
    close_tiny(&f);
}
END_TEST

CHECK_MAIN("weights", units_of_every_type_expand_to_numbers_made_by_hand,
           every_finite_half_survives_the_way_there_and_back,
           bfloat16_rounds_to_nearest_even_and_keeps_nan,
           quantised_numbers_come_back_within_half_a_level,
           a_plan_aligns_every_weight_and_lets_none_overlap, a_size_that_overflows_is_refused,
           rows_of_q_and_k_become_halves_and_fused_weights_lie_in_order,
           an_output_matrix_of_its_own_is_loaded, every_type_loads_as_float32_rounded_to_bfloat16,
           matrices_of_one_quantised_type_are_kept_and_norms_are_not,
           progress_grows_to_the_whole_and_nothing_is_allocated,
           tensors_that_are_strange_are_refused_by_name,
           a_tensor_that_is_missing_or_of_another_shape_is_refused)
