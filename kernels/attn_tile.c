/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes are queries, 16 of them at a time.  So keys and values are used where they lie, an element
 * broadcast; a tile costs as many keys as there are, not 32; softmax needs no sum and no maximum
 * over lanes.  (With keys in the lanes a question over documents of 50 tokens computed 1.4 times
 * the scores, and every tile was transposed for every block of queries.)
 *
 * A vector of queries or less (a decode) waits for memory.  So it fetches the values of a few keys
 * with their scores, and the next tile's keys while values are added: all along, or memory would be
 * idle half of the time; and into L2, since a burst for L1 waits for its few buffers (12.9 ms a
 * token at 10 x 100 tokens without, 10.3 into L1, 7.4 so).
 *
 * Softmax is online, a tile at a time (Dao, FlashAttention-2 (2023), sec. 3.1).  Every sum of a
 * query runs over its own keys, or over d, in order.
 *
 * Keys that a query does not see get the score -inf by selection and the weight 0, and its output
 * is selected past their values, so nothing behind n_tokens or after the row (NaN included) can
 * reach a result. */
#include "kernels/attn_tile.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/simd.h"

#define GROUP_VECTORS 2
#define GROUP         (GROUP_VECTORS * SIMD_F32) /* queries at a time */
#define KEYS          6                          /* times two vectors: 12 running sums */
#define KEYS_1        8                          /* where there is one vector */
#define ELEMENTS      4                          /* of an output; times two vectors: 8 */
#define ELEMENTS_1    8                          /* where there is one vector */

#define LINE_FLOATS 16 /* of the cache */

/* What a group of queries holds between the steps of a tile. */
struct group {
    float weights[ATTN_TILE][GROUP]; /* first the scores */
    i32x8 seen[GROUP_VECTORS];
    f32x8 factor[GROUP_VECTORS]; /* exp(old m - new m) */
    uint32_t seen_max, seen_min; /* of its queries */
    bool is_first;               /* nothing was added to them before */
};

/* Scores of `keys` keys from `first` on. */
SIMD_INLINE void
score_keys(const struct attn_tile *tile, const float *q, uint32_t first, uint32_t D,
           struct group *group, const uint32_t keys, const uint32_t vectors)
{
    f32x8 sums[KEYS_1][GROUP_VECTORS] = {{{0}}};

    for (uint32_t d = 0; d < D; d++) {
        f32x8 x[GROUP_VECTORS];

#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            simd_load(&x[v], &q[(size_t)d * ATTN_ITEMS + v * SIMD_F32]);
        }
#pragma GCC unroll 12
        for (uint32_t j = 0; j < keys; j++) {
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++) {
                sums[j][v] += tile->key_rows[first + j][d] * x[v];
            }
        }
    }
#pragma GCC unroll 12
    for (uint32_t j = 0; j < keys; j++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            simd_store(&group->weights[first + j][v * SIMD_F32], &sums[j][v]);
        }
    }
}

/* Rows of D elements, on their way from memory. */
SIMD_INLINE void
fetch_rows(const float *const *rows, uint32_t n, uint32_t D)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t d = 0; d < D; d += LINE_FLOATS) {
            __builtin_prefetch(&rows[i][d], 0, 2);
        }
    }
}

/* All keys that any of the queries sees, dealt to runs. */
SIMD_INLINE void
score_tile(const struct attn_tile *tile, const float *q, uint32_t D, struct group *group)
{
    uint32_t n = group->seen_max, runs = (n + KEYS - 1) / KEYS;

    for (uint32_t run = 0, first = 0; run < runs; run++) {
        uint32_t keys = n / runs + (run < n % runs);

        switch (keys) {
        case 1: score_keys(tile, q, first, D, group, 1, GROUP_VECTORS); break;
        case 2: score_keys(tile, q, first, D, group, 2, GROUP_VECTORS); break;
        case 3: score_keys(tile, q, first, D, group, 3, GROUP_VECTORS); break;
        case 4: score_keys(tile, q, first, D, group, 4, GROUP_VECTORS); break;
        case 5: score_keys(tile, q, first, D, group, 5, GROUP_VECTORS); break;
        default: score_keys(tile, q, first, D, group, KEYS, GROUP_VECTORS); break;
        }
        first += keys;
    }
}

