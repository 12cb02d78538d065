/* SPDX-License-Identifier: Apache-2.0 */
/* The engine alone, on the tiny model: texts never depend on company, documents are shared. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

START_TEST(documents_and_query_go_through_in_one_step)
{
    struct rig_config config = rig_defaults();

    config.step_tokens = 128;
    fill_all();
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    ck_assert(rig_step(rig));
    ck_assert_uint_eq(rig->rows, 37 + 16 + 61 + 11);
    ck_assert_uint_eq(rig->rows_built, 37 + 16 + 61);
    ck_assert_uint_eq(rig->heard[1].n_ids, 1);
    ck_assert_uint_eq(rig->heard[1].tokens_reused, 37 + 16 + 61);
    ck_assert_uint_eq(rig->heard[1].own_tokens, 11);
    for (uint64_t b = 1; b <= 3; b++) {
        ck_assert_uint_eq(rig->builds[b].n_sealed, 1);
    }
    rig_run(rig);
    ck_assert_uint_eq(rig->steps, ANSWER_TOKENS);
    ck_assert_uint_eq(rig->heard[1].n_released, 1);
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_text_does_not_depend_on_how_its_prompt_is_cut)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    for (uint32_t budget = 1; budget <= 130; budget = budget * 2 + 3) {
        config.step_tokens = budget;
        config.seqs_max = 1;
        rig_restart(rig, &config);
        struct abc abc = abc_new(rig);
        struct rig_request request = abc_request(&abc, 1);

        rig_assign(rig, &request);
        rig_run(rig);
        check_same_answer(&alone, &rig->heard[1]);
        abc_free(&abc);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_text_does_not_depend_on_seven_other_requests)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();
    static uint32_t other_docs[8][50];
    uint32_t *other_blocks[8];

    fill_all();
    config.step_tokens = 40;
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    request.order = 5; /* in the middle of the others */
    for (uint64_t id = 2; id <= 8; id++) {
        fill_ids(other_docs[id - 1], 50, (uint32_t)id * 77);
        other_blocks[id - 1] = rig_blocks(rig, 50);
        struct rig_doc doc = {
            other_docs[id - 1], (uint32_t)(50 - id), other_blocks[id - 1], 10 + id, false, 0, {0}};
        struct rig_request other = {.id = id,
                                    .docs = &doc,
                                    .n_docs = 1,
                                    .query = query,
                                    .n_query = (size_t)id,
                                    .max_tokens = 40,
                                    .temperature = 1.0f,
                                    .seed = id};

        rig_assign(rig, &other);
        if (id == 4) {
            rig_assign(rig, &request);
        }
        (void)rig_step(rig);
    }
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[1]);
    for (uint64_t id = 1; id <= 8; id++) {
        ck_assert_uint_eq(rig->heard[id].n_released, 1);
        ck_assert_int_ge(rig->heard[id].finish, 1);
    }
    for (size_t i = 1; i < 8; i++) {
        mem_free(other_blocks[i]);
    }
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* Preempted after every number of tokens; its own blocks are lost, its documents stay. */
START_TEST(a_preempted_request_goes_on_as_if_nothing_had_happened)
{
    static struct rig_heard alone, before;
    struct rig_config config = rig_defaults();
    char stop[] = "never";
    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    for (size_t tokens = 0; tokens < ANSWER_TOKENS; tokens++) {
        rig_restart(rig, &config);
        struct abc abc = abc_new(rig);
        struct rig_request request = abc_request(&abc, 1);

        request.stops[0] = stop;
        request.n_stops = 1;
        rig_assign(rig, &request);
        (void)rig_step(rig);
        while (rig->heard[1].n_ids < tokens) {
            ck_assert(rig_step(rig));
        }
        rig_stop(rig, 1);
        (void)rig_step(rig);
        ck_assert_uint_eq(rig->heard[1].n_released, 1);
        before = rig->heard[1];
        request.sent = before.ids;
        request.n_sent = before.n_ids;
        request.sent_text_bytes = (uint32_t)before.n_text;
        for (size_t i = 0; i < 3; i++) {
            abc.docs[i].is_joined = true;
        }
        rig_assign(rig, &request);
        rig_run(rig);
        check_same_answer(&alone, &rig->heard[1]);
        abc_free(&abc);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_request_without_a_block_waits_for_its_grant)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    request.own_blocks = 1;
    rig_assign(rig, &request);
    rig_run(rig);
    /* 11 query tokens and 5 answers fill the block; the sixth answer is drawn from its last slot.
     */
    ck_assert_uint_eq(rig->heard[1].n_ids, 6);
    ck_assert_uint_eq(rig->heard[1].own_tokens, 16);
    ck_assert_int_eq(rig->heard[1].finish, -1);
    ck_assert_uint_eq(engine_open(rig->engine), 1);
    rig_grant(rig, 1, 1);
    rig_run(rig);
    ck_assert_uint_eq(rig->heard[1].n_ids, 22);
    rig_grant(rig, 1, 1);
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[1]);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_step_allocates_nothing)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    request.id = 2;
    for (size_t i = 0; i < 3; i++) {
        abc.docs[i].is_joined = true;
    }
    rig_assign(rig, &request);
    uint64_t before = mem_allocations();

    rig_run(rig);
    ck_assert_uint_eq(mem_allocations(), before);
    ck_assert_uint_eq(rig->heard[2].n_ids, ANSWER_TOKENS);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_build_is_shared_by_requests_that_join_it)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();

    fill_all();
    config.step_tokens = 32;
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 5);

    rig_assign(rig, &request);
    (void)rig_step(rig);
    for (size_t i = 0; i < 3; i++) {
        abc.docs[i].is_joined = true;
    }
    request.id = 1; /* older: the builds become as old as it is */
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->rows_built, 37 + 16 + 61);
    check_same_answer(&alone, &rig->heard[1]);
    check_same_answer(&alone, &rig->heard[5]);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_build_of_a_tail_gives_the_bytes_of_a_whole_build)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);
    struct rig_doc doc = {doc_c, 61, rig_blocks(rig, 61), 1, false, 0, {0}};
    struct rig_request request = {.docs = &doc, .n_docs = 1};

    /* Requests without an id only build. */
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->builds[1].n_sealed, 1);
    float *whole = rig_kv(rig, doc.blocks, 61);

    for (uint32_t start = 0; start <= 61; start += start < 48 ? 16 : 13) {
        for (uint32_t block = start / 16; block < 4; block++) {
            memset((char *)rig->kv + doc.blocks[block] * kv_layout_block_bytes(&rig->layout), 0x5a,
                   kv_layout_block_bytes(&rig->layout) * (start % 16 == 0));
        }
        doc.start = start;
        doc.build++;
        uint32_t rows_before = rig->rows_built;

        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_uint_eq(rig->builds[doc.build].n_sealed, 1);
        ck_assert_uint_eq(rig->rows_built - rows_before, 61 - start);
        float *again = rig_kv(rig, doc.blocks, 61);

        ck_assert_mem_eq(whole, again, rig_kv_bytes(rig, 61));
        mem_free(again);
    }
    mem_free(whole);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

