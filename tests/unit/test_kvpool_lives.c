/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler does to the pool: requests are cancelled, preempted, lost with their worker,
 * drained.  And what a policy hears of all that. */
#include "tests/support/pool_fixture.h"

enum {
    REQUEST_A = 1,
    REQUEST_B = 2,
    FENCE = 77
};

START_TEST(a_cancelled_builders_work_goes_on_for_those_who_wait)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a[2] = {want("shared", 8), want("alone", 8)}, b = want("shared", 8);
    struct kvpool_claim *first = claim(pool, a, 2, 1, REQUEST_A);
    struct kvpool_claim *second = claim(pool, &b, 1, 1, REQUEST_B);

    ck_assert_int_eq(b.reason, KVPOOL_MISS_BUILDING);
    /* A is cancelled; its worker goes on with the document that B waits for and drops the other. */
    kvpool_doc_set_builder(a[0].doc, REQUEST_B);
    kvpool_doc_abandon(pool, a[1].doc, 0);
    release(pool, &first);
    ck_assert_uint_eq(kvpool_doc_builder(b.doc), REQUEST_B);
    ck_assert(!kvpool_doc_is_ready(b.doc));
    ck_assert_uint_eq(stats_of(pool).blocks_free, 7);
    kvpool_doc_seal(pool, b.doc, 0);
    ck_assert(kvpool_doc_is_ready(b.doc));
    release(pool, &second);
    ck_assert_uint_eq(ready_of(pool, "shared"), 8);
    ck_assert_uint_eq(stats_of(pool).docs_built, 1);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_lost_workers_blocks_are_quarantined_until_it_is_gone)
{
    struct kvpool *pool = new_pool(12);
    struct kvpool_want a[2] = {want("hot", 8), want("cold", 8)}, b = want("cold", 8);
    struct kvpool_claim *first, *second;

    load(pool, "hot", 8);
    first = claim(pool, a, 2, 2, REQUEST_A);
    second = claim(pool, &b, 1, 1, REQUEST_B);
    /* Their worker is silent: it may still write what it was building, and the private blocks. */
    kvpool_doc_abandon(pool, a[1].doc, FENCE);
    ck_assert(kvpool_doc_is_abandoned(b.doc));
    kvpool_claim_release(pool, &first, FENCE);
    kvpool_claim_release(pool, &second, FENCE);
    kvpool_check(pool);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 5);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 5);
    ck_assert_uint_eq(ready_of(pool, "hot"), 8); /* what is sealed is not in danger */
    /* Requeued at once, and built afresh in other blocks. */
    first = claim(pool, a, 2, 2, REQUEST_A);
    ck_assert_int_eq(a[0].reason, KVPOOL_HIT);
    ck_assert_int_eq(a[1].reason, KVPOOL_MISS_ABANDONED);
    ck_assert(a[1].must_build);
    second = claim(pool, &b, 1, 1, REQUEST_B);
    ck_assert_int_eq(b.reason, KVPOOL_MISS_BUILDING);
    ck_assert_int_eq(kvpool_claim_grow(pool, second, 1), ST_NO_MEMORY);
    /* The process is gone for certain. */
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE + 1), 0);
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE), 5);
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE), 0);
    kvpool_check(pool);
    ck_assert_int_eq(kvpool_claim_grow(pool, second, 5), ST_OK);
    kvpool_doc_seal(pool, a[1].doc, 1);
    release(pool, &first);
    release(pool, &second);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(an_abandoned_document_is_fenced_when_its_last_reference_goes)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 8), b = want("a", 8);
    struct kvpool_claim *lost = claim(pool, &a, 1, 0, REQUEST_A);
    struct kvpool_claim *elsewhere = claim(pool, &b, 1, 0, REQUEST_B); /* on another worker */

    kvpool_doc_abandon(pool, a.doc, FENCE);
    kvpool_claim_release(pool, &lost, FENCE);
    kvpool_check(pool);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 0);
    ck_assert_uint_eq(stats_of(pool).blocks_docs, 2);
    kvpool_claim_release(pool, &elsewhere, 0); /* that worker is well, the blocks are not */
    kvpool_check(pool);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 2);
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE), 2);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 10);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_fence_lifted_before_the_last_reference_goes_keeps_nothing)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 8), b = want("a", 8);
    struct kvpool_claim *lost = claim(pool, &a, 1, 0, REQUEST_A);
    struct kvpool_claim *waiting = claim(pool, &b, 1, 0, REQUEST_B);

    kvpool_doc_abandon(pool, a.doc, FENCE);
    kvpool_claim_release(pool, &lost, FENCE);
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE), 0);
    release(pool, &waiting);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 10);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(two_lost_workers_have_a_quarantine_each)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_claim *first = claim(pool, NULL, 0, 3, REQUEST_A);
    struct kvpool_claim *second = claim(pool, NULL, 0, 4, REQUEST_B);
    struct kvpool_claim *none = claim(pool, NULL, 0, 0, REQUEST_B);

    kvpool_claim_release(pool, &first, FENCE);
    kvpool_claim_release(pool, &second, FENCE + 1);
    kvpool_claim_release(pool, &none, FENCE);
    kvpool_check(pool);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 7);
    ck_assert_uint_eq(kvpool_fence_lift(pool, FENCE + 1), 4);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 3);
    kvpool_check(pool);
    kvpool_destroy(&pool); /* with blocks in quarantine: nothing leaks */
}
END_TEST

