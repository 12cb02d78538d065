/* SPDX-License-Identifier: Apache-2.0 */
/* What workers die of is found, and everybody else goes on. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

#define KILLER 40666 /* a document that no worker survives */

static struct world *
make_world(uint32_t workers)
{
    return world_new((struct world_config){.block_count = 400,
                                           .block_tokens = 4,
                                           .reserve_tokens = 8,
                                           .waiting_max = 100,
                                           .workers = workers,
                                           .seqs_max = 8,
                                           .build_tokens = 16});
}

/* Lets the world go on; whichever worker begins to encode `killer` dies and is started again.
 * Returns how many did. */
static uint32_t
run_with_killer(struct world *world, uint32_t workers, uint32_t killer, uint64_t citing,
                uint32_t survived)
{
    uint32_t begun = survived; /* builds of it in which nobody died */
    uint32_t deaths = 0;

    for (uint32_t round = 0; round < 2000 && world_open(world) > 0; round++) {
        for (uint32_t i = 0; i < workers; i++) {
            if (world_builds_started(world, killer) > begun) {
                uint32_t at = world_get(world, citing)->last_worker;

                begun = world_builds_started(world, killer);
                (void)world_step(world, at);
                world_kill(world, at);
                world_start(world, at);
                deaths++;
            }
            (void)world_step(world, i);
        }
    }
    return deaths;
}

static uint64_t
ask(struct world *world, uint32_t doc, uint32_t max_tokens)
{
    return world_submit(
        world, (struct world_ask){
                   .docs = &doc, .doc_count = doc != 0, .query = 5, .max_tokens = max_tokens});
}

START_TEST(a_document_that_kills_is_quarantined_and_its_neighbours_live)
{
    for (uint32_t workers = 1; workers <= 3; workers++) {
        struct world *world = make_world(workers);
        uint64_t innocent[6];

        for (uint32_t i = 0; i < 3; i++) {
            innocent[i] = ask(world, 30001 + i, 40);
        }
        uint64_t guilty = ask(world, KILLER, 10);

        for (uint32_t i = 3; i < 6; i++) {
            innocent[i] = ask(world, 30001 + i, 40);
        }
        uint32_t deaths = run_with_killer(world, workers, KILLER, guilty, 0);

        ck_assert_uint_ge(deaths, SCHED_STRIKES_MAX);
        ck_assert_uint_le(deaths, SCHED_STRIKES_MAX + 1); /* the first may be in company */
        ck_assert_int_eq(world_get(world, guilty)->end, SCHED_END_QUARANTINED);
        ck_assert_ptr_nonnull(strstr(world_get(world, guilty)->message, "is in quarantine"));
        for (uint32_t i = 0; i < 6; i++) {
            ck_assert_int_eq(world_get(world, innocent[i])->end, SCHED_END_OK);
        }
        ck_assert_uint_eq(sched_gauges(world_sched(world)).docs_in_quarantine, 1);
        ck_assert_uint_eq(sched_counters(world_sched(world))->requests_lost_twice, 0);
        world_destroy(world);
    }
}
END_TEST

START_TEST(among_the_documents_of_one_request_the_right_one_is_found)
{
    struct world *world = make_world(2);
    uint32_t docs[] = {30001, 30002, KILLER, 30003};
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 4, .query = 5, .max_tokens = 4});
    uint32_t deaths = 0;

    /* A worker dies in the step that encodes the document, which one that runs alone gets in order.
     */
    while (!world_get(world, id)->is_ended) {
        uint32_t at = world_get(world, id)->last_worker;
        struct dockey before = world_doc_key(30002), killer = world_doc_key(KILLER);
        const struct kvpool *pool = sched_pool(world_sched(world));
        const struct kvpool_doc *first = kvpool_find(pool, &before);

        if ((deaths == 0 || (first != NULL && kvpool_doc_is_ready(first)))
            && kvpool_find(pool, &killer) != NULL) {
            world_kill(world, at);
            world_start(world, at);
            deaths++;
        } else {
            (void)world_step(world, at);
        }
        ck_assert_uint_le(deaths, 3);
    }
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_QUARANTINED);
    const struct sched_blamed *blamed = sched_next_quarantined(world_sched(world), NULL);
    struct dockey killer = world_doc_key(KILLER);

    ck_assert_ptr_nonnull(blamed);
    ck_assert_mem_eq(&blamed->key, &killer, sizeof(killer));
    ck_assert_ptr_null(sched_next_quarantined(world_sched(world), blamed));
    world_destroy(world);
}
END_TEST

