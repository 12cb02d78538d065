/* SPDX-License-Identifier: Apache-2.0 */
/* tier_host - the tier in this machine's memory: a memfd of places, all of a block's size.
 *
 * kvasird holds the memfd, workers map it.  Which place holds what is noted in a catalog, as for
 * the pool: the copies outlive kvasird. */
#ifndef KVPOOL_TIER_HOST_H
#define KVPOOL_TIER_HOST_H

#include "kvpool/kvpool.h"
#include "kvpool/tier.h"

struct tier_host_config {
    uint32_t places; /* 1..KVPOOL_BLOCKS_MAX */
    uint32_t block_tokens;
    uint64_t seed;
    /* What a block of the document is worth here; may be NULL: then whoever was used last is worth
     * most.  Compared only with others at the same moment. */
    double (*worth)(const void *arg, const struct dockey *key);
    const void *arg;
    const struct kvpool_watch *watch; /* hears of copies; NULL: nobody does; outlives the tier */
    struct catalog *catalog; /* NULL: none; empty, or tier_host_adopt follows; outlives the tier */
};

enum status tier_host_new(const struct tier_host_config *config, struct tier **tier_out);

/* Fills an empty tier with what its catalog says, as kvpool_adopt; returns how many blocks.
 * ST_NO_MEMORY: the tier is of no use then. */
enum status tier_host_adopt(struct tier *tier, kvpool_may_write_fn may_write, void *arg,
                            uint32_t *blocks_out);

#endif
