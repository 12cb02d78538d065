/* SPDX-License-Identifier: Apache-2.0 */
/* prefill_cuda - lazy_prefill on sm_90a for a stream: its planner, the plan's way to the device,
 * the kernel and the merge. */
#ifndef KERNELS_PREFILL_CUDA_H
#define KERNELS_PREFILL_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"
#include "kernels/host_copy.h"
#include "kernels/lazy_prefill.h"

struct prefill_cuda;

struct prefill_cuda_config {
    uint32_t H;
    uint32_t Hkv;
    uint32_t D;
    uint32_t rows_max;
    uint32_t seqs_max;
    uint32_t sm_count;
    bool is_fixed;   /* a row has the same bits in any company */
    float *partials; /* device memory: [partials_max, H, D + 2] floats, borrowed */
    uint32_t partials_max;
};

/* The caller destroys it.  ST_UNAVAILABLE: no such kernel in this build or on the current device.
 */
enum status prefill_cuda_new(const struct prefill_cuda_config *config, struct prefill_cuda **out);
void prefill_cuda_destroy(struct prefill_cuda **prefill);

/* Plans the sequences of a step and adds the plan to `copies`, which the caller sends.  angle_first
 * [n_seqs] is in host memory, angles (attn_cuda.h) on the device.  The host side of `slot` (0 or 1)
 * may be written again when the copy has been made. */
enum status prefill_cuda_begin(struct prefill_cuda *prefill, const struct attn_step *step,
                               const struct attn_seq *seqs, uint32_t n_seqs,
                               const uint32_t *angle_first, const float *angles, uint32_t slot,
                               struct host_copies *copies, void *stream);

/* lazy_prefill of the step begun last. */
enum status prefill_cuda_run(const struct prefill_cuda *prefill,
                             const struct lazy_prefill_args *args, void *stream);

/* What launches depend on: the number of rows to merge. */
uint32_t prefill_cuda_shape(const struct prefill_cuda *prefill);

#endif
