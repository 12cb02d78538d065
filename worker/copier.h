/* SPDX-License-Identifier: Apache-2.0 */
/* copier - whole blocks between a device's arena and the host tier, beside the operations.
 *
 * One thread uses it, the mover's.  ST_NO_MEMORY from any of them costs the call; all else means
 * that the device is broken.  A call returns when its bytes have arrived.  Sums are
 * kv_checksum's, made where the arena is: of a spill over what is read, of a load over what has
 * been written there, so a bit that changed anywhere between the two shows. */
#ifndef WORKER_COPIER_H
#define WORKER_COPIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define COPIER_BATCH_MAX 32 /* blocks of a call: what a cancelled copy may still have to wait for */

struct copier;

struct copier_config {
    void *kv; /* the arena */
    size_t block_bytes;
    uint32_t block_count;
    void *host; /* the tier's memory, mapped */
    uint32_t place_count;
};

struct copier_batch {
    const uint32_t *blocks, *places; /* [n] */
    uint64_t *sums;                  /* [n] written; of a spill NULL: not wanted */
    uint32_t n;                      /* at most COPIER_BATCH_MAX */
};

struct copier_ops {
    enum status (*create)(const struct copier_config *config, struct copier **copier_out);
    void (*destroy)(struct copier **copier);
    enum status (*spill)(struct copier *, struct copier_batch batch);
    enum status (*load)(struct copier *, struct copier_batch batch);
    /* Makes the next piece of host memory quick to reach, in some milliseconds; false: all of it
     * is, or it cannot be had.  Copies work before as well. */
    bool (*prepare)(struct copier *);
};

extern const struct copier_ops copier_cpu;
extern const struct copier_ops copier_cuda; /* CUDA builds only */

#endif
