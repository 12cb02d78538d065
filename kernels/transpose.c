/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/transpose.h"

#include <stddef.h>

#include "kernels/simd.h"

/* Writes the transpose of 8 rows of 8 floats: to[c * to_stride + r] = from[r * from_stride + c]. */
SIMD_INLINE void
transpose8(const float *from, uint32_t from_stride, float *to, uint32_t to_stride)
{
    f32x8 a[8], b[8];

#pragma GCC unroll 8
    for (uint32_t r = 0; r < 8; r++) {
        simd_load(&a[r], &from[(size_t)r * from_stride]);
    }
    /* Interleave rows 1, then 2, then 4 apart. */
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
        for (int j = i; j < i + 2; j++) {
            a[j] = __builtin_shufflevector(b[j], b[j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[j + 2] = __builtin_shufflevector(b[j], b[j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        b[j] = __builtin_shufflevector(a[j], a[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        b[j + 4] = __builtin_shufflevector(a[j], a[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#pragma GCC unroll 8
    for (uint32_t c = 0; c < 8; c++) {
        simd_store(&to[(size_t)c * to_stride], &b[c]);
    }
}

SIMD_CLONES void
transpose(const float *from, uint32_t from_stride, uint32_t n_rows, uint32_t n_columns, float *to,
          uint32_t to_stride)
{
    for (uint32_t r = 0; r < n_rows; r += SIMD_F32) {
        for (uint32_t c = 0; c < n_columns; c += SIMD_F32) {
            const float *tile = &from[(size_t)r * from_stride + c];
            float *out = &to[(size_t)c * to_stride + r];

            if (n_rows - r >= SIMD_F32 && n_columns - c >= SIMD_F32) {
                transpose8(tile, from_stride, out, to_stride);
                continue;
            }
            for (uint32_t i = 0; i < SIMD_F32 && r + i < n_rows; i++) {
                for (uint32_t j = 0; j < SIMD_F32 && c + j < n_columns; j++) {
                    out[(size_t)j * to_stride + i] = tile[(size_t)i * from_stride + j];
                }
            }
        }
    }
}