/* All 120 orders of five documents, cold in the first, hot afterwards: the documents' KV never
 * changes, and a hot answer is byte for byte that of a cold run of the same order. */
START_TEST(all_orders_of_documents_share_their_kv)
{
    static struct rig_heard cold;
    struct rig_config config = rig_defaults();
    const uint32_t *ids[5] = {doc_a, doc_b, doc_c, doc_d, doc_e};
    const uint32_t lengths[5] = {37, 16, 61, 1, 48};
    struct rig_doc docs[5], ordered[5];
    float *kv[5];

    fill_all();
    config.block_count = 2048;
    struct rig *rig = rig_new(&config);

    for (uint32_t i = 0; i < 5; i++) {
        docs[i] =
            (struct rig_doc){ids[i], lengths[i], rig_blocks(rig, lengths[i]), i + 1, false, 0, {0}};
    }
    struct rig_request request = {
        .id = 1, .docs = docs, .n_docs = 5, .query = query, .n_query = 11, .max_tokens = 6};

    rig_assign(rig, &request);
    rig_run(rig);
    for (uint32_t i = 0; i < 5; i++) {
        kv[i] = rig_kv(rig, docs[i].blocks, lengths[i]);
        docs[i].build = 0;
    }
    cold = rig->heard[1];
    for (uint32_t code = 0; code < 120; code++) {
        uint32_t left[5] = {0, 1, 2, 3, 4};

        for (uint32_t i = 0, rest = code; i < 5; i++) {
            uint32_t k = rest % (5 - i);

            rest /= 5 - i;
            ordered[i] = docs[left[k]];
            left[k] = left[4 - i];
        }
        request.id = 2;
        request.docs = ordered;
        rig->heard[2] = (struct rig_heard){.finish = -1};
        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_uint_eq(rig->heard[2].n_ids, 6);
        ck_assert_uint_eq(rig->heard[2].tokens_reused, 37 + 16 + 61 + 1 + 48);
        rig->next_block = 40; /* own blocks may be used again; the documents have the first 13 */
    }
    ck_assert_uint_eq(rig->rows_built, 37 + 16 + 61 + 1 + 48);
    for (uint32_t i = 0; i < 5; i++) {
        float *now = rig_kv(rig, docs[i].blocks, lengths[i]);

        ck_assert_mem_eq(kv[i], now, rig_kv_bytes(rig, lengths[i]));
        mem_free(now);
    }
    request.docs = docs;
    rig->heard[2] = (struct rig_heard){.finish = -1};
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&cold, &rig->heard[2]);
    for (uint32_t i = 0; i < 5; i++) {
        mem_free(kv[i]), mem_free(docs[i].blocks);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(an_empty_document_changes_nothing)
{
    static struct rig_heard alone;
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);

    run_alone(rig, &alone);
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_doc docs[6] = {
        {NULL, 0, NULL, 0, false, 0, {0}},
        abc.docs[0],
        {NULL, 0, NULL, 9, false, 0, {0}},
        abc.docs[1],
        abc.docs[2],
        {NULL, 0, NULL, 0, false, 0, {0}},
    };
    struct rig_request request = abc_request(&abc, 1);

    request.docs = docs;
    request.n_docs = 6;
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&alone, &rig->heard[1]);
    ck_assert_uint_eq(rig->builds[9].n_sealed, 1);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_document_may_stand_twice_in_a_prompt)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);
    struct rig_doc docs[2] = {{doc_a, 37, rig_blocks(rig, 37), 1, false, 0, {0}}};
    struct rig_request request = {.id = 1,
                                  .docs = docs,
                                  .n_docs = 2,
                                  .query = query,
                                  .n_query = 11,
                                  .max_tokens = 12,
                                  .ignores_end = true};

    docs[1] = docs[0];
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->rows_built, 37);
    ck_assert_uint_eq(rig->heard[1].tokens_reused, 74);
    /* The same with two copies in blocks of their own. */
    docs[1] = (struct rig_doc){doc_a, 37, rig_blocks(rig, 37), 2, false, 0, {0}};
    docs[0].build = 0;
    request.id = 2;
    rig_assign(rig, &request);
    rig_run(rig);
    check_same_answer(&rig->heard[1], &rig->heard[2]);
    mem_free(docs[0].blocks);
    mem_free(docs[1].blocks);
    rig_destroy(&rig);
}
END_TEST

