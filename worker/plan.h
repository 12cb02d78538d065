/* SPDX-License-Identifier: Apache-2.0 */
/* plan - a step in preparation: which rows of which sequences, as the arrays that llama reads. */
#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "worker/batch.h"
#include "worker/llama.h"
#include "worker/sequence.h"

struct plan {
    uint32_t block_tokens;
    uint32_t rows_max, draws_max;
    size_t sequences_max, segs_max, block_ids_max;

    struct batch_item *items; /* [sequences_max], in order of arrival */
    uint32_t *deps;           /* [segs_max] */

    struct llama_step step;                         /* points at these */
    uint32_t *ids, *row_block, *row_slot, *row_pos; /* [rows_max] */
    struct attn_seq *seqs;                          /* [rows_max] */
    struct attn_segment *segs;                      /* [segs_max] */
    uint32_t *block_ids;                            /* [block_ids_max] */
    uint32_t *logit_rows;                           /* [draws_max] */
    struct sequence **drawing;                      /* [draws_max] whose rows those are */
    uint32_t rows_built;
};

/* Into zeroed storage; ST_NO_MEMORY.  plan_deinit also takes what is half-built. */
enum status plan_init(struct plan *plan, uint32_t rows_max, uint32_t draws_max,
                      uint32_t block_tokens);
void plan_deinit(struct plan *plan);

/* Room for that many open sequences with these segments and blocks in all.  ST_NO_MEMORY. */
enum status plan_reserve(struct plan *plan, size_t sequences, const struct llama_room *room);

/* The build that a segment waits for, or NULL. */
typedef const struct sequence *(*plan_find_build_fn)(const void *arg, uint64_t build);

/* Picks rows for the sequences of `order` (list of sequence.link) and fills `step`.  Allocates
 * nothing. Returns the rows; items[seq->item].rows says whose they are. */
uint32_t plan_step(struct plan *plan, const struct list_node *order, plan_find_build_fn find_build,
                   const void *arg);

#endif
