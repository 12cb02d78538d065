/* SPDX-License-Identifier: Apache-2.0 */
/* prefill_plan - how lazy_prefill on sm_90a deals a step out to the multiprocessors: a pure
 * function of sizes, made once a step for all layers.
 *
 * An item is a tile of 128 packed rows (tokens x H / Hkv) of one sequence against a run of its
 * keys, which may go over several segments; keys come in tiles of 128 that begin at multiples of
 * 128 in their segment.  A task is an item for one key/value head.  Every multiprocessor runs one
 * CTA, which does its list of tasks one after the other.
 *
 * Tasks are dealt out heaviest first, each to the CTA with the least to do so far.  Where whole row
 * tiles would leave CTAs idle (a query over long documents), the tiles of a sequence are cut along
 * the keys into equal parts; their partials are joined by attn_merge. */
#ifndef KERNELS_PREFILL_PLAN_H
#define KERNELS_PREFILL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PREFILL_TILE         128 /* packed rows, and keys */
#define PREFILL_DIRECT       UINT32_MAX
#define PREFILL_SPLITS_MAX   64
#define PREFILL_FIXED_SPLITS 9 /* of a fixed cut: eight of the documents, one of the own tokens */
#define PREFILL_CTAS_MAX     1024 /* multiprocessors */
#define PREFILL_ITEM_WORDS   12
#define PREFILL_START_WORDS  20

/* The kernel reads it as words, in this order. */
struct prefill_item {
    uint32_t row_first; /* row in q and out of the sequence's first token */
    uint32_t row_begin; /* first packed row of the tile */
    uint32_t row_end;   /* packed rows of the sequence */
    uint32_t pos_first; /* logical position of the sequence's first row */
    uint32_t n_rows;    /* tokens of the sequence that are rows of this step */
    uint32_t seg;       /* the segment in which the run begins */
    uint32_t tok;       /* and the key in it */
    uint32_t n_tiles;   /* of keys, counted through the segments */
    uint32_t angle_at;  /* angles of (seg, first row) */
    uint32_t slot;      /* partial of the sequence's token t: slot + t * slot_stride; or _DIRECT */
    uint32_t slot_stride;
    uint32_t group; /* of sequences whose keys fit into L2 together; the plan's own */
};

/* What a CTA begins with, in one read: nothing of it is found by way of something else.  Words,
 * too. */
struct prefill_start {
    struct prefill_item item; /* of its first task, with the task's head in place of `group` */
    uint32_t n_tasks;
    uint32_t task_next; /* where the others stand in `tasks` */
    uint32_t task_end;
    uint32_t reserved;
    struct attn_segment segment; /* in which the item begins */
};

struct prefill_work {
    const struct attn_seq *seqs;
    uint32_t n_seqs;
    const struct attn_segment *segs;
    const uint32_t *angle_first; /* [n_seqs], attn_cuda.h */
    uint32_t Hkv;
    uint32_t group; /* H / Hkv */
    uint32_t D;
    uint32_t ctas; /* multiprocessors */
    /* A sequence is cut by its documents alone, never by what else the step holds: each row has the
     * same partials whenever it is computed. */
    bool is_fixed;
};

/* Caller-owned arrays; the counts are written by prefill_plan_make. */
struct prefill_plan {
    struct prefill_item *items;
    uint32_t items_max;
    uint32_t *tasks;     /* [items_max * Hkv]: item * Hkv + head, those of CTA c at cta_first[c] */
    uint32_t *cta_first; /* [ctas + 1] */
    struct prefill_start *starts; /* [ctas] */
    uint32_t *merge_rows;         /* rows of out whose partials are to be joined */
    uint32_t *merge_first;        /* [merge_rows_max + 1] prefix sum over partials */
    uint32_t merge_rows_max;
    uint32_t partials_max;

    uint32_t n_items;
    uint32_t n_merge_rows;
    uint32_t n_partials;
    uint32_t heaviest; /* key tiles of the CTA that has most */
};

/* Items enough for `rows` rows of at most `seqs` sequences, with some for cutting. */
uint32_t prefill_plan_items_max(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t ctas,
                                bool is_fixed);

/* ST_NO_MEMORY: fewer than one item a row tile, or with fixed cuts no room for all parts. */
enum status prefill_plan_make(const struct prefill_work *work, struct prefill_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
