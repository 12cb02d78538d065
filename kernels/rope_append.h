/* SPDX-License-Identifier: Apache-2.0 */
/* rope_append - writes the step's new keys and values into their blocks.
 *
 * K is rotated at the row's segment-local position (float32 from a float64 angle), V is copied, Q
 * is left raw in the fused QKV rows: attention rotates it.  Pairs are (i, i + D/2).
 * When a row is the last of its block's valid tokens, the rest of the block keeps what it had;
 * readers mask by n_tokens. */
#ifndef KERNELS_ROPE_APPEND_H
#define KERNELS_ROPE_APPEND_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/kv_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rope_append_args {
    const void *qkv; /* cpu f32, cuda bf16 [T, (H + 2 Hkv) * D]: Q heads, K heads, V heads */
    void *q_out;     /* [T, H, D] raw Q gathered; NULL to skip */
    void *kv;        /* arena */
    struct kv_layout layout;
    uint32_t layer;
    uint32_t n_blocks;         /* blocks in the arena */
    const uint32_t *row_block; /* [T] block id that receives the row */
    const uint32_t *row_slot;  /* [T] token slot in that block */
    const uint32_t *row_pos;   /* [T] segment-local position: the rotation of K */
    const double *inv_freq;    /* [D/2] */
    float rope_scale;
    uint32_t T;
    uint32_t H;
};

enum status rope_append_ref(struct rope_append_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status rope_append_cuda(struct rope_append_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
