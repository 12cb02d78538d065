/* SPDX-License-Identifier: Apache-2.0 */
/* Who goes first, policy by policy, and what zipf remembers. */
#include <math.h>
#include <stdlib.h>

#include "kvpool/evict_zipf.h"
#include "tests/support/pool_fixture.h"

static struct kvpool *
pool_of(const struct evict_policy_ops *policy, uint32_t block_count)
{
    struct kvpool_config config = {.block_count = block_count,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = policy,
                                   .pin_share_max = 0.5};
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    return pool;
}

static bool
is_here(const struct kvpool *pool, const char *name)
{
    return ready_of(pool, name) > 0;
}

/* Documents of two blocks each, named by their letters, one request after the other. */
static void
ask(struct kvpool *pool, const char *letters)
{
    char name[2] = "";

    for (; *letters != '\0'; letters++) {
        name[0] = *letters;
        load(pool, name, 2 * BLOCK_TOKENS);
    }
}

START_TEST(zipf_lets_a_one_hit_wonder_go_before_a_favourite)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4);

    ask(pool, "aaaaabbc");
    ck_assert(is_here(pool, "a") && is_here(pool, "c") && !is_here(pool, "b"));
    ask(pool, "d"); /* lru would take a */
    ck_assert(is_here(pool, "a") && is_here(pool, "d") && !is_here(pool, "c"));
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(zipf_remembers_a_favourite_that_had_to_go)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4);

    ask(pool, "aaaaaaaa");
    ck_assert_uint_eq(kvpool_evict(pool, 4), 2);
    ask(pool, "xya"); /* asked for once in this life, but not a one-hit wonder */
    ask(pool, "z");
    ck_assert(is_here(pool, "a") && is_here(pool, "z"));
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(zipf_forgets_all_of_what_it_is_told_to_forget)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4);
    struct dockey key = named("a");

    ask(pool, "aaaaaaaabb");
    ck_assert_int_eq(kvpool_forget(pool, &key), ST_OK);
    ask(pool, "a"); /* like new */
    ask(pool, "c");
    ck_assert(!is_here(pool, "a") && is_here(pool, "b"));
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_priority_outweighs_a_few_references_here_and_in_memory)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4);
    struct dockey low = named("a"), high = named("b");

    ck_assert_int_eq(kvpool_prioritize(pool, &high, 101), ST_INVALID);
    ck_assert_int_eq(kvpool_prioritize(pool, &high, 100), ST_OK); /* not here yet */
    ask(pool, "aab");
    ask(pool, "c");
    ck_assert(is_here(pool, "b") && !is_here(pool, "a"));
    ck_assert_int_eq(kvpool_prioritize(pool, &high, 0), ST_OK);
    ask(pool, "d");
    ck_assert(!is_here(pool, "b"));
    ck_assert_int_eq(kvpool_prioritize(pool, &low, 50), ST_OK);
    kvpool_destroy(&pool);
    pool = pool_of(&evict_lru, 4);
    ck_assert_int_eq(kvpool_prioritize(pool, &high, 50), ST_UNAVAILABLE);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(what_a_waiting_request_needs_goes_last_under_every_policy)
{
    for (size_t i = 0; evict_policy_names[i] != NULL; i++) {
        struct kvpool *pool = pool_of(evict_policy_find(evict_policy_names[i]), 6);
        struct kvpool_want waits[2] = {want("a", 2 * BLOCK_TOKENS), want("n", 2 * BLOCK_TOKENS)};

        ask(pool, "abcbcbcbc");
        ck_assert_int_eq(kvpool_await(pool, waits, 2), ST_OK);
        ask(pool, "n"); /* comes while it is awaited */
        ck_assert_uint_eq(kvpool_evict(pool, 2), 2);
        ck_assert_msg(is_here(pool, "a") && is_here(pool, "n"), "%s", evict_policy_names[i]);
        ck_assert_uint_eq(kvpool_evict(pool, 3), 3); /* nothing else is left */
        ck_assert_uint_eq(stats_of(pool).blocks_docs, 1);
        kvpool_unawait(pool, waits, 2);
        kvpool_check(pool);
        kvpool_destroy(&pool);
    }
}
END_TEST

