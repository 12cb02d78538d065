/* SPDX-License-Identifier: Apache-2.0 */
/* A block of up to 64 (row, head) pairs walks the keys of a chunk in tiles of 64.  The tile's keys
 * are transposed once, so that lanes are keys: a score is one running sum over d, the same in every
 * lane, every block and every batch, and no sum over lanes is needed.  Values are used as they lie,
 * lanes along d.  Softmax is online per tile (Dao, FlashAttention-2 (2023), sec. 3.1).
 *
 * Keys that a pair does not see get the score -inf by selection and their values are not touched,
 * so nothing behind n_tokens or after the row (NaN included) can reach a result. */
#include "kernels/attn_row.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/simd.h"

static_assert(LAZY_DECODE_CHUNK % ATTN_TILE == 0, "a tile never straddles chunks");
static_assert(ATTN_TILE % 64 == 0, "a tile holds whole blocks of every size");

enum status
attn_check(const struct attn_desc *desc)
{
    uint32_t P = desc->layout.P;

    TRY(kv_layout_check(&desc->layout));
    if (desc->H == 0 || desc->H % desc->layout.Hkv != 0) {
        return ERR(ST_INVALID, "%u query heads: not a multiple of %u key/value heads", desc->H,
                   desc->layout.Hkv);
    }
    if (desc->layer >= desc->layout.L) {
        return ERR(ST_INVALID, "layer %u of %u", desc->layer, desc->layout.L);
    }
    for (uint32_t i = 0; i < desc->n_seqs; i++) {
        const struct attn_seq *seq = &desc->seqs[i];

        for (uint32_t s = 0; s < seq->n_segs; s++) {
            const struct attn_segment *seg = &desc->segs[seq->seg_first + s];
            uint64_t blocks = ((uint64_t)seg->n_tokens + P - 1) / P;

            for (uint64_t b = 0; b < blocks; b++) {
                if (desc->block_ids[seg->block_first + b] >= desc->n_blocks) {
                    return ERR(ST_INVALID, "sequence %u segment %u: block id %u, the arena has %u",
                               i, s, desc->block_ids[seg->block_first + b], desc->n_blocks);
                }
            }
        }
    }
    return ST_OK;
}

void
attn_state_reset(struct attn_state *state)
{
    memset(state->o, 0, sizeof(state->o));
    state->m = -INFINITY;
    state->l = 0.0f;
}

void
attn_state_merge(struct attn_state *into, const float *o, float m, float l, uint32_t D)
{
    if (l == 0.0f) {
        return; /* the identity: -inf minus -inf must not happen */
    }
    float m_new = m > into->m ? m : into->m;
    float old_scale = into->l == 0.0f ? 0.0f : expf(into->m - m_new);
    float new_scale = expf(m - m_new);

    for (uint32_t d = 0; d < D; d++) {
        into->o[d] = into->o[d] * old_scale + o[d] * new_scale;
    }
    into->l = into->l * old_scale + l * new_scale;
    into->m = m_new;
}

void
attn_state_output(const struct attn_state *state, float *out, uint32_t D)
{
    float inverse = state->l == 0.0f ? 0.0f : 1.0f / state->l;

    for (uint32_t d = 0; d < D; d++) {
        out[d] = state->o[d] * inverse;
    }
}

uint64_t
attn_items_rotate(const struct attn_desc *desc, const float *q, struct attn_items items,
                  const struct attn_segment *seg, struct attn_scratch *scratch)
{
    uint32_t D = desc->layout.D, G = desc->H / desc->layout.Hkv;
    uint64_t visible_max = 0;
    struct rope_angle angle;
    uint32_t row_of_angle = UINT32_MAX;

    for (uint32_t i = 0; i < items.count; i++) {
        uint32_t row = (items.first + i) / G;
        uint32_t head = items.kv_head * G + (items.first + i) % G;
        uint64_t position = (uint64_t)items.seq->pos_first + row;

        scratch->visible[i] = 0;
        if (position < seg->offset || seg->n_tokens == 0) {
            continue;
        }
        uint64_t local = position - seg->offset;

        if (row != row_of_angle) {
            rope_angle_at(&angle, local, desc->inv_freq, D, desc->rope_scale);
            row_of_angle = row;
        }
        rope_angle_rotate(&angle, &q[((size_t)(items.seq->row_first + row) * desc->H + head) * D],
                          scratch->q[i], D);
        scratch->visible[i] = local + 1 < seg->n_tokens ? local + 1 : seg->n_tokens;
        if (scratch->visible[i] > visible_max) {
            visible_max = scratch->visible[i];
        }
    }
    return visible_max;
}

