/* SPDX-License-Identifier: Apache-2.0 */
// prefill_produce - the warps of lazy_prefill on sm_90a that bring data: one warp copies key tiles,
// three rotate Q.
#ifndef KERNELS_DEVICE_PREFILL_PRODUCE_CUH
#define KERNELS_DEVICE_PREFILL_PRODUCE_CUH

#include "kernels/device/prefill_sm90.cuh"

namespace {

// A key tile on its way: everything that its copies need.
struct KeyTile {
    uint32_t item;  // words, one a lane
    uint32_t flags; // of the consumers; kEnd: there is none
    uint32_t end;   // keys in it, 1 to 128; 0: of an item without keys
    uint32_t first; // logical position of its first key
    uint32_t page;  // id of the page that this lane copies
};

// The copying warp: walks tiles one ahead of the copies, so that page ids are there when needed.
// Each run from its end to its beginning: what is masked or partial then comes first, with the new
// Q, and all that follow are plain.
template <int D>
struct Producer {
    using At = Places<D>;

    const prefill_sm90_args &args;
    const uint32_t smem;
    const uint32_t lane;
    const uint32_t page_shift;
    const uint32_t head_bytes;
    ItemList items;
    RunWalk run;
    uint32_t tile;  // of the run
    uint32_t fresh; // kNewItem, kNewQ: of the tile at hand; kEnd: there is none
    bool is_seen;   // each row has seen a key of the item

    __device__ __forceinline__ Producer(const prefill_sm90_args &a, uint32_t shared, uint32_t start)
        : args(a), smem(shared), lane(threadIdx.x & 31), page_shift(a.desc.layout.P == 16   ? 4
                                                                    : a.desc.layout.P == 32 ? 5
                                                                                            : 6),
          head_bytes(a.desc.layout.P * D * 2), items(a, start), run(a, start), tile(0),
          fresh(kNewItem | kNewQ), is_seen(false)
    {}

    __device__ __forceinline__ void open_item()
    {
        fresh = kEnd;
        if (items.advance(args)) {
            run.open(args, items.here);
            fresh = kNewItem | kNewQ;
            is_seen = false;
        }
    }

    // The tile at hand, and on to the next.
    __device__ __forceinline__ KeyTile next()
    {
        KeyTile t = {0, kEnd, 0, 0, 0};

        if (fresh == kEnd) {
            return t;
        }
        const uint32_t item = items.here;
        const uint32_t tok = run.tok + (run.n_tiles - 1 - tile) * kTile;
        t.item = item;
        t.end = min(run.here.n_tokens - tok, (uint32_t)kTile);
        t.first = run.here.offset + tok;
        t.flags = fresh;
        const uint32_t pos_of_row0 =
            word_of(item, kPosFirst) + word_of(item, kRowBegin) / args.plan.group;
        if (t.end < kTile || pos_of_row0 < t.first || pos_of_row0 - t.first < kTile - 1) {
            t.flags |= kMasked;
        }
        t.flags |= is_seen ? 0 : kFresh;
        is_seen |= pos_of_row0 >= t.first && t.end > 0;
        if (lane << page_shift < t.end) {
            t.page = __ldg(args.desc.block_ids + run.here.block_first + (tok >> page_shift) + lane);
        }
        fresh = 0;
        if (++tile == run.n_tiles) {
            tile = 0;
            fresh = kNewQ;
            if (!run.advance(args, item)) {
                open_item();
            }
        }
        return t;
    }

    // K and V of a tile: each page is contiguous in the pool and lies in the tile as it lies there.
    __device__ __forceinline__ const char *source(const KeyTile &t) const
    {
        const uint64_t layer_bytes = (uint64_t)2 * args.desc.layout.Hkv * head_bytes;

        return (const char *)args.desc.kv
               + ((uint64_t)t.page * args.desc.layout.L + args.desc.layer) * layer_bytes
               + word_of(t.item, kHead) * head_bytes;
    }

    __device__ __forceinline__ void copy(uint32_t pages, const char *from, uint32_t to,
                                         uint32_t bar, uint64_t policy) const
    {
        if (lane == 0) {
            mbarrier_arrive_expect(bar, pages * head_bytes);
        }
        __syncwarp();
        if (lane < pages) {
            bulk_load(to + lane * head_bytes, from, head_bytes, bar, policy);
        }
    }

