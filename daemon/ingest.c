/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ingest.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/failpoint.h"
#include "common/mem.h"
#include "common/spin.h"

struct ingest {
    const struct reader *reader;
    int event_fd;
    pthread_mutex_t lock; /* over everything below */
    pthread_cond_t has_work;
    struct list_node todo, done;
    struct list_node ages; /* all jobs; the oldest first */
    uint32_t job_count;    /* taken by the caller last; up to INGEST_JOBS_MAX */
    size_t bytes;          /* of payloads in `todo` */
    uint64_t round;        /* of the job that was begun last */
    bool is_closing;
    pthread_t threads[INGEST_THREADS_MAX];
    uint32_t thread_count;
    uint64_t busy_us;
    atomic_bool has_lookout; /* one thread looks out without sleeping; takes no lock for it */
    atomic_ullong news;      /* jobs, and the end */
};

void
ingest_job_destroy(struct ingest_job **job)
{
    if (*job == NULL) {
        return;
    }
    prompt_deinit(&(*job)->reading.prompt);
    frames_close(&(*job)->payload);
    MEM_FREE(*job);
}

static void
ring(const struct ingest *ingest)
{
    uint64_t one = 1;

    /* It fails only when the counter is full, and then it rings anyway. */
    if (write(ingest->event_fd, &one, sizeof(one)) < 0) {
        return;
    }
}

static void
look_out(struct ingest *ingest)
{
    unsigned long long seen = atomic_load(&ingest->news);
    bool has_none;

    (void)pthread_mutex_lock(&ingest->lock);
    has_none = list_is_empty(&ingest->todo) && !ingest->is_closing;
    (void)pthread_mutex_unlock(&ingest->lock);
    if (has_none && !atomic_exchange(&ingest->has_lookout, true)) {
        spin_while_equal(&ingest->news, seen, ingest->busy_us);
        atomic_store(&ingest->has_lookout, false);
    }
}

static struct ingest_job *
wait_for_job(struct ingest *ingest)
{
    struct ingest_job *job = NULL;

    if (ingest->busy_us > 0) {
        look_out(ingest);
    }

    (void)pthread_mutex_lock(&ingest->lock);
    while (list_is_empty(&ingest->todo) && !ingest->is_closing) {
        (void)pthread_cond_wait(&ingest->has_work, &ingest->lock);
    }
    if (!ingest->is_closing) {
        job = LIST_ENTRY(ingest->todo.next, struct ingest_job, link);
        list_unlink(&job->link);
        ingest->bytes -= job->length;
        ingest->round = job->round;
    }
    (void)pthread_mutex_unlock(&ingest->lock);
    return job;
}

static void
hand_back(struct ingest *ingest, struct ingest_job *job)
{
    (void)pthread_mutex_lock(&ingest->lock);
    list_push_back(&ingest->done, &job->link);
    (void)pthread_mutex_unlock(&ingest->lock);
    ring(ingest);
}

static enum status
read_job(const struct reader *reader, struct wire_arena *arena, struct tokenizer_scratch *scratch,
         struct ingest_job *job)
{
    const struct client_message message = {
        .method = job->method,
        .tenant = job->tenant,
        .grant = &job->grant,
        .payload = frames_bytes(&job->payload, 0),
        .length = job->length,
    };

    return read_prompt(reader, arena, scratch, &message, &job->reading);
}

static void *
run_thread(void *arg)
{
    struct ingest *ingest = arg;
    struct wire_arena *arena = NULL;
    struct tokenizer_scratch *scratch = NULL;
    struct ingest_job *job;
    enum status setup = wire_arena_new(&arena);

    if (setup == ST_OK) {
        setup = tokenizer_scratch_new(&scratch);
    }
    while ((job = wait_for_job(ingest)) != NULL) {
        FAILPOINT_VALUE(message_read, job->method);
        job->status = setup != ST_OK ? ERR(setup, "no memory for a tokeniser thread")
                                     : read_job(ingest->reader, arena, scratch, job);
        if (job->status != ST_OK) {
            (void)snprintf(job->message, sizeof(job->message), "%s", status_detail());
        }
        frames_close(&job->payload);
        hand_back(ingest, job);
    }
    tokenizer_scratch_destroy(&scratch);
    wire_arena_destroy(&arena);
    return NULL;
}

