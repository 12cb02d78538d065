/* SPDX-License-Identifier: Apache-2.0 */
// lazy_attn - the core that lazy_prefill and lazy_decode share: query rows of one sequence and one
// key/value head against a run of keys of that sequence's segments, Q rotated once a segment.
//
// Work split.  A CTA has 4 warps.  Query rows are packed over the heads of a group (packed row
// r = t * G + g), because they read the same keys.
//   kRowTiles == 4 (prefill): 64 packed rows, 16 a warp; every warp reads every key of the tile.
//   kRowTiles == 1 (decode):  16 packed rows, the same in every warp; each warp takes 16 of the 64
//   keys
//                             of a tile; the four partial results are merged at the end.
// Keys come in tiles of 64 tokens: 64 / P pages of the ck8 layout, copied as they lie (the swizzle
// is in the pool already, so ldmatrix is free of bank conflicts), through a ring of kStages
// cp.async stages. Tiles never straddle segments.  Rows of a tile past n_tokens are filled with
// zeros, so that garbage (NaN) behind a document's end never meets a zero probability.
//
// Rotation.  At a change of segment each warp reloads its raw Q rows (from L2) and rotates them in
// float32 by angles computed in float64 (attn_angles.cu): the pair (i, i + D/2) sits in one thread,
// at k-steps s and s + D/32 of the A fragment, so there is neither shuffle nor shared memory.
// Cost: once a segment.
//
// Numerics.  Scores, maximum, sum and output in float32; P rounded to bf16 for the second product.
// The maximum is kept in raw score units; exp2 with the scale folded in.  A row without a visible
// key ends with m = -inf, l = 0 and o = 0.
//
// Shared memory: kStages * 64 * D * 4 bytes (K and V): 98,304 for D = 128 and 3 stages, inside the
// 99 KiB of sm_86 and sm_89; the decode merge reuses it.
#ifndef KERNELS_DEVICE_LAZY_ATTN_CUH
#define KERNELS_DEVICE_LAZY_ATTN_CUH

#include "kernels/attn_cuda.h"
#include "kernels/device/mma_sm80.cuh"

namespace {

constexpr int kTileTokens = 64;
constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 3;
// Two CTAs a multiprocessor: what their shared memory allows, so the registers may as well.
#define LAZY_ATTN_BOUNDS __launch_bounds__(kThreads, 2)
constexpr float kLog2e = 1.4426950408889634f;

constexpr size_t
lazy_attn_shared_bytes(int head_dim)
{
    return (size_t)kStages * kTileTokens * head_dim * 4;
}
static_assert(kStages * kTileTokens * 128 * 4 <= 99 * 1024, "fits a block of sm_86 and sm_89");

// What a CTA works on.
struct AttnTile {
    uint32_t seq;
    uint32_t row_begin; // packed rows [row_begin, row_begin + up to 16 * kRowTiles) of the sequence
    uint32_t head;      // key/value head
    uint32_t key_begin; // in the concatenation of the sequence's segments
    uint32_t key_end;
};

// Walks the 64-token tiles of a run of keys, segment by segment.
struct TileWalk {
    const attn_segment *segs;
    uint32_t seg, n_segs;
    uint32_t tok;     // first token of the current tile, inside the segment
    uint32_t tok_end; // tokens of this segment that belong to the run
    uint32_t left;    // keys of the run from this segment on, this segment excluded

    __device__ __forceinline__ void enter(uint32_t skip)
    {
        // Finds the segment that holds the run's next key; `skip` keys come before it.
        while (seg < n_segs && skip >= segs[seg].n_tokens) {
            skip -= segs[seg].n_tokens;
            seg++;
        }
        if (seg < n_segs) {
            uint32_t here = min(segs[seg].n_tokens - skip, left);
            tok = skip;
            tok_end = skip + here;
            left -= here;
        }
    }

    __device__ __forceinline__ bool is_done() const
    {
        return seg >= n_segs || tok >= tok_end;
    }

    // Returns true when the next tile is in another segment (or the run is over).
    __device__ __forceinline__ bool advance()
    {
        tok += kTileTokens;
        if (tok < tok_end) {
            return false;
        }
        seg++;
        if (left > 0) {
            enter(0);
        } else {
            seg = n_segs;
        }
        return true;
    }
};

template <int D>
struct KvTiles {
    static constexpr uint32_t kTileBytes = kTileTokens * D * 2;
    static constexpr uint32_t kUnitBytes = D * 16; // 8 tokens

