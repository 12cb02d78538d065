/* SPDX-License-Identifier: Apache-2.0 */
// decode_rows64 - the consumers of lazy_decode for up to 64 or 128 packed rows (documents that many
// requests share): wgmma.
//
// A warpgroup holds 64 rows of Q in registers as A fragments and takes all 64 keys of a tile: its
// rows belong to no other warp, so partials are written straight from registers.  kGroups = 2: two
// warpgroups, 128 rows, read the same ring.  One warpgroup: two CTAs a multiprocessor, whose
// softmax and products overlap; two: one CTA with the shared memory of both.
// No branch may surround registers that wgmma reads or writes, or ptxas serialises it (C7520): the
// rescale is unconditional and the stores of partials are predicated.
#ifndef KERNELS_DEVICE_DECODE_ROWS64_CUH
#define KERNELS_DEVICE_DECODE_ROWS64_CUH

#include "kernels/device/decode_ring.cuh"

namespace {

template <int kGroups>
struct Rows64Shape {
    static constexpr int kConsumers = 4 * kGroups; // warps
    static constexpr int kQueryWarps = kGroups == 1 ? 1 : 3;
    static constexpr int kThreads = (kConsumers + 1 + kQueryWarps) * 32;
    static constexpr int kCtas = kGroups == 1 ? 2 : 1; // a multiprocessor
};

template <int D, int kGroups>
using Rows64Shared = DecodeShared<D, 384 / D * kGroups, 64 * kGroups, 1, 16>;

__device__ __forceinline__ void
store_if(bool is_row, float *to, float a, float b)
{
#ifdef __CUDA_ARCH__
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.v2.f32 [%1], {%2,%3};\n}"
                 :
                 : "r"((uint32_t)is_row), "l"(to), "f"(a), "f"(b)
                 : "memory");
#else
    if (is_row) {
        to[0] = a;
        to[1] = b;
    }
#endif
}

template <int D, int kGroups>
struct Rows64 {
    using Shape = Rows64Shape<kGroups>;
    using Shared = Rows64Shared<D, kGroups>;
    static constexpr uint32_t kUnit = Shared::kUnitBytes;

    const DecodeArgs &args;
    const Shared &shared;
    const int warp, lane;
    uint32_t q[D / 16][4];
    uint32_t p[4][4];
    float s[32];
    float o[D / 2];
    float m[2], l[2]; // of rows lane/4 and lane/4 + 8 of the warp's 16; m in raw score units

