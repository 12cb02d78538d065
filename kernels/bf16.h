/* SPDX-License-Identifier: Apache-2.0 */
/* bf16 - the upper half of a float32, rounded to nearest even; NaN stays NaN. */
#ifndef KERNELS_BF16_H
#define KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

static inline float
bf16_to_f32(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint16_t
bf16_from_f32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    if (value != value) {
        return (uint16_t)(bits >> 16
                          | 0x40); /* keep it a quiet NaN when the low half held the payload */
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
