/* SPDX-License-Identifier: Apache-2.0 */
/* plan - a step in preparation: which rows of which sequences, as the arrays that llama reads.
 *
 * The next step is planned while the present one runs: sequences count as they will stand after it
 * (rows_running, is_drawing).  Then all is known but the tokens that it draws, which plan_fill puts
 * in; and that a text may end with one of them, which makes the plan void. */
#ifndef WORKER_PLAN_H
#define WORKER_PLAN_H

#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "worker/batch.h"
#include "worker/llama.h"
#include "worker/sequence.h"

struct plan {
    const struct ops *ops; /* whose host memory the step's arrays are */
    uint32_t block_tokens;
    uint32_t draws_max;
    struct batch_limits limits;
    uint32_t turn; /* item with which the decodes of the step after this one begin */
    size_t sequences_max, segs_max, block_ids_max;

    struct batch_item *items; /* [sequences_max], in order of arrival */
    uint32_t *deps;           /* [segs_max] */

    struct llama_step step;                         /* points at these */
    uint32_t *ids, *row_block, *row_slot, *row_pos; /* [limits.rows] */
    struct attn_seq *seqs;                          /* [limits.rows] */
    struct attn_segment *segs;                      /* [segs_max] */
    uint32_t *block_ids;                            /* [block_ids_max] */
    uint32_t *logit_rows;                           /* [draws_max] */
    struct sequence **drawing;                      /* [draws_max] whose rows those are */
    struct plan_blank *blanks;                      /* [draws_max] */
    uint32_t n_blanks;
    uint32_t rows_built;
};

/* A row whose token the running step draws. */
struct plan_blank {
    uint32_t row;
    const struct sequence *seq; /* its ids[pos] */
    uint32_t pos;
};

/* Into zeroed storage; ST_NO_MEMORY.  plan_deinit also takes what is half-built. */
enum status plan_init(struct plan *plan, const struct ops *ops, struct batch_limits limits,
                      uint32_t draws_max, uint32_t block_tokens);
void plan_deinit(struct plan *plan);

/* Room for that many open sequences with these segments and blocks in all; what was planned is
 * lost.  ST_NO_MEMORY. */
enum status plan_reserve(struct plan *plan, size_t sequences, const struct llama_room *room);

/* The build that a segment waits for, or NULL. */
typedef const struct sequence *(*plan_find_build_fn)(const void *arg, uint64_t build);

/* Picks rows for the sequences of `order` (list of sequence.link) and fills `step`.  Allocates
 * nothing. Returns the rows. */
uint32_t plan_step(struct plan *plan, const struct list_node *order, plan_find_build_fn find_build,
                   const void *arg);

/* The step before has run and its tokens are in their sequences: puts them into the ids. */
void plan_fill(struct plan *plan);

/* The step is on its way: marks its sequences, and whose turn it is in the next one. */
void plan_mark_running(const struct plan *plan, const struct list_node *order);

#endif
