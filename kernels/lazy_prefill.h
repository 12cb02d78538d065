/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_prefill - attention of many rows a sequence over position-free documents and its own tokens.
 *
 *   out[t,h,:] = sum_s sum_j softmax(scale * R(p_t - S_s) q[t,h,:] . k_s[j,h/G,:]) v_s[j,h/G,:]
 *
 * over all segments s and keys j with S_s + j <= p_t; G = H / Hkv.  Only Q is rotated
 * (attn_desc.h). A row without a visible key gives 0.  Scores and sums in float32 or wider.
 * ST_INVALID: a layout that kv_layout_check refuses, H % Hkv != 0, layer >= L.
 * Source: LazyAttention (2026), sec. 3; Dao, FlashAttention-2 (2023), sec. 3.1 for the online
 * softmax. */
#ifndef KERNELS_LAZY_PREFILL_H
#define KERNELS_LAZY_PREFILL_H

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lazy_prefill_args {
    struct attn_desc desc;
    const void *q; /* raw, unrotated Q: cpu f32, cuda bf16 [T, H, D] */
    void *out;     /* like q [T, H, D]; may not alias q */
};

/* The plain twin; also what the CPU instance runs (rows split over threads).  Bitwise equal to
 * lazy_decode_ref for the same row: a resumed request re-prefills what it had decoded. */
enum status lazy_prefill_ref(struct lazy_prefill_args args);

#ifdef __cplusplus
}
#endif
#endif
