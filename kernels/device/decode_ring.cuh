/* SPDX-License-Identifier: Apache-2.0 */
// decode_ring - what the sm_90 kernels of lazy_decode share: the arguments, the warp that copies
// keys and values, the warps that rotate queries, and the join of partials.
//
// A CTA is consumers (tensor cores), one producer warp and one or more query warps.
//   Producer: takes units (decode_plan), walks their items and copies each tile of 64 keys, K then
//     V, page by page as they lie, into a ring of stages.  A unit's first page ids come with its
//     record, so the first copy waits for one load only; the next item is fetched a step a tile.
//   Query warps: follow the producer's items through a queue, read the raw rows of Q and their
//     angles, and leave the rotated rows in shared memory a document ahead: consumers never touch
//     global memory when the document changes, so rotation costs them nothing.
//   Consumers: rows16, rows64.  Each tile comes with a word that says how many keys are valid, and
//     whether a document begins or a cut ends.
#ifndef KERNELS_DEVICE_DECODE_RING_CUH
#define KERNELS_DEVICE_DECODE_RING_CUH

#include "kernels/decode_plan.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/sm90.cuh"

struct DecodeArgs {
    const char *kv; // the layer's first byte, in block 0
    uint64_t block_bytes;
    uint32_t head_bytes;
    uint32_t v_offset; // from a head's K to its V
    uint32_t page_shift;
    uint32_t H, G, Hkv;
    float scale_log2; // scale * log2(e)
    bool joins;       // the last CTA to finish a row joins it
    bool rotates;     // false: raw Q, for measuring what rotation costs
    // Of the kernels of one lazy_decode: one that follows another needs nothing of it, and what
    // came before is complete, because one that leads lets it start only then.
    bool follows;
    bool leads;
    const uint32_t *block_ids;
    const decode_item *items;
    const uint32_t *n_units;
    const decode_sharer *sharers;
    const decode_flush *flushes;
    const decode_join *row_joins;
    const float4 *angles; // (cos, sin) of two pairs, [rows, D / 4]
    const void *q;
    void *out;
    float *o;          // [slots, G, D] unnormalised
    float2 *ml;        // [slots, G]: maximum in the log2 domain, sum
    uint32_t *arrived; // [slots] cuts done, at a row's first slot; back to 0 in the end
    uint32_t *counter; // [2] units taken, CTAs done; back to 0 in the end
};

namespace {

// What a stage's word says.
constexpr uint32_t kNewDocument = 1u << 16; // fetch the next rotated rows first
constexpr uint32_t kFlush = 1u << 17;       // write the partials afterwards
constexpr uint32_t kExit = 1u << 18;
constexpr uint32_t kTokensMask = 0xffff;

constexpr int kQueue = 4; // items between producer and query warps
constexpr float kNoMaximum = -1e30f;

// Shared memory: ring, then rotated rows, then `scratch` of the kernel, then the small things.
template <int D, int kStages, int kRows, int kBuffers, int kScratch>
struct DecodeShared {
    static constexpr uint32_t kPartBytes = DECODE_TILE * D * 2; // K or V of a stage
    static constexpr uint32_t kStageBytes = 2 * kPartBytes;
    static constexpr uint32_t kUnitBytes = D * 16; // 8 tokens or 8 rows
    static constexpr uint32_t kRowsBytes = kRows * D * 2;
    static constexpr uint32_t kQ = kStages * kStageBytes;
    static constexpr uint32_t kScratchAt = kQ + kBuffers * kRowsBytes;
    static constexpr uint32_t kInfo = kScratchAt + kScratch;
    static constexpr uint32_t kItems = kInfo + kStages * 16;
    static constexpr uint32_t kBarriers = kItems + kQueue * 16;
    static constexpr uint32_t kBytes = kBarriers + (2 * kStages + 2 * kBuffers + 2 * kQueue) * 8;
    static constexpr int stages = kStages;
    static constexpr int rows = kRows;
    static constexpr int buffers = kBuffers;

    uint8_t *base;
    uint32_t ring; // address

