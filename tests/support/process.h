/* SPDX-License-Identifier: Apache-2.0 */
/* process - real programs of the build tree in tests: start, wait for READY=1, signal, stop.
 *
 * A program's stderr is the test's own, so automake's log shows all of them in order.  A program
 * dies with the test that started it, also when an assertion fails.  Every wait has a limit and
 * fails the test when it passes; nothing sleeps.  Functions fail the test (ck_abort) instead of
 * returning errors.
 *
 * KVASIR_TEST_WRAPPER="valgrind -q ..." runs every program under a wrapper. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_ARGS_MAX 64

struct process;

/* The limit of one wait.  It ends what hangs and judges no speed, so it is far from all that a slow
 * and busy machine needs; times CK_TIMEOUT_MULTIPLIER, and at least tenfold under a wrapper. */
int process_patience_ms(void);

/* The time on common/clock.h's clock when that has passed. */
uint64_t process_patience_until_us(void);

/* Starts `program` (relative to the build folder) with `args`, NULL-terminated, without argv[0].
 * Extra environment as NULL-terminated "NAME=VALUE" strings; NULL: none.  The caller owns it. */
struct process *process_start(const char *program, const char *const *args, const char *const *env);

/* Whether it has ended by now. */
bool process_has_ended(struct process *process);

/* What a supervisor keeps over restarts of a service: the fds that came with FDSTORE=1, by name.
 * This is systemd's side of the protocol, written from its manual alone. */
#define PROCESS_STORE_MAX 8
struct process_store {
    size_t count;
    int fds[PROCESS_STORE_MAX];
    char names[PROCESS_STORE_MAX][64];
};

/* The same, as a service with a store: it is passed what is in there, and what it gives to be kept
 * goes there, until process_destroy. */
struct process *process_start_kept(const char *program, const char *const *args,
                                   const char *const *env, struct process_store *store);

/* Reads what the service has sent up to now, without waiting. */
void process_read_notify(struct process *process);

/* The last STATUS= that it sent, "" if none; borrowed until the next read. */
const char *process_status(const struct process *process);

/* Times that it said WATCHDOG=1. */
unsigned process_watchdogs(const struct process *process);

void process_store_close(struct process_store *store);

/* The same as process_start; its stdout can be read with process_output. */
struct process *process_start_piped(const char *program, const char *const *args,
                                    const char *const *env);

/* Waits until the program says READY=1.  It must not end before. */
void process_wait_ready(struct process *process);

/* What else it said with READY=1: a number behind "NAME=", 0 if it did not. */
unsigned process_ready_number(const struct process *process, const char *name);

/* Waits until it has written something to stdout; takes it in. */
void process_wait_output(struct process *process);

/* Everything it writes to stdout until it ends; borrowed until process_destroy. */
const char *process_output(struct process *process);

pid_t process_pid(const struct process *process);
void process_signal(const struct process *process, int signo);

/* Waits for its end; returns the exit status, or 128 + signal as a shell would. */
int process_wait(struct process *process);

/* SIGTERM and a clean end: exit status 0, then destroy. */
void process_stop(struct process **process);

/* Kills it if it still runs.  NULL is fine. */
void process_destroy(struct process **process);

/* Open file descriptors of the program. */
int process_count_fds(const struct process *process);

/* How long each thread of one or more processes could have run and had no processor, from its
 * start to one moment: 0 where the kernel does not tell. */
#define PROCESS_THREADS_MAX 1024
struct process_waits {
    size_t count;
    struct {
        pid_t thread;
        uint64_t waited_us;
    } threads[PROCESS_THREADS_MAX];
};

void process_waits_add(struct process_waits *waits, pid_t pid);

/* The longest that one thread has waited between two moments; one that was not there before, since
 * it started.  It is what a bound on time does not count, or it would judge what else the machine
 * does.  Not a sum: threads wait at the same time, also while the one that they have just woken
 * does, so that on a busy machine a sum is longer than all the time that passed, and excuses any
 * slowness. */
uint64_t process_waits_longest_us(const struct process_waits *before,
                                  const struct process_waits *after);

#endif
