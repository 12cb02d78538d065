/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/host.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>

#include "client/rpc.h"
#include "common/clock.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/endpoints.h"

#define PATH_MAX_HERE 96 /* of the folders, so that a socket's path always fits */
#define LOOK_EVERY_MS 1  /* between two looks at a counter */

struct host {
    char root[PATH_MAX_HERE]; /* holds the model and the runtime folder */
    char dir[PATH_MAX_HERE + 8];
    char model[PATH_MAX_HERE + 16];
    struct host_options options;
    const char *const *worker_args;
    struct process_store store;
    struct process *daemon;
    struct process *workers[HOST_WORKERS_MAX];
    struct rpc *admin;
};

struct tiny_model_config
host_slow_model(void)
{
    struct tiny_model_config model = tiny_model_defaults();

    model.L = 4;
    model.C = 256;
    model.F = 1024;
    return model;
}

static size_t
append_args(const char **args, size_t count, const char *const *more)
{
    for (; more != NULL && *more != NULL; more++) {
        ck_assert_uint_lt(count, PROCESS_ARGS_MAX);
        args[count++] = *more;
    }
    args[count] = NULL;
    return count;
}

static void
make_folders(struct host *host, const struct tiny_model_config *model)
{
    const char *tmp = getenv("TMPDIR");
    struct tiny_model_config config = model == NULL ? tiny_model_defaults() : *model;

    (void)snprintf(host->root, sizeof(host->root), "%s/kvasir-test.XXXXXX",
                   tmp == NULL || strlen(tmp) > PATH_MAX_HERE / 2 ? "/tmp" : tmp);
    ck_assert_ptr_nonnull(mkdtemp(host->root));
    (void)snprintf(host->dir, sizeof(host->dir), "%s/run", host->root);
    ck_assert_int_eq(mkdir(host->dir, 0700), 0);
    (void)snprintf(host->model, sizeof(host->model), "%s/tiny.gguf", host->root);
    ck_assert_msg(tiny_model_write(&config, host->model) == ST_OK, "%s", status_detail());
}

static void
start_daemon(struct host *host, const char *const *env, bool is_doomed)
{
    const struct host_options *options = &host->options;
    const char *const own[] = {"--runtime-dir",
                               host->dir,
                               "--model",
                               host->model,
                               "--kv-memory",
                               options->kv_memory == NULL ? "64MiB" : options->kv_memory,
                               NULL};
    const char *args[PROCESS_ARGS_MAX + 1];
    /* A wrapper slows so much down that a living worker may be silent for the default time. */
    const char *const slow[] = {"--heartbeat", "10s", "--worker-liveness", "2min", NULL};
    const char *const program[] = {"./kvasird", NULL};
    size_t count = append_args(args, 0, options->has_keeper ? options->keeper_args : NULL);

    count = append_args(args, count, options->has_keeper ? program : NULL);
    count = append_args(args, count, own);
    count = append_args(args, count, getenv("KVASIR_TEST_WRAPPER") == NULL ? NULL : slow);
    (void)append_args(args, count, options->daemon_args);
    host->daemon =
        options->keeps_pool
            ? process_start_kept("./kvasird", args, env, &host->store)
            : process_start(options->has_keeper ? "./kvasir-keeper" : "./kvasird", args, env);
    if (!is_doomed) {
        process_wait_ready(host->daemon);
    }
}

static struct process *
start_worker(const struct host *host)
{
    const char *args[PROCESS_ARGS_MAX + 1] = {"--runtime-dir", host->dir, "--poison"};

    (void)append_args(args, 3, host->worker_args);
    return process_start("./kvasir-worker", args, NULL);
}

