/* SPDX-License-Identifier: Apache-2.0 */
/* How long documents stay, by the time that the pool is told. */
#include "tests/support/pool_fixture.h"

#define SECOND 1000000u

START_TEST(lifetime_idle_time_and_gaps_are_in_seconds)
{
    struct kvpool *pool = new_pool(8);
    const struct kvpool_ages *ages = kvpool_ages(pool);

    kvpool_set_now(pool, 100 * SECOND);
    load(pool, "a", 8);
    kvpool_set_now(pool, 102 * SECOND);
    load(pool, "a", 8); /* two seconds after its first use */
    kvpool_set_now(pool, 142 * SECOND);
    load(pool, "a", 8);
    ck_assert_uint_eq(histogram_count(&ages->reuse_gap_s), 2);
    ck_assert_double_eq(ages->reuse_gap_s.sum, 42);
    kvpool_set_now(pool, 150 * SECOND);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1); /* a tail is not the document */
    ck_assert_uint_eq(histogram_count(&ages->lifetime_s), 0);
    ck_assert_uint_eq(kvpool_evict(pool, 1), 1);
    ck_assert_uint_eq(histogram_count(&ages->lifetime_s), 1);
    ck_assert_double_eq(ages->lifetime_s.sum, 50);
    ck_assert_uint_eq(histogram_count(&ages->idle_s), 1);
    ck_assert_double_eq(ages->idle_s.sum, 8);
    kvpool_destroy(&pool);
}
END_TEST

START_TEST(a_pool_that_is_told_no_time_says_nothing)
{
    struct kvpool *pool = new_pool(8);

    load(pool, "a", 8);
    load(pool, "a", 8);
    ck_assert_uint_eq(kvpool_evict(pool, 8), 2);
    ck_assert_uint_eq(histogram_count(&kvpool_ages(pool)->lifetime_s), 0);
    ck_assert_uint_eq(histogram_count(&kvpool_ages(pool)->idle_s), 0);
    ck_assert_uint_eq(histogram_count(&kvpool_ages(pool)->reuse_gap_s), 0);
    kvpool_destroy(&pool);
}
END_TEST

CHECK_MAIN("kvpool_ages", lifetime_idle_time_and_gaps_are_in_seconds,
           a_pool_that_is_told_no_time_says_nothing)
