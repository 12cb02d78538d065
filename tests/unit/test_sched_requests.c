/* SPDX-License-Identifier: Apache-2.0 */
/* Requests from their arrival to their end: documents, refusals, order, cancel, deadlines. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static struct world_config
small(void)
{
    return (struct world_config){
        .block_count = 100,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .workers = 1,
        .seqs_max = 8,
        .build_tokens = 8,
    };
}

START_TEST(a_request_builds_its_documents_and_streams_its_answer)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {10001, 20002, 3003}; /* 10, 20 and 3 tokens */
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 3, .query = 5, .max_tokens = 7});

    world_run(world, 100);
    const struct world_request *request = world_get(world, id);

    ck_assert(request->is_ended);
    ck_assert_int_eq(request->end, SCHED_END_OK);
    ck_assert_uint_eq(request->tokens, 7);
    ck_assert_uint_eq(request->usage.prompt_tokens, 38);
    ck_assert_uint_eq(request->usage.query_tokens, 5);
    ck_assert_uint_eq(request->usage.completion_tokens, 7);
    ck_assert_uint_eq(request->usage.tokens_built, 33);
    ck_assert_uint_eq(request->usage.tokens_reused, 0);
    ck_assert_uint_eq(request->usage.tokens_padded, 2 + 0 + 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_second_request_reuses_every_document_in_any_order)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {10001, 20002, 3003};
    uint32_t shuffled[] = {3003, 10001, 20002, 10001}; /* and one of them twice */

    world_submit(world,
                 (struct world_ask){.docs = docs, .doc_count = 3, .query = 5, .max_tokens = 2});
    world_run(world, 100);
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = shuffled, .doc_count = 4, .query = 5, .max_tokens = 2});

    world_run(world, 100);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_reused, 43);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_built, 0);
    ck_assert_uint_eq(world_pool(world).documents, 3);
    ck_assert_uint_eq(sched_counters(world_sched(world))->builds_started, 3);
    world_destroy(world);
}
END_TEST

START_TEST(of_a_document_whose_tail_went_only_the_tail_is_built_again)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {10001, 20002}; /* 3 blocks, the last of 2 tokens, and 5 */

    world_submit(world,
                 (struct world_ask){.docs = docs, .doc_count = 2, .query = 5, .max_tokens = 2});
    world_run(world, 100);
    world_evict(world, 2); /* the oldest document's tail: 6 of its 10 tokens */
    ck_assert_uint_eq(world_pool(world).documents, 2);
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 2, .query = 5, .max_tokens = 2});

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_built, 6);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_reused, 24);
    ck_assert_uint_eq(world_pool(world).tokens_hit, 24);
    ck_assert_uint_eq(world_pool(world).doc_misses[KVPOOL_MISS_PARTIAL], 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->tokens_built, 30 + 6);
    world_destroy(world);
}
END_TEST

START_TEST(a_document_wanted_by_eight_clients_at_once_is_built_once)
{
    struct world_config config = small();

    config.workers = 2;
    struct world *world = world_new(config);
    uint32_t docs[] = {40001, 7002};
    uint64_t ids[8];

    for (int i = 0; i < 8; i++) {
        ids[i] = world_submit(
            world, (struct world_ask){.docs = docs, .doc_count = 2, .query = 3, .max_tokens = 4});
    }
    world_run(world, 200);
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(world_get(world, ids[i])->end, SCHED_END_OK);
        ck_assert_uint_eq(world_get(world, ids[i])->usage.tokens_built, i == 0 ? 47 : 0);
        ck_assert_uint_eq(world_get(world, ids[i])->usage.tokens_reused, i == 0 ? 0 : 47);
    }
    ck_assert_uint_eq(world_builds_started(world, 40001), 1);
    ck_assert_uint_eq(world_builds_started(world, 7002), 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_document_built_by_one_worker_is_read_by_another)
{
    struct world_config config = small();

    config.workers = 2;
    struct world *world = world_new(config);
    struct sched_worker_info info;

    uint64_t first = world_ask_about(world, 9001, 3, 2);
    world_run(world, 100);
    uint64_t second = world_ask_about(world, 9001, 3, 2);

    world_run(world, 100);
    ck_assert_uint_ne(world_get(world, first)->last_worker, world_get(world, second)->last_worker);
    ck_assert(sched_worker_info(world_sched(world), world_get(world, second)->last_worker, &info));
    ck_assert_uint_eq(info.docs_read, 1);
    ck_assert_uint_eq(info.docs_read_foreign, 1);
    ck_assert_uint_eq(info.docs_built, 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_that_can_never_fit_is_refused_at_once_with_both_sizes)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {100001, 200002};
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 2, .query = 5, .max_tokens = 96});
    const struct world_request *request = world_get(world, id);

    ck_assert(request->is_ended);
    ck_assert_int_eq(request->end, SCHED_END_NEVER_FITS);
    ck_assert_str_eq(request->message,
                     "request needs 101 blocks (404 tokens), the pool has 100 (400 tokens)");
    world_destroy(world);
}
END_TEST

