/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/rope_append.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

enum {
    H = 4,
    Hkv = 2,
    T = 5
};

struct world {
    struct kv_layout layout;
    struct rope_append_args args;
    unsigned char *arena;
    float *qkv;
    double inv_freq[64];
    uint32_t block[T], slot[T], pos[T];
};

static void
world_init(struct world *w, struct kv_layout layout, uint64_t seed)
{
    struct rng rng = {seed};

    w->layout = layout;
    w->arena = malloc(3 * kv_layout_block_bytes(&layout));
    memset(w->arena, 0xff, 3 * kv_layout_block_bytes(&layout));
    w->qkv = rng_floats(&rng, T * (H + 2 * Hkv) * (size_t)layout.D);
    for (uint32_t i = 0; i < layout.D / 2; i++) {
        w->inv_freq[i] = pow(10000.0, -2.0 * i / layout.D);
    }
    for (uint32_t t = 0; t < T; t++) {
        w->block[t] = t < 2 ? 2 : 0; /* the last two slots of one block, the first of another */
        w->slot[t] = t < 2 ? layout.P - 2 + t : t - 2;
        w->pos[t] = 1000000007u * (t + 1);
    }
    w->args = (struct rope_append_args){
        .qkv = w->qkv,
        .kv = w->arena,
        .layout = layout,
        .layer = 1,
        .n_blocks = 3,
        .row_block = w->block,
        .row_slot = w->slot,
        .row_pos = w->pos,
        .inv_freq = w->inv_freq,
        .rope_scale = 1.0f,
        .T = T,
        .H = H,
    };
}

static void
world_deinit(struct world *w)
{
    free(w->arena);
    free(w->qkv);
}

