// SPDX-License-Identifier: Apache-2.0
// rope_copy on a device: whole ck8 blocks, K rotated on, V as it is.
//
// Bound by bytes: every block is read once and written once; a 2,048-token document of the 8B shape
// is 256 MiB, so 2 * 268 MB / 4.2 TB/s = 128 us predicted on an H200.
// Split: one CTA a (block, layer), 64 KiB in and out for P = 32, Hkv = 8, D = 128; a thread moves
// 16-byte chunks, for K a chunk and its partner D/2 dims further, so a rotation needs no exchange.
// The swizzle depends on the slot alone: a chunk goes to the offset that it came from.
// Numerics: D/2 angles in float64 a CTA, one float32 rotation, rounded once to bf16.
#include "kernels/rope_copy.h"

#include "kernels/device/ck8.cuh"
#include "kernels/device/cuda_check.cuh"

namespace {

constexpr int kThreads = 256;

template <int D>
__global__ __launch_bounds__(kThreads) void rope_copy_kernel(
    const __grid_constant__ rope_copy_args args)
{
    constexpr uint32_t kChunks = D / 8;
    constexpr uint32_t kPairs = kChunks / 2;
    __shared__ float4 s_turn[D / 4];
    const uint32_t i = blockIdx.x;
    const uint32_t P = args.layout.P;
    const uint32_t Hkv = args.layout.Hkv;
    const size_t head_bytes = (size_t)P * D * 2;
    const size_t layer_bytes = 2 * Hkv * head_bytes;
    const size_t block_bytes = args.layout.L * layer_bytes;
    const char *from =
        (const char *)args.kv + args.from[i] * block_bytes + blockIdx.y * layer_bytes;
    char *to = (char *)args.kv + args.to[i] * block_bytes + blockIdx.y * layer_bytes;

    for (int d = threadIdx.x; d < D / 2; d += kThreads) {
        double sin_value, cos_value;
        sincos((double)args.turn[i] * args.inv_freq[d], &sin_value, &cos_value);
        ((float2 *)s_turn)[d] = make_float2((float)cos_value, (float)sin_value);
    }
    __syncthreads();
    for (uint32_t unit = threadIdx.x; unit < Hkv * P * kPairs; unit += kThreads) {
        uint32_t c = unit % kPairs;
        uint32_t slot = unit / kPairs % P;
        size_t head = unit / kPairs / P * head_bytes;
        size_t low = head + ck8_chunk_offset(D, slot, c);
        size_t high = head + ck8_chunk_offset(D, slot, c + kPairs);
        uint4 a = __ldg((const uint4 *)(from + low));
        uint4 b = __ldg((const uint4 *)(from + high));

        rotate_chunk(a, b, s_turn + c * 4);
        *(uint4 *)(to + low) = a;
        *(uint4 *)(to + high) = b;
    }
    const uint4 *values_from = (const uint4 *)(from + Hkv * head_bytes);
    uint4 *values_to = (uint4 *)(to + Hkv * head_bytes);
    for (uint32_t unit = threadIdx.x; unit < Hkv * P * kChunks; unit += kThreads) {
        values_to[unit] = __ldg(values_from + unit);
    }
}

} // namespace

extern "C" enum status
rope_copy_cuda(struct rope_copy_args args, void *stream)
{
    if (args.layout.id != KV_LAYOUT_CK8 || args.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "rope_copy on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.N == 0) {
        return ST_OK;
    }
    dim3 grid(args.N, args.layout.L);

    switch (args.layout.D) {
    case 64: rope_copy_kernel<64><<<grid, kThreads, 0, (cudaStream_t)stream>>>(args); break;
    case 128: rope_copy_kernel<128><<<grid, kThreads, 0, (cudaStream_t)stream>>>(args); break;
    default: return ERR(ST_INVALID, "rope_copy: head dimension %u", args.layout.D);
    }
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