enum status
ingest_new(const struct reader *reader, uint32_t thread_count, uint64_t busy_us,
           struct ingest **ingest_out)
{
    struct ingest *ingest = mem_zalloc(1, sizeof(*ingest));

    if (ingest == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for tokeniser threads");
    }
    ingest->reader = reader;
    ingest->busy_us = busy_us;
    (void)pthread_mutex_init(&ingest->lock, NULL);
    (void)pthread_cond_init(&ingest->has_work, NULL);
    list_init(&ingest->todo);
    list_init(&ingest->done);
    list_init(&ingest->ages);
    ingest->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ingest->event_fd < 0) {
        (void)ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
        goto fail;
    }
    while (ingest->thread_count < thread_count && ingest->thread_count < INGEST_THREADS_MAX) {
        int error =
            pthread_create(&ingest->threads[ingest->thread_count], NULL, run_thread, ingest);

        if (error != 0) {
            (void)ERR(ST_SYSTEM, "tokeniser thread: %s", strerror(error));
            goto fail;
        }
        ingest->thread_count++;
    }
    *ingest_out = ingest;
    return ST_OK;

fail:
    ingest_destroy(&ingest);
    return ST_SYSTEM;
}

static void
drop_jobs(struct list_node *list)
{
    LIST_FOR_EACH_SAFE(node, list)
    {
        struct ingest_job *job = LIST_ENTRY(node, struct ingest_job, link);

        list_unlink(node);
        list_unlink(&job->age_link);
        ingest_job_destroy(&job);
    }
}

void
ingest_destroy(struct ingest **ingest_ref)
{
    struct ingest *ingest = *ingest_ref;

    if (ingest == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&ingest->lock);
    ingest->is_closing = true;
    atomic_fetch_add(&ingest->news, 1);
    (void)pthread_cond_broadcast(&ingest->has_work);
    (void)pthread_mutex_unlock(&ingest->lock);
    for (uint32_t i = 0; i < ingest->thread_count; i++) {
        (void)pthread_join(ingest->threads[i], NULL);
    }
    drop_jobs(&ingest->todo);
    drop_jobs(&ingest->done);
    if (ingest->event_fd >= 0) {
        (void)close(ingest->event_fd);
    }
    (void)pthread_cond_destroy(&ingest->has_work);
    (void)pthread_mutex_destroy(&ingest->lock);
    MEM_FREE(*ingest_ref);
}

static struct ingest_job *
make_job(uint64_t call, const struct client_message *message, struct frames *frames)
{
    struct ingest_job *job = mem_zalloc(1, sizeof(*job));

    if (job == NULL) {
        return NULL;
    }
    frames_take(frames, frames->count - 1, &job->payload);
    job->call = call;
    job->method = message->method;
    job->length = message->length;
    (void)snprintf(job->tenant, sizeof(job->tenant), "%s", message->tenant);
    if (message->grant != NULL) {
        job->grant = *message->grant;
    }
    list_init(&job->link);
    list_init(&job->age_link);
    return job;
}

/* What a tenant has in here. */
struct share {
    uint32_t jobs;
    size_t bytes;
    uint64_t round; /* of its last job */
};

static struct share
share_of(const struct ingest *ingest, const char *tenant)
{
    struct share share = {0};

    LIST_FOR_EACH(node, &ingest->ages)
    {
        const struct ingest_job *job = LIST_ENTRY(node, const struct ingest_job, age_link);

        if (strcmp(job->tenant, tenant) == 0) {
            share.jobs++;
            share.bytes += job->length;
            share.round = job->round;
        }
    }
    return share;
}