/* Transposes `count` float32 rows into columns [at, at + count) of the key tile. */
static void
transpose_keys(float *keys, uint32_t at, const float *rows, uint32_t count, uint32_t D)
{
    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t d = 0; d < D; d++) {
            keys[(size_t)d * ATTN_TILE + at + j] = rows[(size_t)j * D + d];
        }
    }
}

/* Any type and layout, element by element through the one address function. */
static void
load_tile_generic(const struct attn_desc *desc, const char *block, uint32_t head, uint32_t at,
                  uint32_t count, struct attn_scratch *scratch)
{
    const struct kv_layout *layout = &desc->layout;
    uint32_t D = layout->D;

    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t d = 0; d < D; d++) {
            uint16_t k, v;

            memcpy(&k, block + kv_layout_offset(layout, desc->layer, KV_PART_K, head, j, d),
                   sizeof(k));
            memcpy(&v, block + kv_layout_offset(layout, desc->layer, KV_PART_V, head, j, d),
                   sizeof(v));
            scratch->keys[(size_t)d * ATTN_TILE + at + j] = bf16_to_f32(k);
            scratch->values[(size_t)(at + j) * ATTN_D_MAX + d] = bf16_to_f32(v);
        }
        scratch->value_rows[at + j] = &scratch->values[(size_t)(at + j) * ATTN_D_MAX];
    }
}

/* Brings keys [key_first, key_first + count) of the segment into the tile; the rest of it is 0. */
static void
load_tile(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t head,
          uint32_t key_first, uint32_t count, struct attn_scratch *scratch)
{
    const struct kv_layout *layout = &desc->layout;
    uint32_t D = layout->D, P = layout->P;
    size_t block_bytes = kv_layout_block_bytes(layout);

    if (count < ATTN_TILE) {
        memset(scratch->keys, 0, sizeof(scratch->keys[0]) * ATTN_TILE * D);
    }
    for (uint32_t at = 0; at < count; at += P) {
        uint32_t id = desc->block_ids[seg->block_first + (key_first + at) / P];
        const char *block = (const char *)desc->kv + id * block_bytes;
        uint32_t n = count - at < P ? count - at : P;

        if (layout->type != KV_F32) {
            load_tile_generic(desc, block, head, at, n, scratch);
            continue;
        }
        const float *k = (const float *)(const void *)(block
                                                       + kv_layout_offset(layout, desc->layer,
                                                                          KV_PART_K, head, 0, 0));
        const float *v = (const float *)(const void *)(block
                                                       + kv_layout_offset(layout, desc->layer,
                                                                          KV_PART_V, head, 0, 0));

        transpose_keys(scratch->keys, at, k, n, D);
        for (uint32_t j = 0; j < n; j++) {
            scratch->value_rows[at + j] = v + (size_t)j * D;
        }
    }
}

#define TILE_VECTORS (ATTN_TILE / SIMD_F32)

/* weights[j] = exp(score_j - m) for the n visible keys of the tile and 0 behind; updates m and l,
 * returns the factor for what was summed before. */
SIMD_INLINE float
tile_weights(const float *q, const float *keys, uint32_t n, float scale, float *weights,
             struct attn_state *state, uint32_t D)
{
    f32x8 s[TILE_VECTORS] = {{0}}, top, sum = {0}, ninf = sum - __builtin_inff(), m_new;
    i32x8 lane = {0, 1, 2, 3, 4, 5, 6, 7};

