/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes over the (sequence, segment) pairs of a step: the first finds documents that several
 * sequences hold, by a hash of where their blocks begin and a comparison of all of them; the second
 * puts documents with the same holders into one group, so that a unit can run through them without
 * writing partials in between. */
#include "kernels/decode_group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

static const uint32_t kind_rows[DECODE_KINDS] = {16, 64, 128};

/* A segment as one sequence sees it. */
struct pair {
    uint32_t seq;
    uint32_t seg;
    uint32_t n_tokens; /* visible */
    uint32_t doc;      /* DECODE_NONE: its own tokens */
    uint32_t next;     /* pair of the same document */
};

struct doc {
    uint32_t pair_first;
    uint32_t pair_last;
    uint32_t n_pairs;
};

/* A sequence with all that its place in the order depends on. */
struct ranked {
    const struct decode_plan_work *work;
    uint32_t seq;
};

struct decode_grouper {
    uint32_t seqs_max;
    uint32_t segs_max;
    uint32_t table_size; /* a power of two */
    struct ranked *order;
    struct pair *pairs;
    struct doc *docs;
    uint32_t *table; /* of documents, then of groups: index + 1 */
    struct decode_groups out;
    uint32_t n_pairs;
    uint32_t n_docs;
};

enum status
decode_grouper_new(uint32_t seqs_max, uint32_t segs_max, struct decode_grouper **grouper_out)
{
    struct decode_grouper *g = mem_zalloc(1, sizeof(*g));

    if (g == NULL) {
        return ERR(ST_NO_MEMORY, "decode planner");
    }
    g->seqs_max = seqs_max;
    g->segs_max = segs_max;
    g->table_size = 64;
    while (g->table_size < 2 * (uint64_t)segs_max && g->table_size < 1u << 30) {
        g->table_size *= 2;
    }
    g->order = mem_zalloc(seqs_max, sizeof(g->order[0]));
    g->pairs = mem_zalloc(segs_max, sizeof(g->pairs[0]));
    g->docs = mem_zalloc(segs_max, sizeof(g->docs[0]));
    g->table = mem_zalloc(g->table_size, sizeof(g->table[0]));
    g->out.groups = mem_zalloc(segs_max, sizeof(g->out.groups[0]));
    g->out.pieces = mem_zalloc(segs_max, sizeof(g->out.pieces[0]));
    g->out.members = mem_zalloc(segs_max, sizeof(g->out.members[0]));
    if (g->order == NULL || g->pairs == NULL || g->docs == NULL || g->table == NULL
        || g->out.groups == NULL || g->out.pieces == NULL || g->out.members == NULL) {
        decode_grouper_destroy(&g);
        return ERR(ST_NO_MEMORY, "decode planner for %u segments", segs_max);
    }
    *grouper_out = g;
    return ST_OK;
}

void
decode_grouper_destroy(struct decode_grouper **grouper)
{
    struct decode_grouper *g = *grouper;

    if (g == NULL) {
        return;
    }
    mem_free(g->order);
    mem_free(g->pairs);
    mem_free(g->docs);
    mem_free(g->table);
    mem_free(g->out.groups);
    mem_free(g->out.pieces);
    mem_free(g->out.members);
    MEM_FREE(*grouper);
}

/* --- the order of sequences ------------------------------------------------------------------ */

