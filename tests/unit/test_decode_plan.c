/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of lazy_decode, walked as its kernels walk it: every (row, key) pair exactly once, every
 * partial written once and joined once, whatever is shared and however streams are cut. */
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/decode_plan.h"
#include "tests/support/check_main.h"

#define SEQS_MAX  160
#define SEGS_MAX  4096
#define IDS_MAX   (1u << 18)
#define ITEMS_MAX 40000
#define SLOTS_MAX 40000
#define HKV_MAX   8
#define BLOCK     32u

static const uint32_t kind_rows[DECODE_KINDS] = {16, 64, 128};

/* A step and its plan. */
static struct planned {
    struct attn_seq seqs[SEQS_MAX];
    struct attn_segment segs[SEGS_MAX];
    uint32_t ids[IDS_MAX];
    uint32_t angle_first[SEQS_MAX];
    uint32_t n_segs, n_ids, next_block;
    struct decode_plan_work work;
    struct decode_item items[DECODE_KINDS][ITEMS_MAX];
    struct decode_sharer sharers[SEGS_MAX];
    struct decode_flush flushes[SLOTS_MAX];
    struct decode_join joins[SEQS_MAX * HKV_MAX];
    struct decode_plan plan;
} p, other;

static struct decode_planner *planner;

static void
begin(struct planned *s, uint32_t H, uint32_t Hkv)
{
    if (planner == NULL) {
        ck_assert_int_eq(decode_planner_new(SEQS_MAX, SEGS_MAX, HKV_MAX, &planner), ST_OK);
    }
    s->n_segs = s->n_ids = s->next_block = 0;
    s->work = (struct decode_plan_work){.seqs = s->seqs,
                                        .segs = s->segs,
                                        .block_ids = s->ids,
                                        .angle_first = s->angle_first,
                                        .Hkv = Hkv,
                                        .group = H / Hkv,
                                        .P = BLOCK,
                                        .sm_count = 132,
                                        .is_shared = true};
    s->plan = (struct decode_plan){.sharers = s->sharers,
                                   .sharers_max = SEGS_MAX,
                                   .flushes = s->flushes,
                                   .slots_max = SLOTS_MAX,
                                   .joins = s->joins};
    for (int k = 0; k < DECODE_KINDS; k++) {
        s->plan.items[k] = s->items[k];
        s->plan.items_max[k] = ITEMS_MAX;
    }
}

/* Documents are told apart by number: number d has blocks d * 10000 and on.  A number of 0 is new
 * blocks. */
static void
add_segment(struct planned *s, uint32_t number, uint32_t n_tokens, uint32_t offset)
{
    uint32_t blocks = (n_tokens + BLOCK - 1) / BLOCK;

    ck_assert_uint_lt(s->n_segs, SEGS_MAX);
    ck_assert_uint_le(s->n_ids + blocks, IDS_MAX);
    s->segs[s->n_segs++] = (struct attn_segment){s->n_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < blocks; i++) {
        s->ids[s->n_ids++] = number > 0 ? number * 10000 + i : 10000000 + s->next_block++;
    }
}

struct citation {
    uint32_t number;
    uint32_t n_tokens;
};

static void
add_seq(struct planned *s, const struct citation *cited, uint32_t n, uint32_t own)
{
    uint32_t index = s->work.n_seqs++;
    uint32_t offset = index * 7;

    s->angle_first[index] = s->n_segs;
    s->seqs[index] = (struct attn_seq){index, 1, 0, s->n_segs, n + 1};
    for (uint32_t i = 0; i < n; i++) {
        add_segment(s, cited[i].number, cited[i].n_tokens, offset);
        offset += cited[i].n_tokens;
    }
    add_segment(s, 0, own, offset);
    s->seqs[index].pos_first = offset + own - 1;
}

static void
make(struct planned *s)
{
    ck_assert_msg(decode_plan_make(planner, &s->work, &s->plan) == ST_OK, "%s", status_detail());
}

/* Check writes a mark to a pipe for each of its own assertions; these are millions. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_abort_msg("%s", #condition);                                                        \
        }                                                                                          \
    } while (0)

/* Tokens of a segment that items have covered, as a running count: items come in any order, so
 * tiles are marked. */
struct cover {
    uint8_t tiles[SEGS_MAX][HKV_MAX][160];
    uint8_t slots[SLOTS_MAX];
};

