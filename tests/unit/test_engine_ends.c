/* SPDX-License-Identifier: Apache-2.0 */
/* Every way in which a request or a build ends early: stopped, refused, without memory. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"
#include "tests/support/failing_ops.h"

/* Stopped before its first step, in its prompt, while decoding, after its end, twice, and unknown.
 */
START_TEST(every_stop_is_answered_by_one_release)
{
    struct rig_config config = rig_defaults();

    fill_all();
    config.step_tokens = 16;
    struct rig *rig = rig_new(&config);

    for (uint32_t steps = 0; steps < 40; steps++) {
        rig_restart(rig, &config);
        struct abc abc = abc_new(rig);
        struct rig_request request = abc_request(&abc, 1);

        rig_assign(rig, &request);
        for (uint32_t i = 0; i < steps; i++) {
            (void)rig_step(rig);
        }
        uint32_t released_before = rig->heard[1].n_released;

        ck_assert_uint_eq(released_before, rig->heard[1].finish >= 0 ? 1 : 0);
        rig_stop(rig, 1);
        (void)rig_step(rig);
        ck_assert_uint_eq(rig->heard[1].n_released, released_before + 1);
        rig_stop(rig, 1);
        rig_stop(rig, 33);
        (void)rig_step(rig);
        ck_assert_uint_eq(rig->heard[1].n_released, released_before + 2);
        ck_assert_uint_eq(rig->heard[33].n_released, 1);
        for (uint64_t b = 1; b <= 3; b++) {
            rig_stop_build(rig, b);
        }
        rig_run(rig);
        for (uint64_t b = 1; b <= 3; b++) {
            ck_assert_uint_eq(rig->builds[b].n_dropped, 1);
        }
        ck_assert_uint_eq(engine_open(rig->engine), 0);
        abc_free(&abc);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(stopping_a_build_ends_the_requests_that_wait_for_it)
{
    struct rig_config config = rig_defaults();

    fill_all();
    config.step_tokens = 16;
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    (void)rig_step(rig);
    rig_stop_build(rig, 2);
    rig_run(rig);
    ck_assert_uint_eq(rig->builds[2].n_dropped, 1);
    ck_assert_str_ne(rig->heard[1].error, "");
    ck_assert_uint_eq(rig->heard[1].n_released, 1);
    ck_assert_uint_eq(rig->builds[1].n_sealed, 1);
    ck_assert_uint_eq(rig->builds[3].n_sealed, 1);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* One thing is wrong in each; the request is refused with words, nothing else happens. */
START_TEST(a_bad_assign_is_refused_and_the_others_go_on)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();
    uint32_t bad_blocks[3] = {1, 2, 512}, bad_ids[37], no_room = 600;
    char empty_stop[] = "";

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request good = abc_request(&abc, 1);

    rig_assign(rig, &good);
    memcpy(bad_ids, doc_a, sizeof(bad_ids));
    bad_ids[36] = rig->model.V;
    for (int what = 0; what < 9; what++) {
        struct rig_doc docs[2] = {{doc_b, 16, abc.docs[1].blocks, 2, true, 0, {0}},
                                  {doc_a, 37, abc.docs[0].blocks, 20, false, 0, {0}}};
        struct rig_request bad = {
            .id = 2, .docs = docs, .n_docs = 2, .query = query, .n_query = 11, .max_tokens = 5};

        switch (what) {
        case 0: docs[1].blocks = bad_blocks; break;
        case 1: docs[1].ids = bad_ids; break;
        case 2: docs[1].start = 38; break;
        case 3: bad.n_query = 0; break;
        case 4: bad.max_tokens = 0; break;
        case 5: docs[0].build = 63; break; /* nobody builds it */
        case 6: bad.temperature = -1.0f; break;
        case 7: bad.stops[0] = empty_stop, bad.n_stops = 1; break;
        case 8: bad.sent = bad_ids, bad.n_sent = 2, bad.sent_text_bytes = no_room; break;
        default: break;
        }
        rig->heard[2] = (struct rig_heard){.finish = -1};
        rig->builds[20].n_dropped = 0;
        rig_assign(rig, &bad);
        ck_assert(rig_step(rig));
        ck_assert_msg(rig->heard[2].error[0] != '\0', "case %d was let in", what);
        ck_assert_uint_eq(rig->heard[2].n_released, 1);
        ck_assert_uint_eq(rig->builds[20].n_dropped, 1);
        ck_assert_uint_eq(rig->builds[20].n_sealed, 0);
    }
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[1]);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_grant_of_a_block_that_is_not_there_ends_the_request)
{
    struct rig_config config = rig_defaults();
    Kvasir__V1__Grant grant = KVASIR__V1__GRANT__INIT;
    uint32_t block = 512;

    fill_all();
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    grant.request = 1;
    grant.n_block_ids = 1;
    grant.block_ids = &block;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT, &grant);
    rig_run(rig);
    ck_assert_str_ne(rig->heard[1].error, "");
    ck_assert_uint_eq(rig->heard[1].n_released, 1);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(requests_over_credit_are_refused)
{
    struct rig_config config = rig_defaults();

    fill_all();
    config.seqs_max = 2;
    struct rig *rig = rig_new(&config);
    struct rig_request request = {.query = query, .n_query = 11, .max_tokens = 4};

    for (request.id = 1; request.id <= 3; request.id++) {
        rig_assign(rig, &request);
    }
    rig_run(rig);
    ck_assert_str_eq(rig->heard[1].error, "");
    ck_assert_str_eq(rig->heard[2].error, "");
    ck_assert_str_ne(rig->heard[3].error, "");
    ck_assert_uint_eq(rig->heard[3].n_released, 1);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_request_over_broken_memory_fails_alone)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();
    uint32_t *broken;

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    broken = rig_blocks(rig, 16);
    memset((char *)rig->kv + broken[0] * kv_layout_block_bytes(&rig->layout), 0xff,
           kv_layout_block_bytes(&rig->layout)); /* all NaN */
    struct abc abc = abc_new(rig);
    struct rig_request good = abc_request(&abc, 1);
    struct rig_doc doc = {doc_b, 16, broken, 0, false, 0, {0}};
    struct rig_request bad = {
        .id = 2, .docs = &doc, .n_docs = 1, .query = query, .n_query = 11, .max_tokens = 5};

    rig_assign(rig, &good);
    rig_assign(rig, &bad);
    rig_run(rig);
    ck_assert_str_ne(rig->heard[2].error, "");
    ck_assert_uint_eq(rig->heard[2].n_released, 1);
    check_same_answer(&alone, &rig->heard[1]);
    mem_free(broken);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* Fails allocation n of a whole small life, for every n until it passes. */
START_TEST(no_failed_allocation_leaks_or_crashes)
{
    struct rig_config config = rig_defaults();
    bool has_passed = false;

    fill_all();
    config.block_count = 64;
    struct rig *rig = rig_new(&config);
    struct engine_config engine_config = {.model = &rig->model,
                                          .tokenizer = rig->tokenizer,
                                          .plan = &rig->plan,
                                          .weights = rig->weights,
                                          .kv = rig->kv,
                                          .layout = rig->layout,
                                          .block_count = config.block_count,
                                          .ops = rig->ops,
                                          .step_tokens = 64,
                                          .seqs_max = 2};
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    Kvasir__V1__Sampling sampling = KVASIR__V1__SAMPLING__INIT;
    Kvasir__V1__Build build = KVASIR__V1__BUILD__INIT, *builds[1] = {&build};
    uint32_t blocks[4] = {0, 1, 2, 3};

    build.build = 1;
    build.n_token_ids = 37;
    build.token_ids = doc_a;
    build.n_block_ids = 3;
    build.block_ids = blocks;
    sampling.max_tokens = 2;
    assign.has_request = true;
    assign.request = 1;
    assign.n_builds = 1;
    assign.builds = builds;
    assign.n_query_ids = 11;
    assign.query_ids = query;
    assign.n_own_block_ids = 1;
    assign.own_block_ids = &blocks[3];
    assign.sampling = &sampling;
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN;
    message.assign = &assign;
    for (uint64_t n = 1; !has_passed; n += SCENE(1, 1, 7)) {
        struct engine *engine = NULL;
        Kvasir__V1__Step *step = NULL;

        ck_assert_uint_lt(n, 1000);
        mem_fail_at(n);
        enum status st = engine_new(&engine_config, &engine);

        if (st == ST_OK) {
            st = engine_apply(engine, &message);
        }
        mem_fail_at(0);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
        if (st == ST_OK) {
            ck_assert_int_eq(engine_step(engine, &step), ST_OK);
            ck_assert_ptr_nonnull(step);
            ck_assert_uint_ge(step->n_results, 1);
            has_passed = step->results[0]->error == NULL;
        }
        engine_destroy(&engine);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_step_on_a_broken_device_names_the_call_that_failed)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = rig_new(&config);
    Kvasir__V1__Step *step = NULL;

    rig_assign(rig,
               &(struct rig_request){
                   .id = 1, .query = query, .n_query = 11, .max_tokens = 8, .ignores_end = true});
    failing_ops_break(rig->ops, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert(rig_step(rig));
    }
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_DEVICE);
    ck_assert_str_eq(status_detail(), FAILING_OPS_DETAIL);
    ck_assert_ptr_null(step);
    ck_assert_uint_eq(rig->heard[1].n_ids, 3);
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_DEVICE);
    rig_destroy(&rig);
}
END_TEST

