/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/attn_plan.h"
#include "tests/support/check_main.h"

#define ITEMS_MAX    4096
#define ROWS_MAX     2048
#define PARTIALS_MAX 8192

struct planned {
    struct attn_segment segs[64];
    struct attn_seq seqs[16];
    struct attn_plan_work work;
    struct attn_item items[ITEMS_MAX];
    uint32_t merge_rows[ROWS_MAX];
    uint32_t merge_first[ROWS_MAX + 1];
    struct attn_plan plan;
    uint32_t n_segs;
    uint32_t n_rows;
};

static void
begin(struct planned *p, uint32_t H, uint32_t Hkv)
{
    memset(p, 0, sizeof(*p));
    p->work = (struct attn_plan_work){
        .seqs = p->seqs, .segs = p->segs, .group = H / Hkv, .tile_rows = 64, .ctas = 33};
    p->plan = (struct attn_plan){.items = p->items,
                                 .items_max = ITEMS_MAX,
                                 .merge_rows = p->merge_rows,
                                 .merge_first = p->merge_first,
                                 .merge_rows_max = ROWS_MAX,
                                 .partials_max = PARTIALS_MAX};
}

static void
add_seq(struct planned *p, const uint32_t *docs, uint32_t n_docs, uint32_t own, uint32_t n_rows)
{
    uint32_t offset = 0;

    p->seqs[p->work.n_seqs] = (struct attn_seq){
        .row_first = p->n_rows, .n_rows = n_rows, .seg_first = p->n_segs, .n_segs = n_docs + 1};
    for (uint32_t i = 0; i <= n_docs; i++) {
        uint32_t n_tokens = i < n_docs ? docs[i] : own;

        p->segs[p->n_segs++] = (struct attn_segment){.n_tokens = n_tokens, .offset = offset};
        offset += n_tokens;
    }
    p->seqs[p->work.n_seqs].pos_first = offset - n_rows;
    p->n_rows += n_rows;
    p->work.n_seqs++;
}

/* Every visible (row, key) pair lies in exactly one item, and runs begin at tiles of their segment.
 */
static void
check_cover(const struct planned *p)
{
    const uint32_t group = p->work.group;

    for (uint32_t s = 0; s < p->work.n_seqs; s++) {
        const struct attn_seq *seq = &p->seqs[s];

        for (uint32_t row = 0; row < seq->n_rows * group; row += 7) {
            uint32_t visible = seq->pos_first + row / group + 1;
            uint32_t covered = 0;

            for (uint32_t i = 0; i < p->plan.n_items; i++) {
                const struct attn_item *item = &p->items[i];

                if (item->seq == s && item->row_begin <= row
                    && row < item->row_begin + p->work.tile_rows) {
                    uint32_t end = item->key_end < visible ? item->key_end : visible;

                    covered += end > item->key_begin ? end - item->key_begin : 0;
                }
            }
            ck_assert_uint_eq(covered, visible);
        }
    }
}

START_TEST(every_row_sees_every_visible_key_once)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 1, 0, 31, 300, 4096, 65};
    const uint32_t groups[][2] = {{32, 8}, {9, 3}, {4, 4}};

    for (size_t i = 0; i < 3; i++) {
        begin(&p, groups[i][0], groups[i][1]);
        add_seq(&p, docs, 7, 64, 64);
        add_seq(&p, NULL, 0, 700, 700);
        add_seq(&p, docs, 2, 100, 3);
        ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
        check_cover(&p);
    }
}
END_TEST

/* The runs of keys that one packed row sees, in order of its partials. */
struct runs {
    uint32_t count;
    struct {
        uint32_t begin, end;
    } run[ATTN_PLAN_FIXED_SPLITS];
};

static struct runs
runs_of(const struct planned *p, uint32_t seq_index, uint32_t row)
{
    const struct attn_seq *seq = &p->seqs[seq_index];
    const uint32_t token = row / p->work.group;
    const uint32_t visible = seq->pos_first + token + 1;
    struct runs runs = {0};

    for (uint32_t i = 0; i < p->plan.n_items; i++) {
        const struct attn_item *item = &p->items[i];

        if (item->seq != seq_index || row < item->row_begin
            || row >= item->row_begin + p->work.tile_rows) {
            continue;
        }
        uint32_t split = 0;

        if (item->slot != ATTN_ITEM_DIRECT) {
            uint32_t first = p->merge_first[seq->row_first + token];

            split = item->slot + token * item->slot_stride - first;
            ck_assert_uint_eq(p->merge_rows[seq->row_first + token], seq->row_first + token);
            ck_assert_uint_eq(p->merge_first[seq->row_first + token + 1] - first,
                              item->slot_stride);
        }
        ck_assert_uint_lt(split, ATTN_PLAN_FIXED_SPLITS);
        runs.run[split].begin = item->key_begin;
        runs.run[split].end = item->key_end < visible ? item->key_end : visible;
        runs.count++;
    }
    return runs;
}

