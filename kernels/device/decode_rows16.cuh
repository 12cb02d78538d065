/* SPDX-License-Identifier: Apache-2.0 */
// decode_rows16 - the consumers of lazy_decode for up to 16 packed rows: mma.sync m16n8k16.
//
// Four warps hold the same 16 rows of Q in registers and take 16 of a tile's 64 keys each, with a
// maximum, sum and output of their own; at the end of a cut they are merged through shared memory,
// four rows at a time.  kHalf: no tile has more than 8 rows (one request with up to 8 heads a kv
// head): the lower half of the fragments is zero and costs neither registers nor exps.
// Two CTAs a multiprocessor: 2 * 3 stages of 32 KiB are in flight (D = 128).
#ifndef KERNELS_DEVICE_DECODE_ROWS16_CUH
#define KERNELS_DEVICE_DECODE_ROWS16_CUH

#include "kernels/device/decode_ring.cuh"

namespace {

constexpr int kRows16Consumers = 4; // warps
constexpr int kRows16Threads = (kRows16Consumers + 2) * 32;

// kCtas a multiprocessor.  One alone has the ring of two: it starts when a CTA of the kernel before
// ends, and fills it while that kernel's last ones still work.
// Scratch of the merge: [warp][4 rows][D] floats, then (m, l) of [warp][16 rows], then a mask.
template <int D, int kCtas>
using Rows16Shared =
    DecodeShared<D, 768 / D / kCtas, 16, 2, 16 * D * 4 + kRows16Consumers * 16 * 8 + 16>;

template <int D, bool kHalf, int kCtas>
struct Rows16 {
    using Shared = Rows16Shared<D, kCtas>;
    static constexpr uint32_t kUnit = Shared::kUnitBytes;
    static constexpr int kQWords = kHalf ? 2 : 4; // of an A fragment
    static constexpr int kHalves = kHalf ? 1 : 2; // rows lane/4 and lane/4 + 8

    const DecodeArgs &args;
    const Shared &shared;
    const int warp, lane;
    uint32_t q[D / 16][kQWords];
    float o[D / 8][4];
    float m[2], l[2]; // m in raw score units

    __device__ __forceinline__ Rows16(const DecodeArgs &a, const Shared &s)
        : args(a), shared(s), warp(threadIdx.x >> 5), lane(threadIdx.x & 31)
    {
        reset();
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
#pragma unroll
            for (int j = 0; j < kQWords; j++) {
                q[k][j] = 0;
            }
        }
    }

    __device__ __forceinline__ void reset()
    {
        m[0] = m[1] = kNoMaximum;
        l[0] = l[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
        }
    }

    // The rotated rows of the next document as A fragments.
    __device__ __forceinline__ void load_q(int buffer)
    {
        const uint32_t row8 = lane & 7;
        const uint32_t at = shared.ring + Shared::kQ + buffer * Shared::kRowsBytes + row8 * 128;

        if (kHalf) {
#pragma unroll
            for (int k = 0; k < D / 16; k += 2) { // the fragments of two k-steps at once
                uint32_t r[4];
                ldmatrix_x4(r, at + (k >> 2) * 1024 + ((((k & 3) * 2 + (lane >> 3)) ^ row8) << 4));
                q[k][0] = r[0];
                q[k][1] = r[1];
                q[k + 1][0] = r[2];
                q[k + 1][1] = r[3];
            }
        } else {
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                uint32_t r[4];
                ldmatrix_x4(r, at + ((lane >> 3) & 1) * kUnit + (k >> 2) * 1024
                                   + ((((k & 3) * 2 + (lane >> 4)) ^ row8) << 4));
#pragma unroll
                for (int j = 0; j < kQWords; j++) {
                    q[k][j] = r[j];
                }
            }
        }
    }

    // V rows behind a document's end may hold anything; probability 0 times NaN is NaN.  This
    // warp's
    // 16 keys, of which `valid` are keys.
    __device__ __forceinline__ void clear_values(int stage, int valid)
    {
        uint8_t *v =
            shared.base + stage * Shared::kStageBytes + Shared::kPartBytes + warp * 2 * kUnit;

        for (int i = lane; i < 16 * D / 8; i += 32) { // 16-byte chunks as they lie
            int key = i / (D / 8 * 8) * 8 + i % 64 / 8;
            if (key >= valid) {
                ((uint4 *)v)[i] = make_uint4(0, 0, 0, 0);
            }
        }
        fence_proxy_async(); // the next bulk copy overwrites them
        __syncwarp();
    }

    __device__ __forceinline__ void scores(int stage, float (&s)[2][4])
    {
        const uint32_t row8 = lane & 7;
        const uint32_t at = shared.ring + stage * Shared::kStageBytes + warp * 2 * kUnit
                            + (lane >> 4) * kUnit + row8 * 128;
        const uint32_t swizzle = ((lane >> 3) & 1) ^ row8;
        float part[2][2][4] = {}; // two chains: half the latency

#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            uint32_t b[4];
            const uint32_t a[4] = {q[k][0], kHalf ? 0u : q[k][1],
                                   kHalf ? q[k][1] : q[k][kQWords - 2],
                                   kHalf ? 0u : q[k][kQWords - 1]};

            ldmatrix_x4(b, at + (k >> 2) * 1024 + ((((k & 3) * 2) ^ swizzle) << 4));
            mma_m16n8k16(part[k & 1][0], a, b[0], b[1]);
            mma_m16n8k16(part[k & 1][1], a, b[2], b[3]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[n][j] = part[0][n][j] + part[1][n][j];
            }
        }
    }

    __device__ __forceinline__ void raise_maximum(const float (&s)[2][4])
    {
        float high[2] = {m[0], m[1]};
        bool is_higher = false;

#pragma unroll
        for (int h = 0; h < kHalves; h++) {
            high[h] = fmaxf(high[h], fmaxf(fmaxf(s[0][h * 2], s[0][h * 2 + 1]),
                                           fmaxf(s[1][h * 2], s[1][h * 2 + 1])));
            high[h] = quad_max(high[h]);
            is_higher = is_higher || high[h] != m[h];
        }
        if (__any_sync(~0u, is_higher)) {
#pragma unroll
            for (int h = 0; h < kHalves; h++) {
                // Exactly 1 for a row whose maximum stayed: its neighbours do not matter.
                float f = exp2_approx((m[h] - high[h]) * args.scale_log2);

                l[h] *= f;
#pragma unroll
                for (int i = 0; i < D / 8; i++) {
                    o[i][h * 2] *= f;
                    o[i][h * 2 + 1] *= f;
                }
                m[h] = high[h];
            }
        }
    }

    // This warp's 16 keys of a tile, of which `valid` > 0 are keys.
    __device__ __forceinline__ void attend(int stage, int valid)
    {
        float s[2][4];
        uint32_t p[4] = {0, 0, 0, 0};

        if (valid < 16) {
            clear_values(stage, valid);
        }
        scores(stage, s);
        if (valid < 16) {
#pragma unroll
            for (int n = 0; n < 2; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int key = n * 8 + (lane & 3) * 2 + (j & 1);
                    s[n][j] = key < valid ? s[n][j] : -INFINITY;
                }
            }
        }
        raise_maximum(s);
