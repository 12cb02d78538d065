/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "kernels/prefill_plan.h"
#include "tests/support/check_main.h"

#define ITEMS_MAX    8192
#define HKV_MAX      8
#define ROWS_MAX     16384
#define PARTIALS_MAX 8192
#define CTAS         132
#define SEGS_MAX     256
#define SEQS_MAX     64

struct planned {
    struct attn_segment segs[SEGS_MAX];
    struct attn_seq seqs[SEQS_MAX];
    uint32_t angle_first[SEQS_MAX];
    struct prefill_work work;
    struct prefill_item items[ITEMS_MAX];
    uint32_t tasks[ITEMS_MAX * HKV_MAX];
    uint32_t cta_first[CTAS + 1];
    struct prefill_start starts[CTAS];
    uint32_t merge_rows[ROWS_MAX];
    uint32_t merge_first[ROWS_MAX + 1];
    struct prefill_plan plan;
    uint32_t n_segs, n_rows, n_angles;
};

static struct planned p;

static void
begin(uint32_t H, uint32_t Hkv)
{
    memset(&p, 0, sizeof(p));
    p.work = (struct prefill_work){.seqs = p.seqs,
                                   .segs = p.segs,
                                   .angle_first = p.angle_first,
                                   .Hkv = Hkv,
                                   .group = H / Hkv,
                                   .D = 128,
                                   .ctas = CTAS};
    p.plan = (struct prefill_plan){.items = p.items,
                                   .items_max = ITEMS_MAX,
                                   .tasks = p.tasks,
                                   .cta_first = p.cta_first,
                                   .starts = p.starts,
                                   .merge_rows = p.merge_rows,
                                   .merge_first = p.merge_first,
                                   .merge_rows_max = ROWS_MAX,
                                   .partials_max = PARTIALS_MAX};
}

static void
add_seq(const uint32_t *docs, uint32_t n_docs, uint32_t own, uint32_t n_rows)
{
    uint32_t i = p.work.n_seqs++;
    uint32_t offset = 0;

    p.seqs[i] = (struct attn_seq){
        .row_first = p.n_rows, .n_rows = n_rows, .seg_first = p.n_segs, .n_segs = n_docs + 1};
    p.angle_first[i] = p.n_angles;
    for (uint32_t d = 0; d <= n_docs; d++) {
        uint32_t n_tokens = d < n_docs ? docs[d] : own;

        p.segs[p.n_segs++] = (struct attn_segment){.n_tokens = n_tokens, .offset = offset};
        offset += n_tokens;
    }
    p.seqs[i].pos_first = offset - n_rows;
    p.n_rows += n_rows;
    p.n_angles += n_rows * (n_docs + 1);
}

static void
add_equal(uint32_t n_docs, uint32_t doc_tokens, uint32_t own)
{
    uint32_t docs[SEGS_MAX];

    for (uint32_t i = 0; i < n_docs; i++) {
        docs[i] = doc_tokens;
    }
    add_seq(docs, n_docs, own, own);
}

static void
make(void)
{
    enum status st = prefill_plan_make(&p.work, &p.plan);

    ck_assert_msg(st == ST_OK, "%s", status_detail());
}

#define TILES_MAX 256

/* Counts how often each key tile of each segment is worked on. */
static void
mark(const struct prefill_item *item, uint32_t *seen)
{
    uint32_t seg = item->seg, tok = item->tok;

    ck_assert_uint_eq(tok % PREFILL_TILE, 0);
    for (uint32_t left = item->n_tiles; left > 0; left--) {
        while (tok >= p.segs[seg].n_tokens) {
            ck_assert_uint_lt(seg, p.n_segs);
            seg++;
            tok = 0;
        }
        seen[seg * TILES_MAX + tok / PREFILL_TILE]++;
        tok += PREFILL_TILE;
    }
}

static const struct attn_seq *
seq_of(const struct prefill_item *item)
{
    for (uint32_t i = 0; i < p.work.n_seqs; i++) {
        if (p.seqs[i].row_first == item->row_first && p.seqs[i].n_rows > 0) {
            return &p.seqs[i];
        }
    }
    ck_abort_msg("an item of no sequence");
    return NULL;
}

