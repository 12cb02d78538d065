/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope_copy.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/ops.h"
#include "kernels/rope_append.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

enum {
    L = 2,
    Hkv = 3,
    P = 16,
    BLOCKS = 6,
    COPIES = 2
};

/* Copies block 4 to 1 and block 0 to 5. */
struct world {
    struct kv_layout layout;
    struct rope_copy_args args;
    unsigned char *arena;
    double inv_freq[64];
    uint32_t from[COPIES], to[COPIES], turn[COPIES];
};

static void
world_init(struct world *w, struct kv_layout layout, struct rng *rng)
{
    *w = (struct world){.layout = layout, .from = {4, 0}, .to = {1, 5}, .turn = {37, 100000}};
    w->arena = malloc(BLOCKS * kv_layout_block_bytes(&layout));
    ck_assert_ptr_nonnull(w->arena);
    for (uint32_t i = 0; i < layout.D / 2; i++) {
        w->inv_freq[i] = pow(10000.0, -2.0 * i / layout.D);
    }
    for (size_t i = 0; i < BLOCKS * kv_layout_block_bytes(&layout);) {
        float x = rng_normal(rng);
        uint16_t half = bf16_from_f32(x);
        size_t bytes = layout.type == KV_F32 ? sizeof(x) : sizeof(half);

        memcpy(w->arena + i, layout.type == KV_F32 ? (void *)&x : (void *)&half, bytes);
        i += bytes;
    }
    w->args = (struct rope_copy_args){
        .kv = w->arena,
        .layout = layout,
        .n_blocks = BLOCKS,
        .from = w->from,
        .to = w->to,
        .turn = w->turn,
        .inv_freq = w->inv_freq,
        .N = COPIES,
    };
}

static float
element(const struct world *w, const unsigned char *arena, uint32_t block, uint32_t layer,
        enum kv_part part, uint32_t head, uint32_t slot, uint32_t d)
{
    const unsigned char *p = arena + block * kv_layout_block_bytes(&w->layout)
                             + kv_layout_offset(&w->layout, layer, part, head, slot, d);
    uint16_t half;
    float value;

    if (w->layout.type == KV_BF16) {
        memcpy(&half, p, sizeof(half));
        return bf16_to_f32(half);
    }
    memcpy(&value, p, sizeof(value));
    return value;
}

/* Rotation in float32 rounds two products and a sum, angles round once: 4 eps of |a| + |b|. */
static void
check_slot(const struct world *w, uint32_t copy, uint32_t layer, uint32_t head, uint32_t slot)
{
    uint32_t D = w->layout.D, from = w->from[copy], to = w->to[copy];
    double rel = w->layout.type == KV_BF16 ? EPS_BF16 : 0.0;

    for (uint32_t d = 0; d < D / 2; d++) {
        double a = (double)element(w, w->arena, from, layer, KV_PART_K, head, slot, d);
        double b = (double)element(w, w->arena, from, layer, KV_PART_K, head, slot, d + D / 2);
        long double angle = (long double)w->turn[copy] * w->inv_freq[d];
        double c = (double)cosl(angle), s = (double)sinl(angle);
        double abs = 4 * EPS_F32 * (fabs(a) + fabs(b));

        assert_close(element(w, w->arena, to, layer, KV_PART_K, head, slot, d), a * c - b * s, abs,
                     rel, "k", d);
        assert_close(element(w, w->arena, to, layer, KV_PART_K, head, slot, d + D / 2),
                     b * c + a * s, abs, rel, "k upper", d);
    }
    for (uint32_t d = 0; d < D; d++) {
        assert_close(element(w, w->arena, to, layer, KV_PART_V, head, slot, d),
                     (double)element(w, w->arena, from, layer, KV_PART_V, head, slot, d), 0, 0, "v",
                     d);
    }
}

START_TEST(keys_are_rotated_on_and_values_copied_in_every_layout)
{
    struct rng rng = {test_seed()};

    for (int kind = 0; kind < 6; kind++) {
        struct kv_layout layout = {P,
                                   L,
                                   Hkv,
                                   kind % 2 == 0 ? 64 : 128,
                                   kind < 2 ? KV_F32 : KV_BF16,
                                   kind < 4 ? KV_LAYOUT_PLAIN : KV_LAYOUT_CK8};
        struct world w;

        world_init(&w, layout, &rng);
        ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
        for (uint32_t i = 0; i < COPIES * L * Hkv * P; i++) {
            check_slot(&w, i % COPIES, i / COPIES % L, i / COPIES / L % Hkv, i / COPIES / L / Hkv);
        }
        free(w.arena);
    }
}
END_TEST

