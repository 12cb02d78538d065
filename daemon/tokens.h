/* SPDX-License-Identifier: Apache-2.0 */
/* tokens - token ids that never change, shared by reference count.
 *
 * The memo, the registered documents and every request that cites a text hold the same ids.  The
 * only thing here that two threads touch: the count is atomic, the ids are constant after
 * tokens_new, and the key that they had first, once it is known, as well. */
#ifndef DAEMON_TOKENS_H
#define DAEMON_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/dockey.h"

struct tokens;

/* Copies `count` ids; one reference to the caller.  ST_NO_MEMORY. */
enum status tokens_new(const uint32_t *ids, size_t count, struct tokens **tokens_out);

/* One more reference; returns `tokens`. */
struct tokens *tokens_acquire(struct tokens *tokens);

/* Gives a reference back and nulls the pointer; NULL is fine. */
void tokens_release(struct tokens **tokens);

/* Borrowed while a reference is held. */
const uint32_t *tokens_ids(const struct tokens *tokens);
uint32_t tokens_count(const struct tokens *tokens);

/* dockey_compute, which hashes all ids; asked again with what it was asked with first, it
 * remembers.
 */
enum status tokens_key(struct tokens *tokens, const uint8_t fingerprint[32], const void *salt,
                       size_t salt_length, struct dockey *key_out);

/* Whether the key that is remembered is one with this salt. */
bool tokens_have_salt(const struct tokens *tokens, const void *salt, size_t salt_length);

#define TOKENS_COUNT_MAX (1u << 24) /* ids in one segment */

#endif