    for (uint32_t d = 0; d < D; d++) {
#pragma GCC unroll 8
        for (int t = 0; t < TILE_VECTORS; t++) {
            s[t] += q[d] * *(const f32x8_any *)&keys[(size_t)d * ATTN_TILE + t * SIMD_F32];
        }
    }
    top = ninf;
#pragma GCC unroll 8
    for (int t = 0; t < TILE_VECTORS; t++) {
        i32x8 seen = lane + t * SIMD_F32 < (int32_t)n;

        s[t] *= scale;
        simd_select(&s[t], &seen, &s[t], &ninf);
        simd_max(&top, &s[t], &top);
    }
    float m_old = state->m, tile_max = simd_max_lane(&top);

    state->m = tile_max > m_old ? tile_max : m_old;
    m_new = (f32x8){0} + state->m;
#pragma GCC unroll 8
    for (int t = 0; t < TILE_VECTORS; t++) {
        s[t] -= m_new;
        simd_exp(&s[t], &s[t]);
        simd_store(&weights[t * SIMD_F32], &s[t]);
        sum += s[t];
    }
    float factor = state->l == 0.0f ? 0.0f : expf(m_old - state->m);

    state->l = state->l * factor + simd_sum(&sum);
    return factor;
}

/* One tile for one pair. */
SIMD_INLINE void
item_tile(const float *q, const float *keys, const float *const *value_rows, uint32_t n,
          float scale, struct attn_state *state, uint32_t D)
{
    float weights[ATTN_TILE];
    float factor = tile_weights(q, keys, n, scale, weights, state, D);
    f32x8 o[ATTN_D_MAX / SIMD_F32];

#pragma GCC unroll 16
    for (uint32_t i = 0; i < D / SIMD_F32; i++) {
        simd_load(&o[i], &state->o[i * SIMD_F32]);
        o[i] *= factor;
    }
    for (uint32_t j = 0; j < n; j++) {
#pragma GCC unroll 16
        for (uint32_t i = 0; i < D / SIMD_F32; i++) {
            o[i] += weights[j] * *(const f32x8_any *)&value_rows[j][i * SIMD_F32];
        }
    }
#pragma GCC unroll 16
    for (uint32_t i = 0; i < D / SIMD_F32; i++) {
        simd_store(&state->o[i * SIMD_F32], &o[i]);
    }
}

/* The tile for all pairs of the block; two instances of one body, so that D is a constant in each.
 */
SIMD_CLONES static void
items_tile_64(struct attn_scratch *scratch, uint32_t count, uint64_t key_first, float scale)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seen = scratch->visible[i] > key_first ? scratch->visible[i] - key_first : 0;

        if (seen > 0) {
            item_tile(scratch->q[i], scratch->keys, scratch->value_rows,
                      seen < ATTN_TILE ? (uint32_t)seen : ATTN_TILE, scale, &scratch->part[i], 64);
        }
    }
}

SIMD_CLONES static void
items_tile_128(struct attn_scratch *scratch, uint32_t count, uint64_t key_first, float scale)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seen = scratch->visible[i] > key_first ? scratch->visible[i] - key_first : 0;

        if (seen > 0) {
            item_tile(scratch->q[i], scratch->keys, scratch->value_rows,
                      seen < ATTN_TILE ? (uint32_t)seen : ATTN_TILE, scale, &scratch->part[i], 128);
        }
    }
}

void
attn_items_chunk(const struct attn_desc *desc, struct attn_items items,
                 const struct attn_segment *seg, uint32_t chunk, struct attn_scratch *scratch)
{
    uint64_t key = (uint64_t)chunk * LAZY_DECODE_CHUNK, end = 0;

    for (uint32_t i = 0; i < items.count; i++) {
        attn_state_reset(&scratch->part[i]);
        end = scratch->visible[i] > end ? scratch->visible[i] : end;
    }
    end = end < key + LAZY_DECODE_CHUNK ? end : key + LAZY_DECODE_CHUNK;
    for (; key < end; key += ATTN_TILE) {
        uint32_t count = end - key < ATTN_TILE ? (uint32_t)(end - key) : ATTN_TILE;

        load_tile(desc, seg, items.kv_head, (uint32_t)key, count, scratch);
        if (desc->layout.D == 64) {
            items_tile_64(scratch, items.count, key, desc->scale);
        } else {
            items_tile_128(scratch, items.count, key, desc->scale);
        }
    }
}
