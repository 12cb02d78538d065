/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_few - matrix products of few rows on sm_90: weights streamed at the rate of memory, ahead
 * of the kernel before.  Used by ops_cuda. */
#ifndef KERNELS_GEMM_FEW_H
#define KERNELS_GEMM_FEW_H

#include <stdbool.h>

#include "common/status.h"
#include "kernels/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether it is meant for this shape. */
bool gemm_few_serves(struct gemm_args args);

/* Enqueues on `stream` (a cudaStream_t).  A row's bits do not depend on M. */
enum status gemm_few_run(struct gemm_args args, uint32_t sm_count, void *stream);

#ifdef __cplusplus
}
#endif
#endif
