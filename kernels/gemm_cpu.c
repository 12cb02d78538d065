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

#include "kernels/panel_simd.h"

#define TILE_ROWS    6
#define TILE_SUMS    (TILE_ROWS * PANEL_VECTORS)
#define UNIT_PANELS  3
#define UNIT_VECTORS (UNIT_PANELS * PANEL_VECTORS)
#define UNIT_N       (UNIT_PANELS * PANEL_ROWS) /* weight rows in a unit */
#define FEW_ROWS     (TILE_SUMS / UNIT_VECTORS) /* of x, against the panels of a unit at once */

/* Columns of a quantised panel that are floats at a time.  48 KiB of them come from L2 as fast as
 * they are used, and to begin a tile anew costs more. */
#define STRETCH 768

#define CACHE_LINE 64

#ifdef __SANITIZE_ADDRESS__
#define UNROLL_GROUP /* to compile it with checks takes minutes */
#else
#define UNROLL_GROUP _Pragma("GCC unroll 4")
#endif

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
    uint32_t n_panels;
    const uint8_t *packed; /* quantised, panel_bytes apart, ... */
    size_t panel_bytes;
    const float *w;     /* ... or floats: [count][PANEL_ROWS] */
    const char *ahead;  /* what comes after them, ... */
    size_t ahead_bytes; /* ... all of it */
};

/* Rows of x against a stretch. */
struct tile {
    const float *x; /* [n_rows][0 .. count), rows K apart */
    float *y;       /* [n_rows][0 .. n_panels * PANEL_ROWS), rows N apart */
    uint32_t K;
    uint32_t N;
    const char *ahead;  /* what to fetch meanwhile, ... */
    size_t ahead_bytes; /* ... so much of it with each k */
};

SIMD_INLINE void
load_sums(f32x8 *sums, const struct tile *tile, const uint32_t n_rows, const uint32_t n_vectors)
{
#pragma GCC unroll 12
    for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
        simd_load(&sums[i], &tile->y[(size_t)(i / n_vectors) * tile->N + i % n_vectors * SIMD_F32]);
    }
}

SIMD_INLINE void
store_sums(const f32x8 *sums, const struct tile *tile, const uint32_t n_rows,
           const uint32_t n_vectors)
{
#pragma GCC unroll 12
    for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
        simd_store(&tile->y[(size_t)(i / n_vectors) * tile->N + i % n_vectors * SIMD_F32],
                   &sums[i]);
    }
}

/* Rows of x against a stretch of floats. */
SIMD_INLINE void
multiply_tile(const struct tile *tile, const struct stretch *stretch, const uint32_t n_rows)
{
    const uint32_t n_vectors = PANEL_VECTORS;
    const size_t K = tile->K, ahead_bytes = tile->ahead_bytes;
    const float *x = tile->x, *w_k = stretch->w, *end = w_k + (size_t)stretch->count * PANEL_ROWS;
    const char *ahead = tile->ahead;
    f32x8 sums[TILE_SUMS] = {{0}};

    if (stretch->k > 0) { /* the sums over the columns before */
        load_sums(sums, tile, n_rows, n_vectors);
    }
    for (; w_k < end; w_k += PANEL_ROWS, x++, ahead += ahead_bytes) {
        f32x8 w[PANEL_VECTORS];

        __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 2
        for (uint32_t v = 0; v < n_vectors; v++) {
            simd_load(&w[v], &w_k[v * SIMD_F32]);
        }
#pragma GCC unroll 12
        for (uint32_t i = 0; i < n_rows * n_vectors; i++) {
            sums[i] += x[i / n_vectors * K] * w[i % n_vectors];
        }
    }
    store_sums(sums, tile, n_rows, n_vectors);
}

