/* SPDX-License-Identifier: Apache-2.0 */
// gemm_few - y[M,N] = x[M,K] w[N,K]^T for one or two rows on sm_90, where a product is nothing but
// a stream of weights.
//
// Bound by: weight bytes, 2 N K.
// Split: a tile is 8 rows of weights; CTA i of one a multiprocessor takes tiles i, i + CTAs, ...  A
//   few producer warps copy them, a piece of K at a time, into a ring of about 200 KB; 8 consumer
//   warps share the piece's k among them and add up by mma.sync, weights as the columns of B: a
//   step of 16 k and 8 weight rows costs one instruction whatever M is.  A tile's eight sums meet
//   in shared memory, in the order of the warps.
// Launch gaps: weights depend on no kernel, so the ring fills before the kernel ahead has ended
//   (launch.cuh).  It is the size of it that bridges the gap: a multiprocessor has no room for the
//   rings of two products, so a CTA's copies begin when one of the product before is done, and
//   200 KB last for 6 us at the read rate, which is longer than norm, activation and launch take.
// Order of k: a thread takes 16 bytes, 8 weights, of a row as two steps' worth of B, and of x
//   likewise: a permutation of k that both share.  Rows of both lie 64 bytes off a multiple of 128,
//   so no two of a quarter-warp meet on a bank.
// Numerics: bf16 in, float32 sums; a row's bits do not depend on M or on the rows beside it.
// Predicted, measured, dropped: kernels/README.md.
#include "kernels/gemm_few.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/sm90.cuh"

namespace {

constexpr int kConsumers = 8; // warps
constexpr int kProducers = 4; // warps that copy in turn: 8 copies of a warp are one after the other
constexpr int kThreads = (kConsumers + kProducers) * 32;
constexpr uint32_t kTileRows = 8; // of weights
constexpr uint32_t kGroup = 32;   // k that a warp takes at once
constexpr uint32_t kPad = 64;     // bytes between rows in shared memory
constexpr uint32_t kPiece = 1024; // k of a stage; longer ones are slower
constexpr uint32_t kPitch = kPiece * 2 + kPad;
constexpr uint32_t kStageBytes = kTileRows * kPitch;
constexpr uint32_t kStagesMax = 13;
constexpr uint32_t kStagesMin = 5;
// What a multiprocessor has, less a place for the small kernels between two products.
constexpr uint32_t kSharedMax = 217 * 1024;
constexpr uint32_t kRowsMax = 2; // from 4 on cuBLASLt is no slower; the kernel can do 8

struct FewArgs {
    const uint4 *x;
    const char *w;
    void *y;
    uint32_t M, N, K;
    uint32_t x_pitch; // bytes of a row of x in shared memory
    uint32_t pieces;  // of K
    uint32_t stages;
    bool is_y_f32;
};

// Shared memory: ring, x, sums [2][warp][M][8 rows], barriers.
__host__ __device__ inline uint32_t
sums_at(const FewArgs &args)
{
    return args.stages * kStageBytes + args.M * args.x_pitch;
}

__host__ __device__ inline uint32_t
barriers_at(const FewArgs &args)
{
    return sums_at(args) + 2 * kConsumers * args.M * kTileRows * (uint32_t)sizeof(float);
}

__host__ __device__ inline uint32_t
shared_bytes(const FewArgs &args)
{
    return barriers_at(args) + 2 * args.stages * 8;
}

struct Few {
    const FewArgs &args;
    uint8_t *const base;
    const uint32_t ring;
    const int warp, lane;
    uint32_t stage, phase;

    __device__ __forceinline__ Few(const FewArgs &a, uint8_t *shared)
        : args(a), base(shared), ring(shared_address(shared)), warp(threadIdx.x >> 5),
          lane(threadIdx.x & 31), stage(0), phase(0)
    {}