/* Who has no name is everybody, and may have all. */
static enum status
check_room(const struct ingest *ingest, const struct ingest_job *job, const struct share *share)
{
    bool is_tenant = job->tenant[0] != '\0';

    if (ingest->job_count >= INGEST_JOBS_MAX) {
        return ERR(ST_NO_MEMORY, "%u messages wait for tokenising: the limit is %d",
                   ingest->job_count, INGEST_JOBS_MAX);
    }
    if (ingest->bytes + job->length > INGEST_BYTES_MAX) {
        return ERR(ST_NO_MEMORY, "%zu bytes wait for tokenising: the limit is %u",
                   ingest->bytes + job->length, INGEST_BYTES_MAX);
    }
    if (is_tenant && share->jobs >= INGEST_JOBS_MAX - ingest->job_count) {
        return ERR(ST_NO_MEMORY,
                   "%u messages of this tenant wait for tokenising: the limit is what is left, %u",
                   share->jobs, INGEST_JOBS_MAX - ingest->job_count);
    }
    if (is_tenant && share->bytes >= INGEST_BYTES_MAX - ingest->bytes) {
        return ERR(ST_NO_MEMORY,
                   "%zu bytes of this tenant wait for tokenising: the limit is what is left, %zu",
                   share->bytes, INGEST_BYTES_MAX - ingest->bytes);
    }
    return ST_OK;
}

/* Behind those of its round, before those of the next. */
static void
enqueue(struct ingest *ingest, struct ingest_job *job, const struct share *share)
{
    struct list_node *at = &ingest->todo;

    job->round = (share->round > ingest->round ? share->round : ingest->round) + 1;
    while (at->prev != &ingest->todo
           && LIST_ENTRY(at->prev, const struct ingest_job, link)->round > job->round) {
        at = at->prev;
    }
    list_insert_before(at, &job->link);
    list_push_back(&ingest->ages, &job->age_link);
    ingest->job_count++;
    ingest->bytes += job->length;
}

enum status
ingest_submit(struct ingest *ingest, uint64_t call, const struct client_message *message,
              struct frames *frames)
{
    struct ingest_job *job = make_job(call, message, frames);
    size_t length = message->length;
    enum status st;

    if (job == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a message of %zu bytes", length);
    }
    (void)pthread_mutex_lock(&ingest->lock);
    struct share share = share_of(ingest, job->tenant);

    st = check_room(ingest, job, &share);
    if (st == ST_OK) {
        enqueue(ingest, job, &share);
        atomic_fetch_add(&ingest->news, 1);
        (void)pthread_cond_signal(&ingest->has_work);
    }
    (void)pthread_mutex_unlock(&ingest->lock);
    if (st != ST_OK) {
        ingest_job_destroy(&job);
    }
    return st;
}

int
ingest_fd(const struct ingest *ingest)
{
    return ingest->event_fd;
}

struct ingest_job *
ingest_take(struct ingest *ingest)
{
    struct ingest_job *job = NULL;
    uint64_t rings;

    (void)pthread_mutex_lock(&ingest->lock);
    if (!list_is_empty(&ingest->done)) {
        job = LIST_ENTRY(ingest->done.next, struct ingest_job, link);
        list_unlink(&job->link);
        list_unlink(&job->age_link);
        ingest->job_count--;
    } else if (read(ingest->event_fd, &rings, sizeof(rings)) < 0) {
        rings = 0; /* nothing had rung */
    }
    (void)pthread_mutex_unlock(&ingest->lock);
    return job;
}

uint32_t
ingest_count(struct ingest *ingest, enum method_id method, const char *tenant)
{
    uint32_t count = 0;

    (void)pthread_mutex_lock(&ingest->lock);
    LIST_FOR_EACH(node, &ingest->ages)
    {
        const struct ingest_job *job = LIST_ENTRY(node, const struct ingest_job, age_link);

        count += job->method == method && (tenant[0] == '\0' || strcmp(job->tenant, tenant) == 0);
    }
    (void)pthread_mutex_unlock(&ingest->lock);
    return count;
}

uint64_t
ingest_oldest(struct ingest *ingest)
{
    uint64_t call = UINT64_MAX;

    (void)pthread_mutex_lock(&ingest->lock);
    if (!list_is_empty(&ingest->ages)) {
        call = LIST_ENTRY(ingest->ages.next, const struct ingest_job, age_link)->call;
    }
    (void)pthread_mutex_unlock(&ingest->lock);
    return call;
}
