/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/analyst.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/mem.h"

#define NICE_LOWEST 19

struct analyst {
    int event_fd;
    atomic_bool is_stopped;
    pthread_mutex_t lock; /* over everything below */
    pthread_cond_t has_work;
    struct list_node todo, done;
    uint32_t job_count;
    pthread_t thread;
    bool has_thread;
};

void
analyst_job_destroy(struct analyst_job **job)
{
    if (*job != NULL) {
        traffic_window_deinit(&(*job)->window);
        MEM_FREE(*job);
    }
}

static uint64_t
thread_cpu_us(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static enum status
think(struct analyst_job *job)
{
    struct traffic_trace trace;
    enum status st = traffic_number(&job->window, &trace);

    traffic_window_deinit(&job->window); /* the trace says it all */
    if (st != ST_OK) {
        return st;
    }
    job->requests = trace.trace.request_count;
    job->documents = trace.trace.doc_count;
    st = forecast_run(&trace, &job->config, job->points, job->point_count, &job->forecast);
    if (st == ST_OK && job->call == 0) {
        st = forecast_look(&trace, &job->config, &job->forecast);
        job->alpha = traffic_alpha(&trace.trace);
        traffic_reuse(&trace.trace, job->reuse);
    }
    traffic_trace_deinit(&trace);
    return st;
}

static struct analyst_job *
wait_for_job(struct analyst *analyst)
{
    struct analyst_job *job = NULL;

    (void)pthread_mutex_lock(&analyst->lock);
    while (list_is_empty(&analyst->todo) && !atomic_load(&analyst->is_stopped)) {
        (void)pthread_cond_wait(&analyst->has_work, &analyst->lock);
    }
    if (!atomic_load(&analyst->is_stopped)) {
        job = LIST_ENTRY(analyst->todo.next, struct analyst_job, link);
        list_unlink(&job->link);
    }
    (void)pthread_mutex_unlock(&analyst->lock);
    return job;
}

static void
hand_back(struct analyst *analyst, struct analyst_job *job)
{
    uint64_t one = 1;

    (void)pthread_mutex_lock(&analyst->lock);
    list_push_back(&analyst->done, &job->link);
    (void)pthread_mutex_unlock(&analyst->lock);
    if (write(analyst->event_fd, &one, sizeof(one)) < 0) {
        return; /* full: it rings anyway */
    }
}

static void *
run_thread(void *arg)
{
    struct analyst *analyst = arg;
    struct analyst_job *job;

    /* On Linux this is the thread's own.  If it cannot be had, it is only less polite. */
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE_LOWEST);
    while ((job = wait_for_job(analyst)) != NULL) {
        uint64_t start_us = thread_cpu_us();

        job->config.is_stopped = &analyst->is_stopped;
        job->status = think(job);
        if (job->status != ST_OK) {
            (void)snprintf(job->message, sizeof(job->message), "%s", status_detail());
        }
        job->cpu_us = thread_cpu_us() - start_us;
        job->done_us = clock_now_us();
        hand_back(analyst, job);
    }
    return NULL;
}

enum status
analyst_new(struct analyst **analyst_out)
{
    struct analyst *analyst = mem_zalloc(1, sizeof(*analyst));
    int error;

    if (analyst == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the analyst");
    }
    (void)pthread_mutex_init(&analyst->lock, NULL);
    (void)pthread_cond_init(&analyst->has_work, NULL);
    list_init(&analyst->todo);
    list_init(&analyst->done);
    analyst->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (analyst->event_fd < 0) {
        (void)ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
        analyst_destroy(&analyst);
        return ST_SYSTEM;
    }
    error = pthread_create(&analyst->thread, NULL, run_thread, analyst);
    if (error != 0) {
        (void)ERR(ST_SYSTEM, "analyst's thread: %s", strerror(error));
        analyst_destroy(&analyst);
        return ST_SYSTEM;
    }
    analyst->has_thread = true;
    *analyst_out = analyst;
    return ST_OK;
}

static void
drop_jobs(struct list_node *list)
{
    LIST_FOR_EACH_SAFE(node, list)
    {
        struct analyst_job *job = LIST_ENTRY(node, struct analyst_job, link);

        list_unlink(node);
        analyst_job_destroy(&job);
    }
}

void
analyst_destroy(struct analyst **analyst_ref)
{
    struct analyst *analyst = *analyst_ref;

    if (analyst == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&analyst->lock);
    atomic_store(&analyst->is_stopped, true);
    (void)pthread_cond_broadcast(&analyst->has_work);
    (void)pthread_mutex_unlock(&analyst->lock);
    if (analyst->has_thread) {
        (void)pthread_join(analyst->thread, NULL);
    }
    drop_jobs(&analyst->todo);
    drop_jobs(&analyst->done);
    if (analyst->event_fd >= 0) {
        (void)close(analyst->event_fd);
    }
    (void)pthread_cond_destroy(&analyst->has_work);
    (void)pthread_mutex_destroy(&analyst->lock);
    MEM_FREE(*analyst_ref);
}

enum status
analyst_submit(struct analyst *analyst, struct analyst_job **job)
{
    enum status st = ST_OK;

    (void)pthread_mutex_lock(&analyst->lock);
    if (analyst->job_count == ANALYST_JOBS_MAX) {
        st = ERR(ST_NO_MEMORY, "%u forecasts are asked for: the limit is %d", analyst->job_count,
                 ANALYST_JOBS_MAX);
    } else {
        list_push_back(&analyst->todo, &(*job)->link);
        analyst->job_count++;
        (void)pthread_cond_signal(&analyst->has_work);
        *job = NULL;
    }
    (void)pthread_mutex_unlock(&analyst->lock);
    analyst_job_destroy(job);
    return st;
}

int
analyst_fd(const struct analyst *analyst)
{
    return analyst->event_fd;
}

struct analyst_job *
analyst_take(struct analyst *analyst)
{
    struct analyst_job *job = NULL;
    uint64_t rings;

    (void)pthread_mutex_lock(&analyst->lock);
    if (!list_is_empty(&analyst->done)) {
        job = LIST_ENTRY(analyst->done.next, struct analyst_job, link);
        list_unlink(&job->link);
        analyst->job_count--;
    } else if (read(analyst->event_fd, &rings, sizeof(rings)) < 0) {
        rings = 0; /* nothing had rung */
    }
    (void)pthread_mutex_unlock(&analyst->lock);
    return job;
}
