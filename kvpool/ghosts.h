/* SPDX-License-Identifier: Apache-2.0 */
/* ghosts - why a document that was here is not here any more.
 *
 * A bounded memory of keys, the oldest forgotten first, made whole at the start so that remembering
 * cannot fail.  To the pool it explains misses; policies remember by it what they let go, and the
 * reason is a number of theirs.  Private to the pool. */
#ifndef KVPOOL_GHOSTS_H
#define KVPOOL_GHOSTS_H

#include <stdint.h>

#include "common/status.h"
#include "kvpool/dockey.h"

struct ghosts;

/* ST_NO_MEMORY. */
enum status ghosts_new(uint32_t capacity, struct ghosts **ghosts_out);
void ghosts_destroy(struct ghosts **ghosts);

/* Remembers `reason` for the key, which is not known yet. */
void ghosts_add(struct ghosts *ghosts, const struct dockey *key, int reason);

/* Gives the reason and forgets it: the key is back.  `absent` if the key is not known. */
int ghosts_take(struct ghosts *ghosts, const struct dockey *key, int absent);

/* Forgets the oldest and gives its reason; there is one. */
int ghosts_pop(struct ghosts *ghosts);

uint32_t ghosts_count(const struct ghosts *ghosts);

/* As ghosts_take, without forgetting. */
int ghosts_find(const struct ghosts *ghosts, const struct dockey *key, int absent);

#endif
