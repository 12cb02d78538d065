/* SPDX-License-Identifier: Apache-2.0 */
/* The pool by itself: documents, claims, eviction, pins.  Blocks hold four tokens.  What the
 * scheduler does to it when requests and workers come and go is in test_kvpool_lives.c. */
#include "tests/support/pool_fixture.h"

START_TEST(a_cold_document_is_built_and_then_hit)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want w = want("a", 9);
    struct kvpool_claim *first = claim(pool, &w, 1, 2, 7);
    struct kvpool_stats stats;
    uint32_t count = 0;

    ck_assert_int_eq(w.reason, KVPOOL_MISS_COLD);
    ck_assert(w.must_build);
    ck_assert_uint_eq(w.tokens_ready, 0);
    ck_assert_uint_eq(kvpool_doc_builder(w.doc), 7);
    kvpool_doc_blocks(w.doc, &count);
    ck_assert_uint_eq(count, 3);
    kvpool_claim_blocks(first, &count);
    ck_assert_uint_eq(count, 2);
    kvpool_doc_seal(pool, w.doc, 5);
    ck_assert_uint_eq(kvpool_doc_builder(w.doc), 0);
    ck_assert_uint_eq(kvpool_doc_origin(w.doc), 5);
    release(pool, &first);

    struct kvpool_claim *second = claim(pool, &w, 1, 0, 8);

    ck_assert_int_eq(w.reason, KVPOOL_HIT);
    ck_assert(!w.must_build);
    ck_assert_uint_eq(w.tokens_ready, 9);
    stats = stats_of(pool);
    ck_assert_uint_eq(stats.doc_hits, 1);
    ck_assert_uint_eq(stats.doc_misses[KVPOOL_MISS_COLD], 1);
    ck_assert_uint_eq(stats.tokens_hit, 9);
    ck_assert_uint_eq(stats.tokens_missed, 9);
    ck_assert_uint_eq(stats.docs_built, 1);
    ck_assert_uint_eq(stats.blocks_docs, 3);
    ck_assert_uint_eq(stats.blocks_free, 7);
    ck_assert_uint_eq(stats.blocks_evicted, 0);
    release(pool, &second);
    kvpool_destroy(&pool);
    ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(a_document_asked_for_by_many_at_once_is_built_once)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want wants[8];
    struct kvpool_claim *claims[8];

    for (size_t i = 0; i < 8; i++) {
        wants[i] = want("a", 8);
        claims[i] = claim(pool, &wants[i], 1, 1, 1 + i);
        ck_assert(wants[i].must_build == (i == 0));
        ck_assert_int_eq(wants[i].reason, i == 0 ? KVPOOL_MISS_COLD : KVPOOL_MISS_BUILDING);
        ck_assert_uint_eq(wants[i].tokens_ready, 0);
        ck_assert(!kvpool_doc_is_ready(wants[i].doc));
    }
    kvpool_doc_seal(pool, wants[0].doc, 0);
    for (size_t i = 0; i < 8; i++) {
        ck_assert(kvpool_doc_is_ready(wants[i].doc));
        ck_assert_ptr_eq(wants[i].doc, wants[0].doc);
        release(pool, &claims[i]);
    }
    ck_assert_uint_eq(stats_of(pool).docs_built, 1);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 2);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(exactly_the_shortfall_is_evicted_oldest_first_and_from_the_tail)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want w = want("d", 4);
    struct kvpool_claim *made;

    load(pool, "a", 14); /* 4 blocks, the last one half full */
    load(pool, "b", 16);
    load(pool, "c", 8);
    made = claim(pool, &w, 1, 0, 1); /* 1 short */
    ck_assert_uint_eq(ready_of(pool, "a"), 12);
    ck_assert_uint_eq(ready_of(pool, "b"), 16);
    ck_assert_int_eq(kvpool_claim_grow(pool, made, 4), ST_OK); /* the rest of a, then b's tail */
    ck_assert_uint_eq(ready_of(pool, "a"), 0);
    ck_assert_uint_eq(ready_of(pool, "b"), 12);
    ck_assert_uint_eq(ready_of(pool, "c"), 8);
    ck_assert_uint_eq(stats_of(pool).blocks_evicted, 5);
    ck_assert_uint_eq(stats_of(pool).docs_evicted, 1);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_document_is_as_old_as_its_last_use)
{
    struct kvpool *pool = new_pool(6);
    struct kvpool_want w = want("a", 8), d = want("d", 16);
    struct kvpool_claim *made;

    load(pool, "a", 8);
    load(pool, "b", 8);
    load(pool, "c", 8);
    made = claim(pool, &w, 1, 0, 1);
    release(pool, &made);
    made = claim(pool, &d, 1, 0, 1);
    ck_assert_uint_eq(ready_of(pool, "a"), 8);
    ck_assert_uint_eq(ready_of(pool, "b"), 0);
    ck_assert_uint_eq(ready_of(pool, "c"), 0);
    kvpool_doc_seal(pool, d.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_document_that_the_claim_cites_is_not_its_victim)
{
    struct kvpool *pool = new_pool(6);
    struct kvpool_want wants[2] = {want("new", 16), want("a", 8)};
    struct kvpool_claim *made = NULL;

    load(pool, "a", 8); /* the oldest */
    load(pool, "b", 8);
    load(pool, "c", 8);
    made = claim(pool, wants, 2, 0, 1);
    ck_assert_int_eq(wants[1].reason, KVPOOL_HIT);
    ck_assert_uint_eq(ready_of(pool, "a"), 8);
    ck_assert_uint_eq(ready_of(pool, "b") + ready_of(pool, "c"), 0);
    seal_all(pool, wants, 2);
    release(pool, &made);
    /* With a evicted there would be room for five blocks; but a is cited. */
    wants[0] = want("other", 20);
    ck_assert_int_eq(kvpool_claim(pool, wants, 2, 0, 1, &made), ST_INVALID);
    wants[0] = want("other", 16);
    ck_assert_int_eq(kvpool_claim(pool, wants, 2, 0, 1, &made), ST_OK);
    seal_all(pool, wants, 2);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_repeated_document_is_held_once)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want wants[3] = {want("a", 8), want("b", 4), want("a", 8)};
    struct kvpool_claim *made = claim(pool, wants, 3, 0, 1);

    ck_assert(wants[0].must_build);
    ck_assert(!wants[2].must_build);
    ck_assert_int_eq(wants[2].reason, KVPOOL_MISS_BUILDING);
    ck_assert_ptr_eq(wants[0].doc, wants[2].doc);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 3);
    seal_all(pool, wants, 3);
    release(pool, &made);
    made = claim(pool, wants, 3, 7, 1); /* fits exactly */
    ck_assert_int_eq(wants[0].reason, KVPOOL_HIT);
    ck_assert_int_eq(wants[2].reason, KVPOOL_HIT);
    ck_assert_uint_eq(stats_of(pool).doc_hits, 3);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(only_the_missing_tail_of_a_document_is_built_again)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want w = want("a", 14), again = want("a", 14);
    struct kvpool_claim *builder, *joiner;
    const uint32_t *ids;
    uint32_t head[2], count = 0;
    uint64_t generation;

    load(pool, "a", 14);
    ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
    ids = kvpool_doc_blocks(kvpool_find(pool, &w.key), &count);
    ck_assert_uint_eq(count, 2);
    memcpy(head, ids, sizeof(head));
    generation = kvpool_doc_generation(kvpool_find(pool, &w.key));

    builder = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_PARTIAL);
    ck_assert(w.must_build);
    ck_assert_uint_eq(w.tokens_ready, 8);
    ck_assert(!kvpool_doc_is_ready(w.doc));
    ck_assert_uint_ne(kvpool_doc_generation(w.doc), generation);
    ck_assert_ptr_eq(kvpool_doc_blocks(w.doc, &count), ids);
    ck_assert_uint_eq(count, 4);
    ck_assert_mem_eq(ids, head, sizeof(head));

    joiner = claim(pool, &again, 1, 0, 2); /* waits, and may read the head meanwhile */
    ck_assert_int_eq(again.reason, KVPOOL_MISS_BUILDING);
    ck_assert_uint_eq(again.tokens_ready, 8);
    kvpool_doc_seal(pool, w.doc, 0);
    ck_assert_uint_eq(kvpool_doc_tokens_ready(again.doc), 14);
    ck_assert_ptr_eq(kvpool_doc_blocks(again.doc, &count), ids);
    release(pool, &builder);
    release(pool, &joiner);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(an_empty_document_needs_nothing_and_is_always_hit)
{
    struct kvpool *pool = new_pool(1);
    struct kvpool_want wants[2] = {want("empty", 0), want("", 0)};
    struct kvpool_claim *made = claim(pool, wants, 2, 1, 1);

    for (size_t i = 0; i < 2; i++) {
        ck_assert_ptr_null(wants[i].doc);
        ck_assert_int_eq(wants[i].reason, KVPOOL_HIT);
        ck_assert(!wants[i].must_build);
        ck_assert_uint_eq(wants[i].tokens_ready, 0);
    }
    ck_assert_uint_eq(stats_of(pool).documents, 0);
    ck_assert_uint_eq(stats_of(pool).doc_hits, 2);
    release(pool, &made);
    made = claim(pool, NULL, 0, 0, 1); /* nothing at all is fine, too */
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_claim_is_made_whole_or_not_at_all)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want held = want("held", 20);
    struct kvpool_claim *holder, *made = NULL;
    struct kvpool_want wants[4] = {want("a", 8), want("cold", 4), want("a", 8), want("cold", 4)};
    struct snapshot before, after;

    load(pool, "a", 8);
    load(pool, "b", 8);
    holder = claim(pool, &held, 1, 0, 1);
    before = snapshot(pool);
    /* 1 free, b has 2 evictable: cold and two private blocks fit, three do not. */
    ck_assert_int_eq(kvpool_claim(pool, wants, 4, 3, 2, &made), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(),
                     "4 blocks needed, 1 free, 2 evictable beside the request's own documents");
    ck_assert_ptr_null(made);
    kvpool_check(pool);
    after = snapshot(pool);
    ck_assert_mem_eq(&before, &after, sizeof(before));
    ck_assert_uint_eq(stats_of(pool).claims_refused, 1);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_ptr_null(wants[i].doc);
    }
    made = claim(pool, wants, 4, 2, 2);
    ck_assert_uint_eq(ready_of(pool, "b"), 0);
    seal_all(pool, wants, 4);
    release(pool, &made);
    kvpool_doc_seal(pool, held.doc, 0);
    release(pool, &holder);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(what_can_never_fit_is_refused_with_both_sizes)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want wants[3] = {want("a", 16), want("a", 16), want("b", 13)};
    struct kvpool_claim *made = NULL;

    ck_assert_int_eq(kvpool_fits(pool, wants, 3, 8), ST_OK); /* repeats count once */
    ck_assert_int_eq(kvpool_fits(pool, wants, 3, 9), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "request needs 11 blocks (44 tokens), the pool has 10 (40 tokens)");
    ck_assert_int_eq(kvpool_claim(pool, wants, 3, 3, 1, &made), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "request needs 11 blocks (44 tokens), the pool has 10 (40 tokens)");
    ck_assert_uint_eq(stats_of(pool).claims_refused, 0);
    ck_assert_uint_eq(stats_of(pool).documents, 0);
    wants[0].n_tokens = UINT32_MAX;
    wants[1].n_tokens = UINT32_MAX;
    ck_assert_int_eq(kvpool_fits(pool, wants, 3, UINT64_MAX), ST_INVALID);
    ck_assert_int_eq(kvpool_claim(pool, wants, 3, UINT32_MAX, 1, &made), ST_INVALID);
    ck_assert_int_eq(kvpool_fits(pool, NULL, 0, 40), ST_OK);
    ck_assert_uint_eq(kvpool_blocks_for(pool, 0), 0);
    ck_assert_uint_eq(kvpool_blocks_for(pool, 4), 1);
    ck_assert_uint_eq(kvpool_blocks_for(pool, 5), 2);
    ck_assert_uint_eq(kvpool_blocks_for(pool, UINT64_MAX), UINT32_MAX);
    kvpool_check(pool);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(fits_counts_thousands_of_distinct_documents)
{
    enum {
        COUNT = KVPOOL_CLAIM_DOCS_MAX
    };
    static struct kvpool_want wants[COUNT + 1];
    struct kvpool *pool = new_pool(COUNT / 2);
    struct kvpool_claim *made = NULL;

    for (uint32_t i = 0; i <= COUNT; i++) {
        uint32_t number = i / 2; /* each twice; the first eight bytes alike: all in one slot */

        wants[i] = want("", 1);
        memcpy(&wants[i].key.bytes[16], &number, sizeof(number));
    }
    ck_assert_int_eq(kvpool_fits(pool, wants, COUNT, 0), ST_OK);
    ck_assert_int_eq(kvpool_fits(pool, wants, COUNT, 1), ST_INVALID);
    ck_assert_int_eq(kvpool_fits(pool, wants, COUNT + 1, 0), ST_INVALID);
    ck_assert_str_eq(status_detail(), "4097 documents in one request, 4096 allowed");
    ck_assert_int_eq(kvpool_claim(pool, wants, COUNT + 1, 0, 1, &made), ST_INVALID);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(one_key_with_two_lengths_is_refused)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want wants[2] = {want("a", 4), want("a", 5)};
    struct kvpool_claim *made = NULL;

    ck_assert_int_eq(kvpool_claim(pool, wants, 2, 0, 1, &made), ST_INVALID);
    ck_assert_str_eq(status_detail(), "one document key with 5 tokens and with 4");
    ck_assert_uint_eq(stats_of(pool).documents, 0);
    load(pool, "a", 4);
    ck_assert_int_eq(kvpool_claim(pool, &wants[1], 1, 0, 1, &made), ST_INVALID);
    kvpool_check(pool);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_referenced_block_is_never_evicted)
{
    struct kvpool *pool = new_pool(4);
    struct kvpool_want a = want("a", 8), b = want("b", 12);
    struct kvpool_claim *reader, *made = NULL;

    load(pool, "a", 8);
    reader = claim(pool, &a, 1, 0, 1);
    ck_assert_uint_eq(kvpool_evict(pool, 100), 0);
    ck_assert_int_eq(kvpool_claim(pool, &b, 1, 0, 2, &made), ST_NO_MEMORY);
    ck_assert_uint_eq(ready_of(pool, "a"), 8);
    release(pool, &reader);
    made = claim(pool, &b, 1, 0, 2);
    ck_assert_uint_eq(ready_of(pool, "a"), 4);
    kvpool_doc_seal(pool, b.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_pinned_block_is_never_evicted)
{
    struct kvpool *pool = new_pool(4);
    struct kvpool_want b = want("b", 12);
    struct dockey key = named("a");
    struct kvpool_claim *made = NULL;

    load(pool, "a", 8);
    ck_assert_int_eq(kvpool_pin(pool, &key), ST_OK);
    ck_assert_int_eq(kvpool_pin(pool, &key), ST_OK); /* pins count */
    ck_assert_uint_eq(kvpool_evict(pool, 100), 0);
    ck_assert_int_eq(kvpool_unpin(pool, &key), ST_OK);
    ck_assert_int_eq(kvpool_claim(pool, &b, 1, 0, 2, &made), ST_NO_MEMORY);
    ck_assert_uint_eq(stats_of(pool).blocks_pinned, 2);
    ck_assert_int_eq(kvpool_unpin(pool, &key), ST_OK);
    ck_assert_uint_eq(stats_of(pool).blocks_pinned, 0);
    ck_assert_int_eq(kvpool_unpin(pool, &key), ST_NOT_FOUND);
    made = claim(pool, &b, 1, 0, 2);
    kvpool_doc_seal(pool, b.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(one_document_is_evicted_by_name_from_its_tail_unless_it_is_needed)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 12);
    struct dockey key = named("a"), absent = named("absent");
    struct kvpool_claim *reader;
    uint32_t blocks = 0;

    load(pool, "a", 12);
    load(pool, "b", 8);
    ck_assert_int_eq(kvpool_evict_doc(pool, &absent, 1, &blocks), ST_NOT_FOUND);
    ck_assert_int_eq(kvpool_pin(pool, &key), ST_OK);
    ck_assert_int_eq(kvpool_evict_doc(pool, &key, 1, &blocks), ST_UNAVAILABLE);
    ck_assert_int_eq(kvpool_unpin(pool, &key), ST_OK);
    reader = claim(pool, &a, 1, 0, 1);
    ck_assert_int_eq(kvpool_evict_doc(pool, &key, 1, &blocks), ST_UNAVAILABLE);
    release(pool, &reader);
    ck_assert_int_eq(kvpool_evict_doc(pool, &key, 1, &blocks), ST_OK);
    ck_assert_uint_eq(blocks, 1);
    ck_assert_uint_eq(ready_of(pool, "a"), 8);
    ck_assert_int_eq(kvpool_evict_doc(pool, &key, UINT32_MAX, &blocks), ST_OK);
    ck_assert_uint_eq(blocks, 2);
    ck_assert_ptr_null(kvpool_find(pool, &key));
    ck_assert_uint_eq(ready_of(pool, "b"), 8);
    ck_assert_uint_eq(stats_of(pool).blocks_evicted, 3);
    kvpool_check(pool);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(pins_keep_to_their_share)
{
    struct kvpool *pool = new_pool(10);
    struct dockey a = named("a"), b = named("b"), absent = named("absent");
    struct kvpool_want building = want("c", 4);
    struct kvpool_claim *made;

    load(pool, "a", 16);
    load(pool, "b", 8);
    ck_assert_int_eq(kvpool_pin(pool, &a), ST_OK);
    ck_assert_int_eq(kvpool_pin(pool, &b), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "document of 2 blocks beside 4 pinned ones, 5 may be pinned");
    ck_assert_int_eq(kvpool_pin(pool, &absent), ST_NOT_FOUND);
    ck_assert_int_eq(kvpool_unpin(pool, &absent), ST_NOT_FOUND);
    made = claim(pool, &building, 1, 0, 1);
    ck_assert_int_eq(kvpool_pin(pool, &building.key), ST_UNAVAILABLE);
    kvpool_doc_seal(pool, building.doc, 0);
    ck_assert_int_eq(kvpool_pin(pool, &building.key), ST_OK); /* referenced is fine */
    ck_assert_uint_eq(stats_of(pool).blocks_pinned, 5);
    release(pool, &made);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1); /* half of b */
    ck_assert_int_eq(kvpool_pin(pool, &b), ST_UNAVAILABLE);
    ck_assert_str_eq(status_detail(), "document has 4 of its 8 tokens");
    kvpool_check(pool);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_forgotten_document_goes_with_its_last_reference)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 8), again = want("a", 8), pinned = want("p", 4);
    struct kvpool_claim *reader, *later;

    load(pool, "a", 8);
    load(pool, "p", 4);
    reader = claim(pool, &a, 1, 0, 1);
    ck_assert_int_eq(kvpool_forget(pool, &a.key), ST_OK);
    ck_assert_int_eq(kvpool_forget(pool, &a.key), ST_NOT_FOUND);
    ck_assert_ptr_null(kvpool_find(pool, &a.key));
    ck_assert(kvpool_doc_is_ready(a.doc)); /* its reader may go on */
    later = claim(pool, &again, 1, 0, 2);
    ck_assert_int_eq(again.reason, KVPOOL_MISS_FORGOTTEN);
    ck_assert_ptr_ne(again.doc, a.doc);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 5);
    release(pool, &reader);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 3);
    kvpool_doc_seal(pool, again.doc, 0);
    release(pool, &later);
    ck_assert_int_eq(kvpool_pin(pool, &pinned.key), ST_OK);
    ck_assert_int_eq(kvpool_forget(pool, &pinned.key), ST_OK); /* also when pinned */
    kvpool_check(pool);
    ck_assert_uint_eq(stats_of(pool).blocks_pinned, 0);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 8);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_build_goes_on_when_its_document_is_forgotten)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 8), joined = want("a", 8);
    struct kvpool_claim *builder = claim(pool, &a, 1, 0, 1);
    struct kvpool_claim *joiner = claim(pool, &joined, 1, 0, 2);

    ck_assert_int_eq(kvpool_forget(pool, &a.key), ST_OK);
    kvpool_check(pool);
    kvpool_doc_seal(pool, a.doc, 0);
    ck_assert(kvpool_doc_is_ready(joined.doc));
    release(pool, &builder);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 2);
    release(pool, &joiner);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 10);
    /* And when it is both forgotten and lost. */
    builder = claim(pool, &a, 1, 0, 1);
    ck_assert_int_eq(kvpool_forget(pool, &a.key), ST_OK);
    kvpool_doc_abandon(pool, a.doc, 0);
    release(pool, &builder);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 10);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(every_miss_has_its_reason)
{
    struct kvpool *pool = new_pool(4);
    struct kvpool_want w = want("a", 8);
    struct kvpool_claim *made = claim(pool, &w, 1, 0, 1);

    ck_assert_int_eq(w.reason, KVPOOL_MISS_COLD);
    kvpool_doc_abandon(pool, w.doc, 0);
    release(pool, &made);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_ABANDONED);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    ck_assert_int_eq(kvpool_forget(pool, &w.key), ST_OK);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_FORGOTTEN);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    kvpool_drop_damaged(pool, kvpool_find(pool, &w.key));
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_DAMAGED);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_PARTIAL);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    ck_assert_uint_eq(kvpool_evict(pool, 9), 2);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(w.reason, KVPOOL_MISS_EVICTED);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    for (int i = KVPOOL_MISS_COLD; i < KVPOOL_MISS_REASONS; i++) {
        ck_assert_uint_eq(stats_of(pool).doc_misses[i], i == KVPOOL_MISS_BUILDING ? 0 : 1);
    }
    ck_assert_uint_eq(stats_of(pool).doc_misses[KVPOOL_HIT], 0);
    ck_assert_uint_eq(stats_of(pool).tokens_hit, 4);
    ck_assert_uint_eq(stats_of(pool).tokens_missed, 5 * 8 + 4);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_copy_that_is_being_made_of_a_damaged_document_is_found_by_nobody)
{
    struct kvpool *pool = new_pool(8);
    struct kvpool_want wants[] = {want("a at 7", 2 * BLOCK_TOKENS), want("a", 2 * BLOCK_TOKENS)};
    struct kvpool_claim *made;

    load(pool, "a", 2 * BLOCK_TOKENS);
    wants[0].source = dockey_hash(&wants[1].key);
    made = claim(pool, wants, 2, 0, 1);
    ck_assert(wants[0].must_build);
    ck_assert_uint_eq(kvpool_drop_stemming(pool, &wants[1].key), 2);
    kvpool_check(pool);
    ck_assert_ptr_null(kvpool_find(pool, &wants[0].key));
    kvpool_doc_seal(pool, wants[0].doc, 0);
    kvpool_check(pool);
    ck_assert_ptr_null(kvpool_find(pool, &wants[0].key));
    release(pool, &made);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 8);

    wants[0].source = dockey_hash(&wants[1].key);
    made = claim(pool, wants, 2, 0, 2);
    ck_assert(wants[0].reason == KVPOOL_MISS_DAMAGED && wants[1].reason == KVPOOL_MISS_DAMAGED);
    kvpool_drop_damaged(pool, wants[0].doc);
    kvpool_doc_abandon(pool, wants[0].doc, 0);
    kvpool_doc_seal(pool, wants[1].doc, 0);
    release(pool, &made);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 6);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(the_memory_of_what_was_evicted_is_bounded)
{
    struct kvpool *pool = new_pool(4);
    struct kvpool_want first = want("first", 4), recent = want("n1", 4);
    struct kvpool_claim *made;
    char name[8];

    load(pool, "first", 4);
    for (int i = 0; i < 12; i++) { /* the last 8 evictions are remembered, two a block */
        (void)snprintf(name, sizeof(name), "n%d", i);
        load(pool, name, 4);
    }
    made = claim(pool, &first, 1, 0, 1);
    ck_assert_int_eq(first.reason, KVPOOL_MISS_COLD);
    kvpool_doc_seal(pool, first.doc, 0);
    release(pool, &made);
    made = claim(pool, &recent, 1, 0, 1);
    ck_assert_int_eq(recent.reason, KVPOOL_MISS_EVICTED);
    kvpool_doc_seal(pool, recent.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_claim_grows_by_all_or_nothing)
{
    struct kvpool *pool = new_pool(20);
    struct kvpool_claim *made;
    uint32_t count = 0, before[3];

    load(pool, "a", 16);
    made = claim(pool, NULL, 0, 3, 1);
    memcpy(before, kvpool_claim_blocks(made, &count), sizeof(before));
    ck_assert_int_eq(kvpool_claim_grow(pool, made, 18), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "18 more blocks needed, 13 free, 4 evictable");
    ck_assert_int_eq(kvpool_claim_grow(pool, made, 0), ST_OK);
    for (int i = 0; i < 15; i++) {
        ck_assert_int_eq(kvpool_claim_grow(pool, made, 1), ST_OK);
        kvpool_check(pool);
    }
    ck_assert_mem_eq(kvpool_claim_blocks(made, &count), before, sizeof(before));
    ck_assert_uint_eq(count, 18);
    ck_assert_uint_eq(ready_of(pool, "a"), 8);
    release(pool, &made);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 18);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_pool_that_cannot_be_is_refused)
{
    struct kvpool_config good = {
        .block_count = 1, .block_tokens = 16, .policy = &evict_lru, .pin_share_max = 1};
    struct kvpool_config bad[6] = {good, good, good, good, good, good};
    struct kvpool *pool = NULL;

    bad[0].block_count = 0;
    bad[1].block_count = KVPOOL_BLOCKS_MAX + 1;
    bad[2].block_tokens = 0;
    bad[3].block_tokens = 24;
    bad[4].pin_share_max = 1.01;
    bad[5].pin_share_max = -0.5;
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(kvpool_new(&bad[i], &pool), ST_INVALID);
        ck_assert_ptr_null(pool);
    }
    ck_assert_int_eq(kvpool_new(&good, &pool), ST_OK);
    kvpool_destroy(&pool);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(the_walk_over_documents_shows_each_once)
{
    struct kvpool *pool = new_pool(10);
    uint32_t cursor = KVPOOL_WALK;
    struct kvpool_doc_info info;
    struct kvpool_want a = want("a", 6);
    struct kvpool_claim *made;
    size_t seen = 0;

    load(pool, "a", 6);
    load(pool, "b", 12);
    made = claim(pool, &a, 1, 0, 1);
    while (kvpool_next_doc(pool, &cursor, &info)) {
        bool is_a = info.key.bytes[0] == 'a';

        seen++;
        ck_assert_uint_eq(info.n_tokens, is_a ? 6 : 12);
        ck_assert_uint_eq(info.tokens_ready, info.n_tokens);
        ck_assert_uint_eq(info.blocks_resident, is_a ? 2 : 3);
        ck_assert_uint_eq(info.references, is_a);
        ck_assert_uint_eq(info.hits, is_a);
        ck_assert(!info.is_building);
    }
    ck_assert_uint_eq(seen, 2);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

CHECK_MAIN("kvpool", a_cold_document_is_built_and_then_hit,
           a_document_asked_for_by_many_at_once_is_built_once,
           exactly_the_shortfall_is_evicted_oldest_first_and_from_the_tail,
           a_document_is_as_old_as_its_last_use, a_document_that_the_claim_cites_is_not_its_victim,
           a_repeated_document_is_held_once, only_the_missing_tail_of_a_document_is_built_again,
           an_empty_document_needs_nothing_and_is_always_hit, a_claim_is_made_whole_or_not_at_all,
           what_can_never_fit_is_refused_with_both_sizes,
           fits_counts_thousands_of_distinct_documents, one_key_with_two_lengths_is_refused,
           a_referenced_block_is_never_evicted, a_pinned_block_is_never_evicted,
           one_document_is_evicted_by_name_from_its_tail_unless_it_is_needed,
           pins_keep_to_their_share, a_forgotten_document_goes_with_its_last_reference,
           a_build_goes_on_when_its_document_is_forgotten, every_miss_has_its_reason,
           a_copy_that_is_being_made_of_a_damaged_document_is_found_by_nobody,
           the_memory_of_what_was_evicted_is_bounded, a_claim_grows_by_all_or_nothing,
           a_pool_that_cannot_be_is_refused, the_walk_over_documents_shows_each_once)
