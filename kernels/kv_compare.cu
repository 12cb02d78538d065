// SPDX-License-Identifier: Apache-2.0
// kv_compare on a device: bf16 in the ck8 layout.
//
// Bound by bytes, 2 * block_bytes a pair; runs in idle time only, so it is plain: a CTA a (pair,
// layer, K|V), a thread 16 bytes of both at a time.  Predicted 3 TB/s on an H200; measured 4.06 at
// 64 pairs of 4 MiB, 4.47 (107% of a copy) at 512.
// Numerics: a thread's squares in float32 (at most a few hundred terms), the CTA's in one fixed
// order, so the same bits each time; the twin sums in float64.
#include "kernels/kv_compare.h"

#include "kernels/device/ck8.cuh"
#include "kernels/device/cuda_check.cuh"

namespace {

constexpr int kThreads = 256;

struct sums {
    float difference, size;
    uint32_t elements;
};

__device__ __forceinline__ void
add_element(sums &s, float x, float y, bool is_same)
{
    s.difference += (x - y) * (x - y);
    s.size += y * y;
    s.elements += !is_same;
}

__device__ __forceinline__ void
add_pair(sums &s, uint32_t a, uint32_t b)
{
    add_element(s, bf16_lo(a), bf16_lo(b), (a & 0xffff) == (b & 0xffff));
    add_element(s, bf16_hi(a), bf16_hi(b), a >> 16 == b >> 16);
}

__device__ __forceinline__ sums
sum_of_threads(sums s)
{
    __shared__ sums s_warps[kThreads / 32];

    for (int lane = 16; lane > 0; lane /= 2) {
        s.difference += __shfl_xor_sync(~0u, s.difference, lane);
        s.size += __shfl_xor_sync(~0u, s.size, lane);
        s.elements += __shfl_xor_sync(~0u, s.elements, lane);
    }
    if (threadIdx.x % 32 == 0) {
        s_warps[threadIdx.x / 32] = s;
    }
    __syncthreads();
    for (int warp = 1; threadIdx.x == 0 && warp < kThreads / 32; warp++) {
        s.difference += s_warps[warp].difference;
        s.size += s_warps[warp].size;
        s.elements += s_warps[warp].elements;
    }
    return s;
}

// Grid: (pair, 2 * layer + (K|V)).
__global__ __launch_bounds__(kThreads) void kv_compare_kernel(
    const __grid_constant__ kv_compare_args args)
{
    const uint32_t D = args.layout.D;
    const uint32_t chunks = D / 8;
    const uint32_t tokens = args.tokens[blockIdx.x];
    const size_t head_bytes = (size_t)args.layout.P * D * 2;
    const size_t piece_bytes = args.layout.Hkv * head_bytes;
    const size_t block_bytes = 2 * args.layout.L * piece_bytes;
    const char *a =
        (const char *)args.kv + args.a[blockIdx.x] * block_bytes + blockIdx.y * piece_bytes;
    const char *b =
        (const char *)args.kv + args.b[blockIdx.x] * block_bytes + blockIdx.y * piece_bytes;
    sums s = {};

    for (uint32_t unit = threadIdx.x; unit < args.layout.Hkv * tokens * chunks; unit += kThreads) {
        uint32_t slot = unit / chunks % tokens;
        size_t at = unit / chunks / tokens * head_bytes + ck8_chunk_offset(D, slot, unit % chunks);
        uint4 x = __ldcs((const uint4 *)(a + at));
        uint4 y = __ldcs((const uint4 *)(b + at));

        add_pair(s, x.x, y.x);
        add_pair(s, x.y, y.y);
        add_pair(s, x.z, y.z);
        add_pair(s, x.w, y.w);
    }
    s = sum_of_threads(s);
    if (threadIdx.x == 0 && s.elements > 0) {
        float relative = sqrtf(s.difference / s.size);

        relative = isfinite(relative) ? relative : INFINITY;
        atomicAdd(&args.diff[blockIdx.x].elements, s.elements);
        // Floats that are not negative are in the order of their bits.
        atomicMax((int *)&args.diff[blockIdx.x].relative, __float_as_int(relative));
    }
}

} // namespace

extern "C" enum status
kv_compare_cuda(struct kv_compare_args args, void *stream)
{
    if (args.layout.id != KV_LAYOUT_CK8 || args.layout.type != KV_BF16) {
        return ERR(ST_INVALID, "kv_compare on a device: KV must be bf16 in the ck8 layout");
    }
    if (args.N == 0) {
        return ST_OK;
    }
    CU_TRY(cudaMemsetAsync(args.diff, 0, args.N * sizeof(args.diff[0]), (cudaStream_t)stream));
    kv_compare_kernel<<<dim3(args.N, 2 * args.layout.L), kThreads, 0, (cudaStream_t)stream>>>(args);
    CU_TRY(cudaGetLastError());
    return ST_OK;
}
