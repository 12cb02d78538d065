/* SPDX-License-Identifier: Apache-2.0 */
/* attn_row - attention of a block of (row, head) pairs over one chunk of a segment, for the CPU
 * twins.
 *
 * lazy_prefill and lazy_decode are both made of attn_items_*: rotate the queries for a segment,
 * then one partial (o, m, l) per chunk of LAZY_DECODE_CHUNK keys, merged in order by
 * attn_lanes_merge or attn_state_merge.  A pair's partial depends on its own query and on the keys
 * it sees, never on the other pairs of the block, so the two operations agree bitwise whatever the
 * batch, the chunking or the threads. */
#ifndef KERNELS_ATTN_ROW_H
#define KERNELS_ATTN_ROW_H

#include "common/status.h"
#include "kernels/attn_desc.h"
#include "kernels/attn_tile.h"
#include "kernels/lazy_decode.h"
#include "kernels/lazy_prefill.h"
#include "kernels/rope_angle.h"

/* Pairs i = 0.. of one sequence and key/value head: row (first + i) / G, query head (first + i) %
 * G. */
struct attn_items {
    const struct attn_seq *seq;
    uint32_t kv_head;
    uint32_t first;
    uint32_t count; /* <= ATTN_ITEMS */
};

/* Keys that a call of attn_items_chunk fetches from memory for the one after it. */
struct attn_next {
    const struct attn_segment *seg; /* NULL: none */
    uint32_t kv_head;
    uint32_t key;
};

/* Working memory of one thread; about 170 KiB, lives on its stack. */
struct attn_scratch {
    float rows[ATTN_ITEMS][ATTN_D_MAX]; /* queries rotated for the segment in hand ... */
    float q[ATTN_D_MAX][ATTN_ITEMS];    /* ... and as attn_tile_add takes them */
    uint64_t visible[ATTN_ITEMS];       /* keys of that segment each pair sees */
    struct attn_lanes part;
    struct attn_tile tile;
};

/* ST_INVALID names what is wrong: layout, heads, layer, a block id past the arena. */
enum status attn_check(const struct attn_desc *desc);

/* Sets scratch->q and ->visible for a segment; returns the largest `visible`.  The table of angles
 * is of the same frequencies, or NULL. */
uint64_t attn_items_rotate(const struct attn_desc *desc, const struct rope_table *table,
                           const float *q, struct attn_items items, const struct attn_segment *seg,
                           struct attn_scratch *scratch);

/* Fetches the first tile of a segment's keys from memory, for a call that comes soon. */
void attn_fetch_keys(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t head);

/* Sets scratch->part to the partials over keys [chunk, chunk + 1) * LAZY_DECODE_CHUNK of the
 * segment. */
void attn_items_chunk(const struct attn_desc *desc, struct attn_items items,
                      const struct attn_segment *seg, uint32_t chunk, struct attn_next next,
                      struct attn_scratch *scratch);

/* Independent pieces of work of a call, in any order and on any thread, after the check passed.
 * lazy_prefill_ref and lazy_decode_ref run them all. */
enum status lazy_prefill_check(const struct lazy_prefill_args *args);
uint32_t lazy_prefill_units(const struct lazy_prefill_args *args);
void lazy_prefill_unit(const struct lazy_prefill_args *args, const struct rope_table *table,
                       uint32_t unit);

enum status lazy_decode_check(const struct lazy_decode_args *args);
uint32_t lazy_decode_units(const struct lazy_decode_args *args);
void lazy_decode_unit(const struct lazy_decode_args *args, const struct rope_table *table,
                      uint32_t unit);

#endif