#pragma unroll
        for (int h = 0; h < kHalves; h++) {
            const float shift = -m[h] * args.scale_log2;
            float x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[j] = exp2_approx(fmaf(s[j >> 1][h * 2 + (j & 1)], args.scale_log2, shift));
            }
            l[h] += (x[0] + x[1]) + (x[2] + x[3]);
            p[h] = pack_bf16(x[0], x[1]);
            p[h + 2] = pack_bf16(x[2], x[3]);
        }
        const uint32_t row8 = lane & 7;
        const uint32_t at = shared.ring + stage * Shared::kStageBytes + Shared::kPartBytes
                            + warp * 2 * kUnit + ((lane >> 3) & 1) * kUnit + row8 * 128;
        const uint32_t swizzle = (lane >> 4) ^ row8;
#pragma unroll
        for (int d = 0; d < D / 8; d += 2) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, at + (d >> 3) * 1024 + (((d & 7) ^ swizzle) << 4));
            mma_m16n8k16(o[d], p, b[0], b[1]);
            mma_m16n8k16(o[d + 1], p, b[2], b[3]);
        }
    }

    // Merges the warps' shares and writes the partials of the cut; `slot` of sharer i in lane i.
    __device__ __forceinline__ void write_partials(uint32_t n_sharers, uint32_t slot)
    {
        float *part = (float *)(shared.base + Shared::kScratchAt);
        float2(*ml)[16] = (float2(*)[16])(part + 16 * D);
        const uint32_t n_rows = n_sharers * args.G;
        const int row8 = lane >> 2;

#pragma unroll
        for (int h = 0; h < kHalves; h++) {
            l[h] = quad_sum(l[h]);
            if ((lane & 3) == 0) {
                ml[warp][row8 + h * 8] = make_float2(m[h] * args.scale_log2, l[h]);
            }
        }
#pragma unroll
        for (int round = 0; round < kHalves * 2; round++) {
            if ((uint32_t)round * 4 >= n_rows) {
                break;
            }
            named_barrier(1, kRows16Consumers * 32); // ml is there, the last round is read
            if ((row8 >> 2) == (round & 1)) {
                const int h = round >> 1;
                const int row = row8 + h * 8;
                float high =
                    fmaxf(fmaxf(ml[0][row].x, ml[1][row].x), fmaxf(ml[2][row].x, ml[3][row].x));
                float f = exp2_approx(ml[warp][row].x - high);
                float *to = part + (warp * 4 + (row8 & 3)) * D;
#pragma unroll
                for (int i = 0; i < D / 8; i++) { // rows on different banks
                    int d = (i * 8 + (lane & 3) * 2) ^ ((row8 & 3) << 3);
                    *(float2 *)(to + d) = make_float2(o[i][h * 2] * f, o[i][h * 2 + 1] * f);
                }
            }
            named_barrier(1, kRows16Consumers * 32);
            const uint32_t row = round * 4 + warp;
            const uint32_t to = __shfl_sync(~0u, slot, row < n_rows ? row / args.G : 0);
            if (row < n_rows) {
                store_row(part, ml, row, (size_t)to * args.G + row % args.G);
            }
        }
    }

    // Sums the four shares of one row of the round.
    __device__ __forceinline__ void store_row(const float *part, const float2 (*ml)[16],
                                              uint32_t row, size_t at)
    {
        constexpr int kDims = D / 32;
        float sum[kDims] = {};

#pragma unroll
        for (int w = 0; w < kRows16Consumers; w++) {
            const float *from = part + (w * 4 + warp) * D + ((lane * kDims) ^ (warp << 3));
#pragma unroll
            for (int d = 0; d < kDims; d++) {
                sum[d] += from[d];
            }
        }
#pragma unroll
        for (int d = 0; d < kDims; d += 2) {
            *(float2 *)(args.o + at * D + lane * kDims + d) = make_float2(sum[d], sum[d + 1]);
        }
        if (lane == 0) {
            float high =
                fmaxf(fmaxf(ml[0][row].x, ml[1][row].x), fmaxf(ml[2][row].x, ml[3][row].x));
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < kRows16Consumers; w++) {
                total += ml[w][row].y * exp2_approx(ml[w][row].x - high);
            }
            args.ml[at] = make_float2(high, total);
        }
    }

    // Counts the cut for each of its requests; joins the rows whose last one it was.
    __device__ __forceinline__ void join_finished(uint32_t flush, uint32_t n_sharers, uint32_t head)
    {
        uint32_t *mask =
            (uint32_t *)(shared.base + Shared::kScratchAt + 16 * D * 4 + kRows16Consumers * 16 * 8);

        named_barrier(1, kRows16Consumers * 32); // the partials are written
        if (warp == 0) {
            bool is_last = false;
            if ((uint32_t)lane < n_sharers) {
                uint4 mine = __ldg((const uint4 *)args.flushes + flush + lane);
                uint32_t *arrived = args.arrived + mine.z; // no other row's slots begin there

                __threadfence();
                is_last = atomicAdd(arrived, 1u) == mine.w - 1;
                if (is_last) {
                    *arrived = 0;
                    __threadfence();
                }
            }
            uint32_t last = __ballot_sync(~0u, is_last);
            if (lane == 0) {
                *mask = last;
            }
        }
        named_barrier(1, kRows16Consumers * 32);
        for (uint32_t left = *mask; left != 0; left &= left - 1) {
            uint4 mine = __ldg((const uint4 *)args.flushes + flush + __ffs(left) - 1);

            for (uint32_t g = warp; g < args.G; g += kRows16Consumers) {
                join_row<D>(args, mine.z, mine.w, g, out_row<D>(args, mine.x, head, g));
            }
        }
    }

    __device__ __forceinline__ void work()
    {
        int stage = 0, buffer = 0;
        uint32_t phase = 0, q_phase = 0;

        if (!args.follows) {
            wait_for_previous(); // before anything is written
        }
        for (;;) {
            mbarrier_wait(shared.full(stage), phase);
            const uint4 info = *shared.info(stage); // word, kv head, flush, n_sharers
            uint32_t slot = 0;

            if ((info.x & kExit) != 0) {
                break;
            }
            if ((info.x & kFlush) != 0 && (uint32_t)lane < info.w) {
                slot = __ldg((const uint32_t *)(args.flushes + info.z + lane) + 1);
            }
            if ((info.x & kNewDocument) != 0) {
                mbarrier_wait(shared.q_full(buffer), q_phase);
                load_q(buffer);
                warp_arrive(shared.q_empty(buffer));
                buffer ^= 1;
                q_phase ^= buffer == 0;
            }
            const int valid = (int)(info.x & kTokensMask) - warp * 16;
            if (valid > 0) {
                attend(stage, valid);
            }
            warp_arrive(shared.empty(stage));
            if (++stage == Shared::stages) {
                stage = 0;
                phase ^= 1;
            }
            if ((info.x & kFlush) != 0) {
                write_partials(info.w, slot);
                if (args.joins) {
                    join_finished(info.z, info.w, info.y);
                } else {
                    named_barrier(1, kRows16Consumers * 32);
                }
                reset();
            }
        }
    }
};

template <int D, bool kHalf, int kCtas>
__global__ void __launch_bounds__(kRows16Threads, kCtas)
    rows16_kernel(const __grid_constant__ DecodeArgs args)
{
#if KERNEL_HAS_SM90
    DYNAMIC_SHARED(base);
    const Rows16Shared<D, kCtas> shared(base);
    const int warp = threadIdx.x >> 5;

    shared.init(kRows16Consumers, 1);
    if (!args.leads) {
        let_next_start();
    }
    if (warp == kRows16Consumers) {
        Producer<Rows16Shared<D, kCtas>> producer(args, shared);
        producer.work();
    } else if (warp > kRows16Consumers) {
        rotate_queries<D>(args, shared, 0, 1, false);
    } else {
        Rows16<D, kHalf, kCtas> rows(args, shared);
        rows.work();
    }
#endif
}

} // namespace

#endif
