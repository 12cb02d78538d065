/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that grow, and preemption when the pool is too small for all of them. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static struct world_config
small(uint32_t block_count)
{
    return (struct world_config){
        .block_count = block_count,
        .block_tokens = 4,
        .reserve_tokens = 4,
        .workers = 1,
        .seqs_max = 8,
        .build_tokens = 16,
    };
}

START_TEST(an_answer_grows_block_by_block_before_it_runs_short)
{
    struct world *world = world_new(small(100));
    uint64_t id = world_submit(world, (struct world_ask){.query = 3, .max_tokens = 40});
    uint32_t steps;

    ck_assert_uint_eq(world_pool(world).blocks_own, 2); /* query and a first part of the answer */
    steps = world_run(world, 1000);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(steps, 40); /* a token a step: it never waited for a block */
    world_destroy(world);
}
END_TEST

START_TEST(no_block_is_granted_that_the_answer_cannot_need)
{
    struct world *world = world_new(small(100));
    uint32_t own_max = 0;

    world_submit(world, (struct world_ask){.query = 3, .max_tokens = 10});
    while (world_step(world, 0)) {
        uint32_t own = world_pool(world).blocks_own;

        own_max = own > own_max ? own : own_max;
    }
    ck_assert_uint_eq(own_max, 4); /* 13 tokens */
    world_destroy(world);
}
END_TEST

START_TEST(two_requests_that_need_60_percent_each_both_finish)
{
    struct world *world = world_new(small(20));
    struct world_ask ask = {.query = 8, .max_tokens = 40}; /* 12 of 20 blocks */
    uint64_t old = world_submit(world, ask);
    uint64_t young = world_submit(world, ask);

    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, old)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, young)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, old)->usage.preemptions, 0);
    ck_assert_uint_ge(world_get(world, young)->usage.preemptions, 1);
    ck_assert_uint_eq(world_get(world, young)->tokens, 40);
    world_destroy(world);
}
END_TEST

START_TEST(two_requests_with_documents_of_60_percent_each_run_one_after_the_other)
{
    struct world *world = world_new(small(20));
    uint64_t a = world_ask_about(world, 40001, 4, 4); /* 10 of 20 blocks, and 2 of its own */
    uint64_t b = world_ask_about(world, 40002, 4, 4);

    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, a)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, b)->end, SCHED_END_OK);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_preempted, 0);
    world_destroy(world);
}
END_TEST

START_TEST(the_victim_is_the_youngest_of_the_lowest_priority)
{
    struct world *world = world_new(small(24));
    struct world_ask ask = {.query = 8, .max_tokens = 40, .priority = 50};
    uint64_t oldest, low, normal;

    ask.priority = 0; /* the oldest of all is safe, whatever its priority */
    oldest = world_submit(world, ask);
    ask.priority = 10;
    low = world_submit(world, ask);
    ask.priority = 50;
    normal = world_submit(world, ask);
    while (sched_counters(world_sched(world))->requests_preempted == 0) {
        ck_assert(world_step(world, 0));
    }
    world_step(world, 0); /* it reads the Stop */
    ck_assert_uint_eq(world_get(world, low)->stops_seen, 1);
    ck_assert_uint_eq(world_get(world, normal)->stops_seen, 0);
    world_run(world, 1000);
    ck_assert_uint_eq(world_get(world, oldest)->usage.preemptions, 0);
    ck_assert_int_eq(world_get(world, low)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, normal)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(documents_nobody_reads_are_evicted_before_anybody_is_preempted)
{
    struct world *world = world_new(small(20));

    world_ask_about(world, 40001, 1, 1); /* 10 blocks */
    world_run(world, 100);
    uint64_t id = world_submit(world, (struct world_ask){.query = 8, .max_tokens = 60});

    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->usage.preemptions, 0);
    ck_assert_uint_eq(world_pool(world).blocks_docs, 3); /* exactly the shortfall went */
    world_destroy(world);
}
END_TEST

START_TEST(a_preempted_request_that_is_cancelled_or_expires_ends_once)
{
    struct world *world = world_new(small(20));
    struct world_ask ask = {.query = 8, .max_tokens = 40, .timeout_us = 1000000};
    uint64_t old = world_submit(world, ask);
    uint64_t young = world_submit(world, ask);

    while (sched_counters(world_sched(world))->requests_preempted == 0) {
        ck_assert(world_step(world, 0));
    }
    world_cancel(world, young, false); /* Stop is under way */
    world_step(world, 0);
    ck_assert_int_eq(world_get(world, young)->end, SCHED_END_CANCELLED);
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, old)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(pinned_documents_that_leave_no_room_refuse_instead_of_hanging)
{
    struct world *world = world_new(small(20));
    uint32_t docs[] = {40001}; /* 10 blocks, half of the pool: the most that may be pinned */
    struct dockey key = world_doc_key(40001);

    world_submit(world, (struct world_ask){.docs = docs, .doc_count = 1, .is_warm = true});
    world_run(world, 100);
    ck_assert_int_eq(sched_pin(world_sched(world), world_now(world), &key, 0), ST_OK);

    uint64_t in_queue = world_submit(world, (struct world_ask){.query = 44, .max_tokens = 4});

    ck_assert_int_eq(world_get(world, in_queue)->end, SCHED_END_FULL);

    uint64_t running = world_submit(world, (struct world_ask){.query = 4, .max_tokens = 60});

    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, running)->end, SCHED_END_FULL);
    ck_assert_uint_gt(world_get(world, running)->tokens, 30); /* as far as it went */
    ck_assert_int_eq(sched_unpin(world_sched(world), world_now(world), &key), ST_OK);
    running = world_submit(world, (struct world_ask){.query = 4, .max_tokens = 60});
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, running)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_room", an_answer_grows_block_by_block_before_it_runs_short,
           no_block_is_granted_that_the_answer_cannot_need,
           two_requests_that_need_60_percent_each_both_finish,
           two_requests_with_documents_of_60_percent_each_run_one_after_the_other,
           the_victim_is_the_youngest_of_the_lowest_priority,
           documents_nobody_reads_are_evicted_before_anybody_is_preempted,
           a_preempted_request_that_is_cancelled_or_expires_ends_once,
           pinned_documents_that_leave_no_room_refuse_instead_of_hanging)
