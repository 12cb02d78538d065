/* SPDX-License-Identifier: Apache-2.0 */
/* The pool and a level below it: what is copied ahead, what an eviction in the middle means, and
 * what comes back. */
#include <sys/mman.h>

#include "kvpool/catalog.h"
#include "kvpool/tier.h"
#include "kvpool/tier_host.h"
#include "tests/support/pool_fixture.h"

#define WRITER 77

/* What a watch has heard of: blocks that have a copy. */
static int64_t heard;

static void
on_copied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    (void)arg, (void)key, (void)first;
    heard += count;
}

static void
on_uncopied(void *arg, const struct dockey *key, uint32_t first, uint32_t count)
{
    (void)arg, (void)key, (void)first;
    heard -= count;
}

static const struct kvpool_watch watch = {.copied = on_copied, .uncopied = on_uncopied};

static struct kvpool *
new_tiered(uint32_t blocks, uint32_t places)
{
    struct tier_host_config config = {
        .places = places, .block_tokens = BLOCK_TOKENS, .watch = &watch};
    struct kvpool *pool = new_pool(blocks);
    struct tier *tier = NULL;

    ck_assert_int_eq(tier_host_new(&config, &tier), ST_OK);
    kvpool_use_tier(pool, tier);
    return pool;
}

/* Of every document here the whole blocks, and of no other. */
static void
assert_heard_all(const struct kvpool *pool)
{
    const struct tier *tier = kvpool_tier(pool);
    uint32_t cursor = KVPOOL_WALK;
    struct dockey key;
    uint32_t n_tokens, blocks;
    int64_t whole = 0;

    while (tier->ops->next(tier, &cursor, &key, &n_tokens, &blocks)) {
        whole += blocks < n_tokens / BLOCK_TOKENS ? blocks : n_tokens / BLOCK_TOKENS;
    }
    ck_assert_int_eq(heard, whole);
}

static struct tier_stats
tier_stats(const struct kvpool *pool)
{
    struct tier_stats stats;

    kvpool_tier(pool)->ops->check(kvpool_tier(pool));
    kvpool_tier(pool)->ops->stat(kvpool_tier(pool), &stats);
    assert_heard_all(pool);
    return stats;
}

static uint32_t
copied(const struct kvpool *pool, const char *name)
{
    struct dockey key = named(name);

    return kvpool_tier(pool)->ops->lookup(kvpool_tier(pool), &key);
}

static void
fill_sums(uint64_t sums[KVPOOL_SPILL_BLOCKS])
{
    for (uint32_t i = 0; i < KVPOOL_SPILL_BLOCKS; i++) {
        sums[i] = i + 1;
    }
}

/* Copies all that wants to be copied; the sum of a block is its id and one. */
static uint32_t
spill_all(struct kvpool *pool)
{
    struct kvpool_spill spill;
    uint32_t count = 0;

    while (kvpool_spill_next(pool, WRITER, &spill)) {
        uint64_t sums[KVPOOL_SPILL_BLOCKS];

        for (uint32_t i = 0; i < spill.count; i++) {
            sums[i] = spill.blocks[i] + 1;
        }
        ck_assert(kvpool_spill_end(pool, spill.id, WRITER, spill.count, sums));
        count += spill.count;
        kvpool_check(pool);
    }
    return count;
}

