/* SPDX-License-Identifier: Apache-2.0 */
// prefill_consume - the two warpgroups of lazy_prefill on sm_90a that compute: 64 packed rows each.
#ifndef KERNELS_DEVICE_PREFILL_CONSUME_CUH
#define KERNELS_DEVICE_PREFILL_CONSUME_CUH

#include "kernels/device/prefill_sm90.cuh"

namespace {

// A thread's sum of P over its 32 keys of a tile, above which the reference of the row is renewed.
// NaN and infinity are above it too.
constexpr float kSumMax = 1048576.0f;
// Subtracted from the score of a row that has no reference yet: P of the first key that the row
// sees is infinite then, and the reference is renewed.
constexpr float kNoReference = -3e38f;
// A reference lies by a factor of 2^64 above the maximum that it was taken from.  P is as exact at
// 2^-64 as at 1, for bf16 and float32 have exponents; but now a row may rise by 2^84 before it is
// refused.  More would be too much where two references meet: their ratio must not vanish while
// what it scales matters (2^126 less 2^64, less 2^20 and 2^17 keys, leaves the 24 bits of a sum).
constexpr float kHeadroom = 64.0f;
// Renewing costs about two plain tiles.  Where it was needed, the warpgroup takes maxima in the
// loop, as the books have it, until that has been of no use three times: in each fourth of the
// tiles to come (a bit each), in each of 16 if a row was refused nevertheless.
constexpr uint32_t kCalm = 0x444;
constexpr uint32_t kSteep = kCalm << 16 | 0xffff;
constexpr float kOfUse = 20.0f; // the reference rose by a factor of 2^20

// Named barriers: the two warpgroups' turns, then one for each alone.
constexpr uint32_t kTurnBarrier = 1;
constexpr uint32_t kAloneBarrier = 3;

// One thread's share: rows r and r + 8 of the warp's 16, every 8th pair of columns.
template <int D>
struct Consumer {
    using At = Places<D>;

    const prefill_sm90_args &args;
    const uint32_t smem;
    const uint32_t group; // warpgroup, 0 or 1
    const uint32_t lane;
    const uint32_t row; // of the tile; and row + 8
    const float scale;  // of the scores, to base 2
    // Descriptors, low words.
    const uint32_t q_low, k_low, v_low;

    float s[kTile / 2];        // scores, then probabilities
    uint32_t p[kTile / 16][4]; // A fragments
    float o[D / 2];
    float m[2];     // the reference that was subtracted from the row's scores (before scaling)
    float shift[2]; // the same, scaled
    float l[2];
    float sum[2];    // of the tile
    float factor[2]; // by which o is to be multiplied

    uint32_t k, k_parity; // stage of the next key tile
    uint32_t n_v, n_q, n_items;
    uint32_t v_keys; // of the tile whose V comes next
    uint4 info;      // of the next key tile
    uint32_t pos[2]; // of the rows of the current item
    uint32_t hot;    // tiles in which maxima are taken, bit 0 the next; the same in all four warps

    __device__ __forceinline__ Consumer(const prefill_sm90_args &a, uint32_t shared,
                                        uint32_t warpgroup)
        : args(a), smem(shared), group(warpgroup), lane(threadIdx.x & 31),
          row(warpgroup * 64 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2)),
          scale(a.desc.scale * kLog2e),
          q_low(wgmma_descriptor_low(shared + At::kQ + warpgroup * (At::kBytes / 2), 16)),
          k_low(wgmma_descriptor_low(shared + At::kK, 16)),
          v_low(wgmma_descriptor_low(shared + At::kV, 1024))
    {
        k = k_parity = n_v = n_q = n_items = v_keys = hot = 0;
    }

    // --- the products ---------------------------------------------------------------------------