START_TEST(a_quarantine_is_refused_at_the_door_and_ends_by_forget_or_time)
{
    struct world *world = make_world(1);
    uint64_t guilty = ask(world, KILLER, 10);

    ck_assert_uint_eq(run_with_killer(world, 1, KILLER, guilty, 0), SCHED_STRIKES_MAX);
    uint64_t refused = ask(world, KILLER, 10);

    ck_assert_int_eq(world_get(world, refused)->end, SCHED_END_QUARANTINED);
    (void)world_forget(world, KILLER, false);
    uint64_t again = ask(world, KILLER, 10);

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, again)->end, SCHED_END_OK);
    world_evict(world, 400);
    uint32_t begun = world_builds_started(world, KILLER);

    guilty = ask(world, KILLER, 10);
    ck_assert_uint_eq(run_with_killer(world, 1, KILLER, guilty, begun), SCHED_STRIKES_MAX);
    ck_assert_int_eq(world_get(world, guilty)->end, SCHED_END_QUARANTINED);
    world_pass(world, SCHED_QUARANTINE_US);
    again = ask(world, KILLER, 10);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, again)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(workers_killed_from_outside_fail_nobody_who_gets_on_in_between)
{
    struct world *world = make_world(2);
    uint64_t ids[4];

    for (uint32_t i = 0; i < 4; i++) {
        ids[i] = ask(world, 30001 + i, 60);
    }
    for (uint32_t kill = 0; kill < 100; kill++) {
        for (int step = 0; step < 6; step++) { /* enough for a document, and a token */
            (void)world_step(world, 0);
            (void)world_step(world, 1);
        }
        world_kill(world, kill % 2);
        world_start(world, kill % 2);
    }
    world_run(world, 1000);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(world_get(world, ids[i])->end, SCHED_END_OK);
    }
    ck_assert_uint_eq(sched_gauges(world_sched(world)).docs_in_quarantine, 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_suspect_runs_alone_until_it_has_passed_the_point_of_the_loss)
{
    struct world *world = make_world(1);
    uint64_t first = ask(world, 0, 30), second = ask(world, 0, 30);
    struct sched_worker_info info;

    for (int i = 0; i < 4; i++) {
        (void)world_step(world, 0);
    }
    ck_assert(sched_worker_info(world_sched(world), 0, &info));
    ck_assert_uint_eq(info.running, 2);
    uint32_t tokens = world_get(world, first)->tokens;

    ck_assert_uint_gt(tokens, 0);
    world_kill(world, 0);
    world_start(world, 0);
    ck_assert(sched_worker_info(world_sched(world), 0, &info));
    ck_assert_uint_eq(info.running, 1);
    while (world_get(world, first)->tokens == tokens) {
        (void)world_step(world, 0);
    }
    ck_assert(sched_worker_info(world_sched(world), 0, &info));
    ck_assert_uint_eq(info.running, 1); /* the second one's turn, with the first: not yet */
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, first)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

/* What the workers share has died, so all of them do; kvasird hears of one after the other. */
START_TEST(workers_that_die_of_one_thing_are_one_event_and_count_once_against_a_request)
{
    for (uint32_t docs = 0; docs < 2; docs++) {
        struct world *world = make_world(3);
        const struct sched_counters *counters = sched_counters(world_sched(world));
        uint64_t id = ask(world, docs == 0 ? 0 : KILLER, 30);

        for (uint32_t event = 1; event <= 2; event++) {
            uint32_t first = world_get(world, id)->last_worker;
            uint32_t tokens = world_get(world, id)->tokens;

            for (uint32_t i = 0; i < 3; i++) {
                world_kill(world, (first + i) % 3);
            }
            ck_assert_uint_eq(counters->workers_lost, 3 * event);
            ck_assert_uint_eq(counters->loss_events, event);
            for (uint32_t i = 0; i < 3; i++) {
                world_start(world, i);
            }
            while (world_get(world, id)->tokens == tokens) {
                (void)world_step(world, world_get(world, id)->last_worker);
            }
        }
        world_run(world, 1000);
        ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
        ck_assert_uint_eq(counters->requests_lost_twice, 0);
        ck_assert_uint_eq(sched_gauges(world_sched(world)).docs_in_quarantine, 0);
        world_destroy(world);
    }
}
END_TEST

START_TEST(a_suspect_goes_only_to_a_worker_that_has_answered_since_the_loss)
{
    struct world *world = make_world(3);
    uint64_t id = ask(world, 0, 30);
    uint32_t first = world_get(world, id)->last_worker, second = (first + 1) % 3;
    struct sched_worker_info info;

    (void)world_step(world, first);
    world_kill(world, first);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert(i == first || sched_worker_info(world_sched(world), i, &info));
        ck_assert(i == first || info.running == 0);
    }
    (void)world_step(world, second);
    ck_assert_uint_eq(world_get(world, id)->last_worker, second);
    ck_assert(sched_worker_info(world_sched(world), second, &info));
    ck_assert_uint_eq(info.running, 1);
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_blame", a_document_that_kills_is_quarantined_and_its_neighbours_live,
           among_the_documents_of_one_request_the_right_one_is_found,
           a_quarantine_is_refused_at_the_door_and_ends_by_forget_or_time,
           workers_killed_from_outside_fail_nobody_who_gets_on_in_between,
           a_suspect_runs_alone_until_it_has_passed_the_point_of_the_loss,
           workers_that_die_of_one_thing_are_one_event_and_count_once_against_a_request,
           a_suspect_goes_only_to_a_worker_that_has_answered_since_the_loss)
