/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cuda - cuBLASLt behind gemm_args, with its workspace and its cache of measured algorithms.
 *
 * One a stream.  N and K must be multiples of 8.  A deterministic one computes GEMM_CUDA_FIXED_ROWS
 * rows at a time, or as many times as many as give the same bits: x must be readable and y writable
 * up to a multiple of them, and what y holds behind row M is lost. */
#ifndef KERNELS_GEMM_CUDA_H
#define KERNELS_GEMM_CUDA_H

#include <stdbool.h>

#include "common/status.h"
#include "kernels/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm_cuda;

#define GEMM_CUDA_FIXED_ROWS 128

enum status gemm_cuda_new(bool is_deterministic, struct gemm_cuda **gemm_out);
void gemm_cuda_destroy(struct gemm_cuda **gemm);

/* Enqueues on `stream` (a cudaStream_t).  The first use of a shape measures and synchronises. */
enum status gemm_cuda_run(struct gemm_cuda *gemm, struct gemm_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
