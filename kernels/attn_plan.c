/* SPDX-License-Identifier: Apache-2.0 */
/* The split in one sentence: a share is what each CTA would get if the keys of all tiles were dealt
 * out evenly over the CTAs that run at once; a tile with more than a share and a half is cut into
 * shares.  Rounded so that they are no more than run at once: one CTA too many is a wave of its
 * own. */
#include "kernels/attn_plan.h"

#include <assert.h>
#include <stdlib.h>

#define SHARE_KEYS_MIN 256  /* below it a partial costs more than it saves */
#define FIXED_KEYS_MIN 1024 /* likewise, where every row pays for its partials */

static uint32_t
tiles_of(uint32_t n_tokens)
{
    return (n_tokens + ATTN_PLAN_TILE - 1) / ATTN_PLAN_TILE;
}

/* Keys of a segment that a row at position `pos` can see. */
static uint32_t
visible(const struct attn_segment *seg, uint32_t pos)
{
    if (pos < seg->offset) {
        return 0;
    }
    return pos - seg->offset < seg->n_tokens ? pos - seg->offset + 1 : seg->n_tokens;
}

/* Position of the last token of a row tile. */
static uint32_t
last_position(const struct attn_plan_work *work, const struct attn_seq *seq, uint32_t row_begin)
{
    uint32_t row_last = row_begin + work->tile_rows - 1;
    uint32_t rows = seq->n_rows * work->group;

    return seq->pos_first + (row_last < rows ? row_last : rows - 1) / work->group;
}

/* Key tiles that a row tile has to look at: whole segments, the last one only as far as it sees. */
static uint32_t
count_tiles(const struct attn_plan_work *work, const struct attn_seq *seq, uint32_t pos)
{
    uint32_t tiles = 0;

    for (uint32_t s = 0; s < seq->n_segs; s++) {
        const struct attn_segment *seg = &work->segs[seq->seg_first + s];

        tiles += tiles_of(s + 1 < seq->n_segs ? seg->n_tokens : visible(seg, pos));
    }
    return tiles;
}

/* The key at which tile number `tile` begins, counted through the segments; the end past the last.
 */
static uint32_t
key_of_tile(const struct attn_plan_work *work, const struct attn_seq *seq, uint32_t pos,
            uint32_t tile)
{
    uint32_t key = 0;

    for (uint32_t s = 0; s < seq->n_segs; s++) {
        const struct attn_segment *seg = &work->segs[seq->seg_first + s];
        uint32_t n_tokens = s + 1 < seq->n_segs ? seg->n_tokens : visible(seg, pos);

        if (tile < tiles_of(n_tokens)) {
            return key + tile * ATTN_PLAN_TILE;
        }
        tile -= tiles_of(n_tokens);
        key += n_tokens;
    }
    return key;
}

/* How finely this step is cut, and how many items may still be added by cutting. */
struct cut {
    uint32_t share; /* tiles */
    uint32_t spare; /* items */
};

static uint32_t
row_tiles(const struct attn_plan_work *work, const struct attn_seq *seq)
{
    return (seq->n_rows * work->group + work->tile_rows - 1) / work->tile_rows;
}

static uint32_t
share_tiles(const struct attn_plan_work *work)
{
    uint64_t total = 0;
    uint64_t waves = 1;
    uint64_t share;

    for (uint32_t i = 0; i < work->n_seqs; i++) {
        const struct attn_seq *seq = &work->seqs[i];

        for (uint32_t row = 0; row < seq->n_rows * work->group; row += work->tile_rows) {
            total += count_tiles(work, seq, last_position(work, seq, row));
        }
    }
    if (work->wave_tiles > 0) {
        uint64_t wave = (uint64_t)work->ctas * work->wave_tiles;

        waves = (total + wave / 2) / wave > 1 ? (total + wave / 2) / wave : 1;
    }
    share = (total + work->ctas * waves - 1) / (work->ctas * waves);
    return share < SHARE_KEYS_MIN / ATTN_PLAN_TILE ? SHARE_KEYS_MIN / ATTN_PLAN_TILE
                                                   : (uint32_t)share;
}

