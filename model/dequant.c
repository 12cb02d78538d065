/* SPDX-License-Identifier: Apache-2.0 */
/* Units of the file format (d, m are float16):
 *   Q8_0  { d, int8 q[32] }     x[i] = d * q[i]
 *   Q4_0  { d, u8 q[16] }       x[i] = d * (low nibble of q[i] - 8),  x[16 + i] = the high nibble's
 *   Q4_1  { d, m, u8 q[16] }    x[i] = d * low nibble of q[i] + m,    x[16 + i] likewise */
#include "model/dequant.h"

#include <assert.h>
#include <string.h>

#include "common/half.h"

#define UNIT_ELEMENTS 32
#define Q8_0_BYTES    34
#define Q4_0_BYTES    18
#define Q4_1_BYTES    20

static float
from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint16_t
load_u16(const uint8_t *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

size_t
dequant_bytes(enum gguf_tensor_type type, size_t count)
{
    switch (type) {
    case GGUF_TENSOR_F32: return count * 4;
    case GGUF_TENSOR_F16:
    case GGUF_TENSOR_BF16: return count * 2;
    case GGUF_TENSOR_Q8_0: return count / UNIT_ELEMENTS * Q8_0_BYTES;
    case GGUF_TENSOR_Q4_0: return count / UNIT_ELEMENTS * Q4_0_BYTES;
    case GGUF_TENSOR_Q4_1: return count / UNIT_ELEMENTS * Q4_1_BYTES;
    }
    assert(false);
    return 0;
}

static void
from_q8_0(const uint8_t *from, float *to)
{
    float d = half_to_float(load_u16(from));

    for (int i = 0; i < UNIT_ELEMENTS; i++) {
        to[i] = d * (float)(int8_t)from[2 + i];
    }
}

static void
from_q4_0(const uint8_t *from, float *to)
{
    float d = half_to_float(load_u16(from));

    for (int i = 0; i < UNIT_ELEMENTS / 2; i++) {
        to[i] = d * (float)((from[2 + i] & 15) - 8);
        to[UNIT_ELEMENTS / 2 + i] = d * (float)((from[2 + i] >> 4) - 8);
    }
}

static void
from_q4_1(const uint8_t *from, float *to)
{
    float d = half_to_float(load_u16(from));
    float m = half_to_float(load_u16(from + 2));

    for (int i = 0; i < UNIT_ELEMENTS / 2; i++) {
        to[i] = d * (float)(from[4 + i] & 15) + m;
        to[UNIT_ELEMENTS / 2 + i] = d * (float)(from[4 + i] >> 4) + m;
    }
}

void
dequant(enum gguf_tensor_type type, const void *from, size_t count, float *to)
{
    const uint8_t *at = from;

    switch (type) {
    case GGUF_TENSOR_F32: memcpy(to, from, count * sizeof(*to)); return;
    case GGUF_TENSOR_F16:
        for (size_t i = 0; i < count; i++) {
            to[i] = half_to_float(load_u16(at + 2 * i));
        }
        return;
    case GGUF_TENSOR_BF16:
        for (size_t i = 0; i < count; i++) {
            to[i] = from_bits((uint32_t)load_u16(at + 2 * i) << 16);
        }
        return;
    case GGUF_TENSOR_Q8_0:
        for (size_t i = 0; i < count; i += UNIT_ELEMENTS, at += Q8_0_BYTES) {
            from_q8_0(at, to + i);
        }
        return;
    case GGUF_TENSOR_Q4_0:
        for (size_t i = 0; i < count; i += UNIT_ELEMENTS, at += Q4_0_BYTES) {
            from_q4_0(at, to + i);
        }
        return;
    case GGUF_TENSOR_Q4_1:
        for (size_t i = 0; i < count; i += UNIT_ELEMENTS, at += Q4_1_BYTES) {
            from_q4_1(at, to + i);
        }
        return;
    }
    assert(false);
}

void
dequant_to_bf16(const float *from, size_t count, uint16_t *to)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &from[i], sizeof(bits));
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            to[i] = (uint16_t)(bits >> 16 | 0x40); /* quiet: rounding could make it infinite */
        } else {
            to[i] = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
        }
    }
}