static void
begin_fixed(struct planned *p)
{
    begin(p, 32, 8);
    p->work.is_fixed = true;
}

/* Row by row as decode does, alone: what every other way to compute the row must give. */
static struct runs
runs_alone(const uint32_t *docs, uint32_t n_docs, uint32_t own)
{
    static struct planned p;

    begin_fixed(&p);
    add_seq(&p, docs, n_docs, own, 1);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    check_cover(&p);
    return runs_of(&p, 0, 0);
}

START_TEST(a_fixed_cut_gives_a_row_the_same_partials_in_any_company)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 1, 0, 31, 4096, 4096, 65};
    const uint32_t few[] = {300, 20};
    const uint32_t own = 150;

    for (uint32_t ctas = 1; ctas < 300; ctas += 97) {
        for (uint32_t n_rows = 1; n_rows <= own; n_rows += 29) {
            begin_fixed(&p);
            p.work.ctas = ctas;
            p.work.wave_tiles = ctas % 2 * 16;
            add_seq(&p, docs, 7, own, n_rows);
            add_seq(&p, few, 2, 40, 9);
            p.seqs[1].row_first = n_rows;
            ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
            check_cover(&p);
            for (uint32_t t = 0; t < n_rows; t++) {
                struct runs want = runs_alone(docs, 7, own - n_rows + t + 1);
                struct runs got = runs_of(&p, 0, t * p.work.group);

                ck_assert_uint_eq(want.count, ATTN_PLAN_FIXED_SPLITS);
                ck_assert_mem_eq(&want, &got, sizeof(want));
            }
            struct runs small = runs_alone(few, 2, 40);
            struct runs last = runs_of(&p, 1, 8 * p.work.group);

            ck_assert_uint_eq(small.count, 2);
            ck_assert_mem_eq(&small, &last, sizeof(small));
        }
    }
}
END_TEST

START_TEST(a_sequence_without_documents_is_whole_in_a_fixed_cut)
{
    static struct planned p;
    const uint32_t empty[] = {0, 0};

    begin_fixed(&p);
    add_seq(&p, NULL, 0, 700, 100);
    add_seq(&p, empty, 2, 5000, 1);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    check_cover(&p);
    ck_assert_uint_eq(p.plan.n_partials, 0);
    ck_assert_uint_le(p.plan.n_items, attn_plan_items_fixed(101, 2, 4, 64));
}
END_TEST

START_TEST(a_fixed_cut_without_room_is_refused_and_never_cut_otherwise)
{
    static struct planned p;
    const uint32_t docs[] = {20000};

    begin_fixed(&p);
    add_seq(&p, docs, 1, 64, 64);
    p.plan.partials_max = 64 * ATTN_PLAN_FIXED_SPLITS - 1;
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_NO_MEMORY);
    p.plan.partials_max++;
    p.plan.items_max = attn_plan_items_fixed(64, 1, 4, 64);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    ck_assert_uint_eq(p.plan.n_partials, p.plan.partials_max);
    p.plan.merge_rows_max = 63;
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_NO_MEMORY);
}
END_TEST

START_TEST(a_short_query_over_long_documents_fills_the_device)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 4096, 4096, 4096, 4096};

    begin(&p, 32, 8);
    add_seq(&p, docs, 5, 64, 64);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    ck_assert_uint_ge(p.plan.n_items, 33 * 3 / 4);
    ck_assert_uint_le(p.plan.n_items, 33); /* one more would be a wave of its own */
    ck_assert_uint_eq(p.plan.n_merge_rows, 64);
    ck_assert_uint_eq(p.plan.n_partials, p.merge_first[64]);
    for (uint32_t i = 0; i < 64; i++) {
        ck_assert_uint_eq(p.merge_rows[i], i);
    }
}
END_TEST