START_TEST(the_sealed_head_of_a_lost_rebuild_is_dropped_with_it)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 16);
    struct kvpool_claim *made;

    load(pool, "a", 16);
    ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
    made = claim(pool, &a, 1, 0, REQUEST_A);
    ck_assert_int_eq(a.reason, KVPOOL_MISS_PARTIAL);
    kvpool_doc_abandon(pool, a.doc, FENCE);
    kvpool_claim_release(pool, &made, FENCE);
    ck_assert_uint_eq(stats_of(pool).blocks_quarantined, 4);
    ck_assert_ptr_null(kvpool_find(pool, &a.key));
    made = claim(pool, &a, 1, 0, REQUEST_A);
    ck_assert_int_eq(a.reason, KVPOOL_MISS_ABANDONED);
    ck_assert_uint_eq(a.tokens_ready, 0);
    kvpool_doc_seal(pool, a.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_preempted_claim_gives_its_blocks_back_and_leaves_its_documents)
{
    struct kvpool *pool = new_pool(8);
    struct kvpool_want a = want("a", 8), b = want("b", 8);
    struct kvpool_claim *old = claim(pool, &a, 1, 1, REQUEST_A);
    struct kvpool_claim *young;

    kvpool_doc_seal(pool, a.doc, 0);
    young = claim(pool, &b, 1, 3, REQUEST_B);
    kvpool_doc_seal(pool, b.doc, 0);
    ck_assert_int_eq(kvpool_claim_grow(pool, old, 1), ST_NO_MEMORY);
    release(pool, &young); /* its worker has acknowledged: no fence */
    ck_assert_int_eq(kvpool_claim_grow(pool, old, 3), ST_OK);
    ck_assert_uint_eq(ready_of(pool, "b"), 8);
    /* It comes back with fewer private blocks and finds its document. */
    young = claim(pool, &b, 1, 0, REQUEST_B);
    ck_assert_int_eq(b.reason, KVPOOL_HIT);
    release(pool, &young);
    release(pool, &old);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_preempted_builder_may_leave_its_work_to_others_or_drop_it)
{
    struct kvpool *pool = new_pool(8);
    struct kvpool_want a = want("a", 8), b = want("a", 8);
    struct kvpool_claim *young = claim(pool, &a, 1, 1, REQUEST_B);
    struct kvpool_claim *old;

    kvpool_doc_abandon(pool, a.doc, 0); /* nobody waits: the worker has stopped */
    release(pool, &young);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 8);
    young = claim(pool, &a, 1, 1, REQUEST_B);
    old = claim(pool, &b, 1, 1, REQUEST_A);
    kvpool_doc_set_builder(a.doc, REQUEST_A);
    release(pool, &young);
    kvpool_doc_seal(pool, b.doc, 0);
    release(pool, &old);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(two_requests_of_sixty_percent_each_both_finish)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want a = want("a", 16), b = want("b", 16);
    struct kvpool_claim *first = claim(pool, &a, 1, 2, REQUEST_A), *second = NULL;

    ck_assert_int_eq(kvpool_claim(pool, &b, 1, 2, REQUEST_B, &second), ST_NO_MEMORY);
    kvpool_doc_seal(pool, a.doc, 0);
    ck_assert_int_eq(kvpool_claim(pool, &b, 1, 2, REQUEST_B, &second), ST_NO_MEMORY);
    release(pool, &first);
    second = claim(pool, &b, 1, 2, REQUEST_B);
    ck_assert_uint_eq(ready_of(pool, "a"), 16); /* 4 + 6: nothing had to go */
    kvpool_doc_seal(pool, b.doc, 0);
    release(pool, &second);
    ck_assert_uint_eq(stats_of(pool).claims_refused, 2);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_drained_pool_is_free_or_evictable_to_the_last_block)
{
    struct kvpool *pool = new_pool(20);
    struct kvpool_want wants[3] = {want("a", 9), want("b", 1), want("a", 9)};
    struct kvpool_claim *claims[3];
    struct kvpool_stats stats;

    for (size_t i = 0; i < 3; i++) {
        claims[i] = claim(pool, wants, 3, 2, 1 + i);
        seal_all(pool, wants, 3);
    }
    for (size_t i = 0; i < 3; i++) {
        release(pool, &claims[i]);
    }
    stats = stats_of(pool);
    ck_assert_uint_eq(stats.blocks_own, 0);
    ck_assert_uint_eq(stats.blocks_free + stats.blocks_evictable, 20);
    ck_assert_uint_eq(kvpool_evict(pool, UINT32_MAX), 4);
    kvpool_check(pool);
    stats = stats_of(pool);
    ck_assert_uint_eq(stats.blocks_free, 20);
    ck_assert_uint_eq(stats.documents, 0);
    kvpool_destroy(&pool);
}
END_TEST

