/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy has learned, over restarts and damage. */
#include <unistd.h>

#include "daemon/learned.h"
#include "kvpool/evict_zipf.h"
#include "tests/support/pool_fixture.h"

static struct kvpool *
pool_of(const struct evict_policy_ops *policy)
{
    struct kvpool_config config = {
        .block_count = 4, .block_tokens = BLOCK_TOKENS, .policy = policy, .pin_share_max = 0.5};
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    return pool;
}

static uint32_t
remembered(int fd)
{
    struct kvpool *pool = pool_of(&evict_zipf);
    uint32_t count =
        learned_restore(fd, pool) == ST_OK ? evict_zipf_view(kvpool_policy(pool)).remembered : 0;

    kvpool_destroy(&pool);
    return count;
}

static void
damage(int fd, off_t at)
{
    char byte;

    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
}

START_TEST(the_youngest_whole_half_counts)
{
    struct kvpool *pool = pool_of(&evict_zipf);
    off_t second = 16 + LEARNED_BYTES_MAX;
    int fd = -1;

    ck_assert_int_eq(learned_make(&fd), ST_OK);
    ck_assert_uint_eq(remembered(fd), 0);
    load(pool, "a", BLOCK_TOKENS);
    ck_assert_int_eq(learned_save(fd, pool), ST_OK);
    ck_assert_uint_eq(remembered(fd), 1);
    load(pool, "b", BLOCK_TOKENS);
    ck_assert_int_eq(learned_save(fd, pool), ST_OK);
    ck_assert_uint_eq(remembered(fd), 2);
    damage(fd, second + 200); /* the younger one */
    ck_assert_uint_eq(remembered(fd), 1);
    load(pool, "c", BLOCK_TOKENS);
    ck_assert_int_eq(learned_save(fd, pool),
                     ST_OK); /* over the older one, which is whole: by turns */
    ck_assert_uint_eq(remembered(fd), 3);
    damage(fd, 200);
    ck_assert_uint_eq(remembered(fd), 0); /* both are damaged: a cold start, not a wrong one */
    kvpool_destroy(&pool);
    (void)close(fd);
}
END_TEST

START_TEST(another_policy_starts_cold)
{
    struct kvpool *zipf = pool_of(&evict_zipf), *lru = pool_of(&evict_lru);
    int fd = -1;

    ck_assert_int_eq(learned_make(&fd), ST_OK);
    load(zipf, "a", BLOCK_TOKENS);
    ck_assert_int_eq(learned_save(fd, zipf), ST_OK);
    ck_assert_int_eq(learned_restore(fd, lru), ST_INVALID);
    ck_assert_int_eq(learned_save(fd, lru), ST_OK); /* keeps nothing, and leaves what is there */
    ck_assert_uint_eq(remembered(fd), 1);
    kvpool_destroy(&zipf);
    kvpool_destroy(&lru);
    (void)close(fd);
}
END_TEST

CHECK_MAIN("learned", the_youngest_whole_half_counts, another_policy_starts_cold)