    __device__ __forceinline__ explicit DecodeShared(uint8_t *shared)
        : base(shared), ring(shared_address(shared))
    {}
    __device__ __forceinline__ uint4 *info(int stage) const
    {
        return (uint4 *)(base + kInfo) + stage;
    }
    __device__ __forceinline__ uint4 *item(int slot) const
    {
        return (uint4 *)(base + kItems) + slot;
    }
    __device__ __forceinline__ uint32_t full(int stage) const
    {
        return ring + kBarriers + stage * 8;
    }
    __device__ __forceinline__ uint32_t empty(int stage) const
    {
        return full(kStages + stage);
    }
    __device__ __forceinline__ uint32_t q_full(int buffer) const
    {
        return full(2 * kStages + buffer);
    }
    __device__ __forceinline__ uint32_t q_empty(int buffer) const
    {
        return full(2 * kStages + kBuffers + buffer);
    }
    __device__ __forceinline__ uint32_t item_full(int slot) const
    {
        return full(2 * kStages + 2 * kBuffers + slot);
    }
    __device__ __forceinline__ uint32_t item_empty(int slot) const
    {
        return full(2 * kStages + 2 * kBuffers + kQueue + slot);
    }

    // By all threads of the CTA; the rows that no request fills stay zero.
    __device__ __forceinline__ void init(int consumer_warps, int query_warps) const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < kStages; i++) {
                mbarrier_init(full(i), 1);
                mbarrier_init(empty(i), consumer_warps * kWarpArrivals);
            }
            for (int i = 0; i < kBuffers; i++) {
                mbarrier_init(q_full(i), query_warps * kWarpArrivals);
                mbarrier_init(q_empty(i), consumer_warps * kWarpArrivals);
            }
            for (int i = 0; i < kQueue; i++) {
                mbarrier_init(item_full(i), 1);
                mbarrier_init(item_empty(i), query_warps * kWarpArrivals);
            }
            mbarrier_init_fence();
        }
        for (uint32_t i = threadIdx.x; i < kBuffers * kRowsBytes / 16; i += blockDim.x) {
            ((uint4 *)(base + kQ))[i] = make_uint4(0, 0, 0, 0);
        }
        __syncthreads();
    }
};

// An item in registers, the same in all lanes.
struct ItemWords {
    uint4 a; // block_first, n_tokens, next, head
    uint4 b; // sharers, flush, n_sharers, reserved
    uint4 ids;

    __device__ __forceinline__ void load(const decode_item *item)
    {
        static_assert(sizeof(decode_item) == 48, "three 16-byte loads");
        const uint4 *from = (const uint4 *)item;
        a = __ldg(from);
        b = __ldg(from + 1);
        ids = __ldg(from + 2);
    }
    __device__ __forceinline__ uint32_t n_tokens() const
    {
        return a.y;
    }
    __device__ __forceinline__ uint32_t head() const
    {
        return a.w & 0xffff;
    }
};

// The producer warp's walk over units, items and tiles.
template <typename Shared>
struct Producer {
    const DecodeArgs &args;
    const Shared &shared;
    const int lane;
    const uint32_t n_units;
    const uint64_t policy;
    uint32_t stage, phase; // of the ring
    uint32_t sent;         // items to the query warps
    uint32_t unit;
    bool has_waited;

    __device__ __forceinline__ Producer(const DecodeArgs &a, const Shared &s)
        : args(a), shared(s), lane(threadIdx.x & 31), n_units(__ldg(a.n_units)),
          policy(l2_evict_first()), stage(0), phase(0), sent(0), unit(blockIdx.x), has_waited(false)
    {}

    __device__ __forceinline__ void tell_query_warps(const ItemWords &item, bool is_end)
    {
        if (lane == 0) {
            int slot = sent % kQueue;
            mbarrier_wait(shared.item_empty(slot), (sent / kQueue & 1) ^ 1);
            *shared.item(slot) = make_uint4(item.b.x, item.b.z, item.head(), is_end ? 1 : 0);
            mbarrier_arrive(shared.item_full(slot));
        }
        sent++;
    }