START_TEST(a_step_with_rows_enough_is_not_split)
{
    static struct planned p;

    begin(&p, 32, 8);
    for (int i = 0; i < 4; i++) {
        add_seq(&p, NULL, 0, 500, 500);
    }
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    ck_assert_uint_eq(p.plan.n_merge_rows, 0);
    for (uint32_t i = 0; i < p.plan.n_items; i++) {
        ck_assert(p.items[i].seq == ATTN_ITEM_NONE || p.items[i].slot == ATTN_ITEM_DIRECT);
    }
}
END_TEST

START_TEST(the_heaviest_items_come_first)
{
    static struct planned p;

    begin(&p, 32, 8);
    add_seq(&p, NULL, 0, 1000, 1000);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    for (uint32_t i = 1; i < p.plan.n_items; i++) {
        ck_assert_uint_ge(p.items[i - 1].key_end - p.items[i - 1].key_begin,
                          p.items[i].key_end - p.items[i].key_begin);
    }
}
END_TEST

START_TEST(no_room_for_partials_means_no_split)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 4096};

    begin(&p, 32, 8);
    p.plan.partials_max = 100;
    add_seq(&p, docs, 2, 64, 64);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    ck_assert_uint_eq(p.plan.n_partials, 0);
    check_cover(&p);
    p.plan.items_max = 1;
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_NO_MEMORY);
}
END_TEST

START_TEST(decode_shares_long_and_short_documents_evenly)
{
    static struct planned p;
    uint32_t docs[128];
    uint32_t most = 0;

    for (int i = 0; i < 128; i++) {
        docs[i] = 128;
    }
    begin(&p, 32, 8);
    p.work.tile_rows = 16;
    p.work.wave_tiles = 16;
    for (uint32_t n = 0; n < 8; n++) {
        add_seq(&p, docs, 7, 64, 1);
    }
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    check_cover(&p);
    begin(&p, 32, 8);
    p.work.tile_rows = 16;
    p.work.wave_tiles = 16;
    docs[0] = 20480;
    add_seq(&p, docs, 1, 64, 1);
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    check_cover(&p);
    ck_assert_uint_le(p.plan.n_partials, 33); /* one wave */
    ck_assert_uint_ge(p.plan.n_partials, 33 * 3 / 4);
    for (uint32_t i = 0; i < p.plan.n_partials; i++) {
        uint32_t keys = p.items[i].key_end - p.items[i].key_begin;

        most = keys > most ? keys : most;
    }
    ck_assert_uint_le(most, 20544 / p.plan.n_partials + 64);
}
END_TEST

START_TEST(the_number_of_items_is_steady_while_an_answer_grows)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 4096};
    uint32_t changes = 0, last = 0;

    for (uint32_t own = 1; own < 1000; own++) {
        begin(&p, 32, 8);
        p.work.tile_rows = 16;
        p.work.wave_tiles = 16;
        add_seq(&p, docs, 2, own, 1);
        add_seq(&p, docs, 1, own + 7, 1);
        ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
        changes += p.plan.n_items != last;
        last = p.plan.n_items;
    }
    ck_assert_uint_le(changes, 8); /* each costs a recording */
}
END_TEST

START_TEST(the_bound_on_items_holds)
{
    static struct planned p;
    const uint32_t docs[] = {4096, 4096, 4096, 4096, 4096};

    begin(&p, 32, 8);
    for (int i = 0; i < 8; i++) {
        add_seq(&p, docs, 5, 64, 17);
    }
    ck_assert_int_eq(attn_plan_make(&p.work, &p.plan), ST_OK);
    ck_assert_uint_le(p.plan.n_items, attn_plan_items_max(8 * 17, 8, 4, 64, 33));
}
END_TEST

CHECK_MAIN("attn_plan", every_row_sees_every_visible_key_once,
           a_fixed_cut_gives_a_row_the_same_partials_in_any_company,
           a_sequence_without_documents_is_whole_in_a_fixed_cut,
           a_fixed_cut_without_room_is_refused_and_never_cut_otherwise,
           a_short_query_over_long_documents_fills_the_device, a_step_with_rows_enough_is_not_split,
           the_heaviest_items_come_first, no_room_for_partials_means_no_split,
           decode_shares_long_and_short_documents_evenly,
           the_number_of_items_is_steady_while_an_answer_grows, the_bound_on_items_holds)