static void
check_item(const struct planned *s, const struct decode_item *item, int kind, struct cover *cover)
{
    uint32_t head = item->head & 0xffff;

    HOLDS(item->n_tokens > 0);
    HOLDS(head < s->work.Hkv);
    HOLDS(item->n_sharers * s->work.group <= kind_rows[kind]);
    for (uint32_t i = 0; i < DECODE_TILE / BLOCK && i * BLOCK < item->n_tokens; i++) {
        HOLDS(item->ids[i] == s->ids[item->block_first + i]);
    }
    for (uint32_t i = 0; i < item->n_sharers; i++) {
        const struct decode_sharer *sharer = &s->sharers[item->sharers + i];
        const struct attn_segment *seg = &s->segs[sharer->angles]; /* angle_first is seg_first */
        uint32_t at = 0;
        uint32_t first = s->ids[item->block_first];

        HOLDS(sharer->angles >= s->seqs[sharer->row].seg_first);
        while (s->ids[seg->block_first + at] != first) { /* the same blocks, in its own list */
            at++;
            HOLDS(at * BLOCK < seg->n_tokens);
        }
        HOLDS(at * BLOCK % DECODE_TILE == 0);
        HOLDS(at * BLOCK + item->n_tokens <= seg->n_tokens);
        HOLDS(item->n_tokens % DECODE_TILE == 0 || at * BLOCK + item->n_tokens == seg->n_tokens);
        for (uint32_t t = 0; t * DECODE_TILE < item->n_tokens; t++) {
            uint8_t *mark = &cover->tiles[sharer->angles][head][at * BLOCK / DECODE_TILE + t];

            HOLDS(*mark == 0);
            *mark = 1;
        }
    }
    if ((item->head & DECODE_ITEM_FLUSH) != 0) {
        for (uint32_t i = 0; i < item->n_sharers; i++) {
            const struct decode_flush *flush = &s->flushes[item->flush + i];
            const struct decode_join *join = &s->joins[flush->row * s->work.Hkv + head];

            HOLDS(flush->row == s->sharers[item->sharers + i].row);
            HOLDS(flush->first == join->first);
            HOLDS(flush->count == join->count);
            HOLDS(flush->slot >= join->first);
            HOLDS(flush->slot < join->first + join->count);
            HOLDS(cover->slots[flush->slot] == 0);
            cover->slots[flush->slot]++;
        }
    } else {
        HOLDS(item->next > 0); /* a unit ends with a flush */
    }
}

/* Walks all units; returns the tiles of the longest. */
static uint32_t
check_plan(const struct planned *s)
{
    static struct cover cover;
    uint32_t longest = 0;
    uint32_t seen = 0;

    memset(cover.tiles, 0, s->n_segs * sizeof(cover.tiles[0]));
    memset(cover.slots, 0, s->plan.n_slots);
    for (int kind = 0; kind < DECODE_KINDS; kind++) {
        uint32_t items = 0;

        HOLDS((s->plan.ctas[kind] > 0) == (s->plan.n_units[kind] > 0));
        for (uint32_t unit = 0; unit < s->plan.n_units[kind]; unit++) {
            uint32_t tiles = 0;
            uint32_t at = unit;

            do {
                check_item(s, &s->items[kind][at], kind, &cover);
                tiles += (s->items[kind][at].n_tokens + DECODE_TILE - 1) / DECODE_TILE;
                items++;
                at = s->items[kind][at].next;
                HOLDS(at == 0 || at >= s->plan.n_units[kind]);
                HOLDS(at < s->plan.n_items[kind]);
            } while (at != 0);
            longest = tiles > longest ? tiles : longest;
        }
        HOLDS(items == s->plan.n_items[kind]);
    }
    for (uint32_t i = 0; i < s->work.n_seqs; i++) {
        for (uint32_t g = s->seqs[i].seg_first; g < s->seqs[i].seg_first + s->seqs[i].n_segs; g++) {
            for (uint32_t t = 0; t * DECODE_TILE < s->segs[g].n_tokens; t++) {
                for (uint32_t head = 0; head < s->work.Hkv; head++) {
                    HOLDS(cover.tiles[g][head][t] == 1);
                }
            }
        }
    }
    for (uint32_t i = 0; i < s->plan.n_slots; i++) {
        seen += cover.slots[i];
    }
    HOLDS(seen == s->plan.n_slots);
    return longest;
}

static const struct citation cited[] = {{1, 4096}, {2, 1}, {3, 130}, {4, 64},
                                        {5, 1000}, {6, 0}, {7, 33},  {8, 4096}};

