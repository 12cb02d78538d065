/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope_copy.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/rows.h"

static enum status
check(const struct rope_copy_args *args, uint32_t first, uint32_t end)
{
    TRY(kv_layout_check(&args->layout));
    for (uint32_t i = first; i < end; i++) {
        uint32_t worst = args->from[i] > args->to[i] ? args->from[i] : args->to[i];

        if (worst >= args->n_blocks) {
            return ERR(ST_INVALID, "copy %u: block id %u, the arena has %u", i, worst,
                       args->n_blocks);
        }
    }
    return ST_OK;
}

/* One head of one key, element by element through the one address function. */
static void
turn_key(const struct rope_copy_args *args, const struct rope_angle *angle, char *to,
         const char *from, const size_t offsets[ROPE_D_MAX])
{
    uint32_t D = args->layout.D;
    float x[ROPE_D_MAX], turned[ROPE_D_MAX];

    for (uint32_t d = 0; d < D; d++) {
        uint16_t half;

        if (args->layout.type == KV_F32) {
            memcpy(&x[d], from + offsets[d], sizeof(x[d]));
        } else {
            memcpy(&half, from + offsets[d], sizeof(half));
            x[d] = bf16_to_f32(half);
        }
    }
    rope_angle_rotate(angle, x, turned, D);
    for (uint32_t d = 0; d < D; d++) {
        uint16_t half = bf16_from_f32(turned[d]);

        if (args->layout.type == KV_F32) {
            memcpy(to + offsets[d], &turned[d], sizeof(turned[d]));
        } else {
            memcpy(to + offsets[d], &half, sizeof(half));
        }
    }
}

static void
turn_keys(const struct rope_copy_args *args, const struct rope_angle *angle, char *to,
          const char *from, uint32_t layer)
{
    const struct kv_layout *layout = &args->layout;
    size_t offsets[ROPE_D_MAX];

    for (uint32_t head = 0; head < layout->Hkv; head++) {
        for (uint32_t slot = 0; slot < layout->P; slot++) {
            for (uint32_t d = 0; d < layout->D; d++) {
                offsets[d] = kv_layout_offset(layout, layer, KV_PART_K, head, slot, d);
            }
            turn_key(args, angle, to, from, offsets);
        }
    }
}

enum status
rope_copy_rows(const struct rope_copy_args *args, uint32_t first, uint32_t end)
{
    const struct kv_layout *layout = &args->layout;

    TRY(check(args, first, end));
    size_t block_bytes = kv_layout_block_bytes(layout);
    size_t part_bytes = block_bytes / layout->L / 2; /* K or V of a layer: contiguous in a block */

    for (uint32_t i = first; i < end; i++) {
        const char *from = (const char *)args->kv + args->from[i] * block_bytes;
        char *to = (char *)args->kv + args->to[i] * block_bytes;
        struct rope_angle angle;

        rope_angle_at(&angle, args->turn[i], args->inv_freq, layout->D, 1.0f);
        for (uint32_t layer = 0; layer < layout->L; layer++) {
            size_t values = kv_layout_offset(layout, layer, KV_PART_V, 0, 0, 0);

            turn_keys(args, &angle, to, from, layer);
            memcpy(to + values, from + values, part_bytes);
        }
    }
    return ST_OK;
}

enum status
rope_copy_ref(struct rope_copy_args args)
{
    return rope_copy_rows(&args, 0, args.N);
}
