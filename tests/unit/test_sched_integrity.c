/* SPDX-License-Identifier: Apache-2.0 */
/* Documents read again and computed again, and what becomes of those who read a damaged one; and of
 * those who cite one that is forgotten. */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

enum {
    DOC = 20001,  /* of 20 tokens: 5 blocks */
    LONG = 200002 /* takes 25 steps to encode */
};

static const uint32_t documents[] = {DOC, LONG};

static struct world *
new_world(uint32_t workers, double verify_share)
{
    return world_new((struct world_config){.block_count = 200,
                                           .block_tokens = 4,
                                           .reserve_tokens = 8,
                                           .workers = workers,
                                           .seqs_max = 1,
                                           .build_tokens = 8,
                                           .verify_share = verify_share});
}

static uint64_t
ask(struct world *world, uint32_t doc_count, uint32_t max_tokens)
{
    return world_submit(world, (struct world_ask){.docs = documents,
                                                  .doc_count = doc_count,
                                                  .query = 4,
                                                  .max_tokens = max_tokens});
}

/* The document is there, sealed, and nobody reads it. */
static void
have_document(struct world *world)
{
    uint64_t id = ask(world, 1, 1);

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
}

static void
damage(struct world *world)
{
    struct dockey key = world_doc_key(DOC);
    uint32_t count;
    const uint32_t *blocks =
        kvpool_doc_blocks(kvpool_find(sched_pool(world_sched(world)), &key), &count);

    ck_assert_uint_eq(count, 5);
    world_damage(world, blocks[3]);
}

/* The worker that does not run the request reads a document again. */
static void
check_by_other(struct world *world, uint64_t id)
{
    sched_set_scrub_interval(world_sched(world), 1);
    world_pass(world, 1);
    sched_set_scrub_interval(world_sched(world), 0);
    ck_assert(world_step(world, 1 - world_get(world, id)->last_worker));
}

START_TEST(who_has_read_a_damaged_document_and_said_nothing_begins_again)
{
    struct world *world = new_world(2, 0);

    have_document(world);
    uint64_t id = ask(world, 2, 5);

    damage(world); /* the other document is being encoded: nothing was read yet */
    check_by_other(world, id);
    ck_assert_uint_eq(world_damaged(world), 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->blocks_damaged, 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->readers_restarted, 1);
    world_run(world, 200);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_builds_started(world, DOC), 2);
    ck_assert_uint_eq(world_pool(world).doc_misses[KVPOOL_MISS_DAMAGED], 1);
    world_destroy(world);
}
END_TEST

START_TEST(who_has_answered_from_it_ends_with_an_error)
{
    struct world *world = new_world(2, 0);

    have_document(world);
    uint64_t id = ask(world, 1, 50);

    for (int i = 0; i < 3; i++) {
        ck_assert(world_step(world, world_get(world, id)->last_worker));
    }
    ck_assert_uint_gt(world_get(world, id)->tokens, 0);
    damage(world);
    check_by_other(world, id);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_DAMAGED);
    ck_assert_uint_eq(sched_counters(world_sched(world))->readers_failed, 1);
    world_run(world, 100);
    uint64_t again = ask(world, 1, 50);

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, again)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

/* Mode reencode reads a copy at the request's place; the check finds either of the two. */
START_TEST(with_a_damaged_document_its_copies_go_and_with_a_damaged_copy_it_alone)
{
    const uint32_t cited[] = {10003, DOC}; /* the second one stands at an offset */

    for (int damaged_copy = 0; damaged_copy < 2; damaged_copy++) {
        struct world *world = new_world(1, 0);
        struct dockey key = world_doc_key(DOC);
        struct world_ask ask = {
            .docs = cited, .doc_count = 2, .query = 4, .max_tokens = 1, .reuse = REUSE_REENCODE};
        const struct kvpool_doc *doc = NULL;
        uint32_t cursor = KVPOOL_WALK;
        struct kvpool_doc_info info;

        (void)world_submit(world, ask);
        world_run(world, 100);
        ck_assert_uint_eq(world_pool(world).documents, 3);
        while (kvpool_next_doc(sched_pool(world_sched(world)), &cursor, &info)) {
            bool is_original = memcmp(&info.key, &key, sizeof(key)) == 0;

            if (info.n_tokens == 20 && is_original != damaged_copy) {
                doc = kvpool_find(sched_pool(world_sched(world)), &info.key);
            }
        }
        uint32_t count;

        world_damage(world, kvpool_doc_blocks(doc, &count)[0]);
        sched_set_scrub_interval(world_sched(world), 1);
        for (int i = 0; i < 6 && world_damaged(world) == 0; i++) {
            world_pass(world, 1);
            (void)world_step(world, 0);
        }
        sched_set_scrub_interval(world_sched(world), 0);
        ck_assert_uint_eq(world_damaged(world), 1);
        ck_assert_uint_eq(world_pool(world).documents, damaged_copy ? 2 : 1);
        world_run(world, 10);
        world_destroy(world);
    }
}
END_TEST