static float
stored(const struct world *w, uint32_t t, enum kv_part part, uint32_t head, uint32_t d)
{
    const unsigned char *p = w->arena + w->block[t] * kv_layout_block_bytes(&w->layout)
                             + kv_layout_offset(&w->layout, 1, part, head, w->slot[t], d);
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
check_rows(const struct world *w)
{
    uint32_t D = w->layout.D;
    double rel = w->layout.type == KV_BF16 ? EPS_BF16 : 0.0;

    for (uint32_t i = 0; i < T * Hkv * D / 2; i++) {
        uint32_t t = i / (Hkv * D / 2), head = i / (D / 2) % Hkv, d = i % (D / 2);
        const float *k = w->qkv + ((size_t)t * (H + 2 * Hkv) + H + head) * D;
        const float *v = k + (size_t)Hkv * D;
        long double angle = (long double)w->pos[t] * w->inv_freq[d];
        double c = (double)cosl(angle) * w->args.rope_scale;
        double s = (double)sinl(angle) * w->args.rope_scale;
        /* The float64 angle itself is off by half an ulp of up to 5e9. */
        double abs =
            (4 * EPS_F32 + 5e9 * 0x1p-53) * (fabs((double)k[d]) + fabs((double)k[d + D / 2]));

        assert_close(stored(w, t, KV_PART_K, head, d), k[d] * c - k[d + D / 2] * s, abs, rel, "k",
                     i);
        assert_close(stored(w, t, KV_PART_K, head, d + D / 2), k[d + D / 2] * c + k[d] * s, abs,
                     rel, "k upper", i);
        assert_close(stored(w, t, KV_PART_V, head, d), v[d], 0.0, rel, "v", i);
        assert_close(stored(w, t, KV_PART_V, head, d + D / 2), v[d + D / 2], 0.0, rel, "v", i);
    }
}

START_TEST(keys_are_rotated_at_their_local_position_and_values_copied)
{
    uint64_t seed = test_seed();

    for (uint32_t D = 64; D <= 128; D *= 2) {
        for (int kind = 0; kind < 3; kind++) {
            struct kv_layout layout = {16,
                                       2,
                                       Hkv,
                                       D,
                                       kind == 0 ? KV_F32 : KV_BF16,
                                       kind == 2 ? KV_LAYOUT_CK8 : KV_LAYOUT_PLAIN};
            struct world w;

            world_init(&w, layout, seed);
            w.args.rope_scale = kind == 0 ? 1.0f : 1.25f;
            ck_assert_int_eq(rope_append_ref(w.args), ST_OK);
            check_rows(&w);
            world_deinit(&w);
        }
    }
}
END_TEST

START_TEST(only_the_rows_own_bytes_are_written)
{
    struct kv_layout layout = {16, 2, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct world w;
    size_t bytes = 3 * kv_layout_block_bytes(&layout), written = 0;

    world_init(&w, layout, test_seed());
    ck_assert_int_eq(rope_append_ref(w.args), ST_OK);
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        written += memcmp(w.arena + i, "\xff\xff\xff\xff", sizeof(float)) != 0;
    }
    ck_assert_uint_eq(written, (size_t)T * 2 * Hkv * 64);
    world_deinit(&w);
}
END_TEST

START_TEST(raw_queries_are_gathered_when_asked_for)
{
    struct kv_layout layout = {16, 2, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct world w;
    float q[T * H * 64];

    world_init(&w, layout, test_seed());
    w.args.q_out = q;
    ck_assert_int_eq(rope_append_ref(w.args), ST_OK);
    for (int t = 0; t < T; t++) {
        ck_assert_mem_eq(&q[t * H * 64], &w.qkv[t * (H + 2 * Hkv) * 64], H * 64 * sizeof(float));
    }
    w.args.T = 0;
    ck_assert_int_eq(rope_append_ref(w.args), ST_OK);
    world_deinit(&w);
}
END_TEST

START_TEST(a_row_out_of_the_arena_is_refused_by_name)
{
    struct kv_layout layout = {16, 2, Hkv, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct world w;

    world_init(&w, layout, test_seed());
    w.block[3] = 3;
    ck_assert_int_eq(rope_append_ref(w.args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 3: block id 3, the arena has 3");
    w.block[3] = 0;
    w.slot[4] = 16;
    ck_assert_int_eq(rope_append_ref(w.args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 4: slot 16 of a block of 16 tokens");
    w.slot[4] = 0;
    w.args.layer = 2;
    ck_assert_int_eq(rope_append_ref(w.args), ST_INVALID);
    w.args.layer = 1;
    w.args.H = 3;
    ck_assert_int_eq(rope_append_ref(w.args), ST_INVALID);
    world_deinit(&w);
}
END_TEST

START_TEST(angles_are_right_to_a_float_at_every_position)
{
    struct rng rng = {test_seed()};
    struct rope_angle angle;
    double inv_freq[64];

    for (int i = 0; i < 64; i++) {
        inv_freq[i] = pow(500000.0, -i / 64.0);
    }
    for (int round = 0; round < 3000; round++) {
        uint64_t position = rng_next(&rng) >> (32 + rng_below(&rng, 32));

        rope_angle_at(&angle, position, inv_freq, 128, 1.0f);
        for (int i = 0; i < 64; i++) {
            double x = (double)position * inv_freq[i]; /* the contract: the angle in float64 */

            assert_close(angle.cos[i], (double)cosl(x), 1e-15, EPS_F32, "cos", (size_t)i);
            assert_close(angle.sin[i], (double)sinl(x), 1e-15, EPS_F32, "sin", (size_t)i);
        }
    }
}
END_TEST

START_TEST(a_table_of_angles_has_the_bits_of_the_angles_and_follows_the_frequencies)
{
    const uint64_t positions[] = {0, 1, 4095, 4096, UINT32_MAX};
    struct rope_table *table = calloc(1, sizeof(*table));
    struct rope_angle room, want;
    double inv_freq[32];

    for (int base = 0; base < 3; base++) {
        for (int i = 0; i < 32; i++) {
            inv_freq[i] = pow(10000.0 * (1 + base % 2), -i / 32.0);
        }
        float scale = base == 2 ? 1.5f : 1.0f;

        rope_table_set(table, inv_freq, 64, scale);
        for (int i = 0; i < 5; i++) {
            const struct rope_angle *got =
                rope_table_angle(table, positions[i], inv_freq, 64, scale, &room);

            rope_angle_at(&want, positions[i], inv_freq, 64, scale);
            ck_assert_mem_eq(got->cos, want.cos, 32 * sizeof(float));
            ck_assert_mem_eq(got->sin, want.sin, 32 * sizeof(float));
        }
    }
    free(table);
}
END_TEST

START_TEST(bf16_rounds_to_nearest_even_and_keeps_nan)
{
    uint32_t payload = 0x7f800001u;
    float nan;

    memcpy(&nan, &payload, sizeof(nan));
    ck_assert_uint_eq(bf16_from_f32(1.0f), 0x3f80);
    ck_assert_uint_eq(bf16_from_f32(1.0f + 0x1p-8f), 0x3f80);            /* tie: to even */
    ck_assert_uint_eq(bf16_from_f32(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81); /* above the tie */
    ck_assert_uint_eq(bf16_from_f32(1.0f + 0x3p-8f), 0x3f82);            /* tie: to even */
    ck_assert_uint_eq(bf16_from_f32(-INFINITY), 0xff80);
    ck_assert_uint_eq(bf16_from_f32(3.4e38f), 0x7f80);
    ck_assert(isnan(bf16_to_f32(bf16_from_f32(nan))));
}
END_TEST

CHECK_MAIN("rope_append", keys_are_rotated_at_their_local_position_and_values_copied,
           only_the_rows_own_bytes_are_written, raw_queries_are_gathered_when_asked_for,
           a_row_out_of_the_arena_is_refused_by_name, angles_are_right_to_a_float_at_every_position,
           a_table_of_angles_has_the_bits_of_the_angles_and_follows_the_frequencies,
           bf16_rounds_to_nearest_even_and_keeps_nan)