static void
push_item(struct attn_plan *plan, struct attn_item item)
{
    assert(plan->n_items < plan->items_max);
    plan->items[plan->n_items++] = item;
}

/* Reserves the partials of a split sequence and lists its rows for the merge; returns the first. */
static uint32_t
reserve_partials(struct attn_plan *plan, const struct attn_seq *seq, uint32_t splits)
{
    uint32_t base = plan->n_partials;

    for (uint32_t t = 0; t < seq->n_rows; t++) {
        plan->merge_rows[plan->n_merge_rows] = seq->row_first + t;
        plan->merge_first[plan->n_merge_rows] = plan->n_partials;
        plan->n_merge_rows++;
        plan->n_partials += splits;
    }
    plan->merge_first[plan->n_merge_rows] = plan->n_partials;
    return base;
}

/* The splits of a sequence are the same for all its row tiles, so that each row owns one run of
 * partials; the heaviest tile decides.  No room for partials or items means no split, never a
 * failure. */
static uint32_t
splits_of(const struct attn_plan_work *work, const struct attn_plan *plan,
          const struct attn_seq *seq, const struct cut *cut)
{
    uint32_t tiles = count_tiles(work, seq, seq->pos_first + seq->n_rows - 1);
    uint32_t splits = tiles / cut->share;

    if (splits > ATTN_PLAN_SPLITS_MAX) {
        splits = ATTN_PLAN_SPLITS_MAX;
    }
    if (plan->n_partials + (uint64_t)seq->n_rows * splits > plan->partials_max
        || plan->n_merge_rows + seq->n_rows > plan->merge_rows_max
        || (uint64_t)row_tiles(work, seq) * splits > cut->spare) {
        return 1;
    }
    return splits == 0 ? 1 : splits;
}

/* Key tiles of all segments but the own one, which is the last: the same for every row. */
static uint32_t
document_tiles(const struct attn_plan_work *work, const struct attn_seq *seq)
{
    uint32_t tiles = 0;

    for (uint32_t s = 0; s + 1 < seq->n_segs; s++) {
        tiles += tiles_of(work->segs[seq->seg_first + s].n_tokens);
    }
    return tiles;
}

static uint32_t
fixed_splits(const struct attn_plan_work *work, const struct attn_seq *seq)
{
    const uint32_t part = FIXED_KEYS_MIN / ATTN_PLAN_TILE;
    uint32_t parts = (document_tiles(work, seq) + part - 1) / part;

    return 1 + (parts < ATTN_PLAN_FIXED_SPLITS ? parts : ATTN_PLAN_FIXED_SPLITS - 1);
}

/* The key tile at which split `i` of a row tile with `tiles` begins; at `splits`, its end. */
static uint32_t
tile_of_split(const struct attn_plan_work *work, const struct attn_seq *seq, uint32_t tiles,
              uint32_t splits, uint32_t i)
{
    if (!work->is_fixed || splits == 1 || i == splits) {
        return (uint32_t)((uint64_t)tiles * i / splits);
    }
    return (uint32_t)((uint64_t)document_tiles(work, seq) * i / (splits - 1));
}

static void
plan_sequence(const struct attn_plan_work *work, uint32_t index, struct cut *cut,
              struct attn_plan *plan)
{
    const struct attn_seq *seq = &work->seqs[index];
    uint32_t splits = work->is_fixed ? fixed_splits(work, seq) : splits_of(work, plan, seq, cut);
    uint32_t base = ATTN_ITEM_DIRECT;

    if (splits > 1) {
        base = reserve_partials(plan, seq, splits);
        cut->spare -= work->is_fixed ? 0 : row_tiles(work, seq) * splits;
    }
    for (uint32_t row = 0; row < seq->n_rows * work->group; row += work->tile_rows) {
        uint32_t pos = last_position(work, seq, row);
        uint32_t tiles = count_tiles(work, seq, pos);

        for (uint32_t i = 0; i < splits; i++) {
            uint32_t from = tile_of_split(work, seq, tiles, splits, i);
            uint32_t to = tile_of_split(work, seq, tiles, splits, i + 1);

            push_item(plan, (struct attn_item){
                                .seq = index,
                                .row_begin = row,
                                .key_begin = key_of_tile(work, seq, pos, from),
                                .key_end = key_of_tile(work, seq, pos, to),
                                .slot = splits > 1 ? base + i : ATTN_ITEM_DIRECT,
                                .slot_stride = splits,
                            });
        }
    }
}