START_TEST(what_was_read_while_the_document_went_says_nothing)
{
    struct world *world = new_world(1, 0);

    have_document(world);
    sched_set_scrub_interval(world_sched(world), 1);
    world_pass(world, 1); /* the worker is asked, */
    sched_set_scrub_interval(world_sched(world), 0);
    damage(world);
    world_evict(world, 5); /* and now those blocks are anybody's */
    ck_assert(world_step(world, 0));
    ck_assert_uint_eq(sched_counters(world_sched(world))->checks_void, 1);
    ck_assert_uint_eq(world_damaged(world), 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_lost_worker_answers_no_check_and_the_next_one_is_asked)
{
    struct world *world = new_world(1, 0);

    have_document(world);
    sched_set_scrub_interval(world_sched(world), 1);
    world_pass(world, 1);
    world_kill(world, 0);
    damage(world);
    world_start(world, 0);
    world_pass(world, 1);
    ck_assert(world_step(world, 0));
    ck_assert_uint_eq(world_damaged(world), 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_found_document_is_computed_again_and_the_copy_leaves_no_trace)
{
    struct world *world = new_world(1, 1.0);

    have_document(world);
    have_document(world); /* found: drawn */
    world_run(world, 100);
    ck_assert_uint_eq(sched_counters(world_sched(world))->docs_verified, 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->docs_verify_failed, 0);
    ck_assert_uint_eq(sched_counters(world_sched(world))->docs_warmed, 0);
    ck_assert_uint_eq(world_pool(world).documents, 1);
    ck_assert_uint_eq(world_pool(world).blocks_docs, 5);
    world_destroy(world);
}
END_TEST

START_TEST(one_that_is_not_what_it_should_be_goes)
{
    struct world *world = new_world(1, 1.0);
    uint64_t id;

    have_document(world);
    id = ask(world, 1, 1);
    while (!world_get(world, id)->is_ended) {
        ck_assert(world_step(world, 0));
    }
    damage(world);
    world_run(world, 100);
    ck_assert_uint_eq(sched_counters(world_sched(world))->docs_verify_failed, 1);
    ck_assert_uint_eq(world_damaged(world), 1);
    ck_assert_uint_eq(world_pool(world).documents, 0);
    world_destroy(world);
}
END_TEST

/* Where bits depend on the company, what is as far off as the KV's type rounds is the same. */
START_TEST(what_differs_by_the_rounding_stays_and_by_more_goes)
{
    for (int is_more = 0; is_more < 2; is_more++) {
        struct world *world = world_new(
            (struct world_config){.block_count = 200,
                                  .block_tokens = 4,
                                  .reserve_tokens = 8,
                                  .workers = 1,
                                  .seqs_max = 1,
                                  .build_tokens = 8,
                                  .verify_share = 1.0,
                                  .rounding = SCHED_VERIFY_ROUNDING * (0.9 + 0.2 * is_more)});

        have_document(world);
        uint64_t id = ask(world, 1, 1);

        while (!world_get(world, id)->is_ended) {
            ck_assert(world_step(world, 0));
        }
        damage(world);
        world_run(world, 100);
        ck_assert_uint_eq(sched_counters(world_sched(world))->docs_verified, 1);
        ck_assert_uint_eq(sched_counters(world_sched(world))->docs_verify_failed, is_more);
        ck_assert_uint_eq(world_damaged(world), is_more);
        world_destroy(world);
    }
}
END_TEST

START_TEST(a_request_takes_the_blocks_of_a_second_copy)
{
    struct world *world = new_world(1, 1.0);

    have_document(world);
    uint64_t found = ask(world, 1, 1);

    while (!world_get(world, found)->is_ended) {
        ck_assert(world_step(world, 0));
    }
    /* The second copy is being made now, and this one needs nearly the whole pool. */
    uint64_t id = world_ask_about(world, 760003, 4, 2);

    world_run(world, 300);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_ge(sched_counters(world_sched(world))->verify_skipped, 1);
    world_destroy(world);
}
END_TEST

START_TEST(without_abort_a_forgotten_document_ends_no_request)
{
    struct world *world = new_world(1, 0);
    uint64_t runs = ask(world, 1, 20), waits = ask(world, 1, 20);
    struct dockey key = world_doc_key(DOC);

    ck_assert(world_step(world, 0));
    ck_assert_int_eq(world_forget(world, DOC, false), ST_OK);
    ck_assert_uint_eq(world_erased(world), 0);
    while (!world_get(world, runs)->is_ended) {
        ck_assert(world_step(world, 0));
    }
    ck_assert_uint_eq(world_erased(world), 0); /* one of them still waits, and brings it again */
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, runs)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, waits)->end, SCHED_END_OK); /* it has made its own, */
    ck_assert_uint_eq(world_builds_started(world, DOC), 2);
    ck_assert_uint_eq(world_erased(world), 1); /* which went with it */
    ck_assert_ptr_null(kvpool_find(sched_pool(world_sched(world)), &key));
    ck_assert_uint_eq(world_forgotten(world).readers_waited, 2);
    ck_assert_uint_eq(world_forgotten(world).readers_aborted, 0);
    /* Twice five of the document, and six that both answers had as their own. */
    ck_assert_uint_eq(world_forgotten(world).blocks, 16);
    world_destroy(world);
}
END_TEST

