/* SPDX-License-Identifier: Apache-2.0 */
/* Which prefill rows go along with a step's decodes. */
#include <string.h>

#include "common/mem.h"
#include "kernels/query_rows.h"
#include "tests/support/check_main.h"

#define SEQS_MAX 16
#define SEGS_MAX 128
#define BLOCK    32u

static struct attn_seq prefill[SEQS_MAX], decode[SEQS_MAX];
static struct attn_segment segs[SEGS_MAX];
static uint32_t ids[SEGS_MAX * 64];
static struct attn_step step;
static struct query_rows *rows;
static uint32_t n_segs, n_ids, n_rows, next_block;

static void
begin(uint32_t rows_max, uint32_t pairs_max)
{
    query_rows_destroy(&rows);
    ck_assert_int_eq(query_rows_new(rows_max, pairs_max, SEQS_MAX, &rows), ST_OK);
    n_segs = n_ids = n_rows = 0;
    next_block = 1000000;
    step = (struct attn_step){.segs = segs,
                              .block_ids = ids,
                              .prefill = prefill,
                              .decode = decode,
                              .H = 32,
                              .layout = {.P = BLOCK, .Hkv = 8}};
}

/* Document d is blocks d * 1000 and on; 0: new blocks. */
static void
add_segment(uint32_t d, uint32_t n_tokens, uint32_t offset)
{
    segs[n_segs++] = (struct attn_segment){n_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < (n_tokens + BLOCK - 1) / BLOCK; i++) {
        ids[n_ids++] = d > 0 ? d * 1000 + i : next_block++;
    }
}

static struct attn_seq
sequence(const uint32_t *docs, uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t count)
{
    struct attn_seq seq = {n_rows, count, n_docs * doc_tokens + own - count, n_segs, n_docs + 1};

    for (uint32_t i = 0; i < n_docs; i++) {
        add_segment(docs[i], doc_tokens, i * doc_tokens);
    }
    add_segment(0, own, n_docs * doc_tokens);
    n_rows += count;
    return seq;
}

static void
add_query(const uint32_t *docs, uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t count)
{
    prefill[step.n_prefill++] = sequence(docs, n_docs, doc_tokens, own, count);
}

static void
add_decode(const uint32_t *docs, uint32_t n_docs, uint32_t doc_tokens)
{
    decode[step.n_decode++] = sequence(docs, n_docs, doc_tokens, 10, 1);
}

START_TEST(two_short_queries_on_one_document_go_along_row_by_row)
{
    begin(64, 1000);
    add_decode((uint32_t[]){7}, 1, 1024); /* of another document */
    add_query((uint32_t[]){1, 2}, 2, 1024, 20, 5);
    add_query((uint32_t[]){3, 1}, 2, 1024, 9, 3);
    ck_assert(query_rows_split(rows, &step));
    ck_assert_uint_eq(step.n_prefill, 0);
    ck_assert_uint_eq(step.n_decode, 1 + 5 + 3);
    ck_assert_int_eq(memcmp(&step.decode[0], &decode[0], sizeof(decode[0])), 0);
    for (uint32_t i = 0; i < 8; i++) {
        const struct attn_seq *from = &prefill[i >= 5];
        uint32_t t = i < 5 ? i : i - 5;

        ck_assert_uint_eq(step.decode[1 + i].n_rows, 1);
        ck_assert_uint_eq(step.decode[1 + i].row_first, from->row_first + t);
        ck_assert_uint_eq(step.decode[1 + i].pos_first, from->pos_first + t);
        ck_assert_uint_eq(step.decode[1 + i].seg_first, from->seg_first);
        ck_assert_uint_eq(step.decode[1 + i].n_segs, from->n_segs);
    }
}
END_TEST

START_TEST(a_query_goes_along_with_decodes_that_cite_its_document)
{
    begin(64, 1000);
    add_decode((uint32_t[]){1}, 1, 1024);
    add_query((uint32_t[]){1}, 1, 1024, 4, 4);
    add_query((uint32_t[]){2}, 1, 1024, 4, 4);
    ck_assert(query_rows_split(rows, &step));
    ck_assert_uint_eq(step.n_decode, 5);
    ck_assert_uint_eq(step.n_prefill, 1);
    ck_assert_uint_eq(step.prefill[0].row_first, prefill[1].row_first);
}
END_TEST

