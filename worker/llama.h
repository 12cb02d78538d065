/* SPDX-License-Identifier: Apache-2.0 */
/* llama - the forward pass of one step of a Llama model over the table of operations.
 *
 *   x = embed(ids)
 *   each layer:  h = norm(x);  qkv = h Wqkv;  K, V of ALL rows go to their blocks;  a =
 *   attention(q)
 *                x += a Wo;    h = norm(x);   x += swiglu(h Wgu) Wd
 *   logits = norm(x) Wout, for the rows that ask for them
 *
 * All rows' K and V of a layer are written before attention reads any, so a document under
 * construction and a query that cites it may share a step.  Rows that nobody asks logits of leave
 * after the last layer's K and V are written: nothing reads them any further.
 *
 * Weights, KV and activations are memory of the operations' device and are never touched from here.
 * One thread. */
#ifndef WORKER_LLAMA_H
#define WORKER_LLAMA_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/weights.h"

struct llama;

#define LLAMA_ROWS_MAX (1u << 16) /* of a step */

struct llama_config {
    const struct model_config *model; /* all pointers are borrowed until llama_destroy */
    const struct weights_plan *plan;
    const void *weights; /* device; plan->bytes */
    void *kv; /* device; block_count blocks of kv_layout_block_bytes(&layout); NULL: comes later */
    struct kv_layout layout;
    uint32_t block_count;
    const struct ops *ops;
    uint32_t rows_max;   /* rows of a step */
    uint32_t logits_max; /* rows of a step that want logits, at most rows_max */
};

/* What grows with the requests that are open; everything else is sized at the start. */
struct llama_room {
    size_t segs;      /* of all sequences of a step */
    size_t block_ids; /* likewise */
    size_t partials;  /* sum of lazy_decode_partials over its single-row sequences */
    size_t copies;    /* blocks to be copied before a step; not llama's */
    size_t sums;      /* blocks that it may seal; not llama's */
    size_t history;   /* words that the rows that are sampled bring: history, adjusts, mask */
};

/* A step, prepared by the caller in host memory (ops->alloc_host, to be fast) that stays as it is
 * until llama_sample or llama_wait.  Sequences
 * of one row come first and their rows are the first rows of the step, in the same order: those
 * take the split-key path (lazy_decode), the others lazy_prefill; the results are bitwise equal. */
struct llama_step {
    uint32_t n_rows;
    const uint32_t *ids;       /* [n_rows] token ids, below V */
    const uint32_t *row_block; /* [n_rows] block that receives K and V */
    const uint32_t *row_slot;  /* [n_rows] token slot in it */
    const uint32_t *row_pos;   /* [n_rows] segment-local position */
    uint32_t n_seqs;
    uint32_t n_single; /* seqs[0..n_single) have one row each: rows 0..n_single */
    const struct attn_seq *seqs;
    const struct attn_segment *segs;
    uint32_t n_segs;
    const uint32_t *block_ids;
    uint32_t n_block_ids;
    const uint32_t *logit_rows; /* [n_logits] */
    uint32_t n_logits;
    bool is_building; /* some rows are of documents, which others of the step may read */
};

/* Allocates every buffer for rows_max rows.  ST_INVALID: the layout or the type of the weights does
 * not fit the model or the operations; ST_NO_MEMORY. */
enum status llama_new(const struct llama_config *config, struct llama **llama_out);
void llama_destroy(struct llama **llama);

/* Where KV is, for an instance that was made without. */
void llama_place_kv(struct llama *llama, void *kv, uint32_t block_count);

/* Where operations measure how products are done best, lets them do it now, for every row count
 * that a step may have, so that none ever waits for that.  Before the first step.  ST_DEVICE. */
enum status llama_settle(struct llama *llama);

/* Makes room for steps of that size; what was prepared is lost.  Never shrinks.  ST_NO_MEMORY. */
enum status llama_reserve(struct llama *llama, const struct llama_room *room);

/* Enqueues a step; allocates nothing.  Fails only as its operations fail: then the worker is
 * broken.  llama_forward is llama_prepare and llama_launch. */
enum status llama_forward(struct llama *llama, const struct llama_step *step);

/* Sends all of a step but its ids, which may not be known yet; also while the step before runs.
 * What was prepared last is what llama_launch runs, with the ids that are there then. */
enum status llama_prepare(struct llama *llama, const struct llama_step *step);
enum status llama_launch(struct llama *llama, const struct llama_step *step);

/* Words of a mask over V ids. */
static inline size_t
llama_mask_words(uint32_t V)
{
    return ((size_t)V + 31) / 32;
}

/* Draws from logits [first, first + count) of the last llama_launch and waits for the device: the
 * step's K and V are complete after it.  Histories, adjusts and masks are host memory.  A count of
 * 0 only waits. ST_INVALID as sample says.  llama_sample is llama_draw, which enqueues, and
 * llama_wait, which waits for that and for nothing behind it. */
enum status llama_sample(struct llama *llama, uint32_t first, uint32_t count,
                         const struct sample_params *params, struct sample_result *results);
enum status llama_draw(struct llama *llama, uint32_t first, uint32_t count,
                       const struct sample_params *params, struct sample_result *results);
enum status llama_wait(struct llama *llama, uint32_t first, uint32_t count,
                       const struct sample_result *results);

/* Copies logits [0, count) of the last llama_forward, [count, V], and waits.  Tests and tools. */
enum status llama_logits(struct llama *llama, uint32_t count, float *logits_out);

#endif
