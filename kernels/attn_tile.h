/* SPDX-License-Identifier: Apache-2.0 */
/* attn_tile - one tile of keys and values against rotated queries: the inner loops of CPU
 * attention. */
#ifndef KERNELS_ATTN_TILE_H
#define KERNELS_ATTN_TILE_H

#include <stdint.h>

#define ATTN_D_MAX 128
#define ATTN_TILE  32 /* keys; with values 16 KiB at D = 64, so that both stay in the first cache */

/* Partial attention of one query over the keys seen so far. */
struct attn_state {
    float o[ATTN_D_MAX]; /* sum of exp(score - m) v */
    float m;             /* largest score; -inf when none */
    float l;             /* sum of exp(score - m); 0 = identity */
};

struct attn_tile {
    float keys[ATTN_D_MAX * ATTN_TILE];   /* transposed: [d][key]; 0 where there is no key */
    const float *value_rows[ATTN_TILE];   /* [key] -> [D]; only those seen are read */
    float values[ATTN_TILE * ATTN_D_MAX]; /* storage of the rows that had to be converted */
};

/* Adds the first seen[i] keys of the tile (1 to ATTN_TILE) to *state[i], for two queries q[i] [D]
 * at once. Each result is the same whatever the other query is.  D is 64 or 128. */
void attn_tile_add(const struct attn_tile *tile, const float *const q[2], const uint32_t seen[2],
                   float scale, struct attn_state *const state[2], uint32_t D);

#endif
