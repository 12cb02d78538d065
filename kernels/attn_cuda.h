/* SPDX-License-Identifier: Apache-2.0 */
/* attn_cuda - the device's side of attention: what ops_cuda keeps of a step between begin_step and
 * its last layer, and the launchers that use it.  All pointers are device memory. */
#ifndef KERNELS_ATTN_CUDA_H
#define KERNELS_ATTN_CUDA_H

#include "common/status.h"
#include "kernels/attn_desc.h"
#include "kernels/attn_plan.h"
#include "kernels/decode_plan.h"
#include "kernels/lazy_decode.h"
#include "kernels/lazy_prefill.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cos and sin of every (row, segment) pair of some sequences, once for all layers and heads:
 *   angles[angle_first[i] + s * n_rows + t] = rope_scale * (cos, sin)((p_t - S_s) * inv_freq)
 * for row t and segment s of sequence i; zeros where p_t < S_s.  Angles in float64, results
 * float32: neither a bf16 table nor a limit on positions. */
struct attn_angles {
    float *rows;                 /* [sum of n_rows * n_segs, D/2, 2] */
    const uint32_t *angle_first; /* [n_seqs] */
};

struct attn_angles_args {
    const struct attn_segment *segs;
    const struct attn_seq *seqs;
    uint32_t n_seqs;
    const double *inv_freq; /* [D/2] */
    float rope_scale;
    uint32_t D;
    struct attn_angles angles;
};

/* All enqueue on `stream` (a cudaStream_t). */
enum status attn_angles_cuda(struct attn_angles_args args, void *stream);

/* An attn_plan on the device. */
struct attn_device_plan {
    struct attn_angles angles;
    const struct attn_item *items; /* [n_items] */
    uint32_t n_items;
    float *o;  /* [n_partials, H, D], for attn_merge */
    float *ml; /* [n_partials, H, 2] */
};

/* bf16 Q, KV and out; KV in the ck8 layout, D 64 or 128.  Items that are whole row tiles write
 * `out` (like q [rows, H, D]), parts of one write partials. */
enum status lazy_prefill_cuda(struct lazy_prefill_args args, struct attn_device_plan plan,
                              void *stream);
enum status lazy_decode_cuda(struct attn_desc desc, const void *q, void *out,
                             struct attn_device_plan plan, void *stream);

/* A decode_plan on the device.  The counters are zero before the first launch and zero again after
 * each: launches that may overlap are of different layers. */
struct decode_device_plan {
    const struct decode_item *items[DECODE_KINDS];
    const uint32_t *n_units; /* [DECODE_KINDS] */
    const struct decode_sharer *sharers;
    const struct decode_flush *flushes;
    const struct decode_join *joins; /* [n_rows, Hkv], n_rows sequences */
    const float *angles;             /* [rows of angles, D/2, 2] */
    float *o;                        /* [slots, G, D] */
    float *ml;                       /* [slots, G, 2] */
    uint32_t *arrived;               /* [slots] */
    uint32_t *counters;              /* [lazy_decode_sm90_counters()] */
    uint32_t ctas[DECODE_KINDS];
    uint32_t per_sm[DECODE_KINDS];
    uint32_t n_rows;
    uint32_t rows_max;
    bool joins_in_kernel;
    bool is_first;     /* launch after begin_step: not to start early */
    bool is_building;  /* documents' keys are written in this step: no launch starts early */
    bool is_unrotated; /* for measurements: attends with raw Q, which is wrong */
};

/* lazy_decode for sm_90, with the same function of desc and q; row i of q and out is seqs[i]. */
enum status lazy_decode_sm90(struct attn_desc desc, const void *q, void *out,
                             struct decode_device_plan plan, void *stream);
size_t lazy_decode_sm90_counters(void);

#ifdef __cplusplus
}
#endif
#endif