struct host *
host_start(const struct host_options *options)
{
    struct host *host = calloc(1, sizeof(*host));
    char url[ENDPOINT_URL_MAX];

    ck_assert_ptr_nonnull(host);
    ck_assert_uint_le(options->workers, HOST_WORKERS_MAX);
    make_folders(host, options->model);
    host->worker_args = options->worker_args;
    host->options = *options;
    start_daemon(host, options->daemon_env, false);
    for (uint32_t i = 0; i < options->workers; i++) {
        host->workers[i] = start_worker(host);
    }
    for (uint32_t i = 0; i < options->workers; i++) {
        process_wait_ready(host->workers[i]);
    }
    ck_assert_int_eq(endpoint_url(host->dir, ENDPOINT_ADMIN, url), ST_OK);
    ck_assert_msg(rpc_open(url, &host->admin) == ST_OK, "%s", status_detail());
    host_wait_exactly(host, "workers_ready", options->workers);
    return host;
}

/* --- restarts --------------------------------------------------------------------------------- */

void
host_kill_daemon(struct host *host)
{
    process_signal(host->daemon, SIGKILL);
    ck_assert_int_eq(process_wait(host->daemon), 128 + SIGKILL);
    process_destroy(&host->daemon);
}

void
host_leave_daemon(struct host *host)
{
    process_signal(host->daemon, SIGUSR2);
    ck_assert_int_eq(process_wait(host->daemon), 0);
    process_destroy(&host->daemon);
}

void
host_restart_daemon(struct host *host)
{
    ck_assert_ptr_null(host->daemon);
    start_daemon(host, NULL, false);
}

void
host_reap_daemon(struct host *host)
{
    ck_assert_int_eq(process_wait(host->daemon), 128 + SIGKILL);
    process_destroy(&host->daemon);
}

void
host_doom_daemon(struct host *host, const char *const *env)
{
    ck_assert_ptr_null(host->daemon);
    start_daemon(host, env, true);
    host_reap_daemon(host);
}

void
host_kill_kept_daemon(struct host *host, int signo)
{
    char path[64];
    FILE *file;
    int pid = 0;

    process_read_notify(host->daemon); /* or an earlier READY would count */
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", process_pid(host->daemon),
                   process_pid(host->daemon));
    file = fopen(path, "re");
    ck_assert_msg(file != NULL && fscanf(file, "%d", &pid) == 1, "%s names no child", path);
    (void)fclose(file);
    ck_assert_int_eq(kill(pid, signo), 0);
    process_wait_ready(host->daemon);
}

const struct process_store *
host_store(struct host *host)
{
    if (host->daemon != NULL) {
        process_read_notify(host->daemon);
    }
    return &host->store;
}

const char *
host_model(const struct host *host)
{
    return host->model;
}

/* --- its end ---------------------------------------------------------------------------------- */

static void
assert_empty(const char *path)
{
    DIR *folder = opendir(path);

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        ck_assert_msg(entry->d_name[0] == '.', "left behind: %s/%s", path, entry->d_name);
    }
    (void)closedir(folder);
}

static void
empty(const char *path)
{
    DIR *folder = opendir(path);

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            ck_assert_int_eq(unlinkat(dirfd(folder), entry->d_name, 0), 0);
        }
    }
    (void)closedir(folder);
}

/* Takes the folders away; the runtime folder must be empty. */
static void
destroy(struct host **host)
{
    struct host *h = *host;

    process_store_close(&h->store);
    ck_assert_int_eq(unlink(h->model), 0);
    ck_assert_int_eq(rmdir(h->dir), 0);
    ck_assert_int_eq(rmdir(h->root), 0);
    free(h);
    *host = NULL;
}

void
host_stop(struct host **host)
{
    struct host *h = *host;

    rpc_close(&h->admin);
    for (uint32_t i = 0; i < HOST_WORKERS_MAX; i++) {
        if (h->workers[i] != NULL) {
            process_stop(&h->workers[i]);
        }
    }
    process_stop(&h->daemon);
    assert_empty(h->dir);
    destroy(host);
}

void
host_abandon(struct host **host)
{
    struct host *h = *host;

    rpc_close(&h->admin);
    for (uint32_t i = 0; i < HOST_WORKERS_MAX; i++) {
        process_destroy(&h->workers[i]);
    }
    process_destroy(&h->daemon);
    empty(h->dir);
    destroy(host);
}

