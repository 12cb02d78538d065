/* SPDX-License-Identifier: Apache-2.0 */
/* half - IEEE float16 to float32, exactly. */
#ifndef COMMON_HALF_H
#define COMMON_HALF_H

#include <stdint.h>
#include <string.h>

static inline float
half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float value;

    if (exponent == 0x1f) { /* infinity or NaN */
        bits = sign | 0x7f800000u | fraction << 13;
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign == 0 ? value : -value;
    }
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#endif
