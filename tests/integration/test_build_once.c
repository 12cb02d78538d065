/* SPDX-License-Identifier: Apache-2.0 */
/* The same documents asked for at once by many are built once. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define CLIENTS 8
#define DOCS    4

START_TEST(documents_asked_for_at_once_by_eight_clients_are_built_once)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});
    const struct asking_doc docs[DOCS] = {{300, 1}, {200, 2}, {64, 3}, {31, 4}};
    struct asking *askings[CLIENTS];
    struct answer answer;
    uint32_t tokens_built = 0;

    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct question question = {.docs = docs, .doc_count = DOCS, .query_seed = i};
        askings[i] = asking_start(host, &question);
    }
    for (uint32_t i = 0; i < CLIENTS; i++) {
        asking_end(&askings[i], &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
        ck_assert_uint_eq(answer.tokens_built + answer.tokens_reused, 595);
        tokens_built += answer.tokens_built;
    }
    ck_assert_uint_eq(tokens_built, 595);
    ck_assert_uint_eq(host_counter(host, "builds_sealed"), DOCS);
    ck_assert_uint_eq(host_counter(host, "documents"), DOCS);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("build_once", documents_asked_for_at_once_by_eight_clients_are_built_once)