/* The same of one vector. */
SIMD_INLINE void
score_few(const struct attn_tile *tile, const float *q, uint32_t D, struct group *group)
{
    uint32_t n = group->seen_max;

    for (uint32_t first = 0, keys = 0; first < n; first += keys) {
        keys = n - first;
        keys = keys >= KEYS_1 ? KEYS_1 : keys >= 4 ? 4 : 1;
        fetch_rows(&tile->value_rows[first], keys, D);
        switch (keys) {
        case 1: score_keys(tile, q, first, D, group, 1, 1); break;
        case 4: score_keys(tile, q, first, D, group, 4, 1); break;
        default: score_keys(tile, q, first, D, group, KEYS_1, 1); break;
        }
    }
}

/* Scores become weights exp(score - m), hidden ones, which are at the causal edge only, 0; m and l
 * of the queries go on. */
SIMD_INLINE void
weigh(struct group *group, float scale, float *m, float *l, const uint32_t v, const bool is_edge)
{
    const f32x8 zero = {0}, one = zero + 1.0f, ninf = zero - __builtin_inff();
    f32x8 m_old, m_new, l_old, sum = zero;
    i32x8 has_none;

    m_old = ninf;
    l_old = zero;
    if (!group->is_first) {
        simd_load(&m_old, m);
        simd_load(&l_old, l);
    }
    m_new = m_old;
    for (uint32_t j = 0; j < group->seen_max; j++) {
        float *at = &group->weights[j][v * SIMD_F32];
        i32x8 is_seen = group->seen[v] > (int32_t)j;
        f32x8 score;

        simd_load(&score, at);
        score *= scale;
        if (is_edge) {
            simd_select(&score, &is_seen, &score, &ninf);
        }
        simd_store(at, &score);
        simd_max(&m_new, &score, &m_new);
    }
    /* Where no key was seen yet, -inf minus -inf must not happen. */
    has_none = m_new == ninf;
    group->factor[v] = m_old - m_new;
    simd_exp_fall(&group->factor[v], &group->factor[v]);
    simd_select(&group->factor[v], &has_none, &one, &group->factor[v]);
    for (uint32_t j = 0; j < group->seen_max; j++) {
        float *at = &group->weights[j][v * SIMD_F32];
        i32x8 is_seen = group->seen[v] > (int32_t)j;
        f32x8 w;

        simd_load(&w, at);
        w -= m_new;
        simd_exp_fall(&w, &w);
        if (is_edge) {
            simd_select(&w, &is_seen, &w, &zero);
        }
        simd_store(at, &w);
        sum += w;
    }
    l_old = l_old * group->factor[v] + sum;
    simd_store(m, &m_new);
    simd_store(l, &l_old);
}