    __device__ __forceinline__ void run_all()
    {
        const uint32_t v_offset = args.desc.layout.Hkv * head_bytes;
        const uint64_t policy = args.plan.is_split ? l2_evict_first() : l2_evict_normal();
        uint32_t k = 0, k_parity = 1, n_items = 0;
        const char *v_from = NULL; // of the tile before, whose V is still to be copied
        uint32_t v_pages = 0;
        KeyTile now = next();

#pragma unroll 1
        for (uint32_t n = 0;; n++) {
            const KeyTile ahead = next();

            mbarrier_wait(smem + At::kEmptyK + k * 8, k_parity);
            tell(now, k, n_items);
            n_items += (now.flags & kNewItem) != 0;
            const char *from = source(now);
            const uint32_t pages = (now.end + args.desc.layout.P - 1) >> page_shift;

            // The last one is no tile: it only tells the consumers.
            copy(pages, from, smem + At::kK + k * At::kBytes, smem + At::kFullK + k * 8, policy);
            k_parity ^= ++k == kStagesK;
            k = k == kStagesK ? 0 : k;
            if (n > 0) {
                const uint32_t v = (n - 1) % kStagesV;

                mbarrier_wait(smem + At::kEmptyV + v * 8, ((n - 1) / kStagesV & 1) ^ 1);
                copy(v_pages, v_from, smem + At::kV + v * At::kBytes, smem + At::kFullV + v * 8,
                     policy);
            }
            if (now.flags & kEnd) {
                break;
            }
            v_from = from + v_offset;
            v_pages = pages;
            now = ahead;
        }
    }

    // Writes beside stage k what its consumers have to know.
    __device__ __forceinline__ void tell(const KeyTile &t, uint32_t k, uint32_t n_items) const
    {
        if ((t.flags & kNewItem) != 0 && lane < PREFILL_ITEM_WORDS) {
            store_shared_4(smem + At::kItems + ((n_items % kItemSlots) * At::kItemWords + lane) * 4,
                           t.item);
        }
        if (lane == 0) {
            store_shared_16(smem + At::kInfo + k * 16, make_uint4(t.flags, t.end, t.first, 0));
        }
        __syncwarp();
    }
};

// The rotating warps: one rotated Q after the other, always ahead of the consumers (who rotate the
// very first themselves: nobody has anything else to do then).  Where the consumers have to wait
// for it, the raw rows of the next are on their way while one is being rotated.
template <int D, int kShare>
struct Rotator {
    using At = Places<D>;
    using Rows = Rotation<D, kTile, kRotators, kShare>;

    const prefill_sm90_args &args;
    const uint32_t smem;
    ItemList items;
    RunWalk run;
    uint32_t n; // of the rotated Q that `turn` leads to
    Turn turn;

    __device__ __forceinline__ Rotator(const prefill_sm90_args &a, uint32_t shared, uint32_t start)
        : args(a), smem(shared), items(a, start), run(a, start), n(0), turn(turn_of(a, start))
    {}

    // False at the end of the list.
    __device__ __forceinline__ bool next()
    {
        n++;
        if (!run.advance(args, items.here)) {
            if (!items.advance(args)) {
                return false;
            }
            run.open(args, items.here);
            turn = turn_of(args, items.here);
        }
        turn.angle_at = run.angle_at;
        return true;
    }

    __device__ __forceinline__ uint32_t place() const
    {
        return smem + At::kQ + n % kStagesQ * At::kBytes;
    }

    __device__ __forceinline__ uint32_t empty() const
    {
        return smem + At::kEmptyQ + n % kStagesQ * 8;
    }

    __device__ __forceinline__ uint32_t parity() const
    {
        return (n / kStagesQ & 1) ^ 1;
    }

    __device__ __forceinline__ void tell_full(uint32_t slot) const
    {
        fence_proxy_async();
        warp_arrive(smem + At::kFullQ + slot * 8);
    }

    __device__ __forceinline__ void run_all()
    {
        const Rows rows = {args, 0, threadIdx.x - 32};

        if (!next()) {
            return;
        }
        mbarrier_wait(empty(), parity());
        rows.fetch(turn, place());
        for (;;) {
            const Turn now = turn;
            const uint32_t to = place();
            const uint32_t slot = n % kStagesQ;
            float4 turns[4];

            rows.fetch_turns(now, rows.thread, turns);
            const bool has_next = next();
            const bool is_ahead = has_next && __all_sync(~0u, mbarrier_test(empty(), parity()));

            if (is_ahead) {
                rows.fetch(turn, place());
                rows.template finish<1>(now, to, turns);
            } else {
                rows.template finish<0>(now, to, turns);
            }
            tell_full(slot);
            if (!has_next) {
                break;
            }
            if (!is_ahead) {
                mbarrier_wait(empty(), parity());
                rows.fetch(turn, place());
            }
        }
    }
};

} // namespace

#endif
