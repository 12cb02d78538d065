/* SPDX-License-Identifier: Apache-2.0 */
/* How finely to cut is tried out: a few shares (key tiles a part), each dealt out as the device
 * will have it, and the one that ends first wins.  The cost of a part is counted in key tiles: its
 * own, one for its beginning and end, and two for a merge anywhere. */
#include "kernels/prefill_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define COST_ITEM     1 /* key tiles' time */
#define COST_MERGE    2
#define TRY_TASKS_MAX 2048        /* more tasks than this balance without cuts */
#define FIXED_PART    8           /* key tiles of a part of a fixed cut, at least */
#define L2_BYTES      (24u << 20) /* of K and V that CTAs work on at a time: they stay in L2 */

static uint32_t
tiles_of(uint32_t n_tokens)
{
    return (n_tokens + PREFILL_TILE - 1) / PREFILL_TILE;
}

static uint32_t
row_tiles(const struct prefill_work *work, const struct attn_seq *seq)
{
    return (uint32_t)(((uint64_t)seq->n_rows * work->group + PREFILL_TILE - 1) / PREFILL_TILE);
}

/* Position of the last token of a row tile. */
static uint32_t
last_position(const struct prefill_work *work, const struct attn_seq *seq, uint32_t row_tile)
{
    uint64_t row_last = (uint64_t)(row_tile + 1) * PREFILL_TILE - 1;
    uint64_t rows = (uint64_t)seq->n_rows * work->group;

    return seq->pos_first + (uint32_t)((row_last < rows ? row_last : rows - 1) / work->group);
}

/* Keys of segment s that a row tile has to look at: all of a document, of the own segment as far as
 * its last row sees. */
static uint32_t
keys_of(const struct prefill_work *work, const struct attn_seq *seq, uint32_t s, uint32_t pos)
{
    const struct attn_segment *seg = &work->segs[seq->seg_first + s];

    if (s + 1 < seq->n_segs) {
        return seg->n_tokens;
    }
    if (pos < seg->offset) {
        return 0;
    }
    return pos - seg->offset < seg->n_tokens ? pos - seg->offset + 1 : seg->n_tokens;
}

static uint32_t
document_tiles(const struct prefill_work *work, const struct attn_seq *seq)
{
    uint32_t tiles = 0;

    for (uint32_t s = 0; s + 1 < seq->n_segs; s++) {
        tiles += tiles_of(work->segs[seq->seg_first + s].n_tokens);
    }
    return tiles;
}

static uint32_t
own_tiles(const struct prefill_work *work, const struct attn_seq *seq, uint32_t pos)
{
    return seq->n_segs == 0 ? 0 : tiles_of(keys_of(work, seq, seq->n_segs - 1, pos));
}

/* --- cutting --------------------------------------------------------------------------------- */

/* How sequences are cut, where not fixed: into parts of `share` key tiles at most, all alike, or
 * full ones and a rest, which may leave fewer multiprocessors without work. */
struct knife {
    uint32_t share;
    bool leaves_rest;
};

static const struct knife no_cut = {UINT32_MAX, false};

/* Parts of every row tile of a sequence: as many as the heaviest needs, so that each row owns one
 * run of partials. */
static uint32_t
splits_of(const struct prefill_work *work, const struct attn_seq *seq, struct knife knife)
{
    uint32_t documents = document_tiles(work, seq);
    uint32_t tiles = documents + own_tiles(work, seq, seq->pos_first + seq->n_rows - 1);

    if (work->is_fixed) {
        uint32_t parts = (documents + FIXED_PART - 1) / FIXED_PART;

        return 1 + (parts < PREFILL_FIXED_SPLITS ? parts : PREFILL_FIXED_SPLITS - 1);
    }
    uint32_t splits = tiles / knife.share + (tiles % knife.share > 0);

    if (splits > PREFILL_SPLITS_MAX) {
        return PREFILL_SPLITS_MAX;
    }
    return splits == 0 ? 1 : splits;
}

/* The key tile at which part `i` of a row tile with `tiles` begins; at `splits`, its end. */
static uint32_t
tile_of_split(const struct prefill_work *work, struct knife knife, uint32_t documents,
              uint32_t tiles, uint32_t splits, uint32_t i)
{
    if (!work->is_fixed && knife.leaves_rest && i < splits) {
        return i * knife.share < tiles ? i * knife.share : tiles;
    }
    if (!work->is_fixed || splits == 1 || i == splits) {
        return (uint32_t)((uint64_t)tiles * i / splits);
    }
    return (uint32_t)((uint64_t)documents * i / (splits - 1));
}