/* Elements [d, d + elements) of the outputs. */
SIMD_INLINE void
add_values(const struct attn_tile *tile, const struct group *group, float *o, uint32_t d,
           const uint32_t elements, const uint32_t vectors)
{
    f32x8 sums[ELEMENTS_1][GROUP_VECTORS] = {{{0}}};

    if (!group->is_first) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < elements; i++) {
#pragma GCC unroll 2
            for (uint32_t v = 0; v < vectors; v++) {
                simd_load(&sums[i][v], &o[(size_t)i * ATTN_ITEMS + v * SIMD_F32]);
                sums[i][v] *= group->factor[v];
            }
        }
    }
    for (uint32_t j = 0; j < group->seen_min; j++) {
        const float *value = &tile->value_rows[j][d];

#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            f32x8 w;

            simd_load(&w, &group->weights[j][v * SIMD_F32]);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < elements; i++) {
                sums[i][v] += value[i] * w;
            }
        }
    }
    /* At the causal edge only some of them see the key. */
    for (uint32_t j = group->seen_min; j < group->seen_max; j++) {
        const float *value = &tile->value_rows[j][d];

#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            i32x8 is_seen = group->seen[v] > (int32_t)j;
            f32x8 w;

            simd_load(&w, &group->weights[j][v * SIMD_F32]);
#pragma GCC unroll 8
            for (uint32_t i = 0; i < elements; i++) {
                f32x8 sum = sums[i][v] + value[i] * w;

                simd_select(&sums[i][v], &is_seen, &sum, &sums[i][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (uint32_t i = 0; i < elements; i++) {
#pragma GCC unroll 2
        for (uint32_t v = 0; v < vectors; v++) {
            simd_store(&o[(size_t)i * ATTN_ITEMS + v * SIMD_F32], &sums[i][v]);
        }
    }
}

SIMD_INLINE void
add_group(const struct attn_tile *tile, const float *q, float scale, struct attn_lanes *lanes,
          uint32_t first, uint32_t D, struct group *group, const uint32_t vectors)
{
    if (vectors == 1) {
        score_few(tile, &q[first], D, group);
    } else {
        score_tile(tile, &q[first], D, group);
    }
#pragma GCC unroll 2
    for (uint32_t v = 0; v < vectors; v++) {
        float *m = &lanes->m[first + v * SIMD_F32], *l = &lanes->l[first + v * SIMD_F32];

        if (group->seen_min < group->seen_max) {
            weigh(group, scale, m, l, v, true);
        } else {
            weigh(group, scale, m, l, v, false);
        }
    }
    const uint32_t elements = vectors == 1 ? ELEMENTS_1 : ELEMENTS;

    for (uint32_t d = 0, ahead = 0; d < D; d += elements) {
        if (vectors == 1) {
            uint32_t n = tile->n_ahead * (d + elements) / D - ahead;

            fetch_rows(&tile->ahead[ahead], n, D);
            ahead += n;
        }
        add_values(tile, group, &lanes->o[d][first], d, elements, vectors);
    }
}

/* How many keys each of a group's queries sees.  Lanes without a query see what the first one does:
 * they are computed and never read. */
SIMD_INLINE void
look(struct group *group, const uint32_t *seen, uint32_t count)
{
    group->seen_max = group->seen_min = seen[0];
    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t n = i < count ? seen[i] : seen[0];

        group->seen[i / SIMD_F32][i % SIMD_F32] = (int32_t)n;
        group->seen_max = n > group->seen_max ? n : group->seen_max;
        group->seen_min = n < group->seen_min ? n : group->seen_min;
    }
}

/* Sets lanes [first, first + count), rounded up to whole vectors, to the identity. */
static void
reset_lanes(struct attn_lanes *lanes, uint32_t first, uint32_t count, uint32_t D)
{
    uint32_t n = (count + SIMD_F32 - 1) / SIMD_F32 * SIMD_F32;

    for (uint32_t d = 0; d < D; d++) {
        memset(&lanes->o[d][first], 0, n * sizeof(float));
    }
    for (uint32_t i = first; i < first + n; i++) {
        lanes->m[i] = -INFINITY;
        lanes->l[i] = 0.0f;
    }
}

void
attn_lanes_reset(struct attn_lanes *lanes, uint32_t count, uint32_t D)
{
    reset_lanes(lanes, 0, count, D);
}

SIMD_CLONES void
attn_tile_add(const struct attn_tile *tile, const float *q, const uint32_t *seen, uint32_t count,
              float scale, bool is_first, struct attn_lanes *lanes, uint32_t D)
{
    struct group group;

    group.is_first = is_first;
    for (uint32_t first = 0; first < count; first += GROUP) {
        uint32_t n = count - first < GROUP ? count - first : GROUP;

        look(&group, &seen[first], n);
        if (group.seen_max == 0) {
            if (is_first) {
                reset_lanes(lanes, first, n, D);
            }
        } else if (n <= SIMD_F32) {
            add_group(tile, q, scale, lanes, first, D, &group, 1);
        } else {
            add_group(tile, q, scale, lanes, first, D, &group, GROUP_VECTORS);
        }
    }
}

/* --- partials ------------------------------------------------------------------------------- */

/* The factors of two partials, the second no identity, and the m and l of both. */
static void
join(float *into_m, float *into_l, float m, float l, float *old_scale, float *new_scale)
{
    float m_new = m > *into_m ? m : *into_m;

    /* One of them is exp(0). */
    *old_scale = *into_m == m_new ? 1.0f : expf(*into_m - m_new);
    *new_scale = m == m_new ? 1.0f : expf(m - m_new);
    *into_l = *into_l * *old_scale + l * *new_scale;
    *into_m = m_new;
}

/* The one expression of both merges, so that both round alike. */
SIMD_INLINE void
blend(f32x8 *into, const f32x8 *o, const f32x8 *old_scale, const f32x8 *new_scale)
{
    f32x8 scaled = *o * *new_scale;

    *into = *into * *old_scale + scaled;
}

SIMD_CLONES static void
blend_lanes(struct attn_lanes *into, const struct attn_lanes *part, const float *old_scale,
            const float *new_scale, uint32_t count, uint32_t D)
{
    for (uint32_t first = 0; first < count; first += SIMD_F32) {
        const f32x8 zero = {0};
        f32x8 l, a, b;
        i32x8 is_empty;

        simd_load(&l, &part->l[first]);
        simd_load(&a, &old_scale[first]);
        simd_load(&b, &new_scale[first]);
        is_empty = l == zero;
        for (uint32_t d = 0; d < D; d++) {
            f32x8 before, after, o;

            simd_load(&before, &into->o[d][first]);
            simd_load(&o, &part->o[d][first]);
            after = before;
            blend(&after, &o, &a, &b);
            simd_select(&after, &is_empty, &before, &after);
            simd_store(&into->o[d][first], &after);
        }
    }
}

void
attn_lanes_merge(struct attn_lanes *into, const struct attn_lanes *part, uint32_t count, uint32_t D)
{
    float old_scale[ATTN_ITEMS] = {0}, new_scale[ATTN_ITEMS] = {0};

    for (uint32_t i = 0; i < count; i++) {
        if (part->l[i] != 0.0f) {
            join(&into->m[i], &into->l[i], part->m[i], part->l[i], &old_scale[i], &new_scale[i]);
        }
    }
    blend_lanes(into, part, old_scale, new_scale, count, D);
}

void
attn_state_reset(struct attn_state *state)
{
    memset(state->o, 0, sizeof(state->o));
    state->m = -INFINITY;
    state->l = 0.0f;
}

SIMD_CLONES static void
blend_state(float *into, const float *o, float old_scale, float new_scale, uint32_t D)
{
    const f32x8 zero = {0}, old_scales = zero + old_scale, new_scales = zero + new_scale;

    for (uint32_t d = 0; d < D; d += SIMD_F32) {
        uint32_t n = D - d < SIMD_F32 ? D - d : SIMD_F32;
        f32x8 a = {0}, b = {0};

        memcpy(&a, &into[d], n * sizeof(float));
        memcpy(&b, &o[d], n * sizeof(float));
        blend(&a, &b, &old_scales, &new_scales);
        memcpy(&into[d], &a, n * sizeof(float));
    }
}

void
attn_state_merge(struct attn_state *into, const float *o, float m, float l, uint32_t D)
{
    float old_scale, new_scale;

    if (l == 0.0f) {
        return; /* the identity */
    }
    join(&into->m, &into->l, m, l, &old_scale, &new_scale);
    blend_state(into->o, o, old_scale, new_scale, D);
}

SIMD_CLONES void
attn_output(const float *o, float l, float *out, uint32_t D)
{
    float inverse = l == 0.0f ? 0.0f : 1.0f / l;

    uint32_t whole = D / SIMD_F32 * SIMD_F32;

    for (uint32_t d = 0; d < whole; d += SIMD_F32) {
        f32x8 x;

        simd_load(&x, &o[d]);
        x *= inverse;
        simd_store(&out[d], &x);
    }
    for (uint32_t d = whole; d < D; d++) {
        out[d] = o[d] * inverse;
    }
}
