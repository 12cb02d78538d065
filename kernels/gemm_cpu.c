/* SPDX-License-Identifier: Apache-2.0 */
/* Bound by bytes below about 16 rows (each weight is read once), by multiply-adds above.
 *
 * Lanes are rows of x.  A panel is 16 rows of x transposed to [K][16], so that for each k two
 * vectors of x meet one weight, broadcast: 6 weight rows x 2 vectors = 12 running sums, enough to
 * hide the latency of two multiply-add units within AVX2's 16 registers.  Weights are used as they
 * lie, no copy.  With 8 rows or less (decode) panels are [K][8] and a tile takes 12 weight rows:
 * one multiply-add a weight.  Lanes without a row hold old values; their sums are not stored.
 *
 * Every sum runs over k in order in every tile, so rows do not depend on their neighbours by
 * construction.  BLAS gives no such promise: OpenBLAS 0.3.21 on Haswell and Zen sums the last 4 of
 * 16 rows in another order, and padding M to a tile of 8, where it does not, made decode 1.5x
 * slower.  This file is as fast as OpenBLAS on whole products and faster below 64 rows
 * (bench/bench_gemm; numbers in the README). */
#include "kernels/gemm_cpu.h"

#include <stddef.h>

#include "kernels/simd.h"
#include "kernels/transpose.h"

#define PANEL_ROWS  16
#define NARROW_ROWS SIMD_F32
#define WIDE_N      6  /* weight rows in a tile of 16 rows of x */
#define NARROW_N    12 /* and of 8 */
#define UNIT_N      48 /* weight rows in a unit: whole tiles of both kinds */

enum status
gemm_cpu_check(const struct gemm_args *args)
{
    if (args->K == 0 || args->K > GEMM_K_MAX) {
        return ERR(ST_INVALID, "matrix product over %u columns: must be 1 to %d", args->K,
                   GEMM_K_MAX);
    }
    return ST_OK;
}

/* Rows of the panels: narrow ones for a product of few rows. */
static uint32_t
panel_rows(const struct gemm_job *job)
{
    return job->args.M <= NARROW_ROWS ? NARROW_ROWS : PANEL_ROWS;
}

uint32_t
gemm_cpu_pack_units(const struct gemm_job *job)
{
    return (job->args.M + panel_rows(job) - 1) / panel_rows(job);
}

void
gemm_cpu_pack(const struct gemm_job *job, uint32_t unit)
{
    uint32_t K = job->args.K, width = panel_rows(job), first = unit * width;
    uint32_t n_rows = job->args.M - first < width ? job->args.M - first : width;
    const float *x = (const float *)job->args.x + (size_t)first * K;
    float *panel = job->panels + (size_t)first * K;

    transpose(x, K, n_rows, K, panel, width);
}

uint32_t
gemm_cpu_units(const struct gemm_job *job)
{
    return job->args.M == 0 ? 0 : (job->args.N + UNIT_N - 1) / UNIT_N;
}

/* out[n][row] for `tile_n` weight rows and `vectors` * 8 rows of x.  Past n_weights the last weight
 * row is taken again. */
SIMD_INLINE void
multiply(const float *panel, const float *w, uint32_t n_weights, uint32_t K, float *out,
         const uint32_t tile_n, const uint32_t vectors)
{
    f32x8 sums[NARROW_N];
    const float *rows[NARROW_N];

#pragma GCC unroll 12
    for (uint32_t n = 0; n < tile_n; n++) {
        rows[n] = w + (size_t)(n < n_weights ? n : n_weights - 1) * K;
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            sums[n * vectors + v] = (f32x8){0};
        }
    }
    for (uint32_t k = 0; k < K; k++) {
        f32x8 x[2];

#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            simd_load(&x[v], &panel[((size_t)k * vectors + v) * SIMD_F32]);
        }
#pragma GCC unroll 12
        for (uint32_t n = 0; n < tile_n; n++) {
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++) {
                sums[n * vectors + v] += rows[n][k] * x[v];
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < tile_n * vectors; i++) {
        simd_store(&out[i * SIMD_F32], &sums[i]);
    }
}

SIMD_CLONES static void
multiply_wide(const float *panel, const float *w, uint32_t n_weights, uint32_t K, float *out)
{
    multiply(panel, w, n_weights, K, out, WIDE_N, PANEL_ROWS / SIMD_F32);
}

SIMD_CLONES static void
multiply_narrow(const float *panel, const float *w, uint32_t n_weights, uint32_t K, float *out)
{
    multiply(panel, w, n_weights, K, out, NARROW_N, NARROW_ROWS / SIMD_F32);
}

void
gemm_cpu_unit(const struct gemm_job *job, uint32_t unit)
{
    const struct gemm_args *args = &job->args;
    uint32_t M = args->M, N = args->N, K = args->K, width = panel_rows(job);
    uint32_t tile_n = width == PANEL_ROWS ? WIDE_N : NARROW_N;
    uint32_t end = N - unit * UNIT_N < UNIT_N ? N : (unit + 1) * UNIT_N;
    float out[NARROW_N * SIMD_F32];

    for (uint32_t n = unit * UNIT_N; n < end; n += tile_n) {
        const float *w = (const float *)args->w + (size_t)n * K;
        uint32_t n_weights = end - n < tile_n ? end - n : tile_n;

        for (uint32_t m = 0; m < M; m += width) {
            float *y = (float *)args->y + (size_t)m * N + n;
            uint32_t n_rows = M - m < width ? M - m : width;

            if (width == PANEL_ROWS) {
                multiply_wide(job->panels + (size_t)m * K, w, n_weights, K, out);
            } else {
                multiply_narrow(job->panels + (size_t)m * K, w, n_weights, K, out);
            }
            for (uint32_t row = 0; row < n_rows; row++) {
                for (uint32_t i = 0; i < n_weights; i++) {
                    y[(size_t)row * N + i] = out[i * width + row];
                }
            }
        }
    }
}
