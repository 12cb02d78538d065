/* SPDX-License-Identifier: Apache-2.0 */
/* Documents encoded in idle time, and pins that end. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static struct world *
new_world(uint32_t block_count, uint32_t workers)
{
    return world_new((struct world_config){
        .block_count = block_count,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .workers = workers,
        .seqs_max = 1,
        .build_tokens = 8,
    });
}

static struct world_ask
question(const uint32_t *doc, uint32_t max_tokens)
{
    return (struct world_ask){
        .docs = doc, .doc_count = doc == NULL ? 0 : 1, .query = 4, .max_tokens = max_tokens};
}

static uint32_t
room(struct world *world)
{
    return sched_background_room(world_sched(world));
}

START_TEST(an_idle_worker_encodes_documents_that_nobody_asked_for)
{
    struct world *world = new_world(100, 2);
    const uint32_t doc = 40001;

    ck_assert_uint_eq(room(world), 2 * SCHED_BACKGROUND_MAX);
    uint64_t warm = world_warm(world, doc, false);

    ck_assert_uint_eq(room(world), 2 * SCHED_BACKGROUND_MAX - 1);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).background, 1);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).running, 0);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_OK);
    uint64_t id = world_submit(world, question(&doc, 2));

    world_run(world, 100);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_reused, 40);
    ck_assert_uint_eq(sched_counters(world_sched(world))->docs_warmed, 1);
    ck_assert_uint_eq(sched_counters(world_sched(world))->tokens_warmed, 40);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_finished, 1);
    /* Nobody asked for it, so it was no miss. */
    ck_assert_uint_eq(world_pool(world).tokens_missed, 0);
    world_destroy(world);
}
END_TEST

START_TEST(nothing_starts_in_the_background_while_anything_else_goes_on)
{
    struct world *world = new_world(100, 1);
    uint64_t id = world_submit(world, question(NULL, 10));

    ck_assert_uint_eq(room(world), 0);
    uint64_t warm = world_warm(world, 40001, false);

    ck_assert(world_get(world, warm)->is_ended);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_FULL);
    ck_assert_str_eq(world_get(world, warm)->message, "no worker is idle");
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(room(world), SCHED_BACKGROUND_MAX);
    sched_drain(world_sched(world), true);
    ck_assert_uint_eq(room(world), 0);
    world_destroy(world);
}
END_TEST

/* The only sequence of a worker's credit is not taken by the background. */
START_TEST(a_request_starts_beside_the_background_and_joins_what_it_needs)
{
    struct world *world = new_world(100, 1);
    const uint32_t doc = 80001;
    uint64_t warm = world_warm(world, doc, false);

    (void)world_step(world, 0);
    uint64_t id = world_submit(world, question(&doc, 2));

    ck_assert_uint_eq(sched_gauges(world_sched(world)).running, 1);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_builds_started(world, doc), 1);
    ck_assert_uint_eq(world_get(world, id)->usage.tokens_reused, 80);
    world_destroy(world);
}
END_TEST

START_TEST(it_takes_free_blocks_only_unless_told_otherwise)
{
    struct world *world = new_world(30, 1);
    const uint32_t doc = 80001;
    uint64_t id = world_submit(world, question(&doc, 2)); /* 20 blocks stay */

    world_run(world, 100);
    uint64_t warm = world_warm(world, 60002, false);

    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_FULL);
    ck_assert_str_eq(world_get(world, warm)->message, "no free blocks");
    warm = world_warm(world, 60002, true);
    world_run(world, 100);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_pool(world).blocks_evicted, 5);
    warm = world_warm(world, 130003, true);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_NEVER_FITS);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_that_lacks_blocks_gets_those_of_the_background)
{
    struct world *world = new_world(30, 1);
    uint64_t first = world_warm(world, 40001, false);
    uint64_t second = world_warm(world, 40002, false);
    const uint32_t doc = 60003;
    uint64_t id = world_submit(world, question(&doc, 20));

    ck_assert_int_eq(world_get(world, first)->end, SCHED_END_FULL);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_FULL);
    ck_assert_str_eq(world_get(world, second)->message, "gave way to a request");
    world_run(world, 200);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->usage.preemptions, 0);
    ck_assert_uint_eq(sched_counters(world_sched(world))->background_stopped, 2);
    world_destroy(world);
}
END_TEST

START_TEST(an_answer_that_grows_takes_the_blocks_of_the_background)
{
    struct world *world = new_world(30, 1);
    uint64_t warm = world_warm(world, 80001, false);
    uint64_t id = world_submit(world, question(NULL, 60)); /* 16 blocks in the end */

    ck_assert(!world_get(world, warm)->is_ended);
    /* The background never gets a step: it stands still while a request runs. */
    world_run(world, 200);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_get(world, id)->usage.preemptions, 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_lost_worker_ends_its_background_without_blame)
{
    struct world *world = new_world(100, 1);
    uint64_t warm = world_warm(world, 80001, false);

    (void)world_step(world, 0);
    world_kill(world, 0);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_FULL);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_requeued, 0);
    world_start(world, 0);
    ck_assert_uint_eq(room(world), SCHED_BACKGROUND_MAX);
    world_destroy(world);
}
END_TEST

