/* SPDX-License-Identifier: Apache-2.0 */
/* Why tiles: OpenBLAS picks kernels and loop orders by the shape of the call, so a row's sum would come
 * out differently with 1 and with 512 rows.  One shape of call has one order.
 *
 * Why 8 rows: within a call the rows are the small dimension of the micro kernels.  The Haswell and Zen
 * kernels take rows in groups of 12, then 4, with different orders of summation: with 16 rows the
 * last four differ in the last bit (seen with OpenBLAS 0.3.21).  Up to 8 rows all groups are the same.
 * tests/kernels/test_gemm.c holds it.
 *
 * Why 64 columns: 8 x 64 x K stays on the AVX-512 kernels that need no packing (measured, README). */
#include "kernels/gemm_cpu.h"

#include <stddef.h>
#include <string.h>

#include <cblas.h>

enum status
gemm_cpu_prepare(struct gemm_job *job)
{
    const struct gemm_args *args = &job->args;
    uint32_t tail = args->M % GEMM_TILE_M;
    size_t row_bytes = args->K * sizeof(float);

    if (args->K == 0 || args->K > GEMM_K_MAX) {
        return ERR(ST_INVALID, "matrix product over %u columns: must be 1 to %d", args->K,
                   GEMM_K_MAX);
    }
    if (tail != 0) {
        memcpy(job->pad, (const float *)args->x + (size_t)(args->M - tail) * args->K,
               tail * row_bytes);
        memset((char *)job->pad + tail * row_bytes, 0, (GEMM_TILE_M - tail) * row_bytes);
    }
    return ST_OK;
}

uint32_t
gemm_cpu_units(const struct gemm_job *job)
{
    return job->args.M == 0 ? 0 : job->args.N / GEMM_TILE_N + (job->args.N % GEMM_TILE_N != 0);
}

static void
multiply_tile(const float *x, const float *w, float *y, uint32_t n_columns, uint32_t K,
              uint32_t ldy)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, GEMM_TILE_M, (blasint)n_columns,
                (blasint)K, 1.0f, x, (blasint)K, w, (blasint)K, 0.0f, y, (blasint)ldy);
}

void
gemm_cpu_unit(const struct gemm_job *job, uint32_t unit)
{
    const struct gemm_args *args = &job->args;
    uint32_t first = unit * GEMM_TILE_N, K = args->K, N = args->N;
    uint32_t n_columns = N - first < GEMM_TILE_N ? N - first : GEMM_TILE_N;
    uint32_t full = args->M - args->M % GEMM_TILE_M;
    const float *w = (const float *)args->w + (size_t)first * K;
    float *y = (float *)args->y + first;

    for (uint32_t m = 0; m < full; m += GEMM_TILE_M) {
        multiply_tile((const float *)args->x + (size_t)m * K, w, y + (size_t)m * N, n_columns, K,
                      N);
    }
    if (full < args->M) {
        float tile[GEMM_TILE_M * GEMM_TILE_N];

        multiply_tile(job->pad, w, tile, n_columns, K, GEMM_TILE_N);
        for (uint32_t m = full; m < args->M; m++) {
            memcpy(y + (size_t)m * N, &tile[(m - full) * GEMM_TILE_N], n_columns * sizeof(float));
        }
    }
}