/* Requests that share documents with up to n others, in different orders, one of them twice. */
static void
add_mixture(struct planned *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct citation mine[9];
        uint32_t count = 1 + i % 8;

        for (uint32_t k = 0; k < count; k++) {
            mine[k] = cited[(i / 3 + k * 3) % 8];
        }
        mine[count] = (struct citation){100 + i, 70}; /* nobody else's */
        add_seq(s, mine, count + (i % 4 == 0), 1 + i * 5);
    }
}

START_TEST(every_row_sees_every_key_once_however_streams_are_cut)
{
    const uint32_t shapes[][2] = {{32, 8}, {9, 3}, {4, 4}, {16, 2}, {16, 1}, {32, 1}, {128, 1}};
    const struct decode_tuning tunings[] = {{0},
                                            {.unit_tiles = 3},
                                            {.unit_tiles = 20, .ctas_per_sm = 1},
                                            {.static_percent = 100},
                                            {.static_percent = 50, .tail_tiles = 2},
                                            {.joins = 1},
                                            {.widens = 1},
                                            {.sms_128 = 1},
                                            {.widens = 2}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t t = 0; t < sizeof(tunings) / sizeof(tunings[0]); t++) {
            for (uint32_t n = 1; n <= 40; n += 13) {
                begin(&p, shapes[i][0], shapes[i][1]);
                add_mixture(&p, n);
                p.work.tuning = tunings[t];
                make(&p);
                (void)check_plan(&p);
                p.work.is_shared = false;
                make(&p);
                (void)check_plan(&p);
                p.work.is_fixed = true;
                make(&p);
                (void)check_plan(&p);
            }
        }
    }
}
END_TEST

/* Tiles that are read, of all kv heads. */
static uint64_t
tiles_read(const struct planned *s)
{
    uint64_t tiles = 0;

    for (int kind = 0; kind < DECODE_KINDS; kind++) {
        for (uint32_t i = 0; i < s->plan.n_items[kind]; i++) {
            tiles += (s->items[kind][i].n_tokens + DECODE_TILE - 1) / DECODE_TILE;
        }
    }
    return tiles;
}

START_TEST(a_document_of_many_requests_is_read_once)
{
    /* sharers -> times the document is read at 4 rows each, 32 to a tile at most */
    const uint32_t rows[][2] = {{1, 1}, {2, 1}, {4, 1}, {5, 1}, {16, 1}, {17, 1}, {32, 1}, {33, 2}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin(&p, 32, 8);
        for (uint32_t r = 0; r < rows[i][0]; r++) {
            add_seq(&p, cited, 1, 10);
        }
        make(&p);
        (void)check_plan(&p);
        ck_assert_uint_eq(tiles_read(&p), 8 * (64 * rows[i][1] + rows[i][0]));
        p.work.is_shared = false;
        make(&p);
        ck_assert_uint_eq(tiles_read(&p), 8 * 65 * rows[i][0]);
    }
}
END_TEST

START_TEST(documents_that_only_begin_alike_are_not_shared)
{
    begin(&p, 32, 8);
    add_seq(&p, cited, 1, 10);
    add_seq(&p, cited, 1, 10);
    p.ids[p.segs[p.seqs[1].seg_first].block_first + 127]++; /* the last block */
    make(&p);
    ck_assert_uint_eq(tiles_read(&p), 2 * 8 * 65);
    begin(&p, 32, 8);
    add_seq(&p, &(struct citation){1, 4096}, 1, 10);
    add_seq(&p, &(struct citation){1, 4095}, 1, 10);
    make(&p);
    ck_assert_uint_eq(tiles_read(&p), 2 * 8 * 65);
}
END_TEST

START_TEST(a_key_that_a_row_cannot_see_is_in_no_item)
{
    begin(&p, 32, 8);
    add_seq(&p, cited, 1, 100);
    p.seqs[0].pos_first = 4096 + 9; /* of its own tokens it sees ten */
    make(&p);
    ck_assert_uint_eq(tiles_read(&p), 8 * 65);
    p.seqs[0].pos_first = 99; /* and now 100 of the document */
    make(&p);
    ck_assert_uint_eq(tiles_read(&p), 8 * 2);
    p.segs[0].offset = 1000;
    make(&p);
    ck_assert_uint_eq(tiles_read(&p), 0);
    ck_assert(!p.plan.joins_in_kernel); /* the row is written by the join alone */
    ck_assert_uint_eq(p.joins[0].count, 0);
}
END_TEST

