/* SPDX-License-Identifier: Apache-2.0 */
/* learned - what the eviction policy has learned, in memory that outlives this kvasird.
 *
 * Two halves, written in turn, each with a number and the policy's own checksum: whenever we die,
 * one of them is whole.  Written, not mapped: a host without memory refuses a write, and then the
 * older half stays; it costs what it holds.  Losing all of it loses no document, only what was
 * known of their popularity. */
#ifndef DAEMON_LEARNED_H
#define DAEMON_LEARNED_H

#include <stdint.h>

#include "common/status.h"
#include "kvpool/kvpool.h"

#define LEARNED_BYTES_MAX    (8u << 20) /* of one half: 260000 documents */
#define LEARNED_PART_RECORDS 4096       /* looked at in one go: some fifty microseconds */
#define LEARNED_PART_BYTES   (64u << 10)

/* A memfd for both halves, empty.  ST_SYSTEM. */
enum status learned_make(int *fd_out);

/* A save that is going on; zeroed: none. */
struct learned_saving {
    unsigned char *bytes; /* [max], owned; NULL: none is going on */
    size_t max, written;
    struct evict_saving policy;
    int half; /* where to */
    uint64_t number;
};

/* What this pool's policy has learned, into the older half: a part, so small that a request does
 * not notice; the next call goes on.  Done when `bytes` is NULL.  A policy that keeps nothing is
 * fine.  ST_NO_MEMORY, ST_SYSTEM: it is off, and the younger half is as it was. */
enum status learned_save_some(struct learned_saving *saving, int fd, const struct kvpool *pool);

/* All of it. */
enum status learned_save(struct learned_saving *saving, int fd, const struct kvpool *pool);

void learned_saving_deinit(struct learned_saving *saving);

/* The youngest half that the pool's policy takes.  ST_NOT_FOUND: there is none. */
enum status learned_restore(int fd, struct kvpool *pool);

#endif
