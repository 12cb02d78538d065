/* SPDX-License-Identifier: Apache-2.0 */
/* The harness of the integration tests, tried on programs that every machine has. */
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/support/check_main.h"
#include "tests/support/process.h"

START_TEST(output_and_exit_status_of_a_program_are_seen)
{
    const char *args[] = {"-c", "echo out; echo $WORD; exit 3", NULL};
    const char *env[] = {"WORD=of the environment", NULL};
    struct process *process = process_start_piped("sh", args, env);

    ck_assert_str_eq(process_output(process), "out\nof the environment\n");
    ck_assert_int_eq(process_wait(process), 3);
    process_destroy(&process);
    ck_assert_ptr_null(process);
}
END_TEST

START_TEST(a_kill_is_told_from_an_exit)
{
    const char *args[] = {"-c", "kill -9 $$", NULL};
    struct process *process = process_start("sh", args, NULL);

    ck_assert_int_eq(process_wait(process), 128 + SIGKILL);
    process_destroy(&process);
}
END_TEST

/* python3 is a package of the build; one datagram is all there is to the protocol. */
START_TEST(ready_is_seen_when_the_program_says_it_and_stop_ends_it_cleanly)
{
    const char *args[] = {"-c",
                          "import os,signal,socket\n"
                          "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
                          "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
                          "s.connect('\\0' + os.environ['NOTIFY_SOCKET'][1:])\n"
                          "s.send(b'STATUS=loading')\n"
                          "s.send(b'STATUS=done\\nREADY=1')\n"
                          "signal.sigwait([signal.SIGTERM])\n",
                          NULL};
    struct process *process = process_start("python3", args, NULL);

    process_wait_ready(process);
    ck_assert_int_ge(process_count_fds(process), 3);
    process_stop(&process);
    ck_assert_ptr_null(process);
}
END_TEST

START_TEST(a_program_that_still_runs_is_killed_by_destroy)
{
    const char *args[] = {"-c", "import signal; signal.pause()", NULL};
    struct process *process = process_start("python3", args, NULL);
    pid_t pid = process_pid(process);

    process_destroy(&process);
    ck_assert_int_ne(kill(pid, 0), 0);
}
END_TEST

START_TEST(of_threads_that_wait_at_the_same_time_the_longest_wait_counts)
{
    const struct process_waits none = {0};
    const struct process_waits before = {.count = 3, .threads = {{7, 100}, {8, 5000}, {9, 0}}};
    const struct process_waits after = {.count = 4,
                                        .threads = {{8, 5001}, {7, 400}, {9, 250}, {10, 299}}};

    ck_assert_uint_eq(process_waits_longest_us(&before, &after), 300); /* not 850, nor 5001 */
    ck_assert_uint_eq(process_waits_longest_us(&none, &after), 5001);
    ck_assert_uint_eq(process_waits_longest_us(&before, &before), 0);
    ck_assert_uint_eq(process_waits_longest_us(&before, &none), 0); /* all have ended */
}
END_TEST

/* Computes until it is killed, with us on the one processor that both may use. */
static pid_t
start_rival(void)
{
    cpu_set_t one;
    pid_t parent = getpid();

    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
            _exit(127);
        }
        for (volatile unsigned turns = 0;; turns++) {
        }
    }
    return pid;
}

static struct process_waits
waits_of(pid_t pid)
{
    struct process_waits waits = {0};

    process_waits_add(&waits, pid);
    return waits;
}

START_TEST(who_has_no_processor_waits_and_who_is_stopped_does_not)
{
    struct process_waits before;
    uint64_t waited_us = 0;

    if (access("/proc/self/schedstat", R_OK) != 0) {
        printf("SKIP: this kernel does not tell how long a thread waits\n");
        return;
    }
    uint64_t start_us = clock_now_us(), until_us = process_patience_until_us();
    pid_t rival = start_rival();

    before = waits_of(rival);
    while (waited_us < 20000) {
        ck_assert_msg(clock_now_us() < until_us, "%llu us", (unsigned long long)waited_us);
        struct process_waits now = waits_of(rival);

        waited_us = process_waits_longest_us(&before, &now);
    }
    ck_assert_uint_le(waited_us, clock_now_us() - start_us);

    ck_assert_int_eq(kill(rival, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(rival, NULL, WUNTRACED), rival);
    before = waits_of(rival);
    for (start_us = clock_now_us(); clock_now_us() < start_us + 20000;) {
    }
    struct process_waits after = waits_of(rival);

    ck_assert_uint_eq(process_waits_longest_us(&before, &after), 0);
    ck_assert_int_eq(kill(rival, SIGKILL), 0);
    ck_assert_int_eq(waitpid(rival, NULL, 0), rival);
}
END_TEST

CHECK_MAIN("process", output_and_exit_status_of_a_program_are_seen, a_kill_is_told_from_an_exit,
           ready_is_seen_when_the_program_says_it_and_stop_ends_it_cleanly,
           a_program_that_still_runs_is_killed_by_destroy,
           of_threads_that_wait_at_the_same_time_the_longest_wait_counts,
           who_has_no_processor_waits_and_who_is_stopped_does_not)