/* Every key that some row of the tile sees is there once; none twice. */
static void
check_tile(const struct attn_seq *seq, uint32_t row_begin, const uint32_t *seen)
{
    uint32_t rows = seq->n_rows * p.work.group;
    uint32_t last = row_begin + PREFILL_TILE < rows ? row_begin + PREFILL_TILE : rows;
    uint32_t pos = seq->pos_first + (last - 1) / p.work.group;

    for (uint32_t s = seq->seg_first; s < seq->seg_first + seq->n_segs; s++) {
        for (uint32_t t = 0; t * PREFILL_TILE < p.segs[s].n_tokens; t++) {
            bool is_seen = p.segs[s].offset + t * PREFILL_TILE <= pos;

            ck_assert_uint_le(seen[s * TILES_MAX + t], 1);
            ck_assert_msg(!is_seen || seen[s * TILES_MAX + t] == 1,
                          "segment %u tile %u is left out for row %u", s, t, row_begin);
        }
    }
}

static void
check_cover(void)
{
    uint32_t *seen = calloc((size_t)SEGS_MAX * TILES_MAX, sizeof(*seen));

    make();
    for (uint32_t i = 0; i < p.plan.n_items; i++) {
        bool is_done = false;

        for (uint32_t k = 0; k < i; k++) {
            is_done |= p.items[k].row_first == p.items[i].row_first
                       && p.items[k].row_begin == p.items[i].row_begin;
        }
        if (!is_done) {
            memset(seen, 0, (size_t)SEGS_MAX * TILES_MAX * sizeof(*seen));
            for (uint32_t k = i; k < p.plan.n_items; k++) {
                if (p.items[k].row_first == p.items[i].row_first
                    && p.items[k].row_begin == p.items[i].row_begin) {
                    mark(&p.items[k], seen);
                }
            }
            check_tile(seq_of(&p.items[i]), p.items[i].row_begin, seen);
        }
    }
    free(seen);
}

/* The first task in full, and where the others stand. */
static void
check_start(uint32_t cta)
{
    const struct prefill_start *start = &p.starts[cta];
    const uint32_t first = p.cta_first[cta];

    ck_assert_uint_eq(start->n_tasks, p.cta_first[cta + 1] - first);
    if (start->n_tasks == 0) {
        return;
    }
    struct prefill_item want = p.items[p.tasks[first] / p.work.Hkv];

    want.group = p.tasks[first] % p.work.Hkv;
    ck_assert_int_eq(memcmp(&start->item, &want, sizeof(want)), 0);
    ck_assert_uint_eq(start->task_next, first + 1);
    ck_assert_uint_eq(start->task_end, p.cta_first[cta + 1]);
    ck_assert(want.n_tiles == 0
              || memcmp(&start->segment, &p.segs[want.seg], sizeof(start->segment)) == 0);
}

static void
check_tasks(void)
{
    static uint32_t count[ITEMS_MAX * HKV_MAX];

    memset(count, 0, sizeof(count));
    ck_assert_uint_eq(p.cta_first[0], 0);
    for (uint32_t c = 0; c < CTAS; c++) {
        ck_assert_uint_le(p.cta_first[c], p.cta_first[c + 1]);
    }
    ck_assert_uint_eq(p.cta_first[CTAS], p.plan.n_items * p.work.Hkv);
    for (uint32_t i = 0; i < p.cta_first[CTAS]; i++) {
        ck_assert_uint_lt(p.tasks[i], p.plan.n_items * p.work.Hkv);
        ck_assert_uint_eq(count[p.tasks[i]]++, 0);
    }
    for (uint32_t c = 0; c < CTAS; c++) {
        check_start(c);
    }
}

static void
mixed_step(void)
{
    add_seq((uint32_t[]){1, 127, 128, 129, 0, 300}, 6, 40, 40);
    add_seq(NULL, 0, 777, 777);
    add_seq((uint32_t[]){20480}, 1, 64, 64);
    add_seq((uint32_t[]){5, 5}, 2, 50, 1);
    add_seq(NULL, 0, 1, 1);
}

