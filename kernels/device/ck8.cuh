// SPDX-License-Identifier: Apache-2.0
// ck8 - 16-byte chunks of a ck8 block, and pairs of bf16 rotated in registers.
#ifndef KERNELS_DEVICE_CK8_CUH
#define KERNELS_DEVICE_CK8_CUH

#include "kernels/device/mma_sm80.cuh"

namespace {

// Byte offset of the 16-byte chunk `c` (8 dims) of token `slot` inside one (layer, K|V, head)
// piece.
__device__ __forceinline__ uint32_t
ck8_chunk_offset(uint32_t D, uint32_t slot, uint32_t c)
{
    return slot / 8 * (D * 16) + c / 8 * 1024 + slot % 8 * 128 + ((c % 8) ^ (slot % 8)) * 16;
}

__device__ __forceinline__ void
rotate_pair(uint32_t &a, uint32_t &b, float4 turn) // cos, sin of two neighbouring dims
{
    float a0 = bf16_lo(a), a1 = bf16_hi(a), b0 = bf16_lo(b), b1 = bf16_hi(b);

    a = pack_bf16(a0 * turn.x - b0 * turn.y, a1 * turn.z - b1 * turn.w);
    b = pack_bf16(b0 * turn.x + a0 * turn.y, b1 * turn.z + a1 * turn.w);
}

// A chunk and its partner D/2 dims further; turns[4]: those of the chunk's 8 dims.
__device__ __forceinline__ void
rotate_chunk(uint4 &a, uint4 &b, const float4 *turns)
{
    rotate_pair(a.x, b.x, turns[0]);
    rotate_pair(a.y, b.y, turns[1]);
    rotate_pair(a.z, b.z, turns[2]);
    rotate_pair(a.w, b.w, turns[3]);
}

} // namespace

#endif
