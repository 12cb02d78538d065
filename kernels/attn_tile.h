/* SPDX-License-Identifier: Apache-2.0 */
/* attn_tile - one tile of keys and values against a block of rotated queries: the inner loops of
 * CPU attention. */
#ifndef KERNELS_ATTN_TILE_H
#define KERNELS_ATTN_TILE_H

#include <stdbool.h>
#include <stdint.h>

#define ATTN_D_MAX 128
#define ATTN_TILE  64 /* keys: a paragraph is one tile; 32 KiB with values at D = 64 */
#define ATTN_ITEMS 64 /* queries of a block: lanes of its vectors */
#define ATTN_FEW   8  /* queries of one vector: so few wait for memory, not for sums */

/* Partial attention of a block of queries over the keys seen so far, query by query in the last
 * index. */
struct attn_lanes {
    float o[ATTN_D_MAX][ATTN_ITEMS]; /* sum of exp(score - m) v */
    float m[ATTN_ITEMS];             /* largest score; -inf when none */
    float l[ATTN_ITEMS];             /* sum of exp(score - m); 0 = identity */
};

struct attn_tile {
    const float *key_rows[ATTN_TILE]; /* [key] -> [D]; only those seen by some query are read */
    const float *value_rows[ATTN_TILE];
    const float *ahead[ATTN_TILE]; /* [n_ahead] keys that come next: fetched meanwhile, not read */
    uint32_t n_ahead;
    float keys[ATTN_TILE][ATTN_D_MAX]; /* storage of the rows that had to be converted */
    float values[ATTN_TILE][ATTN_D_MAX];
};

/* Sets the first `count` queries, rounded up to whole vectors, to the identity. */
void attn_lanes_reset(struct attn_lanes *lanes, uint32_t count, uint32_t D);

/* Adds the first seen[i] keys of the tile (0 to ATTN_TILE) to query i < count of the block; q is
 * [D][ATTN_ITEMS], and may hold any numbers behind `count`.  The first tile needs no reset before:
 * whatever `lanes` held counts as the identity.  Each result is the same whatever the other queries
 * are.  D is a multiple of 16. */
void attn_tile_add(const struct attn_tile *tile, const float *q, const uint32_t *seen,
                   uint32_t count, float scale, bool is_first, struct attn_lanes *lanes,
                   uint32_t D);

/* Adds another partial of the same queries: bit for bit as attn_state_merge of each. */
void attn_lanes_merge(struct attn_lanes *into, const struct attn_lanes *part, uint32_t count,
                      uint32_t D);

/* The same of one query: (o, m, l) of `into` becomes that of both; merging the identity changes
 * nothing. */
struct attn_state {
    float o[ATTN_D_MAX];
    float m;
    float l;
};

void attn_state_reset(struct attn_state *state);
void attn_state_merge(struct attn_state *into, const float *o, float m, float l, uint32_t D);

/* out = o / l, or 0 for the identity. */
void attn_output(const float *o, float l, float *out, uint32_t D);

#endif