/* Rows of x against a group of columns of quantised panels, panel_bytes apart. */
SIMD_INLINE void
multiply_group(const uint8_t *unit, size_t panel_bytes, uint32_t group,
               const struct panel_scales *scales, const float *x, size_t K, float *out, f32x8 *sums,
               const enum panel_form form, const uint32_t n_rows, const uint32_t n_panels)
{
    const uint32_t n_vectors = n_panels * PANEL_VECTORS;
    u32x8 words[UNIT_VECTORS];

#pragma GCC unroll 6
    for (uint32_t v = 0; v < n_vectors; v++) {
        panel_words(form, unit + v / PANEL_VECTORS * panel_bytes, group, v % PANEL_VECTORS,
                    &words[v]);
    }
    UNROLL_GROUP
    for (uint32_t i = 0; i < PANEL_GROUP; i++) {
        f32x8 w[UNIT_VECTORS];

#pragma GCC unroll 6
        for (uint32_t v = 0; v < n_vectors; v++) {
            panel_element(form, &words[v], i, &scales[v / PANEL_VECTORS], v % PANEL_VECTORS, &w[v]);
            if (n_panels == 1) {
                simd_store(&out[i * PANEL_ROWS + v * SIMD_F32], &w[v]);
            }
        }
#pragma GCC unroll 12
        for (uint32_t s = 0; s < n_rows * n_vectors; s++) {
            sums[s] += x[s / n_vectors * K + i] * w[s % n_vectors];
        }
    }
}

/* Rows of x against a stretch of quantised panels, which become floats on the way: where
 * multiply-adds keep two units busy for 6 cycles, two vectors made of bytes cost one or two more,
 * beside 5 in a pass of their own.  Floats of one panel stay in `out` for the tiles that follow. */
SIMD_INLINE void
multiply_packed(const struct tile *tile, const struct stretch *stretch, float *out,
                const enum panel_form form, const uint32_t n_rows, const uint32_t n_panels)
{
    const size_t unit_bytes = PANEL_ROWS * panel_row_bytes(form, PANEL_UNIT);
    const size_t panel_bytes = stretch->panel_bytes;
    const uint8_t *unit = stretch->packed, *end = unit + stretch->count / PANEL_UNIT * unit_bytes;
    const float *x = tile->x;
    f32x8 sums[TILE_SUMS] = {{0}};

    if (stretch->k > 0) {
        load_sums(sums, tile, n_rows, n_panels * PANEL_VECTORS);
    }
    for (; unit < end; unit += unit_bytes) {
        struct panel_scales scales[UNIT_PANELS];

#pragma GCC unroll 3
        for (uint32_t p = 0; p < n_panels; p++) {
            const uint8_t *at = unit + p * panel_bytes;

            /* The same of the next unit of panels comes from memory meanwhile. */
            for (size_t line = 0; line < unit_bytes; line += CACHE_LINE) {
                __builtin_prefetch(at + UNIT_PANELS * panel_bytes + line, 0, 2);
            }
            panel_scales(form, at, &scales[p]);
        }
        for (uint32_t group = 0; group < PANEL_UNIT / PANEL_GROUP; group++) {
            multiply_group(unit, panel_bytes, group, scales, x, tile->K, out, sums, form, n_rows,
                           n_panels);
            x += PANEL_GROUP;
            out += n_panels == 1 ? PANEL_GROUP * PANEL_ROWS : 0;
        }
    }
    store_sums(sums, tile, n_rows, n_panels * PANEL_VECTORS);
}

/* The first tile of rows against a stretch of quantised panels.  One or two rows of x are few
 * running sums, too few to hide the latency of adding; so they meet the panels of a unit at once.
 */
SIMD_INLINE void
multiply_first(const struct tile *tile, const struct stretch *stretch, float *out,
               const enum panel_form form, uint32_t n_rows)
{
    if (stretch->n_panels == UNIT_PANELS) {
        if (n_rows == 1) {
            multiply_packed(tile, stretch, out, form, 1, UNIT_PANELS);
        } else {
            multiply_packed(tile, stretch, out, form, 2, UNIT_PANELS);
        }
        return;
    }
    switch (n_rows) {
    case 1: multiply_packed(tile, stretch, out, form, 1, 1); break;
    case 2: multiply_packed(tile, stretch, out, form, 2, 1); break;
    case 3: multiply_packed(tile, stretch, out, form, 3, 1); break;
    case 4: multiply_packed(tile, stretch, out, form, 4, 1); break;
    case 5: multiply_packed(tile, stretch, out, form, 5, 1); break;
    default: multiply_packed(tile, stretch, out, form, TILE_ROWS, 1); break;
    }
}

