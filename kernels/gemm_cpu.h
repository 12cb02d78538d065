/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cpu - the CPU instance's matrix product.
 *
 * y[m,n] is one running sum over k = 0..K-1 in float32, whatever M, the row's place in the call or
 * the threads: a row has the same bits alone and among 512 others. */
#ifndef KERNELS_GEMM_CPU_H
#define KERNELS_GEMM_CPU_H

#include "kernels/gemm.h"

#define GEMM_K_MAX    32768
#define GEMM_ROWS_MAX 256 /* rows a pass; the caller cuts longer products */

struct gemm_job {
    struct gemm_args args; /* M <= GEMM_ROWS_MAX */
    float *panels;         /* [GEMM_ROWS_MAX, GEMM_K_MAX] scratch, 64-byte aligned is best */
};

/* ST_INVALID if K is 0 or too large. */
enum status gemm_cpu_check(const struct gemm_args *args);

/* First all packing units (they fill the panels), then all product units; any order, any thread. */
uint32_t gemm_cpu_pack_units(const struct gemm_job *job);
void gemm_cpu_pack(const struct gemm_job *job, uint32_t unit);
uint32_t gemm_cpu_units(const struct gemm_job *job);
void gemm_cpu_unit(const struct gemm_job *job, uint32_t unit);

#endif