/* --- what a policy hears ---------------------------------------------------------------------- */

/* Writes down every call as "event(name of document)"; evicts nothing. */
struct evict_policy {
    int unused;
};

static struct evict_policy scribe;
static char heard[512];

static void
hear(const char *event, const struct evict_doc *doc)
{
    size_t length = strlen(heard);

    (void)snprintf(heard + length, sizeof(heard) - length, "%s%s%.1s", length == 0 ? "" : " ",
                   event, doc == NULL ? "" : (const char *)doc->key.bytes);
}

static enum status
scribe_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    (void)config;
    heard[0] = '\0';
    *policy_out = &scribe;
    return ST_OK;
}

static void
scribe_destroy(struct evict_policy **policy)
{
    *policy = NULL;
}

static void
scribe_tick(struct evict_policy *policy)
{
    (void)policy;
    hear("tick", NULL);
}

static void
scribe_used(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    hear("used:", doc);
}

static void
scribe_admitted(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    hear("admitted:", doc);
}

static void
scribe_evictable(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    hear(doc->is_evictable ? "free:" : "busy:", doc);
}

static void
scribe_awaited(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    hear(doc->is_awaited ? "awaited:" : "unawaited:", doc);
}

static void
scribe_forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    (void)policy;
    hear(end == EVICT_END_FORGOTTEN ? "forgotten:"
         : end == EVICT_END_LOST    ? "lost:"
                                    : "evicted:",
         doc);
}

static struct evict_doc *
scribe_victim(struct evict_policy *policy)
{
    (void)policy;
    return NULL;
}

static const struct evict_policy_ops scribe_ops = {
    .name = "scribe",
    .create = scribe_create,
    .destroy = scribe_destroy,
    .tick = scribe_tick,
    .used = scribe_used,
    .admitted = scribe_admitted,
    .evictable = scribe_evictable,
    .awaited = scribe_awaited,
    .forgotten = scribe_forgotten,
    .victim = scribe_victim,
};

static void
must_have_heard(const char *expected)
{
    ck_assert_str_eq(heard, expected);
    heard[0] = '\0';
}