    __device__ __forceinline__ Rows64(const DecodeArgs &a, const Shared &s)
        : args(a), shared(s), warp(threadIdx.x >> 5), lane(threadIdx.x & 31)
    {
        reset();
        // Not needed: the first tile loads them.  But without a value on entry ptxas 13.0 gave
        // these registers to P in the loop (D = 64), and every tile but a document's first was
        // wrong.
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            q[k][0] = q[k][1] = q[k][2] = q[k][3] = 0;
        }
    }

    __device__ __forceinline__ void reset()
    {
        m[0] = m[1] = kNoMaximum;
        l[0] = l[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            o[i] = 0.0f;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            p[k][0] = p[k][1] = p[k][2] = p[k][3] = 0;
        }
    }

    __device__ __forceinline__ void load_q()
    {
        const uint32_t row8 = lane & 7;
        const uint32_t at =
            shared.ring + Shared::kQ + warp * 2 * kUnit + ((lane >> 3) & 1) * kUnit + row8 * 128;

#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            ldmatrix_x4(q[k], at + (k >> 2) * 1024 + ((((k & 3) * 2 + (lane >> 4)) ^ row8) << 4));
        }
    }

    // V rows behind a document's end may hold anything; probability 0 times NaN is NaN.  By all
    // consumers, since all read them.
    __device__ __forceinline__ void clear_values(int stage, int valid)
    {
        uint4 *v = (uint4 *)(shared.base + stage * Shared::kStageBytes + Shared::kPartBytes);

        for (int i = threadIdx.x; i < DECODE_TILE * D / 8; i += Shape::kConsumers * 32) {
            if (i / D * 8 + i % 64 / 8 >= valid) {
                v[i] = make_uint4(0, 0, 0, 0);
            }
        }
        fence_proxy_async();
        named_barrier(1, Shape::kConsumers * 32);
    }

    // Issues S = Q K^T of a tile.
    __device__ __forceinline__ void issue_scores(int stage)
    {
        const uint32_t tile = shared.ring + stage * Shared::kStageBytes;

#pragma unroll
        for (int k = 0; k < D / 16; k++) {
            wgmma_rs<0>(s, q[k], wgmma_descriptor(tile + (k >> 2) * 1024 + (k & 3) * 32, 16, kUnit),
                        k > 0);
        }
    }

    // Issues O += P V of a tile.
    __device__ __forceinline__ void issue_output(int stage)
    {
        const uint32_t tile = shared.ring + stage * Shared::kStageBytes + Shared::kPartBytes;

#pragma unroll
        for (int k = 0; k < 4; k++) { // 16 keys each
            wgmma_rs<1>(o, p[k], wgmma_descriptor(tile + k * 2 * kUnit, 1024, kUnit), 1);
        }
    }

    // S to P, of `valid` > 0 keys; O and the sums to the new maxima.
    __device__ __forceinline__ void soften(int valid)
    {
        if (valid < DECODE_TILE) {
#pragma unroll
            for (int i = 0; i < 32; i++) {
                int key = i / 4 * 8 + (lane & 3) * 2 + (i & 1);
                s[i] = key < valid ? s[i] : -INFINITY;
            }
        }
        float high[2] = {m[0], m[1]};
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            high[0] = fmaxf(high[0], fmaxf(s[i], s[i + 1]));
            high[1] = fmaxf(high[1], fmaxf(s[i + 2], s[i + 3]));
        }
        high[0] = quad_max(high[0]);
        high[1] = quad_max(high[1]);
        const float f0 = exp2_approx((m[0] - high[0]) * args.scale_log2);
        const float f1 = exp2_approx((m[1] - high[1]) * args.scale_log2);
        l[0] *= f0;
        l[1] *= f1;
        m[0] = high[0];
        m[1] = high[1];