START_TEST(nothing_is_copied_while_there_is_room)
{
    struct kvpool *pool = new_tiered(32, 64);

    load(pool, "a", 8 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(who_would_go_next_is_copied_before_it_goes)
{
    struct kvpool *pool = new_tiered(32, 64);
    struct kvpool_want w = want("a", 8 * BLOCK_TOKENS);
    struct kvpool_load *taken = NULL;
    struct kvpool_claim *made;

    load(pool, "a", 8 * BLOCK_TOKENS);
    load(pool, "b", 12 * BLOCK_TOKENS);
    load(pool, "c", 12 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 20); /* 9 blocks are enough ahead, documents are whole */
    ck_assert_uint_eq(copied(pool, "a"), 8);
    ck_assert_uint_eq(spill_all(pool), 0);

    load(pool, "d", 22 * BLOCK_TOKENS); /* a and b go, and two blocks of c: nobody copied those */
    ck_assert_ptr_null(kvpool_find(pool, &w.key));
    ck_assert_uint_eq(stats_of(pool).blocks_uncopied, 2);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert(w.must_build && w.reason == KVPOOL_MISS_EVICTED);
    ck_assert_uint_eq(kvpool_loadable(pool, w.doc), 8);
    ck_assert_int_eq(kvpool_load_begin(pool, w.doc, &taken), ST_OK);
    ck_assert_uint_eq(taken->count, 8);
    ck_assert_uint_eq(taken->sums[7], 8); /* of the block that it was in */
    kvpool_load_end(pool, &taken, false);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    ck_assert_uint_eq(copied(pool, "a"), 8); /* the copy stays */
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(only_the_tail_that_went_comes_back)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct kvpool_want w = want("a", 10 * BLOCK_TOKENS - 1);
    struct kvpool_load *taken = NULL;
    struct kvpool_claim *made;

    load(pool, "a", 10 * BLOCK_TOKENS - 1);
    load(pool, "b", 5 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 10);
    ck_assert_uint_eq(kvpool_evict(pool, 3), 3);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_uint_eq(w.tokens_ready, 7 * BLOCK_TOKENS);
    ck_assert_int_eq(kvpool_load_begin(pool, w.doc, &taken), ST_OK);
    ck_assert_uint_eq(taken->count, 3);
    kvpool_load_end(pool, &taken, false);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(an_eviction_never_waits_and_shortens_the_copy_that_it_meets)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct kvpool_spill spill;
    uint64_t sums[KVPOOL_SPILL_BLOCKS];

    fill_sums(sums);
    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill));
    ck_assert_uint_eq(spill.count, 10);
    ck_assert_uint_eq(kvpool_evict(pool, 4), 4); /* its blocks 6..9: somebody may write them now */
    ck_assert_uint_eq(stats_of(pool).blocks_uncopied, 4);
    ck_assert(kvpool_spill_end(pool, spill.id, WRITER, 10, sums));
    ck_assert_uint_eq(copied(pool, "a"), 6);

    load(pool, "c", 4 * BLOCK_TOKENS);
    ck_assert_uint_eq(kvpool_evict(pool, 6), 6); /* the head of a, which has its copy */
    load(pool, "d", 6 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill)); /* b, and it goes whole */
    ck_assert_uint_eq(kvpool_evict(pool, 6), 6);
    ck_assert(kvpool_spill_end(pool, spill.id, WRITER, 6, sums));
    ck_assert_uint_eq(copied(pool, "b"), 0);
    ck_assert_uint_eq(tier_stats(pool).places_free, 58);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(blocks_that_came_back_meanwhile_do_not_make_a_short_copy_long)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct kvpool_spill spill;
    uint64_t sums[KVPOOL_SPILL_BLOCKS];

    fill_sums(sums);
    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill));
    ck_assert_uint_eq(kvpool_evict(pool, 4), 4);
    load(pool, "a", 10 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_end(pool, spill.id, WRITER, 10, sums));
    ck_assert_uint_eq(copied(pool, "a"), 6);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(places_of_a_lost_writer_are_nobodys_until_it_is_gone)
{
    struct kvpool *pool = new_tiered(16, 12);
    struct kvpool_spill spill;

    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill));
    kvpool_spills_lost(pool, WRITER);
    ck_assert(!kvpool_spill_end(pool, spill.id, WRITER, 10, NULL));
    ck_assert_uint_eq(tier_stats(pool).places_quarantined, 10);
    ck_assert(kvpool_spill_next(pool, WRITER + 1, &spill));
    ck_assert_uint_eq(spill.count, 2); /* what there is */
    kvpool_spills_lost(pool, WRITER + 1);
    (void)kvpool_fence_lift(pool, WRITER);
    (void)kvpool_fence_lift(pool, WRITER + 1);
    ck_assert_uint_eq(tier_stats(pool).places_free, 12);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(forgetting_a_document_forgets_its_copy_wherever_the_document_is)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct dockey a = named("a"), b = named("b");
    struct kvpool_spill spill;
    uint64_t sums[KVPOOL_SPILL_BLOCKS];

    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    fill_sums(sums);
    ck_assert_uint_eq(spill_all(pool), 10);
    ck_assert_uint_eq(kvpool_evict(pool, 10), 10);
    ck_assert_ptr_null(kvpool_find(pool, &a));
    ck_assert_int_eq(kvpool_forget(pool, &a), ST_OK);
    ck_assert_uint_eq(copied(pool, "a"), 0);
    ck_assert_int_eq(kvpool_forget(pool, &a), ST_NOT_FOUND);

    load(pool, "c", 10 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill)); /* b, which is forgotten meanwhile */
    ck_assert_int_eq(kvpool_forget(pool, &b), ST_OK);
    ck_assert(kvpool_spill_end(pool, spill.id, WRITER, 6, sums));
    ck_assert_uint_eq(copied(pool, "b"), 0);
    ck_assert_uint_eq(tier_stats(pool).places_free, 64);
    kvpool_destroy(&pool);
}
END_TEST