static int
compare_u32(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

static uint32_t
first_block(const struct decode_plan_work *work, const struct attn_segment *seg)
{
    return seg->n_tokens > 0 ? work->block_ids[seg->block_first] : DECODE_NONE;
}

static int
compare_segments(const struct decode_plan_work *work, const struct attn_segment *a,
                 const struct attn_segment *b)
{
    int order = compare_u32(first_block(work, a), first_block(work, b));

    order = order != 0 ? order : compare_u32(a->n_tokens, b->n_tokens);
    return order != 0 ? order : compare_u32(a->offset, b->offset);
}

/* By the own tokens first, whose blocks no other sequence has; the rest only matters to tests. */
static int
by_contents(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;
    const struct decode_plan_work *work = x->work;
    const struct attn_seq *s = &work->seqs[x->seq];
    const struct attn_seq *t = &work->seqs[y->seq];
    int order = compare_u32(s->n_segs, t->n_segs);

    if (s->n_segs > 0 && t->n_segs > 0) {
        order = compare_segments(work, &work->segs[s->seg_first + s->n_segs - 1],
                                 &work->segs[t->seg_first + t->n_segs - 1]);
        order = order != 0 ? order : compare_u32(s->n_segs, t->n_segs);
    }
    for (uint32_t i = 0; order == 0 && i < s->n_segs; i++) {
        order =
            compare_segments(work, &work->segs[s->seg_first + i], &work->segs[t->seg_first + i]);
    }
    order = order != 0 ? order : compare_u32(s->pos_first, t->pos_first);
    return order != 0 ? order : compare_u32(x->seq, y->seq);
}

/* --- documents ------------------------------------------------------------------------------- */

static uint32_t
mix(uint32_t hash, uint32_t x)
{
    hash = (hash ^ x) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

/* Keys of a segment that the row sees. */
static uint32_t
visible(const struct attn_segment *seg, uint32_t pos)
{
    if (pos < seg->offset) {
        return 0;
    }
    return pos - seg->offset < seg->n_tokens ? pos - seg->offset + 1 : seg->n_tokens;
}

static bool
is_same_document(const struct decode_plan_work *work, const struct pair *a, const struct pair *b)
{
    const uint32_t *x = &work->block_ids[work->segs[a->seg].block_first];
    const uint32_t *y = &work->block_ids[work->segs[b->seg].block_first];
    uint32_t blocks = (a->n_tokens + work->P - 1) / work->P;

    return a->n_tokens == b->n_tokens && memcmp(x, y, blocks * sizeof(x[0])) == 0;
}

/* Adds the pair to its document, which is made if need be. */
static void
join_document(struct decode_grouper *g, const struct decode_plan_work *work, uint32_t index)
{
    struct pair *pair = &g->pairs[index];
    uint32_t hash = mix(mix(0, first_block(work, &work->segs[pair->seg])), pair->n_tokens);
    uint32_t *slot = &g->table[hash & (g->table_size - 1)];

    while (*slot != 0 && !is_same_document(work, &g->pairs[g->docs[*slot - 1].pair_first], pair)) {
        slot = slot + 1 < g->table + g->table_size ? slot + 1 : g->table;
    }
    if (*slot == 0) {
        g->docs[g->n_docs] = (struct doc){.pair_first = index, .pair_last = index, .n_pairs = 1};
        *slot = ++g->n_docs;
    } else {
        struct doc *doc = &g->docs[*slot - 1];

        g->pairs[doc->pair_last].next = index;
        doc->pair_last = index;
        doc->n_pairs++;
    }
    pair->doc = *slot - 1;
}

static enum status
collect_pairs(struct decode_grouper *g, const struct decode_plan_work *work, bool is_shared)
{
    g->n_pairs = 0;
    g->n_docs = 0;
    memset(g->table, 0, g->table_size * sizeof(g->table[0]));
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        const struct attn_seq *seq = &work->seqs[g->order[i].seq];

        for (uint32_t s = 0; s < seq->n_segs; s++) {
            uint32_t seg = seq->seg_first + s;
            uint32_t n_tokens = visible(&work->segs[seg], seq->pos_first);

            if (n_tokens == 0) {
                continue;
            }
            if (g->n_pairs == g->segs_max) {
                return ERR(ST_NO_MEMORY, "decode plan: more than %u segments", g->segs_max);
            }
            g->pairs[g->n_pairs] = (struct pair){.seq = g->order[i].seq,
                                                 .seg = seg,
                                                 .n_tokens = n_tokens,
                                                 .doc = DECODE_NONE,
                                                 .next = DECODE_NONE};
            if (is_shared && s + 1 < seq->n_segs) {
                join_document(g, work, g->n_pairs);
            }
            g->n_pairs++;
        }
    }
    return ST_OK;
}

/* --- groups ---------------------------------------------------------------------------------- */

static enum decode_kind
kind_for(uint32_t rows)
{
    int kind = DECODE_ROWS_16;

    while (rows > kind_rows[kind]) {
        kind++;
        assert(kind < DECODE_KINDS);
    }
    return (enum decode_kind)kind;
}

/* The group whose members are the last n of `members`; they are taken back if it exists. */
static uint32_t
require_group(struct decode_grouper *g, const struct decode_plan_work *work, uint32_t n)
{
    struct decode_groups *out = &g->out;
    const uint32_t *members = &out->members[out->n_members - n];
    uint32_t hash = n;
    uint32_t *slot;

    for (uint32_t i = 0; i < n; i++) {
        hash = mix(hash, members[i]);
    }
    slot = &g->table[hash & (g->table_size - 1)];
    for (; *slot != 0; slot = slot + 1 < g->table + g->table_size ? slot + 1 : g->table) {
        const struct decode_group *group = &out->groups[*slot - 1];

        if (group->n_members == n
            && memcmp(&out->members[group->member_first], members, n * sizeof(members[0])) == 0) {
            out->n_members -= n;
            return *slot - 1;
        }
    }
    out->groups[out->n_groups] = (struct decode_group){.kind = kind_for(n * work->group),
                                                       .member_first = out->n_members - n,
                                                       .n_members = n,
                                                       .piece_first = DECODE_NONE,
                                                       .piece_last = DECODE_NONE};
    *slot = ++out->n_groups;
    return out->n_groups - 1;
}

static void
add_piece(struct decode_groups *out, uint32_t index, struct decode_piece piece)
{
    struct decode_group *group = &out->groups[index];

    piece.next = DECODE_NONE;
    if (group->piece_first == DECODE_NONE) {
        group->piece_first = out->n_pieces;
    } else {
        out->pieces[group->piece_last].next = out->n_pieces;
    }
    group->piece_last = out->n_pieces;
    group->tiles += decode_tiles_of(piece.n_tokens);
    out->pieces[out->n_pieces++] = piece;
}

/* `n` pairs from `first` on, of one document, become a piece of the group of their sequences.
 * Returns the pair after them. */
static uint32_t
place(struct decode_grouper *g, const struct decode_plan_work *work, struct decode_plan *plan,
      uint32_t first, uint32_t n)
{
    const struct pair *head = &g->pairs[first];
    uint32_t sharers = plan->n_sharers;
    uint32_t at = first;

    for (uint32_t i = 0; i < n; i++) {
        const struct pair *pair = &g->pairs[at];
        const struct attn_seq *seq = &work->seqs[pair->seq];

        plan->sharers[plan->n_sharers++] = (struct decode_sharer){
            .row = seq->row_first,
            .angles = work->angle_first[pair->seq] + pair->seg - seq->seg_first,
        };
        g->out.members[g->out.n_members++] = pair->seq;
        at = pair->next;
    }
    const struct attn_seq *seq = &work->seqs[head->seq];

    add_piece(&g->out, require_group(g, work, n),
              (struct decode_piece){
                  .block_first = work->segs[head->seg].block_first,
                  .n_tokens = head->n_tokens,
                  .sharers = sharers,
                  .is_own = head->seg + 1 == seq->seg_first + seq->n_segs,
              });
    return at;
}

/* A document with more holders than the largest tile takes is read by several groups, of about the
 * same size. */
static void
place_shared(struct decode_grouper *g, const struct decode_plan_work *work,
             struct decode_plan *plan, const struct doc *doc)
{
    uint32_t most = kind_rows[DECODE_ROWS_128] / work->group;
    uint32_t parts = (doc->n_pairs + most - 1) / most;
    uint32_t at = doc->pair_first;

    for (uint32_t i = 0; i < parts; i++) {
        uint32_t from = (uint32_t)((uint64_t)doc->n_pairs * i / parts);
        uint32_t to = (uint32_t)((uint64_t)doc->n_pairs * (i + 1) / parts);

        at = place(g, work, plan, at, to - from);
    }
}

/* Where tiles of 64 rows are needed anyway, what fits 16 goes with them, and with those of 128 if
 * it is asked for: they read as fast, and one kernel less is one start and one end less. */
static void
widen(struct decode_groups *out, enum decode_kind most)
{
    enum decode_kind widest = DECODE_ROWS_16;

    for (uint32_t i = 0; i < out->n_groups; i++) {
        enum decode_kind kind = out->groups[i].kind;

        widest = kind > widest && kind <= most ? kind : widest;
    }
    for (uint32_t i = 0; i < out->n_groups; i++) {
        if (out->groups[i].kind < widest) {
            out->groups[i].kind = widest;
        }
    }
}

static enum status
check_work(const struct decode_grouper *g, const struct decode_plan_work *work,
           const struct decode_plan *plan)
{
    if (work->n_seqs > g->seqs_max) {
        return ERR(ST_NO_MEMORY, "decode plan: %u sequences, limit %u", work->n_seqs, g->seqs_max);
    }
    if (work->group == 0 || work->group > DECODE_GROUP_MAX) {
        return ERR(ST_INVALID, "decode plan: %u query heads a key/value head, limit %d",
                   work->group, DECODE_GROUP_MAX);
    }
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        if (work->seqs[i].n_rows != 1) {
            return ERR(ST_INVALID, "decode plan: sequence %u has %u rows", i, work->seqs[i].n_rows);
        }
    }
    if (plan->sharers_max < g->segs_max) {
        return ERR(ST_NO_MEMORY, "decode plan: room for %u sharers of %u", plan->sharers_max,
                   g->segs_max);
    }
    return ST_OK;
}