/* No room for partials or items means no cut, never a failure. */
static bool
has_room(const struct prefill_work *work, const struct prefill_plan *plan,
         const struct attn_seq *seq, uint32_t splits, uint32_t items_after)
{
    return plan->n_partials + (uint64_t)seq->n_rows * splits <= plan->partials_max
           && plan->n_merge_rows + seq->n_rows <= plan->merge_rows_max
           && plan->n_items + (uint64_t)row_tiles(work, seq) * splits + items_after
                  <= plan->items_max;
}

static uint32_t
reserve_partials(struct prefill_plan *plan, const struct attn_seq *seq, uint32_t splits)
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

/* Where key tile `tile` of a sequence begins. */
static void
place(const struct prefill_work *work, uint32_t index, uint32_t tile, struct prefill_item *item)
{
    const struct attn_seq *seq = &work->seqs[index];
    uint32_t s = 0;

    while (s + 1 < seq->n_segs && tile >= tiles_of(work->segs[seq->seg_first + s].n_tokens)) {
        tile -= tiles_of(work->segs[seq->seg_first + s].n_tokens);
        s++;
    }
    if (seq->n_segs == 0) {
        return; /* no key at all: the item writes zeros */
    }
    item->seg = seq->seg_first + s;
    item->tok = tile * PREFILL_TILE;
    item->angle_at = work->angle_first[index] + s * seq->n_rows;
}

/* Returns the number of items that this sequence gets. */
static void
cut_sequence(const struct prefill_work *work, uint32_t index, struct knife knife, uint32_t group,
             uint32_t items_after, struct prefill_plan *plan)
{
    const struct attn_seq *seq = &work->seqs[index];
    const uint32_t documents = document_tiles(work, seq);
    uint32_t splits = splits_of(work, seq, knife);
    uint32_t base = PREFILL_DIRECT;

    if (splits > 1 && !has_room(work, plan, seq, splits, items_after)) {
        splits = 1;
    }
    if (splits > 1) {
        base = reserve_partials(plan, seq, splits);
    }
    for (uint32_t r = 0; r < row_tiles(work, seq); r++) {
        uint32_t tiles = documents + own_tiles(work, seq, last_position(work, seq, r));

        for (uint32_t i = 0; i < splits; i++) {
            uint32_t from = tile_of_split(work, knife, documents, tiles, splits, i);
            struct prefill_item *item = &plan->items[plan->n_items++];

            assert(plan->n_items <= plan->items_max);
            *item = (struct prefill_item){
                .row_first = seq->row_first,
                .row_begin = r * PREFILL_TILE,
                .row_end = seq->n_rows * work->group,
                .pos_first = seq->pos_first,
                .n_rows = seq->n_rows,
                .n_tiles = tile_of_split(work, knife, documents, tiles, splits, i + 1) - from,
                .slot = splits > 1 ? base + i : PREFILL_DIRECT,
                .slot_stride = splits,
                .group = group,
            };
            place(work, index, from, item);
        }
    }
}

static int
heavier_first(const void *a, const void *b)
{
    const struct prefill_item *x = a;
    const struct prefill_item *y = b;

    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    if (x->n_tiles != y->n_tiles) {
        return x->n_tiles > y->n_tiles ? -1 : 1;
    }
    if (x->row_first != y->row_first) {
        return x->row_first < y->row_first ? -1 : 1;
    }
    if (x->row_begin != y->row_begin) {
        return x->row_begin < y->row_begin ? -1 : 1;
    }
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Bytes of K and V of one head that a sequence reads. */
static uint64_t
head_bytes(const struct prefill_work *work, const struct attn_seq *seq)
{
    uint64_t tiles = document_tiles(work, seq) + own_tiles(work, seq, seq->pos_first + seq->n_rows);

    return tiles * PREFILL_TILE * work->D * 4;
}

/* Sequences go in groups whose keys stay in L2 while all their row tiles pass; within a group the
 * heaviest come first.  What was cut runs all at once and is one group. */
static void
cut(const struct prefill_work *work, struct knife knife, struct prefill_plan *plan)
{
    const bool has_groups = knife.share == no_cut.share;
    uint64_t group_bytes = 0;
    uint32_t group = 0;
    uint32_t items_after = 0;

    plan->n_items = 0;
    plan->n_merge_rows = 0;
    plan->n_partials = 0;
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        items_after += row_tiles(work, &work->seqs[i]);
    }
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        const uint64_t bytes = head_bytes(work, &work->seqs[i]) * work->Hkv;

        if (has_groups && group_bytes > 0 && group_bytes + bytes > L2_BYTES) {
            group++;
            group_bytes = 0;
        }
        group_bytes += bytes;
        items_after -= row_tiles(work, &work->seqs[i]);
        cut_sequence(work, i, knife, group, items_after, plan);
    }
    qsort(plan->items, plan->n_items, sizeof(plan->items[0]), heavier_first);
}

