/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cpu - the CPU instance's matrix product.
 *
 * y[m,n] is one running sum over k = 0..K-1 in float32, whatever M, the row's place in the call or
 * the threads: a row has the same bits alone and among 512 others.
 *
 * It reads weights in panels (panel.h). */
#ifndef KERNELS_GEMM_CPU_H
#define KERNELS_GEMM_CPU_H

#include "kernels/gemm.h"

/* ST_INVALID if K is 0, or no multiple of the unit of quantised weights. */
enum status gemm_cpu_check(const struct gemm_args *args);

/* Independent pieces of a product, in any order and on any thread. */
uint32_t gemm_cpu_units(const struct gemm_args *args);
void gemm_cpu_unit(const struct gemm_args *args, uint32_t unit);

#endif
