/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/query_rows.h"

#include <string.h>

#include "common/mem.h"

/* Each row reads the query's own keys for itself: they cost at most this part of what its documents
 * do. */
#define OWN_PART 4
#define TILE     64u /* keys */

/* A document, told by its first block and its length; lazy_decode's planner compares them whole. */
struct citation {
    uint32_t block;
    uint32_t n_tokens;
    uint32_t seq;   /* that cites it: decodes first, then prefills */
    uint32_t split; /* number of the split that wrote this entry; of others: free */
    bool is_hot;    /* a second one does */
};

struct query_rows {
    uint32_t rows_max;
    uint32_t pairs_max;
    uint32_t prefills_max;
    struct attn_seq *decode;  /* [rows_max] */
    struct attn_seq *prefill; /* [prefills_max] */
    struct citation *table;   /* [table_size], a power of two, at least twice pairs_max */
    uint32_t table_size;
    uint32_t n_cited;
    uint32_t split;
};

enum status
query_rows_new(uint32_t rows_max, uint32_t pairs_max, uint32_t prefills_max,
               struct query_rows **out)
{
    struct query_rows *r = mem_zalloc(1, sizeof(*r));

    if (r == NULL) {
        return ERR(ST_NO_MEMORY, "query rows");
    }
    *r = (struct query_rows){rows_max, pairs_max, prefills_max, .table_size = 64};
    while (r->table_size < 2 * (uint64_t)pairs_max && r->table_size < 1u << 30) {
        r->table_size *= 2;
    }
    r->decode = mem_zalloc(rows_max, sizeof(r->decode[0]));
    r->prefill = mem_zalloc(prefills_max, sizeof(r->prefill[0]));
    r->table = mem_zalloc(r->table_size, sizeof(r->table[0]));
    if (r->decode == NULL || r->prefill == NULL || r->table == NULL) {
        query_rows_destroy(&r);
        return ERR(ST_NO_MEMORY, "query rows: %u rows, %u segments", rows_max, pairs_max);
    }
    *out = r;
    return ST_OK;
}

void
query_rows_destroy(struct query_rows **rows)
{
    if (*rows == NULL) {
        return;
    }
    mem_free((*rows)->decode);
    mem_free((*rows)->prefill);
    mem_free((*rows)->table);
    MEM_FREE(*rows);
}

static uint32_t
tiles_of(uint32_t n_tokens)
{
    return (n_tokens + TILE - 1) / TILE;
}

/* Whether a sequence is a short query that mostly reads documents. */
static bool
is_short_query(const struct attn_step *step, const struct attn_seq *seq)
{
    uint64_t tiles = 0;

    if (seq->n_rows == 0 || seq->n_rows > QUERY_PACKED_MAX || seq->n_segs < 2
        || seq->n_rows * (step->H / step->layout.Hkv) > QUERY_PACKED_MAX) {
        return false;
    }
    for (uint32_t s = 0; s + 1 < seq->n_segs; s++) {
        tiles += tiles_of(step->segs[seq->seg_first + s].n_tokens);
    }
    uint64_t own = tiles_of(step->segs[seq->seg_first + seq->n_segs - 1].n_tokens);

    return own * seq->n_rows * OWN_PART <= tiles;
}

/* The entry of a segment's document, or the free one that it would get. */
static struct citation *
find(const struct query_rows *r, const struct attn_step *step, const struct attn_segment *seg)
{
    uint32_t block = step->block_ids[seg->block_first];
    uint32_t at = (block * 0x9e3779b1u ^ seg->n_tokens * 0x85ebca6bu) >> 7;

    for (;; at++) {
        struct citation *c = &r->table[at & (r->table_size - 1)];

        if (c->split != r->split || (c->block == block && c->n_tokens == seg->n_tokens)) {
            return c;
        }
    }
}

static void
note_documents(struct query_rows *r, const struct attn_step *step, const struct attn_seq *seq,
               uint32_t number)
{
    for (uint32_t s = 0; s + 1 < seq->n_segs; s++) {
        const struct attn_segment *seg = &step->segs[seq->seg_first + s];

        if (seg->n_tokens == 0 || r->n_cited == r->pairs_max) {
            continue;
        }
        struct citation *c = find(r, step, seg);

        if (c->split != r->split) {
            *c = (struct citation){step->block_ids[seg->block_first], seg->n_tokens, number,
                                   r->split, false};
            r->n_cited++;
        } else {
            c->is_hot = c->is_hot || c->seq != number;
        }
    }
}

/* Whether at least half of its documents' keys are cited by others, too. */
static bool
is_hot(const struct query_rows *r, const struct attn_step *step, const struct attn_seq *seq)
{
    uint64_t tokens = 0, hot = 0;

    for (uint32_t s = 0; s + 1 < seq->n_segs; s++) {
        const struct attn_segment *seg = &step->segs[seq->seg_first + s];

        tokens += seg->n_tokens;
        if (seg->n_tokens > 0) {
            const struct citation *c = find(r, step, seg);
            hot += c->split == r->split && c->is_hot ? seg->n_tokens : 0;
        }
    }
    return 2 * hot >= tokens;
}

static void
note_all(struct query_rows *r, const struct attn_step *step)
{
    r->split++;
    r->n_cited = 0;
    if (r->split == 0) { /* entries of 4 billion splits ago */
        memset(r->table, 0, r->table_size * sizeof(r->table[0]));
        r->split = 1;
    }
    for (uint32_t i = 0; i < step->n_decode; i++) {
        note_documents(r, step, &step->decode[i], i);
    }
    for (uint32_t i = 0; i < step->n_prefill; i++) {
        if (is_short_query(step, &step->prefill[i])) {
            note_documents(r, step, &step->prefill[i], step->n_decode + i);
        }
    }
}

bool
query_rows_split(struct query_rows *rows, struct attn_step *step)
{
    struct query_rows *r = rows;
    uint32_t n_rows = step->n_decode;
    uint32_t n_others = 0;
    uint64_t pairs = 0;

    if (step->n_prefill == 0 || step->n_prefill + step->n_decode < 2 || step->n_decode > r->rows_max
        || step->n_prefill > r->prefills_max) {
        return false;
    }
    note_all(r, step);
    for (uint32_t i = 0; i < step->n_decode; i++) {
        r->decode[i] = step->decode[i];
        pairs += step->decode[i].n_segs;
    }
    for (uint32_t i = 0; i < step->n_prefill; i++) {
        const struct attn_seq *seq = &step->prefill[i];
        uint64_t more = (uint64_t)seq->n_rows * seq->n_segs;

        if (!is_short_query(step, seq) || !is_hot(r, step, seq)
            || n_rows + seq->n_rows > r->rows_max || pairs + more > r->pairs_max) {
            r->prefill[n_others++] = *seq;
            continue;
        }
        for (uint32_t t = 0; t < seq->n_rows; t++) {
            r->decode[n_rows++] = (struct attn_seq){seq->row_first + t, 1, seq->pos_first + t,
                                                    seq->seg_first, seq->n_segs};
        }
        pairs += more;
    }
    if (n_others == step->n_prefill) {
        return false;
    }
    step->decode = r->decode;
    step->n_decode = n_rows;
    step->prefill = r->prefill;
    step->n_prefill = n_others;
    return true;
}