const char *
host_dir(const struct host *host)
{
    return host->dir;
}

struct process *
host_daemon(const struct host *host)
{
    return host->daemon;
}

struct process *
host_worker(const struct host *host, uint32_t index)
{
    ck_assert_ptr_nonnull(host->workers[index]);
    return host->workers[index];
}

uint32_t
host_begin_worker(struct host *host)
{
    uint32_t index = 0;

    while (index < HOST_WORKERS_MAX && host->workers[index] != NULL) {
        index++;
    }
    ck_assert_uint_lt(index, HOST_WORKERS_MAX);
    host->workers[index] = start_worker(host);
    return index;
}

void
host_settle_worker(struct host *host, uint32_t index)
{
    while (host_counter(host, "workers_ready") != 1) {
        if (process_has_ended(host->workers[index])) {
            process_destroy(&host->workers[index]);
            ck_assert_uint_eq(host_add_worker(host), index);
        }
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

int
host_wait_worker(struct host *host, uint32_t index)
{
    int status = process_wait(host_worker(host, index));

    process_destroy(&host->workers[index]);
    return status;
}

void
host_kill_worker(struct host *host, uint32_t index)
{
    process_signal(host_worker(host, index), SIGKILL);
    ck_assert_int_eq(host_wait_worker(host, index), 128 + SIGKILL);
}

/* --- what an operator sees ------------------------------------------------------------------- */

static const ProtobufCMessage *
call_admin(struct host *host, enum method_id method, const ProtobufCMessage *request)
{
    const ProtobufCMessage *reply = NULL;
    struct rpc_call call = {
        .method = method, .request = request, .timeout_ms = (uint32_t)process_patience_ms()};
    enum rpc_code code = rpc_call(host->admin, &call, &reply);

    ck_assert_msg(code == RPC_OK, "%s: %s: %s", method_get(method)->path, rpc_code_name(code),
                  rpc_message(host->admin));
    return reply;
}

static bool
is_serving(struct host *host, pid_t pid)
{
    const Kvasir__V1__WorkersReply *reply =
        (const Kvasir__V1__WorkersReply *)call_admin(host, METHOD_WORKERS, NULL);

    for (size_t i = 0; i < reply->n_workers; i++) {
        if ((pid_t)reply->workers[i]->pid == pid) {
            return strcmp(reply->workers[i]->state, "attaching") != 0;
        }
    }
    return false;
}

/* Its own READY=1 may come before kvasird has heard that it is. */
uint32_t
host_add_worker(struct host *host)
{
    uint32_t index = host_begin_worker(host);
    uint64_t limit_us = process_patience_until_us();

    process_wait_ready(host->workers[index]);
    while (!is_serving(host, process_pid(host->workers[index]))) {
        ck_assert_msg(clock_now_us() < limit_us, "kvasird does not take the worker");
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
    return index;
}

static bool
find_counter(Kvasir__V1__Counter **counters, size_t count, const char *name, uint64_t *value_out)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(counters[i]->name, name) == 0) {
            *value_out = counters[i]->value;
            return true;
        }
    }
    return false;
}

void
host_counters(struct host *host, const char *const *names, uint64_t *values_out, size_t count)
{
    const Kvasir__V1__StatsReply *stats =
        (const Kvasir__V1__StatsReply *)call_admin(host, METHOD_STATS, NULL);

    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(find_counter(stats->counters, stats->n_counters, names[i], &values_out[i])
                          || find_counter(stats->gauges, stats->n_gauges, names[i], &values_out[i]),
                      "Admin.Stats has no \"%s\"", names[i]);
    }
}

uint64_t
host_counter(struct host *host, const char *name)
{
    uint64_t value = 0;

    host_counters(host, &name, &value, 1);
    return value;
}

