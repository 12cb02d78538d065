/* SPDX-License-Identifier: Apache-2.0 */
/* fake_worker - a worker that keeps the contract of worker.proto and computes nothing.
 *
 * It takes its letters, encodes a few tokens of each document, gives one token to each request
 * whose documents are sealed and that has room, lets go of what ended, and answers every Stop. */
#ifndef TESTS_SUPPORT_FAKE_WORKER_H
#define TESTS_SUPPORT_FAKE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sched.h"

#define WORKER_ITEMS_MAX 1024 /* runs, builds, letters of one fake worker */
#define DOCS_MAX         64   /* documents of one request */
#define OWN_BLOCKS_MAX   256

struct fake_blocks {
    uint32_t ids[OWN_BLOCKS_MAX];
    uint32_t count;
};

struct fake_build {
    uint64_t id;
    uint32_t done, n_tokens;
    struct fake_blocks blocks; /* that it writes */
    struct fake_blocks read;   /* of its source, or of what stands before it */
    uint64_t waits_for[DOCS_MAX];
    uint32_t wait_count;
};

struct fake_run {
    uint64_t request;
    uint32_t query, max_tokens, sent;
    struct fake_blocks own;
    struct fake_blocks read; /* blocks of its documents and of earlier turns, repeatedly */
    uint32_t turn_tokens;    /* own tokens in the latter */
    uint64_t waits_for[DOCS_MAX];
    uint32_t wait_count;
    uint32_t doc_tokens;
    bool has_read;
};

struct letter {
    enum sched_action_kind kind;
    uint64_t request, build;
    struct fake_run *run; /* owned; ASSIGN with a request */
    struct fake_build *builds[DOCS_MAX];
    uint32_t build_count;
    struct fake_blocks blocks; /* GRANT */
};

struct report {
    struct sched_step step;
    struct sched_result results[WORKER_ITEMS_MAX];
    uint32_t ids[WORKER_ITEMS_MAX];
    uint64_t sealed[WORKER_ITEMS_MAX], released[WORKER_ITEMS_MAX], dropped[WORKER_ITEMS_MAX];
};

struct fake_worker {
    bool is_alive; /* its process runs, and may write */
    bool is_heard; /* the daemon counts on it */
    uint64_t incarnation;
    uint64_t steps;
    bool is_missing_one; /* a report of it was lost */
    struct fake_run *runs[WORKER_ITEMS_MAX];
    uint32_t run_count;
    struct fake_build *builds[WORKER_ITEMS_MAX];
    uint32_t build_count;
    struct letter *inbox[WORKER_ITEMS_MAX];
    uint32_t inbox_count;
    struct report *outbox[WORKER_ITEMS_MAX];
    uint32_t outbox_count;
    uint16_t *uses;   /* [block_count] reads and writes that it may still do */
    uint16_t *writes; /* [block_count] */
};

/* The tokens of an answer depend on its request and their place alone. */
uint32_t fake_token(uint64_t request, uint32_t index);

void fake_blocks_add(struct fake_blocks *to, const uint32_t *ids, uint32_t count);

/* Takes the letters and makes one step; NULL if there is nothing to do.  The report is owned by the
 * caller (mem_free).  The blocks of what it lets go are no longer in use. */
struct report *fake_worker_step(struct fake_worker *worker, uint32_t block_tokens,
                                uint32_t build_tokens);

/* The index of a request's run; run_count if there is none. */
uint32_t fake_worker_find_run(const struct fake_worker *worker, uint64_t request);

/* Frees all that it holds: letters, work, reports. */
void fake_worker_forget(struct fake_worker *worker);

#endif
