/* SPDX-License-Identifier: Apache-2.0 */
/* dummy_fill - the weights of a model that has none: out[i] = center + scale * (2 r[i] - 255),
 * r[i] a random byte.
 *
 * Odd numbers of eight bits: with a power of two for `scale` (and center 0) every value is exact in
 * float32 and bfloat16, so both types and all devices have the same model.  Their standard
 * deviation is 147.8 scale.  r[i] is byte i % 16 of Philox(seed; i / 16, stream). */
#ifndef KERNELS_DUMMY_FILL_H
#define KERNELS_DUMMY_FILL_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/philox.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DUMMY_FILL_GROUP 16 /* elements of one draw */

struct dummy_fill_args {
    void *out; /* cpu f32, cuda bf16 [count]; aligned to 32 bytes */
    uint64_t count;
    uint64_t seed;
    uint32_t stream; /* tells the weights of a model apart */
    float center;
    float scale;
};

/* The random bytes of group `group`, least significant first. */
PHILOX_INLINE void
dummy_fill_draw(uint64_t seed, uint32_t stream, uint64_t group, uint32_t words[4])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)group, (uint32_t)(group >> 32), stream, 0};

    philox4x32(key, counter, words);
}

PHILOX_INLINE float
dummy_fill_value(const uint32_t words[4], uint32_t i, float center, float scale)
{
    return center + scale * (float)(2 * (int32_t)(words[i / 4] >> 8 * (i % 4) & 0xff) - 255);
}

enum status dummy_fill_ref(struct dummy_fill_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status dummy_fill_cuda(struct dummy_fill_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