/* The greedy text, cut where its own bytes say so: every substring of it is tried as a stop string.
 */
START_TEST(a_stop_string_ends_the_text_just_before_it)
{
    static struct rig_heard whole;
    struct rig_config config = rig_defaults();
    char stop[8];

    fill_all();
    struct rig *rig = rig_new(&config);
    struct rig_request request = {.id = 1,
                                  .query = query,
                                  .n_query = 11,
                                  .max_tokens = 30,
                                  .temperature = 1.0f,
                                  .seed = 3,
                                  .ignores_end = true};

    rig_assign(rig, &request);
    rig_run(rig);
    whole = rig->heard[1];
    ck_assert_uint_ge(whole.n_text, 20);
    request.stops[0] = stop;
    request.n_stops = 1;
    for (size_t at = 0; at + 5 < whole.n_text && at < 40; at++) {
        (void)snprintf(stop, sizeof(stop), "%.4s", whole.text + at);
        const char *found = strstr(whole.text, stop);

        if (((unsigned char)stop[0] & 0xC0) == 0x80 || stop[0] == '\0') {
            continue; /* not the start of a character */
        }
        rig->heard[1] = (struct rig_heard){.finish = -1};
        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_int_eq(rig->heard[1].finish, KVASIR__V1__FINISH_REASON__FINISH_STOP);
        ck_assert_uint_eq(rig->heard[1].n_text, (size_t)(found - whole.text));
        ck_assert_mem_eq(rig->heard[1].text, whole.text, rig->heard[1].n_text);
        rig->next_block = 0;
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(log_probabilities_come_with_every_token)
{
    struct rig_config config = rig_defaults();

    fill_all();
    struct rig *rig = rig_new(&config);
    struct rig_request request = {.id = 1,
                                  .query = query,
                                  .n_query = 11,
                                  .max_tokens = 9,
                                  .wants_logprobs = true,
                                  .ignores_end = true};

    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->heard[1].n_logprobs, 9);
    for (size_t i = 0; i < 9; i++) {
        ck_assert_float_le(rig->heard[1].logprobs[i], 0.0f);
    }
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine", documents_and_query_go_through_in_one_step,
           a_text_does_not_depend_on_how_its_prompt_is_cut,
           a_text_does_not_depend_on_seven_other_requests,
           a_preempted_request_goes_on_as_if_nothing_had_happened,
           a_request_without_a_block_waits_for_its_grant, a_step_allocates_nothing,
           a_build_is_shared_by_requests_that_join_it,
           a_build_of_a_tail_gives_the_bytes_of_a_whole_build,
           all_orders_of_documents_share_their_kv, an_empty_document_changes_nothing,
           a_document_may_stand_twice_in_a_prompt, a_stop_string_ends_the_text_just_before_it,
           log_probabilities_come_with_every_token)
