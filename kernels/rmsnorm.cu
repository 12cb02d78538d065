/* SPDX-License-Identifier: Apache-2.0 */
// rmsnorm on a device: residual add and norm in one pass.
//
// Bound by bytes: x read and written, delta read, out written: 8 C bytes a row (4 without delta).
// Split: one CTA a row.  Each thread keeps its 16-byte pieces of the row in registers between the
// two passes (sum of squares, scale), so x is read once; all are asked for before the first is
// stored.  It has one piece; four without delta, where there is half as much to wait for, and of
// rows wider than the largest CTA.  So how a row is summed depends on C and on delta alone.
// Numerics: the sum x + delta is rounded to bf16 first (it is the residual stream that the next
// layer reads), then squared and summed in float32.
#include "kernels/rmsnorm.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kThreadsMax = 512;
constexpr int kPiecesMax = 4; // of 16 bytes, a thread: C up to 512 * 4 * 8 = 16384

__device__ __forceinline__ float
block_sum(float x)
{
    __shared__ float s_part[32];
    const int lane = threadIdx.x & 31;

    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    if (lane == 0) {
        s_part[threadIdx.x / 32] = x;
    }
    __syncthreads();
    x = lane < (int)(blockDim.x + 31) / 32 ? s_part[lane] : 0.0f;
    for (int i = 16; i > 0; i /= 2) {
        x += __shfl_xor_sync(~0u, x, i);
    }
    return x;
}

__device__ __forceinline__ uint32_t
add(uint32_t x, uint32_t delta)
{
    return pack_bf16(bf16_lo(x) + bf16_lo(delta), bf16_hi(x) + bf16_hi(delta));
}

__device__ __forceinline__ float
square(uint32_t x)
{
    return bf16_lo(x) * bf16_lo(x) + bf16_hi(x) * bf16_hi(x);
}

__device__ __forceinline__ uint32_t
scale(uint32_t x, uint32_t weight, float factor)
{
    return pack_bf16(bf16_lo(x) * factor * bf16_lo(weight), bf16_hi(x) * factor * bf16_hi(weight));
}

template <bool kHasDelta, int kPieces>
__global__ __launch_bounds__(kThreadsMax) void rmsnorm_kernel(
    const __grid_constant__ rmsnorm_args args)
{
    const uint32_t n = args.C / 8;
    const size_t row = (size_t)blockIdx.x * n;
    uint4 *x = (uint4 *)args.x + row;
    const uint4 *delta = (const uint4 *)args.delta + row;
    const uint4 *weight = (const uint4 *)args.weight;
    uint4 *out = (uint4 *)args.out + row;
    uint4 r_x[kPieces], r_delta[kPieces], r_w[kPieces];
    float sum = 0.0f;

    let_next_start();
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        const uint32_t i = threadIdx.x + k * blockDim.x;

        if (i < n) {
            r_w[k] = __ldg(weight + i);
        }
    }
    wait_for_previous();
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        const uint32_t i = threadIdx.x + k * blockDim.x;

        if (i < n) {
            r_x[k] = x[i];
            if (kHasDelta) {
                r_delta[k] = delta[i];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        const uint32_t i = threadIdx.x + k * blockDim.x;
        uint4 &p = r_x[k];

        if (i < n) {
            if (kHasDelta) {
                const uint4 d = r_delta[k];

                p = make_uint4(add(p.x, d.x), add(p.y, d.y), add(p.z, d.z), add(p.w, d.w));
                x[i] = p;
            }
            sum += square(p.x) + square(p.y) + square(p.z) + square(p.w);
        }
    }
    const float factor = rsqrtf(block_sum(sum) / args.C + args.eps);

#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        const uint32_t i = threadIdx.x + k * blockDim.x;
        const uint4 w = r_w[k], p = r_x[k];

        if (i < n) {
            out[i] = make_uint4(scale(p.x, w.x, factor), scale(p.y, w.y, factor),
                                scale(p.z, w.z, factor), scale(p.w, w.w, factor));
        }
    }
}

template <bool kHasDelta, int kPieces>
enum status
launch(const rmsnorm_args &args, cudaStream_t stream)
{
    const uint32_t each = (args.C / 8 + kPieces - 1) / kPieces;

    return launch_early(rmsnorm_kernel<kHasDelta, kPieces>, dim3(args.T), (each + 31) / 32 * 32, 0,
                        stream, args);
}

} // namespace

extern "C" enum status
rmsnorm_cuda(struct rmsnorm_args args, void *stream)
{
    if (args.C == 0 || args.C % 8 != 0 || args.C > 8u * kThreadsMax * kPiecesMax) {
        return ERR(ST_INVALID, "rmsnorm: width %u, must be a multiple of 8 up to %d", args.C,
                   8 * kThreadsMax * kPiecesMax);
    }
    if (args.T == 0) {
        return ST_OK;
    }
    if (args.delta == NULL) {
        return launch<false, kPiecesMax>(args, (cudaStream_t)stream);
    }
    return args.C <= 8u * kThreadsMax ? launch<true, 1>(args, (cudaStream_t)stream)
                                      : launch<true, kPiecesMax>(args, (cudaStream_t)stream);
}
