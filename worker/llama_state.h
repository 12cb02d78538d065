/* SPDX-License-Identifier: Apache-2.0 */
/* llama_state - what the files of the forward pass share; nobody else includes this.
 *
 *   llama.c       life, room, products, a step
 *   llama_draw.c  tokens from its logits */
#ifndef WORKER_LLAMA_STATE_H
#define WORKER_LLAMA_STATE_H

#include "worker/llama.h"

/* Device buffers, with what one holds. */
enum buffer {
    /* Activations of all rows, [rows_max, ...]. */
    BUF_X,       /* C: the residual stream */
    BUF_DELTA,   /* C: what the last block adds to it */
    BUF_H,       /* C: normed */
    BUF_QKV,     /* (H + 2 Hkv) D */
    BUF_Q,       /* H D, raw */
    BUF_ATTN,    /* H D */
    BUF_GATE_UP, /* 2F */
    BUF_FFN,     /* F */
    /* Of the rows that want logits, [logits_max, ...]. */
    BUF_X_LAST,    /* C */
    BUF_ATTN_LAST, /* H D */
    BUF_LOGITS,    /* V, f32 */
    /* The step's description, sent up once a step. */
    BUF_IDS, /* u32 [rows_max], as the next three */
    BUF_ROW_BLOCK,
    BUF_ROW_SLOT,
    BUF_ROW_POS,
    BUF_LOGIT_ROWS,    /* u32 [logits_max] */
    BUF_SEQS,          /* attn_seq [rows_max]: each has at least a row */
    BUF_PARTIAL_FIRST, /* u32 [rows_max + 1] */
    BUF_INV_FREQ,      /* f64 [D/2], sent up at the start */
    /* Sampling. */
    BUF_PARAMS,    /* sample_params [logits_max] */
    BUF_RESULTS,   /* sample_result [logits_max] */
    BUF_WORKSPACE, /* sample_workspace_bytes(logits_max, V) */
    /* Those that llama_reserve grows. */
    BUF_GROWING,
    BUF_SEGS = BUF_GROWING, /* attn_segment [room.segs] */
    BUF_BLOCK_IDS,          /* u32 [room.block_ids] */
    BUF_O,                  /* f32 [room.partials, H, D] */
    BUF_ML,                 /* f32 [room.partials, H, 2] */
    BUF_HISTORY,            /* u32 [room.history]: what draws bring along */
    BUFFERS,
};

struct llama {
    struct llama_config config;
    struct attn_desc desc; /* what all attention calls share; the step's part is filled per step */
    struct llama_room room;
    void *buffers[BUFFERS];
    size_t buffer_bytes[BUFFERS];
    /* Host side of BUF_PARTIAL_FIRST, [rows_max + 1]: of the step that runs and of the prepared. */
    uint32_t *partial_first[2];
    uint32_t prepared;            /* index into it */
    struct sample_params *params; /* [logits_max], host side of BUF_PARAMS */
};

#endif
