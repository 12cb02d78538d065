/* SPDX-License-Identifier: Apache-2.0 */
/* The unit of work is a block of (row, head) pairs of one sequence and one key/value head. */
#include "kernels/lazy_prefill.h"

#include "kernels/attn_row.h"
#include "kernels/transpose.h"

static uint32_t
units_of_seq(const struct attn_desc *desc, const struct attn_seq *seq)
{
    uint64_t pairs = (uint64_t)seq->n_rows * (desc->H / desc->layout.Hkv);

    return (uint32_t)((pairs + ATTN_ITEMS - 1) / ATTN_ITEMS) * desc->layout.Hkv;
}

enum status
lazy_prefill_check(const struct lazy_prefill_args *args)
{
    return attn_check(&args->desc);
}

uint32_t
lazy_prefill_units(const struct lazy_prefill_args *args)
{
    uint32_t units = 0;

    for (uint32_t i = 0; i < args->desc.n_seqs; i++) {
        units += units_of_seq(&args->desc, &args->desc.seqs[i]);
    }
    return units;
}

static struct attn_items
items_of_unit(const struct attn_desc *desc, uint32_t unit)
{
    const struct attn_seq *seq = desc->seqs;

    while (unit >= units_of_seq(desc, seq)) {
        unit -= units_of_seq(desc, seq);
        seq++;
    }
    uint32_t first = unit / desc->layout.Hkv * ATTN_ITEMS;
    uint32_t left = seq->n_rows * (desc->H / desc->layout.Hkv) - first;

    return (struct attn_items){
        .seq = seq,
        .kv_head = unit % desc->layout.Hkv,
        .first = first,
        .count = left < ATTN_ITEMS ? left : ATTN_ITEMS,
    };
}

void
lazy_prefill_unit(const struct lazy_prefill_args *args, const struct rope_table *table,
                  uint32_t unit)
{
    const struct attn_desc *desc = &args->desc;
    struct attn_items items = items_of_unit(desc, unit);
    uint32_t D = desc->layout.D, G = desc->H / desc->layout.Hkv;
    struct attn_scratch scratch;
    struct attn_lanes all;

    attn_lanes_reset(&all, items.count, D);
    for (uint32_t s = 0; s < items.seq->n_segs; s++) {
        const struct attn_segment *seg = &desc->segs[items.seq->seg_first + s];
        uint64_t visible = attn_items_rotate(desc, table, args->q, items, seg, &scratch);

        if (s + 1 < items.seq->n_segs) {
            attn_fetch_keys(desc, seg + 1, items.kv_head);
        }
        for (uint32_t chunk = 0; (uint64_t)chunk * LAZY_DECODE_CHUNK < visible; chunk++) {
            attn_items_chunk(desc, items, seg, chunk, (struct attn_next){0}, &scratch);
            attn_lanes_merge(&all, &scratch.part, items.count, D);
        }
    }
    transpose(all.o[0], ATTN_ITEMS, D, items.count, scratch.rows[0], ATTN_D_MAX);
    for (uint32_t i = 0; i < items.count; i++) {
        size_t row = items.seq->row_first + (items.first + i) / G;
        uint32_t head = items.kv_head * G + (items.first + i) % G;

        attn_output(scratch.rows[i], all.l[i], (float *)args->out + (row * desc->H + head) * D, D);
    }
}

enum status
lazy_prefill_ref(struct lazy_prefill_args args)
{
    TRY(lazy_prefill_check(&args));
    for (uint32_t unit = 0; unit < lazy_prefill_units(&args); unit++) {
        lazy_prefill_unit(&args, NULL, unit);
    }
    return ST_OK;
}