    // Page ids `at` .. `at` + 31 of an item, one a lane.
    __device__ __forceinline__ uint32_t fetch_ids(const ItemWords &item, uint32_t at) const
    {
        uint32_t n = (item.n_tokens() + (1u << args.page_shift) - 1) >> args.page_shift;
        return at + lane < n ? __ldg(args.block_ids + item.a.x + at + lane) : 0;
    }

    // Copies one tile: lane i its page i.
    __device__ __forceinline__ void copy(const ItemWords &item, uint32_t tile, uint32_t n_tiles,
                                         uint32_t id)
    {
        const uint32_t tokens = min(item.n_tokens() - tile * DECODE_TILE, (uint32_t)DECODE_TILE);
        const uint32_t pages = (tokens + (1u << args.page_shift) - 1) >> args.page_shift;
        const uint32_t bytes = args.head_bytes; // of a page, K or V

        if (lane == 0) {
            uint32_t word = tokens | (tile == 0 ? kNewDocument : 0);
            bool is_last = tile == n_tiles - 1 && (item.a.w & DECODE_ITEM_FLUSH) != 0;

            mbarrier_wait(shared.empty(stage), phase ^ 1);
            *shared.info(stage) =
                make_uint4(word | (is_last ? kFlush : 0), item.head(), item.b.y, item.b.z);
            mbarrier_arrive_expect(shared.full(stage), pages * bytes * 2);
        }
        __syncwarp();
        if ((uint32_t)lane < pages) {
            const char *from =
                args.kv + (uint64_t)id * args.block_bytes + (uint64_t)item.head() * args.head_bytes;
            uint32_t to = shared.ring + stage * Shared::kStageBytes + lane * bytes;

            bulk_load(to, from, bytes, shared.full(stage), policy);
            bulk_load(to + Shared::kPartBytes, from + args.v_offset, bytes, shared.full(stage),
                      policy);
        }
        if (++stage == Shared::stages) {
            stage = 0;
            phase ^= 1;
        }
    }

    // All tiles of an item; meanwhile, a step a tile, the number, record and page ids of the next
    // one.  Returns whether there is one.
    __device__ __forceinline__ bool run(const ItemWords &item, uint32_t ids, ItemWords *next,
                                        uint32_t *next_ids)
    {
        const uint32_t tile_ids = DECODE_TILE >> args.page_shift;
        const uint32_t n_tiles = (item.n_tokens() + DECODE_TILE - 1) / DECODE_TILE;
        uint32_t later_ids = fetch_ids(item, 32);
        uint32_t next_index = 0;
        bool has_next = false;
        int step = 0;

        if ((item.a.w & DECODE_ITEM_OWN) != 0 && !has_waited && !args.follows) {
            wait_for_previous();
            has_waited = true;
        }
        for (uint32_t tile = 0; tile < n_tiles; tile++) {
            uint32_t id;

            if (tile == 0) {
                id = lane == 0   ? item.ids.x
                     : lane == 1 ? item.ids.y
                     : lane == 2 ? item.ids.z
                                 : item.ids.w;
            } else {
                if (tile * tile_ids % 32 == 0) {
                    ids = later_ids;
                    later_ids = fetch_ids(item, tile * tile_ids + 32);
                }
                id = __shfl_sync(~0u, ids, (tile * tile_ids + lane) & 31);
            }
            copy(item, tile, n_tiles, id);

            const uint32_t left = n_tiles - 1 - tile;
            const bool is_chained = item.a.z != 0;
            if (step == 0 && (is_chained || left <= 2)) {
                if (is_chained) {
                    next_index = item.a.z;
                    has_next = true;
                } else if (lane == 0) {
                    unit = atomicAdd(args.counter, 1u) + gridDim.x;
                }
                step = 1;
                if (!is_chained && left > 0) {
                    continue; // the answer is on its way
                }
            }
            if (step == 1) {
                if (!is_chained) {
                    unit = __shfl_sync(~0u, unit, 0);
                    next_index = unit;
                    has_next = unit < n_units;
                }
                if (has_next) {
                    next->load(args.items + next_index);
                }
                step = 2;
                if (left > 0) {
                    continue;
                }
            }
            if (step == 2) {
                if (has_next) {
                    tell_query_warps(*next, false);
                    *next_ids = fetch_ids(*next, 0);
                }
                step = 3;
            }
        }
        return has_next;
    }

