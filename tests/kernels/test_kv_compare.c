/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_compare.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

enum {
    L = 2,
    Hkv = 3,
    P = 16,
    TOKENS = 11,
    BLOCKS = 2
};

static const struct kv_layout layouts[] = {
    {P, L, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN},
    {P, L, Hkv, 128, KV_BF16, KV_LAYOUT_PLAIN},
    {P, L, Hkv, 64, KV_BF16, KV_LAYOUT_CK8},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* Block 1 is a copy of block 0; only its first TOKENS slots are compared. */
struct world {
    struct kv_layout layout;
    char *arena;
    size_t block_bytes;
    uint32_t a, b, tokens;
    struct kv_difference diff;
};

static void
put(struct world *w, uint32_t block, uint32_t layer, enum kv_part part, uint32_t head,
    uint32_t slot, uint32_t d, float x)
{
    char *at = w->arena + block * w->block_bytes
               + kv_layout_offset(&w->layout, layer, part, head, slot, d);
    uint16_t half = bf16_from_f32(x);

    memcpy(at, w->layout.type == KV_F32 ? (void *)&x : (void *)&half,
           w->layout.type == KV_F32 ? sizeof(x) : sizeof(half));
}

static void
world_init(struct world *w, struct kv_layout layout, struct rng *rng)
{
    *w = (struct world){.layout = layout,
                        .block_bytes = kv_layout_block_bytes(&layout),
                        .a = 1,
                        .b = 0,
                        .tokens = TOKENS};
    w->arena = malloc(BLOCKS * w->block_bytes);
    ck_assert_ptr_nonnull(w->arena);
    for (uint32_t i = 0; i < L * 2 * Hkv * P * layout.D; i++) {
        uint32_t d = i % layout.D, slot = i / layout.D % P, head = i / layout.D / P % Hkv;
        uint32_t part = i / layout.D / P / Hkv % 2, layer = i / layout.D / P / Hkv / 2;

        put(w, 0, layer, part, head, slot, d, rng_normal(rng));
    }
    memcpy(w->arena + w->block_bytes, w->arena, w->block_bytes);
}

static struct kv_difference
compare(struct world *w)
{
    struct kv_compare_args args = {.kv = w->arena,
                                   .layout = w->layout,
                                   .n_blocks = BLOCKS,
                                   .a = &w->a,
                                   .b = &w->b,
                                   .tokens = &w->tokens,
                                   .diff = &w->diff,
                                   .N = 1};
    struct kv_difference plain;
    struct ops *ops = NULL;

    ck_assert_int_eq(kv_compare_ref(args), ST_OK);
    plain = w->diff;
    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 2}, &ops), ST_OK);
    ck_assert_int_eq(ops->kv_compare(ops, args), ST_OK);
    ck_assert_mem_eq(&plain, &w->diff, sizeof(plain));
    ops_destroy(&ops);
    return plain;
}

START_TEST(equal_blocks_differ_in_nothing_whatever_lies_behind_their_tokens)
{
    struct rng rng = {test_seed()};

    for (size_t i = 0; i < LAYOUTS; i++) {
        struct world w;

        world_init(&w, layouts[i], &rng);
        for (uint32_t slot = TOKENS; slot < P; slot++) {
            put(&w, 1, 1, KV_PART_V, 2, slot, 5, NAN);
        }
        ck_assert_uint_eq(compare(&w).elements, 0);
        ck_assert_float_eq(w.diff.relative, 0);
        w.tokens = P; /* now they count */
        ck_assert_uint_eq(compare(&w).elements, P - TOKENS);
        ck_assert(isinf(w.diff.relative));
        free(w.arena);
    }
}
END_TEST

/* A row of the wrong token, in one layer: 1 of 11 rows of a piece replaced by another one. */
START_TEST(a_wrong_row_is_far_from_rounding)
{
    struct rng rng = {test_seed()};

    for (size_t i = 0; i < LAYOUTS; i++) {
        struct world w;
        uint32_t D = layouts[i].D;

        world_init(&w, layouts[i], &rng);
        for (uint32_t head = 0; head < Hkv; head++) {
            for (uint32_t d = 0; d < D; d++) {
                put(&w, 1, 1, KV_PART_K, head, TOKENS - 1, d, rng_normal(&rng));
            }
        }
        struct kv_difference diff = compare(&w);

        ck_assert_uint_ge(diff.elements, Hkv * D / 2);
        assert_close(diff.relative, sqrt(2.0 / TOKENS), 0.15, 0, "relative", 0);
        free(w.arena);
    }
}
END_TEST

START_TEST(rounding_is_small_and_counted)
{
    struct rng rng = {test_seed()};

    for (size_t i = 0; i < LAYOUTS; i++) {
        struct world w;

        world_init(&w, layouts[i], &rng);
        put(&w, 0, 0, KV_PART_V, 1, 3, 7, 1.0f);
        put(&w, 1, 0, KV_PART_V, 1, 3, 7, 1.0f + 0x1p-7f); /* one unit of bf16 */
        struct kv_difference diff = compare(&w);

        ck_assert_uint_eq(diff.elements, 1);
        ck_assert(diff.relative > 0 && diff.relative < 1e-3f);
        free(w.arena);
    }
}
END_TEST

START_TEST(the_two_zeros_are_different_bits_and_no_difference)
{
    struct rng rng = {test_seed()};
    struct world w;

    world_init(&w, layouts[0], &rng);
    put(&w, 0, 0, KV_PART_K, 0, 0, 0, 0.0f);
    put(&w, 1, 0, KV_PART_K, 0, 0, 0, -0.0f);
    ck_assert_uint_eq(compare(&w).elements, 1);
    ck_assert_float_eq(w.diff.relative, 0);
    free(w.arena);
}
END_TEST

START_TEST(what_is_out_of_bounds_is_refused_by_name)
{
    struct rng rng = {test_seed()};
    struct world w;

    world_init(&w, layouts[0], &rng);
    struct kv_compare_args args = {.kv = w.arena,
                                   .layout = w.layout,
                                   .n_blocks = BLOCKS,
                                   .a = &w.a,
                                   .b = &w.b,
                                   .tokens = &w.tokens,
                                   .diff = &w.diff,
                                   .N = 1};

    w.b = BLOCKS;
    ck_assert_int_eq(kv_compare_ref(args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "comparison 0: block id 2, the arena has 2; 11 tokens of 16");
    w.b = 0;
    w.tokens = P + 1;
    ck_assert_int_eq(kv_compare_ref(args), ST_INVALID);
    free(w.arena);
}
END_TEST

CHECK_MAIN("kv_compare", equal_blocks_differ_in_nothing_whatever_lies_behind_their_tokens,
           a_wrong_row_is_far_from_rounding, rounding_is_small_and_counted,
           the_two_zeros_are_different_bits_and_no_difference,
           what_is_out_of_bounds_is_refused_by_name)