START_TEST(a_policy_hears_of_every_turn_in_a_documents_life_once)
{
    struct kvpool_config config = {
        .block_count = 9, .block_tokens = 4, .policy = &scribe_ops, .pin_share_max = 1};
    struct kvpool_want wants[3] = {want("a", 4), want("b", 4), want("a", 4)};
    struct kvpool_claim *made = NULL;
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    ck_assert_int_eq(kvpool_claim(pool, wants, 3, 9, 1, &made), ST_INVALID);
    ck_assert_int_eq(kvpool_claim(pool, wants, 3, 7, 1, &made), ST_OK);
    must_have_heard("tick used:a used:b"); /* the refused claim left no trace */
    seal_all(pool, wants, 3);
    must_have_heard("admitted:a admitted:b");
    ck_assert_int_eq(kvpool_pin(pool, &wants[1].key), ST_OK);
    release(pool, &made);
    must_have_heard("free:a"); /* b is pinned */
    made = claim(pool, wants, 1, 0, 1);
    must_have_heard("tick busy:a used:a");
    release(pool, &made);
    ck_assert_int_eq(kvpool_unpin(pool, &wants[1].key), ST_OK);
    must_have_heard("free:a free:b");
    ck_assert_int_eq(kvpool_forget(pool, &wants[1].key), ST_OK);
    must_have_heard("busy:b forgotten:b");
    made = claim(pool, &wants[1], 1, 0, 1);
    kvpool_doc_abandon(pool, wants[1].doc, 0);
    release(pool, &made);
    must_have_heard("tick used:b lost:b"); /* never admitted */
    ck_assert_int_eq(kvpool_await(pool, wants, 3), ST_OK);
    ck_assert_int_eq(kvpool_await(pool, wants, 1), ST_OK);
    kvpool_unawait(pool, wants, 3);
    must_have_heard("awaited:a"); /* once, and b is not here */
    kvpool_unawait(pool, wants, 1);
    must_have_heard("unawaited:a");
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(every_named_policy_is_found_and_no_other)
{
    size_t count = 0;

    for (; evict_policy_names[count] != NULL; count++) {
        const struct evict_policy_ops *ops = evict_policy_find(evict_policy_names[count]);

        ck_assert_ptr_nonnull(ops);
        ck_assert_str_eq(ops->name, evict_policy_names[count]);
    }
    ck_assert_uint_eq(count, 4);
    ck_assert_ptr_eq(evict_policy_find("lru"), &evict_lru);
    ck_assert_ptr_null(evict_policy_find("fifo"));
    ck_assert_ptr_null(evict_policy_find(""));
}
END_TEST

START_TEST(own_blocks_that_are_kept_are_a_document_whose_head_is_enough)
{
    struct kvpool *pool = new_pool(10);
    struct dockey key = named("turn");
    struct kvpool_claim *first = claim(pool, NULL, 0, 5, 1);
    struct kvpool_want wants[2] = {want("turn", 12), want("absent", 8)};
    uint32_t ids[12], own, resident;
    struct kvpool_stats stats;

    for (uint32_t i = 0; i < 12; i++) {
        ids[i] = 100 + i;
    }
    const uint32_t *blocks = kvpool_claim_blocks(first, &own);
    const uint32_t second_block = blocks[1], last_block = blocks[4];

    ck_assert_int_eq(kvpool_keep_own(pool, first, 1, 3, &key, ids, 7), ST_OK);
    kvpool_check(pool);
    blocks = kvpool_claim_blocks(first, &own);
    ck_assert_uint_eq(own, 2);
    ck_assert_uint_eq(blocks[1], last_block);
    kvpool_claim_release(pool, &first, 0);

    const struct kvpool_doc *turn = kvpool_find(pool, &key);

    ck_assert_ptr_nonnull(turn);
    ck_assert_mem_eq(kvpool_doc_ids(turn), ids, sizeof(ids));
    ck_assert_uint_eq(kvpool_doc_blocks(turn, &resident)[0], second_block);
    ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
    /* One block of three is left; who says that this is enough neither builds nor is counted. */
    wants[0].is_optional = wants[0].is_uncounted = true;
    wants[1].is_optional = wants[1].is_uncounted = true;
    struct kvpool_claim *reader = claim(pool, wants, 2, 9, 2);

    kvpool_check(pool);
    ck_assert_uint_eq(wants[0].tokens_ready, 4);
    ck_assert(!wants[0].must_build && !wants[1].must_build);
    ck_assert_ptr_null(wants[1].doc);
    kvpool_stats(pool, &stats);
    ck_assert_uint_eq(stats.blocks_free, 0);
    ck_assert_uint_eq(stats.blocks_evictable, 0);
    ck_assert_uint_eq(stats.turns_kept, 1);
    ck_assert_uint_eq(stats.doc_hits + stats.tokens_missed, 0);
    kvpool_claim_release(pool, &reader, 0);
    kvpool_check(pool);
    ck_assert_uint_eq(kvpool_evict(pool, 9), 1);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(what_stands_behind_a_document_goes_with_it_and_nothing_else)
{
    struct kvpool *pool = new_pool(12);
    struct kvpool_want a = want("a", BLOCK_TOKENS), b = want("b", BLOCK_TOKENS);
    struct kvpool_want c = want("c behind a, b", BLOCK_TOKENS);
    struct kvpool_want d = want("d behind b", BLOCK_TOKENS);
    const uint64_t behind[] = {dockey_hash(&a.key), dockey_hash(&b.key)};
    struct kvpool_forgotten forgotten;
    struct kvpool_claim *made;

    load(pool, "a", BLOCK_TOKENS);
    load(pool, "b", BLOCK_TOKENS);
    c.behind = behind;
    c.behind_count = 2;
    c.source = d.source = 7; /* of documents that are not here by themselves */
    d.behind = behind + 1;
    d.behind_count = 1;
    made = claim(pool, &c, 1, 0, 1);
    kvpool_doc_seal(pool, c.doc, 0);
    release(pool, &made);
    made = claim(pool, &d, 1, 0, 1);
    kvpool_doc_seal(pool, d.doc, 0);
    release(pool, &made);
    ck_assert_uint_eq(kvpool_drop_stemming(pool, &a.key), 2);
    ck_assert_ptr_null(kvpool_find(pool, &c.key));
    ck_assert_ptr_nonnull(kvpool_find(pool, &d.key));
    ck_assert_int_eq(kvpool_erase(pool, &b.key, 1, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.documents, 2);
    ck_assert_uint_eq(forgotten.remnants, 1); /* of c, which had something of b, too */
    ck_assert_uint_eq(stats_of(pool).documents, 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_walk_that_goes_on_later_shows_whoever_stays)
{
    for (int gone = 0; gone < 10; gone++) {
        struct kvpool *pool = new_pool(30);
        uint32_t cursor = KVPOOL_WALK, steps = 0;
        struct kvpool_doc_info info;
        bool is_seen[256] = {false};

        for (int i = 0; i < 10; i++) {
            load(pool, (char[]){(char)('a' + i), '\0'}, 4);
        }
        while (kvpool_next_doc(pool, &cursor, &info)) {
            is_seen[info.key.bytes[0]] = true;
            if (steps < 3) {
                struct dockey key = want((char[]){(char)('a' + (gone + steps) % 10), '\0'}, 4).key;

                ck_assert_int_eq(kvpool_forget(pool, &key), ST_OK);
                load(pool, (char[]){(char)('p' + steps), '\0'}, 4);
            }
            ck_assert_uint_lt(steps++, 14); /* it ends: who comes is not walked to */
        }
        for (int i = 0; i < 10; i++) {
            ck_assert(is_seen['a' + i] || (i - gone + 10) % 10 < 3);
        }
        kvpool_destroy(&pool);
    }
}
END_TEST

CHECK_MAIN("kvpool_lives", a_walk_that_goes_on_later_shows_whoever_stays,
           own_blocks_that_are_kept_are_a_document_whose_head_is_enough,
           a_cancelled_builders_work_goes_on_for_those_who_wait,
           a_lost_workers_blocks_are_quarantined_until_it_is_gone,
           an_abandoned_document_is_fenced_when_its_last_reference_goes,
           a_fence_lifted_before_the_last_reference_goes_keeps_nothing,
           two_lost_workers_have_a_quarantine_each,
           the_sealed_head_of_a_lost_rebuild_is_dropped_with_it,
           a_preempted_claim_gives_its_blocks_back_and_leaves_its_documents,
           a_preempted_builder_may_leave_its_work_to_others_or_drop_it,
           two_requests_of_sixty_percent_each_both_finish,
           a_drained_pool_is_free_or_evictable_to_the_last_block,
           a_policy_hears_of_every_turn_in_a_documents_life_once,
           every_named_policy_is_found_and_no_other,
           what_stands_behind_a_document_goes_with_it_and_nothing_else)
