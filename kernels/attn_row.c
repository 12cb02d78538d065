/* SPDX-License-Identifier: Apache-2.0 */
/* A block of up to 64 (row, head) pairs walks the keys of a chunk in tiles.  The tile's keys are
 * transposed once for all pairs (attn_tile.c says why). */
#include "kernels/attn_row.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/simd.h"
#include "kernels/transpose.h"

static_assert(LAZY_DECODE_CHUNK % ATTN_TILE == 0, "a tile never straddles chunks");

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

/* into = into * old_scale + o * new_scale */
SIMD_CLONES static void
merge_outputs(float *into, const float *o, float old_scale, float new_scale, uint32_t D)
{
    uint32_t d = 0;

    for (; d + SIMD_F32 <= D; d += SIMD_F32) {
        f32x8 a, b;

        simd_load(&a, &into[d]);
        simd_load(&b, &o[d]);
        a = a * old_scale + b * new_scale;
        simd_store(&into[d], &a);
    }
    for (; d < D; d++) {
        into[d] = into[d] * old_scale + o[d] * new_scale;
    }
}

void
attn_state_merge(struct attn_state *into, const float *o, float m, float l, uint32_t D)
{
    if (l == 0.0f) {
        return; /* the identity: -inf minus -inf must not happen */
    }
    /* One of them is exp(0). */
    float m_new = m > into->m ? m : into->m;
    float old_scale = into->m == m_new ? 1.0f : expf(into->m - m_new);
    float new_scale = m == m_new ? 1.0f : expf(m - m_new);

    merge_outputs(into->o, o, old_scale, new_scale, D);
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
attn_items_rotate(const struct attn_desc *desc, const struct rope_table *table, const float *q,
                  struct attn_items items, const struct attn_segment *seg,
                  struct attn_scratch *scratch)
{
    uint32_t D = desc->layout.D, G = desc->H / desc->layout.Hkv;
    uint64_t visible_max = 0;
    struct rope_angle room;
    const struct rope_angle *angle = &room;
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
            angle = rope_table_angle(table, local, desc->inv_freq, D, desc->rope_scale, &room);
            row_of_angle = row;
        }
        rope_angle_rotate(angle, &q[((size_t)(items.seq->row_first + row) * desc->H + head) * D],
                          scratch->q[i], D);
        scratch->visible[i] = local + 1 < seg->n_tokens ? local + 1 : seg->n_tokens;
        if (scratch->visible[i] > visible_max) {
            visible_max = scratch->visible[i];
        }
    }
    return visible_max;
}

/* Any type and layout, element by element through the one address function. */
static void
load_generic(const struct attn_desc *desc, const char *block, uint32_t head, uint32_t slot,
             uint32_t at, uint32_t count, struct attn_tile *tile)
{
    const struct kv_layout *layout = &desc->layout;
    uint32_t layer = desc->layer;

    for (uint32_t j = 0; j < count; j++) {
        float *value = &tile->values[(size_t)(at + j) * ATTN_D_MAX];

        for (uint32_t d = 0; d < layout->D; d++) {
            uint16_t k, v;

            memcpy(&k, block + kv_layout_offset(layout, layer, KV_PART_K, head, slot + j, d), 2);
            memcpy(&v, block + kv_layout_offset(layout, layer, KV_PART_V, head, slot + j, d), 2);
            tile->keys[(size_t)d * ATTN_TILE + at + j] = bf16_to_f32(k);
            value[d] = bf16_to_f32(v);
        }
        tile->value_rows[at + j] = value;
    }
}

/* float32 in the plain layout: rows are contiguous, values are used where they lie. */
static void
load_plain(const struct attn_desc *desc, const char *block, uint32_t head, uint32_t slot,
           uint32_t at, uint32_t count, struct attn_tile *tile)
{
    const struct kv_layout *layout = &desc->layout;
    const void *k = block + kv_layout_offset(layout, desc->layer, KV_PART_K, head, slot, 0);
    const void *v = block + kv_layout_offset(layout, desc->layer, KV_PART_V, head, slot, 0);

    transpose(k, layout->D, count, layout->D, &tile->keys[at], ATTN_TILE);
    for (uint32_t j = 0; j < count; j++) {
        tile->value_rows[at + j] = (const float *)v + (size_t)j * layout->D;
    }
}

/* Brings keys [key_first, key_first + count) of the segment into the tile; the rest of it is 0. */
static void
load_tile(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t head,
          uint32_t key_first, uint32_t count, struct attn_tile *tile)
{
    uint32_t P = desc->layout.P, n = 0;
    size_t block_bytes = kv_layout_block_bytes(&desc->layout);

    if (count < ATTN_TILE) { /* hidden anyway, but nothing computes with stale memory */
        memset(tile->keys, 0, sizeof(tile->keys[0]) * ATTN_TILE * desc->layout.D);
    }
    for (uint32_t at = 0; at < count; at += n) {
        uint32_t slot = (key_first + at) % P;
        uint32_t id = desc->block_ids[seg->block_first + (key_first + at) / P];
        const char *block = (const char *)desc->kv + id * block_bytes;

        n = count - at < P - slot ? count - at : P - slot;
        if (desc->layout.type == KV_F32) {
            load_plain(desc, block, head, slot, at, n, tile);
        } else {
            load_generic(desc, block, head, slot, at, n, tile);
        }
    }
}

/* The tile for all pairs that see some of it, two at a time; an odd one out is joined by itself
 * with a state that nobody reads. */
static void
add_tile(struct attn_scratch *scratch, uint32_t count, uint64_t key_first, float scale, uint32_t D)
{
    struct attn_state nobody;
    struct attn_state *state[2];
    const float *q[2];
    uint32_t seen[2], n = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (scratch->visible[i] <= key_first) {
            continue;
        }
        uint64_t left = scratch->visible[i] - key_first;

        q[n] = scratch->q[i];
        state[n] = &scratch->part[i];
        seen[n++] = left < ATTN_TILE ? (uint32_t)left : ATTN_TILE;
        if (n == 2) {
            attn_tile_add(&scratch->tile, q, seen, scale, state, D);
            n = 0;
        }
    }
    if (n == 1) {
        attn_state_reset(&nobody);
        q[1] = q[0];
        seen[1] = 1;
        state[1] = &nobody;
        attn_tile_add(&scratch->tile, q, seen, scale, state, D);
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

        load_tile(desc, seg, items.kv_head, (uint32_t)key, count, &scratch->tile);
        add_tile(scratch, items.count, key, desc->scale, desc->layout.D);
    }
}
