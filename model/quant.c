/* SPDX-License-Identifier: Apache-2.0 */
/* Plain rounding to the nearest level of each unit; dequant.c shows the units.  Levels are chosen
 * from the scale as stored, so that its rounding does not add to the error. */
#include "model/quant.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "model/dequant.h"

#define UNIT 32

/* To nearest, ties to even. */
static uint16_t
to_half(float value)
{
    float size = fabsf(value);
    uint16_t sign = signbit(value) ? 0x8000u : 0;
    uint32_t bits;

    if (size >= 65520.0f) { /* halfway between the largest half and the next power */
        return sign | 0x7c00u;
    }
    if (size < 0x1p-14f) { /* subnormal: units of 2^-24 */
        return sign | (uint16_t)lrintf(size * 0x1p24f);
    }
    memcpy(&bits, &size, sizeof(bits));
    bits -= 112u << 23; /* 112 = the difference of the exponents' biases */
    return sign | (uint16_t)((bits + 0xfffu + (bits >> 13 & 1)) >> 13);
}

/* Stores a scale and returns it as it will be read. */
static float
store_half(float value, uint8_t *to)
{
    uint16_t half = to_half(value);
    float stored;

    memcpy(to, &half, sizeof(half));
    dequant(GGUF_TENSOR_F16, to, 1, &stored);
    return stored;
}

static int
level(float value, float step, int low, int high)
{
    long rounded = step == 0.0f ? 0 : lrintf(value / step);

    return (int)(rounded < low ? low : rounded > high ? high : rounded);
}

static float
largest(const float *from)
{
    float size = 0.0f;

    for (int i = 0; i < UNIT; i++) {
        size = fmaxf(size, fabsf(from[i]));
    }
    return size;
}

static void
to_q8_0(const float *from, uint8_t *to)
{
    float d = store_half(largest(from) / 127.0f, to);

    for (int i = 0; i < UNIT; i++) {
        to[2 + i] = (uint8_t)(int8_t)level(from[i], d, -127, 127);
    }
}

static void
to_q4_0(const float *from, uint8_t *to)
{
    float d = store_half(largest(from) / 7.0f, to);

    for (int i = 0; i < UNIT / 2; i++) {
        int low = level(from[i], d, -8, 7) + 8;
        int high = level(from[UNIT / 2 + i], d, -8, 7) + 8;

        to[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void
to_q4_1(const float *from, uint8_t *to)
{
    float low = from[0];
    float high = from[0];
    float d, m;

    for (int i = 1; i < UNIT; i++) {
        low = fminf(low, from[i]);
        high = fmaxf(high, from[i]);
    }
    d = store_half((high - low) / 15.0f, to);
    m = store_half(low, to + 2);
    for (int i = 0; i < UNIT / 2; i++) {
        to[4 + i] =
            (uint8_t)(level(from[i] - m, d, 0, 15) | level(from[UNIT / 2 + i] - m, d, 0, 15) << 4);
    }
}

void
quant(enum gguf_tensor_type type, const float *from, size_t count, void *to)
{
    uint8_t *at = to;
    size_t unit_bytes = dequant_bytes(type, UNIT);

    switch (type) {
    case GGUF_TENSOR_F32: memcpy(to, from, count * sizeof(*from)); return;
    case GGUF_TENSOR_BF16: dequant_to_bf16(from, count, to); return;
    case GGUF_TENSOR_F16:
        for (size_t i = 0; i < count; i++) {
            (void)store_half(from[i], at + 2 * i);
        }
        return;
    case GGUF_TENSOR_Q8_0:
    case GGUF_TENSOR_Q4_0:
    case GGUF_TENSOR_Q4_1:
        assert(count % UNIT == 0);
        for (size_t i = 0; i < count; i += UNIT, at += unit_bytes) {
            if (type == GGUF_TENSOR_Q8_0) {
                to_q8_0(from + i, at);
            } else if (type == GGUF_TENSOR_Q4_0) {
                to_q4_0(from + i, at);
            } else {
                to_q4_1(from + i, at);
            }
        }
        return;
    }
    assert(false);
}
