/* SPDX-License-Identifier: Apache-2.0 */
/* What a watch hears of a pool: exactly which whole blocks may be hit, at every moment. */
#include <stdlib.h>
#include <sys/mman.h>

#include "kvpool/catalog.h"
#include "tests/support/pool_fixture.h"

#define HEARD_MAX 16

struct ear {
    struct kvpool_watch watch;
    struct heard {
        bool is_stored;
        struct dockey key;
        uint32_t first, count, first_id, last_id;
    } heard[HEARD_MAX];
    size_t count;
};

static const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};

static void
on_stored(void *arg, const struct dockey *key, uint32_t first, uint32_t count, const uint32_t *its)
{
    struct ear *ear = arg;

    ck_assert_uint_lt(ear->count, HEARD_MAX);
    ear->heard[ear->count++] =
        (struct heard){true, *key, first, count, its[0], its[count * BLOCK_TOKENS - 1]};
}

static void
on_removed(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    struct ear *ear = arg;

    ck_assert_uint_lt(ear->count, HEARD_MAX);
    ear->heard[ear->count++] = (struct heard){false, *key, first, count, 0, 0};
}

static struct kvpool *
watched_pool(struct ear *ear, uint32_t block_count, struct catalog *catalog)
{
    struct kvpool_config config = {.block_count = block_count,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = 0.5,
                                   .catalog = catalog,
                                   .watch = &ear->watch};
    struct kvpool *pool = NULL;

    *ear = (struct ear){.watch = {ear, on_stored, on_removed}};
    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    return pool;
}

/* Builds what is missing of a document and tells of it, as the scheduler does. */
static void
load_and_tell(struct kvpool *pool, const char *name, uint32_t tokens)
{
    struct kvpool_want w = want(name, tokens);
    struct kvpool_claim *made;

    w.ids = ids;
    made = claim(pool, &w, 1, 0, 1);
    if (w.must_build) {
        kvpool_doc_seal(pool, w.doc, 0);
        kvpool_announce(pool, w.doc, ids);
    }
    release(pool, &made);
}

/* The oldest thing heard and not yet looked at. */
static void
assert_next(struct ear *ear, bool is_stored, const char *name, uint32_t first, uint32_t count)
{
    struct dockey key = named(name);
    struct heard *heard = &ear->heard[0];

    ck_assert_uint_gt(ear->count, 0);
    ck_assert_int_eq(heard->is_stored, is_stored);
    ck_assert_mem_eq(heard->key.bytes, key.bytes, DOCKEY_BYTES);
    ck_assert_uint_eq(heard->first, first);
    ck_assert_uint_eq(heard->count, count);
    if (is_stored) {
        ck_assert_uint_eq(heard->first_id, ids[first * BLOCK_TOKENS]);
        ck_assert_uint_eq(heard->last_id, ids[(first + count) * BLOCK_TOKENS - 1]);
    }
    ear->count--;
    memmove(heard, heard + 1, ear->count * sizeof(*heard));
}

START_TEST(whole_blocks_are_told_when_they_are_sealed_and_when_they_go)
{
    struct ear ear;
    struct kvpool *pool = watched_pool(&ear, 8, NULL);
    struct dockey a = named("a");

    load_and_tell(pool, "a", 14); /* three blocks and a half */
    assert_next(&ear, true, "a", 0, 3);
    load_and_tell(pool, "a", 14); /* a hit is no news */
    ck_assert_uint_eq(ear.count, 0);
    ck_assert_int_eq(kvpool_forget(pool, &a), ST_OK);
    assert_next(&ear, false, "a", 0, 3);
    load_and_tell(pool, "short", 3); /* not one whole block */
    ck_assert_uint_eq(kvpool_evict(pool, 8), 1);
    ck_assert_uint_eq(ear.count, 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(an_evicted_tail_is_told_and_told_again_when_it_is_back)
{
    struct ear ear;
    struct kvpool *pool = watched_pool(&ear, 8, NULL);

    load_and_tell(pool, "a", 14);
    assert_next(&ear, true, "a", 0, 3);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1); /* the half one: nobody knew of it */
    ck_assert_uint_eq(ear.count, 0);
    ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
    assert_next(&ear, false, "a", 1, 2);
    load_and_tell(pool, "a", 14);
    assert_next(&ear, true, "a", 1, 2);
    ck_assert_uint_eq(kvpool_evict(pool, 4), 4);
    assert_next(&ear, false, "a", 0, 3);
    ck_assert_uint_eq(ear.count, 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_build_that_is_lost_takes_back_its_head_and_a_forgotten_one_is_never_told)
{
    struct ear ear;
    struct kvpool *pool = watched_pool(&ear, 8, NULL);
    struct kvpool_want w = want("a", 14);
    struct kvpool_claim *made;

    load_and_tell(pool, "a", 14);
    (void)kvpool_evict(pool, 2);
    assert_next(&ear, true, "a", 0, 3);
    assert_next(&ear, false, "a", 2, 1);
    made = claim(pool, &w, 1, 0, 1);
    kvpool_doc_abandon(pool, w.doc, 0);
    assert_next(&ear, false, "a", 0, 2);
    release(pool, &made);

    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(kvpool_forget(pool, &w.key), ST_OK);
    kvpool_doc_seal(pool, w.doc, 0);
    kvpool_announce(pool, w.doc, ids);
    release(pool, &made);
    ck_assert_uint_eq(ear.count, 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(an_adopted_pool_is_told_from_its_catalog)
{
    struct catalog_pool head = {.id = {1}, .block_count = 8, .block_tokens = BLOCK_TOKENS};
    size_t bytes = catalog_bytes(&head);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct kvpool_adopted adopted;
    struct catalog *catalog;
    struct kvpool *pool;
    struct ear ear;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(catalog_format(memory, &head, &catalog), ST_OK);
    pool = watched_pool(&ear, 8, catalog);
    load_and_tell(pool, "a", 14);
    load(pool, "nameless", 8); /* its ids are not known */
    kvpool_destroy(&pool);

    pool = watched_pool(&ear, 8, catalog);
    ck_assert_int_eq(kvpool_adopt(pool, NULL, NULL, &adopted), ST_OK);
    ck_assert_uint_eq(adopted.documents, 2);
    ck_assert_int_eq(kvpool_announce_adopted(pool), ST_OK);
    assert_next(&ear, true, "a", 0, 3);
    ck_assert_uint_eq(ear.count, 0);
    (void)kvpool_evict(pool, 8);
    assert_next(&ear, false, "a", 0, 3);
    ck_assert_uint_eq(ear.count, 0);
    kvpool_destroy(&pool);
    catalog_close(&catalog);
    ck_assert_int_eq(munmap(memory, bytes), 0);
}
END_TEST

CHECK_MAIN("kvpool_watch", whole_blocks_are_told_when_they_are_sealed_and_when_they_go,
           an_evicted_tail_is_told_and_told_again_when_it_is_back,
           a_build_that_is_lost_takes_back_its_head_and_a_forgotten_one_is_never_told,
           an_adopted_pool_is_told_from_its_catalog)
