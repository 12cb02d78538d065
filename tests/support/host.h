/* SPDX-License-Identifier: Apache-2.0 */
/* host - a kvasird with its workers in a temporary folder, and what an operator sees of them.
 *
 * Runs the real programs of the build folder on a generated model.  Functions fail the test
 * instead of returning errors. */
#ifndef TESTS_SUPPORT_HOST_H
#define TESTS_SUPPORT_HOST_H

#include <stdint.h>

#include "kvasir/v1/admin.pb-c.h"
#include "model/tiny_model.h"
#include "tests/support/process.h"

#define HOST_WORKERS_MAX 4

struct host_options {
    uint32_t workers;                      /* started at once, 0..HOST_WORKERS_MAX */
    const char *kv_memory;                 /* of kvasird; NULL: "64MiB" */
    const struct tiny_model_config *model; /* NULL: tiny_model_defaults() */
    const char *const *daemon_args;        /* further ones; NULL-terminated; may be NULL */
    const char *const *worker_args;
    const char *const
        *daemon_env; /* of the first daemon, NULL-terminated "NAME=VALUE"; NULL: none */
    bool has_keeper; /* the daemon runs under kvasir-keeper; host_daemon is that */
    const char *const *keeper_args; /* of it */
    bool keeps_pool; /* the daemon has a supervisor with an fd store: see host_restart_daemon */
};

/* One with steps of a few milliseconds: an answer of thousands of tokens that has begun is far from
 * its end, also if whoever waits for that has no processor for seconds. */
struct tiny_model_config host_slow_model(void);

struct host;

/* Starts everything and waits until every worker is ready. */
struct host *host_start(const struct host_options *options);

/* Stops the workers, then the daemon; each must end with status 0 and nothing may be left in the
 * runtime folder.  Destroys the host. */
void host_stop(struct host **host);

/* For a host whose daemon was killed: removes what lies in the runtime folder, and the host. */
void host_abandon(struct host **host);

const char *host_dir(const struct host *host); /* the runtime folder */
struct process *host_daemon(const struct host *host);
struct process *host_worker(const struct host *host, uint32_t index); /* in the order of starting */

/* kill -9 of the daemon, seen to its end.  What it had kept stays for host_restart_daemon. */
void host_kill_daemon(struct host *host);

/* Has the daemon leave pool and workers to the next one. */
void host_leave_daemon(struct host *host);

/* Starts the daemon again, with what the one before had kept; waits until it is ready. */
void host_restart_daemon(struct host *host);

/* The daemon ends by itself, by SIGKILL; waits for that. */
void host_reap_daemon(struct host *host);

/* Starts a daemon that dies before it is ready, and waits for that. */
void host_doom_daemon(struct host *host, const char *const *env);

/* With has_keeper: a signal to kvasird itself; waits until the next one is ready. */
void host_kill_kept_daemon(struct host *host, int signo);

/* What is kept now. */
const struct process_store *host_store(struct host *host);

/* The file that the daemon serves. */
const char *host_model(const struct host *host);

/* Starts one more worker in a free place; waits until kvasird counts on it; returns its index. */
uint32_t host_add_worker(struct host *host);

/* Starts one that may never be ready; returns its index. */
uint32_t host_begin_worker(struct host *host);

/* Waits until one worker is ready: this one, or if it has ended another in its place. */
void host_settle_worker(struct host *host, uint32_t index);

/* Waits for a worker's own end; returns its status as process_wait does.  Its place is free. */
int host_wait_worker(struct host *host, uint32_t index);

/* kill -9 of a worker, seen to its end. */
void host_kill_worker(struct host *host, uint32_t index);

/* The value of a counter or gauge; a name that does not exist fails the test. */
uint64_t host_counter(struct host *host, const char *name);

/* The same for several, of one moment. */
void host_counters(struct host *host, const char *const *names, uint64_t *values_out, size_t count);

/* Waits until a counter or gauge has reached `at_least`, or fallen to `exactly`. */
void host_wait_at_least(struct host *host, const char *name, uint64_t at_least);
void host_wait_exactly(struct host *host, const char *name, uint64_t exactly);

/* Copies what Admin.Workers says about the worker that daemon knows by number `worker`, or by pid.
 * */
struct host_worker_info {
    uint32_t worker, running;
    uint64_t steps, rows, docs_built, docs_read, docs_read_foreign;
};
struct host_worker_info host_worker_by_pid(struct host *host, pid_t pid);

/* Admin.Evict; returns how many blocks went. */
uint32_t host_evict(struct host *host, uint32_t blocks);

/* The number that Admin.Requests shows of the only request there. */
uint64_t host_only_request(struct host *host);

/* Until `count` requests are there and each has tokens. */
void host_wait_answering(struct host *host, size_t count);

/* Cancels by that number; must be OK whatever the number is. */
void host_cancel_request(struct host *host, uint64_t id);

/* Rag.Cancel of a call that our connection has not made; must be OK. */
void host_cancel_call(struct host *host, uint64_t request_id);

/* Admin.Drain of one worker, and back. */
void host_drain(struct host *host, uint32_t worker, bool resume);

#endif
