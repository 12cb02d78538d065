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

#include <assert.h>
#include <stddef.h>

#include "kernels/panel.h"
#include "kernels/simd.h"

#define TILE_ROWS     6
#define PANEL_VECTORS (PANEL_ROWS / SIMD_F32)
#define TILE_SUMS     (TILE_ROWS * PANEL_VECTORS)
#define UNIT_PANELS   3
#define UNIT_VECTORS  (UNIT_PANELS * PANEL_VECTORS)
#define UNIT_N        (UNIT_PANELS * PANEL_ROWS) /* weight rows in a unit */
#define FEW_ROWS      (TILE_SUMS / UNIT_VECTORS) /* of x, against the panels of a unit at once */

/* Columns of a quantised panel that are floats at a time.  48 KiB of them come from L2 as fast as
 * they are used, and to begin a tile anew costs more; for a few rows they stay in L1. */
#define STRETCH        768
#define STRETCH_OF_FEW 64
static_assert(STRETCH_OF_FEW * UNIT_PANELS <= STRETCH, "one buffer for both");

enum status
gemm_cpu_check(const struct gemm_args *args)
{
    if (args->K == 0) {
        return ERR(ST_INVALID, "matrix product over 0 columns");
    }
    if (args->form != PANEL_F32 && args->K % PANEL_UNIT != 0) {
        return ERR(ST_INVALID, "matrix product over %u columns of quantised weights: not in %ds",
                   args->K, PANEL_UNIT);
    }
    return ST_OK;
}

uint32_t
gemm_cpu_units(const struct gemm_args *args)
{
    return args->M == 0 ? 0 : args->N / UNIT_N + (args->N % UNIT_N != 0);
}

/* Columns [k, k + count) of the panels at weight row n. */
struct stretch {
    uint32_t n, k, count;
    uint32_t n_vectors; /* of the panels */
    const float *w;     /* [count][n_vectors * SIMD_F32] */
    const char *ahead;  /* what comes after them, ... */
    size_t ahead_bytes; /* ... all of it */
};

/* Rows of x against a stretch. */
struct tile {
    const float *x; /* [n_rows][0 .. count), rows K apart */
    float *y;       /* [n_rows][0 .. n_vectors * SIMD_F32), rows N apart */
    uint32_t K;
    uint32_t N;
    const char *ahead;  /* what to fetch meanwhile, ... */
    size_t ahead_bytes; /* ... so much of it with each k */
};

SIMD_INLINE void
multiply_tile(const struct tile *tile, const struct stretch *stretch, const uint32_t n_rows,
              const uint32_t n_vectors)
{
    f32x8 sums[TILE_SUMS] = {{0}};

    if (stretch->k > 0) { /* the sums over the columns before */
#pragma GCC unroll 12
        for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
            simd_load(&sums[i],
                      &tile->y[(size_t)(i / n_vectors) * tile->N + i % n_vectors * SIMD_F32]);
        }
    }
    for (uint32_t k = 0; k < stretch->count; k++) {
        f32x8 w[UNIT_VECTORS];

        __builtin_prefetch(tile->ahead + k * tile->ahead_bytes, 0, 2);
#pragma GCC unroll 6
        for (uint32_t v = 0; v < n_vectors; v++) {
            simd_load(&w[v], &stretch->w[((size_t)k * n_vectors + v) * SIMD_F32]);
        }
#pragma GCC unroll 12
        for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
            sums[i] += tile->x[(size_t)(i / n_vectors) * tile->K + k] * w[i % n_vectors];
        }
    }
#pragma GCC unroll 12
    for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
        simd_store(&tile->y[(size_t)(i / n_vectors) * tile->N + i % n_vectors * SIMD_F32],
                   &sums[i]);
    }
}

/* One or two rows alone are few running sums, too few to hide the latency of adding; so they meet
 * the panels of a unit at once. */
SIMD_INLINE void
multiply_few(const struct tile *tile, const struct stretch *stretch, uint32_t n_rows)
{
    if (n_rows == 1) {
        multiply_tile(tile, stretch, 1, UNIT_VECTORS);
    } else {
        multiply_tile(tile, stretch, 2, UNIT_VECTORS);
    }
}

/* All rows of x against a stretch.  Each tile fetches its share of what follows, so that weights
 * come from memory while sums are made. */