    // The ids of a tile's pages (64 / P of them), one a lane: fetched a tile ahead of their use, so
    // that the copies never wait for them.
    static __device__ __forceinline__ uint32_t fetch_pages(const attn_desc &desc,
                                                           const TileWalk &walk)
    {
        const uint32_t page_shift = 31 - __clz(desc.layout.P);
        const uint32_t lane = threadIdx.x & 31;

        if (walk.is_done()) {
            return 0;
        }
        const attn_segment &seg = walk.segs[walk.seg];
        const uint32_t page = (walk.tok >> page_shift) + lane;
        const bool is_page = lane < kTileTokens / 16 && page << page_shift < seg.n_tokens;
        return is_page ? __ldg(desc.block_ids + seg.block_first + page) : 0;
    }

    // Enqueues the copies of one tile of K and V into `stage`.
    static __device__ __forceinline__ void load(const attn_desc &desc, const TileWalk &walk,
                                                uint32_t pages, uint32_t head, uint32_t stage)
    {
        const uint32_t page_shift = 31 - __clz(desc.layout.P);
        const uint64_t head_bytes = (uint64_t)desc.layout.P * D * 2;
        const uint64_t layer_bytes = 2 * desc.layout.Hkv * head_bytes;
        const uint64_t block_bytes = desc.layout.L * layer_bytes;
        const char *base =
            (const char *)desc.kv + desc.layer * layer_bytes + (uint64_t)head * head_bytes;
        const uint64_t v_offset = desc.layout.Hkv * head_bytes;
        const uint32_t n_tokens = walk.segs[walk.seg].n_tokens;

#pragma unroll
        for (uint32_t i = 0; i < kTileBytes / 16 / kThreads; i++) {
            uint32_t chunk = threadIdx.x + i * kThreads;
            uint32_t unit = chunk / (kUnitBytes / 16);
            uint32_t in_unit = chunk % (kUnitBytes / 16) * 16;
            uint32_t tok = walk.tok + unit * 8 + in_unit % 1024 / 128;
            bool is_valid = tok < n_tokens;
            uint32_t unit_tok = walk.tok + unit * 8;
            // Past the last page this is page 0: an address that is not read.
            uint32_t page =
                __shfl_sync(~0u, pages, (unit_tok >> page_shift) - (walk.tok >> page_shift));
            uint64_t from = (uint64_t)page * block_bytes
                            + (unit_tok & (desc.layout.P - 1)) / 8 * kUnitBytes + in_unit;
            cp_async_16(stage + chunk * 16, base + from, is_valid);
            cp_async_16(stage + kTileBytes + chunk * 16, base + v_offset + from, is_valid);
        }
    }
};

// The state of one warp: 16 packed rows.
template <int D>
struct RowState {
    uint32_t q[D / 16][4]; // A fragments, rotated for the current segment
    float o[D / 8][4];
    float m[2], l[2];  // for rows lane/4 and lane/4 + 8
    uint32_t limit[2]; // visible keys of the current segment for those rows

    __device__ __forceinline__ void reset()
    {
        m[0] = m[1] = -INFINITY;
        l[0] = l[1] = 0.0f;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;
        }
    }

