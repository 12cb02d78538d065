/* SPDX-License-Identifier: Apache-2.0 */
/* A job is published under the lock with a new number; helpers that see the number change take
 * units from an atomic counter until none is left, and the last one out wakes the caller. */
#include "kernels/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/mem.h"

#define DETAIL_BYTES 256

struct threads {
    pthread_mutex_t lock;
    pthread_cond_t has_job;
    pthread_cond_t is_done;
    pthread_t *helpers;
    uint32_t n_helpers; /* started */

    /* Guarded by lock. */
    uint64_t job_number;
    uint32_t n_inside; /* helpers that have not finished the present job */
    bool must_stop;
    uint32_t failed_unit;
    enum status failed_status;
    char failed_detail[DETAIL_BYTES];

    /* Written under lock before job_number; read by helpers after it. */
    threads_unit_fn fn;
    const void *job;
    uint32_t n_units;
    _Atomic uint32_t next_unit;
};

static void
record_failure(struct threads *threads, uint32_t unit, enum status st)
{
    pthread_mutex_lock(&threads->lock);
    if (threads->failed_status == ST_OK || unit < threads->failed_unit) {
        threads->failed_unit = unit;
        threads->failed_status = st;
        snprintf(threads->failed_detail, sizeof(threads->failed_detail), "%s", status_detail());
    }
    pthread_mutex_unlock(&threads->lock);
}

static void
take_units(struct threads *threads)
{
    for (;;) {
        uint32_t unit = atomic_fetch_add_explicit(&threads->next_unit, 1, memory_order_relaxed);

        if (unit >= threads->n_units) {
            return;
        }
        enum status st = threads->fn(threads->job, unit);

        if (st != ST_OK) {
            record_failure(threads, unit, st);
        }
    }
}

static void *
helper_main(void *arg)
{
    struct threads *threads = arg;
    uint64_t seen = 0;

    pthread_mutex_lock(&threads->lock);
    for (;;) {
        while (threads->job_number == seen && !threads->must_stop) {
            pthread_cond_wait(&threads->has_job, &threads->lock);
        }
        if (threads->must_stop) {
            break;
        }
        seen = threads->job_number;
        pthread_mutex_unlock(&threads->lock);
        take_units(threads);
        pthread_mutex_lock(&threads->lock);
        threads->n_inside--;
        if (threads->n_inside == 0) {
            pthread_cond_signal(&threads->is_done);
        }
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

enum status
threads_new(uint32_t count, struct threads **threads_out)
{
    enum status st = ST_NO_MEMORY;

    if (count == 0) {
        return ERR(ST_INVALID, "0 threads cannot do any work");
    }
    struct threads *threads = mem_zalloc(1, sizeof(*threads));

    if (threads == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %u threads", count);
    }
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->has_job, NULL);
    pthread_cond_init(&threads->is_done, NULL);
    threads->helpers = mem_zalloc(count - 1, sizeof(threads->helpers[0]));
    if (threads->helpers == NULL) {
        st = ERR(ST_NO_MEMORY, "no memory for %u threads", count);
        goto fail;
    }
    for (; threads->n_helpers < count - 1; threads->n_helpers++) {
        int err = pthread_create(&threads->helpers[threads->n_helpers], NULL, helper_main, threads);

        if (err != 0) {
            st = ERR(ST_SYSTEM, "thread %u of %u cannot start: error %d", threads->n_helpers + 1,
                     count, err);
            goto fail;
        }
    }
    *threads_out = threads;
    return ST_OK;

fail:
    threads_destroy(&threads);
    return st;
}

void
threads_destroy(struct threads **threads_p)
{
    struct threads *threads = *threads_p;

    if (threads == NULL) {
        return;
    }
    pthread_mutex_lock(&threads->lock);
    threads->must_stop = true;
    pthread_cond_broadcast(&threads->has_job);
    pthread_mutex_unlock(&threads->lock);
    for (uint32_t i = 0; i < threads->n_helpers; i++) {
        pthread_join(threads->helpers[i], NULL);
    }
    pthread_cond_destroy(&threads->is_done);
    pthread_cond_destroy(&threads->has_job);
    pthread_mutex_destroy(&threads->lock);
    mem_free(threads->helpers);
    mem_free(threads);
    *threads_p = NULL;
}

static void
publish(struct threads *threads, uint32_t n_units, threads_unit_fn fn, const void *job)
{
    pthread_mutex_lock(&threads->lock);
    threads->fn = fn;
    threads->job = job;
    threads->n_units = n_units;
    threads->failed_status = ST_OK;
    atomic_store(&threads->next_unit, 0);
    if (n_units > 1 && threads->n_helpers > 0) {
        threads->n_inside = threads->n_helpers;
        threads->job_number++;
        pthread_cond_broadcast(&threads->has_job);
    }
    pthread_mutex_unlock(&threads->lock);
}

enum status
threads_run(struct threads *threads, uint32_t n_units, threads_unit_fn fn, const void *job)
{
    publish(threads, n_units, fn, job);
    take_units(threads);
    pthread_mutex_lock(&threads->lock);
    while (threads->n_inside > 0) {
        pthread_cond_wait(&threads->is_done, &threads->lock);
    }
    pthread_mutex_unlock(&threads->lock);
    if (threads->failed_status != ST_OK) {
        return ERR(threads->failed_status, "%s", threads->failed_detail);
    }
    return ST_OK;
}
