/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/mem.h"

struct pool {
    const struct load *load;
    struct outcome *outcomes;
    uint64_t start_us;
    _Atomic size_t next; /* request to take, from 0 */
    pthread_mutex_t lock;
    size_t done; /* under the lock */
};

struct sender {
    struct pool *pool;
    struct connection *connection;
    pthread_t thread;
    bool has_thread;
};

static void
wait_until(uint64_t due_us)
{
    const struct timespec due = {.tv_sec = (time_t)(due_us / 1000000),
                                 .tv_nsec = (long)(due_us % 1000000) * 1000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {
    }
}

static void *
send_all(void *arg)
{
    struct sender *sender = arg;
    struct pool *pool = sender->pool;
    const struct load *load = pool->load;
    const struct workload *workload = load->run.workload;
    uint64_t origin_us = workload->requests[load->first].arrival_us;
    size_t i;

    while ((i = atomic_fetch_add(&pool->next, 1)) < load->count) {
        const struct workload_request *request = &workload->requests[load->first + i];
        struct outcome *outcome = &pool->outcomes[load->first + i];
        uint64_t due_us = pool->start_us + request->arrival_us - origin_us;

        if (connection_prepare(sender->connection, request) != ST_OK) {
            outcome_begin(outcome, due_us, due_us);
            outcome_end(outcome, status_detail(), due_us);
        } else {
            wait_until(due_us);
            connection_ask(sender->connection, due_us, outcome);
        }
        pthread_mutex_lock(&pool->lock);
        pool->done++;
        if (load->on_progress != NULL) {
            load->on_progress(load->opaque, pool->done);
        }
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

static void
stop(struct sender *senders, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (senders[i].has_thread) {
            pthread_join(senders[i].thread, NULL);
        }
        connection_close(&senders[i].connection);
    }
    mem_free(senders);
}

enum status
load_run(const struct load *load, struct outcome *outcomes, uint64_t *elapsed_us_out)
{
    uint32_t count = load->count < load->concurrency ? (uint32_t)load->count : load->concurrency;
    struct pool pool = {.load = load, .outcomes = outcomes};
    struct sender *senders = mem_zalloc(count, sizeof(*senders));
    enum status st = senders == NULL ? ERR(ST_NO_MEMORY, "%u connections", count) : ST_OK;

    for (uint32_t i = 0; st == ST_OK && i < count; i++) {
        senders[i].pool = &pool;
        st = connection_open(load->target, &load->run, &senders[i].connection);
    }
    pthread_mutex_init(&pool.lock, NULL);
    pool.start_us = clock_now_us();
    for (uint32_t i = 0; st == ST_OK && i < count; i++) {
        int err = pthread_create(&senders[i].thread, NULL, send_all, &senders[i]);

        if (err != 0 && i == 0) {
            st = ERR(ST_SYSTEM, "threads: %s", strerror(err));
        } else if (err != 0) {
            break; /* those that run do all of it */
        }
        senders[i].has_thread = err == 0;
    }
    if (senders != NULL) {
        stop(senders, count);
    }
    pthread_mutex_destroy(&pool.lock);
    *elapsed_us_out = clock_now_us() - pool.start_us;
    return st;
}
