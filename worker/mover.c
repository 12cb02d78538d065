/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mover.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/mem.h"

#define SPILL_BATCH 16 /* blocks of a call: what a load that comes may have to wait for */

struct mover {
    struct mover_config config;
    pthread_t thread;
    bool has_thread;
    void (*wake)(void *arg);
    void *wake_arg;

    pthread_mutex_t mutex; /* all below; contents of `current` are the mover's while it copies */
    pthread_cond_t changed;
    struct list_node loads, spills, over; /* mover_job.link; the first may be the current one */
    struct mover_job *current;            /* NULL: no bytes are moved */
    bool must_end;
    enum status status;
    char detail[256];
};

static void
lock(struct mover *mover)
{
    (void)pthread_mutex_lock(&mover->mutex);
}

static void
unlock(struct mover *mover)
{
    (void)pthread_mutex_unlock(&mover->mutex);
}

/* --- the mover's thread ----------------------------------------------------------------------- */

static struct mover_job *
first_of(const struct list_node *list)
{
    LIST_FOR_EACH(node, list)
    {
        struct mover_job *job = LIST_ENTRY(node, struct mover_job, link);

        if (!job->is_cancelled) {
            return job;
        }
    }
    return NULL;
}

static struct mover_job *
next_job(const struct mover *mover)
{
    struct mover_job *load = first_of(&mover->loads);

    return load != NULL ? load : first_of(&mover->spills);
}

/* Of a load: what came is compared with what it must be; what is not is the end of it. */
static void
check_sums(struct mover_job *job, const uint64_t *sums, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (sums[i] != job->sums[job->done]) {
            (void)snprintf(job->error, sizeof(job->error),
                           "place %" PRIu32 " has sum %016" PRIx64 ", not %016" PRIx64,
                           job->places[job->done], sums[i], job->sums[job->done]);
            return;
        }
        job->done++;
    }
}

static enum status
move(const struct mover *mover, struct copier *copier, enum mover_kind kind,
     struct copier_batch batch)
{
    const struct copier_config *copy = &mover->config.copy;

    switch (kind) {
    case MOVER_LOAD: return mover->config.copier->load(copier, batch);
    case MOVER_SPILL: return mover->config.copier->spill(copier, batch);
    case MOVER_ERASE: break;
    }
    for (uint32_t i = 0; i < batch.n; i++) {
        memset((char *)copy->host + batch.places[i] * copy->block_bytes, 0, copy->block_bytes);
    }
    return ST_OK;
}

/* There may have been no memory for it at the start, or at the last job. */
static enum status
require_copier(const struct mover *mover, struct copier **copier)
{
    return *copier != NULL ? ST_OK : mover->config.copier->create(&mover->config.copy, copier);
}

/* Copies the next blocks of a job; without the lock. */
static enum status
copy_some(struct mover *mover, struct copier **copier, struct mover_job *job)
{
    uint32_t most = job->kind == MOVER_LOAD ? COPIER_BATCH_MAX : SPILL_BATCH;
    uint32_t left = job->n - job->done;
    uint64_t sums[COPIER_BATCH_MAX] = {0};
    uint64_t start_us = clock_now_us();
    struct copier_batch batch = {.blocks = job->blocks + job->done,
                                 .places = job->places + job->done,
                                 .sums = job->is_summed ? NULL : sums,
                                 .n = left < most ? left : most};

    if (job->kind != MOVER_ERASE) {
        TRY(require_copier(mover, copier));
    }
    TRY(move(mover, *copier, job->kind, batch));
    if (job->kind == MOVER_LOAD) {
        check_sums(job, sums, batch.n);
    } else {
        memcpy(job->sums + job->done, sums, batch.n * sizeof(sums[0]));
        job->done += batch.n;
    }
    job->copy_us += clock_now_us() - start_us;
    return ST_OK;
}

/* With the lock, which is given up while bytes are moved. */
static void
run_job(struct mover *mover, struct copier **copier, struct mover_job *job)
{
    enum status st;

    mover->current = job;
    unlock(mover);
    st = copy_some(mover, copier, job);
    lock(mover);
    mover->current = NULL;
    if (st == ST_NO_MEMORY) { /* costs this job its rest, and nobody else anything */
        job->is_unread = true;
        (void)snprintf(job->error, sizeof(job->error), "%.127s", status_detail());
        st = ST_OK;
    }
    if (st != ST_OK) {
        mover->status = st;
        (void)snprintf(mover->detail, sizeof(mover->detail), "%s", status_detail());
    }
    if (st != ST_OK || job->done == job->n || job->error[0] != '\0') {
        list_unlink(&job->link);
        list_push_back(&mover->over, &job->link);
        mover->wake(mover->wake_arg);
    }
    (void)pthread_cond_broadcast(&mover->changed); /* somebody may wait to cancel it */
}

static void
serve(struct mover *mover, struct copier **copier)
{
    bool can_prepare = true;

    lock(mover);
    while (!mover->must_end && mover->status == ST_OK) {
        struct mover_job *job = next_job(mover);

        if (job != NULL) {
            run_job(mover, copier, job);
        } else if (can_prepare && *copier != NULL) {
            unlock(mover);
            can_prepare = mover->config.copier->prepare(*copier);
            lock(mover);
        } else {
            (void)pthread_cond_wait(&mover->changed, &mover->mutex);
        }
    }
    unlock(mover);
}

