/* SPDX-License-Identifier: Apache-2.0 */
// prefill_sm90 - what the producer and the consumers of lazy_prefill on sm_90a share: arguments,
// the places in shared memory, the walk over tasks and key tiles, the rotation of Q.
#ifndef KERNELS_DEVICE_PREFILL_SM90_CUH
#define KERNELS_DEVICE_PREFILL_SM90_CUH

#include "kernels/device/ck8.cuh"
#include "kernels/device/sm90.cuh"
#include "kernels/lazy_prefill_sm90.h"

namespace {

// What the kernel is launched with.
struct prefill_sm90_args {
    attn_desc desc;
    const void *q;
    void *out;
    prefill_device_plan plan;
    uint32_t group_magic; // for token_of
};

// What makes __umulhi a division by `group`: exact while the dividend is below 2^32 / group.
inline uint32_t
magic_of(uint32_t group)
{
    return group == 1 ? 0 : UINT32_MAX / group + 1;
}

// The token of a packed row.
__device__ __forceinline__ uint32_t
token_of(const prefill_sm90_args &args, uint32_t row)
{
    return args.group_magic == 0 ? row : __umulhi(row, args.group_magic);
}

constexpr int kTile = PREFILL_TILE; // packed rows, and keys
constexpr int kStagesK = 3;
constexpr int kStagesV = 2;
constexpr int kStagesQ = 2;
constexpr int kItemSlots = 4; // items that producer and consumers may have open at once
constexpr int kWarpgroup = 128;
constexpr int kConsumerWarps = 8;
constexpr int kThreads = 3 * kWarpgroup;
constexpr int kRotatorWarps = 3;
constexpr int kRotators = kRotatorWarps * 32;
// -DUNROTATED: Q is fetched, not turned, for measuring what rotation costs.
#ifdef UNROTATED
constexpr bool kRotates = false;
#else
constexpr bool kRotates = true;
#endif
constexpr float kLog2e = 1.4426950408889634f;
// Of the 64 Ki registers (504 for each third thread).
constexpr int kRegistersProducer = 88;
constexpr int kRegistersConsumer = 208;

// What a key tile is to its consumers.
enum : uint32_t {
    kNewQ = 1,    // the next rotated Q: another segment or another item
    kNewItem = 2, // the output of the item before is to be written
    kMasked = 4,  // some row does not see all 128 keys
    kFresh = 8,   // some row has seen no key of the item before
    kEnd = 16,    // no tile: the list is done
};

// Byte offsets into shared memory; every tile is 1024-byte aligned, as the swizzle asks.
template <int D>
struct Places {
    static constexpr uint32_t kBytes = kTile * D * 2; // of a tile of Q, K or V
    static constexpr uint32_t kUnit = D * 16;         // 8 rows of one
    static constexpr uint32_t kQ = 0;
    static constexpr uint32_t kK = kQ + kStagesQ * kBytes;
    static constexpr uint32_t kV = kK + kStagesK * kBytes;
    static constexpr uint32_t kFullK = kV + kStagesV * kBytes; // mbarriers, 8 bytes each
    static constexpr uint32_t kEmptyK = kFullK + kStagesK * 8;
    static constexpr uint32_t kFullV = kEmptyK + kStagesK * 8;
    static constexpr uint32_t kEmptyV = kFullV + kStagesV * 8;
    static constexpr uint32_t kFullQ = kEmptyV + kStagesV * 8;
    static constexpr uint32_t kEmptyQ = kFullQ + kStagesQ * 8;
    static constexpr uint32_t kHot = kEmptyQ + kStagesQ * 8;      // 2 words a warpgroup
    static constexpr uint32_t kInfo = (kHot + 16 + 15) / 16 * 16; // uint4 a K stage
    static constexpr uint32_t kItems = kInfo + kStagesK * 16;     // PREFILL_ITEM_WORDS and the head
    static constexpr uint32_t kItemWords = 16;
    static constexpr uint32_t kEndOfAll = kItems + kItemSlots * kItemWords * 4;
};
static_assert(Places<128>::kEndOfAll <= 227 * 1024, "fits a block of sm_90");

// Words of a prefill_item.
enum : int {
    kRowFirst,
    kRowBegin,
    kRowEnd,
    kPosFirst,
    kNRows,
    kSeg,
    kTok,
    kNTiles,
    kAngleAt,
    kSlot,
    kSlotStride,
    kHead, // the plan's own in memory: the kernel puts the task's head there
};
static_assert(sizeof(prefill_item) == 4 * PREFILL_ITEM_WORDS && kHead + 1 == PREFILL_ITEM_WORDS,
              "an item is read as words");
// Words of a prefill_start behind its item.
enum : int {
    kNTasks = PREFILL_ITEM_WORDS,
    kTaskNext,
    kTaskEnd,
    kSegmentWords = kTaskEnd + 2,
};
static_assert(sizeof(prefill_start) == 4 * PREFILL_START_WORDS
                  && kSegmentWords + 4 == PREFILL_START_WORDS,
              "a start is read as words");

// What the CTA begins with, a word a lane.
__device__ __forceinline__ uint32_t
fetch_start(const prefill_sm90_args &args)
{
    const uint32_t lane = threadIdx.x & 31;

    return lane < PREFILL_START_WORDS
               ? __ldg((const uint32_t *)(args.plan.starts + blockIdx.x) + lane)
               : 0;
}

// A task's item, a word a lane (lanes 0..11).
__device__ __forceinline__ uint32_t
fetch_item(const prefill_sm90_args &args, uint32_t task_at, uint32_t task_end)
{
    const uint32_t lane = threadIdx.x & 31;

    if (task_at >= task_end || lane >= PREFILL_ITEM_WORDS) {
        return 0;
    }
    const uint32_t Hkv = args.desc.layout.Hkv;
    const uint32_t task = __ldg(args.plan.tasks + task_at);
    const uint32_t word = __ldg((const uint32_t *)(args.plan.items + task / Hkv) + lane);
    return lane == kHead ? task % Hkv : word;
}

__device__ __forceinline__ uint32_t
word_of(uint32_t item, int word)
{
    return __shfl_sync(~0u, item, word);
}

// The items of a CTA's tasks, each asked for a task ahead of its use.
struct ItemList {
    uint32_t at, end;     // the task of `ahead`
    uint32_t here, ahead; // words, one a lane