START_TEST(every_row_sees_every_visible_key_once)
{
    for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
        for (uint32_t group = 1; group <= 8; group += 3) {
            begin(8 * group, 8);
            p.work.is_fixed = is_fixed;
            mixed_step();
            check_cover();
            check_tasks();
        }
    }
}
END_TEST

START_TEST(a_query_over_long_documents_keeps_the_device_busy)
{
    const uint32_t rows[] = {1, 16, 64, 100, 128, 512};

    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin(32, 8);
        add_equal(5, 4096, rows[i]);
        check_cover();
        check_tasks();
        uint64_t total = 0;
        for (uint32_t k = 0; k < p.plan.n_items; k++) {
            total += 8 * (p.items[k].n_tiles + 1);
        }
        ck_assert_msg(p.plan.heaviest * CTAS < total * 5 / 4, "%u rows: heaviest %u of %llu in all",
                      rows[i], p.plan.heaviest, (unsigned long long)total);
    }
}
END_TEST

/* 161 key tiles for each of 8 heads over 132 multiprocessors: cut into equal parts, at least 11 (or
 * 21) tiles fall to one of them. */
START_TEST(full_parts_and_a_rest_end_before_equal_parts)
{
    begin(32, 8);
    add_equal(5, 4096, 16);
    check_cover();
    check_tasks();
    ck_assert_uint_le(p.plan.heaviest, 10 + 1);
    begin(32, 8);
    add_equal(5, 4096, 64);
    check_cover();
    check_tasks();
    ck_assert_uint_le(p.plan.heaviest, 20 + 1);
}
END_TEST

/* Their keys take more than L2 has: a CTA gets its tasks of the first sequences first. */
START_TEST(sequences_go_in_groups_that_fit_into_l2)
{
    begin(32, 8);
    for (uint32_t i = 0; i < 16; i++) {
        add_equal(0, 0, 1024);
    }
    check_cover();
    check_tasks();
    uint64_t total = 0;
    for (uint32_t k = 0; k < p.plan.n_items; k++) {
        total += 8 * (p.items[k].n_tiles + 1);
    }
    ck_assert_uint_lt(p.plan.heaviest * CTAS, total * 26 / 25);
    for (uint32_t c = 0; c < CTAS; c++) {
        for (uint32_t i = p.cta_first[c]; i + 1 < p.cta_first[c + 1]; i++) {
            const struct prefill_item *item = &p.items[p.tasks[i] / 8];
            const struct prefill_item *next = &p.items[p.tasks[i + 1] / 8];

            ck_assert_uint_le(item->group, next->group);
            ck_assert_uint_le(item->row_first / 6144, next->row_first / 6144);
        }
    }
}
END_TEST

START_TEST(documents_are_dealt_out_evenly)
{
    const uint32_t lengths[] = {4096, 16384};

    for (uint32_t i = 0; i < 2; i++) {
        begin(32, 8);
        add_equal(0, 0, lengths[i]);
        make();
        check_tasks();
        uint64_t total = 0;
        for (uint32_t k = 0; k < p.plan.n_items; k++) {
            total += 8 * (p.items[k].n_tiles + 1);
        }
        ck_assert_uint_lt(p.plan.heaviest * CTAS, total * 26 / 25);
        ck_assert_uint_eq(p.plan.n_partials, 0);
    }
}
END_TEST

START_TEST(many_short_documents_are_not_cut)
{
    begin(32, 8);
    for (uint32_t i = 0; i < 60; i++) {
        add_equal(0, 0, 50 + i);
    }
    check_cover();
    check_tasks();
    ck_assert_uint_eq(p.plan.n_partials, 0);
}
END_TEST