START_TEST(what_nobody_shares_what_is_long_and_what_is_mostly_its_own_stays)
{
    begin(64, 1000);
    add_query((uint32_t[]){1}, 1, 1024, 4, 4);    /* cited by nobody else */
    add_query((uint32_t[]){2, 2}, 2, 1024, 4, 4); /* cited twice by one */
    ck_assert(!query_rows_split(rows, &step));
    begin(64, 1000);
    add_query((uint32_t[]){1}, 1, 1024, 40, QUERY_PACKED_MAX / 4 + 1);
    add_decode((uint32_t[]){1}, 1, 1024);
    ck_assert(!query_rows_split(rows, &step));
    begin(64, 1000);
    add_query((uint32_t[]){1}, 1, 64, 300, 4); /* reads more of its own, row by row */
    add_decode((uint32_t[]){1}, 1, 64);
    ck_assert(!query_rows_split(rows, &step));
    begin(64, 1000);
    add_query((uint32_t[]){1, 2, 3}, 3, 1024, 4, 4); /* a third of its documents is hot */
    add_decode((uint32_t[]){1}, 1, 1024);
    ck_assert(!query_rows_split(rows, &step));
    ck_assert_ptr_eq(step.prefill, prefill);
    ck_assert_ptr_eq(step.decode, decode);
}
END_TEST

START_TEST(documents_of_other_lengths_are_other_documents)
{
    begin(64, 1000);
    add_query((uint32_t[]){1}, 1, 1024, 4, 4);
    add_decode((uint32_t[]){1}, 1, 1023);
    ck_assert(!query_rows_split(rows, &step));
}
END_TEST

START_TEST(no_more_go_along_than_there_is_room_for)
{
    begin(8, 1000);
    for (int i = 0; i < 3; i++) {
        add_query((uint32_t[]){1}, 1, 1024, 4, 4);
    }
    ck_assert(query_rows_split(rows, &step));
    ck_assert_uint_eq(step.n_decode, 8);
    ck_assert_uint_eq(step.n_prefill, 1);
    begin(64, 9);
    for (int i = 0; i < 3; i++) {
        add_query((uint32_t[]){1}, 1, 1024, 4, 4);
    }
    ck_assert(query_rows_split(rows, &step));
    ck_assert_uint_eq(step.n_decode, 4); /* 8 pairs of (row, segment) */
    ck_assert_uint_eq(step.n_prefill, 2);
}
END_TEST

START_TEST(each_split_forgets_the_one_before)
{
    begin(64, 1000);
    for (int round = 0; round < 3; round++) {
        n_segs = n_ids = n_rows = step.n_prefill = step.n_decode = 0;
        step.prefill = prefill;
        step.decode = decode;
        add_query((uint32_t[]){1}, 1, 1024, 4, 4);
        add_decode((uint32_t[]){round == 1 ? 1 : 2}, 1, 1024);
        ck_assert_int_eq(query_rows_split(rows, &step), round == 1);
    }
    query_rows_destroy(&rows);
}
END_TEST

START_TEST(without_memory_there_is_none)
{
    struct query_rows *none = NULL;

    for (uint64_t n = 1; n <= 4; n++) {
        mem_fail_at(n);
        ck_assert_int_eq(query_rows_new(8, 8, 8, &none), ST_NO_MEMORY);
        ck_assert_ptr_null(none);
    }
    mem_fail_at(0);
    query_rows_destroy(&none);
}
END_TEST

CHECK_MAIN("query_rows", two_short_queries_on_one_document_go_along_row_by_row,
           a_query_goes_along_with_decodes_that_cite_its_document,
           what_nobody_shares_what_is_long_and_what_is_mostly_its_own_stays,
           documents_of_other_lengths_are_other_documents, no_more_go_along_than_there_is_room_for,
           each_split_forgets_the_one_before, without_memory_there_is_none)
