/* SPDX-License-Identifier: Apache-2.0 */
/* upkeep - what a worker does for the memory itself: reads blocks again, compares, erases, wipes.
 *
 * A Check is worked off in pieces of a few blocks, each in a step with nothing else to do, so that
 * a request that comes meanwhile waits for one piece at most.  Erasures and wipes are enqueued at
 * once, before whatever comes later.  Wiping: blocks are filled before their first write, with
 * zeros, so that nothing of their last owner is in what nobody writes; or, to find whoever reads
 * what he should not, with the bits of a NaN. */
#ifndef WORKER_UPKEEP_H
#define WORKER_UPKEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "kernels/ops.h"
#include "worker/sums.h"

#include "kvasir/v1/worker.pb-c.h"

#define UPKEEP_PIECE_BYTES (32u << 20) /* of a Check in one step; at least a block */
#define UPKEEP_CHECKS_MAX  64          /* open at once; kvasird has one */

struct upkeep_check;

struct upkeep {
    const struct ops *ops;
    struct kv_layout layout;
    size_t block_bytes;
    bool is_poisoning; /* wipe with NaN */
    void *kv;
    uint32_t block_count;
    struct list_node checks; /* struct upkeep_check */
    uint32_t check_count;
    struct upkeep_check *told; /* answered by the last step's message, which points into it */
    struct sums sums;          /* of a piece */
    uint32_t piece_blocks;
    void *device;               /* of a comparison: differences, then a, b, tokens */
    uint32_t *lists;            /* the same on the host: a, b, tokens */
    struct kv_difference *diff; /* likewise */
    bool has_enqueued;          /* an erasure nobody has waited for */
};

/* Into zeroed storage.  ST_NO_MEMORY; upkeep_deinit takes what is half-built. */
enum status upkeep_init(struct upkeep *upkeep, const struct ops *ops, struct kv_layout layout,
                        bool is_poisoning);
void upkeep_deinit(struct upkeep *upkeep);
void upkeep_place_kv(struct upkeep *upkeep, void *kv, uint32_t block_count);

/* Notes a Check; what is wrong with it is ST_INVALID.  ST_NO_MEMORY. */
enum status upkeep_check(struct upkeep *upkeep, const Kvasir__V1__Check *check);
/* Forgets all of them: kvasird is another one. */
void upkeep_reset(struct upkeep *upkeep);

/* Enqueues that blocks become zero.  ST_INVALID: a block id outside the arena. */
enum status upkeep_erase(struct upkeep *upkeep, const uint32_t *blocks, size_t count);
/* Enqueues a little work that a device without life fails at. */
enum status upkeep_probe(struct upkeep *upkeep);
/* Enqueues the filling of blocks that are about to be written for the first time. */
enum status upkeep_wipe(struct upkeep *upkeep, const uint32_t *blocks, size_t count);

static inline bool
upkeep_has_work(const struct upkeep *upkeep)
{
    return upkeep->check_count > 0;
}

/* Runs a piece and waits for it.  *checked_out is the answer to a Check that is done, or NULL;
 * borrowed until the next call. */
enum status upkeep_run(struct upkeep *upkeep, Kvasir__V1__Checked **checked_out);

#endif
