/* SPDX-License-Identifier: Apache-2.0 */
/* ingest - threads that parse and tokenise, so that the scheduler's thread never does.
 *
 * Tenants take turns, one message each, and each leaves as many places free as it has: however much
 * one of them sends, there is room for the next, which waits for one message of each other tenant.
 *
 * Jobs go in and come back, changed, through two queues under one lock; an eventfd says that some
 * are back.  A job belongs to whoever took it last.  Threads touch a job, the reader and its memos;
 * nothing else of the daemon. */
#ifndef DAEMON_INGEST_H
#define DAEMON_INGEST_H

#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "daemon/read_prompt.h"
#include "daemon/tenant.h"
#include "proto/frames.h"

struct ingest;

#define INGEST_JOBS_MAX    1024 /* in both queues and in work */
#define INGEST_THREADS_MAX 64
#define INGEST_BYTES_MAX   (256u << 20) /* of payloads that wait */

struct ingest_job {
    struct list_node link;
    struct list_node age_link; /* in order of coming, until it is taken */
    uint64_t round;            /* in which its tenant's turn is this one */
    uint64_t call;             /* the router's */
    char tenant[TENANT_NAME_MAX];
    struct tenant_grant grant;
    enum method_id method;
    struct frames payload; /* one, owned */
    size_t length;
    /* Once it is back: */
    enum status status;
    char message[256]; /* with a status other than ST_OK */
    struct reading reading;
};

/* Frees the job and what it owns; NULL is fine. */
void ingest_job_destroy(struct ingest_job **job);

/* `reader` is borrowed until ingest_destroy.  One of the threads looks out for work without
 * sleeping for `busy_us` after the last. */
enum status ingest_new(const struct reader *reader, uint32_t thread_count, uint64_t busy_us,
                       struct ingest **ingest_out);

/* Waits for jobs in work; the rest is dropped. */
void ingest_destroy(struct ingest **ingest);

/* Takes the payload out of `frames`, whose last it is; copies the rest of the message.
 * ST_NO_MEMORY: too many jobs or bytes wait, or too many of this tenant (the detail names the
 * limit). */
enum status ingest_submit(struct ingest *ingest, uint64_t call,
                          const struct client_message *message, struct frames *frames);

/* Readable when jobs may be back. */
int ingest_fd(const struct ingest *ingest);

/* A job that is back, now the caller's; NULL if there is none. */
struct ingest_job *ingest_take(struct ingest *ingest);

/* Jobs of a method that have not been taken: of a tenant, or if that is "" of all. */
uint32_t ingest_count(struct ingest *ingest, enum method_id method, const char *tenant);

/* The first call whose job has not been taken; UINT64_MAX: there is none. */
uint64_t ingest_oldest(struct ingest *ingest);

#endif
