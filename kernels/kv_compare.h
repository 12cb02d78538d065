/* SPDX-License-Identifier: Apache-2.0 */
/* kv_compare - how far one block is from another that should hold the same tokens.
 *
 * For every pair: the number of elements of the first `tokens` slots whose bits differ, and the
 * largest relative difference of its (layer, K|V) pieces,
 *
 *   sqrt( sum (a - b)^2 / sum b^2 )   over heads, slots and dims of a piece;
 *
 * 0 where a piece has no differing element, infinity where a difference is no number or b is all
 * zeros.  A piece, because rounding spreads evenly over it, while a row that is wrong (another
 * token's, or never written) is a third of it or more at 16 tokens, a sixth at 32. */
#ifndef KERNELS_KV_COMPARE_H
#define KERNELS_KV_COMPARE_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/kv_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What computing the same document in other company may change (on a device without deterministic
 * steps): activations are rounded to bf16 at some ten places a layer, 2^-9 of themselves each, and
 * the differences add up over layers.  Far below a row of another token. */
#define KV_COMPARE_ROUNDING_BF16 0.05f

struct kv_difference {
    uint32_t elements; /* whose bits differ */
    float relative;    /* of the worst (layer, K|V) piece */
};

struct kv_compare_args {
    const void *kv; /* arena */
    struct kv_layout layout;
    uint32_t n_blocks;          /* blocks in the arena */
    const uint32_t *a;          /* [N] block ids */
    const uint32_t *b;          /* [N] block ids */
    const uint32_t *tokens;     /* [N] slots that count, 0..P */
    struct kv_difference *diff; /* [N] written */
    uint32_t N;
};

/* ST_INVALID: a layout that kv_layout_check refuses, a block id outside the arena, more than P
 * tokens. */
enum status kv_compare_ref(struct kv_compare_args args);

/* On a device; enqueues on `stream` (a cudaStream_t).  ST_INVALID: another layout than ck8. */
enum status kv_compare_cuda(struct kv_compare_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
