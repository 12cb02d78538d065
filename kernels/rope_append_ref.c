/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope_append.h"

#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/rows.h"

static enum status
check(const struct rope_append_args *args, uint32_t first, uint32_t end)
{
    TRY(kv_layout_check(&args->layout));
    if (args->H == 0 || args->H % args->layout.Hkv != 0) {
        return ERR(ST_INVALID, "%u query heads: not a multiple of %u key/value heads", args->H,
                   args->layout.Hkv);
    }
    if (args->layer >= args->layout.L) {
        return ERR(ST_INVALID, "layer %u of %u", args->layer, args->layout.L);
    }
    for (uint32_t t = first; t < end; t++) {
        if (args->row_block[t] >= args->n_blocks) {
            return ERR(ST_INVALID, "row %u: block id %u, the arena has %u", t, args->row_block[t],
                       args->n_blocks);
        }
        if (args->row_slot[t] >= args->layout.P) {
            return ERR(ST_INVALID, "row %u: slot %u of a block of %u tokens", t, args->row_slot[t],
                       args->layout.P);
        }
    }
    return ST_OK;
}

/* Writes one head of one token. */
static void
store_head(const struct rope_append_args *args, uint32_t t, enum kv_part part, uint32_t head,
           const float *x)
{
    const struct kv_layout *layout = &args->layout;
    char *block = (char *)args->kv + args->row_block[t] * kv_layout_block_bytes(layout);
    uint32_t slot = args->row_slot[t];

    if (layout->type == KV_F32) {
        memcpy(block + kv_layout_offset(layout, args->layer, part, head, slot, 0), x,
               layout->D * sizeof(float));
        return;
    }
    for (uint32_t d = 0; d < layout->D; d++) {
        uint16_t half = bf16_from_f32(x[d]);

        memcpy(block + kv_layout_offset(layout, args->layer, part, head, slot, d), &half,
               sizeof(half));
    }
}

enum status
rope_append_rows(const struct rope_append_args *args, uint32_t first, uint32_t end)
{
    uint32_t D = args->layout.D, Hkv = args->layout.Hkv;

    TRY(check(args, first, end));
    for (uint32_t t = first; t < end; t++) {
        const float *q = (const float *)args->qkv + (size_t)t * (args->H + 2 * Hkv) * D;
        const float *k = q + (size_t)args->H * D;
        const float *v = k + (size_t)Hkv * D;
        struct rope_angle angle;
        float rotated[ROPE_D_MAX];

        if (args->q_out != NULL) {
            memcpy((float *)args->q_out + (size_t)t * args->H * D, q,
                   (size_t)args->H * D * sizeof(float));
        }
        rope_angle_at(&angle, args->row_pos[t], args->inv_freq, D, args->rope_scale);
        for (uint32_t head = 0; head < Hkv; head++) {
            rope_angle_rotate(&angle, k + (size_t)head * D, rotated, D);
            store_head(args, t, KV_PART_K, head, rotated);
            store_head(args, t, KV_PART_V, head, v + (size_t)head * D);
        }
    }
    return ST_OK;
}

enum status
rope_append_ref(struct rope_append_args args)
{
    return rope_append_rows(&args, 0, args.T);
}
