/* SPDX-License-Identifier: Apache-2.0 */
/* Attention needs D/2 sines and cosines for every (row, segment): with libm that costs as much as
 * the attention over a short document, so they are computed four at a time here.
 *
 * x = n pi/2 + r, |r| <= pi/4.  pi/2 is split in parts of 21, 21 and 53 bits: n < 2^32, so the
 * first two products are exact with or without fused multiply-add.  sin and cos of r by their
 * series, whose remainders are below 1e-16. */
#include "kernels/rope_angle.h"

#include <stddef.h>
#include <string.h>

#include "kernels/simd.h"

#define PIO2_A 0x1.921fbp+0
#define PIO2_B 0x1.5110ap-22
#define PIO2_C 0x1.4611a62633146p-42

SIMD_INLINE void
sincos4(const f64x4 *in, f64x4 *cos_out, f64x4 *sin_out)
{
    const double round_magic = 6755399441055744.0; /* 1.5 * 2^52 */
    f64x4 x = *in, t = x * 0.63661977236758134308 + round_magic;
    f64x4 n = t - round_magic;
    f64x4 r = ((x - n * PIO2_A) - n * PIO2_B) - n * PIO2_C;
    f64x4 z = r * r, s, c;

    s = z * (-1.0 / 1307674368000.0) + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * r + r;
    c = z * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1.0;

    /* Quadrant n mod 4: odd ones swap sine and cosine; signs follow from bit 1. */
    u64x4 quadrant = (u64x4)t;
    u64x4 odd = 0 - (quadrant & 1);
    u64x4 sin_sign = (quadrant & 2) << 62;
    u64x4 cos_sign = ((quadrant + 1) & 2) << 62;

    *sin_out = (f64x4)(((odd & (u64x4)c) | (~odd & (u64x4)s)) ^ sin_sign);
    *cos_out = (f64x4)(((odd & (u64x4)s) | (~odd & (u64x4)c)) ^ cos_sign);
}

SIMD_CLONES void
rope_angle_at(struct rope_angle *angle, uint64_t position, const double *inv_freq, uint32_t D,
              float rope_scale)
{
    for (uint32_t i = 0; i < D / 2; i += SIMD_F64) {
        f64x4 x = *(const f64x4_any *)&inv_freq[i] * (double)position, c, s;

        sincos4(&x, &c, &s);
        for (uint32_t lane = 0; lane < SIMD_F64; lane++) {
            angle->cos[i + lane] = (float)(c[lane] * (double)rope_scale);
            angle->sin[i + lane] = (float)(s[lane] * (double)rope_scale);
        }
    }
}

SIMD_INLINE void
rotate(const struct rope_angle *angle, const float *x, float *out, uint32_t D)
{
    uint32_t half = D / 2;

    for (uint32_t i = 0; i < half; i += SIMD_F32) {
        f32x8 a, b, c, s, lo, hi;

        simd_load(&a, &x[i]);
        simd_load(&b, &x[i + half]);
        simd_load(&c, &angle->cos[i]);
        simd_load(&s, &angle->sin[i]);
        lo = a * c - b * s;
        hi = b * c + a * s;
        simd_store(&out[i], &lo);
        simd_store(&out[i + half], &hi);
    }
}

SIMD_CLONES void
rope_angle_rotate(const struct rope_angle *angle, const float *x, float *out, uint32_t D)
{
    rotate(angle, x, out, D);
}

SIMD_CLONES void
rope_angle_rotate_heads(const struct rope_angle *angle, const float *x, uint32_t count, float *out,
                        uint32_t out_stride, uint32_t D)
{
    for (uint32_t i = 0; i < count; i++) {
        rotate(angle, &x[(size_t)i * D], &out[(size_t)i * out_stride], D);
    }
}

void
rope_table_set(struct rope_table *table, const double *inv_freq, uint32_t D, float rope_scale)
{
    size_t bytes = D / 2 * sizeof(*inv_freq);

    if (table->D == D && table->rope_scale == rope_scale
        && memcmp(table->inv_freq, inv_freq, bytes) == 0) {
        return;
    }
    memcpy(table->inv_freq, inv_freq, bytes);
    table->D = D;
    table->rope_scale = rope_scale;
    for (uint32_t i = 0; i < ROPE_TABLE_POSITIONS; i++) {
        rope_angle_at(&table->angles[i], i, inv_freq, D, rope_scale);
    }
}

const struct rope_angle *
rope_table_angle(const struct rope_table *table, uint64_t position, const double *inv_freq,
                 uint32_t D, float rope_scale, struct rope_angle *room)
{
    if (table != NULL && position < ROPE_TABLE_POSITIONS) {
        return &table->angles[position];
    }
    rope_angle_at(room, position, inv_freq, D, rope_scale);
    return room;
}
