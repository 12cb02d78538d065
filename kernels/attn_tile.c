/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes are keys for the scores, so that a score is one running sum over d and no sum over lanes is
 * needed, and elements of the value for the output.  Two queries share each load of a key or value:
 * with one, the loads and not the multiply-adds would be the limit.  Softmax is online, a tile at a
 * time (Dao, FlashAttention-2 (2023), sec. 3.1).
 *
 * Keys that a query does not see get the score -inf by selection and their values are not touched,
 * so nothing behind n_tokens or after the row (NaN included) can reach a result. */
#include "kernels/attn_tile.h"

#include "kernels/simd.h"

#define KEY_VECTORS (ATTN_TILE / SIMD_F32)
#define O_VECTORS   4 /* of an output in registers at a time; AVX2 has room for two */

SIMD_INLINE void
tile_scores(const float *keys, const float *const q[2], f32x8 scores[2][KEY_VECTORS], uint32_t D)
{
    for (uint32_t d = 0; d < D; d++) {
#pragma GCC unroll 4
        for (int t = 0; t < KEY_VECTORS; t++) {
            f32x8 k;

            simd_load(&k, &keys[d * ATTN_TILE + t * SIMD_F32]);
            scores[0][t] += q[0][d] * k;
            scores[1][t] += q[1][d] * k;
        }
    }
}

/* Scales the scores, hides those behind `seen`, and raises state->m to the largest. */
SIMD_INLINE void
tile_raise_max(f32x8 *scores, uint32_t seen, float scale, struct attn_state *state)
{
    const i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const f32x8 ninf = (f32x8){0} - __builtin_inff();
    f32x8 top = ninf;

#pragma GCC unroll 4
    for (int t = 0; t < KEY_VECTORS; t++) {
        i32x8 is_seen = lane + t * SIMD_F32 < (int32_t)seen;

        scores[t] *= scale;
        simd_select(&scores[t], &is_seen, &scores[t], &ninf);
        simd_max(&top, &scores[t], &top);
    }
    float tile_max = simd_max_lane(&top);

    state->m = tile_max > state->m ? tile_max : state->m;
}

/* weights[j] = exp(score_j - m), 0 for hidden keys; adds them to l after scaling it by factor. */
SIMD_INLINE void
tile_weights(const f32x8 *scores, float factor, struct attn_state *state, float *weights)
{
    f32x8 sum = {0};

#pragma GCC unroll 4
    for (int t = 0; t < KEY_VECTORS; t++) {
        f32x8 w = scores[t] - state->m;

        simd_exp(&w, &w);
        simd_store(&weights[t * SIMD_F32], &w);
        sum += w;
    }
    state->l = state->l * factor + simd_sum(&sum);
}

/* o[0 .. O_VECTORS * 8) of both queries, from element `first` on. */
SIMD_INLINE void
tile_values(const struct attn_tile *tile, float weights[2][ATTN_TILE], const float factor[2],
            const uint32_t seen[2], struct attn_state *const state[2], uint32_t first)
{
    f32x8 o[2][O_VECTORS];
    uint32_t both = seen[0] < seen[1] ? seen[0] : seen[1];

#pragma GCC unroll 4
    for (uint32_t i = 0; i < O_VECTORS; i++) {
        simd_load(&o[0][i], &state[0]->o[first + i * SIMD_F32]);
        simd_load(&o[1][i], &state[1]->o[first + i * SIMD_F32]);
        o[0][i] *= factor[0];
        o[1][i] *= factor[1];
    }
    for (uint32_t j = 0; j < both; j++) {
#pragma GCC unroll 4
        for (uint32_t i = 0; i < O_VECTORS; i++) {
            f32x8 v;

            simd_load(&v, &tile->value_rows[j][first + i * SIMD_F32]);
            o[0][i] += weights[0][j] * v;
            o[1][i] += weights[1][j] * v;
        }
    }
    /* At the causal edge one of them sees more. */
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        for (uint32_t j = both; j < seen[k]; j++) {
#pragma GCC unroll 4
            for (uint32_t i = 0; i < O_VECTORS; i++) {
                f32x8 v;

                simd_load(&v, &tile->value_rows[j][first + i * SIMD_F32]);
                o[k][i] += weights[k][j] * v;
            }
        }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < O_VECTORS; i++) {
        simd_store(&state[0]->o[first + i * SIMD_F32], &o[0][i]);
        simd_store(&state[1]->o[first + i * SIMD_F32], &o[1][i]);
    }
}

SIMD_CLONES void
attn_tile_add(const struct attn_tile *tile, const float *const q[2], const uint32_t seen[2],
              float scale, struct attn_state *const state[2], uint32_t D)
{
    f32x8 scores[2][KEY_VECTORS] = {{{0}}}, lower = {0};
    float weights[2][ATTN_TILE], factor[2];

    tile_scores(tile->keys, q, scores, D);
    for (int k = 0; k < 2; k++) {
        float m_old = state[k]->m;

        tile_raise_max(scores[k], seen[k], scale, state[k]);
        lower[k] =
            m_old - state[k]->m; /* -inf minus -inf gives NaN only where all scores are -inf */
    }
    simd_exp(&lower, &lower);
    for (int k = 0; k < 2; k++) {
        factor[k] = lower[k]; /* exp(-inf) = 0 for the first tile */
        tile_weights(scores[k], factor[k], state[k], weights[k]);
    }
    for (uint32_t first = 0; first < D; first += O_VECTORS * SIMD_F32) {
        tile_values(tile, weights, factor, seen, state, first);
    }
}
