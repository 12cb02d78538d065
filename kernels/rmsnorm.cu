/* SPDX-License-Identifier: Apache-2.0 */
// rmsnorm on a device: residual add and norm in one pass.
//
// Bound by bytes: x read and written, delta read, out written: 8 C bytes a row (6 without delta).
// Split: one CTA a row, without delta two; each thread keeps its 16-byte pieces of the row in
// registers between the two passes (sum of squares, scale), so x is read once.  Without delta there
// is half as much to wait for, so a thread takes four times as many pieces.  How a row is summed
// depends on C and on delta alone, never on T.
// Numerics: the sum x + delta is rounded to bf16 first (it is the residual stream that the next
// layer reads), then squared and summed in float32.
#include "kernels/rmsnorm.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kThreadsMax = 512;
constexpr int kPieces = 4; // 16-byte pieces a thread: C up to 512 * 4 * 8 = 16384

template <int kRows>
__device__ __forceinline__ void
block_sums(float (&x)[kRows])
{
    __shared__ float s_part[kRows][32];
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;

#pragma unroll
    for (int r = 0; r < kRows; r++) {
        for (int i = 16; i > 0; i /= 2) {
            x[r] += __shfl_xor_sync(~0u, x[r], i);
        }
        if (lane == 0) {
            s_part[r][warp] = x[r];
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        x[r] = lane < (int)(blockDim.x + 31) / 32 ? s_part[r][lane] : 0.0f;
        for (int i = 16; i > 0; i /= 2) {
            x[r] += __shfl_xor_sync(~0u, x[r], i);
        }
    }
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

template <bool kHasDelta, int kRows>
__global__ __launch_bounds__(kThreadsMax) void rmsnorm_kernel(
    const __grid_constant__ rmsnorm_args args)
{
    const uint32_t n = args.C / 8;
    const uint32_t row = blockIdx.x * kRows;
    uint4 *x = (uint4 *)args.x + (size_t)row * n;
    const uint4 *delta = (const uint4 *)args.delta + (size_t)row * n;
    const uint4 *weight = (const uint4 *)args.weight;
    uint4 *out = (uint4 *)args.out + (size_t)row * n;
    uint4 r_x[kRows][kPieces];
    uint4 r_w[kPieces];
    float sum[kRows] = {};

    let_next_start();
#pragma unroll
    for (int k = 0; k < kPieces; k++) {
        uint32_t i = threadIdx.x + k * blockDim.x;
        if (i < n) {
            r_w[k] = __ldg(weight + i);
        }
    }
    wait_for_previous();
    if (!kHasDelta) { // all at once: below, each waits for what it adds
#pragma unroll
        for (int j = 0; j < kRows * kPieces; j++) {
            const uint32_t i = threadIdx.x + j % kPieces * blockDim.x;

            if (i < n && row + j / kPieces < args.T) {
                r_x[j / kPieces][j % kPieces] = x[j / kPieces * n + i];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < kRows * kPieces; j++) {
        const int r = j / kPieces;
        const uint32_t i = threadIdx.x + j % kPieces * blockDim.x;
        uint4 &p = r_x[r][j % kPieces];

        if (i < n && row + r < args.T) {
            uint4 d = kHasDelta ? delta[r * n + i] : make_uint4(0, 0, 0, 0);
            p = kHasDelta ? x[r * n + i] : p;
            sum[r] += add_and_square(p.x, d.x) + add_and_square(p.y, d.y) + add_and_square(p.z, d.z)
                      + add_and_square(p.w, d.w);
            if (kHasDelta) {
                x[r * n + i] = p;
            }
        }
    }
    block_sums(sum);
#pragma unroll
    for (int r = 0; r < kRows; r++) {
        const float factor = rsqrtf(sum[r] / args.C + args.eps);

#pragma unroll
        for (int k = 0; k < kPieces; k++) {
            const uint32_t i = threadIdx.x + k * blockDim.x;
            const uint4 w = r_w[k], p = r_x[r][k];

            if (i < n && row + r < args.T) {
                out[r * n + i] = make_uint4(scale(p.x, w.x, factor), scale(p.y, w.y, factor),
                                            scale(p.z, w.z, factor), scale(p.w, w.w, factor));
            }
        }
    }
}

template <bool kHasDelta, int kRows>
enum status
launch(const rmsnorm_args &args, cudaStream_t stream)
{
    const uint32_t each = kHasDelta ? 1 : kPieces;
    const uint32_t threads = ((args.C / 8 + each - 1) / each + 31) / 32 * 32;

    return launch_early(rmsnorm_kernel<kHasDelta, kRows>, dim3((args.T + kRows - 1) / kRows),
                        threads > kThreadsMax ? kThreadsMax : threads, 0, stream, args);
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
    return args.delta != NULL ? launch<true, 1>(args, (cudaStream_t)stream)
                              : launch<false, 2>(args, (cudaStream_t)stream);
}