    __device__ __forceinline__ void work()
    {
        ItemWords item, next;
        uint32_t ids = 0, next_ids = 0;
        bool has_item = unit < n_units;

        item.load(args.items + unit); // of another unit's if there is none: not used
        if (has_item) {
            tell_query_warps(item, false);
            ids = fetch_ids(item, 0);
        }
        while (has_item) {
            has_item = run(item, ids, &next, &next_ids);
            item = next;
            ids = next_ids;
        }
        tell_query_warps(item, true);
        if (lane == 0) {
            mbarrier_wait(shared.empty(stage), phase ^ 1);
            *shared.info(stage) = make_uint4(kExit, 0, 0, 0);
            mbarrier_arrive(shared.full(stage));
            if (atomicAdd(args.counter + 1, 1u) == gridDim.x - 1) { // nobody will ask again
                args.counter[0] = 0;
                args.counter[1] = 0;
            }
        }
        wait_for_previous();
    }
};

// Rotates a pair of 16-byte chunks, dims c*8.. and their partners, by 8 angles.
__device__ __forceinline__ void
rotate_chunks(uint4 &lo, uint4 &hi, const float4 (&turn)[4])
{
    uint32_t a[4] = {lo.x, lo.y, lo.z, lo.w};
    uint32_t b[4] = {hi.x, hi.y, hi.z, hi.w};

#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 t = turn[i]; // cos, sin of two neighbouring dims
        float a0 = bf16_lo(a[i]), a1 = bf16_hi(a[i]), b0 = bf16_lo(b[i]), b1 = bf16_hi(b[i]);

        a[i] = pack_bf16(a0 * t.x - b0 * t.y, a1 * t.z - b1 * t.w);
        b[i] = pack_bf16(b0 * t.x + a0 * t.y, b1 * t.z + a1 * t.w);
    }
    lo = make_uint4(a[0], a[1], a[2], a[3]);
    hi = make_uint4(b[0], b[1], b[2], b[3]);
}

// A few pairs of chunks a lane, with all their loads in flight.  Pair `first` + k * stride + lane
// of an item's rows, row by row.  (Loading a sharer's angles once for its heads leaves most lanes
// idle where one request is alone: tried, 1.5 us slower there and no faster elsewhere.)
template <int D, typename Shared>
struct QueryPairs {
    static constexpr int kPairs = D / 16; // of a row
    static constexpr int kTogether = 4;   // of a lane

    const DecodeArgs &args;
    const uint4 item; // sharers, n_sharers, kv head, is the end
    const uint32_t first, stride;
    uint4 lo[kTogether], hi[kTogether];
    float4 turn[kTogether][4];
    uint32_t q_row[kTogether];

    __device__ __forceinline__ QueryPairs(const DecodeArgs &a, uint4 i, uint32_t f, uint32_t s)
        : args(a), item(i), first(f + (threadIdx.x & 31)), stride(s)
    {}

    __device__ __forceinline__ uint32_t pair(int k) const
    {
        return first + k * stride;
    }
    __device__ __forceinline__ bool is_valid(int k) const
    {
        return pair(k) < item.y * args.G * kPairs;
    }

