/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cuda - cuBLASLt behind gemm_args, with its workspace and its cache of measured algorithms.
 *
 * One a stream.  N and K must be multiples of 8. */
#ifndef KERNELS_GEMM_CUDA_H
#define KERNELS_GEMM_CUDA_H

#include "common/status.h"
#include "kernels/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm_cuda;

enum status gemm_cuda_new(struct gemm_cuda **gemm_out);
void gemm_cuda_destroy(struct gemm_cuda **gemm);

/* Enqueues on `stream` (a cudaStream_t).  The first use of a shape measures and synchronises. */
enum status gemm_cuda_run(struct gemm_cuda *gemm, struct gemm_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
