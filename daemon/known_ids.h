/* SPDX-License-Identifier: Apache-2.0 */
/* known_ids - a document sent as token ids again is the one that is there, with its key.
 *
 * Found by a quick sum, then compared id by id: what comes twice is neither copied nor hashed by
 * SHA-256 again, which is most of the time to read it.  Never across salts (so tenants): the time
 * that it takes must not tell what others have sent. */
#ifndef DAEMON_KNOWN_IDS_H
#define DAEMON_KNOWN_IDS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/memo.h"
#include "daemon/tokens.h"

/* One reference to tokens of these ids.  ST_INVALID: one is not below vocab_size; ST_NO_MEMORY. */
enum status known_ids(struct memo *memo, const void *salt, size_t salt_length, uint32_t vocab_size,
                      const uint32_t *ids, size_t count, struct tokens **tokens_out);

#endif