    __device__ __forceinline__ void load_turns()
    {
        uint32_t angles[kTogether];

#pragma unroll
        for (int k = 0; k < kTogether; k++) {
            if (is_valid(k)) {
                uint2 sharer =
                    __ldg((const uint2 *)args.sharers + item.x + pair(k) / kPairs / args.G);
                q_row[k] = sharer.x;
                angles[k] = sharer.y;
            }
        }
#pragma unroll
        for (int k = 0; k < kTogether; k++) {
            if (is_valid(k) && args.rotates) {
                const float4 *from =
                    args.angles + (size_t)angles[k] * (D / 4) + pair(k) % kPairs * 4;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    turn[k][j] = __ldg(from + j);
                }
            }
        }
    }

    __device__ __forceinline__ void load_rows()
    {
#pragma unroll
        for (int k = 0; k < kTogether; k++) {
            if (is_valid(k)) {
                uint32_t head = item.z * args.G + pair(k) / kPairs % args.G;
                const uint4 *from = (const uint4 *)args.q
                                    + ((size_t)q_row[k] * args.H + head) * (D / 8)
                                    + pair(k) % kPairs;
                lo[k] = __ldcg(from);
                hi[k] = __ldcg(from + kPairs);
            }
        }
    }

    // Rotated, in the ck8 layout.
    __device__ __forceinline__ void store(uint8_t *rows)
    {
#pragma unroll
        for (int k = 0; k < kTogether; k++) {
            if (is_valid(k)) {
                uint32_t row = pair(k) / kPairs;
                uint32_t c = pair(k) % kPairs;
                uint8_t *to = rows + row / 8 * Shared::kUnitBytes + row % 8 * 128;

                if (args.rotates) {
                    rotate_chunks(lo[k], hi[k], turn[k]);
                }
                *(uint4 *)(to + ((c ^ row % 8) << 4)) = lo[k];
                c += kPairs;
                *(uint4 *)(to + c / 8 * 1024 + ((c % 8 ^ row % 8) << 4)) = hi[k];
            }
        }
    }
};

// The rotated rows of the CTA's first item, by `warps` consumer warps, to buffer 0: nobody has
// anything else to do before they are there, and many warps are one chain of latencies where few
// are several.  The query warps leave out this item (rotate_queries, skips_first).
template <int D, typename Shared>
__device__ __forceinline__ void
rotate_first(const DecodeArgs &args, const Shared &shared, int warp, int warps)
{
    using Pairs = QueryPairs<D, Shared>;
    bool has_waited = args.follows;

    if (blockIdx.x < __ldg(args.n_units)) {
        ItemWords words;

        words.load(args.items + blockIdx.x);
        const uint4 item = make_uint4(words.b.x, words.b.z, words.head(), 0);
        const uint32_t n_pairs = item.y * args.G * Pairs::kPairs;

        for (uint32_t first = warp * 32; first < n_pairs; first += warps * 32 * Pairs::kTogether) {
            Pairs pairs(args, item, first, warps * 32);

            pairs.load_turns();
            if (!has_waited) { // the angles are of the step, Q is of the kernel before
                wait_for_previous();
                has_waited = true;
            }
            pairs.load_rows();
            pairs.store(shared.base + Shared::kQ);
        }
    }
    if (!has_waited) {
        wait_for_previous(); // before anything is written
    }
    named_barrier(1, warps * 32);
}

// One of `warps` query warps: the rotated rows of item after item.
template <int D, typename Shared>
__device__ __forceinline__ void
rotate_queries(const DecodeArgs &args, const Shared &shared, int warp, int warps, bool skips_first)
{
    using Pairs = QueryPairs<D, Shared>;
    bool has_waited = args.follows;

    for (uint32_t i = 0;; i++) {
        const int slot = i % kQueue;
        const int buffer = i % Shared::buffers;
        const uint32_t free_phase = (i / Shared::buffers & 1) ^ 1;
        mbarrier_wait(shared.item_full(slot), i / kQueue & 1);
        const uint4 item = *shared.item(slot);
        warp_arrive(shared.item_empty(slot));
        if (item.w != 0) {
            break;
        }
        const uint32_t n_pairs = i == 0 && skips_first ? 0 : item.y * args.G * Pairs::kPairs;
        bool is_free = false;

        for (uint32_t first = warp * 32; first < n_pairs; first += warps * 32 * Pairs::kTogether) {
            Pairs pairs(args, item, first, warps * 32);

            pairs.load_turns();
            if (!has_waited) { // the angles are of the step, Q is of the kernel before
                wait_for_previous();
                has_waited = true;
                if (args.leads) {
                    let_next_start();
                }
            }
            pairs.load_rows();
            if (!is_free) {
                mbarrier_wait(shared.q_empty(buffer), free_phase);
                is_free = true;
            }
            pairs.store(shared.base + Shared::kQ + buffer * Shared::kRowsBytes);
        }
        if (!is_free) {
            mbarrier_wait(shared.q_empty(buffer), free_phase);
        }
        warp_arrive(shared.q_full(buffer));
    }
    wait_for_previous();
    if (args.leads) {
        let_next_start();
    }
}

