/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/attn_double.h"

#include <math.h>
#include <string.h>

#include "kernels/bf16.h"

#define D_MAX 128

/* One query row of one head, on its way over the segments. */
struct row {
    const struct attn_desc *desc;
    const float *q;
    uint32_t position;
    uint32_t kv_head;
    double turned[D_MAX]; /* q, as the segment in hand sees it */
    double top;
    double sum;
    double out[D_MAX];
};

static double
element(const struct row *row, uint32_t block, enum kv_part part, uint32_t slot, uint32_t d)
{
    const struct attn_desc *desc = row->desc;
    const char *base =
        (const char *)desc->kv + (size_t)block * kv_layout_block_bytes(&desc->layout);
    uint16_t bits;

    memcpy(&bits, base + kv_layout_offset(&desc->layout, desc->layer, part, row->kv_head, slot, d),
           sizeof(bits));
    return bf16_to_f32(bits);
}

/* Keys lie at their places within the segment, so the query turns by its distance to the start. */
static void
turn(struct row *row, uint32_t offset)
{
    const uint32_t half = row->desc->layout.D / 2;

    for (uint32_t i = 0; i < half; i++) {
        long double angle =
            (long double)(row->position - offset) * (long double)row->desc->inv_freq[i];
        double c = (double)cosl(angle), s = (double)sinl(angle);

        row->turned[i] = row->q[i] * c - row->q[i + half] * s;
        row->turned[i + half] = row->q[i + half] * c + row->q[i] * s;
    }
}

/* Softmax with the maximum so far. */
static void
attend(struct row *row, uint32_t block, uint32_t slot)
{
    const uint32_t D = row->desc->layout.D;
    double score = 0.0;

    for (uint32_t d = 0; d < D; d++) {
        score += row->turned[d] * element(row, block, KV_PART_K, slot, d);
    }
    score *= (double)row->desc->scale;
    double top = fmax(row->top, score);
    double before = exp(row->top - top), weight = exp(score - top);

    for (uint32_t d = 0; d < D; d++) {
        row->out[d] = row->out[d] * before + weight * element(row, block, KV_PART_V, slot, d);
    }
    row->sum = row->sum * before + weight;
    row->top = top;
}

static void
attend_all(struct row *row, const struct attn_seq *seq)
{
    const struct attn_desc *desc = row->desc;

    for (uint32_t s = 0; s < seq->n_segs; s++) {
        const struct attn_segment *seg = &desc->segs[seq->seg_first + s];

        if (row->position < seg->offset) {
            continue;
        }
        turn(row, seg->offset);
        for (uint32_t t = 0; t < seg->n_tokens && seg->offset + t <= row->position; t++) {
            attend(row, desc->block_ids[seg->block_first + t / desc->layout.P], t % desc->layout.P);
        }
    }
}

void
attn_double(const struct attn_desc *desc, const float *q, uint16_t *out)
{
    const uint32_t D = desc->layout.D, H = desc->H;

    for (uint32_t i = 0; i < desc->n_seqs * H; i++) {
        struct row row = {.desc = desc,
                          .q = q + (size_t)i * D,
                          .position = desc->seqs[i / H].pos_first,
                          .kv_head = i % H / (H / desc->layout.Hkv),
                          .top = -INFINITY};

        attend_all(&row, &desc->seqs[i / H]);
        for (uint32_t d = 0; d < D; d++) {
            out[(size_t)i * D + d] =
                bf16_from_f32((float)(row.sum > 0.0 ? row.out[d] / row.sum : 0.0));
        }
    }
}
