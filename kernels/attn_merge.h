/* SPDX-License-Identifier: Apache-2.0 */
/* attn_merge - partial attention results of a row into its output.
 *
 *   m* = max m_i,  out = sum_i exp(m_i - m*) o_i / sum_i exp(m_i - m*) l_i
 *
 * No partial, or only identities (m = -inf): out = 0 (guards -inf minus -inf). */
#ifndef KERNELS_ATTN_MERGE_H
#define KERNELS_ATTN_MERGE_H

#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_merge_args {
    const float *o;                /* [n_partials, H, D] */
    const float *ml;               /* [n_partials, H, 2] */
    const uint32_t *partial_first; /* [n_rows + 1] */
    const uint32_t *row_ids; /* [n_rows] the row of out that each one is; NULL: 0, 1, 2, ... */
    void *out;               /* cpu f32, cuda bf16 [n_rows, H, D] */
    uint32_t n_rows;
    uint32_t H;
    uint32_t D;
};

enum status attn_merge_ref(struct attn_merge_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status attn_merge_cuda(struct attn_merge_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
