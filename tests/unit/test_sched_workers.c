/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are silent, die, drain or speak out of an earlier life. */
#include "kvpool/tier.h"
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static struct world_config
pair(void)
{
    return (struct world_config){
        .block_count = 100,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .workers = 2,
        .seqs_max = 4,
        .build_tokens = 8,
    };
}

START_TEST(a_request_whose_worker_dies_continues_on_another_with_what_was_sent)
{
    struct world *world = world_new(pair());
    uint64_t id = world_ask_about(world, 10001, 5, 20);

    for (int i = 0; i < 6; i++) {
        world_step(world, 0);
    }
    ck_assert_uint_eq(world_get(world, id)->last_worker, 0);
    uint32_t sent = world_get(world, id)->tokens;

    ck_assert_uint_gt(sent, 0);
    world_kill(world, 0);
    world_step(world, 1); /* shows that it has survived that */
    ck_assert_uint_eq(world_get(world, id)->last_worker, 1);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->tokens, 20); /* the world checks order and content */
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_requeued, 1);
    world_destroy(world);
}
END_TEST

START_TEST(builds_die_with_their_worker_and_are_made_anew)
{
    struct world *world = world_new(pair());
    uint64_t owner = world_ask_about(world, 40001, 5, 2);
    uint64_t joined = world_ask_about(world, 40001, 5, 2);

    world_step(world, 0);
    ck_assert_uint_eq(world_get(world, joined)->last_worker, 0);
    world_kill(world, 0);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, owner)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, joined)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_builds_started(world, 40001), 2);
    ck_assert_uint_eq(sched_counters(world_sched(world))->builds_lost, 1);
    world_destroy(world);
}
END_TEST

START_TEST(sealed_documents_survive_their_worker)
{
    struct world *world = world_new(pair());

    world_ask_about(world, 40001, 5, 2);
    world_run(world, 100);
    world_kill(world, 0);
    uint64_t id = world_ask_about(world, 40001, 5, 2);

    world_run(world, 100);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_reused, 40);
    ck_assert_uint_eq(world_builds_started(world, 40001), 1);
    world_destroy(world);
}
END_TEST

START_TEST(blocks_of_a_silent_worker_are_fenced_until_its_process_is_gone)
{
    struct world *world = world_new(pair());
    uint64_t id = world_ask_about(world, 40001, 5, 20);

    world_step(world, 0);
    world_silence(world, 0);
    ck_assert_uint_eq(world_pool(world).blocks_quarantined, 10 + 4);
    world_run(world, 100); /* it goes on elsewhere, in other blocks: the world would notice */
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_work(world, 0);
    world_deliver(world, 0);
    ck_assert_uint_gt(sched_counters(world_sched(world))->messages_late, 0);
    ck_assert_uint_eq(world_pool(world).blocks_quarantined, 10 + 4);
    world_kill(world, 0);
    ck_assert_uint_eq(world_pool(world).blocks_quarantined, 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_of_which_two_workers_die_fails)
{
    struct world *world = world_new(pair());
    uint64_t id = world_submit(world, (struct world_ask){.query = 5, .max_tokens = 50});

    world_step(world, 0);
    world_kill(world, world_get(world, id)->last_worker);
    ck_assert(!world_get(world, id)->is_ended);
    world_step(world, 1); /* it has survived the first one's end */
    ck_assert_uint_eq(world_get(world, id)->last_worker, 1);
    world_kill(world, 1);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_FAILED);
    ck_assert_str_eq(world_get(world, id)->message,
                     "2 workers died while they ran it alone, the last one was worker 1");
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_lost_twice, 1);
    world_destroy(world);
}
END_TEST

START_TEST(workers_that_leave_in_good_order_are_no_losses_of_a_request)
{
    struct world *world = world_new(pair());
    uint64_t id = world_submit(world, (struct world_ask){.query = 5, .max_tokens = 50});

    for (int i = 0; i < 2 * SCHED_LOSSES_ALONE; i++) { /* all are replaced, one after the other */
        uint32_t worker = world_get(world, id)->last_worker;

        world_step(world, worker);
        world_farewell(world, worker);
        world_start(world, worker);
    }
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_requeued,
                      2 * SCHED_LOSSES_ALONE);
    world_destroy(world);
}
END_TEST

START_TEST(without_a_worker_requests_wait_for_the_next_life)
{
    struct world *world = world_new(pair());
    uint64_t id = world_submit(world, (struct world_ask){.query = 5, .max_tokens = 10});

    world_step(world, 0);
    world_kill(world, 1);
    world_kill(world, 0);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).waiting, 1);
    world_start(world, 0);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(a_cancelled_request_whose_worker_dies_gives_its_blocks_back)
{
    struct world *world = world_new(pair());
    uint64_t id = world_ask_about(world, 40001, 5, 20);

    world_step(world, 0);
    world_cancel(world, id, false);
    world_kill(world, 0); /* before it read the Stop */
    ck_assert_uint_eq(world_pool(world).blocks_free, 100);
    world_destroy(world);
}
END_TEST