START_TEST(a_request_beyond_the_context_is_refused_with_both_sizes)
{
    struct world_config config = small();

    config.context_max = 30;
    struct world *world = world_new(config);
    uint64_t id = world_ask_about(world, 20001, 5, 6);

    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_NEVER_FITS);
    ck_assert_str_eq(world_get(world, id)->message,
                     "prompt of 25 tokens and max_tokens 6: the model's context has 30");
    id = world_ask_about(world, 20001, 5, 5);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(a_full_queue_refuses_and_a_draining_daemon_too)
{
    struct world_config config = small();

    config.workers = 0;
    config.waiting_max = 2;
    struct world *world = world_new(config);
    struct world_ask ask = {.query = 5, .max_tokens = 2};
    uint64_t first = world_submit(world, ask);
    uint64_t second = world_submit(world, ask);
    uint64_t third = world_submit(world, ask);

    ck_assert(!world_get(world, first)->is_ended && !world_get(world, second)->is_ended);
    ck_assert_int_eq(world_get(world, third)->end, SCHED_END_FULL);
    ck_assert_str_eq(world_get(world, third)->message, "2 requests are waiting: the limit is 2");
    sched_drain(world_sched(world), true);
    ck_assert_int_eq(world_get(world, world_submit(world, ask))->end, SCHED_END_DRAINING);
    sched_drain(world_sched(world), false);
    world_start(world, 0);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(higher_priority_goes_first_but_passes_a_waiting_request_a_bounded_number_of_times)
{
    struct world_config config = small();

    config.seqs_max = 1;
    struct world *world = world_new(config);
    struct world_ask low = {.query = 2, .max_tokens = 1, .priority = 0};
    struct world_ask high = {.query = 2, .max_tokens = 1, .priority = 100};
    uint32_t before = 0;

    world_submit(world, high); /* takes the only place */
    uint64_t waiting = world_submit(world, low);
    for (int i = 0; i < 3 * SCHED_PASSES_MAX; i++) {
        world_submit(world, high);
    }
    while (!world_get(world, waiting)->is_ended) {
        ck_assert(world_step(world, 0));
        before++;
    }
    ck_assert_uint_eq(before,
                      1 + SCHED_PASSES_MAX + 1); /* the running one, those that passed, itself */
    world_run(world, 1000);
    world_destroy(world);
}
END_TEST

START_TEST(a_small_request_passes_a_big_one_that_does_not_fit_yet_but_not_for_ever)
{
    struct world *world = world_new(small());
    uint32_t big[] = {240001, 140002}; /* 95 of 100 blocks */
    struct world_ask tiny = {.query = 2, .max_tokens = 1};

    /* Holds 20 blocks of documents for a while. */
    world_ask_about(world, 80003, 2, 60);
    uint64_t waiting = world_submit(
        world, (struct world_ask){.docs = big, .doc_count = 2, .query = 2, .max_tokens = 2});
    uint64_t passing[SCHED_PASSES_MAX];

    for (int i = 0; i < SCHED_PASSES_MAX; i++) {
        passing[i] = world_submit(world, tiny);
        world_step(world, 0);
        ck_assert(!world_get(world, waiting)->is_ended);
    }
    uint64_t late = world_submit(world, tiny);

    world_step(world, 0);
    world_step(world, 0);
    ck_assert(world_get(world, passing[SCHED_PASSES_MAX - 1])->is_ended);
    ck_assert(!world_get(world, late)->is_ended); /* the big one is overdue: nobody passes */
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, waiting)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, late)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(cancel_gives_the_blocks_back_within_two_steps_and_is_harmless_when_repeated)
{
    struct world *world = world_new(small());
    uint64_t id = world_ask_about(world, 40001, 5, 50);

    world_step(world, 0); /* in the middle of the build */
    ck_assert(world_cancel(world, id, false));
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_CANCELLED);
    ck_assert(!world_cancel(world, id, false));
    world_step(world, 0);
    ck_assert_uint_eq(world_pool(world).blocks_own, 0);
    ck_assert_uint_eq(world_pool(world).blocks_free, 100);
    ck_assert(!world_cancel(world, id, false));
    ck_assert(!world_cancel(world, 77, false));

    /* And in the middle of the answer: the sealed document stays, the own blocks go. */
    id = world_ask_about(world, 40001, 5, 50);
    while (world_get(world, id)->tokens < 3) {
        world_step(world, 0);
    }
    world_cancel(world, id, true);
    world_step(world, 0);
    ck_assert_uint_eq(world_pool(world).blocks_own, 0);
    ck_assert_uint_eq(world_pool(world).blocks_free, 90);
    ck_assert_uint_eq(sched_counters(world_sched(world))->clients_gone, 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_build_whose_owner_is_cancelled_goes_on_for_another_who_waits)
{
    struct world *world = world_new(small());
    uint64_t owner = world_ask_about(world, 40001, 5, 5);
    uint64_t heir = world_ask_about(world, 40001, 5, 5);

    world_step(world, 0);
    world_cancel(world, owner, false);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, heir)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, heir)->usage.tokens_built, 40);
    ck_assert_uint_eq(world_builds_started(world, 40001), 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->builds_handed_over, 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_for_a_document_whose_build_is_being_stopped_waits_and_builds_it_anew)
{
    struct world *world = world_new(small());
    uint64_t first = world_ask_about(world, 40001, 5, 5);

    world_step(world, 0);
    world_cancel(world, first, false);
    uint64_t second = world_ask_about(world, 40001, 5, 5);

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_builds_started(world, 40001), 2);
    world_destroy(world);
}
END_TEST

