/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_compare.h"

#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rows.h"

static float
element(const struct kv_layout *layout, const char *at)
{
    uint16_t half;
    float value;

    if (layout->type == KV_F32) {
        memcpy(&value, at, sizeof(value));
        return value;
    }
    memcpy(&half, at, sizeof(half));
    return bf16_to_f32(half);
}

/* One (layer, K|V) of a pair of blocks. */
static void
compare_piece(const struct kv_layout *layout, const char *a, const char *b, uint32_t layer,
              enum kv_part part, uint32_t tokens, struct kv_difference *diff)
{
    size_t bytes = layout->type == KV_F32 ? 4 : 2;
    double difference = 0, size = 0;
    uint32_t differing = 0;

    for (uint32_t head = 0; head < layout->Hkv; head++) {
        for (uint32_t slot = 0; slot < tokens; slot++) {
            for (uint32_t d = 0; d < layout->D; d++) {
                size_t at = kv_layout_offset(layout, layer, part, head, slot, d);
                double x = element(layout, a + at), y = element(layout, b + at);

                differing += memcmp(a + at, b + at, bytes) != 0;
                difference += (x - y) * (x - y);
                size += y * y;
            }
        }
    }
    if (differing > 0) {
        float relative = (float)sqrt(difference / size);

        relative = isfinite(relative) ? relative : INFINITY;
        diff->elements += differing;
        diff->relative = relative > diff->relative ? relative : diff->relative;
    }
}

static enum status
check(const struct kv_compare_args *args, uint32_t i)
{
    uint32_t worst = args->a[i] > args->b[i] ? args->a[i] : args->b[i];

    if (worst >= args->n_blocks || args->tokens[i] > args->layout.P) {
        return ERR(ST_INVALID, "comparison %u: block id %u, the arena has %u; %u tokens of %u", i,
                   worst, args->n_blocks, args->tokens[i], args->layout.P);
    }
    return ST_OK;
}

enum status
kv_compare_rows(const struct kv_compare_args *args, uint32_t first, uint32_t end)
{
    const struct kv_layout *layout = &args->layout;

    TRY(kv_layout_check(layout));
    size_t block_bytes = kv_layout_block_bytes(layout);

    for (uint32_t i = first; i < end; i++) {
        const char *a = (const char *)args->kv + args->a[i] * block_bytes;
        const char *b = (const char *)args->kv + args->b[i] * block_bytes;

        TRY(check(args, i));
        args->diff[i] = (struct kv_difference){0};
        for (uint32_t layer = 0; layer < layout->L; layer++) {
            compare_piece(layout, a, b, layer, KV_PART_K, args->tokens[i], &args->diff[i]);
            compare_piece(layout, a, b, layer, KV_PART_V, args->tokens[i], &args->diff[i]);
        }
    }
    return ST_OK;
}

enum status
kv_compare_ref(struct kv_compare_args args)
{
    return kv_compare_rows(&args, 0, args.N);
}