template <int D>
struct Lane; // the dims of a row that a lane owns, as one load
template <>
struct Lane<128> {
    float4 v;
    __device__ __forceinline__ void load(const float *row, int lane)
    {
        v = __ldcg((const float4 *)row + lane);
    }
    __device__ __forceinline__ void zero()
    {
        v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    __device__ __forceinline__ void add(float f, const Lane &x)
    {
        v.x += f * x.v.x;
        v.y += f * x.v.y;
        v.z += f * x.v.z;
        v.w += f * x.v.w;
    }
    __device__ __forceinline__ void store(void *row, int lane, float f) const
    {
        ((uint2 *)row)[lane] = make_uint2(pack_bf16(v.x * f, v.y * f), pack_bf16(v.z * f, v.w * f));
    }
};
template <>
struct Lane<64> {
    float2 v;
    __device__ __forceinline__ void load(const float *row, int lane)
    {
        v = __ldcg((const float2 *)row + lane);
    }
    __device__ __forceinline__ void zero()
    {
        v = make_float2(0.0f, 0.0f);
    }
    __device__ __forceinline__ void add(float f, const Lane &x)
    {
        v.x += f * x.v.x;
        v.y += f * x.v.y;
    }
    __device__ __forceinline__ void store(void *row, int lane, float f) const
    {
        ((uint32_t *)row)[lane] = pack_bf16(v.x * f, v.y * f);
    }
};

// Joins the slots [first, first + count) of query head g of a kv head into `out`; one warp.
// 16 loads in flight: the join is a chain of latencies, not bytes.
template <int D>
__device__ __forceinline__ void
join_row(const DecodeArgs &args, uint32_t first, uint32_t count, uint32_t g, void *out)
{
    constexpr int kFlight = 16;
    const int lane = threadIdx.x & 31;
    const float *o = args.o + ((size_t)first * args.G + g) * D;
    const float2 *ml = args.ml + (size_t)first * args.G + g;
    const size_t o_pitch = (size_t)args.G * D;
    Lane<D> part[kFlight], sum;
    float2 mine = make_float2(-INFINITY, 0.0f);

#pragma unroll
    for (int i = 0; i < kFlight; i++) {
        part[i].zero();
        if ((uint32_t)i < count) {
            part[i].load(o + i * o_pitch, lane);
        }
    }
    float high = -INFINITY;
    for (uint32_t i = lane; i < count; i += 32) {
        high = fmaxf(high, __ldcg(ml + (size_t)i * args.G).x);
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        high = fmaxf(high, __shfl_xor_sync(~0u, high, i));
    }
    float l = 0.0f;
    float weight = 0.0f;
    sum.zero();
    for (uint32_t base = 0; base < count; base += kFlight) {
        if (base % 32 == 0) {
            mine = make_float2(-INFINITY, 0.0f);
            if (base + lane < count) {
                mine = __ldcg(ml + (size_t)(base + lane) * args.G);
            }
            weight = exp2_approx(mine.x - high);
            l += mine.y * weight;
        }
#pragma unroll
        for (int i = 0; i < kFlight; i++) {
            float w = __shfl_sync(~0u, weight, (base & 16) + i);
            sum.add(w, part[i]);
        }
        if (base + kFlight < count) {
#pragma unroll
            for (int i = 0; i < kFlight; i++) {
                part[i].zero();
                if (base + kFlight + i < count) {
                    part[i].load(o + (base + kFlight + i) * o_pitch, lane);
                }
            }
        }
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        l += __shfl_xor_sync(~0u, l, i);
    }
    sum.store(out, lane, l > 0.0f ? 1.0f / l : 0.0f);
}

// Where query head g of (row, kv head) goes.
template <int D>
__device__ __forceinline__ void *
out_row(const DecodeArgs &args, uint32_t row, uint32_t head, uint32_t g)
{
    return (uint16_t *)args.out + ((size_t)row * args.H + head * args.G + g) * D;
}

} // namespace

#endif