/* --- dealing out ------------------------------------------------------------------------------ */

/* CTAs as a heap, least loaded first; equal loads in order of their number. */
struct cta {
    uint32_t load;
    uint32_t number;
};

struct deal {
    uint32_t n;
    struct cta heap[PREFILL_CTAS_MAX];
};

static bool
is_before(struct cta a, struct cta b)
{
    return a.load != b.load ? a.load < b.load : a.number < b.number;
}

static void
deal_init(struct deal *deal, uint32_t ctas)
{
    deal->n = ctas;
    for (uint32_t i = 0; i < ctas; i++) {
        deal->heap[i] = (struct cta){0, i};
    }
}

/* Gives the next task to the least loaded CTA and returns its number. */
static uint32_t
deal_next(struct deal *deal, uint32_t cost)
{
    struct cta taker = deal->heap[0];
    const uint32_t number = taker.number;
    uint32_t at = 0;

    taker.load += cost;
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < deal->n && is_before(deal->heap[child + 1], deal->heap[child])) {
            child++;
        }
        if (child >= deal->n || is_before(taker, deal->heap[child])) {
            break;
        }
        deal->heap[at] = deal->heap[child];
        at = child;
    }
    deal->heap[at] = taker;
    return number;
}

static uint32_t
deal_heaviest(const struct deal *deal)
{
    uint32_t heaviest = 0;

    for (uint32_t i = 0; i < deal->n; i++) {
        heaviest = deal->heap[i].load > heaviest ? deal->heap[i].load : heaviest;
    }
    return heaviest;
}

/* Heads that are worked on at a time, so that their K and V stay in L2 while all row tiles pass. */
static uint32_t
head_group(const struct prefill_work *work)
{
    uint64_t most = 1;
    uint64_t heads;

    for (uint32_t i = 0; i < work->n_seqs; i++) {
        uint64_t bytes = head_bytes(work, &work->seqs[i]);

        most = bytes > most ? bytes : most;
    }
    heads = L2_BYTES / most;
    heads = heads < 1 ? 1 : heads > work->Hkv ? work->Hkv : heads;
    while (work->Hkv % heads != 0) {
        heads--;
    }
    return (uint32_t)heads;
}

/* Where the items of the group at `first` end. */
static uint32_t
end_of_group(const struct prefill_plan *plan, uint32_t first)
{
    uint32_t end = first;

    while (end < plan->n_items && plan->items[end].group == plan->items[first].group) {
        end++;
    }
    return end;
}

/* Deals all tasks out in order; returns the heaviest load.  With `counts` each CTA's is counted up,
 * with `tasks` as well the task is written at it. */
static uint32_t
deal_out(const struct prefill_work *work, const struct prefill_plan *plan, uint32_t heads,
         uint32_t *counts, uint32_t *tasks)
{
    struct deal deal;

    deal_init(&deal, work->ctas);
    for (uint32_t first = 0, end; first < plan->n_items; first = end) {
        end = end_of_group(plan, first);
        for (uint32_t h0 = 0; h0 < work->Hkv; h0 += heads) {
            for (uint32_t t = first * heads; t < end * heads; t++) {
                const uint32_t i = t / heads;
                const uint32_t cta = deal_next(&deal, plan->items[i].n_tiles + COST_ITEM);

                if (tasks != NULL) {
                    tasks[counts[cta]] = i * work->Hkv + h0 + t % heads;
                }
                if (counts != NULL) {
                    counts[cta]++;
                }
            }
        }
    }
    return deal_heaviest(&deal);
}

/* The lists of tasks: counted, placed, filled; after that each CTA's cursor stands at the next
 * one's beginning. */
static void
write_lists(const struct prefill_work *work, uint32_t heads, struct prefill_plan *plan)
{
    uint32_t *cursor = plan->cta_first + 1;
    uint32_t sum = 0;

    memset(plan->cta_first, 0, (work->ctas + 1) * sizeof(plan->cta_first[0]));
    plan->heaviest = deal_out(work, plan, heads, cursor, NULL);
    for (uint32_t c = 0; c < work->ctas; c++) {
        uint32_t count = cursor[c];

        cursor[c] = sum;
        sum += count;
    }
    (void)deal_out(work, plan, heads, cursor, plan->tasks);
    plan->cta_first[0] = 0;
}

