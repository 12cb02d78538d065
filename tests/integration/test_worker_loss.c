/* SPDX-License-Identifier: Apache-2.0 */
/* A worker dies in the middle of an answer: the client sees a pause and the same text. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/failing_ops.h"

#define STANDSTILL_MS 6000 /* longer than --worker-liveness and five heartbeats */
#define ANSWER_TOKENS 300
#define STEPS         "KVASIR_TEST_STEPS=40" /* of a worker until something happens to it */

static const struct asking_doc documents[] = {{100, 1}, {33, 2}};
static const struct question question = {
    .docs = documents, .doc_count = 2, .max_tokens = ANSWER_TOKENS};

/* A FIFO beside the sockets: a failing worker waits at it until let_it_fail(). */
static void
hold_path(const struct host *host, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/fail-now", host_dir(host));
}

static void
let_it_fail(const struct host *host)
{
    char path[PATH_MAX];

    hold_path(host, path, sizeof(path));
    int fd = open(path, O_WRONLY | O_CLOEXEC); /* blocks until the worker waits */

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(unlink(path), 0);
}

/* A worker to which something happens after some steps, in the middle of an answer however busy the
 * machine is: its device fails, or it gets a signal.  It waits for let_it_fail() before, or what it
 * sent could still be on its way when it stops.  Its log comes through its stdout. */
static struct process *
start_failing_worker(const struct host *host, int signo)
{
    const char *const args[] = {"-c",
                                "exec ./tests/support/failing_worker --runtime-dir \"$0\" 2>&1",
                                host_dir(host), NULL};
    char signal_text[32], path[PATH_MAX], hold_text[sizeof("KVASIR_TEST_HOLD=") + sizeof(path)];
    const char *const env[] = {STEPS, signal_text, hold_text, NULL};

    hold_path(host, path, sizeof(path));
    ck_assert_int_eq(mkfifo(path, S_IRUSR | S_IWUSR), 0);
    (void)snprintf(signal_text, sizeof(signal_text), "KVASIR_TEST_SIGNAL=%d", signo);
    (void)snprintf(hold_text, sizeof(hold_text), "KVASIR_TEST_HOLD=%s", path);
    struct process *worker = process_start_piped("/bin/sh", args, env);

    process_wait_ready(worker);
    return worker;
}

/* Lets such a worker begin the answer, and the healthy one take part from then on. */
static struct asking *
begin_on_failing_worker(struct host *host, int signo, struct process **worker_out)
{
    uint32_t healthy = host_worker_by_pid(host, process_pid(host_worker(host, 0))).worker;

    host_drain(host, healthy, false);
    *worker_out = start_failing_worker(host, signo);
    struct asking *asking = asking_start(host, &question);

    asking_wait_tokens(asking, 1);
    host_drain(host, healthy, true);
    let_it_fail(host);
    return asking;
}

static void
assert_goes_on(struct host *host, struct asking **asking, const struct answer *undisturbed)
{
    struct answer answer;

    asking_end(asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(undisturbed, &answer);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 1);
    ck_assert_uint_eq(host_counter(host, "workers_lost"), 1);
}

START_TEST(an_answer_goes_on_after_its_worker_was_killed)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer undisturbed;
    struct process *worker;

    ask_ok(host, &question, &undisturbed);
    struct asking *asking = begin_on_failing_worker(host, SIGKILL, &worker);

    ck_assert_int_eq(process_wait(worker), 128 + SIGKILL);
    assert_goes_on(host, &asking, &undisturbed);
    host_wait_exactly(host, "blocks_quarantined", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    process_destroy(&worker);
    host_stop(&host);
}
END_TEST