SIMD_CLONES static void
multiply_first_q8_0(const struct tile *tile, const struct stretch *stretch, float *out,
                    uint32_t n_rows)
{
    multiply_first(tile, stretch, out, PANEL_Q8_0, n_rows);
}

SIMD_CLONES static void
multiply_first_q4_0(const struct tile *tile, const struct stretch *stretch, float *out,
                    uint32_t n_rows)
{
    multiply_first(tile, stretch, out, PANEL_Q4_0, n_rows);
}

SIMD_CLONES static void
multiply_first_q4_1(const struct tile *tile, const struct stretch *stretch, float *out,
                    uint32_t n_rows)
{
    multiply_first(tile, stretch, out, PANEL_Q4_1, n_rows);
}

SIMD_CLONES_16 static void
multiply_floats(const struct tile *tile, const struct stretch *stretch, uint32_t n_rows)
{
    switch (n_rows) {
    case 1: multiply_tile(tile, stretch, 1); break;
    case 2: multiply_tile(tile, stretch, 2); break;
    case 3: multiply_tile(tile, stretch, 3); break;
    case 4: multiply_tile(tile, stretch, 4); break;
    case 5: multiply_tile(tile, stretch, 5); break;
    default: multiply_tile(tile, stretch, TILE_ROWS); break;
    }
}

/* Tile i of rows m.. against a stretch; each fetches its share of what follows, so that weights
 * come from memory while sums are made. */
static struct tile
tile_of(const struct gemm_args *args, const struct stretch *stretch, uint32_t m, uint32_t i,
        uint32_t n_tiles)
{
    size_t share = stretch->ahead_bytes / n_tiles;

    return (struct tile){
        .x = (const float *)args->x + (size_t)m * args->K + stretch->k,
        .y = (float *)args->y + (size_t)m * args->N + stretch->n,
        .K = args->K,
        .N = args->N,
        .ahead = stretch->ahead + share * i,
        .ahead_bytes = (share + stretch->count - 1) / stretch->count,
    };
}

/* All rows of x against a stretch. */
static void
multiply_stretch(const struct gemm_args *args, struct stretch stretch)
{
    uint32_t M = args->M, n_tiles = (M + TILE_ROWS - 1) / TILE_ROWS, m = 0;
    _Alignas(CACHE_LINE) float expanded[STRETCH * PANEL_ROWS];

    if (args->form != PANEL_F32) {
        stretch.w = expanded;
        stretch.ahead = (const char *)expanded;
    }
    for (uint32_t i = 0; i < n_tiles; i++) {
        uint32_t n_rows = M / n_tiles + (i < M % n_tiles);
        const struct tile tile = tile_of(args, &stretch, m, i, n_tiles);

        switch (i == 0 ? args->form : PANEL_F32) {
        case PANEL_F32: multiply_floats(&tile, &stretch, n_rows); break;
        case PANEL_Q8_0: multiply_first_q8_0(&tile, &stretch, expanded, n_rows); break;
        case PANEL_Q4_0: multiply_first_q4_0(&tile, &stretch, expanded, n_rows); break;
        case PANEL_Q4_1: multiply_first_q4_1(&tile, &stretch, expanded, n_rows); break;
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

    multiply_stretch(args, (struct stretch){.n = n,
                                            .count = args->K,
                                            .n_panels = 1,
                                            .w = panel,
                                            .ahead = (const char *)(panel + floats),
                                            .ahead_bytes = floats * sizeof(*panel)});
}

/* The panels at weight row n, quantised, by stretches.  Sums that go on over stretches are the sums
 * of one run: to memory and back changes no bit. */
static void
multiply_quantised(const struct gemm_args *args, uint32_t n, uint32_t n_panels)
{
    uint32_t K = args->K, step = n_panels == 1 ? STRETCH : K;
    const uint8_t *panels = (const uint8_t *)args->w + n * panel_row_bytes(args->form, K);

    for (uint32_t k = 0; k < K; k += step) {
        multiply_stretch(
            args, (struct stretch){.n = n,
                                   .k = k,
                                   .count = K - k < step ? K - k : step,
                                   .n_panels = n_panels,
                                   .packed = panels + PANEL_ROWS * panel_row_bytes(args->form, k),
                                   .panel_bytes = PANEL_ROWS * panel_row_bytes(args->form, K)});
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
