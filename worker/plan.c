/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/plan.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"

enum status
plan_init(struct plan *plan, uint32_t rows_max, uint32_t draws_max, uint32_t block_tokens)
{
    plan->block_tokens = block_tokens;
    plan->rows_max = rows_max;
    plan->draws_max = draws_max;
    plan->ids = mem_zalloc(rows_max, sizeof(uint32_t));
    plan->row_block = mem_zalloc(rows_max, sizeof(uint32_t));
    plan->row_slot = mem_zalloc(rows_max, sizeof(uint32_t));
    plan->row_pos = mem_zalloc(rows_max, sizeof(uint32_t));
    plan->seqs = mem_zalloc(rows_max, sizeof(plan->seqs[0]));
    plan->logit_rows = mem_zalloc(draws_max, sizeof(uint32_t));
    plan->drawing = mem_zalloc(draws_max, sizeof(struct sequence *));
    if (plan->ids == NULL || plan->row_block == NULL || plan->row_slot == NULL
        || plan->row_pos == NULL || plan->seqs == NULL || plan->logit_rows == NULL
        || plan->drawing == NULL) {
        return ERR(ST_NO_MEMORY, "a step of %u rows", rows_max);
    }
    return ST_OK;
}

void
plan_deinit(struct plan *plan)
{
    void *storage[] = {plan->items,     plan->deps,       plan->ids,    plan->row_block,
                       plan->row_slot,  plan->row_pos,    plan->seqs,   plan->segs,
                       plan->block_ids, plan->logit_rows, plan->drawing};

    for (size_t i = 0; i < sizeof(storage) / sizeof(storage[0]); i++) {
        mem_free(storage[i]);
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
    if (sequences > plan->sequences_max) {
        plan->sequences_max = sequences + sequences / 2;
        plan->items = replace(plan->items, plan->sequences_max, sizeof(plan->items[0]));
    }
    if (room->segs > plan->segs_max) {
        plan->segs_max = room->segs + room->segs / 2;
        plan->deps = replace(plan->deps, plan->segs_max, sizeof(plan->deps[0]));
        plan->segs = replace(plan->segs, plan->segs_max, sizeof(plan->segs[0]));
    }
    if (room->block_ids > plan->block_ids_max) {
        plan->block_ids_max = room->block_ids + room->block_ids / 2;
        plan->block_ids = replace(plan->block_ids, plan->block_ids_max, sizeof(plan->block_ids[0]));
    }
    if ((plan->sequences_max > 0 && plan->items == NULL)
        || (plan->segs_max > 0 && (plan->deps == NULL || plan->segs == NULL))
        || (plan->block_ids_max > 0 && plan->block_ids == NULL)) {
        return ERR(ST_NO_MEMORY, "a step of %zu sequences, %zu segments, %zu blocks", sequences,
                   room->segs, room->block_ids);
    }
    return ST_OK;
}

/* The table that batch_pick decides on. */
static uint32_t
list_items(struct plan *plan, const struct list_node *order, plan_find_build_fn find_build,
           const void *arg)
{
    uint32_t count = 0;
    uint32_t n_deps = 0;

    LIST_FOR_EACH(n, order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);
        struct batch_item *item = &plan->items[count];

        assert(count < plan->sequences_max);
        seq->item = count++;
        *item = (struct batch_item){
            .is_decoding =
                !seq->is_build && seq->n_ids > seq->n_prompt && seq->n_cached + 1 == seq->n_ids,
            .rows_left = seq->n_ids - seq->n_cached,
            .slots_left = seq->n_blocks * plan->block_tokens - seq->n_cached,
            .deps = plan->deps + n_deps,
        };
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

/* Adds `rows` rows of a sequence; the last one draws if it is the last of the request's tokens. */
static void
add_sequence(struct plan *plan, struct sequence *seq, uint32_t rows)
{
    struct llama_step *step = &plan->step;
    uint32_t P = plan->block_tokens;

    plan->seqs[step->n_seqs++] = (struct attn_seq){.row_first = step->n_rows,
                                                   .n_rows = rows,
                                                   .pos_first = seq->own_offset + seq->n_cached,
                                                   .seg_first = step->n_segs,
                                                   .n_segs = seq->n_segs + 1};
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        add_segment(plan, seq->doc_blocks + seq->segs[i].block_first, seq->segs[i].n_tokens,
                    seq->segs[i].offset);
    }
    add_segment(plan, seq->blocks, seq->n_cached + rows, seq->own_offset);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t pos = seq->n_cached + i;
        uint32_t row = step->n_rows++;

        plan->ids[row] = seq->ids[pos];
        plan->row_block[row] = seq->blocks[pos / P];
        plan->row_slot[row] = pos % P;
        plan->row_pos[row] = pos;
    }
    if (!seq->is_build && seq->n_cached + rows == seq->n_ids) {
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
    uint32_t total = batch_pick(plan->items, count, plan->rows_max);

    plan->rows_built = 0;
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
    assert(plan->step.n_rows == total);
    return total;
}