/* Row numbers apart, two plans are the same. */
static void
check_same(const struct planned *a, const struct planned *b, const uint32_t *b_of_a)
{
    ck_assert_mem_eq(a->plan.n_items, b->plan.n_items, sizeof(a->plan.n_items));
    for (int kind = 0; kind < DECODE_KINDS; kind++) {
        for (uint32_t i = 0; i < a->plan.n_items[kind]; i++) {
            const struct decode_item *x = &a->items[kind][i], *y = &b->items[kind][i];

            ck_assert_uint_eq(x->n_tokens, y->n_tokens);
            ck_assert_uint_eq(x->head, y->head);
            ck_assert_uint_eq(x->next, y->next);
            ck_assert_uint_eq(x->n_sharers, y->n_sharers);
            ck_assert_mem_eq(x->ids, y->ids, sizeof(x->ids));
            for (uint32_t m = 0; m < x->n_sharers; m++) {
                ck_assert_uint_eq(b_of_a[a->sharers[x->sharers + m].row],
                                  b->sharers[y->sharers + m].row);
                ck_assert_uint_eq(a->flushes[x->flush + m].slot - a->flushes[x->flush + m].first,
                                  b->flushes[y->flush + m].slot - b->flushes[y->flush + m].first);
            }
        }
    }
}

/* The other plan's step is that of `p`, in memory of its own. */
static void
copy_step(void)
{
    other = p;
    other.work.seqs = other.seqs;
    other.work.segs = other.segs;
    other.work.block_ids = other.ids;
    other.work.angle_first = other.angle_first;
    other.plan.sharers = other.sharers;
    other.plan.flushes = other.flushes;
    other.plan.joins = other.joins;
    for (int k = 0; k < DECODE_KINDS; k++) {
        other.plan.items[k] = other.items[k];
    }
}

START_TEST(the_order_of_the_requests_changes_nothing_but_names)
{
    uint32_t place[37];

    begin(&p, 32, 8);
    add_mixture(&p, 37);
    make(&p);
    copy_step();
    for (uint32_t i = 0; i < 37; i++) {
        place[i] = (i * 5 + 3) % 37;
        other.seqs[place[i]] = p.seqs[i];
        other.seqs[place[i]].row_first = place[i];
        other.angle_first[place[i]] = p.angle_first[i];
    }
    make(&other);
    (void)check_plan(&other);
    check_same(&p, &other, place);
}
END_TEST

START_TEST(a_sequences_row_may_be_any_number)
{
    uint32_t row[37];

    begin(&p, 32, 8);
    add_mixture(&p, 37);
    make(&p);
    copy_step();
    for (uint32_t i = 0; i < 37; i++) {
        row[i] = 1000 + i * 7;
        other.seqs[i].row_first = row[i];
    }
    make(&other);
    check_same(&p, &other, row);
    for (uint32_t i = 0; i < 37 * 8; i++) {
        ck_assert_uint_eq(other.joins[i].row, row[i / 8]);
        ck_assert_uint_eq(other.joins[i].first, p.joins[i].first);
        ck_assert_uint_eq(other.joins[i].count, p.joins[i].count);
    }
    for (uint32_t i = 0; i < p.plan.n_slots; i++) {
        HOLDS(other.flushes[i].row == row[p.flushes[i].row]);
        HOLDS(other.flushes[i].count == p.flushes[i].count);
    }
}
END_TEST

START_TEST(fixed_cuts_are_the_same_in_any_company)
{
    begin(&p, 32, 8);
    add_mixture(&p, 30);
    p.work.is_fixed = true;
    make(&p);
    for (uint32_t i = 0; i < 30; i++) {
        begin(&other, 32, 8);
        add_mixture(&other, 30);
        other.work.is_fixed = true;
        other.seqs[0] = other.seqs[i];
        other.angle_first[0] = other.angle_first[i];
        other.work.n_seqs = 1;
        make(&other);
        for (uint32_t u = 0; u < other.plan.n_units[DECODE_ROWS_16]; u++) {
            const struct decode_item *mine = &other.items[DECODE_ROWS_16][u];
            uint32_t found = 0;

            for (uint32_t k = 0; k < p.plan.n_units[DECODE_ROWS_16]; k++) {
                const struct decode_item *item = &p.items[DECODE_ROWS_16][k];

                found += item->block_first == mine->block_first && item->head == mine->head
                         && item->n_tokens == mine->n_tokens && p.sharers[item->sharers].row == i;
            }
            ck_assert_uint_eq(found, 1);
        }
    }
}
END_TEST