START_TEST(a_victim_is_drained_before_the_next_under_every_policy)
{
    for (size_t i = 0; evict_policy_names[i] != NULL; i++) {
        struct kvpool *pool = pool_of(evict_policy_find(evict_policy_names[i]), 40);
        uint32_t partial = 0;

        load(pool, "a", 10 * BLOCK_TOKENS);
        load(pool, "b", 10 * BLOCK_TOKENS);
        load(pool, "c", 10 * BLOCK_TOKENS);
        for (int n = 0; n < 13; n++) {
            ck_assert_uint_eq(kvpool_evict(pool, 1), 1);
        }
        for (const char *name = "abc"; *name != '\0'; name++) {
            uint32_t ready = ready_of(pool, (char[2]){*name, '\0'});

            partial += ready > 0 && ready < 10 * BLOCK_TOKENS;
        }
        ck_assert_msg(partial == 1, "%s left %u", evict_policy_names[i], partial);
        kvpool_destroy(&pool);
    }
}
END_TEST

START_TEST(s3fifo_lets_a_scan_pass_through_its_small_queue)
{
    struct kvpool *pool = pool_of(&evict_s3fifo, 20);

    ask(pool, "aaabbb"); /* twice while small: main */
    ask(pool, "cdefghijklmnopqrstuvwxyz");
    ck_assert(is_here(pool, "a") && is_here(pool, "b") && is_here(pool, "z"));
    ck_assert(!is_here(pool, "c"));
    ask(pool, "x");
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(arc_keeps_what_was_seen_twice_from_a_scan)
{
    struct kvpool *pool = pool_of(&evict_arc, 20);

    ask(pool, "aabb");
    ask(pool, "cdefghijklmnopqrstuvwxyz");
    ck_assert(is_here(pool, "a") && is_here(pool, "b") && is_here(pool, "z"));
    kvpool_destroy(&pool);
}
END_TEST

/* --- state ------------------------------------------------------------------------------------ */

static size_t
save_in(const struct kvpool *pool, void *bytes, size_t max)
{
    struct evict_saving saving = {.size = 0};

    while (!saving.is_done) {
        kvpool_policy_save(pool, &saving, bytes, max, 7);
    }
    return saving.size;
}

static void *
save(const struct kvpool *pool, size_t *size_out)
{
    size_t max = kvpool_policy_save_max(pool);
    void *bytes = malloc(max);

    ck_assert_ptr_nonnull(bytes);
    *size_out = save_in(pool, bytes, max);
    return bytes;
}

START_TEST(what_zipf_has_learned_survives_a_restart)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4), *next = pool_of(&evict_zipf, 4);
    struct dockey key = named("b");
    size_t size, again_size;
    void *bytes, *again;

    ask(pool, "aaaaaaaaxyz");
    ck_assert_int_eq(kvpool_prioritize(pool, &key, 70), ST_OK); /* never seen */
    bytes = save(pool, &size);
    ck_assert_int_eq(kvpool_policy_restore(next, bytes, size), ST_OK);
    again = save(next, &again_size);
    ck_assert_uint_eq(size, again_size);
    ask(next, "av"); /* a is no newcomer */
    ask(next, "w");
    ck_assert(is_here(next, "a") && is_here(next, "w"));
    kvpool_destroy(&pool);
    kvpool_destroy(&next);
    free(bytes);
    free(again);
}
END_TEST

START_TEST(a_state_is_saved_a_few_records_at_a_time_while_requests_come)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4), *next = pool_of(&evict_zipf, 4);
    struct evict_saving saving = {.size = 0};
    unsigned char bytes[4096];
    size_t before, calls = 0;

    ask(pool, "aaaaaaaabcdefghijklmnop");
    ck_assert_uint_le(kvpool_policy_save_max(pool) + 10 * 32, sizeof(bytes));
    while (!saving.is_done) {
        before = saving.size;
        kvpool_policy_save(pool, &saving, bytes, sizeof(bytes), 2);
        ck_assert(calls == 0 || saving.size - before <= (size_t)2 * 32); /* the size of a record */
        ask(pool, calls++ % 3 == 0 ? "a" : "q"); /* the clock goes on; one is new */
    }
    ck_assert_uint_ge(calls, 16);
    ck_assert_int_eq(kvpool_policy_restore(next, bytes, saving.size), ST_OK);
    ck_assert_uint_ge(evict_zipf_view(kvpool_policy(next)).remembered, 16); /* a to p */
    ask(next, "av");
    ask(next, "w");
    ck_assert(is_here(next, "a"));
    kvpool_destroy(&pool);
    kvpool_destroy(&next);
}
END_TEST