    __device__ __forceinline__ ItemList(const prefill_sm90_args &args, uint32_t start)
        : at(word_of(start, kTaskNext)), end(word_of(start, kTaskEnd)), here(start)
    {
        ahead = fetch_item(args, at, end);
    }

    // False behind the last.
    __device__ __forceinline__ bool advance(const prefill_sm90_args &args)
    {
        if (at == end) {
            return false;
        }
        here = ahead;
        at++;
        ahead = fetch_item(args, at, end);
        return true;
    }
};

// Walks the runs of one item: pieces of it that lie in one segment.  All lanes of a warp together.
struct RunWalk {
    uint32_t seg;
    uint32_t tok;      // first key of the run, inside the segment
    uint32_t n_tiles;  // of the run
    uint32_t left;     // tiles of the item after it
    uint32_t angle_at; // angles of (segment, first row)
    attn_segment here;
    uint4 ahead; // words of the next segment, asked for before they are needed

    // The first run of a CTA.
    __device__ __forceinline__ RunWalk(const prefill_sm90_args &args, uint32_t start)
    {
        ahead = make_uint4(word_of(start, kSegmentWords), word_of(start, kSegmentWords + 1),
                           word_of(start, kSegmentWords + 2), 0);
        begin(args, start);
    }

    __device__ __forceinline__ void open(const prefill_sm90_args &args, uint32_t item)
    {
        ahead = words_of(args, word_of(item, kSeg));
        begin(args, item);
    }

    // With the words of its segment in `ahead`.
    __device__ __forceinline__ void begin(const prefill_sm90_args &args, uint32_t item)
    {
        seg = word_of(item, kSeg);
        tok = word_of(item, kTok);
        left = word_of(item, kNTiles);
        angle_at = word_of(item, kAngleAt);
        if (left == 0) { // an item without a key: one run of one tile that nobody sees
            here = attn_segment{0, 0, 0, 0};
            tok = 0;
            n_tiles = 1;
        } else {
            enter(args, item);
        }
    }

    __device__ __forceinline__ uint4 words_of(const prefill_sm90_args &args, uint32_t segment) const
    {
        return __ldg((const uint4 *)(args.desc.segs + segment));
    }

    __device__ __forceinline__ void enter(const prefill_sm90_args &args, uint32_t item)
    {
        here = attn_segment{ahead.x, ahead.y, ahead.z, 0};
        while (tok >= here.n_tokens) {
            next_segment(item);
            ahead = words_of(args, seg);
            here = attn_segment{ahead.x, ahead.y, ahead.z, 0};
        }
        n_tiles = min((here.n_tokens - tok + kTile - 1) / kTile, left);
        left -= n_tiles;
        if (left > 0) {
            ahead = words_of(args, seg + 1);
        }
    }

    __device__ __forceinline__ void next_segment(uint32_t item)
    {
        seg++;
        tok = 0;
        angle_at += word_of(item, kNRows);
    }

