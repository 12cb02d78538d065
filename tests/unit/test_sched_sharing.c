/* SPDX-License-Identifier: Apache-2.0 */
/* Requests over the same documents are kept together, among equals, and nobody starves of it. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static struct world *
world_of(uint32_t workers, uint32_t seqs_max)
{
    return world_new((struct world_config){
        .block_count = 400,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .waiting_max = 200,
        .workers = workers,
        .seqs_max = seqs_max,
        .build_tokens = 64,
    });
}

/* A request over one document, or over none. */
static uint64_t
ask(struct world *world, uint32_t doc, uint32_t max_tokens, uint32_t priority)
{
    return world_submit(world, (struct world_ask){.docs = &doc,
                                                  .doc_count = doc > 0,
                                                  .query = 4,
                                                  .max_tokens = max_tokens,
                                                  .priority = priority});
}

static void
step_all(struct world *world, uint32_t workers, uint32_t rounds)
{
    for (uint32_t r = 0; r < rounds; r++) {
        for (uint32_t w = 0; w < workers; w++) {
            world_step(world, w);
        }
    }
}

START_TEST(of_two_workers_alike_the_one_that_runs_the_document_is_taken)
{
    for (uint32_t doc = 20001; doc <= 20002; doc++) {
        struct world *world = world_of(2, 4);
        uint64_t first = ask(world, 20001, 60, 0);
        uint64_t second = ask(world, 20002, 60, 0);

        step_all(world, 2, 5); /* both documents are sealed, both requests run */
        ck_assert_uint_ne(world_get(world, first)->last_worker,
                          world_get(world, second)->last_worker);
        uint64_t third = ask(world, doc, 5, 0);

        ck_assert_uint_eq(world_get(world, third)->last_worker,
                          world_get(world, doc == 20001 ? first : second)->last_worker);
        world_run(world, 200);
        world_destroy(world);
    }
}
END_TEST

START_TEST(a_worker_with_less_to_do_comes_before_a_shared_document)
{
    struct world *world = world_of(2, 4);
    uint64_t first = ask(world, 20001, 60, 0);

    step_all(world, 2, 5);
    uint64_t second = ask(world, 20001, 5, 0);

    ck_assert_uint_ne(world_get(world, first)->last_worker, world_get(world, second)->last_worker);
    world_run(world, 200);
    world_destroy(world);
}
END_TEST

/* One place is free while others wait: who gets it. */
static void
check_next(uint32_t first_priority, bool is_sharer_first)
{
    struct world *world = world_of(1, 2);

    ask(world, 20001, 100, 0);
    uint64_t brief = ask(world, 0, 8, 0);

    step_all(world, 1, 3);
    uint64_t stranger = ask(world, 20002, 40, first_priority);
    uint64_t sharer = ask(world, 20001, 40, 0);

    while (!world_get(world, brief)->is_ended) {
        world_step(world, 0);
    }
    ck_assert_uint_eq(world_get(world, is_sharer_first ? sharer : stranger)->assigns, 1);
    ck_assert_uint_eq(world_get(world, is_sharer_first ? stranger : sharer)->assigns, 0);
    world_run(world, 400);
    ck_assert_int_eq(world_get(world, stranger)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, sharer)->end, SCHED_END_OK);
    world_destroy(world);
}

START_TEST(a_sharer_passes_another_of_its_priority_when_places_are_scarce)
{
    check_next(0, true);
}
END_TEST

START_TEST(a_sharer_does_not_pass_a_higher_priority)
{
    check_next(1, false);
}
END_TEST

START_TEST(a_stranger_among_sharers_is_passed_no_more_often_than_anybody)
{
    struct world *world = world_of(1, 2);
    uint64_t runs = ask(world, 20001, 400, 0);
    uint32_t passed = 0;

    ask(world, 20001, 4, 0);
    step_all(world, 1, 3);
    uint64_t stranger = ask(world, 20002, 4, 0);
    uint64_t sharers[3 * SCHED_PASSES_MAX];

    for (int i = 0; i < 3 * SCHED_PASSES_MAX; i++) {
        sharers[i] = ask(world, 20001, 4, 0);
    }
    while (world_get(world, stranger)->assigns == 0) {
        ck_assert(world_step(world, 0));
    }
    ck_assert(!world_get(world, runs)->is_ended); /* there was something to share all the time */
    for (int i = 0; i < 3 * SCHED_PASSES_MAX; i++) {
        passed += world_get(world, sharers[i])->assigns > 0;
    }
    ck_assert_uint_eq(passed, SCHED_PASSES_MAX);
    world_run(world, 2000);
    ck_assert_uint_eq(world_open(world), 0);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_sharing", of_two_workers_alike_the_one_that_runs_the_document_is_taken,
           a_worker_with_less_to_do_comes_before_a_shared_document,
           a_sharer_passes_another_of_its_priority_when_places_are_scarce,
           a_sharer_does_not_pass_a_higher_priority,
           a_stranger_among_sharers_is_passed_no_more_often_than_anybody)