static int
heavier_first(const void *a, const void *b)
{
    const struct attn_item *x = a;
    const struct attn_item *y = b;
    uint32_t x_keys = x->key_end - x->key_begin;
    uint32_t y_keys = y->key_end - y->key_begin;

    if (x_keys != y_keys) {
        return x_keys > y_keys ? -1 : 1;
    }
    if (x->seq != y->seq) {
        return x->seq < y->seq ? -1 : 1;
    }
    if (x->row_begin != y->row_begin) {
        return x->row_begin < y->row_begin ? -1 : 1;
    }
    return x->key_begin < y->key_begin ? -1 : x->key_begin > y->key_begin;
}

uint32_t
attn_plan_items_max(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t tile_rows, uint32_t ctas)
{
    uint64_t tiles = ((uint64_t)rows * group + tile_rows - 1) / tile_rows + seqs;
    /* Every tile whole, and as many again plus some shares for every CTA by cutting. */
    uint64_t items = 2 * tiles + 32 * (uint64_t)ctas + ATTN_PLAN_ITEMS_STEP;

    return items > UINT32_MAX ? UINT32_MAX : (uint32_t)items;
}

uint32_t
attn_plan_items_fixed(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t tile_rows)
{
    uint64_t tiles = ((uint64_t)rows * group + tile_rows - 1) / tile_rows + seqs;
    uint64_t items = ATTN_PLAN_FIXED_SPLITS * tiles + ATTN_PLAN_ITEMS_STEP;

    return items > UINT32_MAX ? UINT32_MAX : (uint32_t)items;
}

/* Fixed cuts are all or nothing: one left out would change a result. */
static enum status
check_fixed_room(const struct attn_plan_work *work, const struct attn_plan *plan)
{
    uint64_t items = ATTN_PLAN_ITEMS_STEP;
    uint64_t partials = 0;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < work->n_seqs; i++) {
        uint64_t splits = fixed_splits(work, &work->seqs[i]);

        rows += work->seqs[i].n_rows;
        items += splits * row_tiles(work, &work->seqs[i]);
        partials += splits * work->seqs[i].n_rows;
    }
    if (items > plan->items_max || partials > plan->partials_max || rows > plan->merge_rows_max) {
        return ERR(
            ST_NO_MEMORY,
            "fixed attention plan: %llu items, %llu partials, %llu rows; room for %u, %u, %u",
            (unsigned long long)items, (unsigned long long)partials, (unsigned long long)rows,
            plan->items_max, plan->partials_max, plan->merge_rows_max);
    }
    return ST_OK;
}

enum status
attn_plan_make(const struct attn_plan_work *work, struct attn_plan *plan)
{
    struct cut cut;
    uint64_t whole = ATTN_PLAN_ITEMS_STEP;

    for (uint32_t i = 0; i < work->n_seqs; i++) {
        whole += row_tiles(work, &work->seqs[i]);
    }
    if (whole > plan->items_max) {
        return ERR(ST_NO_MEMORY, "attention plan: %llu row tiles, room for %u items",
                   (unsigned long long)whole, plan->items_max);
    }
    if (work->is_fixed) {
        TRY(check_fixed_room(work, plan));
    }
    cut.share = share_tiles(work);
    cut.spare = plan->items_max - (uint32_t)whole;
    plan->n_items = 0;
    plan->n_merge_rows = 0;
    plan->n_partials = 0;
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        if (work->seqs[i].n_rows > 0) {
            plan_sequence(work, i, &cut, plan);
        }
    }
    if (work->tile_rows > 16) {
        qsort(plan->items, plan->n_items, sizeof(plan->items[0]), heavier_first);
    }
    while (plan->n_items % ATTN_PLAN_ITEMS_STEP != 0) {
        push_item(plan, (struct attn_item){.seq = ATTN_ITEM_NONE});
    }
    return ST_OK;
}