    __device__ __forceinline__ void multiply_qk()
    {
        const uint32_t q = q_low + n_q % kStagesQ * (At::kBytes / 16);
        const uint32_t b = k_low + k * (At::kBytes / 16);

        wgmma_fence();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            const uint32_t at = (i >> 2) * 64 + (i & 3) * 2; // 64 dims are 1024 bytes on

            wgmma_ss<0>(s, wgmma_descriptor_of(q + at, At::kUnit),
                        wgmma_descriptor_of(b + at, At::kUnit), i > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void multiply_pv()
    {
        const uint32_t b = v_low + n_v % kStagesV * (At::kBytes / 16);

        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kTile / 16; i++) {
            wgmma_rs<1>(o, p[i], wgmma_descriptor_of(b + i * (At::kUnit / 8), At::kUnit), 1);
        }
        wgmma_commit();
    }

    // S of this warp's rows once more, from Q and K where they still lie.
    __device__ __forceinline__ void multiply_qk_again(uint32_t stage)
    {
        const uint32_t q = smem + At::kQ + n_q % kStagesQ * At::kBytes + group * (At::kBytes / 2)
                           + (threadIdx.x >> 5 & 3) * 2 * At::kUnit + ((lane >> 3) & 1) * At::kUnit
                           + (lane & 7) * 128;
        const uint32_t b =
            smem + At::kK + stage * At::kBytes + (lane >> 4) * At::kUnit + (lane & 7) * 128;

#pragma unroll
        for (int i = 0; i < kTile / 2; i++) {
            s[i] = 0.0f;
        }
#pragma unroll 1
        for (uint32_t i = 0; i < D / 16; i++) {
            const uint32_t half = (i >> 2) * 1024;
            uint32_t a[4];

            ldmatrix_x4(a, q + half + ((((i & 3) * 2 + (lane >> 4)) ^ (lane & 7)) << 4));
#pragma unroll
            for (int j = 0; j < kTile / 16; j++) {
                uint32_t r[4];

                ldmatrix_x4(r, b + j * 2 * At::kUnit + half
                                   + ((((i & 3) * 2 + ((lane >> 3) & 1)) ^ (lane & 7)) << 4));
                mma_m16n8k16(*(float(*)[4])(s + j * 8), a, r[0], r[1]);
                mma_m16n8k16(*(float(*)[4])(s + j * 8 + 4), a, r[2], r[3]);
            }
        }
    }

    // --- stages ---------------------------------------------------------------------------------

    __device__ __forceinline__ void wait_key_tile()
    {
        mbarrier_wait(smem + At::kFullK + k * 8, k_parity);
        info = load_shared_16(smem + At::kInfo + k * 16);
    }

    // If the warp `is_done` with it.
    __device__ __forceinline__ void release(uint32_t bar, bool is_done = true)
    {
        __syncwarp(); // one lane speaks for all
        if (lane < kWarpArrivals && is_done) {
            mbarrier_arrive(bar);
        }
    }

    __device__ __forceinline__ void release_k(uint32_t stage, bool is_done = true)
    {
        release(smem + At::kEmptyK + stage * 8, is_done);
    }

    __device__ __forceinline__ void next_k()
    {
        if (++k == kStagesK) {
            k = 0;
            k_parity ^= 1;
        }
    }

    __device__ __forceinline__ void wait_v()
    {
        mbarrier_wait(smem + At::kFullV + n_v % kStagesV * 8, n_v / kStagesV & 1);
    }

    __device__ __forceinline__ void release_v()
    {
        release(smem + At::kEmptyV + n_v % kStagesV * 8);
        n_v++;
    }

    __device__ __forceinline__ void next_q()
    {
        release(smem + At::kEmptyQ + n_q % kStagesQ * 8);
        n_q++;
        mbarrier_wait(smem + At::kFullQ + n_q % kStagesQ * 8, n_q / kStagesQ & 1);
    }

    // Rows of V behind a document's end may hold anything, and 0 times NaN is NaN.  Both warpgroups
    // write the same zeros.
    __device__ __forceinline__ void clear_tail_of_v()
    {
        const uint32_t v = smem + At::kV + n_v % kStagesV * At::kBytes;

        for (uint32_t i = (threadIdx.x & 127); i < kTile * (D / 8); i += kWarpgroup) {
            // Chunk i of the tile as it lies: units of 8 rows, halves of 64 dims, rows of 128
            // bytes.
            if (i / D * 8 + (i / 8) % 8 >= v_keys) {
                store_shared_16(v + i * 16, make_uint4(0, 0, 0, 0));
            }
        }
        fence_proxy_async();
        named_barrier(kAloneBarrier + group, kWarpgroup);
    }

    // --- softmax --------------------------------------------------------------------------------

    __device__ __forceinline__ uint32_t item_word(uint32_t item, int word) const
    {
        return load_shared_4(smem + At::kItems
                             + (item % kItemSlots * At::kItemWords + (uint32_t)word) * 4);
    }

    __device__ __forceinline__ void open_item()
    {
        const uint32_t begin = item_word(n_items, kRowBegin);
        const uint32_t last = item_word(n_items, kRowEnd) - 1;
        const uint32_t pos_first = item_word(n_items, kPosFirst);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            // Rows past the last compute what the last does; nobody stores it.
            pos[h] = pos_first + token_of(args, min(begin + row + h * 8, last));
            m[h] = -INFINITY;
            l[h] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            o[i] = 0.0f;
        }
    }

