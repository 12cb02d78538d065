/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker has when its kvasird is gone: it goes on, is told of to the next one, and a retry
 * has all of it. */
#include <string.h>

#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

static struct rig_heard alone, client;

/* What was said to a kvasird that is gone has reached its client; the next one begins anew. */
static void
lose_kvasird(struct rig *rig)
{
    client = rig->heard[1];
    memset(rig->heard, 0, sizeof(rig->heard));
    for (int i = 0; i < RIG_REQUESTS_MAX; i++) {
        rig->heard[i].finish = -1;
    }
}

/* The client has got `steps` steps of the answer; the next kvasird comes `gap` steps later, and the
 * client another `gap` later. */
static void
check_retry(struct rig *rig, const struct rig_config *config, uint32_t steps, uint32_t gap)
{
    rig_restart(rig, config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);
    uint32_t rows = rig->rows;

    request.name = "call";
    rig_assign(rig, &request);
    for (uint32_t i = 0; i < steps; i++) {
        (void)rig_step(rig);
    }
    lose_kvasird(rig);
    for (uint32_t i = 0; i < gap; i++) {
        (void)rig_step(rig);
    }
    lose_kvasird(rig); /* and what was said in the gap has reached nobody */
    client.n_ids = client.n_text = 0;
    rig_reset(rig, 2);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 1);
    ck_assert_uint_eq(rig->kept[0].n_segments, 3);
    ck_assert_uint_eq(rig->kept[0].n_own_blocks == 0, rig->kept[0].is_done);
    for (uint32_t i = 0; i < gap; i++) {
        (void)rig_step(rig);
    }
    ck_assert_uint_eq(rig->heard[1].n_ids, 0);
    request.id = 9;
    request.kept = rig->kept[0].number;
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[9]);
    ck_assert_uint_eq(rig->heard[9].n_released, 1);
    ck_assert_uint_eq(rig->heard[9].tokens_reused, 37 + 16 + 61);
    ck_assert_uint_eq(rig->rows - rows, 37 + 16 + 61 + 11 + ANSWER_TOKENS - 1);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
}

START_TEST(a_retry_has_the_whole_answer_and_nothing_is_computed_twice)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    for (uint32_t steps = 4; steps < 40; steps += 3) {
        for (uint32_t gap = 0; gap < 40; gap += 6) {
            check_retry(rig, &config, steps, gap);
        }
    }
    rig_destroy(&rig);
}
END_TEST

/* Runs until some tokens are out, and is there when a next kvasird comes. */
static void
keep_one(struct rig *rig, struct rig_request *request)
{
    request->name = "call";
    rig_assign(rig, request);
    while (rig->heard[1].n_ids < 5) {
        ck_assert(rig_step(rig));
    }
    lose_kvasird(rig);
    rig_reset(rig, 2);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 1);
}

START_TEST(a_retry_goes_on_after_what_it_names)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    keep_one(rig, &request);
    request.id = 9;
    request.kept = rig->kept[0].number;
    request.sent = client.ids;
    request.n_sent = client.n_ids;
    request.sent_text_bytes = (uint32_t)client.n_text;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->heard[9].n_ids, alone.n_ids - client.n_ids);
    ck_assert_mem_eq(rig->heard[9].ids, alone.ids + client.n_ids,
                     rig->heard[9].n_ids * sizeof(alone.ids[0]));
    ck_assert_str_eq(rig->heard[9].text, alone.text + client.n_text);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(what_is_kept_outlives_any_number_of_kvasirds)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    keep_one(rig, &request);
    for (uint64_t life = 3; life < 40; life++) {
        rig_reset(rig, life);
        (void)rig_step(rig);
        ck_assert_uint_eq(rig->n_kept, 1);
    }
    ck_assert(rig->kept[0].is_done);
    request.id = 9;
    request.kept = rig->kept[0].number;
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[9]);
    rig_reset(rig, 40); /* its end may have been lost as well */
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 1);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_stop_ends_it_once)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    keep_one(rig, &request);
    ck_assert_uint_eq(engine_open(rig->engine), 1);
    rig_stop_kept(rig, rig->kept[0].number);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept_released, 1);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    ck_assert(!rig_step(rig));
    rig_reset(rig, 3);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 0);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(another_request_under_its_number_begins_as_any_other)
{
    struct rig_config config = rig_defaults();
    struct rig_heard other;

    fill_all();
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    request.query = doc_e;
    rig_assign(rig, &request);
    rig_run(rig);
    other = rig->heard[1];
    rig_restart(rig, &config);
    struct abc again = abc_new(rig);

    request = abc_request(&again, 1);
    keep_one(rig, &request);
    for (size_t i = 0; i < 3; i++) {
        again.docs[i].build = 0;
    }
    request.id = 9;
    request.kept = rig->kept[0].number;
    request.query = doc_e;
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&other, &rig->heard[9]);
    ck_assert_uint_eq(rig->n_kept_released, 1);
    abc_free(&abc);
    abc_free(&again);
    rig_destroy(&rig);
}
END_TEST

START_TEST(what_waits_for_a_build_or_has_no_name_is_not_kept)
{
    struct rig_config config = rig_defaults();

    fill_all();
    config.step_tokens = 16;
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    request.name = "call";
    rig_assign(rig, &request);
    (void)rig_step(rig);
    rig_reset(rig, 2);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 0);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    rig_restart(rig, &config);
    struct abc again = abc_new(rig);

    request = abc_request(&again, 1);
    rig_assign(rig, &request);
    while (rig->heard[1].n_ids < 5) {
        ck_assert(rig_step(rig));
    }
    rig_reset(rig, 3);
    (void)rig_step(rig);
    ck_assert_uint_eq(rig->n_kept, 0);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
    abc_free(&again);
    rig_destroy(&rig);
}
END_TEST

/* Its number is the worker's own, and kvasird may have a request of that number. */
START_TEST(one_that_is_kept_and_fails_is_let_go_of_and_nobody_else_fails_for_it)
{
    struct rig_config config = rig_defaults();

    fill_all();
    config.seqs_max = 2;
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    keep_one(rig, &request);
    memset((char *)rig->kv + abc.docs[0].blocks[0] * kv_layout_block_bytes(&rig->layout), 0xff,
           kv_layout_block_bytes(&rig->layout)); /* all NaN */
    for (uint32_t credit = 0; credit < 2; credit++) {
        struct rig_request other = {.id = credit == 0 ? rig->kept[0].number : 5,
                                    .query = query,
                                    .n_query = 11,
                                    .max_tokens = 5,
                                    .ignores_end = true};

        rig_assign(rig, &other);
        if (credit == 0) {
            ck_assert(rig_step(rig)); /* in which the kept one fails */
        }
    }
    rig_run(rig);
    ck_assert_str_eq(rig->heard[rig->kept[0].number].error, "");
    ck_assert_uint_eq(rig->heard[rig->kept[0].number].n_ids, 5);
    ck_assert_uint_eq(rig->heard[rig->kept[0].number].n_released, 1);
    ck_assert_str_eq(rig->heard[5].error, ""); /* it has given its credit back */
    ck_assert_uint_eq(rig->n_kept_released, 1);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_keep", a_retry_has_the_whole_answer_and_nothing_is_computed_twice,
           a_retry_goes_on_after_what_it_names, what_is_kept_outlives_any_number_of_kvasirds,
           a_stop_ends_it_once, another_request_under_its_number_begins_as_any_other,
           what_waits_for_a_build_or_has_no_name_is_not_kept,
           one_that_is_kept_and_fails_is_let_go_of_and_nobody_else_fails_for_it)