#pragma unroll
        for (int i = 0; i < D / 2; i += 4) {
            o[i] *= f0;
            o[i + 1] *= f0;
            o[i + 2] *= f1;
            o[i + 3] *= f1;
        }
        const float shift0 = -high[0] * args.scale_log2;
        const float shift1 = -high[1] * args.scale_log2;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float a0 = exp2_approx(fmaf(s[i * 4], args.scale_log2, shift0));
            float a1 = exp2_approx(fmaf(s[i * 4 + 1], args.scale_log2, shift0));
            float b0 = exp2_approx(fmaf(s[i * 4 + 2], args.scale_log2, shift1));
            float b1 = exp2_approx(fmaf(s[i * 4 + 3], args.scale_log2, shift1));

            l[0] += a0 + a1;
            l[1] += b0 + b1;
            p[i / 2][i % 2 * 2] = pack_bf16(a0, a1);
            p[i / 2][i % 2 * 2 + 1] = pack_bf16(b0, b1);
        }
    }

    // Two warpgroups take turns at the tensor cores: while one multiplies, the other softens.
    __device__ __forceinline__ void take_turn() const
    {
        if (kGroups == 2) {
            named_barrier(2 + warp / 4, Shape::kConsumers * 32);
        }
    }
    __device__ __forceinline__ void give_turn() const
    {
        if (kGroups == 2) {
            named_barrier_arrive(3 - warp / 4, Shape::kConsumers * 32);
        }
    }

    // Straight from registers; `slot` of the rows' sharers comes by global loads, L2 hits.
    __device__ __forceinline__ void write_partials(uint32_t flush, uint32_t n_sharers)
    {
        const uint32_t n_rows = n_sharers * args.G;

        l[0] = quad_sum(l[0]);
        l[1] = quad_sum(l[1]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t row = warp * 16 + h * 8 + (lane >> 2);
            const bool is_row = row < n_rows;
            const uint32_t sharer = is_row ? row / args.G : 0;
            const uint32_t slot = __ldg((const uint32_t *)(args.flushes + flush + sharer) + 1);
            const size_t at = (size_t)slot * args.G + (is_row ? row % args.G : 0);
            float *to = args.o + at * D + (lane & 3) * 2;

#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                store_if(is_row, to + i * 8, o[i * 4 + h * 2], o[i * 4 + h * 2 + 1]);
            }
            store_if(is_row && (lane & 3) == 0, (float *)(args.ml + at), m[h] * args.scale_log2,
                     l[h]);
        }
    }

    // One tile.
    __device__ __forceinline__ void attend(int stage, int valid)
    {
        wgmma_fence();
        issue_scores(stage);
        wgmma_commit();
        wgmma_wait<0>();
        soften(valid);
        finish_products(stage);
    }

    __device__ __forceinline__ void finish_products(int stage)
    {
        wgmma_fence();
        issue_output(stage);
        wgmma_commit();
        wgmma_wait<0>();
    }

    // One tile's scores and softmax, and P V of the tile `before` (-1: none; then P is 0): a
    // warpgroup's products are one run and its softmax another, while the other one multiplies.
    __device__ __forceinline__ void attend_in_turn(int stage, int before, int valid)
    {
        take_turn();
        wgmma_fence();
        issue_scores(stage);
        issue_output(before >= 0 ? before : stage);
        wgmma_commit();
        give_turn();
        wgmma_wait<0>();
        if (before >= 0) {
            warp_arrive(shared.empty(before));
        }
        soften(valid);
    }

    __device__ __forceinline__ void finish_output(int before)
    {
        finish_products(before);
        warp_arrive(shared.empty(before));
    }

    __device__ __forceinline__ void work()
    {
        int stage = 0;
        int before = -1; // stage of the tile whose P V is due
        uint32_t phase = 0, q_phase = 0;

        rotate_first<D>(args, shared, warp, Shape::kConsumers);
        if (warp >= 4) {
            give_turn(); // the first is the first warpgroup's
        }
        for (;;) {
            mbarrier_wait(shared.full(stage), phase);
            const uint4 info = *shared.info(stage); // word, kv head, flush, n_sharers

            if ((info.x & kExit) != 0) {
                break;
            }
            if ((info.x & kNewDocument) != 0) {
                mbarrier_wait(shared.q_full(0), q_phase);
                q_phase ^= 1;
                load_q();
                warp_arrive(shared.q_empty(0));
            }
            const int valid = (int)(info.x & kTokensMask);
            if (valid < DECODE_TILE) {
                clear_values(stage, valid);
            }
            if (kGroups == 2) {
                attend_in_turn(stage, before, valid);
                before = stage;
            } else {
                attend(stage, valid);
                warp_arrive(shared.empty(stage));
            }
            if (++stage == Shared::stages) {
                stage = 0;
                phase ^= 1;
            }
            if ((info.x & kFlush) != 0) {
                if (kGroups == 2) {
                    finish_output(before);
                    before = -1;
                }
                write_partials(info.z, info.w);
                reset();
            }
        }
    }
};

// Two warpgroups in one CTA: the other four warps have registers to give.
template <int kGroups>
__device__ __forceinline__ void
give_registers()
{
    if constexpr (kGroups == 2) {
        registers_give<136>();
    }
}

template <int kGroups>
__device__ __forceinline__ void
take_registers()
{
    if constexpr (kGroups == 2) {
        registers_take<184>();
    }
}

template <int D, int kGroups>
__global__ void __launch_bounds__(Rows64Shape<kGroups>::kThreads, Rows64Shape<kGroups>::kCtas)
    rows64_kernel(const __grid_constant__ DecodeArgs args)
{
#if KERNEL_HAS_SM90
    using Shape = Rows64Shape<kGroups>;
    DYNAMIC_SHARED(base);
    const Rows64Shared<D, kGroups> shared(base);
    const int warp = threadIdx.x >> 5;

    shared.init(Shape::kConsumers, Shape::kQueryWarps);
    if (!args.leads) {
        let_next_start();
    }
    if (warp >= Shape::kConsumers) {
        give_registers<kGroups>();
    }
    if (warp == Shape::kConsumers) {
        Producer<Rows64Shared<D, kGroups>> producer(args, shared);
        producer.work();
    } else if (warp > Shape::kConsumers) {
        rotate_queries<D>(args, shared, warp - Shape::kConsumers - 1, Shape::kQueryWarps, true);
    } else {
        take_registers<kGroups>();
        Rows64<D, kGroups> rows(args, shared);
        rows.work();
    }
#endif
}

} // namespace

#endif