    // False when the item is done.
    __device__ __forceinline__ bool advance(const prefill_sm90_args &args, uint32_t item)
    {
        if (left == 0) {
            return false;
        }
        next_segment(item);
        enter(args, item);
        return true;
    }
};

// What a rotation needs to know of an item.
struct Turn {
    uint32_t q_at; // its packed row 0 among the [rows, H] of q
    uint32_t row_begin, row_end;
    uint32_t angle_at;
};

__device__ __forceinline__ Turn
turn_of(const prefill_sm90_args &args, uint32_t item)
{
    return Turn{word_of(item, kRowFirst) * args.desc.H + word_of(item, kHead) * args.plan.group,
                word_of(item, kRowBegin), word_of(item, kRowEnd), word_of(item, kAngleAt)};
}

// Rows of a tile of Q turned for one segment: from global memory to `shared`, in the ck8 layout, by
// kCount threads.  A thread takes 8 dims and their 8 partners, so that a rotation needs no
// exchange, of kShare rows of one token, which turn alike.  Raw rows come by cp.async to where the
// turned ones will be, so many are on their way at once; each thread only touches what it fetched
// itself.
template <int D, int kRows, int kCount, int kShare>
struct Rotation {
    static constexpr uint32_t kPairs = D / 16; // of 16-byte chunks in a row
    static constexpr uint32_t kJobs = kRows / kShare * kPairs;
    static_assert(kCount % kPairs == 0, "a thread stays with its dims");

    const prefill_sm90_args &args;
    const uint32_t first; // row of the tile
    const uint32_t thread;

    __device__ __forceinline__ uint32_t local_row(uint32_t job) const
    {
        return first + job / kPairs * kShare;
    }

    __device__ __forceinline__ void fetch(const Turn &turn, uint32_t shared) const
    {
        const uint32_t c = thread % kPairs;

#pragma unroll 1
        for (uint32_t job = thread; job < kJobs; job += kCount) {
            const uint32_t r = turn.row_begin + local_row(job);
            const uint32_t t = token_of(args, r);
            const bool is_row = r < turn.row_end;
            const size_t at = (size_t)turn.q_at + (size_t)t * args.desc.H + r - t * args.plan.group;
            const uint4 *q = (const uint4 *)args.q + (is_row ? at * (D / 8) + c : 0);

#pragma unroll
            for (int i = 0; i < kShare; i++) {
                const uint32_t local = local_row(job) + i;

                cp_async_16(shared + ck8_chunk_offset(D, local, c), q + i * (D / 8) * is_row,
                            is_row);
                cp_async_16(shared + ck8_chunk_offset(D, local, c + kPairs),
                            q + (i * (D / 8) + kPairs) * is_row, is_row);
            }
        }
        cp_async_commit();
    }

    __device__ __forceinline__ void fetch_turns(const Turn &turn, uint32_t job,
                                                float4 (&turns)[4]) const
    {
        const uint32_t t = token_of(args, min(turn.row_begin + local_row(job), turn.row_end - 1));
        const float4 *from = (const float4 *)args.plan.angles
                             + ((size_t)turn.angle_at + t) * (D / 4) + thread % kPairs * 4;

#pragma unroll
        for (int i = 0; i < 4; i++) {
            turns[i] = __ldg(from + i);
        }
    }

    // All loads before the first store: the compiler keeps their order.
    __device__ __forceinline__ void rotate(uint32_t job, uint32_t shared,
                                           const float4 (&turns)[4]) const
    {
        const uint32_t c = thread % kPairs;
        constexpr int kAtOnce = kShare < 2 ? kShare : 2;

#pragma unroll
        for (int from = 0; from < kShare; from += kAtOnce) {
            const uint32_t row = local_row(job) + from;
            uint4 a[kAtOnce], b[kAtOnce];

#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                a[i] = load_shared_16(shared + ck8_chunk_offset(D, row + i, c));
                b[i] = load_shared_16(shared + ck8_chunk_offset(D, row + i, c + kPairs));
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; i++) {
                rotate_chunk(a[i], b[i], turns);
                store_shared_16(shared + ck8_chunk_offset(D, row + i, c), a[i]);
                store_shared_16(shared + ck8_chunk_offset(D, row + i, c + kPairs), b[i]);
            }
        }
    }

    // What was fetched, but for the last kPending fetches; `turns` are those of the first job.
    template <int kPending>
    __device__ __forceinline__ void finish(const Turn &turn, uint32_t shared,
                                           float4 (&turns)[4]) const
    {
        float4 next[4];

        cp_async_wait<kPending>();
#pragma unroll 1
        for (uint32_t job = thread; kRotates && job < kJobs; job += kCount) {
            fetch_turns(turn, job + kCount < kJobs ? job + kCount : job, next);
            rotate(job, shared, turns);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                turns[i] = next[i];
            }
        }
    }
};

} // namespace

#endif
