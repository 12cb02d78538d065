/* SPDX-License-Identifier: Apache-2.0 */
/* More answers run than a worker's device takes in one step: they take turns, and nobody reads it
 * from the text. */
#include <stdlib.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define REQUESTS 10
#define DECODES  4 /* of a step */
#define TOKENS   200
#define ENDLESS  6 /* asks for as much as there may be where somebody cancels it */

static const char *const worker_args[] = {"--decodes-max", "4", "--seqs-max", "16", NULL};
static const struct asking_doc document = {60, 1};

static struct question
make_question(uint32_t index)
{
    return (struct question){
        .docs = &document, .doc_count = 1, .query_seed = index, .max_tokens = TOKENS};
}

/* All of them wait before the first runs, so that they run together. */
static void
start_all(struct host *host, struct asking *askings[REQUESTS], bool has_endless)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct question question = make_question(i);

        question.max_tokens = has_endless && i == ENDLESS ? ASKING_TOKENS_MAX : TOKENS;
        askings[i] = asking_start(host, &question);
        host_wait_exactly(host, "requests_queued", i + 1);
    }
}

static void
check_alone(struct host *host, uint32_t index, const struct answer *together)
{
    struct question question = make_question(index);
    struct answer *alone = calloc(1, sizeof(*alone));

    ck_assert_ptr_nonnull(alone);
    ask_ok(host, &question, alone);
    answer_assert_same(alone, together);
    free(alone);
}

static uint64_t
play(struct host *host, uint64_t *steps_out)
{
    struct asking *askings[REQUESTS];
    struct answer *together = calloc(REQUESTS, sizeof(*together));

    ck_assert_ptr_nonnull(together);
    start_all(host, askings, false);
    uint32_t worker = host_add_worker(host);

    for (uint32_t i = 0; i < REQUESTS; i++) {
        asking_end(&askings[i], &together[i]);
        ck_assert_msg(together[i].code == KVASIR_OK, "%s", together[i].message);
        ck_assert_uint_eq(together[i].id_count, TOKENS);
    }
    *steps_out = host_worker_by_pid(host, process_pid(host_worker(host, worker))).steps;
    uint64_t preempted = host_counter(host, "requests_preempted");

    for (uint32_t i = 0; i < REQUESTS; i++) {
        check_alone(host, i, &together[i]);
    }
    free(together);
    return preempted;
}

START_TEST(ten_answers_take_turns_of_four_with_the_texts_of_undisturbed_runs)
{
    const struct host_options options = {.worker_args = worker_args};
    struct host *host = host_start(&options);
    uint64_t steps;

    ck_assert_uint_eq(play(host, &steps), 0);
    ck_assert_uint_ge(steps, REQUESTS * (TOKENS - 1) / DECODES);
    host_stop(&host);
}
END_TEST

START_TEST(they_do_so_in_a_pool_in_which_they_are_preempted)
{
    static const char *const daemon_args[] = {"--reserve-tokens", "32", NULL};
    const struct host_options options = {
        .kv_memory = "2560KiB", .worker_args = worker_args, .daemon_args = daemon_args};
    struct host *host = host_start(&options);
    uint64_t steps;

    ck_assert_uint_gt(play(host, &steps), 0);
    host_stop(&host);
}
END_TEST

/* The client of one goes away while it waits for its turn or has it; the others do not notice. */
START_TEST(a_cancelled_answer_leaves_its_turns_to_the_others)
{
    const struct host_options options = {.worker_args = worker_args};
    struct host *host = host_start(&options);
    struct asking *askings[REQUESTS];
    struct answer *together = calloc(REQUESTS, sizeof(*together));

    ck_assert_ptr_nonnull(together);
    start_all(host, askings, true);
    (void)host_add_worker(host);
    asking_wait_tokens(askings[ENDLESS], 20);
    asking_cancel(askings[ENDLESS]);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        asking_end(&askings[i], &together[i]);
        ck_assert_int_eq(together[i].code, i == ENDLESS ? KVASIR_CANCELLED : KVASIR_OK);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (i != ENDLESS) {
            check_alone(host, i, &together[i]);
        }
    }
    host_wait_exactly(host, "blocks_own", 0);
    free(together);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("turns", ten_answers_take_turns_of_four_with_the_texts_of_undisturbed_runs,
           they_do_so_in_a_pool_in_which_they_are_preempted,
           a_cancelled_answer_leaves_its_turns_to_the_others)