enum status
decode_group_make(struct decode_grouper *grouper, const struct decode_plan_work *work,
                  bool is_shared, struct decode_plan *plan, const struct decode_groups **groups_out)
{
    struct decode_grouper *g = grouper;

    TRY(check_work(g, work, plan));
    for (uint32_t i = 0; i < work->n_seqs; i++) {
        g->order[i] = (struct ranked){work, i};
    }
    if (work->n_seqs > 1) {
        qsort(g->order, work->n_seqs, sizeof(g->order[0]), by_contents);
    }
    TRY(collect_pairs(g, work, is_shared));
    plan->n_sharers = 0;
    g->out.n_groups = g->out.n_pieces = g->out.n_members = 0;
    memset(g->table, 0, g->table_size * sizeof(g->table[0]));
    /* Shared documents first: their units are the longest. */
    for (uint32_t i = 0; i < g->n_docs; i++) {
        if (g->docs[i].n_pairs > 1) {
            place_shared(g, work, plan, &g->docs[i]);
        }
    }
    for (uint32_t i = 0; i < g->n_pairs; i++) {
        const struct pair *pair = &g->pairs[i];

        if (pair->doc == DECODE_NONE || g->docs[pair->doc].n_pairs == 1) {
            (void)place(g, work, plan, i, 1);
        }
    }
    if (work->tuning.widens != 2) {
        widen(&g->out, work->tuning.widens == 1 ? DECODE_ROWS_128 : DECODE_ROWS_64);
    }
    *groups_out = &g->out;
    return ST_OK;
}
