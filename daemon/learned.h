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

#define LEARNED_BYTES_MAX (8u << 20) /* of one half: 260000 documents */

/* A memfd for both halves, empty.  ST_SYSTEM. */
enum status learned_make(int *fd_out);

/* What this pool's policy has learned, into the older half.  A policy that keeps nothing is fine.
 * ST_NO_MEMORY, ST_SYSTEM: the younger half is as it was. */
enum status learned_save(int fd, const struct kvpool *pool);

/* The youngest half that the pool's policy takes.  ST_NOT_FOUND: there is none. */
enum status learned_restore(int fd, struct kvpool *pool);

#endif