/* Whoever forgets "a" would not find it in the tier, where only its own key is known. */
START_TEST(a_form_under_a_key_of_its_own_is_not_copied)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct dockey a = named("a");
    struct kvpool_want w = want("a behind b", 10 * BLOCK_TOKENS);
    struct kvpool_claim *made;

    w.source = dockey_hash(&a);
    made = claim(pool, &w, 1, 0, 1);
    seal_all(pool, &w, 1);
    release(pool, &made);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 0); /* though it goes first */
    ck_assert_uint_eq(copied(pool, "a behind b"), 0);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(what_is_erased_is_nobodys_until_it_is_overwritten)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct kvpool_forgotten forgotten;
    struct kvpool_spill spill;
    struct dockey a = named("a"), b = named("b");
    uint64_t sums[KVPOOL_SPILL_BLOCKS];
    uint32_t count = 0;

    fill_sums(sums);
    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 10);
    ck_assert_uint_eq(kvpool_evict(pool, 10), 10); /* a is in the tier alone */
    ck_assert_int_eq(kvpool_erase(pool, &a, 5, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.host_blocks, 10);
    ck_assert_uint_eq(copied(pool, "a"), 0);
    ck_assert_uint_eq(tier_stats(pool).places_quarantined, 10);
    ck_assert_ptr_nonnull(kvpool_next_tier_erasure(pool, 21, WRITER, &count));
    ck_assert_uint_eq(count, 10);
    ck_assert_uint_eq(kvpool_erased(pool, 21), 10);
    ck_assert_uint_eq(tier_stats(pool).places_free, 64);
    ck_assert_ptr_nonnull(kvpool_next_erasure(pool, 20, WRITER, &count)); /* the pool's own */
    ck_assert_uint_eq(kvpool_erased(pool, 20), 10);

    /* While it is being copied: what was written of it is overwritten as well. */
    load(pool, "c", 4 * BLOCK_TOKENS);
    load(pool, "d", 6 * BLOCK_TOKENS);
    ck_assert(kvpool_spill_next(pool, WRITER, &spill)); /* b */
    ck_assert_uint_eq(spill.count, 6);
    ck_assert_int_eq(kvpool_erase(pool, &b, 6, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.host_blocks, 6);
    ck_assert_ptr_null(kvpool_next_tier_erasure(pool, 22, WRITER, &count));
    ck_assert(kvpool_is_erasing(pool, &b));
    ck_assert(kvpool_spill_end(pool, spill.id, WRITER, 6, sums));
    ck_assert_ptr_nonnull(kvpool_next_tier_erasure(pool, 22, WRITER, &count));
    ck_assert_uint_eq(count, 6);
    ck_assert_uint_ge(kvpool_erased(pool, 22), 6);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(places_that_held_a_document_long_ago_are_overwritten_too)
{
    struct kvpool *pool = new_tiered(16, 12);
    struct kvpool_forgotten forgotten;
    struct dockey a = named("a");

    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 10);
    (void)kvpool_tier(pool)->ops->remove(kvpool_tier(pool), &a); /* only its bytes are there */
    ck_assert_uint_eq(tier_stats(pool).places_free, 12);
    ck_assert_int_eq(kvpool_erase(pool, &a, 5, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.host_blocks, 10);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_bad_copy_is_a_miss_and_is_made_anew)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct kvpool_want w = want("a", 10 * BLOCK_TOKENS);
    struct kvpool_load *taken = NULL;
    struct kvpool_claim *made;

    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 10);
    ck_assert_uint_eq(kvpool_evict(pool, 10), 10);
    made = claim(pool, &w, 1, 0, 1);
    ck_assert_int_eq(kvpool_load_begin(pool, w.doc, &taken), ST_OK);
    kvpool_load_end(pool, &taken, true);
    ck_assert_uint_eq(copied(pool, "a"), 0);
    ck_assert_uint_eq(tier_stats(pool).documents_bad, 1);
    ck_assert_uint_eq(tier_stats(pool).places_free, 64);
    kvpool_doc_seal(pool, w.doc, 0);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

/* Damaged, out of the tier's index, and another load still reads it. */
START_TEST(a_bad_copy_that_is_still_read_is_overwritten_when_it_is_erased)
{
    struct kvpool *pool = new_tiered(16, 64);
    struct tier *tier = kvpool_tier(pool);
    struct dockey a = named("a");
    struct kvpool_forgotten forgotten;
    struct tier_block blocks[10];
    struct tier_doc *first, *second;
    uint32_t count = 0;

    load(pool, "a", 10 * BLOCK_TOKENS);
    load(pool, "b", 6 * BLOCK_TOKENS);
    ck_assert_uint_eq(spill_all(pool), 10);
    first = tier->ops->get(tier, &a, 0, 10, blocks);
    second = tier->ops->get(tier, &a, 0, 10, blocks);
    tier->ops->get_end(tier, first, true);
    ck_assert_uint_eq(copied(pool, "a"), 0);
    ck_assert_int_eq(kvpool_erase(pool, &a, 5, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.host_blocks, 10);
    ck_assert_ptr_null(kvpool_next_tier_erasure(pool, 21, WRITER, &count));
    tier->ops->get_end(tier, second, false);
    ck_assert_uint_eq(tier_stats(pool).places_free, 54);
    ck_assert_ptr_nonnull(kvpool_next_tier_erasure(pool, 21, WRITER, &count));
    ck_assert_uint_eq(count, 10);
    ck_assert_uint_eq(kvpool_erased(pool, 21), 10);
    ck_assert_uint_eq(tier_stats(pool).places_free, 64);
    kvpool_destroy(&pool);
}
END_TEST

/* A catalog has block 1 of "a" and no block 0: the place is free, and nothing of "a" is left. */
START_TEST(a_copy_without_a_head_is_not_adopted)
{
    struct catalog_pool shape = {.block_count = 4, .block_tokens = BLOCK_TOKENS};
    struct tier_host_config config = {.places = 4, .block_tokens = BLOCK_TOKENS};
    struct catalog_record record = {.key = named("a"), .n_tokens = 2 * BLOCK_TOKENS, .index = 1};
    struct tier_put put = {
        .key = named("b"), .n_tokens = BLOCK_TOKENS, .count = 1, .writer = WRITER};
    uint64_t sum = 5;
    uint32_t blocks = 1, place;
    size_t bytes = catalog_bytes(&shape);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct tier_doc *written = NULL;
    struct tier *tier = NULL;

    ck_assert_ptr_ne(memory, MAP_FAILED);
    ck_assert_int_eq(catalog_format(memory, &shape, &config.catalog), ST_OK);
    catalog_write(config.catalog, 3, &record, NULL);
    catalog_seal(config.catalog, 3, 0, sum);
    ck_assert_int_eq(tier_host_new(&config, &tier), ST_OK);
    ck_assert_int_eq(tier_host_adopt(tier, NULL, NULL, &blocks), ST_OK);
    ck_assert_uint_eq(blocks, 0);
    tier->ops->check(tier);
    ck_assert_uint_eq(tier->ops->put(tier, &put, &place, &written), 1);
    tier->ops->put_end(tier, written, 1, &sum, 0);
    ck_assert(tier->ops->remove(tier, &put.key));
    tier->ops->check(tier);
    tier->ops->destroy(&tier);
    catalog_close(&config.catalog);
    (void)munmap(memory, bytes);
}
END_TEST

START_TEST(every_policy_says_who_goes_next_as_it_then_does)
{
    for (size_t p = 0; evict_policy_names[p] != NULL; p++) {
        struct kvpool_config config = {.block_count = 64,
                                       .block_tokens = BLOCK_TOKENS,
                                       .policy = evict_policy_find(evict_policy_names[p])};
        struct evict_doc *docs[EVICT_LOWEST_MAX];
        struct kvpool *pool = NULL;
        char name[8];

        ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
        for (int i = 0; i < 16; i++) {
            (void)snprintf(name, sizeof(name), "doc%d", i);
            load(pool, name, 4 * BLOCK_TOKENS);
        }
        for (int i = 0; i < 8; i += 2) { /* some are worth more */
            (void)snprintf(name, sizeof(name), "doc%d", i);
            load(pool, name, 4 * BLOCK_TOKENS);
        }
        uint32_t count = config.policy->coldest(kvpool_policy(pool), docs, EVICT_LOWEST_MAX);

        ck_assert_uint_eq(count, 16);
        for (uint32_t i = 0; i < 4; i++) {
            struct dockey key = docs[i]->key;

            ck_assert_uint_eq(kvpool_evict(pool, 4), 4);
            ck_assert_msg(kvpool_find(pool, &key) == NULL, "%s: number %u stayed",
                          evict_policy_names[p], i);
        }
        kvpool_destroy(&pool);
    }
}
END_TEST

CHECK_MAIN("kvpool_tier", nothing_is_copied_while_there_is_room,
           who_would_go_next_is_copied_before_it_goes, only_the_tail_that_went_comes_back,
           an_eviction_never_waits_and_shortens_the_copy_that_it_meets,
           blocks_that_came_back_meanwhile_do_not_make_a_short_copy_long,
           places_of_a_lost_writer_are_nobodys_until_it_is_gone,
           forgetting_a_document_forgets_its_copy_wherever_the_document_is,
           a_form_under_a_key_of_its_own_is_not_copied,
           what_is_erased_is_nobodys_until_it_is_overwritten,
           places_that_held_a_document_long_ago_are_overwritten_too,
           a_bad_copy_is_a_miss_and_is_made_anew,
           a_bad_copy_that_is_still_read_is_overwritten_when_it_is_erased,
           a_copy_without_a_head_is_not_adopted, every_policy_says_who_goes_next_as_it_then_does)
