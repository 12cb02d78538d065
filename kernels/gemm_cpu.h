/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cpu - the CPU instance's matrix product.
 *
 * y[m,n] is one running sum over k = 0..K-1 in float32, whatever M, the row's place in the call or
 * the threads: a row has the same bits alone and among 512 others.
 *
 * It reads weights in packed order: each whole group of GEMM_PANEL rows of w is stored [K][panel],
 * in the place that the rows had; the N % GEMM_PANEL last rows stay as they are. */
#ifndef KERNELS_GEMM_CPU_H
#define KERNELS_GEMM_CPU_H

#include "kernels/gemm.h"

#define GEMM_PANEL 16 /* weight rows; two vectors */

/* Puts a weight [N, K], rows as checkpoints have them, into packed order.  In place; once.
 * ST_NO_MEMORY. */
enum status gemm_cpu_pack(void *w, uint32_t N, uint32_t K);

/* Copies row `n` of a packed weight out. */
void gemm_cpu_unpack_row(const float *w, uint32_t N, uint32_t K, uint32_t n, float *row_out);

/* ST_INVALID if K is 0. */
enum status gemm_cpu_check(const struct gemm_args *args);

/* Independent pieces of a product, in any order and on any thread. */
uint32_t gemm_cpu_units(const struct gemm_args *args);
void gemm_cpu_unit(const struct gemm_args *args, uint32_t unit);

#endif
