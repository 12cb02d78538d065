/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_cpu - the CPU instance's matrix product: OpenBLAS on tiles of one fixed shape.
 *
 * A row's result depends on its values alone: not on M, not on its place in the call, not on
 * the threads. */
#ifndef KERNELS_GEMM_CPU_H
#define KERNELS_GEMM_CPU_H

#include "kernels/gemm.h"

#define GEMM_TILE_M 8     /* rows a tile; a shorter last tile is padded with zeros */
#define GEMM_TILE_N 64    /* columns a tile; the last one may be shorter */
#define GEMM_K_MAX  65536 /* of a padded tile */

struct gemm_job {
    struct gemm_args args;
    float *pad; /* [GEMM_TILE_M, GEMM_K_MAX] */
};

/* ST_INVALID if K is 0 or too large.  Fills job->pad from the rows of a short last tile. */
enum status gemm_cpu_prepare(struct gemm_job *job);

/* Independent pieces of the product, after prepare. */
uint32_t gemm_cpu_units(const struct gemm_job *job);
void gemm_cpu_unit(const struct gemm_job *job, uint32_t unit);

#endif
