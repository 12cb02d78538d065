/* SPDX-License-Identifier: Apache-2.0 */
/* The harness of the integration tests, tried on programs that every machine has. */
#include <stdlib.h>

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

CHECK_MAIN("process", output_and_exit_status_of_a_program_are_seen, a_kill_is_told_from_an_exit,
           ready_is_seen_when_the_program_says_it_and_stop_ends_it_cleanly,
           a_program_that_still_runs_is_killed_by_destroy)
