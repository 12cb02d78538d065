/* SPDX-License-Identifier: Apache-2.0 */
/* The pool when the host has no memory: whatever allocation fails, nothing is half done or lost. */
#include "common/mem.h"
#include "tests/support/pool_fixture.h"

START_TEST(no_lack_of_host_memory_leaves_a_half_made_pool)
{
    struct kvpool_config config = {
        .block_count = 8, .block_tokens = 16, .policy = &evict_lru, .pin_share_max = 1};
    struct kvpool *pool = NULL;
    uint64_t n = 1;

    for (; pool == NULL; n++) {
        enum status st;

        mem_fail_at(n);
        st = kvpool_new(&config, &pool);
        mem_fail_at(0);
        ck_assert_int_eq(st, pool == NULL ? ST_NO_MEMORY : ST_OK);
    }
    ck_assert_uint_ge(n, 6);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(no_lack_of_host_memory_leaves_a_half_made_claim)
{
    struct kvpool *pool = new_pool(40);
    struct kvpool_claim *made = NULL;
    struct kvpool_want wants[24];
    struct snapshot before, after;
    char name[8];
    uint64_t n = 1;

    load(pool, "part", 16);
    ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
    load(pool, "hit", 8);
    load(pool, "victim", 36 * BLOCK_TOKENS);
    wants[0] = want("part", 16);
    wants[1] = want("hit", 8);
    for (int i = 2; i < 24; i++) { /* enough new documents for the index to grow, each twice */
        (void)snprintf(name, sizeof(name), "new%d", i / 2);
        wants[i] = want(name, 5);
    }
    for (; made == NULL; n++) {
        enum status st;

        before = snapshot(pool);
        mem_fail_at(n);
        st = kvpool_claim(pool, wants, 24, 3, 1, &made);
        mem_fail_at(0);
        kvpool_check(pool);
        if (made == NULL) {
            after = snapshot(pool);
            ck_assert_int_eq(st, ST_NO_MEMORY);
            ck_assert_mem_eq(&before, &after, sizeof(before));
            ck_assert_ptr_null(wants[5].doc);
        }
    }
    ck_assert_uint_ge(n, 22); /* 11 records, 11 lists, the claim's two: all have failed */
    ck_assert_uint_eq(stats_of(pool).claims_refused, 0);
    for (n = 1; n < 3; n++) {
        before = snapshot(pool);
        mem_fail_at(1);
        ck_assert_int_eq(kvpool_claim_grow(pool, made, 2), ST_NO_MEMORY);
        mem_fail_at(0);
        after = snapshot(pool);
        ck_assert_mem_eq(&before, &after, sizeof(before));
    }
    seal_all(pool, wants, 24);
    release(pool, &made);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(releasing_sealing_and_evicting_allocate_nothing)
{
    struct kvpool *pool = new_pool(10);
    struct kvpool_want wants[2] = {want("a", 8), want("b", 8)};
    struct kvpool_claim *made = claim(pool, wants, 2, 2, 1);
    uint64_t allocations = mem_allocations();

    kvpool_doc_seal(pool, wants[0].doc, 0);
    kvpool_doc_abandon(pool, wants[1].doc, 9);
    kvpool_claim_release(pool, &made, 9);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1);
    ck_assert_uint_eq(kvpool_fence_lift(pool, 9), 4);
    ck_assert_int_eq(kvpool_forget(pool, &wants[0].key), ST_OK);
    ck_assert_uint_eq(mem_allocations(), allocations);
    ck_assert_uint_eq(stats_of(pool).blocks_free, 10);
    kvpool_destroy(&pool);
}
END_TEST

CHECK_MAIN("kvpool_memory", no_lack_of_host_memory_leaves_a_half_made_pool,
           no_lack_of_host_memory_leaves_a_half_made_claim,
           releasing_sealing_and_evicting_allocate_nothing)