    // Loads the raw rows and rotates them by their angle to the segment.
    __device__ __forceinline__ void rotate(const attn_desc &desc, const void *q_raw,
                                           const float *angles, const attn_seq &seq,
                                           const attn_segment &seg, uint32_t head,
                                           uint32_t row_base, uint32_t n_rows)
    {
        const int lane = threadIdx.x & 31;
        const uint32_t G = desc.H / desc.layout.Hkv;

#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t r = row_base + (lane >> 2) + h * 8;
            bool is_row = r < n_rows;
            uint32_t t = is_row ? r / G : 0;
            uint32_t g = is_row ? r % G : 0;
            const uint32_t *src = (const uint32_t *)q_raw
                                  + ((size_t)(seq.row_first + t) * desc.H + head * G + g) * (D / 2);
            const float4 *turn = (const float4 *)angles + (size_t)t * (D / 4);
            uint32_t p = seq.pos_first + t;

            limit[h] = is_row && p >= seg.offset ? min(p - seg.offset + 1, seg.n_tokens) : 0;
#pragma unroll
            for (int k = 0; k < D / 32; k++) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    int c = k * 16 + (lane & 3) * 2 + j * 8; // dims c, c+1 and their partners
                    uint32_t a = __ldg(src + c / 2);
                    uint32_t b = __ldg(src + c / 2 + D / 4);
                    float4 x = __ldg(turn + c / 2); // cos c, sin c, cos c+1, sin c+1

                    q[k][j * 2 + h] = pack_bf16(bf16_lo(a) * x.x - bf16_lo(b) * x.y,
                                                bf16_hi(a) * x.z - bf16_hi(b) * x.w);
                    q[k + D / 32][j * 2 + h] = pack_bf16(bf16_lo(b) * x.x + bf16_lo(a) * x.y,
                                                         bf16_hi(b) * x.z + bf16_hi(a) * x.w);
                }
            }
        }
    }

    // kKeys keys of the tile in `stage`, from token `first` of the tile (`tok` in the segment).
    template <int kKeys>
    __device__ __forceinline__ void attend(uint32_t stage, uint32_t first, uint32_t tok,
                                           float scale_log2)
    {
        constexpr int kN = kKeys / 8;
        constexpr uint32_t kUnit = KvTiles<D>::kUnitBytes;
        const int lane = threadIdx.x & 31;
        const int row8 = lane & 7;
        const uint32_t k_base = stage + first / 8 * kUnit + (lane >> 4) * kUnit + row8 * 128;
        const uint32_t k_xor = ((lane >> 3) & 1) ^ row8;
        const uint32_t v_base = stage + KvTiles<D>::kTileBytes + first / 8 * kUnit
                                + ((lane >> 3) & 1) * kUnit + row8 * 128;
        const uint32_t v_xor = (lane >> 4) ^ row8;
        float s[kN][4];

#pragma unroll
        for (int n = 0; n < kN; n++) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
        }
#pragma unroll
        for (int k = 0; k < D / 16; k++) {
#pragma unroll
            for (int n = 0; n < kN; n += 2) {
                uint32_t b[4];
                ldmatrix_x4(b,
                            k_base + n * kUnit + (k >> 2) * 1024 + ((((k & 3) * 2) ^ k_xor) << 4));
                mma_m16n8k16(s[n], q[k], b[0], b[1]);
                mma_m16n8k16(s[n + 1], q[k], b[2], b[3]);
            }
        }
        mask<kN>(s, tok);
        softmax_step<kN>(s, scale_log2);
#pragma unroll
        for (int n = 0; n < kN; n += 2) {
            uint32_t p[4] = {pack_bf16(s[n][0], s[n][1]), pack_bf16(s[n][2], s[n][3]),
                             pack_bf16(s[n + 1][0], s[n + 1][1]),
                             pack_bf16(s[n + 1][2], s[n + 1][3])};
#pragma unroll
            for (int d = 0; d < D / 8; d += 2) {
                uint32_t b[4];
                ldmatrix_x4_trans(b,
                                  v_base + n * kUnit + (d >> 3) * 1024 + (((d & 7) ^ v_xor) << 4));
                mma_m16n8k16(o[d], p, b[0], b[1]);
                mma_m16n8k16(o[d + 1], p, b[2], b[3]);
            }
        }
    }

    template <int kN>
    __device__ __forceinline__ void mask(float (&s)[kN][4], uint32_t tok)
    {
        if (tok + kN * 8 <= min(limit[0], limit[1])) {
            return;
        }
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int n = 0; n < kN; n++) {
            uint32_t key = tok + n * 8 + (lane & 3) * 2;
            s[n][0] = key < limit[0] ? s[n][0] : -INFINITY;
            s[n][1] = key + 1 < limit[0] ? s[n][1] : -INFINITY;
            s[n][2] = key < limit[1] ? s[n][2] : -INFINITY;
            s[n][3] = key + 1 < limit[1] ? s[n][3] : -INFINITY;
        }
    }

    // Turns scores into probabilities in place, rescaling what was gathered when a maximum rose.
    template <int kN>
    __device__ __forceinline__ void softmax_step(float (&s)[kN][4], float scale_log2)
    {
        float high[2] = {m[0], m[1]};

#pragma unroll
        for (int n = 0; n < kN; n++) {
            high[0] = fmaxf(high[0], fmaxf(s[n][0], s[n][1]));
            high[1] = fmaxf(high[1], fmaxf(s[n][2], s[n][3]));
        }
        high[0] = quad_max(high[0]);
        high[1] = quad_max(high[1]);
        float shift[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // A row that has seen no key keeps m = -inf; shifting by 0 then gives exp2(-inf) = 0.
            shift[h] = high[h] == -INFINITY ? 0.0f : __fmul_rn(high[h], scale_log2);
        }
        if (__any_sync(~0u, high[0] != m[0] || high[1] != m[1])) {
            // Each step rounded, no fma: a row whose own maximum stayed gets exactly 1, so that it
            // does not matter which rows share its warp.
            float f0 = exp2_approx(__fsub_rn(__fmul_rn(m[0], scale_log2), shift[0]));
            float f1 = exp2_approx(__fsub_rn(__fmul_rn(m[1], scale_log2), shift[1]));
            l[0] *= f0;
            l[1] *= f1;
#pragma unroll
            for (int i = 0; i < D / 8; i++) {
                o[i][0] *= f0;
                o[i][1] *= f0;
                o[i][2] *= f1;
                o[i][3] *= f1;
            }
            m[0] = high[0];
            m[1] = high[1];
        }
#pragma unroll
        for (int n = 0; n < kN; n++) {
            s[n][0] = exp2_approx(fmaf(s[n][0], scale_log2, -shift[0]));
            s[n][1] = exp2_approx(fmaf(s[n][1], scale_log2, -shift[0]));
            s[n][2] = exp2_approx(fmaf(s[n][2], scale_log2, -shift[1]));
            s[n][3] = exp2_approx(fmaf(s[n][3], scale_log2, -shift[1]));
            l[0] += s[n][0] + s[n][1];
            l[1] += s[n][2] + s[n][3];
        }
    }
};

