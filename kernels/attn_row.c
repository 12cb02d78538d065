/* SPDX-License-Identifier: Apache-2.0 */
/* A block of up to 64 (row, head) pairs walks the keys of a chunk in tiles.  Its queries are
 * transposed once a segment, so that they are lanes (attn_tile.c says why). */
#include "kernels/attn_row.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/bf16.h"
#include "kernels/rope_angle.h"
#include "kernels/transpose.h"

#define CACHE_LINE_FLOATS 16

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

uint64_t
attn_items_rotate(const struct attn_desc *desc, const struct rope_table *table, const float *q,
                  struct attn_items items, const struct attn_segment *seg,
                  struct attn_scratch *scratch)
{
    uint32_t D = desc->layout.D, G = desc->H / desc->layout.Hkv;
    uint64_t visible_max = 0;
    struct rope_angle room;

    for (uint32_t i = 0, n = 0; i < items.count; i += n) { /* the heads of a row */
        uint32_t row = (items.first + i) / G, head = (items.first + i) % G;
        uint64_t position = (uint64_t)items.seq->pos_first + row;
        bool is_before = position < seg->offset || seg->n_tokens == 0;
        uint64_t local = position - seg->offset;
        uint64_t visible = is_before ? 0 : local + 1 < seg->n_tokens ? local + 1 : seg->n_tokens;

        n = items.count - i < G - head ? items.count - i : G - head;
        for (uint32_t g = 0; g < n; g++) {
            scratch->visible[i + g] = visible;
        }
        if (visible > 0) {
            size_t first =
                (size_t)(items.seq->row_first + row) * desc->H + items.kv_head * G + head;

            rope_angle_rotate_heads(
                rope_table_angle(table, local, desc->inv_freq, D, desc->rope_scale, &room),
                &q[first * D], n, scratch->rows[i], ATTN_D_MAX, D);
        }
        visible_max = visible > visible_max ? visible : visible_max;
    }
    if (visible_max > 0) {
        transpose(scratch->rows[0], ATTN_D_MAX, items.count, D, scratch->q[0], ATTN_ITEMS);
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
        float *key = tile->keys[at + j], *value = tile->values[at + j];

        for (uint32_t d = 0; d < layout->D; d++) {
            uint16_t k, v;

            memcpy(&k, block + kv_layout_offset(layout, layer, KV_PART_K, head, slot + j, d), 2);
            memcpy(&v, block + kv_layout_offset(layout, layer, KV_PART_V, head, slot + j, d), 2);
            key[d] = bf16_to_f32(k);
            value[d] = bf16_to_f32(v);
        }
        tile->key_rows[at + j] = key;
        tile->value_rows[at + j] = value;
    }
}

/* A run of keys [key, key + count) of a segment that lie in one block. */
struct run {
    const char *block;
    uint32_t slot;
    uint32_t count;
};

static struct run
run_at(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t key, uint32_t count)
{
    uint32_t P = desc->layout.P, slot = key % P;
    uint32_t id = desc->block_ids[seg->block_first + key / P];

    return (struct run){(const char *)desc->kv + id * kv_layout_block_bytes(&desc->layout), slot,
                        count < P - slot ? count : P - slot};
}

/* float32 in the plain layout: rows are contiguous and used where they lie. */
static void
list_rows(const struct attn_desc *desc, const struct run *run, enum kv_part part, uint32_t head,
          const float **rows)
{
    const void *first =
        run->block + kv_layout_offset(&desc->layout, desc->layer, part, head, run->slot, 0);

    for (uint32_t j = 0; j < run->count; j++) {
        rows[j] = (const float *)first + (size_t)j * desc->layout.D;
    }
}

static void
fetch(const struct attn_desc *desc, const float *const *rows, uint32_t count)
{
    for (uint32_t j = 0; j < count; j++) {
        for (uint32_t d = 0; d < desc->layout.D; d += CACHE_LINE_FLOATS) {
            __builtin_prefetch(&rows[j][d], 0, 2);
        }
    }
}

/* Brings keys [key_first, key_first + count) of the segment into the tile.  Values are wanted after
 * the scores. */
static void
load_tile(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t head,
          uint32_t key_first, uint32_t count, bool is_fetching, struct attn_tile *tile)
{
    struct run run;

    for (uint32_t at = 0; at < count; at += run.count) {
        run = run_at(desc, seg, key_first + at, count - at);
        if (desc->layout.type != KV_F32) {
            load_generic(desc, run.block, head, run.slot, at, run.count, tile);
            continue;
        }
        list_rows(desc, &run, KV_PART_K, head, &tile->key_rows[at]);
        list_rows(desc, &run, KV_PART_V, head, &tile->value_rows[at]);
        if (is_fetching) {
            fetch(desc, &tile->value_rows[at], run.count);
        }
    }
}

/* The rows of the keys of a tile to come; returns how many. */
static uint32_t
look_ahead(const struct attn_desc *desc, struct attn_next next, const float *rows[ATTN_TILE])
{
    uint32_t count = 0;
    struct run run;

    if (next.seg != NULL && desc->layout.type == KV_F32) {
        count = next.seg->n_tokens - next.key;
        count = count < ATTN_TILE ? count : ATTN_TILE;
    }
    for (uint32_t at = 0; at < count; at += run.count) {
        run = run_at(desc, next.seg, next.key + at, count - at);
        list_rows(desc, &run, KV_PART_K, next.kv_head, &rows[at]);
    }
    return count;
}

void
attn_fetch_keys(const struct attn_desc *desc, const struct attn_segment *seg, uint32_t head)
{
    const float *rows[ATTN_TILE];

    fetch(desc, rows, look_ahead(desc, (struct attn_next){seg, head, 0}, rows));
}

void
attn_items_chunk(const struct attn_desc *desc, struct attn_items items,
                 const struct attn_segment *seg, uint32_t chunk, struct attn_next next,
                 struct attn_scratch *scratch)
{
    uint64_t begin = (uint64_t)chunk * LAZY_DECODE_CHUNK, end = 0;
    uint32_t seen[ATTN_ITEMS];
    bool is_few = items.count <= ATTN_FEW;

    for (uint32_t i = 0; i < items.count; i++) {
        end = scratch->visible[i] > end ? scratch->visible[i] : end;
    }
    end = end < begin + LAZY_DECODE_CHUNK ? end : begin + LAZY_DECODE_CHUNK;
    if (end <= begin) {
        attn_lanes_reset(&scratch->part, items.count, desc->layout.D);
    }
    for (uint64_t key = begin; key < end; key += ATTN_TILE) {
        uint32_t count = end - key < ATTN_TILE ? (uint32_t)(end - key) : ATTN_TILE;

        for (uint32_t i = 0; i < items.count; i++) {
            uint64_t left = scratch->visible[i] > key ? scratch->visible[i] - key : 0;

            seen[i] = left < ATTN_TILE ? (uint32_t)left : ATTN_TILE;
        }
        load_tile(desc, seg, items.kv_head, (uint32_t)key, count, !is_few, &scratch->tile);
        struct attn_next tile_next = {seg, items.kv_head, (uint32_t)key + ATTN_TILE};

        scratch->tile.n_ahead = 0;
        if (is_few) {
            scratch->tile.n_ahead =
                look_ahead(desc, key + ATTN_TILE < end ? tile_next : next, scratch->tile.ahead);
        }
        attn_tile_add(&scratch->tile, scratch->q[0], seen, items.count, desc->scale, key == begin,
                      &scratch->part, desc->layout.D);
    }
}
