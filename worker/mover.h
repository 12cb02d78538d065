/* SPDX-License-Identifier: Apache-2.0 */
/* mover - a thread that copies blocks to the host tier and back while the engine's runs steps.
 *
 * Loads go before spills, a few blocks at a time, so that a load never waits for a long spill and
 * a cancelled one is let go of at once.  With nothing else to do it prepares the tier's memory.
 * Jobs are handed in and taken back by the engine's thread; `wake` is called from the mover's when
 * there is one to take. */
#ifndef WORKER_MOVER_H
#define WORKER_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "worker/copier.h"

struct mover;

enum mover_kind {
    MOVER_SPILL,
    MOVER_LOAD,
    MOVER_ERASE, /* the places become zero */
};

struct mover_job {
    struct list_node link;
    enum mover_kind kind;
    uint64_t id;               /* build, spill or erase */
    uint32_t n, done;          /* blocks; copied, and whole */
    uint64_t copy_us;          /* from its turn to its end */
    char error[128];           /* why done < n; "" */
    bool is_unread;            /* the error is no memory: nothing is said of what is there */
    bool is_summed;            /* of a spill: nobody needs its sums */
    bool is_cancelled;         /* the mover's */
    uint32_t *blocks, *places; /* [n] */
    uint64_t *sums;            /* [n] expected of a load; written by a spill */
};

struct mover_config {
    const struct copier_ops *copier;
    struct copier_config copy;
    /* Makes the mover's thread work on the device. */
    enum status (*bind)(int ordinal);
    int ordinal;
};

enum status mover_new(const struct mover_config *config, struct mover **mover_out);
/* Ends the thread after the blocks that it is at; frees what was not taken back. */
void mover_destroy(struct mover **mover);

/* NULL: nobody.  When it returns, whom it was before is not called any more. */
void mover_set_wake(struct mover *mover, void (*wake)(void *arg), void *arg);

/* Places of the tier; what a job names is below. */
uint32_t mover_places(const struct mover *mover);

/* A job with room for `n` blocks.  NULL: no memory. */
struct mover_job *mover_job_new(enum mover_kind kind, uint64_t id, uint32_t n);

void mover_submit(struct mover *mover, struct mover_job *job);

/* The next job that is over, the caller's from now on: mem_free; NULL: none.  ST_DEVICE: the device
 * is broken. */
enum status mover_take(struct mover *mover, struct mover_job **job_out);

/* When it returns nothing of that load, or of all spills and erasures, is read or written any
 * more; what was not taken yet is gone. */
void mover_cancel_load(struct mover *mover, uint64_t id);
void mover_cancel_spills(struct mover *mover);

#endif
