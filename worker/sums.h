/* SPDX-License-Identifier: Apache-2.0 */
/* sums - checksums of blocks that a step has written, or that are read again in idle time.
 *
 * sums_run enqueues behind whatever writes the blocks; the values are there once that was waited
 * for, in the order of the calls of sums_add.  So a seal costs no wait of its own. */
#ifndef WORKER_SUMS_H
#define WORKER_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"

struct sums {
    const struct ops *ops;
    size_t block_bytes;
    uint32_t *blocks; /* [max] host side */
    uint64_t *values; /* [max] likewise */
    uint32_t n, max;
    void *device; /* values, then blocks */
};

/* Into zeroed storage; no room yet. */
void sums_init(struct sums *sums, const struct ops *ops, size_t block_bytes);
void sums_deinit(struct sums *sums);

/* Room for that many blocks.  ST_NO_MEMORY. */
enum status sums_reserve(struct sums *sums, size_t blocks);

void sums_clear(struct sums *sums);
/* There must be room. */
void sums_add(struct sums *sums, const uint32_t *blocks, uint32_t count);
enum status sums_run(struct sums *sums, const void *kv, uint32_t block_count);

#endif