START_TEST(a_pin_with_an_end_goes_by_itself)
{
    struct world *world = new_world(100, 1);
    struct sched *sched = world_sched(world);
    struct dockey key = world_doc_key(40001);
    uint64_t start;

    world_warm(world, 40001, false);
    world_run(world, 100);
    start = world_now(world);
    ck_assert_int_eq(sched_pin(sched, start, &key, 1000), ST_OK);
    ck_assert_int_eq(sched_pin(sched, start, &key, 5000), ST_OK);
    ck_assert_int_eq(sched_pin(sched, start, &key, 0), ST_OK);
    ck_assert_uint_eq(sched_pin_ends_us(sched, &key), start + 5000);
    ck_assert_uint_eq(sched_wakeup_us(sched), start + 1000);
    world_pass(world, 1000);
    ck_assert_uint_eq(kvpool_doc_pins(kvpool_find(sched_pool(sched), &key)), 2);
    ck_assert_uint_eq(sched_wakeup_us(sched), start + 5000);
    /* An operator takes back the pin that would stay, then the one that would end. */
    ck_assert_int_eq(sched_unpin(sched, world_now(world), &key), ST_OK);
    ck_assert_uint_eq(sched_pin_ends_us(sched, &key), start + 5000);
    ck_assert_int_eq(sched_unpin(sched, world_now(world), &key), ST_OK);
    ck_assert_uint_eq(sched_pin_ends_us(sched, &key), 0);
    world_pass(world, 10000);
    ck_assert_uint_eq(world_pool(world).blocks_pinned, 0);
    ck_assert_uint_eq(sched_counters(sched)->pins_ended, 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_forgotten_document_takes_its_pins_with_it)
{
    struct world *world = new_world(100, 1);
    struct sched *sched = world_sched(world);
    struct dockey key = world_doc_key(40001);

    for (int i = 0; i < 2; i++) {
        world_warm(world, 40001, false);
        world_run(world, 100);
        ck_assert_int_eq(sched_pin(sched, world_now(world), &key, i == 0 ? 1000 : 0), ST_OK);
        if (i == 0) {
            ck_assert_int_eq(world_forget(world, 40001, false), ST_OK);
        }
    }
    world_pass(world, 2000); /* the end of the first pin is not the end of the second */
    ck_assert_uint_eq(kvpool_doc_pins(kvpool_find(sched_pool(sched), &key)), 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_document_forgotten_while_it_is_encoded_in_the_background_is_erased)
{
    struct world *world = new_world(100, 1);
    uint64_t warm = world_warm(world, 80001, false);

    ck_assert(world_step(world, 0));
    ck_assert_int_eq(world_forget(world, 80001, false), ST_OK);
    ck_assert_int_eq(world_get(world, warm)->end, SCHED_END_CANCELLED);
    world_run(world, 100);
    ck_assert_uint_eq(world_erased(world), 1);
    world_destroy(world);
}
END_TEST

START_TEST(pins_that_end_have_a_limit_and_one_for_longer_than_time_stays)
{
    struct world *world = new_world(100, 1);
    struct sched *sched = world_sched(world);
    struct dockey key = world_doc_key(40001);

    world_warm(world, 40001, false);
    world_run(world, 100);
    ck_assert_int_eq(sched_pin(sched, world_now(world), &key, UINT64_MAX), ST_OK);
    world_pass(world, 1000);
    ck_assert_uint_eq(kvpool_doc_pins(kvpool_find(sched_pool(sched), &key)), 1);
    for (int i = 1; i < SCHED_PINS_MAX; i++) {
        ck_assert_int_eq(sched_pin(sched, world_now(world), &key, 1000), ST_OK);
    }
    ck_assert_int_eq(sched_pin(sched, world_now(world), &key, 1000), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "16384 pins have an end: the limit");
    ck_assert_uint_eq(kvpool_doc_pins(kvpool_find(sched_pool(sched), &key)), SCHED_PINS_MAX);
    world_pass(world, 2000);
    ck_assert_uint_eq(kvpool_doc_pins(kvpool_find(sched_pool(sched), &key)), 1);
    ck_assert_int_eq(sched_pin(sched, world_now(world), &key, 1000), ST_OK);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_background", an_idle_worker_encodes_documents_that_nobody_asked_for,
           nothing_starts_in_the_background_while_anything_else_goes_on,
           a_request_starts_beside_the_background_and_joins_what_it_needs,
           it_takes_free_blocks_only_unless_told_otherwise,
           a_request_that_lacks_blocks_gets_those_of_the_background,
           an_answer_that_grows_takes_the_blocks_of_the_background,
           a_lost_worker_ends_its_background_without_blame, a_pin_with_an_end_goes_by_itself,
           a_forgotten_document_takes_its_pins_with_it,
           pins_that_end_have_a_limit_and_one_for_longer_than_time_stays,
           a_document_forgotten_while_it_is_encoded_in_the_background_is_erased)