static void
probe(struct rig *rig, uint64_t id)
{
    Kvasir__V1__Probe wire = KVASIR__V1__PROBE__INIT;

    wire.probe = id;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_PROBE, &wire);
}

START_TEST(a_probe_is_answered_by_an_idle_worker_unless_its_device_is_broken)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = rig_new(&config);
    Kvasir__V1__Step *step = NULL;

    probe(rig, 6);
    probe(rig, 7);
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_OK);
    ck_assert_ptr_nonnull(step);
    ck_assert_uint_eq(step->probed, 7);
    ck_assert_uint_eq(step->rows, 0);
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_OK);
    ck_assert_ptr_null(step);
    failing_ops_break(rig->ops, 0);
    probe(rig, 8);
    ck_assert_int_eq(engine_step(rig->engine, &step), ST_DEVICE);
    ck_assert_ptr_null(step);
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_ends", every_stop_is_answered_by_one_release,
           stopping_a_build_ends_the_requests_that_wait_for_it,
           a_bad_assign_is_refused_and_the_others_go_on,
           a_grant_of_a_block_that_is_not_there_ends_the_request, requests_over_credit_are_refused,
           a_request_over_broken_memory_fails_alone,
           a_step_on_a_broken_device_names_the_call_that_failed,
           a_probe_is_answered_by_an_idle_worker_unless_its_device_is_broken,
           no_failed_allocation_leaks_or_crashes)
