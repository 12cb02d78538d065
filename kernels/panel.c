/* SPDX-License-Identifier: Apache-2.0 */
/* A panel is GGUF's unit with each field 16 times, so a row outside of panels is a panel of one
 * row, and what copies or expands one lane does both.
 *
 * A vector gets its bytes as 8 words, one a lane, and shifts: to widen bytes is what compilers do
 * element by element. */
#include "kernels/panel.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "common/half.h"
#include "common/mem.h"
#include "kernels/simd.h"
#include "kernels/transpose.h"

#define VECTORS    (PANEL_ROWS / SIMD_F32)
#define WORD       4 /* bytes */
#define CACHE_LINE 64

/* A unit of 32 elements: `halves` of float16, then bytes. */
struct unit {
    uint32_t halves;
    uint32_t bytes;
};

static struct unit
unit_of(enum panel_form form)
{
    switch (form) {
    case PANEL_Q8_0: return (struct unit){1, PANEL_UNIT};
    case PANEL_Q4_0: return (struct unit){1, PANEL_UNIT / 2};
    case PANEL_Q4_1: return (struct unit){2, PANEL_UNIT / 2};
    case PANEL_F32: break;
    }
    assert(false);
    return (struct unit){0};
}

static size_t
unit_bytes(struct unit unit)
{
    return unit.halves * sizeof(uint16_t) + unit.bytes;
}

size_t
panel_row_bytes(enum panel_form form, uint32_t K)
{
    if (form == PANEL_F32) {
        return K * sizeof(float);
    }
    assert(K % PANEL_UNIT == 0);
    return K / PANEL_UNIT * unit_bytes(unit_of(form));
}

/* -- Pack ---------------------------------------------------------------------------------- */

/* Where lane `r` of `R` has a float16, and byte `i` of its q. */
static size_t
half_place(uint32_t r)
{
    return (r % SIMD_F32 * 2 + r / SIMD_F32) * sizeof(uint16_t);
}

static size_t
byte_place(uint32_t R, uint32_t r, uint32_t i)
{
    return ((size_t)(i / WORD) * R + r) * WORD + i % WORD;
}

static void
pack_units(enum panel_form form, const uint8_t *rows, uint32_t K, uint8_t *panel)
{
    struct unit unit = unit_of(form);
    size_t row_bytes = panel_row_bytes(form, K);

    for (size_t at = 0; at < row_bytes; at += unit_bytes(unit)) {
        for (uint32_t r = 0; r < PANEL_ROWS; r++) {
            const uint8_t *from = rows + r * row_bytes + at;
            uint8_t *to = panel + PANEL_ROWS * at;

            for (uint32_t i = 0; i < unit.halves; i++) {
                memcpy(to + half_place(r), from, sizeof(uint16_t));
                from += sizeof(uint16_t);
                to += PANEL_ROWS * sizeof(uint16_t);
            }
            for (uint32_t i = 0; i < unit.bytes; i += WORD) {
                memcpy(to + byte_place(PANEL_ROWS, r, i), from + i, WORD);
            }
        }
    }
}

enum status
panel_pack(enum panel_form form, void *w, uint32_t N, uint32_t K)
{
    size_t bytes = PANEL_ROWS * panel_row_bytes(form, K);
    void *rows = mem_zalloc(bytes, 1);

    if (rows == NULL) {
        return ERR(ST_NO_MEMORY, "no memory to pack weights of %u columns", K);
    }
    for (uint32_t n = 0; n + PANEL_ROWS <= N; n += PANEL_ROWS) {
        void *panel = (uint8_t *)w + n / PANEL_ROWS * bytes;

        memcpy(rows, panel, bytes);
        if (form == PANEL_F32) {
            transpose(rows, K, PANEL_ROWS, K, panel, PANEL_ROWS);
        } else {
            pack_units(form, rows, K, panel);
        }
    }
    mem_free(rows);
    return ST_OK;
}

/* -- One row ------------------------------------------------------------------------------- */

static float
half_at(const uint8_t *at)
{
    uint16_t half;

    memcpy(&half, at, sizeof(half));
    return half_to_float(half);
}

/* A unit of lane `r` of `R`. */
static void
expand_lane_unit(enum panel_form form, const uint8_t *at, uint32_t R, uint32_t r, float *out)
{
    struct unit unit = unit_of(form);
    size_t halves_bytes = R * sizeof(uint16_t);
    const uint8_t *q = at + unit.halves * halves_bytes;
    float d = half_at(at + half_place(r));
    float m = unit.halves == 2 ? half_at(at + halves_bytes + half_place(r)) : 0.0f;

    for (uint32_t i = 0; i < unit.bytes; i++) {
        uint8_t byte = q[byte_place(R, r, i)];

        if (form == PANEL_Q8_0) {
            out[i] = d * (float)(int8_t)byte;
        } else if (form == PANEL_Q4_0) {
            out[i] = d * (float)((byte & 15) - 8);
            out[unit.bytes + i] = d * (float)((byte >> 4) - 8);
        } else {
            out[i] = d * (float)(byte & 15) + m;
            out[unit.bytes + i] = d * (float)(byte >> 4) + m;
        }
    }
}

