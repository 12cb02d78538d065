/* SPDX-License-Identifier: Apache-2.0 */
// gemm for few rows of x: decode steps of a few requests.
//
// Bound by: bytes of w, 2 N K, read once; cuBLASLt reaches 60 to 90% of the read rate on the
// smaller projections, and no kernel of its can start to read weights while the kernel before ends.
// Split: a CTA takes 16 rows of w (outputs) and all of K; its 8 warps share K and add up through
// shared memory.  mma.sync m16n8k16 with w as A and 8 rows of x as B, once or twice: the tensor
// cores make 16 rows as cheap as one.
// Loads: k is permuted the same way in both operands, so that a thread's share of a fragment is 16
// consecutive bytes: w goes from memory to fragments without shared memory, 16 loads in flight a
// thread.  The first of them are issued before the kernel waits for its predecessor (launch.cuh).
// Numerics: float32 sums, in another order than cuBLASLt's.
// Predicted, measured: kernels/README.md.
#include "kernels/gemm_cuda.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kRows = 16;  // of w, a CTA
constexpr int kTokens = 8; // rows of x, a tile
constexpr int kTilesMax = 2;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kChunk = 32; // of K: two k-steps of the tensor core
constexpr int kFlight = 8; // chunks of a thread in flight

// 16 bytes that nobody reads again before they leave L2.
__device__ __forceinline__ uint4
load_weights(const uint4 *from)
{
    return __ldcs(from);
}

// A thread's view of w and x: row lane / 4 (and 8 more) of w, row lane / 4 of x, and of each chunk
// the 8 numbers from (lane % 4) * 8 on.
struct Operands {
    const uint4 *w, *w8, *x;
    uint32_t pitch; // of a row, in 16-byte pieces
    uint32_t M;
};

// Loads w of up to kFlight chunks of [at, end).
__device__ __forceinline__ void
load_chunks(const Operands &from, uint32_t at, uint32_t end, uint4 (&w)[kFlight][2])
{
#pragma unroll
    for (int i = 0; i < kFlight; i++) {
        if (at + i < end) {
            w[i][0] = load_weights(from.w + (at + i) * (kChunk / 8));
            w[i][1] = load_weights(from.w8 + (at + i) * (kChunk / 8));
        }
    }
}

// Adds their products with one tile of x.
__device__ __forceinline__ void
multiply_chunks(const Operands &from, uint32_t tile, uint32_t at, uint32_t end,
                const uint4 (&w)[kFlight][2], float (&sum)[4])
{
    const bool is_token = tile * kTokens + threadIdx.x % 32 / 4 < from.M;
    const uint4 *row = from.x + (size_t)tile * kTokens * from.pitch;
    uint4 x[kFlight];

#pragma unroll
    for (int i = 0; i < kFlight; i++) {
        x[i] = make_uint4(0, 0, 0, 0);
        if (at + i < end && is_token) {
            x[i] = row[(at + i) * (kChunk / 8)];
        }
    }
#pragma unroll
    for (int i = 0; i < kFlight; i++) {
        if (at + i < end) {
            const uint32_t a[4] = {w[i][0].x, w[i][1].x, w[i][0].y, w[i][1].y};
            const uint32_t b[4] = {w[i][0].z, w[i][1].z, w[i][0].w, w[i][1].w};

            mma_m16n8k16(sum, a, x[i].x, x[i].y);
            mma_m16n8k16(sum, b, x[i].z, x[i].w);
        }
    }
}

template <int kTiles>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_small_kernel(const __grid_constant__ gemm_args args)
{
    __shared__ float s_sum[kWarps][kTiles * kTokens][kRows];
    const int warp = threadIdx.x >> 5;
    const int lane = threadIdx.x & 31;
    const uint32_t row = blockIdx.x * kRows + lane / 4;
    const uint32_t pitch = args.K / 8;
    const uint32_t chunks = args.K / kChunk;
    const uint32_t end = chunks * (warp + 1) / kWarps;
    const Operands from = {(const uint4 *)args.w + (size_t)row * pitch + lane % 4,
                           (const uint4 *)args.w + (size_t)(row + 8) * pitch + lane % 4,
                           (const uint4 *)args.x + (size_t)(lane / 4) * pitch + lane % 4, pitch,
                           args.M};
    uint32_t at = chunks * warp / kWarps;
    float sum[kTiles][4] = {};
    uint4 w[kFlight][2];

    let_next_start();
    load_chunks(from, at, end, w);
    wait_for_previous();
    while (at < end) {
#pragma unroll
        for (int t = 0; t < kTiles; t++) {
            multiply_chunks(from, t, at, end, w, sum[t]);
        }
        at += kFlight;
        load_chunks(from, at, end, w);
    }
#pragma unroll
    for (int t = 0; t < kTiles; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s_sum[warp][t * kTokens + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sum[t][i];
        }
    }
    __syncthreads();
    const uint32_t token = threadIdx.x / kRows; // one output a thread: 16 tokens are 256
    const uint32_t out = threadIdx.x % kRows;
    static_assert(kTilesMax * kTokens * kRows == kThreads, "one output a thread");
    if (token < args.M) {
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < kWarps; i++) {
            total += s_sum[i][token][out];
        }
        const size_t to = (size_t)token * args.N + blockIdx.x * kRows + out;
        if (args.is_y_f32) {
            ((float *)args.y)[to] = total;
        } else {
            ((__nv_bfloat16 *)args.y)[to] = __float2bfloat16_rn(total);
        }
    }
}

} // namespace

extern "C" bool
gemm_small_serves(struct gemm_args args)
{
    return args.M <= kTilesMax * kTokens && args.N % kRows == 0 && args.K % kChunk == 0;
}

extern "C" enum status
gemm_small_cuda(struct gemm_args args, void *stream)
{
    return launch_early(args.M <= kTokens ? gemm_small_kernel<1> : gemm_small_kernel<2>,
                        dim3(args.N / kRows), kThreads, 0, (cudaStream_t)stream, args);
}
