/* SPDX-License-Identifier: Apache-2.0 */
/* decode_plan - how lazy_decode on sm_90 shares out the documents and rows of a step: a pure
 * function of the step, made once for all its layers.
 *
 * A group is a set of requests and the documents that all of them cite (found by their blocks, at
 * any offset and in any slot); what a request shares with nobody is a group of one.  The packed
 * rows of a group, (request, query head of the kv head), form one tensor-core tile of 16, 64 or 128
 * rows, so one read of a document's keys and values serves all of them.  A stream is (group, kv
 * head): its documents end to end in tiles of 64 keys.  Streams are cut into units, the work that a
 * CTA takes at once; a cut leaves one partial for each request, and a request's partials of all its
 * groups are joined afterwards.
 *
 * The order of the requests changes nothing but names: they are sorted by what they hold first, so
 * a step gives the same bits in any order. */
#ifndef KERNELS_DECODE_PLAN_H
#define KERNELS_DECODE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DECODE_TILE      64 /* keys; a multiple of every block size */
#define DECODE_TILE_IDS  4  /* blocks of a tile at most */
#define DECODE_GROUP_MAX 128

/* Rows of a tile.  Each kind is a kernel of its own. */
enum decode_kind {
    DECODE_ROWS_16,
    DECODE_ROWS_64,
    DECODE_ROWS_128,
    DECODE_KINDS,
};

#define DECODE_ITEM_FLUSH 0x10000u /* the cut ends here: write the partials */
#define DECODE_ITEM_OWN   0x20000u /* its keys may be written by the kernel before this one */

/* A run of keys of one document for one group and kv head; 48 bytes, as the kernels load it. */
struct decode_item {
    uint32_t block_first; /* index into block_ids; the run begins with this block */
    uint32_t n_tokens;    /* > 0 */
    uint32_t next;        /* the unit's next item, 0: none */
    uint32_t head;        /* kv head | DECODE_ITEM_* */
    uint32_t sharers;     /* first of its decode_sharer */
    uint32_t flush;       /* first of its decode_flush, one for each sharer */
    uint32_t n_sharers;
    uint32_t reserved;
    uint32_t ids[DECODE_TILE_IDS]; /* of its first tile */
};

struct decode_sharer {
    uint32_t row;    /* of q and out */
    uint32_t angles; /* row of the angles that turn it to this document */
};

/* Where a request's partial of a cut goes: slot, one of the `count` from `first` on that are joined
 * into its row. */
struct decode_flush {
    uint32_t row;
    uint32_t slot;
    uint32_t first;
    uint32_t count;
};

/* The slots of (sequence, kv head). */
struct decode_join {
    uint32_t first;
    uint32_t count; /* 0: the row sees no key */
    uint32_t row;   /* of q and out */
    uint32_t reserved;
};

/* How streams are cut; all 0: as measured best. */
struct decode_tuning {
    uint32_t unit_tiles;     /* > 0: units of so many tiles, taken one by one */
    uint32_t ctas_per_sm;    /* of DECODE_ROWS_16 and _64 */
    uint32_t static_percent; /* of every stream: dealt out beforehand, the rest in short units */
    uint32_t tail_tiles;     /* of those */
    uint32_t sms_128;        /* 1: DECODE_ROWS_128 runs beside the others, by cost */
    uint32_t cut_tiles;      /* what a cut costs beside its tiles, in tiles */
    uint32_t joins;          /* 1: always a kernel of its own joins; 2: the last CTA, if it can */
    uint32_t widens; /* 1: all go with tiles of 128 rows, if there are; 2: 16 apart from 64 */
};

struct decode_plan_work {
    const struct attn_seq *seqs; /* n_rows == 1; each another row_first */
    uint32_t n_seqs;
    const struct attn_segment *segs;
    const uint32_t *block_ids;   /* in the host's memory */
    const uint32_t *angle_first; /* [n_seqs] angle row of a sequence's first segment */
    uint32_t Hkv;
    uint32_t group; /* H / Hkv, up to DECODE_GROUP_MAX */
    uint32_t P;
    uint32_t sm_count;
    bool is_shared; /* documents of several requests are read once */
    /* A sequence is cut by its own length and nothing else, and shares nothing: its result has the
     * same bits in any company. */
    bool is_fixed;
    struct decode_tuning tuning;
};

/* Caller-owned arrays and their sizes; the counts are written by decode_plan_make. */
struct decode_plan {
    struct decode_item *items[DECODE_KINDS]; /* a kind's unit n begins at its item n */
    uint32_t items_max[DECODE_KINDS];
    struct decode_sharer *sharers;
    uint32_t sharers_max;
    struct decode_flush *flushes; /* one a slot */
    uint32_t slots_max;
    struct decode_join *joins; /* [n_seqs * Hkv] */

    uint32_t n_items[DECODE_KINDS];
    uint32_t n_units[DECODE_KINDS];
    uint32_t ctas[DECODE_KINDS];   /* to launch; 0: the kind has no work */
    uint32_t per_sm[DECODE_KINDS]; /* of them */
    uint32_t n_sharers;
    uint32_t n_slots;
    uint32_t rows_max;    /* packed rows of the fullest tile of DECODE_ROWS_16 */
    bool joins_in_kernel; /* the last CTA to finish a row joins it */
};

/* Enough for every step of these bounds when nothing is shared; sharing that does not fit is left
 * out. */
uint32_t decode_plan_items_max(uint32_t seqs_max, uint32_t segs_max, uint32_t Hkv,
                               uint32_t sm_count);
uint32_t decode_plan_slots_min(uint32_t seqs_max, uint32_t Hkv, uint32_t sm_count);

/* Scratch memory of the planner. */
struct decode_planner;

enum status decode_planner_new(uint32_t seqs_max, uint32_t segs_max, uint32_t Hkv,
                               struct decode_planner **planner_out);
void decode_planner_destroy(struct decode_planner **planner);

/* ST_INVALID: a sequence with n_rows != 1 or a group too large.  ST_NO_MEMORY: more sequences or
 * segments than the planner was made for, or arrays too small. */
enum status decode_plan_make(struct decode_planner *planner, const struct decode_plan_work *work,
                             struct decode_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
