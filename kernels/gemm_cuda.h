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
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm_cuda;

#define GEMM_CUDA_FIXED_ROWS 128

/* `tuning`: what another one measured, which is taken if it was on such a device, by the same
 * library, for the same kind of products; 0 bytes: there is none. */
enum status gemm_cuda_new(bool is_deterministic, const void *tuning, size_t bytes,
                          struct gemm_cuda **gemm_out);
void gemm_cuda_destroy(struct gemm_cuda **gemm);

/* Enqueues on `stream` (a cudaStream_t).  The first use of a shape measures and synchronises; after
 * gemm_cuda_settle none does. */
enum status gemm_cuda_run(struct gemm_cuda *gemm, struct gemm_args args, void *stream);
void gemm_cuda_settle(struct gemm_cuda *gemm);

/* All choices so far, for another one; at most OPS_TUNING_MAX bytes, more with each choice. */
const void *gemm_cuda_tuning(const struct gemm_cuda *gemm, size_t *bytes_out);

#ifdef __cplusplus
}
#endif
#endif