START_TEST(with_abort_those_that_run_and_those_that_wait_end)
{
    struct world *world = new_world(1, 0);
    uint64_t runs = ask(world, 1, 20), waits = ask(world, 1, 20);

    ck_assert(world_step(world, 0));
    ck_assert_int_eq(world_forget(world, DOC, true), ST_OK);
    ck_assert_int_eq(world_get(world, runs)->end, SCHED_END_CANCELLED);
    ck_assert_int_eq(world_get(world, waits)->end, SCHED_END_CANCELLED);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_uint_eq(world_forgotten(world).readers_aborted, 2);
    ck_assert_int_eq(world_forget(world, DOC, false), ST_NOT_FOUND);
    world_destroy(world);
}
END_TEST

START_TEST(a_document_that_is_being_erased_may_be_forgotten_again_and_both_wait_for_it)
{
    struct world *world = new_world(1, 0);

    have_document(world);
    ck_assert_int_eq(world_forget(world, DOC, false), ST_OK);
    ck_assert_int_eq(world_forget(world, DOC, false), ST_OK); /* nothing is overwritten yet */
    ck_assert_uint_eq(world_erased(world), 0);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 2);
    ck_assert_int_eq(world_forget(world, DOC, false), ST_NOT_FOUND);
    world_destroy(world);
}
END_TEST

START_TEST(a_second_copy_is_forgotten_with_its_document)
{
    struct world *world = new_world(1, 1.0);
    uint64_t found;

    have_document(world);
    found = ask(world, 1, 1);
    while (!world_get(world, found)->is_ended || world_pool(world).documents < 2) {
        ck_assert(world_step(world, 0));
    }
    ck_assert_int_eq(world_forget(world, DOC, false), ST_OK);
    ck_assert_uint_eq(world_pool(world).documents, 0);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_uint_eq(world_pool(world).documents, 0);
    world_destroy(world);
}
END_TEST

/* Ids of calls: two are being read when a third one, the Forget, comes. */
enum {
    SECOND = 2,
    THIRD = 3,
    FORGET = 4
};

START_TEST(who_came_before_a_forget_and_was_still_being_read_is_its_reader)
{
    struct world *world = new_world(1, 0);
    struct dockey key = world_doc_key(DOC);

    have_document(world);
    world_read_until(world, SECOND);
    ck_assert_int_eq(world_forget_as(world, FORGET, DOC, false), ST_OK);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 0); /* they may bring it */
    uint64_t second = ask(world, 1, 1);

    world_read_until(world, THIRD);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_erased(world), 0);
    world_read_until(world, UINT64_MAX); /* the third one was of something else */
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_uint_eq(world_forgotten(world).readers_waited, 1);
    ck_assert_ptr_null(kvpool_find(sched_pool(world_sched(world)), &key));
    world_destroy(world);
}
END_TEST

