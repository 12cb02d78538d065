/* SPDX-License-Identifier: Apache-2.0 */
/* attn_plan - how a device splits lazy_prefill: a pure function of sizes, made once a step.
 *
 * An item is one CTA's work (for each key/value head): up to ATTN_PLAN_ROWS packed rows
 * (tokens x H / Hkv) of one sequence against a run of its keys.  A tile of rows whose keys would
 * keep few CTAs busy for long (a short query over long documents) is split along the keys; its
 * parts are partials that attn_merge joins.  Runs begin at multiples of 64 tokens inside a segment,
 * as the kernel's tiles do.  Items are ordered heaviest first, so that the last CTAs to finish are
 * short. */
#ifndef KERNELS_ATTN_PLAN_H
#define KERNELS_ATTN_PLAN_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_PLAN_ROWS       64
#define ATTN_PLAN_TILE       64 /* keys */
#define ATTN_PLAN_SPLITS_MAX 64
#define ATTN_ITEM_DIRECT     UINT32_MAX

struct attn_item {
    uint32_t seq;       /* index into the step's prefill sequences */
    uint32_t row_begin; /* first packed row */
    uint32_t key_begin; /* in the concatenation of the sequence's segments */
    uint32_t key_end;
    uint32_t slot; /* partial of the sequence's token t: slot + t * slot_stride; or _DIRECT */
    uint32_t slot_stride; /* splits of this sequence */
};

/* Caller-owned arrays; the counts are written by attn_plan_prefill. */
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

/* Items that `rows` query tokens in at most `seqs` sequences can need, splits included, when
 * `ctas` (SMs times resident CTAs, over the key/value heads) bound the splitting. */
uint32_t attn_plan_items_max(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t ctas);

/* Plans the step's prefill sequences for a device that runs `ctas` CTAs a head at once.
 * ST_NO_MEMORY if an array is too small (its name and need in the detail). */
enum status attn_plan_prefill(const struct attn_step *step, uint32_t ctas, struct attn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
