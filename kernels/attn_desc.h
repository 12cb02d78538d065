/* SPDX-License-Identifier: Apache-2.0 */
/* attn_desc - what attention is told about a step: sequences, their segments, their blocks.
 *
 * A sequence is a list of segments in logical order: its documents (shared, immutable blocks), then
 * its own tokens.  A document under construction is a sequence with one segment: itself at offset
 * 0. Key j of a segment is stored rotated at local position j and stands at logical position
 * offset + j.  A query row at logical position p
 *   - is rotated by the angle (p - offset) for that segment, from its raw value, once, in float32
 *     from an angle computed in float64;
 *   - sees key j if offset + j <= p.  So documents before the query are seen whole, the own segment
 *     causally, and one rule serves both.
 * Segments of 0 tokens are allowed and contribute nothing.  A segment may occur twice. */
#ifndef KERNELS_ATTN_DESC_H
#define KERNELS_ATTN_DESC_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kv_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_segment {
    uint32_t block_first; /* index into block_ids of this segment's first block */
    uint32_t n_tokens;    /* keys present, including those written in this step */
    uint32_t offset;      /* logical position of its key 0; full 32 bits, no packed word */
    uint32_t reserved;    /* 0 */
};

struct attn_seq {
    uint32_t row_first; /* its first row in q and out */
    uint32_t n_rows;    /* rows of this step */
    uint32_t pos_first; /* logical position of its first row; rows are consecutive */
    uint32_t seg_first; /* its segments: segs[seg_first .. seg_first + n_segs) */
    uint32_t n_segs;
};

/* The part of the arguments that both attention operations share. */
struct attn_desc {
    const void *kv;          /* arena: blocks of kv_layout_block_bytes */
    struct kv_layout layout; /* letters P L Hkv D */
    uint32_t layer;
    uint32_t n_blocks;               /* blocks in the arena; every id is below it */
    const uint32_t *block_ids;       /* [sum over segments of ceil(n_tokens / P)] */
    const struct attn_segment *segs; /* [n_segs_all] */
    const struct attn_seq *seqs;     /* [n_seqs] */
    uint32_t n_seqs;
    uint32_t H;             /* query heads; H % Hkv == 0 */
    const double *inv_freq; /* [D/2] radians a position; pairs are (i, i + D/2) */
    float rope_scale;       /* factor on cos and sin of both Q and K (YaRN's mscale); 1 else */
    float scale;            /* on the scores; usually 1/sqrt(D) */
};

/* The attention work of one step, in host memory: what a device plans from, once for all layers. */
struct attn_step {
    const struct attn_segment *segs; /* of all sequences */
    const uint32_t *block_ids;       /* as attn_desc's, here in host memory */
    const struct attn_seq *prefill;  /* [n_prefill] as lazy_prefill will get them */
    const struct attn_seq *decode;   /* [n_decode] as lazy_decode will get them */
    uint32_t n_prefill;
    uint32_t n_decode;
    uint32_t H;
    struct kv_layout layout;
    const double *inv_freq; /* [D/2], in the device's memory */
    float rope_scale;
    bool is_building; /* rows of documents are among them: their keys may be read only after this
                         layer's rope_append, not ahead of it */
};

#ifdef __cplusplus
}
#endif
#endif