START_TEST(an_answer_waits_for_a_new_worker_when_the_only_one_was_killed)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    struct process *worker = start_failing_worker(host, SIGKILL);
    struct asking *asking = asking_start(host, &question);
    struct answer undisturbed, answer;

    let_it_fail(host);
    ck_assert_int_eq(process_wait(worker), 128 + SIGKILL);
    host_wait_exactly(host, "workers_ready", 0);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    ask_ok(host, &question, &undisturbed);
    answer_assert_same(&undisturbed, &answer);
    process_destroy(&worker);
    host_stop(&host);
}
END_TEST

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
    struct answer undisturbed;
    struct process *worker;

    ask_ok(host, &question, &undisturbed);
    struct asking *asking = begin_on_failing_worker(host, 0, &worker);

    ck_assert_int_eq(process_wait(worker), 1);
    assert_last_line_names(process_output(worker), "engine: " FAILING_OPS_DETAIL);
    assert_goes_on(host, &asking, &undisturbed);
    host_wait_exactly(host, "blocks_quarantined", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    process_destroy(&worker);
    host_stop(&host);
}
END_TEST

START_TEST(a_silent_worker_is_given_up_and_its_blocks_are_held_until_it_is_gone)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer undisturbed;
    struct process *worker;

    ask_ok(host, &question, &undisturbed);
    struct asking *asking = begin_on_failing_worker(host, SIGSTOP, &worker);

    assert_goes_on(host, &asking, &undisturbed);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    ck_assert_uint_gt(host_counter(host, "blocks_quarantined"), 0);

    /* It wakes up, learns that it is fenced, and ends; only then its blocks are free. */
    process_signal(worker, SIGCONT);
    ck_assert_int_ne(process_wait(worker), 0);
    host_wait_exactly(host, "blocks_quarantined", 0);
    process_destroy(&worker);
    host_stop(&host);
}
END_TEST

/* Wherever in a turn it was that the worker stood still: here it has just reported a step. */
START_TEST(a_worker_that_stood_still_in_the_middle_of_a_turn_has_lost_nobody)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    const char *const args[] = {"--runtime-dir", host_dir(host), NULL};
    const char *const env[] = {"KVASIR_FAILPOINTS=step_send=stop@9", NULL};
    struct answer undisturbed, answer;
    siginfo_t info;
    uint64_t lost;

    ask_ok(host, &question, &undisturbed);
    process_signal(host_worker(host, 0), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    struct process *worker = process_start("./kvasir-worker", args, env);
    struct asking *asking = asking_start(host, &question);

    ck_assert_int_eq(waitid(P_PID, (id_t)process_pid(worker), &info, WSTOPPED | WNOWAIT), 0);
    lost = host_counter(host, "workers_lost");
    process_signal(host_daemon(host), SIGSTOP);
    (void)poll(NULL, 0, STANDSTILL_MS);
    process_signal(worker, SIGCONT);
    process_signal(host_daemon(host), SIGCONT);
    asking_end(&asking, &answer);
    answer_assert_same(&undisturbed, &answer);
    ck_assert_uint_eq(host_counter(host, "workers_lost"), lost);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 0);
    process_stop(&worker);
    host_stop(&host);
}
END_TEST

/* A virtual machine that is paused: all stop, and go on some time later.  Whoever wakes up first
 * has heard nothing for long. */
START_TEST(a_host_that_stood_still_has_lost_nobody)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer undisturbed;

    ask_ok(host, &question, &undisturbed);
    for (int i = 0; i < 2; i++) {
        struct process *first = i == 0 ? host_daemon(host) : host_worker(host, 0);
        struct process *second = i == 0 ? host_worker(host, 0) : host_daemon(host);
        struct asking *asking = asking_start(host, &question);
        struct answer answer;

        asking_wait_tokens(asking, 1);
        process_signal(first, SIGSTOP);
        process_signal(second, SIGSTOP);
        (void)poll(NULL, 0, STANDSTILL_MS);
        process_signal(first, SIGCONT);
        process_signal(second, SIGCONT);
        asking_end(&asking, &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
        answer_assert_same(&undisturbed, &answer);
    }
    ck_assert_uint_eq(host_counter(host, "workers_lost"), 0);
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("worker_loss", an_answer_goes_on_after_its_worker_was_killed,
           an_answer_waits_for_a_new_worker_when_the_only_one_was_killed,
           a_worker_whose_device_fails_ends_at_once_and_its_answer_goes_on_elsewhere,
           a_silent_worker_is_given_up_and_its_blocks_are_held_until_it_is_gone,
           a_worker_that_stood_still_in_the_middle_of_a_turn_has_lost_nobody,
           a_host_that_stood_still_has_lost_nobody)
