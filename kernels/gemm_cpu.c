/* SPDX-License-Identifier: Apache-2.0 */
/* Bound by bytes below about 8 rows (each weight is read once), by multiply-adds above.
 *
 * Lanes are weight rows.  For each k the two vectors of a panel meet up to 6 rows of x, whose
 * element is broadcast: 12 running sums, enough to hide the latency of two multiply-add units
 * within AVX2's 16 registers.  Rows of x are used as they lie and none is padded: M rows are dealt
 * to ceil(M / 6) tiles as evenly as can be, so a question of 35 tokens costs 35 rows.  (With rows
 * of x in the lanes it cost 48, and one row of decode read weights at 60 % of this speed.)
 *
 * Every sum runs over k in order in every tile, so rows do not depend on their neighbours by
 * construction.  BLAS gives no such promise: OpenBLAS 0.3.21 on Haswell and Zen sums the last 4 of
 * 16 rows in another order (bench/bench_gemm compares the speed; numbers in the README). */
#include "kernels/gemm_cpu.h"

#include <stddef.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/simd.h"
#include "kernels/transpose.h"

#define TILE_ROWS     6
#define PANEL_VECTORS (GEMM_PANEL / SIMD_F32)
#define UNIT_PANELS   3
#define UNIT_N        (UNIT_PANELS * GEMM_PANEL) /* weight rows in a unit */

enum status
gemm_cpu_check(const struct gemm_args *args)
{
    return args->K > 0 ? ST_OK : ERR(ST_INVALID, "matrix product over 0 columns");
}

enum status
gemm_cpu_pack(void *w, uint32_t N, uint32_t K)
{
    size_t floats = (size_t)GEMM_PANEL * K;
    float *rows = mem_zalloc(floats, sizeof(*rows));

    if (rows == NULL) {
        return ERR(ST_NO_MEMORY, "no memory to pack weights of %u columns", K);
    }
    for (uint32_t n = 0; n + GEMM_PANEL <= N; n += GEMM_PANEL) {
        float *panel = (float *)w + (size_t)n * K;

        memcpy(rows, panel, floats * sizeof(*rows));
        transpose(rows, K, GEMM_PANEL, K, panel, GEMM_PANEL);
    }
    mem_free(rows);
    return ST_OK;
}

void
gemm_cpu_unpack_row(const float *w, uint32_t N, uint32_t K, uint32_t n, float *row_out)
{
    uint32_t first = n / GEMM_PANEL * GEMM_PANEL;

    if (N - first < GEMM_PANEL) {
        memcpy(row_out, &w[(size_t)n * K], K * sizeof(*w));
        return;
    }
    const float *column = &w[(size_t)first * K + (n - first)];

    for (uint32_t k = 0; k < K; k++) {
        row_out[k] = column[(size_t)k * GEMM_PANEL];
    }
}

uint32_t
gemm_cpu_units(const struct gemm_args *args)
{
    return args->M == 0 ? 0 : args->N / UNIT_N + (args->N % UNIT_N != 0);
}

/* Rows of x against a panel. */
struct tile {
    const float *x; /* [n_rows, K] */
    const float *panel;
    float *y; /* [n_rows][0 .. GEMM_PANEL), rows N apart */
    uint32_t K;
    uint32_t N;
    const char *ahead;  /* what to fetch meanwhile, ... */
    size_t ahead_bytes; /* ... so much of it with each k */
};

SIMD_INLINE void
multiply_tile(const struct tile *tile, const uint32_t n_rows)
{
    f32x8 sums[TILE_ROWS][PANEL_VECTORS] = {{{0}}};

    for (uint32_t k = 0; k < tile->K; k++) {
        f32x8 w[PANEL_VECTORS];

        __builtin_prefetch(tile->ahead + k * tile->ahead_bytes, 0, 2);
#pragma GCC unroll 2
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            simd_load(&w[v], &tile->panel[(size_t)k * GEMM_PANEL + v * SIMD_F32]);
        }
#pragma GCC unroll 6
        for (uint32_t r = 0; r < n_rows; r++) {
#pragma GCC unroll 2
            for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
                sums[r][v] += tile->x[(size_t)r * tile->K + k] * w[v];
            }
        }
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < n_rows; r++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < PANEL_VECTORS; v++) {
            simd_store(&tile->y[(size_t)r * tile->N + v * SIMD_F32], &sums[r][v]);
        }
    }
}

/* All rows of x against the panel of weight rows [n, n + GEMM_PANEL).  Each tile fetches its share
 * of the panel that follows, so that weights come from memory while sums are made. */
SIMD_CLONES static void
multiply_panel(const struct gemm_args *args, uint32_t n)
{
    uint32_t M = args->M, K = args->K, n_tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    const float *panel = (const float *)args->w + (size_t)n * K;
    size_t panel_bytes = GEMM_PANEL * sizeof(*panel) * K;
    size_t share = (GEMM_PANEL * sizeof(*panel) + n_tiles - 1) / n_tiles;

    for (uint32_t i = 0, m = 0; i < n_tiles; i++) {
        uint32_t n_rows = M / n_tiles + (i < M % n_tiles);
        const struct tile tile = {
            .x = (const float *)args->x + (size_t)m * K,
            .panel = panel,
            .y = (float *)args->y + (size_t)m * args->N + n,
            .K = K,
            .N = args->N,
            .ahead = (const char *)panel + panel_bytes + panel_bytes * i / n_tiles,
            .ahead_bytes = share,
        };

        switch (n_rows) {
        case 1: multiply_tile(&tile, 1); break;
        case 2: multiply_tile(&tile, 2); break;
        case 3: multiply_tile(&tile, 3); break;
        case 4: multiply_tile(&tile, 4); break;
        case 5: multiply_tile(&tile, 5); break;
        default: multiply_tile(&tile, TILE_ROWS); break;
        }
        m += n_rows;
    }
}

/* Weight rows [first, end), which are no whole panel and not packed. */
SIMD_CLONES static void
multiply_rest(const struct gemm_args *args, uint32_t first, uint32_t end)
{
    uint32_t K = args->K;

    for (uint32_t n = first; n < end; n++) {
        const float *w = (const float *)args->w + (size_t)n * K;

        for (uint32_t m = 0; m < args->M; m++) {
            const float *x = (const float *)args->x + (size_t)m * K;
            float sum = 0.0f;

            for (uint32_t k = 0; k < K; k++) {
                sum += x[k] * w[k];
            }
            ((float *)args->y)[(size_t)m * args->N + n] = sum;
        }
    }
}

void
gemm_cpu_unit(const struct gemm_args *args, uint32_t unit)
{
    uint32_t n = unit * UNIT_N;
    uint32_t end = args->N - n < UNIT_N ? args->N : n + UNIT_N;

    for (; n + GEMM_PANEL <= end; n += GEMM_PANEL) {
        multiply_panel(args, n);
    }
    multiply_rest(args, n, end);
}
