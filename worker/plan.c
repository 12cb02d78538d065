/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/plan.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"

/* Storage that the device reads. */
static enum status
allocate(const struct plan *plan, size_t count, size_t size, void *array_out)
{
    void *memory;

    TRY(plan->ops->alloc_host(plan->ops, count * size, &memory));
    memcpy(array_out, &memory, sizeof(memory));
    return ST_OK;
}

enum status
plan_init(struct plan *plan, const struct ops *ops, struct batch_limits limits, uint32_t draws_max,
          uint32_t block_tokens)
{
    const uint32_t rows_max = limits.rows;

    plan->ops = ops;
    plan->block_tokens = block_tokens;
    plan->draws_max = draws_max;
    plan->limits = limits;
    plan->drawing = mem_zalloc(draws_max, sizeof(plan->drawing[0]));
    plan->blanks = mem_zalloc(draws_max, sizeof(plan->blanks[0]));
    if (plan->drawing == NULL || plan->blanks == NULL) {
        return ERR(ST_NO_MEMORY, "a step of %u rows", rows_max);
    }
    TRY(allocate(plan, rows_max, sizeof(uint32_t), &plan->ids));
    TRY(allocate(plan, rows_max, sizeof(uint32_t), &plan->row_block));
    TRY(allocate(plan, rows_max, sizeof(uint32_t), &plan->row_slot));
    TRY(allocate(plan, rows_max, sizeof(uint32_t), &plan->row_pos));
    TRY(allocate(plan, rows_max, sizeof(plan->seqs[0]), &plan->seqs));
    return allocate(plan, draws_max, sizeof(uint32_t), &plan->logit_rows);
}

void
plan_deinit(struct plan *plan)
{
    void *of_device[] = {plan->ids,  plan->row_block, plan->row_slot,  plan->row_pos,
                         plan->seqs, plan->segs,      plan->block_ids, plan->logit_rows};
    void *ours[] = {plan->items, plan->deps, plan->drawing, plan->blanks};

    for (size_t i = 0; i < sizeof(of_device) / sizeof(of_device[0]); i++) {
        if (of_device[i] != NULL) {
            plan->ops->release_host(plan->ops, of_device[i]);
        }
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        mem_free(ours[i]);
    }
    *plan = (struct plan){0};
}

/* Contents are of one step: nothing is kept, so nothing is copied. */
static void *
replace(void *old, size_t count, size_t size)
{
    mem_free(old);
    return mem_zalloc(count, size);
}

enum status
plan_reserve(struct plan *plan, size_t sequences, const struct llama_room *room)
{
    plan->step = (struct llama_step){0};
    if (sequences > plan->sequences_max) {
        plan->sequences_max = sequences;
        plan->items = replace(plan->items, sequences, sizeof(plan->items[0]));
    }
    if (room->segs > plan->segs_max) {
        plan->segs_max = room->segs;
        plan->deps = replace(plan->deps, room->segs, sizeof(plan->deps[0]));
        plan->ops->release_host(plan->ops, plan->segs);
        plan->segs = NULL;
        TRY(allocate(plan, room->segs, sizeof(plan->segs[0]), &plan->segs));
    }
    if (room->block_ids > plan->block_ids_max) {
        plan->block_ids_max = room->block_ids;
        plan->ops->release_host(plan->ops, plan->block_ids);
        plan->block_ids = NULL;
        TRY(allocate(plan, room->block_ids, sizeof(plan->block_ids[0]), &plan->block_ids));
    }
    if ((plan->sequences_max > 0 && plan->items == NULL)
        || (plan->segs_max > 0 && plan->deps == NULL)) {
        return ERR(ST_NO_MEMORY, "a step of %zu sequences, %zu segments", sequences, room->segs);
    }
    return ST_OK;
}

/* Where a sequence stands after the running step: ids, the last of them perhaps not drawn yet, and
 * how many of them are in KV. */
static uint32_t
ids_ahead(const struct sequence *seq)
{
    return seq->n_ids + (seq->is_drawing ? 1 : 0);
}

static uint32_t
cached_ahead(const struct sequence *seq)
{
    return seq->n_cached + seq->rows_running;
}

/* Its last token is being drawn, whatever that is. */
static bool
ends_with_running(const struct sequence *seq)
{
    return seq->is_drawing && ids_ahead(seq) - seq->n_prompt >= seq->max_tokens;
}

/* The table that batch_pick decides on. */
static uint32_t
list_items(struct plan *plan, const struct list_node *order, plan_find_build_fn find_build,
           const void *arg)
{
    uint32_t count = 0;
    uint32_t n_deps = 0;

    plan->turn = 0;
    LIST_FOR_EACH(n, order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);
        struct batch_item *item = &plan->items[count];

        assert(count < plan->sequences_max);
        plan->turn = seq->has_turn ? count : plan->turn;
        seq->item = count++;
        *item = (struct batch_item){
            .is_background = seq->is_background,
            .is_prompt = !seq->is_build,
            .is_decoding = !seq->is_build && ids_ahead(seq) > seq->n_prompt
                           && cached_ahead(seq) + 1 == ids_ahead(seq),
            .rows_left = ends_with_running(seq) ? 0 : ids_ahead(seq) - cached_ahead(seq),
            .slots_left = seq->n_blocks * plan->block_tokens - cached_ahead(seq),
            .deps = plan->deps + n_deps,
            .n_segs = seq->n_segs + 1,
        };
        if (seq->is_copy) { /* complete, or waiting for its source */
            item->rows_left = seq->n_cached < seq->n_ids;
            item->slots_left = 0;
        }
        if (seq->is_loading) {
            item->slots_left = 0;
        }
        for (uint32_t i = 0; i < seq->n_segs; i++) {
            const struct sequence *build =
                seq->segs[i].build == 0 ? NULL : find_build(arg, seq->segs[i].build);

            if (build != NULL) {
                plan->deps[n_deps++] = build->item;
                item->n_deps++;
            }
        }
    }
    return count;
}