void
host_wait_at_least(struct host *host, const char *name, uint64_t at_least)
{
    uint64_t limit_us = process_patience_until_us();

    for (uint64_t value = host_counter(host, name); value < at_least;
         value = host_counter(host, name)) {
        ck_assert_msg(clock_now_us() < limit_us, "%s is %llu and does not reach %llu", name,
                      (unsigned long long)value, (unsigned long long)at_least);
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

void
host_wait_exactly(struct host *host, const char *name, uint64_t exactly)
{
    uint64_t limit_us = process_patience_until_us();

    for (uint64_t value = host_counter(host, name); value != exactly;
         value = host_counter(host, name)) {
        ck_assert_msg(clock_now_us() < limit_us, "%s is %llu and does not become %llu", name,
                      (unsigned long long)value, (unsigned long long)exactly);
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

struct host_worker_info
host_worker_by_pid(struct host *host, pid_t pid)
{
    const Kvasir__V1__WorkersReply *reply =
        (const Kvasir__V1__WorkersReply *)call_admin(host, METHOD_WORKERS, NULL);

    for (size_t i = 0; i < reply->n_workers; i++) {
        const Kvasir__V1__WorkerInfo *info = reply->workers[i];
        if ((pid_t)info->pid == pid) {
            return (struct host_worker_info){
                .worker = info->worker,
                .running = info->running,
                .steps = info->steps,
                .rows = info->rows,
                .docs_built = info->docs_built,
                .docs_read = info->docs_read,
                .docs_read_foreign = info->docs_read_foreign,
            };
        }
    }
    ck_abort_msg("Admin.Workers knows no worker with pid %d", pid);
    return (struct host_worker_info){0};
}

void
host_drain(struct host *host, uint32_t worker, bool resume)
{
    Kvasir__V1__DrainRequest request = KVASIR__V1__DRAIN_REQUEST__INIT;

    request.has_worker = true;
    request.worker = worker;
    request.has_resume = true;
    request.resume = resume;
    (void)call_admin(host, METHOD_DRAIN, &request.base);
}

uint32_t
host_evict(struct host *host, uint32_t blocks)
{
    Kvasir__V1__EvictRequest request = KVASIR__V1__EVICT_REQUEST__INIT;

    request.has_blocks = true;
    request.blocks = blocks;
    return ((const Kvasir__V1__EvictReply *)call_admin(host, METHOD_EVICT, &request.base))->blocks;
}

uint64_t
host_only_request(struct host *host)
{
    const Kvasir__V1__RequestsReply *reply =
        (const Kvasir__V1__RequestsReply *)call_admin(host, METHOD_REQUESTS, NULL);

    ck_assert_uint_eq(reply->n_requests, 1);
    return reply->requests[0]->id;
}

static size_t
count_answering(struct host *host)
{
    const Kvasir__V1__RequestsReply *reply =
        (const Kvasir__V1__RequestsReply *)call_admin(host, METHOD_REQUESTS, NULL);
    size_t count = 0;

    for (size_t i = 0; i < reply->n_requests; i++) {
        count += reply->requests[i]->completion_tokens > 0;
    }
    return count;
}

void
host_wait_answering(struct host *host, size_t count)
{
    uint64_t limit_us = process_patience_until_us();

    for (size_t have = count_answering(host); have < count; have = count_answering(host)) {
        ck_assert_msg(clock_now_us() < limit_us, "%zu and not %zu requests have tokens", have,
                      count);
        (void)poll(NULL, 0, LOOK_EVERY_MS);
    }
}

void
host_cancel_request(struct host *host, uint64_t id)
{
    Kvasir__V1__AdminCancelRequest request = KVASIR__V1__ADMIN_CANCEL_REQUEST__INIT;

    request.has_id = true;
    request.id = id;
    (void)call_admin(host, METHOD_ADMIN_CANCEL, &request.base);
}

void
host_cancel_call(struct host *host, uint64_t request_id)
{
    Kvasir__V1__CancelRequest request = KVASIR__V1__CANCEL_REQUEST__INIT;

    request.has_request_id = true;
    request.request_id = request_id;
    (void)call_admin(host, METHOD_CANCEL, &request.base);
}