static void *
run(void *arg)
{
    struct mover *mover = arg;
    struct copier *copier = NULL;
    enum status st = mover->config.bind(mover->config.ordinal);

    if (st == ST_OK) {
        st = require_copier(mover, &copier);
    }
    if (st == ST_OK || st == ST_NO_MEMORY) {
        serve(mover, &copier);
        mover->config.copier->destroy(&copier);
        return NULL;
    }
    lock(mover);
    mover->status = st;
    (void)snprintf(mover->detail, sizeof(mover->detail), "%s", status_detail());
    mover->wake(mover->wake_arg);
    unlock(mover);
    return NULL;
}

/* --- the engine's ----------------------------------------------------------------------------- */

struct mover_job *
mover_job_new(enum mover_kind kind, uint64_t id, uint32_t n)
{
    size_t per_block = sizeof(uint64_t) + 2 * sizeof(uint32_t);
    struct mover_job *job = mem_zalloc(1, sizeof(*job) + n * per_block);

    if (job != NULL) {
        list_init(&job->link);
        job->kind = kind;
        job->id = id;
        job->n = n;
        job->sums = (uint64_t *)(void *)(job + 1);
        job->blocks = (uint32_t *)(void *)(job->sums + n);
        job->places = job->blocks + n;
    }
    return job;
}

uint32_t
mover_places(const struct mover *mover)
{
    return mover->config.copy.place_count;
}

static void
wake_nobody(void *arg)
{
    (void)arg;
}

void
mover_set_wake(struct mover *mover, void (*wake)(void *arg), void *arg)
{
    lock(mover);
    mover->wake = wake != NULL ? wake : wake_nobody;
    mover->wake_arg = arg;
    unlock(mover);
}

void
mover_submit(struct mover *mover, struct mover_job *job)
{
    lock(mover);
    list_push_back(job->kind == MOVER_LOAD ? &mover->loads : &mover->spills, &job->link);
    (void)pthread_cond_broadcast(&mover->changed);
    unlock(mover);
}

enum status
mover_take(struct mover *mover, struct mover_job **job_out)
{
    enum status st = ST_OK;

    *job_out = NULL;
    lock(mover);
    if (mover->status != ST_OK) {
        st = ERR(mover->status, "host tier: %s", mover->detail);
    } else if (!list_is_empty(&mover->over)) {
        *job_out = LIST_ENTRY(mover->over.next, struct mover_job, link);
        list_unlink(&(*job_out)->link);
    }
    unlock(mover);
    return st;
}

/* Frees the jobs of a list that `is_load` and `id` name; id 0: all of them. */
static void
drop(struct list_node *list, bool is_load, uint64_t id)
{
    LIST_FOR_EACH_SAFE(node, list)
    {
        struct mover_job *job = LIST_ENTRY(node, struct mover_job, link);

        if ((job->kind == MOVER_LOAD) == is_load && (id == 0 || job->id == id)) {
            list_unlink(&job->link);
            mem_free(job);
        }
    }
}

/* The job that is being copied shall not get another turn. */
static bool
is_moving(const struct mover *mover, bool is_load, uint64_t id)
{
    struct mover_job *job = mover->current;

    if (job == NULL || (job->kind == MOVER_LOAD) != is_load || (id != 0 && job->id != id)) {
        return false;
    }
    job->is_cancelled = true;
    return true;
}

static void
cancel(struct mover *mover, bool is_load, uint64_t id)
{
    lock(mover);
    while (is_moving(mover, is_load, id)) {
        (void)pthread_cond_wait(&mover->changed, &mover->mutex);
    }
    drop(is_load ? &mover->loads : &mover->spills, is_load, id);
    drop(&mover->over, is_load, id);
    unlock(mover);
}

void
mover_cancel_load(struct mover *mover, uint64_t id)
{
    cancel(mover, true, id);
}

void
mover_cancel_spills(struct mover *mover)
{
    cancel(mover, false, 0);
}

/* --- life ------------------------------------------------------------------------------------- */

enum status
mover_new(const struct mover_config *config, struct mover **mover_out)
{
    struct mover *mover = mem_zalloc(1, sizeof(*mover));
    int error;

    if (mover == NULL) {
        return ERR(ST_NO_MEMORY, "a mover");
    }
    mover->config = *config;
    mover->wake = wake_nobody;
    list_init(&mover->loads);
    list_init(&mover->spills);
    list_init(&mover->over);
    (void)pthread_mutex_init(&mover->mutex, NULL);
    (void)pthread_cond_init(&mover->changed, NULL);
    error = pthread_create(&mover->thread, NULL, run, mover);
    mover->has_thread = error == 0;
    if (error != 0) {
        mover_destroy(&mover);
        return ERR(ST_SYSTEM, "mover's thread: error %d", error);
    }
    *mover_out = mover;
    return ST_OK;
}

void
mover_destroy(struct mover **mover)
{
    struct mover *m = *mover;

    if (m == NULL) {
        return;
    }
    if (m->has_thread) {
        lock(m);
        m->must_end = true;
        (void)pthread_cond_broadcast(&m->changed);
        unlock(m);
        (void)pthread_join(m->thread, NULL);
    }
    drop(&m->loads, true, 0);
    drop(&m->spills, false, 0);
    drop(&m->over, true, 0);
    drop(&m->over, false, 0);
    (void)pthread_cond_destroy(&m->changed);
    (void)pthread_mutex_destroy(&m->mutex);
    MEM_FREE(*mover);
}