    __device__ __forceinline__ uint32_t full() const
    {
        return ring + barriers_at(args) + stage * 8;
    }
    __device__ __forceinline__ uint32_t empty() const
    {
        return full() + args.stages * 8;
    }
    __device__ __forceinline__ uint32_t stage_at() const
    {
        return ring + stage * kStageBytes;
    }
    __device__ __forceinline__ uint32_t x_at() const
    {
        return args.stages * kStageBytes;
    }
    __device__ __forceinline__ void step()
    {
        if (++stage == args.stages) {
            stage = 0;
            phase ^= 1;
        }
    }

    __device__ __forceinline__ void init() const
    {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < args.stages; i++) {
                mbarrier_init(ring + barriers_at(args) + i * 8, 1);
                mbarrier_init(ring + barriers_at(args) + (args.stages + i) * 8,
                              kConsumers * kWarpArrivals);
            }
            mbarrier_init_fence();
        }
        __syncthreads();
    }

    __device__ __forceinline__ void copy(const char *from, uint32_t bytes, uint64_t policy) const
    {
        if (lane == 0) {
            mbarrier_wait(empty(), phase ^ 1);
            mbarrier_arrive_expect(full(), bytes * kTileRows);
        }
        __syncwarp();
        if (lane < (int)kTileRows) {
            bulk_load(stage_at() + lane * kPitch, from, bytes, full(), policy);
        }
    }

    // A producer warp, every fourth piece: lane i copies row i of a tile.
    __device__ __forceinline__ void copy_all()
    {
        const uint64_t policy = l2_evict_first();
        const size_t row_bytes = (size_t)args.K * 2;
        uint32_t turn = warp - kConsumers;

        for (uint32_t tile = blockIdx.x; tile < args.N / kTileRows; tile += gridDim.x) {
            const char *from = args.w + (tile * kTileRows + (lane & 7)) * row_bytes;

            for (uint32_t k = 0; k < args.K; k += kPiece) {
                if (turn == 0) {
                    copy(from + k * 2, min(args.K - k, kPiece) * 2, policy);
                }
                turn = turn == 0 ? kProducers - 1 : turn - 1;
                step();
            }
        }
        wait_for_previous();
    }

    __device__ __forceinline__ void load_x() const
    {
        uint8_t *to = base + x_at();
        const uint32_t chunks = args.K / 8;

        for (uint32_t m = 0; m < args.M; m++) {
            for (uint32_t i = threadIdx.x; i < chunks; i += kConsumers * 32) {
                *(uint4 *)(to + m * args.x_pitch + i * 16) = __ldcg(args.x + m * chunks + i);
            }
        }
        named_barrier(1, kConsumers * 32);
    }

    // This warp's share of a piece.  All its loads come first, and then its stage is free: a stage
    // is one chain of latencies, and the next one waits behind it.
    __device__ __forceinline__ void multiply(uint32_t k, float (&sum)[2][4]) const
    {
        constexpr int kTogether = kPiece / kGroup / kConsumers;
        const uint32_t at = (warp * kGroup + (lane & 3) * 8) * 2;
        const uint8_t *w_row = base + stage * kStageBytes + (lane >> 2) * kPitch + at;
        const uint8_t *x_row = base + x_at() + (lane >> 2) * args.x_pitch + k * 2 + at;
        const bool is_row = (uint32_t)(lane >> 2) < args.M;
        const uint32_t left = args.K - k;
        uint4 w[kTogether], x[kTogether];

#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const uint32_t group = i * kConsumers + warp;
            const bool is_k = group * kGroup < left;

            w[i] = x[i] = make_uint4(0, 0, 0, 0);
            if (is_k) {
                w[i] = *(const uint4 *)(w_row + i * kConsumers * kGroup * 2);
            }
            if (is_k && is_row) {
                x[i] = *(const uint4 *)(x_row + i * kConsumers * kGroup * 2);
            }
        }
        warp_arrive(empty());
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const uint32_t a[4] = {x[i].x, 0, x[i].y, 0};
            const uint32_t b[4] = {x[i].z, 0, x[i].w, 0};

            mma_m16n8k16(sum[0], a, w[i].x, w[i].y);
            mma_m16n8k16(sum[1], b, w[i].z, w[i].w);
        }
    }

    // The warps' sums of a tile; one of the warps adds them up and writes the tile's part of y.
    __device__ __forceinline__ void finish(uint32_t tile, uint32_t turn, const float (&sum)[2][4])
    {
        float *sums =
            (float *)(base + sums_at(args)) + (turn & 1) * kConsumers * args.M * kTileRows;
        const uint32_t count = args.M * kTileRows;

        if ((uint32_t)(lane >> 2) < args.M) {
            float *to = sums + warp * count + (lane >> 2) * kTileRows + (lane & 3) * 2;
            *(float2 *)to = make_float2(sum[0][0] + sum[1][0], sum[0][1] + sum[1][1]);
        }
        named_barrier(1, kConsumers * 32); // what the turn before the last left has been read, too
        if (warp != (int)(turn % kConsumers)) {
            return;
        }
        for (uint32_t i = lane; i < count; i += 32) {
            const size_t at = (size_t)(i / kTileRows) * args.N + tile * kTileRows + i % kTileRows;
            float total = 0.0f;

#pragma unroll
            for (int w = 0; w < kConsumers; w++) {
                total += sums[w * count + i];
            }
            if (args.is_y_f32) {
                ((float *)args.y)[at] = total;
            } else {
                ((uint16_t *)args.y)[at] = (uint16_t)pack_bf16(total, 0.0f);
            }
        }
    }

    __device__ __forceinline__ void multiply_all()
    {
        uint32_t turn = 0;

        wait_for_previous();
        load_x();
        for (uint32_t tile = blockIdx.x; tile < args.N / kTileRows; tile += gridDim.x, turn++) {
            float sum[2][4] = {};

            for (uint32_t k = 0; k < args.K; k += kPiece) {
                mbarrier_wait(full(), phase);
                multiply(k, sum);
                step();
            }
            finish(tile, turn, sum);
        }
    }
};

