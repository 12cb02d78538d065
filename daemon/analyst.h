/* SPDX-License-Identifier: Apache-2.0 */
/* analyst - a thread that replays the last requests, so that the scheduler's thread never does.
 *
 * Jobs go in with a copy of the traffic and come back with numbers; an eventfd says so.  The thread
 * has the lowest priority of all.  It knows the policies, and nothing else of the daemon. */
#ifndef DAEMON_ANALYST_H
#define DAEMON_ANALYST_H

#include "common/list.h"
#include "kvpool/forecast.h"

#define ANALYST_JOBS_MAX   8  /* that wait or are in work */
#define ANALYST_POINTS_MAX 64 /* of one job */

struct analyst;

struct analyst_job {
    struct list_node link;
    uint64_t call;                /* of the client who asked; 0: nobody, it is for Stats */
    struct traffic_window window; /* owned */
    struct forecast_config config;
    struct forecast_point points[ANALYST_POINTS_MAX];
    size_t point_count;
    /* Once it is back: */
    enum status status;
    char message[256]; /* with a status other than ST_OK */
    struct forecast forecast;
    double alpha; /* only for Stats, as the next one and forecast_look's numbers */
    uint64_t reuse[TRAFFIC_REUSE_LEVELS];
    uint32_t requests, documents;
    uint64_t cpu_us; /* that it took */
    uint64_t done_us;
};

void analyst_job_destroy(struct analyst_job **job); /* NULL is fine */

/* ST_NO_MEMORY; ST_SYSTEM. */
enum status analyst_new(struct analyst **analyst_out);

/* Stops the job in work; the rest is dropped. */
void analyst_destroy(struct analyst **analyst);

/* Takes the job over, also on failure.  ST_NO_MEMORY: ANALYST_JOBS_MAX. */
enum status analyst_submit(struct analyst *analyst, struct analyst_job **job);

/* Readable when jobs may be back. */
int analyst_fd(const struct analyst *analyst);

/* A job that is back, now the caller's; NULL if there is none. */
struct analyst_job *analyst_take(struct analyst *analyst);

#endif
