/* SPDX-License-Identifier: Apache-2.0 */
/* attn_fixture - documents in a poisoned arena, and attention over them computed the long way.
 *
 * The reference knows nothing of segments: it rotates a copy of each raw key to its global position
 * and the query to its own, in float64 with long double angles, and attends. */
#ifndef TESTS_KERNELS_ATTN_FIXTURE_H
#define TESTS_KERNELS_ATTN_FIXTURE_H

#include "kernels/attn_desc.h"
#include "tests/kernels/compare.h"

#define FIXTURE_SEGS_MAX 16
#define FIXTURE_LAYER    1 /* of two; the other stays poisoned */

struct fixture {
    struct kv_layout layout;
    uint32_t H;
    uint32_t n_blocks;
    uint32_t n_used;
    double inv_freq[64];
    float rope_scale;
    unsigned char *arena; /* 0xff everywhere at first: NaN in both types */
    uint32_t *free_ids;   /* a shuffle of the block ids */
    struct rng rng;
};

/* A document, or the own tokens of a request. */
struct doc {
    uint32_t n;
    float *k; /* raw [n, Hkv, D] */
    float *v;
    uint32_t blocks[256];
};

/* One sequence: documents in order, offsets filled by fixture_place. */
struct prompt {
    const struct doc *docs[FIXTURE_SEGS_MAX];
    uint32_t offsets[FIXTURE_SEGS_MAX];
    uint32_t n_segs;
    uint32_t pos_first;
    uint32_t n_rows;
    const float *q; /* raw [n_rows, H, D] */
};

void fixture_init(struct fixture *fix, struct kv_layout layout, uint32_t H, uint32_t n_blocks,
                  uint64_t seed);
void fixture_deinit(struct fixture *fix);

/* Random keys and values of n tokens, written to blocks through rope_append. */
void fixture_doc(struct fixture *fix, struct doc *doc, uint32_t n);
void fixture_doc_free(struct doc *doc);

/* Random raw queries; free() them. */
float *fixture_queries(struct fixture *fix, uint32_t n_rows);

/* offsets = running sum of lengths from `start`; the last n_rows tokens of the last document are
 * the rows. */
void fixture_place(struct prompt *prompt, uint32_t start);

/* The library's answers, [n_rows, H, D]; `piece` rows a call of lazy_prefill; decode row by row
 * with merge. */
void fixture_prefill(const struct fixture *fix, const struct prompt *prompt, uint32_t piece,
                     float *out);
void fixture_decode(const struct fixture *fix, const struct prompt *prompt, float *out);

/* Checks `out` against the reference. */
void fixture_check(const struct fixture *fix, const struct prompt *prompt, const float *out,
                   const char *what);

/* The description of a prompt for a direct call; segs_out [FIXTURE_SEGS_MAX], ids_out
 * [FIXTURE_SEGS_MAX * 256]. */
struct attn_desc fixture_desc(const struct fixture *fix, const struct prompt *prompt,
                              struct attn_seq *seq_out, struct attn_segment *segs_out,
                              uint32_t *ids_out);

#endif
