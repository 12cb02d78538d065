/* SPDX-License-Identifier: Apache-2.0 */
/* Start, ask, stop: nothing is left, and nothing grows meanwhile.  test_valgrind.sh runs this
 * program again with everything under valgrind. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/endpoints.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define ROUNDS 10

/* host_stop holds the rest: exit status 0, and no file in the runtime folder. */
START_TEST(start_ask_stop_leaves_nothing)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});
    const struct asking_doc docs[] = {{40, 1}, {33, 2}};
    struct question question = {.docs = docs, .doc_count = 2};
    struct answer answer;
    pid_t pids[3] = {process_pid(host_daemon(host)), process_pid(host_worker(host, 0)),
                     process_pid(host_worker(host, 1))};

    ask_ok(host, &question, &answer);
    host_stop(&host);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_ne(kill(pids[i], 0), 0);
    }
}
END_TEST

START_TEST(a_daemon_without_workers_stops_as_cleanly)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});

    host_stop(&host);
}
END_TEST

/* Who may call is who may write to a socket; who may attach is kvasird's own user. */
START_TEST(sockets_are_for_the_owner_and_his_group)
{
    static const struct {
        const char *name;
        unsigned mode;
    } sockets[] = {{ENDPOINT_CLIENT, 0660},
                   {ENDPOINT_ADMIN, 0660},
                   {ENDPOINT_WORKER, 0600},
                   {ENDPOINT_ATTACH, 0600}};
    struct host *host = host_start(&(struct host_options){.workers = 0});

    for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++) {
        char path[512];
        struct stat info;

        (void)snprintf(path, sizeof(path), "%s/%s", host_dir(host), sockets[i].name);
        ck_assert_int_eq(stat(path, &info), 0);
        ck_assert(S_ISSOCK(info.st_mode));
        ck_assert_msg((info.st_mode & 0777) == sockets[i].mode, "%s has mode %03o", path,
                      info.st_mode & 0777);
    }
    host_stop(&host);
}
END_TEST

START_TEST(a_daemon_that_stops_takes_its_workers_with_it)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});

    process_signal(host_daemon(host), SIGTERM);
    ck_assert_int_eq(process_wait(host_daemon(host)), 0);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    ck_assert_int_eq(host_wait_worker(host, 1), 0);
    host_stop(&host);
}
END_TEST

/* With a status that lets a service manager start it again. */
START_TEST(a_worker_ends_by_itself_when_no_daemon_follows_the_one_that_was_killed)
{
    const char *const args[] = {"--orphan-timeout", "100ms", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});

    process_signal(host_daemon(host), SIGKILL);
    ck_assert_int_eq(process_wait(host_daemon(host)), 128 + SIGKILL);
    ck_assert_int_eq(host_wait_worker(host, 0), 1);
    host_abandon(&host);
}
END_TEST

/* A client's connection closes some time after the client. */
static void
wait_fds_at_most(const struct process *process, int at_most)
{
    uint64_t limit_us = process_patience_until_us();

    for (int count = process_count_fds(process); count > at_most;
         count = process_count_fds(process)) {
        ck_assert_msg(clock_now_us() < limit_us, "%d descriptors, and they stay more than %d",
                      count, at_most);
        (void)poll(NULL, 0, 1);
    }
}

START_TEST(questions_open_no_descriptor_that_stays)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    const struct asking_doc docs[] = {{40, 1}};
    struct question question = {.docs = docs, .doc_count = 1};
    struct answer answer;

    ask_ok(host, &question, &answer);
    int daemon_fds = process_count_fds(host_daemon(host));
    int worker_fds = process_count_fds(host_worker(host, 0));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        question.query_seed = i;
        ask_ok(host, &question, &answer);
    }
    wait_fds_at_most(host_daemon(host), daemon_fds);
    ck_assert_int_eq(process_count_fds(host_worker(host, 0)), worker_fds);
    host_stop(&host);
}
END_TEST

static void
write_config(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(a_sighup_takes_what_may_change_and_refuses_what_is_wrong)
{
    char path[] = "/tmp/kvasir-reload.XXXXXX";
    const char *const args[] = {"--config", path, NULL};
    struct question question = {.max_tokens = 4};
    struct answer answer;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    write_config(path, "max-waiting = 100\n");
    struct host *host = host_start(&(struct host_options){.workers = 0, .daemon_args = args});

    write_config(path, "max-waiting = 1\nblock-tokens = 64\n");
    process_signal(host_daemon(host), SIGHUP);
    process_wait_ready(host_daemon(host));
    write_config(path, "max-waiting = nonsense\n"); /* changes nothing */
    process_signal(host_daemon(host), SIGHUP);
    process_wait_ready(host_daemon(host));
    struct asking *asking = asking_start(host, &question);

    host_wait_exactly(host, "requests_queued", 1);
    ask(host, &question, &answer);
    ck_assert_int_eq(answer.code, KVASIR_RESOURCE_EXHAUSTED);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    ck_assert_int_eq(answer.code, KVASIR_OK);
    ck_assert_int_eq(unlink(path), 0);
    host_stop(&host);
}
END_TEST

/* A service manager need not try again. */
START_TEST(wrong_options_end_each_program_with_status_2)
{
    static const char *const programs[] = {"./kvasird", "./kvasir-worker", "./kvasir-gateway",
                                           "./kvasir-keeper"};
    static const char *const args[] = {"--log-level", "loud", NULL};

    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        struct process *process = process_start(programs[i], args, NULL);

        ck_assert_int_eq(process_wait(process), 2);
        process_destroy(&process);
    }
}
END_TEST

CHECK_MAIN("start_stop", a_sighup_takes_what_may_change_and_refuses_what_is_wrong,
           start_ask_stop_leaves_nothing, a_daemon_without_workers_stops_as_cleanly,
           sockets_are_for_the_owner_and_his_group, a_daemon_that_stops_takes_its_workers_with_it,
           a_worker_ends_by_itself_when_no_daemon_follows_the_one_that_was_killed,
           questions_open_no_descriptor_that_stays, wrong_options_end_each_program_with_status_2)