    __device__ __forceinline__ void mask(const uint4 &tile)
    {
        if ((tile.x & kMasked) == 0) {
            return;
        }
        int limit[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t sees = pos[h] < tile.z ? 0 : min(pos[h] - tile.z, (uint32_t)kTile) + 1;

            limit[h] = (int)min(sees, tile.y) - (int)(lane & 3) * 2;
        }
#pragma unroll
        for (int j = 0; j < kTile / 8; j++) {
            s[j * 4] = j * 8 < limit[0] ? s[j * 4] : -INFINITY;
            s[j * 4 + 1] = j * 8 + 1 < limit[0] ? s[j * 4 + 1] : -INFINITY;
            s[j * 4 + 2] = j * 8 < limit[1] ? s[j * 4 + 2] : -INFINITY;
            s[j * 4 + 3] = j * 8 + 1 < limit[1] ? s[j * 4 + 3] : -INFINITY;
        }
    }

    // P = 2^(scale (S - m)) in place, and its sums over this thread's keys.
    __device__ __forceinline__ void exponentials()
    {
        float a[2], b[2];

#pragma unroll
        for (int j = 0; j < kTile / 8; j++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = exp2_approx(fmaf(s[j * 4 + h * 2], scale, -shift[h]));
                const float y = exp2_approx(fmaf(s[j * 4 + h * 2 + 1], scale, -shift[h]));

                s[j * 4 + h * 2] = x;
                s[j * 4 + h * 2 + 1] = y;
                a[h] = j == 0 ? x : a[h] + x;
                b[h] = j == 0 ? y : b[h] + y;
            }
        }
        sum[0] = a[0] + b[0];
        sum[1] = a[1] + b[1];
    }

    __device__ __forceinline__ void pack()
    {
#pragma unroll
        for (int j = 0; j < kTile / 8; j++) {
            p[j / 2][j % 2 * 2] = pack_bf16(s[j * 4], s[j * 4 + 1]);
            p[j / 2][j % 2 * 2 + 1] = pack_bf16(s[j * 4 + 2], s[j * 4 + 3]);
        }
    }

    // Takes the maximum of row h and what came before as its reference, if `is_wanted`.  All lanes
    // come along: they exchange maxima.
    __device__ __forceinline__ void renew(int h, bool is_wanted)
    {
        float a = fmaxf(s[h * 2], s[h * 2 + 1]);
        float b = fmaxf(s[h * 2 + 4], s[h * 2 + 5]);

#pragma unroll
        for (int j = 2; j < kTile / 8; j += 2) {
            a = fmaxf(a, fmaxf(s[j * 4 + h * 2], s[j * 4 + h * 2 + 1]));
            b = fmaxf(b, fmaxf(s[j * 4 + h * 2 + 4], s[j * 4 + h * 2 + 5]));
        }
        const float high = fmaxf(m[h], quad_max(fmaxf(a, b)) + __fdividef(kHeadroom, scale));

        factor[h] = 1.0f;
        if (is_wanted) {
            // A row that has seen no key has neither sum nor output to be scaled.
            factor[h] = m[h] == -INFINITY ? 0.0f : exp2_approx(__fmul_rn(m[h] - high, scale));
            m[h] = high;
            shift[h] = high == -INFINITY ? kNoReference : high * scale;
            l[h] *= factor[h];
        }
    }

    __device__ __forceinline__ void scale_output()
    {
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[i * 4] *= factor[0];
            o[i * 4 + 1] *= factor[0];
            o[i * 4 + 2] *= factor[1];
            o[i * 4 + 3] *= factor[1];
        }
    }

    // With the reference so far; false if that will not do for some row of the warp.
    __device__ __forceinline__ bool softmax_as_is()
    {
        exponentials();
        const bool is_over =
            !(fmaxf(sum[0], sum[1]) <= kSumMax) || !(sum[0] + sum[1] <= 2 * kSumMax);

        return !__any_sync(~0u, is_over);
    }

    // What softmax_as_is refused, row by row, so that no row depends on its neighbours: those that
    // are over get a new reference; P of the others stands (it is packed already).
    template <bool kIsPlain>
    __device__ __forceinline__ void softmax_again(const uint4 &tile, uint32_t stage)
    {
        bool is_over[2];

#pragma unroll
        for (int h = 0; h < 2; h++) {
            is_over[h] = quad_any(!(sum[h] <= kSumMax));
            l[h] += is_over[h] ? 0.0f : sum[h];
        }
        multiply_qk_again(stage);
        if (!kIsPlain) {
            mask(tile);
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            renew(h, is_over[h]);
        }
        exponentials();
#pragma unroll
        for (int h = 0; h < 2; h++) {
            l[h] += is_over[h] ? sum[h] : 0.0f;
#pragma unroll
            for (int j = 0; j < kTile / 8; j++) {
                const uint32_t x = pack_bf16(s[j * 4 + h * 2], s[j * 4 + h * 2 + 1]);

                p[j / 2][j % 2 * 2 + h] = is_over[h] ? x : p[j / 2][j % 2 * 2 + h];
            }
        }
        scale_output();
    }

    // --- output ---------------------------------------------------------------------------------

    __device__ __forceinline__ void store_direct(size_t at, int h, bool is_row)
    {
        const float f = l[h] > 0.0f ? 1.0f / l[h] : 0.0f;
        uint4 *to = (uint4 *)args.out + at * (D / 8) + (lane & 3);

        // Four lanes hold the pairs of columns of a row in turn; a transpose among them makes 16
        // bytes each.
#pragma unroll
        for (int g = 0; g < D / 32; g++) {
            uint32_t x[4];

#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int c = (g * 4 + i) * 4 + h * 2;

                x[i] = pack_bf16(o[c] * f, o[c + 1] * f);
            }
            const uint4 v = quad_transpose(x);
            if (is_row) {
                to[g * 4] = v;
            }
        }
    }

    __device__ __forceinline__ void store_partial(size_t at, int h)
    {
        float2 *to = (float2 *)(args.plan.o + at * D) + (lane & 3);

#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            to[j * 4] = make_float2(o[j * 4 + h * 2], o[j * 4 + h * 2 + 1]);
        }
        if ((lane & 3) == 0) {
            ((float2 *)args.plan.ml)[at] = make_float2(m[h] * args.desc.scale, l[h]);
        }
    }

    // Writes the current item's rows and closes it.
    __device__ __forceinline__ void store()
    {
        const uint32_t G = args.plan.group;
        const uint32_t begin = item_word(n_items, kRowBegin);
        const uint32_t end = item_word(n_items, kRowEnd);
        const uint32_t slot = item_word(n_items, kSlot);
        const uint32_t stride = item_word(n_items, kSlotStride);
        const uint32_t row_first = item_word(n_items, kRowFirst);
        const uint32_t head = item_word(n_items, kHead);

#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t r = begin + row + h * 8;
            const uint32_t t = token_of(args, r);
            const size_t q_head = head * G + r - t * G;

            l[h] = quad_sum(l[h]);
            if (slot == PREFILL_DIRECT) {
                store_direct((size_t)(row_first + t) * args.desc.H + q_head, h, r < end);
            } else if (r < end) {
                store_partial((slot + (size_t)t * stride) * args.desc.H + q_head, h);
            }
        }
        n_items++;
    }

    // --- the loop -------------------------------------------------------------------------------

    template <int kShare>
    __device__ __forceinline__ void rotate_first(const Turn &turn) const
    {
        const Rotation<D, 64, kWarpgroup, kShare> rows = {args, group * 64, threadIdx.x & 127};
        float4 turns[4];

        rows.fetch(turn, smem + At::kQ);
        rows.fetch_turns(turn, rows.thread, turns);
        rows.template finish<0>(turn, smem + At::kQ, turns);
    }

    // The first tile of the CTA's list, whose Q the consumers rotate themselves.
    __device__ __forceinline__ void begin(uint32_t start)
    {
        const Turn turn = turn_of(args, start);

        if (args.plan.group % 4 == 0) {
            rotate_first<4>(turn);
        } else {
            rotate_first<1>(turn);
        }
        fence_proxy_async();
        named_barrier(kAloneBarrier + group, kWarpgroup);
        if (group == 0 && lane < kWarpArrivals && (threadIdx.x >> 5 & 3) < kRotatorWarps) {
            mbarrier_arrive(smem + At::kFullQ); // in place of the rotating warps
        }
        mbarrier_wait(smem + At::kFullQ, 0);
        wait_key_tile();
        multiply_qk();
        wgmma_wait<0>();
        open_item();
        mask(info);
        renew(0, true);
        renew(1, true);
        exponentials();
        l[0] = sum[0];
        l[1] = sum[1];
        release_k(k);
        next_k();
        v_keys = info.y;
        pack();
        wait_key_tile();
    }

    // QK of the tile in `info`, PV of the one before; at the end S of the new one is there and PV
    // still runs.
    template <bool kIsPlain>
    __device__ __forceinline__ void multiply()
    {
        named_barrier(kTurnBarrier + group, 2 * kWarpgroup);
        multiply_qk();
        wait_v();
        if (!kIsPlain && v_keys < kTile) {
            clear_tail_of_v();
        }
        multiply_pv();
        named_barrier_arrive(kTurnBarrier + (group ^ 1), 2 * kWarpgroup);
        wgmma_wait<1>();
    }

    // Until P of the new tile is packed.
    __device__ __forceinline__ void finish(uint32_t keys)
    {
        next_k();
        wait_key_tile(); // also keeps ptxas from moving the wait below before the softmax
        wgmma_wait<0>();
        release_v();
        v_keys = keys;
        pack();
    }

    // The warps of a warpgroup have to run the same code, so it is told to all of them that one
    // wants maxima: for the step to come, in a word that this step does not read.  The largest
    // counts, so that who comes last does not matter.
    __device__ __forceinline__ void want_maxima(uint32_t step, bool is_steep)
    {
        if (lane == 0 && !args.plan.is_fixed) {
            max_shared(smem + At::kHot + (group * 2 + step % 2) * 4, (step + 1) * 2 + is_steep);
        }
    }

    __device__ __forceinline__ void hear_who_wants_maxima()
    {
        const uint32_t said = load_shared_4(smem + At::kHot + (group * 2 + n_v % 2) * 4);

        hot >>= 1;
        if (said >> 1 == n_v + 1) {
            hot = (said & 1) != 0 ? kSteep : kCalm;
        }
    }

    // What comes after `finish` for a tile that softmax_as_is refused, and so only some warps do:
    // nothing here is an instruction of the whole warpgroup.
    template <bool kIsPlain>
    __device__ __forceinline__ void redo(const uint4 &tile)
    {
        const uint32_t stage = k == 0 ? kStagesK - 1 : k - 1;

        softmax_again<kIsPlain>(tile, stage);
        release_k(stage);
        want_maxima(n_v, hot != 0);
    }

    // Any tile.
    __device__ __forceinline__ void step()
    {
        const uint4 tile = info;
        const bool is_new = (tile.x & kNewItem) != 0;
        const bool takes_maxima = (hot & 1) != 0;

        if ((tile.x & kNewQ) != 0) {
            next_q();
        }
        multiply<false>();
        hear_who_wants_maxima();
        if (is_new) {
            wgmma_wait<0>();
            store();
            open_item();
        }
        mask(tile);
        factor[0] = factor[1] = 1.0f;
        if ((tile.x & kFresh) != 0 || takes_maxima) {
            const float before[2] = {shift[0], shift[1]};

            renew(0, takes_maxima || m[0] == -INFINITY);
            renew(1, takes_maxima || m[1] == -INFINITY);
            const bool is_of_use = shift[0] - before[0] > kOfUse || shift[1] - before[1] > kOfUse;

            if (__any_sync(~0u, !is_new && takes_maxima && is_of_use)) {
                want_maxima(n_v + 1, (hot & 1) != 0);
            }
        }
        const bool is_right = softmax_as_is();

        l[0] += is_right ? sum[0] : 0.0f;
        l[1] += is_right ? sum[1] : 0.0f;
        release_k(k, is_right);
        finish(tile.y);
        scale_output(); // of a new item, that is zeros
        if (__any_sync(~0u, !is_right)) {
            redo<false>(tile);
        }
    }

    // Tiles that all rows see whole, of one segment and item, and not behind a partial one: no
    // branch but the one check.  Returns whether the last one is to be done again.
    __device__ __forceinline__ bool step_plain_tiles()
    {
        // The vote tells ptxas that all lanes agree.
        while (!__any_sync(~0u, (info.x | (hot & 1) | (v_keys ^ kTile)) != 0)) {
            multiply<true>();
            hear_who_wants_maxima();
            const bool is_right = softmax_as_is();

            release_k(k, is_right);
            finish(kTile);
            if (__any_sync(~0u, !is_right)) {
                return true;
            }
            l[0] += sum[0];
            l[1] += sum[1];
        }
        return false;
    }

    __device__ __forceinline__ void run_all(uint32_t start)
    {
        if (group == 1) {
            named_barrier_arrive(kTurnBarrier, 2 * kWarpgroup); // warpgroup 0 begins
        }
        begin(start);
        for (;;) {
            const uint4 whole = make_uint4(0, kTile, 0, 0);

            if (step_plain_tiles()) {
                redo<true>(whole);
                continue;
            }
            if (__any_sync(~0u, (info.x & kEnd) != 0)) {
                break;
            }
            step();
        }
        if (group == 0) {
            named_barrier(kTurnBarrier, 2 * kWarpgroup); // takes the last turn
        }
        wait_v();
        if (v_keys < kTile) {
            clear_tail_of_v();
        }
        multiply_pv();
        wgmma_wait<0>();
        store();
    }
};

} // namespace

#endif