START_TEST(a_state_that_must_be_small_keeps_the_best)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4), *next = pool_of(&evict_zipf, 4);
    size_t size, small;
    unsigned char *bytes;

    ask(pool, "aaaaaaaabcdefgh"); /* g and h are here, a was asked for often */
    bytes = save(pool, &size);
    ck_assert_uint_eq(save_in(pool, bytes, 10), 0);
    small = save_in(pool, bytes, size - 5 * 32);
    ck_assert_uint_eq(small, size - 5 * 32);
    ck_assert_int_eq(kvpool_policy_restore(next, bytes, small), ST_OK);
    ck_assert_uint_eq(evict_zipf_view(kvpool_policy(next)).remembered, 3);
    ask(next, "av");
    ask(next, "w");
    ck_assert(is_here(next, "a"));
    kvpool_destroy(&pool);
    kvpool_destroy(&next);
    free(bytes);
}
END_TEST

START_TEST(a_damaged_state_is_refused_and_changes_nothing)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4), *lru = pool_of(&evict_lru, 4);
    size_t size, fresh_size;
    unsigned char *bytes, *fresh, *after;

    ask(pool, "abcabc");
    bytes = save(pool, &size);
    kvpool_destroy(&pool);
    pool = pool_of(&evict_zipf, 4);
    fresh = save(pool, &fresh_size);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        ck_assert_int_eq(kvpool_policy_restore(pool, bytes, size), ST_INVALID);
        bytes[i] ^= 0x10;
    }
    for (size_t i = 0; i < size; i++) {
        ck_assert_int_eq(kvpool_policy_restore(pool, bytes, i), ST_INVALID);
    }
    after = save(pool, &size);
    ck_assert_uint_eq(size, fresh_size);
    ck_assert_mem_eq(fresh, after, size);
    ck_assert_uint_eq(kvpool_policy_save_max(lru), 0);
    ck_assert_uint_eq(save_in(lru, NULL, 0), 0);
    ck_assert_int_eq(kvpool_policy_restore(lru, fresh, fresh_size), ST_INVALID);
    kvpool_destroy(&pool);
    kvpool_destroy(&lru);
    free(bytes);
    free(fresh);
    free(after);
}
END_TEST

/* --- parts ------------------------------------------------------------------------------------ */

START_TEST(the_fast_logarithm_and_power_are_near_enough)
{
    for (double x = -40; x < 40; x += 0.0137) {
        float power = (float)exp2(x);

        ck_assert_double_lt(fabs((double)zipf_log2(power) - x), 2e-4);
        ck_assert_double_lt(fabs((double)zipf_exp2((float)x) / exp2(x) - 1), 1e-5);
    }
    ck_assert_double_eq((double)zipf_exp2(-121), 0);
}
END_TEST

START_TEST(the_posterior_takes_one_over_alpha_from_every_count)
{
    ck_assert_double_eq_tol(zipf_prior(1.0, 2), 0.5, 1e-12);
    ck_assert_double_eq_tol(zipf_prior(2.0, 1), 0.5, 1e-12);
    ck_assert_double_eq_tol(zipf_prior(1.0, 1), ZIPF_PRIOR_MIN, 1e-12);
    ck_assert_double_gt(zipf_prior(1.0, 1000), 0.99);
}
END_TEST

START_TEST(a_full_memory_forgets_a_ghost_and_never_who_is_here)
{
    struct kvpool *pool = pool_of(&evict_zipf, 4);
    char name[16];

    ask(pool, "aaaaaaaa");
    for (int i = 0; i < 3 * 8192; i++) {
        (void)snprintf(name, sizeof(name), "%d", i);
        load(pool, name, BLOCK_TOKENS);
    }
    ck_assert(is_here(pool, "a"));
    ck_assert_uint_le(evict_zipf_view(kvpool_policy(pool)).remembered, 8192 + 4 * 4);
    kvpool_check(pool);
    kvpool_destroy(&pool);
}
END_TEST

CHECK_MAIN("evict", zipf_lets_a_one_hit_wonder_go_before_a_favourite,
           zipf_remembers_a_favourite_that_had_to_go, zipf_forgets_all_of_what_it_is_told_to_forget,
           a_priority_outweighs_a_few_references_here_and_in_memory,
           what_a_waiting_request_needs_goes_last_under_every_policy,
           a_victim_is_drained_before_the_next_under_every_policy,
           s3fifo_lets_a_scan_pass_through_its_small_queue,
           arc_keeps_what_was_seen_twice_from_a_scan, what_zipf_has_learned_survives_a_restart,
           a_state_is_saved_a_few_records_at_a_time_while_requests_come,
           a_state_that_must_be_small_keeps_the_best,
           a_damaged_state_is_refused_and_changes_nothing,
           the_fast_logarithm_and_power_are_near_enough,
           the_posterior_takes_one_over_alpha_from_every_count,
           a_full_memory_forgets_a_ghost_and_never_who_is_here)
