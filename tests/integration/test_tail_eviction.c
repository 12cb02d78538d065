/* SPDX-License-Identifier: Apache-2.0 */
/* A document whose tail was evicted is hit for its head; only the tail is encoded again, and
 * nobody can tell from the answer. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define BLOCK_TOKENS 32

START_TEST(any_tail_may_go_and_the_answer_stays_the_same)
{
    /* Blocks of 32: 7 and 3 of them; the last of the first one holds 8 tokens. */
    const struct asking_doc docs[] = {{200, 1}, {90, 2}};
    const struct question question = {.docs = docs, .doc_count = 2, .query_seed = 3};
    static const char *const lru[] = {"--eviction", "lru", NULL}; /* the one used first goes */
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = lru});
    struct answer cold, again;

    ask_ok(host, &question, &cold);
    ck_assert_uint_eq(cold.tokens_built, 290);
    for (uint32_t going = 1; going < 7; going++) {
        uint32_t head = (7 - going) * BLOCK_TOKENS; /* what stays of the document used first */

        ck_assert_uint_eq(host_evict(host, going), going);
        ck_assert_uint_eq(host_counter(host, "documents"), 2);
        ask_ok(host, &question, &again);
        ck_assert_uint_eq(again.tokens_built, 200 - head);
        ck_assert_uint_eq(again.tokens_reused, head + 90);
        ck_assert_uint_eq(again.docs_hit, 1);
        ck_assert_uint_eq(host_counter(host, "doc_misses_partial"), going);
        answer_assert_same(&cold, &again);
    }
    host_stop(&host);
}
END_TEST

START_TEST(who_reads_the_head_on_another_worker_waits_for_the_tail)
{
    const struct asking_doc docs[] = {{300, 1}};
    const struct question question = {.docs = docs, .doc_count = 1, .query_seed = 3};
    struct host *host = host_start(&(struct host_options){.workers = 2});
    struct asking *askings[4];
    struct answer cold, again;
    uint32_t built = 0;

    ask_ok(host, &question, &cold);
    ck_assert_uint_eq(host_evict(host, 4), 4);
    for (int i = 0; i < 4; i++) {
        askings[i] = asking_start(host, &question);
    }
    for (int i = 0; i < 4; i++) {
        asking_end(&askings[i], &again);
        ck_assert_int_eq(again.code, KVASIR_OK);
        built += again.tokens_built;
        answer_assert_same(&cold, &again);
    }
    ck_assert_uint_eq(built, 300 - 6 * BLOCK_TOKENS);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("tail_eviction", any_tail_may_go_and_the_answer_stays_the_same,
           who_reads_the_head_on_another_worker_waits_for_the_tail)
