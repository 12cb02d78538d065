/* SPDX-License-Identifier: Apache-2.0 */
// rmsnorm on a device: residual add and norm in one pass.
//
// Bound by bytes: x read and written, delta read, out written: 8 C bytes a row (6 without delta).
// Split: one CTA a row; each thread keeps its 16-byte pieces of the row in registers between the
// two passes (sum of squares, scale), so x is read once.
// Numerics: the sum x + delta is rounded to bf16 first (it is the residual stream that the next
// layer reads), then squared and summed in float32.
#include "kernels/rmsnorm.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kThreadsMax = 512;
constexpr int kPieces = 4; // 16-byte pieces a thread: C up to 512 * 4 * 8 = 16384

__device__ __forceinline__ float
block_sum(float x)
{
    __shared__ float s_part[32];
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;

    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    if (lane == 0) {
        s_part[warp] = x;
    }
    __syncthreads();
    x = lane < (int)(blockDim.x + 31) / 32 ? s_part[lane] : 0.0f;
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    return x;
}

__device__ __forceinline__ float
add_and_square(uint32_t &x, uint32_t delta)
{
    x = pack_bf16(bf16_lo(x) + bf16_lo(delta), bf16_hi(x) + bf16_hi(delta));
    return bf16_lo(x) * bf16_lo(x) + bf16_hi(x) * bf16_hi(x);
}

__device__ __forceinline__ uint32_t
scale(uint32_t x, uint32_t weight, float factor)
{
    return pack_bf16(bf16_lo(x) * factor * bf16_lo(weight), bf16_hi(x) * factor * bf16_hi(weight));
}

template <bool kHasDelta>
__global__ __launch_bounds__(kThreadsMax) void rmsnorm_kernel(
    const __grid_constant__ rmsnorm_args args)
{
    const uint32_t n = args.C / 8;
    uint4 *x = (uint4 *)args.x + (size_t)blockIdx.x * n;
    const uint4 *delta = (const uint4 *)args.delta + (size_t)blockIdx.x * n;
    const uint4 *weight = (const uint4 *)args.weight;
    uint4 *out = (uint4 *)args.out + (size_t)blockIdx.x * n;
    uint4 r_x[kPieces];
    uint4 r_w[kPieces];
    float sum = 0.0f;

    let_next_start();
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        if (i < n) {
            r_w[k] = __ldg(weight + i);
        }
    }
    wait_for_previous();
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        if (i < n) {
            uint4 d = kHasDelta ? delta[i] : make_uint4(0, 0, 0, 0);
            r_x[k] = x[i];
            sum += add_and_square(r_x[k].x, d.x) + add_and_square(r_x[k].y, d.y)
                   + add_and_square(r_x[k].z, d.z) + add_and_square(r_x[k].w, d.w);
            if (kHasDelta) {
                x[i] = r_x[k];
            }
        }
    }
    const float factor = rsqrtf(block_sum(sum) / args.C + args.eps);
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        if (i < n) {
            uint4 w = r_w[k];
            out[i] = make_uint4(scale(r_x[k].x, w.x, factor), scale(r_x[k].y, w.y, factor),
                                scale(r_x[k].z, w.z, factor), scale(r_x[k].w, w.w, factor));
        }
    }
}

} // namespace

extern "C" enum status
rmsnorm_cuda(struct rmsnorm_args args, void *stream)
{
    if (args.C == 0 || args.C % 8 != 0 || args.C > 8u * kThreadsMax * kPieces) {
        return ERR(ST_INVALID, "rmsnorm: width %u, must be a multiple of 8 up to %d", args.C,
                   8 * kThreadsMax * kPieces);
    }
    if (args.T == 0) {
        return ST_OK;
    }
    uint32_t threads = (args.C / 8 + 31) / 32 * 32;
    threads = threads > kThreadsMax ? kThreadsMax : threads;
    return launch_early(args.delta != NULL ? rmsnorm_kernel<true> : rmsnorm_kernel<false>,
                        dim3(args.T), threads, 0, (cudaStream_t)stream, args);
}
