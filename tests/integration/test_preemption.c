/* SPDX-License-Identifier: Apache-2.0 */
/* A pool too small for all answers: the youngest gives way and goes on later with the same text. */
#include <stdlib.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define REQUESTS      4
#define ANSWER_TOKENS 500

/* 40 blocks; each request ends with 2 + 16, and is admitted with 2 + 2. */
static const char *const daemon_args[] = {"--reserve-tokens", "32", NULL};
static const struct host_options options = {
    .workers = 0, .kv_memory = "2560KiB", .daemon_args = daemon_args};

static const struct asking_doc documents[REQUESTS] = {{60, 1}, {61, 2}, {62, 3}, {63, 4}};

static struct question
make_question(uint32_t index)
{
    return (struct question){.docs = &documents[index],
                             .doc_count = 1,
                             .query_seed = index,
                             .max_tokens = ANSWER_TOKENS};
}

START_TEST(preempted_requests_finish_with_the_text_of_an_undisturbed_run)
{
    struct host *host = host_start(&options);
    struct answer *alone = calloc(REQUESTS, sizeof(*alone));
    struct answer *together = calloc(REQUESTS, sizeof(*together));
    struct asking *askings[REQUESTS];

    ck_assert(alone != NULL && together != NULL);
    for (uint32_t i = 0; i < REQUESTS; i++) { /* all wait, in this order, before the first runs */
        struct question question = make_question(i);
        askings[i] = asking_start(host, &question);
        host_wait_exactly(host, "requests_queued", i + 1);
    }
    (void)host_add_worker(host);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        asking_end(&askings[i], &together[i]);
        ck_assert_msg(together[i].code == KVASIR_OK, "%s", together[i].message);
    }
    uint64_t preempted = host_counter(host, "requests_preempted");

    ck_assert_uint_eq(host_counter(host, "block_count"), 40);
    ck_assert_uint_gt(preempted, 0);
    ck_assert_uint_eq(together[0].preemptions, 0);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct question question = make_question(i);
        ask_ok(host, &question, &alone[i]);
        ck_assert_uint_eq(alone[i].preemptions, 0);
        answer_assert_same(&alone[i], &together[i]);
    }
    ck_assert_uint_eq(host_counter(host, "requests_preempted"), preempted);
    free(alone);
    free(together);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("preemption", preempted_requests_finish_with_the_text_of_an_undisturbed_run)