static void
add_segment(struct plan *plan, const uint32_t *blocks, uint32_t n_tokens, uint32_t offset)
{
    struct llama_step *step = &plan->step;
    uint32_t P = plan->block_tokens;
    uint32_t n_blocks = n_tokens / P + (n_tokens % P != 0);

    assert(step->n_segs < plan->segs_max && step->n_block_ids + n_blocks <= plan->block_ids_max);
    plan->segs[step->n_segs++] = (struct attn_segment){
        .block_first = step->n_block_ids, .n_tokens = n_tokens, .offset = offset};
    if (n_blocks > 0) {
        memcpy(plan->block_ids + step->n_block_ids, blocks, n_blocks * sizeof(blocks[0]));
    }
    step->n_block_ids += n_blocks;
}

static void
add_row(struct plan *plan, const struct sequence *seq, uint32_t pos)
{
    uint32_t row = plan->step.n_rows++;

    if (pos < seq->n_ids) {
        plan->ids[row] = seq->ids[pos];
    } else {
        assert(plan->n_blanks < plan->draws_max);
        plan->ids[row] = 0;
        plan->blanks[plan->n_blanks++] = (struct plan_blank){row, seq, pos};
    }
    plan->row_block[row] = seq->blocks[pos / plan->block_tokens];
    plan->row_slot[row] = pos % plan->block_tokens;
    plan->row_pos[row] = pos;
}

/* Adds `rows` rows of a sequence; the last one draws if it is the last of the request's tokens. */
static void
add_sequence(struct plan *plan, struct sequence *seq, uint32_t rows)
{
    struct llama_step *step = &plan->step;
    uint32_t first = cached_ahead(seq);

    plan->seqs[step->n_seqs++] = (struct attn_seq){.row_first = step->n_rows,
                                                   .n_rows = rows,
                                                   .pos_first = seq->own_offset + first,
                                                   .seg_first = step->n_segs,
                                                   .n_segs = seq->n_segs + 1};
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        add_segment(plan, seq->doc_blocks + seq->segs[i].block_first, seq->segs[i].n_tokens,
                    seq->segs[i].offset);
    }
    add_segment(plan, seq->blocks, first + rows, seq->own_offset);
    for (uint32_t i = 0; i < rows; i++) {
        add_row(plan, seq, first + i);
    }
    if (!seq->is_build && first + rows == ids_ahead(seq)) {
        assert(step->n_logits < plan->draws_max);
        plan->drawing[step->n_logits] = seq;
        plan->logit_rows[step->n_logits++] = step->n_rows - 1;
    }
    plan->rows_built += seq->is_build ? rows : 0;
}

uint32_t
plan_step(struct plan *plan, const struct list_node *order, plan_find_build_fn find_build,
          const void *arg)
{
    uint32_t count = list_items(plan, order, find_build, arg);
    uint32_t total = batch_pick(plan->items, count, plan->limits, &plan->turn);

    plan->rows_built = 0;
    plan->n_blanks = 0;
    plan->step = (struct llama_step){.ids = plan->ids,
                                     .row_block = plan->row_block,
                                     .row_slot = plan->row_slot,
                                     .row_pos = plan->row_pos,
                                     .seqs = plan->seqs,
                                     .segs = plan->segs,
                                     .block_ids = plan->block_ids,
                                     .logit_rows = plan->logit_rows};
    /* Sequences of one row first: llama.h asks for it. */
    for (int pass = 0; pass < 2; pass++) {
        LIST_FOR_EACH(n, order)
        {
            struct sequence *seq = LIST_ENTRY(n, struct sequence, link);
            uint32_t rows = plan->items[seq->item].rows;

            if (rows > 0 && (rows == 1) == (pass == 0)) {
                add_sequence(plan, seq, rows);
            }
        }
        if (pass == 0) {
            plan->step.n_single = plan->step.n_seqs;
        }
    }
    plan->step.is_building = plan->rows_built > 0;
    assert(plan->step.n_rows == total);
    return total;
}

void
plan_fill(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->n_blanks; i++) {
        const struct plan_blank *blank = &plan->blanks[i];

        assert(blank->pos < blank->seq->n_ids);
        plan->ids[blank->row] = blank->seq->ids[blank->pos];
    }
}

void
plan_mark_running(const struct plan *plan, const struct list_node *order)
{
    bool is_turn_given = false;

    LIST_FOR_EACH(n, order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        seq->rows_running = plan->items[seq->item].rows;
        /* One that has gone since the plan was made leaves its turn to the next. */
        seq->has_turn = seq->item >= plan->turn && !is_turn_given;
        is_turn_given = is_turn_given || seq->has_turn;
    }
    for (uint32_t i = 0; i < plan->step.n_logits; i++) {
        plan->drawing[i]->is_drawing = true;
    }
}