START_TEST(a_draining_worker_gets_nothing_new_and_finishes_what_it_has)
{
    struct world *world = world_new(pair());
    struct world_ask ask = {.query = 5, .max_tokens = 10};
    uint64_t id = world_submit(world, ask);

    ck_assert_uint_eq(world_get(world, id)->last_worker, 0);
    ck_assert_int_eq(sched_worker_drain(world_sched(world), world_now(world), 0, true), ST_OK);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).workers, 2);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).workers_ready, 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(world_get(world, world_submit(world, ask))->last_worker, 1);
    }
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_int_eq(sched_worker_drain(world_sched(world), world_now(world), 5, true),
                     ST_NOT_FOUND);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_bound_to_a_busy_worker_runs_elsewhere_once_its_document_is_sealed)
{
    struct world_config config = pair();

    config.seqs_max = 1;
    struct world *world = world_new(config);
    uint64_t builder = world_ask_about(world, 40001, 5, 30);
    uint64_t reader = world_ask_about(world, 40001, 5, 30);

    ck_assert_uint_eq(world_get(world, reader)->assigns, 0);
    while (world_get(world, reader)->assigns == 0) {
        ck_assert(world_step(world, 0));
    }
    ck_assert(!world_get(world, builder)->is_ended);
    ck_assert_uint_eq(world_get(world, reader)->last_worker, 1);
    world_run(world, 100);
    ck_assert_uint_eq(world_builds_started(world, 40001), 1);
    world_destroy(world);
}
END_TEST

START_TEST(steps_of_an_earlier_life_change_nothing)
{
    struct world *world = world_new(pair());
    uint64_t id = world_submit(world, (struct world_ask){.query = 5, .max_tokens = 10});
    uint32_t forged = 1;
    struct sched_result result = {.request = id, .ids = &forged, .id_count = 1};
    struct sched_step step = {
        .results = &result, .result_count = 1, .released = &id, .released_count = 1};
    size_t count;

    (void)sched_worker_step(world_sched(world), world_now(world), 0, 999, &step);
    (void)sched_take_actions(world_sched(world), &count);
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_eq(sched_counters(world_sched(world))->messages_late, 1);
    world_run(world, 100);
    world_destroy(world);
}
END_TEST

START_TEST(a_load_that_a_worker_has_no_memory_for_is_computed_and_its_copy_stays)
{
    struct world_config config = pair();

    config.workers = 1;
    config.block_count = 64;
    config.host_places = 100;
    struct world *world = world_new(config);
    const struct sched_counters *counters = sched_counters(world_sched(world));
    uint32_t docs[] = {40001, 40002, 40003, 40004, 40005, 40006};

    for (uint32_t i = 0; i < 6; i++) { /* more than the pool holds */
        (void)world_ask_about(world, docs[i], 5, 2);
        world_run(world, 1000);
    }
    world_evict(world, 64);
    world_starve(world, 0);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t id = world_ask_about(world, docs[i], 5, 2);

        world_run(world, 1000);
        ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    }
    ck_assert_uint_gt(counters->loads_refused, 0);
    ck_assert_uint_eq(counters->loads_bad, 0);
    const struct tier *tier = kvpool_tier(sched_pool(world_sched(world)));
    struct tier_stats stats;

    tier->ops->stat(tier, &stats);
    ck_assert_uint_eq(stats.documents_bad, 0);
    world_destroy(world);
}
END_TEST

/* Asks about documents that together are more than the pool has room for. */
static void
visit(struct world *world, const uint32_t docs[], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)world_ask_about(world, docs[i], 5, 2);
        world_run(world, 1000);
    }
}

START_TEST(a_worker_that_refuses_a_copy_still_erases_and_is_asked_again)
{
    struct world_config config = pair();

    config.workers = 1;
    config.block_count = 64;
    config.host_places = 100;
    struct world *world = world_new(config);
    const struct sched_counters *counters = sched_counters(world_sched(world));
    static const uint32_t docs[] = {40001, 40002, 40003, 40004, 40005, 40006,
                                    40007, 40008, 40009, 40010, 40011};

    visit(world, docs, 6);
    world_refuse(world, 0, true);
    visit(world, docs + 6, 4);
    ck_assert_uint_eq(counters->spills_refused, 1); /* and is left in peace then */
    uint64_t started = counters->spills_started;

    ck_assert_int_eq(world_forget(world, docs[0], false), ST_OK);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_uint_gt(world_forgotten(world).host_blocks, 0);
    world_refuse(world, 0, false);
    world_pass(world, 1000001);
    visit(world, docs + 10, 1);
    ck_assert_uint_gt(counters->spills_started, started);
    ck_assert_uint_eq(counters->spills_refused, 1);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_workers", a_request_whose_worker_dies_continues_on_another_with_what_was_sent,
           builds_die_with_their_worker_and_are_made_anew, sealed_documents_survive_their_worker,
           blocks_of_a_silent_worker_are_fenced_until_its_process_is_gone,
           a_request_of_which_two_workers_die_fails,
           workers_that_leave_in_good_order_are_no_losses_of_a_request,
           without_a_worker_requests_wait_for_the_next_life,
           a_cancelled_request_whose_worker_dies_gives_its_blocks_back,
           a_draining_worker_gets_nothing_new_and_finishes_what_it_has,
           a_request_bound_to_a_busy_worker_runs_elsewhere_once_its_document_is_sealed,
           steps_of_an_earlier_life_change_nothing,
           a_load_that_a_worker_has_no_memory_for_is_computed_and_its_copy_stays,
           a_worker_that_refuses_a_copy_still_erases_and_is_asked_again)
