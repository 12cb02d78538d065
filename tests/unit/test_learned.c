/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy has learned, over restarts and damage. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/learned.h"
#include "kvpool/evict_zipf.h"
#include "tests/support/pool_fixture.h"

#define REMEMBERED 8000 /* a pool of four blocks remembers a few more */

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

static enum status
save(int fd, const struct kvpool *pool)
{
    struct learned_saving saving = {.bytes = NULL};

    return learned_save(&saving, fd, pool);
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
    ck_assert_int_eq(save(fd, pool), ST_OK);
    ck_assert_uint_eq(remembered(fd), 1);
    load(pool, "b", BLOCK_TOKENS);
    ck_assert_int_eq(save(fd, pool), ST_OK);
    ck_assert_uint_eq(remembered(fd), 2);
    damage(fd, second + 200); /* the younger one */
    ck_assert_uint_eq(remembered(fd), 1);
    load(pool, "c", BLOCK_TOKENS);
    ck_assert_int_eq(save(fd, pool), ST_OK); /* over the older one, which is whole: by turns */
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
    ck_assert_int_eq(save(fd, zipf), ST_OK);
    ck_assert_int_eq(learned_restore(fd, lru), ST_INVALID);
    ck_assert_int_eq(save(fd, lru), ST_OK); /* keeps nothing, and leaves what is there */
    ck_assert_uint_eq(remembered(fd), 1);
    kvpool_destroy(&zipf);
    kvpool_destroy(&lru);
    (void)close(fd);
}
END_TEST

START_TEST(a_save_in_the_middle_leaves_the_half_before_it_and_its_parts_are_small)
{
    struct kvpool_config config = {
        .block_count = 4096, .block_tokens = BLOCK_TOKENS, .policy = &evict_zipf};
    struct learned_saving saving = {.bytes = NULL};
    struct kvpool *pool = NULL;
    int fd = -1, parts = 0;

    ck_assert_int_eq(learned_make(&fd), ST_OK);
    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    for (uint32_t i = 0; i < REMEMBERED; i++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "%u", i);
        load(pool, text, BLOCK_TOKENS);
        if (i == 0) {
            ck_assert_int_eq(save(fd, pool), ST_OK);
        }
    }
    do {
        uint32_t slot = saving.policy.slot, pass = saving.policy.pass;
        size_t written = saving.written;

        ck_assert_uint_eq(remembered(fd), 1);
        ck_assert_int_eq(learned_save_some(&saving, fd, pool), ST_OK);
        ck_assert(saving.policy.pass != pass || saving.policy.slot - slot <= LEARNED_PART_RECORDS);
        ck_assert(saving.written <= written + LEARNED_PART_BYTES);
        parts++;
    } while (saving.bytes != NULL);
    /* Each record is looked at three times and takes 32 bytes. */
    ck_assert_int_ge(parts, 3 * REMEMBERED / LEARNED_PART_RECORDS
                                + REMEMBERED * 32 / (int)LEARNED_PART_BYTES);
    ck_assert_uint_eq(remembered(fd), REMEMBERED);
    kvpool_destroy(&pool);
    (void)close(fd);
}
END_TEST

CHECK_MAIN("learned", the_youngest_whole_half_counts, another_policy_starts_cold,
           a_save_in_the_middle_leaves_the_half_before_it_and_its_parts_are_small)
