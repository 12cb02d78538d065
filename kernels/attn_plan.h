/* SPDX-License-Identifier: Apache-2.0 */
/* attn_plan - how a device splits the attention of a step: a pure function of sizes, made once a
 * step for lazy_prefill and once for lazy_decode.
 *
 * An item is one CTA's work (for each key/value head): up to `tile_rows` packed rows (tokens x H /
 * Hkv) of one sequence against a run of its keys, which may go over several segments.  A tile of
 * rows whose keys would keep few CTAs busy for long (a query, or one new token, over long
 * documents) is split along the keys; its parts are partials that are joined afterwards.  Runs
 * begin at multiples of 64 tokens inside a segment, as the kernels' tiles do. */
#ifndef KERNELS_ATTN_PLAN_H
#define KERNELS_ATTN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_PLAN_TILE       64 /* keys */
#define ATTN_PLAN_SPLITS_MAX 64
#define ATTN_PLAN_FIXED_SPLITS                                                                     \
    9 /* at most, of a fixed cut: eight of the documents and one of the own tokens */
#define ATTN_PLAN_ITEMS_STEP                                                                       \
    8 /* items are filled up to a multiple, so that their number is steady */
#define ATTN_ITEM_DIRECT UINT32_MAX
#define ATTN_ITEM_NONE   UINT32_MAX

struct attn_item {
    uint32_t seq;       /* index into the sequences; ATTN_ITEM_NONE: no work */
    uint32_t row_begin; /* first packed row */
    uint32_t key_begin; /* in the concatenation of the sequence's segments */
    uint32_t key_end;
    uint32_t slot; /* partial of the sequence's token t: slot + t * slot_stride; or _DIRECT */
    uint32_t slot_stride; /* splits of this sequence */
};

/* What is to be split, and for which device. */
struct attn_plan_work {
    const struct attn_seq *seqs;
    uint32_t n_seqs;
    const struct attn_segment *segs;
    uint32_t group;     /* H / Hkv */
    uint32_t tile_rows; /* packed rows of a CTA: 64 in lazy_prefill, 16 in lazy_decode */
    uint32_t ctas;      /* that run at once, for each key/value head */
    /* A sequence is cut by its documents alone, never by what else the step holds: each row has the
     * same partials whenever it is computed.  `ctas` and wave_tiles say nothing then. */
    bool is_fixed;
    /* Key tiles a CTA should get where there is work for more than one wave of CTAs; 0: cut for one
     * wave only, and leave more than that whole. */
    uint32_t wave_tiles;
};

/* Caller-owned arrays; the counts are written by attn_plan_make. */
struct attn_plan {
    struct attn_item *items;
    uint32_t items_max;
    uint32_t *merge_rows;  /* rows of out whose partials are to be joined */
    uint32_t *merge_first; /* [merge_rows_max + 1] prefix sum over partials */
    uint32_t merge_rows_max;
    uint32_t partials_max;

    uint32_t n_items;
    uint32_t n_merge_rows;
    uint32_t n_partials;
};

/* Items enough for `rows` rows of at most `seqs` sequences, with some for cutting. */
uint32_t attn_plan_items_max(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t tile_rows,
                             uint32_t ctas);

/* The same for fixed cuts: an item for each part of each row tile.  The partials of a row are at
 * most ATTN_PLAN_FIXED_SPLITS. */
uint32_t attn_plan_items_fixed(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t tile_rows);

/* Items are ordered heaviest first where they differ by much (tile_rows > 16), so that the last
 * CTAs to finish are short.  ST_NO_MEMORY: fewer than one item a row tile, or with fixed cuts no
 * room for all parts. */
enum status attn_plan_make(const struct attn_plan_work *work, struct attn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
