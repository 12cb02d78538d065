/* SPDX-License-Identifier: Apache-2.0 */
/* angles - cos and sin of every (row, segment) pair of a step, once for all layers and heads.
 *
 *   angles[a + t, i] = rope_scale * (cos, sin)((p_t - S_s) * inv_freq[i]),  a = segs[s].angle_first
 *
 * for row t of a sequence and each of its segments s that the row can see (p_t >= S_s; zeros else).
 * Angles in float64, results in float32: neither a bf16 table nor a limit on positions. */
#ifndef KERNELS_ANGLES_H
#define KERNELS_ANGLES_H

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct angles_args {
    const struct attn_segment *segs;
    const struct attn_seq *seqs; /* [n_seqs] */
    uint32_t n_seqs;
    const double *inv_freq; /* [D/2] */
    float rope_scale;
    uint32_t D;
    float *angles; /* [sum over sequences of n_rows * n_segs, D/2, 2] */
};

enum status angles_ref(struct angles_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status angles_cuda(struct angles_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
