/* SPDX-License-Identifier: Apache-2.0 */
/* panel_simd - the elements of a quantised panel, as the product's inner loops want them: four
 * columns of 16 rows are two vectors of words.
 *
 * A vector gets its bytes as 8 words, one a lane, and shifts: to widen bytes is what compilers do
 * element by element. */
#ifndef KERNELS_PANEL_SIMD_H
#define KERNELS_PANEL_SIMD_H

#include "kernels/panel.h"
#include "kernels/simd.h"

#define PANEL_VECTORS (PANEL_ROWS / SIMD_F32)
#define PANEL_GROUP   4 /* columns in a word */

/* d and m of a unit's 16 rows. */
struct panel_scales {
    f32x8 d[PANEL_VECTORS];
    f32x8 m[PANEL_VECTORS]; /* Q4_1 alone has it */
};

typedef uint32_t u32x8_any __attribute__((vector_size(32), aligned(1), may_alias));

/* As half_to_float: the exponent is moved by a product, which makes subnormals whole, too. */
SIMD_INLINE void
panel_widen(f32x8 *out, const u32x8 *half)
{
    u32x8 is_special = (u32x8)((*half & 0x7c00u) == 0x7c00u);
    f32x8 size = (f32x8)((*half & 0x7fffu) << 13) * 0x1p112f;

    *out = (f32x8)((u32x8)size | (is_special & 0x7f800000u) | (*half & 0x8000u) << 16);
}

/* The float16 of 16 lanes. */
SIMD_INLINE void
panel_halves(f32x8 out[PANEL_VECTORS], const uint8_t *at)
{
    u32x8 both = *(const u32x8_any *)(const void *)at, low = both & 0xffffu, high = both >> 16;

    panel_widen(&out[0], &low);
    panel_widen(&out[1], &high);
}

SIMD_INLINE void
panel_scales(const enum panel_form form, const uint8_t *unit, struct panel_scales *scales)
{
    panel_halves(scales->d, unit);
    panel_halves(scales->m, unit + (form == PANEL_Q4_1 ? PANEL_ROWS * sizeof(uint16_t) : 0));
}

/* The words of columns [group * PANEL_GROUP, ...), column i in bits 8 i and up.  A byte of four
 * bits twice is column i in its low half, column 16 + i in its high one. */
SIMD_INLINE void
panel_words(const enum panel_form form, const uint8_t *unit, uint32_t group, uint32_t v,
            u32x8 *words)
{
    const uint8_t *q = unit + (form == PANEL_Q4_1 ? 2 : 1) * PANEL_ROWS * sizeof(uint16_t);
    uint32_t word = form == PANEL_Q8_0 ? group : group % (PANEL_UNIT / 2 / PANEL_GROUP);

    *words = *(const u32x8_any *)(const void *)&q[(word * PANEL_ROWS + v * SIMD_F32) * 4];
    if (form != PANEL_Q8_0 && word != group) {
        *words >>= 4;
    }
}

/* Column i of the group. */
SIMD_INLINE void
panel_element(const enum panel_form form, const u32x8 *words, const uint32_t i,
              const struct panel_scales *scales, const uint32_t v, f32x8 *out)
{
    i32x8 level = form == PANEL_Q8_0 ? (i32x8)(*words << (24 - 8 * i)) >> 24
                                     : (i32x8)(*words >> (8 * i) & 15u);

    *out = __builtin_convertvector(form == PANEL_Q4_0 ? level - 8 : level, f32x8) * scales->d[v];
    if (form == PANEL_Q4_1) {
        *out += scales->m[v];
    }
}

#endif