// Runs the tile; afterwards every warp holds its share in `state` (l not yet summed over the quad).
template <int D, int kRowTiles>
__device__ __forceinline__ void
lazy_attn_run(const attn_desc &desc, const void *q, const attn_angles &angles, const AttnTile &tile,
              uint8_t *shared, RowState<D> &state)
{
    constexpr uint32_t kStageBytes = 2 * KvTiles<D>::kTileBytes;
    const attn_seq &seq = desc.seqs[tile.seq];
    const uint32_t G = desc.H / desc.layout.Hkv;
    const uint32_t n_rows = seq.n_rows * G;
    const int warp = threadIdx.x >> 5;
    const uint32_t row_base = tile.row_begin + (kRowTiles == 4 ? warp * 16 : 0);
    const uint32_t row_last = min(tile.row_begin + 16 * kRowTiles, n_rows) - 1;
    const uint32_t pos_last = seq.pos_first + row_last / G; // of the CTA: the same for all warps
    const float scale_log2 = desc.scale * kLog2e;
    const uint32_t ring = shared_address(shared);
    TileWalk ahead = {desc.segs + seq.seg_first,    0, seq.n_segs, 0, 0,
                      tile.key_end - tile.key_begin};
    bool is_new_segment = true;

    state.reset();
    ahead.enter(tile.key_begin);
    TileWalk at = ahead;
    uint32_t pages = KvTiles<D>::fetch_pages(desc, ahead);
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) {
        if (!ahead.is_done()) {
            KvTiles<D>::load(desc, ahead, pages, tile.head, ring + i * kStageBytes);
            ahead.advance();
            pages = KvTiles<D>::fetch_pages(desc, ahead);
        }
        cp_async_commit();
    }
    for (uint32_t step = 0; !at.is_done(); step++) {
        const attn_segment &seg = at.segs[at.seg];
        const uint32_t stage = ring + step % kStages * kStageBytes;

        // Rotates while the copies are on their way.
        if (is_new_segment) {
            const float *turns =
                angles.rows
                + (__ldg(angles.angle_first + tile.seq) + (size_t)at.seg * seq.n_rows) * D;
            state.rotate(desc, q, turns, seq, seg, tile.head, row_base, n_rows);
        }
        cp_async_wait<kStages - 2>();
        __syncthreads(); // this stage has landed for all; the one before it is free for all
        if (!ahead.is_done()) {
            KvTiles<D>::load(desc, ahead, pages, tile.head,
                             ring + (step + kStages - 1) % kStages * kStageBytes);
            ahead.advance();
            pages = KvTiles<D>::fetch_pages(desc, ahead);
        }
        cp_async_commit();
        // Keys that no row of this CTA can see (above the diagonal) cost nothing but their copy.
        if (pos_last >= seg.offset && at.tok <= pos_last - seg.offset) {
            if (kRowTiles == 4) {
                state.template attend<32>(stage, 0, at.tok, scale_log2);
                state.template attend<32>(stage, 32, at.tok + 32, scale_log2);
            } else {
                state.template attend<16>(stage, warp * 16, at.tok + warp * 16, scale_log2);
            }
        }
        is_new_segment = at.advance();
    }
    cp_async_wait<0>();
    state.l[0] = quad_sum(state.l[0]);
    state.l[1] = quad_sum(state.l[1]);
}

} // namespace

#endif