static void
sorted_pieces(uint32_t row_first, uint32_t out[64], uint32_t *n_out)
{
    *n_out = 0;
    for (uint32_t i = 0; i < p.plan.n_items; i++) {
        if (p.items[i].row_first == row_first && p.items[i].row_begin == 0) {
            uint32_t part = p.items[i].slot % p.items[i].slot_stride;

            out[part * 2] = p.items[i].tok;
            out[part * 2 + 1] = p.items[i].n_tiles;
            *n_out += 1;
        }
    }
}

START_TEST(fixed_cuts_depend_on_the_documents_alone)
{
    uint32_t alone[64] = {0}, among[64] = {0}, n_alone, n_among;

    begin(32, 8);
    p.work.is_fixed = true;
    add_seq((uint32_t[]){3000, 500}, 2, 300, 64);
    make();
    sorted_pieces(0, alone, &n_alone);
    begin(32, 8);
    p.work.is_fixed = true;
    add_seq((uint32_t[]){3000, 500}, 2, 300, 64);
    mixed_step();
    make();
    sorted_pieces(0, among, &n_among);
    ck_assert_uint_gt(n_alone, 1);
    ck_assert_uint_eq(n_alone, n_among);
    ck_assert_int_eq(memcmp(alone, among, sizeof(alone)), 0);
}
END_TEST

START_TEST(partials_of_a_row_lie_together_and_are_merged_once)
{
    begin(32, 8);
    mixed_step();
    make();
    ck_assert_uint_gt(p.plan.n_partials, 0);
    ck_assert_uint_eq(p.merge_first[0], 0);
    ck_assert_uint_eq(p.merge_first[p.plan.n_merge_rows], p.plan.n_partials);
    for (uint32_t i = 0; i < p.plan.n_items; i++) {
        const struct prefill_item *item = &p.items[i];

        if (item->slot == PREFILL_DIRECT) {
            continue;
        }
        bool is_listed = false;
        for (uint32_t r = 0; r < p.plan.n_merge_rows; r++) {
            is_listed |= p.merge_rows[r] == item->row_first && item->slot >= p.merge_first[r]
                         && item->slot < p.merge_first[r + 1]
                         && p.merge_first[r + 1] - p.merge_first[r] == item->slot_stride;
        }
        ck_assert(is_listed);
    }
}
END_TEST

START_TEST(no_room_means_no_cut_or_a_clear_refusal)
{
    begin(32, 8);
    add_equal(5, 4096, 64);
    p.plan.partials_max = 64;
    check_cover();
    ck_assert_uint_eq(p.plan.n_partials, 0);
    p.plan.items_max = 1;
    ck_assert_int_eq(prefill_plan_make(&p.work, &p.plan), ST_NO_MEMORY);
    p.plan.items_max = ITEMS_MAX;
    p.work.is_fixed = true;
    ck_assert_int_eq(prefill_plan_make(&p.work, &p.plan), ST_NO_MEMORY);
    p.work.ctas = 0;
    ck_assert_int_eq(prefill_plan_make(&p.work, &p.plan), ST_INVALID);
}
END_TEST

START_TEST(items_max_is_enough_for_what_it_is_asked)
{
    for (int is_fixed = 0; is_fixed < 2; is_fixed++) {
        begin(32, 8);
        p.work.is_fixed = is_fixed;
        for (uint32_t i = 0; i < 20; i++) {
            add_equal(2, 4096, 17);
        }
        p.plan.items_max = prefill_plan_items_max(340, 20, 4, CTAS, is_fixed);
        make();
        ck_assert_uint_le(p.plan.n_items, p.plan.items_max);
    }
}
END_TEST

CHECK_MAIN("prefill_plan", every_row_sees_every_visible_key_once,
           a_query_over_long_documents_keeps_the_device_busy,
           full_parts_and_a_rest_end_before_equal_parts, sequences_go_in_groups_that_fit_into_l2,
           documents_are_dealt_out_evenly, many_short_documents_are_not_cut,
           fixed_cuts_depend_on_the_documents_alone,
           partials_of_a_row_lie_together_and_are_merged_once,
           no_room_means_no_cut_or_a_clear_refusal, items_max_is_enough_for_what_it_is_asked)