SIMD_CLONES static void
multiply_stretch(const struct gemm_args *args, const struct stretch *stretch)
{
    uint32_t M = args->M, n_tiles = (M + TILE_ROWS - 1) / TILE_ROWS;
    size_t share = stretch->ahead_bytes / n_tiles;

    for (uint32_t i = 0, m = 0; i < n_tiles; i++) {
        uint32_t n_rows = M / n_tiles + (i < M % n_tiles);
        const struct tile tile = {
            .x = (const float *)args->x + (size_t)m * args->K + stretch->k,
            .y = (float *)args->y + (size_t)m * args->N + stretch->n,
            .K = args->K,
            .N = args->N,
            .ahead = stretch->ahead + share * i,
            .ahead_bytes = (share + stretch->count - 1) / stretch->count,
        };

        if (stretch->n_vectors == UNIT_VECTORS) {
            multiply_few(&tile, stretch, n_rows);
            return;
        }
        switch (n_rows) {
        case 1: multiply_tile(&tile, stretch, 1, PANEL_VECTORS); break;
        case 2: multiply_tile(&tile, stretch, 2, PANEL_VECTORS); break;
        case 3: multiply_tile(&tile, stretch, 3, PANEL_VECTORS); break;
        case 4: multiply_tile(&tile, stretch, 4, PANEL_VECTORS); break;
        case 5: multiply_tile(&tile, stretch, 5, PANEL_VECTORS); break;
        default: multiply_tile(&tile, stretch, TILE_ROWS, PANEL_VECTORS); break;
        }
        m += n_rows;
    }
}

/* The panel at weight row n, of floats. */
static void
multiply_plain(const struct gemm_args *args, uint32_t n)
{
    const float *panel = (const float *)args->w + (size_t)n * args->K;
    size_t floats = (size_t)PANEL_ROWS * args->K;

    multiply_stretch(args, &(struct stretch){.n = n,
                                             .count = args->K,
                                             .n_vectors = PANEL_VECTORS,
                                             .w = panel,
                                             .ahead = (const char *)(panel + floats),
                                             .ahead_bytes = floats * sizeof(*panel)});
}

/* The panels at weight row n, quantised: a stretch of columns becomes floats, all rows use it, and
 * the unit that follows is fetched meanwhile.  Sums that go on over stretches are the sums of one
 * run: to memory and back changes no bit. */
static void
multiply_quantised(const struct gemm_args *args, uint32_t n, uint32_t n_panels)
{
    uint32_t K = args->K, step = args->M <= TILE_ROWS ? STRETCH_OF_FEW : STRETCH;
    size_t panel_bytes = PANEL_ROWS * panel_row_bytes(args->form, K);
    const char *panels = (const char *)args->w + n / PANEL_ROWS * panel_bytes;
    float expanded[STRETCH * PANEL_ROWS];

    for (uint32_t k = 0; k < K; k += step) {
        uint32_t count = K - k < step ? K - k : step;

        for (uint32_t p = 0; p < n_panels; p++) {
            panel_expand(args->form, panels + p * panel_bytes, k, count, &expanded[p * PANEL_ROWS],
                         n_panels * PANEL_ROWS, UNIT_PANELS * panel_bytes);
        }
        multiply_stretch(args, &(struct stretch){.n = n,
                                                 .k = k,
                                                 .count = count,
                                                 .n_vectors = n_panels * PANEL_VECTORS,
                                                 .w = expanded,
                                                 .ahead = (const char *)expanded});
    }
}

/* Columns [k, k + count) of a weight row that is in no panel. */
SIMD_CLONES static void
multiply_row(const struct gemm_args *args, uint32_t n, const float *w, uint32_t k, uint32_t count)
{
    for (uint32_t m = 0; m < args->M; m++) {
        const float *x = (const float *)args->x + (size_t)m * args->K + k;
        float *y = (float *)args->y + (size_t)m * args->N + n;
        float sum = k == 0 ? 0.0f : *y;

        for (uint32_t i = 0; i < count; i++) {
            sum += x[i] * w[i];
        }
        *y = sum;
    }
}

/* Weight rows [first, end), which are in no panel. */
static void
multiply_rest(const struct gemm_args *args, uint32_t first, uint32_t end)
{
    uint32_t K = args->K;
    float expanded[STRETCH];

    for (uint32_t n = first; n < end; n++) {
        const char *row = (const char *)args->w + n * panel_row_bytes(args->form, K);

        if (args->form == PANEL_F32) {
            multiply_row(args, n, (const float *)row, 0, K);
            continue;
        }
        for (uint32_t k = 0; k < K; k += STRETCH) {
            uint32_t count = K - k < STRETCH ? K - k : STRETCH;

            panel_expand_row(args->form, row, k, count, expanded);
            multiply_row(args, n, expanded, k, count);
        }
    }
}

void
gemm_cpu_unit(const struct gemm_args *args, uint32_t unit)
{
    uint32_t n = unit * UNIT_N;
    uint32_t end = args->N - n < UNIT_N ? args->N : n + UNIT_N;

    if (args->form != PANEL_F32 && args->M <= FEW_ROWS && end - n == UNIT_N) {
        multiply_quantised(args, n, UNIT_PANELS);
        return;
    }
    for (; n + PANEL_ROWS <= end; n += PANEL_ROWS) {
        if (args->form == PANEL_F32) {
            multiply_plain(args, n);
        } else {
            multiply_quantised(args, n, 1);
        }
    }
    multiply_rest(args, n, end);
}