START_TEST(with_abort_who_was_still_being_read_ends_when_it_comes)
{
    struct world *world = new_world(1, 0);

    have_document(world);
    world_read_until(world, SECOND);
    ck_assert_int_eq(world_forget_as(world, FORGET, DOC, true), ST_OK);
    uint64_t second = ask(world, 1, 1), third = ask(world, 1, 1);

    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_CANCELLED);
    ck_assert_int_eq(world_get(world, third)->end, SCHED_END_CANCELLED);
    world_read_until(world, UINT64_MAX);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_uint_eq(world_forgotten(world).readers_aborted, 2);
    ck_assert_uint_eq(world_builds_started(world, DOC), 1);
    world_destroy(world);
}
END_TEST

START_TEST(what_is_not_there_is_told_so_when_nobody_who_came_before_has_brought_it)
{
    struct world *world = new_world(1, 0);

    have_document(world);
    world_read_until(world, SECOND);
    ck_assert_int_eq(world_forget_as(world, FORGET, LONG, false), ST_OK);
    ck_assert_uint_eq(world_erased(world), 0);
    world_read_until(world, UINT64_MAX);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert(world_forgotten(world).is_unknown);
    world_destroy(world);
}
END_TEST

/* Another request has the blocks that it was evicted from; its worker has not heard of that. */
START_TEST(a_forget_waits_until_blocks_that_others_have_taken_are_wiped)
{
    for (int is_evicted = 0; is_evicted < 2; is_evicted++) {
        struct world *world = new_world(1, 0);

        have_document(world);
        world_evict(world, is_evicted ? 5 : 2);
        uint64_t id = world_submit(
            world,
            (struct world_ask){.docs = &documents[1], .doc_count = 1, .query = 4, .max_tokens = 5});

        ck_assert_int_eq(world_forget(world, DOC, false), ST_OK);
        ck_assert_uint_eq(world_erased(world), 0);
        ck_assert(world_step(world, 0)); /* it reads both letters; what it writes is wiped */
        ck_assert(!world_get(world, id)->is_ended);
        while (world_erased(world) == 0) { /* what was free, or its own, is overwritten too */
            ck_assert(world_step(world, 0));
        }
        ck_assert(!world_get(world, id)->is_ended);
        ck_assert(world_forgotten(world).is_unknown == (world_forgotten(world).blocks == 0));
        world_run(world, 100);
        ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
        world_destroy(world);
    }
}
END_TEST

START_TEST(a_worker_that_dies_before_it_has_wiped_them_is_followed_by_one_that_erases)
{
    struct world *world = new_world(2, 0);

    have_document(world);
    world_evict(world, 5);
    uint64_t id = world_submit(
        world,
        (struct world_ask){.docs = &documents[1], .doc_count = 1, .query = 4, .max_tokens = 5});

    ck_assert_int_eq(world_forget(world, DOC, false), ST_OK);
    world_kill(world, world_get(world, id)->last_worker);
    ck_assert_uint_eq(world_erased(world), 0);
    world_run(world, 200);
    ck_assert_uint_eq(world_erased(world), 1);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_integrity", who_has_read_a_damaged_document_and_said_nothing_begins_again,
           who_has_answered_from_it_ends_with_an_error,
           with_a_damaged_document_its_copies_go_and_with_a_damaged_copy_it_alone,
           what_was_read_while_the_document_went_says_nothing,
           a_lost_worker_answers_no_check_and_the_next_one_is_asked,
           a_found_document_is_computed_again_and_the_copy_leaves_no_trace,
           one_that_is_not_what_it_should_be_goes,
           what_differs_by_the_rounding_stays_and_by_more_goes,
           a_request_takes_the_blocks_of_a_second_copy,
           without_abort_a_forgotten_document_ends_no_request,
           with_abort_those_that_run_and_those_that_wait_end,
           a_document_that_is_being_erased_may_be_forgotten_again_and_both_wait_for_it,
           a_second_copy_is_forgotten_with_its_document,
           who_came_before_a_forget_and_was_still_being_read_is_its_reader,
           with_abort_who_was_still_being_read_ends_when_it_comes,
           what_is_not_there_is_told_so_when_nobody_who_came_before_has_brought_it,
           a_forget_waits_until_blocks_that_others_have_taken_are_wiped,
           a_worker_that_dies_before_it_has_wiped_them_is_followed_by_one_that_erases)