static void
write_starts(const struct prefill_work *work, struct prefill_plan *plan)
{
    for (uint32_t c = 0; c < work->ctas; c++) {
        const uint32_t first = plan->cta_first[c], end = plan->cta_first[c + 1];
        struct prefill_start *start = &plan->starts[c];

        *start =
            (struct prefill_start){.n_tasks = end - first, .task_next = first + 1, .task_end = end};
        if (first == end) {
            continue;
        }
        start->item = plan->items[plan->tasks[first] / work->Hkv];
        start->item.group = plan->tasks[first] % work->Hkv;
        if (start->item.n_tiles > 0) {
            start->segment = work->segs[start->item.seg];
        }
    }
}

/* The knife that ends first. */
static struct knife
choose_knife(const struct prefill_work *work, uint32_t heads, struct prefill_plan *plan)
{
    struct knife best_knife = no_cut;
    uint32_t best;
    uint64_t total = 0;

    cut(work, no_cut, plan);
    if (work->is_fixed || (uint64_t)plan->n_items * work->Hkv > TRY_TASKS_MAX) {
        return no_cut;
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        total += (uint64_t)(plan->items[i].n_tiles + COST_ITEM) * work->Hkv;
    }
    best = deal_out(work, plan, heads, NULL, NULL);
    if (total * 10 >= (uint64_t)best * work->ctas * 9) {
        return no_cut;
    }
    for (uint32_t waves = 1; waves <= 2; waves++) {
        uint64_t even = total / ((uint64_t)work->ctas * waves);

        for (uint64_t share = even; share <= even + even / 4 + 1; share += 1 + even / 32) {
            if (share < 2) {
                continue;
            }
            for (int leaves_rest = 0; leaves_rest < 2; leaves_rest++) {
                const struct knife knife = {(uint32_t)share, leaves_rest != 0};

                cut(work, knife, plan);
                uint32_t cost = deal_out(work, plan, work->Hkv, NULL, NULL) + COST_MERGE;

                if (plan->n_partials > 0 && cost < best) {
                    best = cost;
                    best_knife = knife;
                }
            }
        }
    }
    return best_knife;
}

/* --- the plan --------------------------------------------------------------------------------- */

uint32_t
prefill_plan_items_max(uint32_t rows, uint32_t seqs, uint32_t group, uint32_t ctas, bool is_fixed)
{
    uint64_t tiles = ((uint64_t)rows * group + PREFILL_TILE - 1) / PREFILL_TILE + seqs;
    uint64_t items = is_fixed ? PREFILL_FIXED_SPLITS * tiles : tiles + 8 * (uint64_t)ctas;

    return items > UINT32_MAX ? UINT32_MAX : (uint32_t)items;
}

/* Fixed cuts are all or nothing: one left out would change a result. */
static enum status
check_room(const struct prefill_work *work, const struct prefill_plan *plan)
{
    uint64_t items = 0;
    uint64_t partials = 0;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < work->n_seqs; i++) {
        uint64_t splits = work->is_fixed ? splits_of(work, &work->seqs[i], no_cut) : 1;

        items += splits * row_tiles(work, &work->seqs[i]);
        if (splits > 1) {
            rows += work->seqs[i].n_rows;
            partials += splits * work->seqs[i].n_rows;
        }
    }
    if (items > plan->items_max || partials > plan->partials_max || rows > plan->merge_rows_max) {
        return ERR(
            ST_NO_MEMORY,
            "prefill plan: %llu items, %llu partials, %llu rows to merge; room for %u, %u, %u",
            (unsigned long long)items, (unsigned long long)partials, (unsigned long long)rows,
            plan->items_max, plan->partials_max, plan->merge_rows_max);
    }
    return ST_OK;
}

enum status
prefill_plan_make(const struct prefill_work *work, struct prefill_plan *plan)
{
    if (work->ctas == 0 || work->ctas > PREFILL_CTAS_MAX) {
        return ERR(ST_INVALID, "prefill plan for %u multiprocessors, 1 to %u", work->ctas,
                   PREFILL_CTAS_MAX);
    }
    TRY(check_room(work, plan));
    const uint32_t heads = head_group(work);
    const struct knife knife = choose_knife(work, heads, plan);

    cut(work, knife, plan);
    /* What was cut runs all at once: heads need no order, the heaviest parts come first. */
    write_lists(work, knife.share == no_cut.share ? heads : work->Hkv, plan);
    write_starts(work, plan);
    return ST_OK;
}
