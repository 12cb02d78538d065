/* SPDX-License-Identifier: Apache-2.0 */
/* The unit of work is one partial of one key/value head. */
#include "kernels/lazy_decode.h"

#include "kernels/attn_row.h"

static uint32_t
chunks_of(const struct attn_segment *seg)
{
    return seg->n_tokens / LAZY_DECODE_CHUNK + (seg->n_tokens % LAZY_DECODE_CHUNK != 0);
}

uint32_t
lazy_decode_partials(const struct attn_seq *seq, const struct attn_segment *segs)
{
    uint32_t partials = 0;

    for (uint32_t s = 0; s < seq->n_segs; s++) {
        partials += chunks_of(&segs[seq->seg_first + s]);
    }
    return partials;
}

enum status
lazy_decode_check(const struct lazy_decode_args *args)
{
    const struct attn_desc *desc = &args->desc;

    TRY(attn_check(desc));
    if (args->n_partials != args->partial_first[desc->n_seqs]) {
        return ERR(ST_INVALID, "%u partials given, partial_first ends at %u", args->n_partials,
                   args->partial_first[desc->n_seqs]);
    }
    for (uint32_t i = 0; i < desc->n_seqs; i++) {
        uint32_t want = lazy_decode_partials(&desc->seqs[i], desc->segs);

        if (desc->seqs[i].n_rows != 1) {
            return ERR(ST_INVALID, "sequence %u has %u rows: decode takes one", i,
                       desc->seqs[i].n_rows);
        }
        if (args->partial_first[i + 1] - args->partial_first[i] != want) {
            return ERR(ST_INVALID, "sequence %u: %u partials given, its segments need %u", i,
                       args->partial_first[i + 1] - args->partial_first[i], want);
        }
    }
    return ST_OK;
}

uint32_t
lazy_decode_units(const struct lazy_decode_args *args)
{
    uint32_t n_seqs = args->desc.n_seqs;

    return (args->partial_first[n_seqs] - args->partial_first[0]) * args->desc.layout.Hkv;
}

/* What the unit after this one begins with, if it is of the same sequence. */
static struct attn_next
next_of(const struct attn_desc *desc, const struct attn_seq *seq, const struct attn_segment *seg,
        uint32_t chunk, uint32_t kv_head)
{
    const struct attn_segment *end = &desc->segs[seq->seg_first] + seq->n_segs;

    if (kv_head + 1 < desc->layout.Hkv) {
        return (struct attn_next){seg, kv_head + 1, chunk * LAZY_DECODE_CHUNK};
    }
    if (chunk + 1 < chunks_of(seg)) {
        return (struct attn_next){seg, 0, (chunk + 1) * LAZY_DECODE_CHUNK};
    }
    return (struct attn_next){seg + 1 < end ? seg + 1 : NULL, 0, 0};
}

void
lazy_decode_unit(const struct lazy_decode_args *args, const struct rope_table *table, uint32_t unit)
{
    const struct attn_desc *desc = &args->desc;
    uint32_t D = desc->layout.D, H = desc->H, G = H / desc->layout.Hkv;
    uint32_t partial = args->partial_first[0] + unit / desc->layout.Hkv;
    uint32_t i = 0;
    struct attn_scratch scratch;

    while (partial >= args->partial_first[i + 1]) {
        i++;
    }
    const struct attn_segment *seg = &desc->segs[desc->seqs[i].seg_first];
    uint32_t chunk = partial - args->partial_first[i];

    while (chunk >= chunks_of(seg)) {
        chunk -= chunks_of(seg);
        seg++;
    }
    struct attn_seq seq = desc->seqs[i];

    seq.row_first = i; /* in decode, q holds exactly one row a sequence */
    for (uint32_t first = 0; first < G; first += ATTN_ITEMS) {
        struct attn_items items = {
            .seq = &seq,
            .kv_head = unit % desc->layout.Hkv,
            .first = first,
            .count = G - first < ATTN_ITEMS ? G - first : ATTN_ITEMS,
        };

        attn_items_rotate(desc, table, args->q, items, seg, &scratch);
        attn_items_chunk(desc, items, seg, chunk, next_of(desc, &seq, seg, chunk, items.kv_head),
                         &scratch);
        for (uint32_t g = 0; g < items.count; g++) {
            size_t at = (size_t)partial * H + items.kv_head * G + first + g;

            for (uint32_t d = 0; d < D; d++) {
                args->o[at * D + d] = scratch.part.o[d][g];
            }
            args->ml[at * 2] = scratch.part.m[g];
            args->ml[at * 2 + 1] = scratch.part.l[g];
        }
    }
}

enum status
lazy_decode_ref(struct lazy_decode_args args)
{
    TRY(lazy_decode_check(&args));
    for (uint32_t unit = 0; unit < lazy_decode_units(&args); unit++) {
        lazy_decode_unit(&args, NULL, unit);
    }
    return ST_OK;
}
