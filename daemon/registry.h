/* SPDX-License-Identifier: Apache-2.0 */
/* registry - registered documents: token ids under the document's key, and under the name that its
 * client gave it.
 *
 * It lives in a memo: what is lost there has to be registered again.  A name counts within its
 * salt, so tenants have names of their own; it is a second entry of the same ids, and worth
 * something only as long as the key's entry is there.  Safe from any thread. */
#ifndef DAEMON_REGISTRY_H
#define DAEMON_REGISTRY_H

#include <stdint.h>

#include "common/status.h"
#include "daemon/memo.h"
#include "daemon/tokens.h"
#include "kvpool/dockey.h"

/* Whose documents: what goes into a key beside the ids. */
struct registry_scope {
    const uint8_t *pool_fingerprint; /* 32 bytes */
    const void *salt;
    size_t salt_length;
};

/* The name of an id within its scope: SHA-256 over salt and id. */
enum status registry_name(const struct registry_scope *scope, const char *id,
                          struct dockey *name_out);

/* Keeps a document under its key and its name, which is the key if it has none.  A name that meant
 * another document means this one now. */
enum status registry_put(struct memo *memo, const struct dockey *name, const struct dockey *key,
                         struct tokens *tokens);

/* One reference to the ids of a key that is of this scope.  ST_NOT_FOUND: not registered, forgotten
 * since, or of another salt, which must not be told apart. */
enum status registry_find(struct memo *memo, const struct registry_scope *scope,
                          const struct dockey *key, struct tokens **tokens_out);

/* The same by name; the key as well. */
enum status registry_find_id(struct memo *memo, const struct registry_scope *scope, const char *id,
                             struct dockey *key_out, struct tokens **tokens_out);

/* Drops a key and the names of it, not those that other salts have for the same ids; how many. */
uint32_t registry_forget(struct memo *memo, const struct dockey *key);

#endif
