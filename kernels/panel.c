/* SPDX-License-Identifier: Apache-2.0 */
/* A panel is GGUF's unit with each field 16 times, so a row outside of panels is a panel of one
 * row, and what copies or expands one lane does both.  panel_simd.h expands all sixteen. */
#include "kernels/panel.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "common/half.h"
#include "common/mem.h"
#include "kernels/simd.h"
#include "kernels/transpose.h"

#define WORD 4 /* bytes */

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