__global__ void __launch_bounds__(kThreads, 1) few_kernel(const __grid_constant__ FewArgs args)
{
#if KERNEL_HAS_SM90
    DYNAMIC_SHARED(base);
    Few few(args, base);

    few.init();
    let_next_start();
    if (few.warp >= kConsumers) {
        few.copy_all();
    } else {
        few.multiply_all();
    }
#endif
}

// The arguments, with as many stages as there is room for; `stages` 0: not enough.
FewArgs
arguments(const gemm_args &args)
{
    FewArgs few = {};

    few.x = (const uint4 *)args.x;
    few.w = (const char *)args.w;
    few.y = args.y;
    few.M = args.M;
    few.N = args.N;
    few.K = args.K;
    few.x_pitch = args.K * 2 + (args.K % 64 == 0 ? kPad : 0);
    few.is_y_f32 = args.is_y_f32 != 0;
    for (few.stages = kStagesMax; few.stages >= kStagesMin; few.stages--) {
        if (shared_bytes(few) <= kSharedMax) {
            return few;
        }
    }
    few.stages = 0;
    return few;
}

} // namespace

extern "C" bool
gemm_few_serves(struct gemm_args args)
{
    return args.M <= kRowsMax && args.N % kTileRows == 0 && args.K % kGroup == 0
           && arguments(args).stages > 0;
}

extern "C" enum status
gemm_few_run(struct gemm_args args, uint32_t sm_count, void *stream)
{
    const FewArgs few = arguments(args);
    const uint32_t tiles = args.N / kTileRows;

    CU_TRY(cudaFuncSetAttribute(few_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes(few)));
    CU_TRY(cudaFuncSetAttribute(few_kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared));
    return launch_early(few_kernel, dim3(tiles < sm_count ? tiles : sm_count), kThreads,
                        shared_bytes(few), (cudaStream_t)stream, few);
}
