/* SPDX-License-Identifier: Apache-2.0 */
/* fake_worker - a worker that keeps the contract of worker.proto and computes nothing.
 *
 * It takes its letters, encodes a few tokens of each document, gives one token to each request
 * whose documents are sealed and that has room, lets go of what ended, and answers every Stop.  A
 * block's contents are one word, so that whoever reads a wrong one is found; the host tier's memory
 * is words as well, copied one a step. */
#ifndef TESTS_SUPPORT_FAKE_WORKER_H
#define TESTS_SUPPORT_FAKE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/sched.h"

#define WORKER_ITEMS_MAX 1024 /* runs, builds, letters of one fake worker */
#define DOCS_MAX         64   /* documents of one request */
#define OWN_BLOCKS_MAX   256
#define SEAL_SUMS_MAX    2048 /* blocks sealed by one step */

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
    uint64_t name;  /* of its document: what a block must hold follows from it */
    uint32_t first; /* of the blocks that it writes, in the document */
    uint32_t start;
    struct fake_blocks places; /* of the host tier that it takes its first blocks from */
    uint64_t sums[OWN_BLOCKS_MAX];
    uint32_t loaded; /* of them, so far */
};

struct fake_spill {
    uint64_t id;
    struct fake_blocks blocks, places;
    uint64_t sums[OWN_BLOCKS_MAX];
    uint32_t done;
};

struct fake_run {
    uint64_t request;
    uint32_t query, max_tokens, sent;
    struct fake_blocks own;
    uint64_t name;           /* the document that they hold (reuse none); 0: none */
    struct fake_blocks read; /* blocks of its documents and of earlier turns, repeatedly */
    uint64_t expected[OWN_BLOCKS_MAX]; /* what those of documents must hold; 0: not known */
    uint32_t turn_tokens;              /* own tokens in the latter */
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
    struct fake_blocks blocks; /* GRANT, CHECK, ERASE */
    struct fake_blocks twins;  /* CHECK */
    struct fake_blocks places; /* ERASE, of the host tier */
    struct fake_spill *spill;  /* owned; SPILL */
};

struct report {
    struct sched_step step;
    struct sched_result results[WORKER_ITEMS_MAX];
    uint32_t ids[WORKER_ITEMS_MAX];
    uint64_t sealed[WORKER_ITEMS_MAX], released[WORKER_ITEMS_MAX], dropped[WORKER_ITEMS_MAX];
    struct sched_loaded loaded[WORKER_ITEMS_MAX];
    struct sched_spilled spilled[SCHED_SPILLS_MAX];
    uint64_t sums[SCHED_SPILLS_MAX][OWN_BLOCKS_MAX];
    uint64_t seal_sums[SEAL_SUMS_MAX]; /* a block's checksum is what it holds */
    uint64_t erased[WORKER_ITEMS_MAX];
    struct sched_checked checked;
    uint64_t check_sums[OWN_BLOCKS_MAX];
};

struct fake_worker {
    bool is_alive; /* its process runs, and may write */
    bool is_heard; /* the daemon counts on it */
    uint64_t incarnation;
    uint64_t steps;
    double rounding;     /* relative difference that a comparison tells of what differs */
    bool is_missing_one; /* a report of it was lost */
    bool is_refusing;    /* it has no memory for any spill */
    bool is_starved;     /* it has no memory to copy what is to be loaded */
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
    uint64_t check;   /* 0: none */
    struct fake_blocks check_blocks, check_twins;
    struct fake_spill *spills[SCHED_SPILLS_MAX];
    uint32_t spill_count;
    uint16_t *place_uses;   /* [host_places] as uses, of the host tier */
    uint16_t *place_writes; /* [host_places] */
    uint64_t *contents;     /* [block_count] of all workers: the arena, */
    uint64_t *host;         /* [host_places] and the host tier's memory */
};

/* What block `index` of a document holds. */
uint64_t fake_content(uint64_t name, uint32_t index);

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