START_TEST(no_block_but_the_copies_is_written)
{
    struct rng rng = {test_seed()};
    struct kv_layout layout = {P, L, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    size_t bytes = kv_layout_block_bytes(&layout);
    struct world w;

    world_init(&w, layout, &rng);
    unsigned char *before = malloc(BLOCKS * bytes);

    memcpy(before, w.arena, BLOCKS * bytes);
    ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        bool is_copy = block == w.to[0] || block == w.to[1];

        ck_assert(is_copy == (memcmp(before + block * bytes, w.arena + block * bytes, bytes) != 0));
    }
    free(before);
    free(w.arena);
}
END_TEST

START_TEST(a_copy_to_where_it_is_changes_no_bit_and_one_with_nan_keeps_it)
{
    struct rng rng = {test_seed()};
    struct kv_layout layout = {P, L, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    size_t bytes = kv_layout_block_bytes(&layout);
    struct world w;

    world_init(&w, layout, &rng);
    w.turn[0] = 0;
    memset(w.arena + w.from[1] * bytes, 0xff, bytes); /* nothing but NaN */
    ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
    ck_assert_mem_eq(w.arena + w.to[0] * bytes, w.arena + w.from[0] * bytes, bytes);
    for (uint32_t d = 0; d < 64; d++) {
        ck_assert(isnan(element(&w, w.arena, w.to[1], 1, KV_PART_K, 2, 7, d)));
    }
    free(w.arena);
}
END_TEST

/* What it stands for: a key that was appended at local position j, copied with turn S, is the key
 * that would have been appended at S + j. */
START_TEST(a_copied_key_is_the_key_appended_at_its_new_place)
{
    struct rng rng = {test_seed()};
    struct kv_layout layout = {P, 1, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct world w;
    uint32_t block[P], slot[P], pos[P];

    world_init(&w, layout, &rng);
    float *qkv = rng_floats(&rng, (size_t)P * (2 * Hkv + Hkv) * 64);
    struct rope_append_args append = {.qkv = qkv,
                                      .kv = w.arena,
                                      .layout = layout,
                                      .n_blocks = BLOCKS,
                                      .row_block = block,
                                      .row_slot = slot,
                                      .row_pos = pos,
                                      .inv_freq = w.inv_freq,
                                      .rope_scale = 1.25f,
                                      .T = P,
                                      .H = Hkv};

    for (int place = 0; place < 2; place++) {
        for (uint32_t j = 0; j < P; j++) {
            block[j] = place == 0 ? w.from[0] : 2;
            slot[j] = j;
            pos[j] = j + (place == 0 ? 0 : w.turn[0]);
        }
        ck_assert_int_eq(rope_append_ref(append), ST_OK);
    }
    ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
    for (uint32_t i = 0; i < 2 * Hkv * P * 64; i++) {
        enum kv_part part = i % 2 == 0 ? KV_PART_K : KV_PART_V;
        uint32_t head = i / 2 % Hkv, at = i / 2 / Hkv % P, d = i / 2 / Hkv / P;
        double want = (double)element(&w, w.arena, 2, 0, part, head, at, d);

        /* Three rotations' rounding of numbers up to 6 * 1.25 * sqrt(2). */
        assert_close(element(&w, w.arena, w.to[0], 0, part, head, at, d), want, 12 * 11 * EPS_F32,
                     0, "copied", i);
    }
    free(qkv);
    free(w.arena);
}
END_TEST

START_TEST(threads_share_a_copy_and_change_no_bit)
{
    struct rng rng = {test_seed()};
    struct kv_layout layout = {P, L, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    size_t bytes = BLOCKS * kv_layout_block_bytes(&layout);
    struct world w;
    struct ops *ops = NULL;

    world_init(&w, layout, &rng);
    unsigned char *alone = malloc(bytes);

    memcpy(alone, w.arena, bytes);
    ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
    w.args.kv = alone;
    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 2}, &ops), ST_OK);
    ck_assert_int_eq(ops->rope_copy(ops, w.args), ST_OK);
    ck_assert_mem_eq(alone, w.arena, bytes);
    ops_destroy(&ops);
    free(alone);
    free(w.arena);
}
END_TEST

START_TEST(a_block_out_of_the_arena_is_refused_by_name)
{
    struct rng rng = {test_seed()};
    struct kv_layout layout = {P, L, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct world w;

    world_init(&w, layout, &rng);
    w.to[1] = BLOCKS;
    ck_assert_int_eq(rope_copy_ref(w.args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "copy 1: block id 6, the arena has 6");
    w.args.N = 0;
    ck_assert_int_eq(rope_copy_ref(w.args), ST_OK);
    w.args.layout.P = 5;
    ck_assert_int_eq(rope_copy_ref(w.args), ST_INVALID);
    free(w.arena);
}
END_TEST

CHECK_MAIN("rope_copy", keys_are_rotated_on_and_values_copied_in_every_layout,
           no_block_but_the_copies_is_written,
           a_copy_to_where_it_is_changes_no_bit_and_one_with_nan_keeps_it,
           a_copied_key_is_the_key_appended_at_its_new_place,
           threads_share_a_copy_and_change_no_bit, a_block_out_of_the_arena_is_refused_by_name)
