/* SPDX-License-Identifier: Apache-2.0 */
/* copies - blocks that are copied to another place in prompts before a step runs (mode reencode).
 *
 * All copies of a step are one call of rope_copy.  Copies are enqueued before the step's operations
 * and therefore done when those read them. */
#ifndef WORKER_COPIES_H
#define WORKER_COPIES_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"

struct copies {
    const struct ops *ops;
    struct kv_layout layout;
    uint32_t *from, *to, *turn; /* [blocks_max] host side */
    uint32_t n, blocks_max;
    uint32_t *lists;  /* device: the three of them, [3 * blocks_max] */
    double *inv_freq; /* device: [D/2] */
};

/* Into zeroed storage.  ST_NO_MEMORY; copies_deinit also takes what is half-built. */
enum status copies_init(struct copies *copies, const struct ops *ops, struct kv_layout layout,
                        const double *inv_freq);
void copies_deinit(struct copies *copies);

/* Room for that many blocks a step.  ST_NO_MEMORY. */
enum status copies_reserve(struct copies *copies, size_t blocks);

/* Adds blocks to the copies of the next step; there must be room. */
void copies_add(struct copies *copies, const uint32_t *from, const uint32_t *to, uint32_t count,
                uint32_t turn);

/* Enqueues what was added.  The lists are free again once the step has been waited for. */
enum status copies_run(struct copies *copies, void *kv, uint32_t block_count);

#endif