START_TEST(a_deadline_ends_a_request_in_the_queue_and_while_it_runs)
{
    struct world_config config = small();

    config.seqs_max = 1;
    struct world *world = world_new(config);
    struct world_ask ask = {.query = 5, .max_tokens = 50, .timeout_us = 1000};
    uint64_t running = world_submit(world, ask);
    uint64_t waiting = world_submit(world, ask);

    world_step(world, 0);
    ck_assert_uint_le(sched_wakeup_us(world_sched(world)), world_now(world) + 1000);
    world_pass(world, 500);
    ck_assert(!world_get(world, running)->is_ended);
    world_pass(world, 600);
    ck_assert_int_eq(world_get(world, running)->end, SCHED_END_DEADLINE);
    ck_assert_int_eq(world_get(world, waiting)->end, SCHED_END_DEADLINE);
    ck_assert_uint_gt(world_get(world, running)->tokens, 0);
    world_step(world, 0);
    ck_assert_uint_eq(world_pool(world).blocks_own, 0);
    ck_assert_uint_eq(sched_wakeup_us(world_sched(world)), UINT64_MAX);
    world_destroy(world);
}
END_TEST

START_TEST(a_warm_up_builds_without_an_answer_and_costs_nothing_when_all_is_there)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {30001};
    struct world_ask ask = {.docs = docs, .doc_count = 1, .is_warm = true};
    uint64_t id = world_submit(world, ask);

    ck_assert(!world_get(world, id)->is_ended);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    id = world_submit(world, ask);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK); /* at once */
    ck_assert_uint_eq(world_builds_started(world, 30001), 1);

    uint32_t other[] = {30002};

    ask.docs = other;
    id = world_submit(world, ask);
    world_step(world, 0);
    world_cancel(world, id, false);
    world_step(world, 0);
    ck_assert_uint_eq(world_pool(world).documents, 1);
    world_destroy(world);
}
END_TEST

START_TEST(empty_documents_and_a_request_without_documents_are_fine)
{
    struct world *world = world_new(small());
    uint32_t docs[] = {1, 4001, 2}; /* 0, 4 and 0 tokens */
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 3, .query = 1, .max_tokens = 1});
    uint64_t bare = world_submit(world, (struct world_ask){.query = 1, .max_tokens = 1});

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, bare)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_built, 4);
    world_destroy(world);
}
END_TEST

START_TEST(a_worker_that_lets_go_or_fails_ends_the_request_with_an_error)
{
    struct world *world = world_new(small());
    struct world_ask ask = {.query = 5, .max_tokens = 50};
    uint64_t id = world_submit(world, ask);
    struct sched_result error = {.request = id, .error = "sampling: NaN logits"};
    struct sched_step step = {
        .results = &error, .result_count = 1, .released = &id, .released_count = 1};
    struct sched_worker_info info;

    ck_assert(sched_worker_info(world_sched(world), 0, &info));
    (void)sched_worker_step(world_sched(world), world_now(world), 0, info.incarnation, &step);
    size_t count;
    const struct sched_action *actions = sched_take_actions(world_sched(world), &count);

    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(actions[0].end, SCHED_END_FAILED);
    ck_assert_str_eq(actions[0].message, "sampling: NaN logits");
    ck_assert_uint_eq(world_pool(world).blocks_own, 0);
    world_kill(world, 0);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_requests", a_request_builds_its_documents_and_streams_its_answer,
           a_second_request_reuses_every_document_in_any_order,
           of_a_document_whose_tail_went_only_the_tail_is_built_again,
           a_document_wanted_by_eight_clients_at_once_is_built_once,
           a_document_built_by_one_worker_is_read_by_another,
           a_request_that_can_never_fit_is_refused_at_once_with_both_sizes,
           a_request_beyond_the_context_is_refused_with_both_sizes,
           a_full_queue_refuses_and_a_draining_daemon_too,
           higher_priority_goes_first_but_passes_a_waiting_request_a_bounded_number_of_times,
           a_small_request_passes_a_big_one_that_does_not_fit_yet_but_not_for_ever,
           cancel_gives_the_blocks_back_within_two_steps_and_is_harmless_when_repeated,
           a_build_whose_owner_is_cancelled_goes_on_for_another_who_waits,
           a_request_for_a_document_whose_build_is_being_stopped_waits_and_builds_it_anew,
           a_deadline_ends_a_request_in_the_queue_and_while_it_runs,
           a_warm_up_builds_without_an_answer_and_costs_nothing_when_all_is_there,
           empty_documents_and_a_request_without_documents_are_fine,
           a_worker_that_lets_go_or_fails_ends_the_request_with_an_error)