START_TEST(one_request_is_one_wave_and_many_are_dealt_out_evenly)
{
    const struct citation five[] = {{1, 4096}, {2, 4096}, {3, 4096}, {4, 4096}, {5, 4096}};

    begin(&p, 32, 8);
    add_seq(&p, five, 5, 64);
    make(&p);
    ck_assert_uint_le(check_plan(&p), 21); /* 8 * 321 tiles on 132 multiprocessors: 19.5 */
    ck_assert_uint_eq(p.plan.ctas[DECODE_ROWS_16], 132);
    begin(&p, 32, 8);
    for (uint32_t i = 0; i < 8; i++) {
        add_seq(&p, five, 5, 64);
    }
    p.work.is_shared = false;
    p.work.tuning = (struct decode_tuning){.static_percent = 100};
    make(&p);
    ck_assert_uint_le(check_plan(&p), 8 * 8 * 323 / 264 + 2); /* and two for a cut */
    ck_assert_uint_eq(p.plan.n_units[DECODE_ROWS_16], 264);
    ck_assert_uint_eq(p.plan.ctas[DECODE_ROWS_16], 264);
}
END_TEST

START_TEST(sharing_without_room_is_left_out_and_too_little_room_refused)
{
    begin(&p, 32, 8);
    add_mixture(&p, 40);
    make(&p);
    ck_assert_uint_gt(p.plan.n_units[DECODE_ROWS_64] + p.plan.n_units[DECODE_ROWS_128], 0);
    p.plan.slots_max = decode_plan_slots_min(40, 8, 132);
    make(&p);
    (void)check_plan(&p);
    ck_assert_uint_le(p.plan.n_slots, p.plan.slots_max);
    p.plan.slots_max = 40 * 8 - 1;
    ck_assert_int_eq(decode_plan_make(planner, &p.work, &p.plan), ST_NO_MEMORY);
}
END_TEST

START_TEST(the_bounds_hold_for_the_largest_steps)
{
    begin(&p, 32, 8);
    for (uint32_t i = 0; i < 128; i++) {
        add_seq(&p, cited, 8, 64 + i);
    }
    p.work.is_shared = false;
    p.work.tuning = (struct decode_tuning){.static_percent = 100};
    make(&p);
    (void)check_plan(&p);
    ck_assert_uint_le(p.plan.n_slots, decode_plan_slots_min(128, 8, 132));
    ck_assert_uint_le(p.plan.n_items[DECODE_ROWS_16], decode_plan_items_max(128, p.n_segs, 8, 132));
}
END_TEST

START_TEST(what_cannot_be_planned_is_named)
{
    struct decode_planner *small;

    begin(&p, 32, 8);
    add_seq(&p, cited, 8, 10);
    p.seqs[0].n_rows = 2;
    ck_assert_int_eq(decode_plan_make(planner, &p.work, &p.plan), ST_INVALID);
    ck_assert_str_eq(status_detail(), "decode plan: sequence 0 has 2 rows");
    p.seqs[0].n_rows = 1;
    p.work.group = 129;
    ck_assert_int_eq(decode_plan_make(planner, &p.work, &p.plan), ST_INVALID);
    p.work.group = 4;
    ck_assert_int_eq(decode_planner_new(1, 4, 8, &small), ST_OK);
    ck_assert_int_eq(decode_plan_make(small, &p.work, &p.plan), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "decode plan: more than 4 segments");
    add_seq(&p, cited, 1, 10);
    ck_assert_int_eq(decode_plan_make(small, &p.work, &p.plan), ST_NO_MEMORY);
    decode_planner_destroy(&small);
    ck_assert_ptr_null(small);
    decode_planner_destroy(&small);
}
END_TEST

START_TEST(a_planner_without_memory_is_refused_whole)
{
    struct decode_planner *none = NULL;

    for (uint64_t n = 1; n <= 10; n++) {
        mem_fail_at(n);
        ck_assert_int_eq(decode_planner_new(4, 16, 8, &none), ST_NO_MEMORY);
        ck_assert_ptr_null(none);
    }
    mem_fail_at(0);
}
END_TEST

CHECK_MAIN("decode_plan", every_row_sees_every_key_once_however_streams_are_cut,
           a_document_of_many_requests_is_read_once, documents_that_only_begin_alike_are_not_shared,
           a_key_that_a_row_cannot_see_is_in_no_item,
           the_order_of_the_requests_changes_nothing_but_names, a_sequences_row_may_be_any_number,
           fixed_cuts_are_the_same_in_any_company,
           one_request_is_one_wave_and_many_are_dealt_out_evenly,
           sharing_without_room_is_left_out_and_too_little_room_refused,
           the_bounds_hold_for_the_largest_steps, what_cannot_be_planned_is_named,
           a_planner_without_memory_is_refused_whole)
