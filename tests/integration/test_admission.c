/* SPDX-License-Identifier: Apache-2.0 */
/* What can never fit is refused at once; what cannot fit now waits, and everything finishes. */
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

/* A block of the tiny model: 2 layers x K,V x 2 heads x 64 x 4 bytes x 32 tokens. */
#define BLOCK_KIB 64

START_TEST(a_request_that_can_never_fit_is_refused_at_once_with_both_sizes)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "1MiB"});
    const struct asking_doc docs[] = {{600, 1}};
    struct question question = {.docs = docs, .doc_count = 1, .max_tokens = 8};
    struct answer answer;

    ck_assert_uint_eq(host_counter(host, "block_count"), 1024 / BLOCK_KIB);
    ask(host, &question, &answer);
    ck_assert_msg(answer.code == KVASIR_OUT_OF_RANGE || answer.code == KVASIR_INVALID_ARGUMENT,
                  "%s: %s", kvasir_code_name(answer.code), answer.message);
    /* 19 blocks for the document and 1 for query and answer, of a pool of 16. */
    ck_assert_msg(strstr(answer.message, "20") != NULL && strstr(answer.message, "16") != NULL,
                  "%s", answer.message);
    ck_assert_uint_eq(host_counter(host, "requests_refused"), 1);
    ck_assert_uint_eq(host_counter(host, "builds_started"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(the_answer_counts_towards_what_can_never_fit)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "1MiB"});
    const struct asking_doc docs[] = {{300, 1}};
    struct question question = {.docs = docs, .doc_count = 1, .max_tokens = 150};
    struct answer answer;

    ask_ok(host, &question, &answer); /* 10 + 5 blocks */
    question.max_tokens = 250;        /* 10 + 9 blocks */
    ask(host, &question, &answer);
    ck_assert_uint_ne(answer.code, KVASIR_OK);
    ck_assert_uint_eq(answer.id_count, 0);
    host_stop(&host);
}
END_TEST

START_TEST(two_requests_that_each_need_most_of_the_pool_both_finish)
{
    struct host *host = host_start(&(struct host_options){.workers = 2, .kv_memory = "2MiB"});
    const struct asking_doc first[] = {{512, 1}}, second[] = {{512, 2}};
    struct question questions[2] = {{.docs = first, .doc_count = 1, .max_tokens = 80},
                                    {.docs = second, .doc_count = 1, .max_tokens = 80}};
    struct asking *askings[2];
    struct answer answer;

    /* 16 + 3 of 32 blocks each: 60 %. */
    for (int i = 0; i < 2; i++) {
        askings[i] = asking_start(host, &questions[i]);
    }
    for (int i = 0; i < 2; i++) {
        asking_end(&askings[i], &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
        ck_assert_uint_eq(answer.id_count, 80);
    }
    host_stop(&host);
}
END_TEST

START_TEST(a_pool_may_be_a_share_of_what_is_free)
{
    struct host *host = host_start(&(struct host_options){.workers = 2, .kv_memory = "1%"});
    const struct asking_doc docs[] = {{300, 1}};
    const struct question question = {.docs = docs, .doc_count = 1};
    struct answer answer;

    ask_ok(host, &question, &answer);
    ck_assert_uint_gt(host_counter(host, "blocks_free"), 32);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("admission", a_request_that_can_never_fit_is_refused_at_once_with_both_sizes,
           the_answer_counts_towards_what_can_never_fit,
           two_requests_that_each_need_most_of_the_pool_both_finish,
           a_pool_may_be_a_share_of_what_is_free)
