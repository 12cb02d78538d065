/* SPDX-License-Identifier: Apache-2.0 */
/* A worker dies in the middle of an answer: the client sees a pause and the same text. */
#include <signal.h>
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/failing_ops.h"

#define ANSWER_TOKENS 1500
#define TOKENS_BEFORE 20

static const struct asking_doc documents[] = {{100, 1}, {33, 2}};
static const struct question question = {
    .docs = documents, .doc_count = 2, .max_tokens = ANSWER_TOKENS};

static uint32_t
find_running(struct host *host)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (host_worker_by_pid(host, process_pid(host_worker(host, i))).running > 0) {
            return i;
        }
    }
    ck_abort_msg("no worker runs anything");
    return 0;
}

START_TEST(an_answer_goes_on_after_its_worker_was_killed)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});
    struct answer undisturbed, answer;
    struct asking *asking;

    ask_ok(host, &question, &undisturbed);
    asking = asking_start(host, &question);
    asking_wait_tokens(asking, TOKENS_BEFORE);
    host_kill_worker(host, find_running(host));
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 1);
    ck_assert_uint_eq(host_counter(host, "workers_lost"), 1);
    host_wait_exactly(host, "blocks_quarantined", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(an_answer_waits_for_a_new_worker_when_the_only_one_was_killed)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer undisturbed, answer;
    struct asking *asking;

    ask_ok(host, &question, &undisturbed);
    asking = asking_start(host, &question);
    asking_wait_tokens(asking, TOKENS_BEFORE);
    host_kill_worker(host, 0);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    host_stop(&host);
}
END_TEST

/* A worker on a device that fails after some steps; its log comes through its stdout. */
static struct process *
start_failing_worker(const struct host *host, const char *steps)
{
    const char *const args[] = {"-c",
                                "exec ./tests/support/failing_worker --runtime-dir \"$0\" 2>&1",
                                host_dir(host), NULL};
    const char *const env[] = {steps, NULL};
    struct process *worker = process_start_piped("/bin/sh", args, env);

    process_wait_ready(worker);
    return worker;
}

static void
assert_last_line_names(const char *log, const char *detail)
{
    const char *line = strstr(log, "worker_failed");

    ck_assert_msg(line != NULL && strstr(line, detail) != NULL, "log: %s", log);
    ck_assert_msg(strchr(line, '\n') == line + strlen(line) - 1, "not the last line: %s", line);
}

START_TEST(a_worker_whose_device_fails_ends_at_once_and_its_answer_goes_on_elsewhere)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer undisturbed, answer;
    struct asking *asking;
    struct process *worker;

    ask_ok(host, &question, &undisturbed);
    host_drain(host, host_worker_by_pid(host, process_pid(host_worker(host, 0))).worker, false);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    worker = start_failing_worker(host, "KVASIR_TEST_STEPS=40");
    asking = asking_start(host, &question);
    ck_assert_int_eq(process_wait(worker), 1);
    assert_last_line_names(process_output(worker), "engine: " FAILING_OPS_DETAIL);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 1);
    host_wait_exactly(host, "blocks_quarantined", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    process_destroy(&worker);
    host_stop(&host);
}
END_TEST

START_TEST(a_silent_worker_is_given_up_and_its_blocks_are_held_until_it_is_gone)
{
    const char *const args[] = {"--heartbeat", "200ms", "--worker-liveness", "2s", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 2, .daemon_args = args});
    struct answer undisturbed, answer;
    struct asking *asking;
    uint32_t silent;

    ask_ok(host, &question, &undisturbed);
    asking = asking_start(host, &question);
    asking_wait_tokens(asking, TOKENS_BEFORE);
    silent = find_running(host);
    ck_assert_int_eq(kill(process_pid(host_worker(host, silent)), SIGSTOP), 0);
    asking_end(&asking, &answer); /* the other one has finished it */
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 1);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    ck_assert_uint_gt(host_counter(host, "blocks_quarantined"), 0);

    /* It wakes up, learns that it is fenced, and ends; only then its blocks are free. */
    ck_assert_int_eq(kill(process_pid(host_worker(host, silent)), SIGCONT), 0);
    ck_assert_int_ne(host_wait_worker(host, silent), 0);
    host_wait_exactly(host, "blocks_quarantined", 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("worker_loss", an_answer_goes_on_after_its_worker_was_killed,
           an_answer_waits_for_a_new_worker_when_the_only_one_was_killed,
           a_worker_whose_device_fails_ends_at_once_and_its_answer_goes_on_elsewhere,
           a_silent_worker_is_given_up_and_its_blocks_are_held_until_it_is_gone)
