/* SPDX-License-Identifier: Apache-2.0 */
/* estate - what of a pool outlives kvasird: the descriptors of its arenas and of its catalog, and
 * of what its policy has learned (daemon/learned).
 *
 * All are kept by the supervisor (common/notify.h) under names that carry the pool's id, so
 * that parts of two pools are never put together.  A lock on the catalog says who serves the pool;
 * it goes with the process that holds it, and it is the kernel's, so two daemons that were passed
 * the same descriptors, by whatever mistake, see each other. */
#ifndef DAEMON_ESTATE_H
#define DAEMON_ESTATE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "kvpool/catalog.h"

struct estate {
    bool is_open;
    bool is_kept; /* the supervisor took it: it outlives us */
    int catalog_fd;
    int arena_fds[2]; /* KV, weights; until estate_take_arenas */
    int host_fds[2];  /* of the host tier: its memory, its catalog; until estate_take_host */
    int learned_fd;   /* -1: it was not kept, or cannot be made: nothing depends on it */
    void *memory;
    size_t bytes;
    struct catalog *catalog;
};

#define ESTATE_NONE                                                                                \
    (struct estate)                                                                                \
    {                                                                                              \
        .catalog_fd = -1, .arena_fds = {-1, -1}, .host_fds = {-1, -1}, .learned_fd = -1            \
    }

/* What an earlier kvasird left, if it is a pool such as `wanted` (fingerprint, block_tokens,
 * kv_memory, kv_percent; the rest is not looked at).  ST_NOT_FOUND: nothing was left.  ST_INVALID:
 * something else was, which is given up: dropped from the store and closed; the detail says why.
 * ST_UNAVAILABLE: another kvasird serves it. */
enum status estate_open(const struct catalog_pool *wanted, struct estate *estate_out);

/* Makes the catalog of a new pool and has it kept together with its arenas' fds, which stay the
 * caller's.  `pool->id` names it.  A supervisor that does not take it leaves it of use to us alone:
 * then `is_kept` is false and status_detail() says why.  ST_SYSTEM, ST_NO_MEMORY: no catalog. */
enum status estate_make(const struct catalog_pool *pool, const int arena_fds[2],
                        struct estate *estate_out);

/* The arenas' fds, which are the caller's from now on. */
void estate_take_arenas(struct estate *estate, int fds_out[2]);

/* The host tier's fds, -1 where there was none; the caller's from now on. */
void estate_take_host(struct estate *estate, int fds_out[2]);
/* Has them kept with the pool; they stay the caller's.  Nothing depends on it. */
enum status estate_keep_host(const struct estate *estate, int fd, int index_fd);
/* Has the supervisor drop what it keeps of a host tier. */
void estate_drop_host(const struct estate *estate);

/* Has the supervisor drop what it keeps: the pool ends with this process.  `may_wait` for a
 * supervisor that is behind: not at our own end. */
void estate_give_up(const struct estate *estate, bool may_wait);

/* Closes what is held here; what is kept elsewhere stays.  ESTATE_NONE is fine. */
void estate_close(struct estate *estate);

/* A random id for a new pool.  ST_SYSTEM. */
enum status estate_new_id(uint8_t id_out[CATALOG_POOL_ID_BYTES]);

#endif