static void
expand_lane(enum panel_form form, const uint8_t *group, uint32_t R, uint32_t r, uint32_t k,
            uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i += PANEL_UNIT) {
        expand_lane_unit(form, group + R * panel_row_bytes(form, k + i), R, r, &out[i]);
    }
}

void
panel_expand_row(enum panel_form form, const void *row, uint32_t k, uint32_t count, float *out)
{
    expand_lane(form, row, 1, 0, k, count, out);
}

void
panel_unpack_row(enum panel_form form, const void *w, uint32_t N, uint32_t K, uint32_t n,
                 float *row_out)
{
    uint32_t first = n / PANEL_ROWS * PANEL_ROWS;
    uint32_t R = N - first < PANEL_ROWS ? 1 : PANEL_ROWS, r = R == 1 ? 0 : n - first;
    const void *group = (const uint8_t *)w + (n - r) * panel_row_bytes(form, K);

    if (form != PANEL_F32) {
        expand_lane(form, group, R, r, 0, K, row_out);
        return;
    }
    for (uint32_t k = 0; k < K; k++) {
        row_out[k] = ((const float *)group)[(size_t)k * R + r];
    }
}

/* -- Sixteen rows -------------------------------------------------------------------------- */

typedef uint32_t u32x8_any __attribute__((vector_size(32), aligned(1), may_alias));

SIMD_INLINE void
load_words(u32x8 *out, const uint8_t *at)
{
    *out = *(const u32x8_any *)(const void *)at;
}

/* As half_to_float: the exponent is moved by a product, which makes subnormals whole, too. */
SIMD_INLINE void
widen(f32x8 *out, const u32x8 *half)
{
    u32x8 is_special = (u32x8)((*half & 0x7c00u) == 0x7c00u);
    f32x8 size = (f32x8)((*half & 0x7fffu) << 13) * 0x1p112f;

    *out = (f32x8)((u32x8)size | (is_special & 0x7f800000u) | (*half & 0x8000u) << 16);
}

/* The float16 of 16 lanes. */
SIMD_INLINE void
load_halves(f32x8 out[VECTORS], const uint8_t *at)
{
    u32x8 both, low, high;

    load_words(&both, at);
    low = both & 0xffffu;
    high = both >> 16;
    widen(&out[0], &low);
    widen(&out[1], &high);
}

/* Bytes are column i in their low halves, column 16 + i in their high ones. */
SIMD_INLINE void
expand_nibbles(const uint8_t *at, float *out, uint32_t stride, const bool has_min)
{
    const uint8_t *q = at + (has_min ? 2 : 1) * PANEL_ROWS * sizeof(uint16_t);
    f32x8 d[VECTORS], m[VECTORS];

    load_halves(d, at);
    load_halves(m, at + (has_min ? PANEL_ROWS * sizeof(uint16_t) : 0));
    for (uint32_t word = 0; word < PANEL_UNIT / 2 / WORD; word++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < VECTORS; v++) {
            u32x8 bits;

            load_words(&bits, &q[(word * PANEL_ROWS + v * SIMD_F32) * WORD]);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < 2 * WORD; i++) {
                uint32_t k = word * WORD + i / 2 + i % 2 * (PANEL_UNIT / 2);
                i32x8 level = (i32x8)(bits >> (4 * i) & 15u);
                f32x8 value = __builtin_convertvector(has_min ? level : level - 8, f32x8) * d[v];

                if (has_min) {
                    value += m[v];
                }
                simd_store(&out[k * stride + v * SIMD_F32], &value);
            }
        }
    }
}

SIMD_INLINE void
expand_bytes(const uint8_t *at, float *out, uint32_t stride)
{
    const uint8_t *q = at + PANEL_ROWS * sizeof(uint16_t);
    f32x8 d[VECTORS];

    load_halves(d, at);
    for (uint32_t word = 0; word < PANEL_UNIT / WORD; word++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < VECTORS; v++) {
            u32x8 bits;

            load_words(&bits, &q[(word * PANEL_ROWS + v * SIMD_F32) * WORD]);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < WORD; i++) {
                i32x8 level = (i32x8)(bits << (24 - 8 * i)) >> 24;
                f32x8 value = __builtin_convertvector(level, f32x8) * d[v];

                simd_store(&out[(word * WORD + i) * stride + v * SIMD_F32], &value);
            }
        }
    }
}

SIMD_CLONES void
panel_expand(enum panel_form form, const void *panel, uint32_t k, uint32_t count, float *out,
             uint32_t stride, size_t ahead)
{
    const uint8_t *at = (const uint8_t *)panel + PANEL_ROWS * panel_row_bytes(form, k);
    size_t step = PANEL_ROWS * unit_bytes(unit_of(form));

    for (uint32_t i = 0; i < count; i += PANEL_UNIT, at += step, out += PANEL_UNIT * stride) {
        for (size_t line = 0; line < step; line += CACHE_LINE) {
            __builtin_prefetch(at + ahead + line, 0, 2);
        }
        switch (form) {
        case PANEL_Q8_0: expand_bytes(at, out, stride); break;
        case PANEL_Q4_0: expand_nibbles(at, out, stride, false); break;
        case PANEL_Q4_1: expand_nibbles(at, out, stride, true); break;
        case PANEL_F32: assert(false);
        }
    }
}
