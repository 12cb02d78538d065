/* SPDX-License-Identifier: Apache-2.0 */
/* memo - token ids under 32-byte names, bounded in bytes, least recently used out first.
 *
 * Two are in use: known texts (SHA-256 of tokenizer and text -> ids, so that a text is tokenised
 * once; also ids that came as ids) and registered documents (key -> ids).  Never a KV key: what is
 * lost here costs time, or a client has to send its text again.  Safe from any thread. */
#ifndef DAEMON_MEMO_H
#define DAEMON_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/tokens.h"
#include "kvpool/dockey.h"

struct memo;

/* What a name is of.  Each kind has names of its own: a client can choose ids whose sum is any name
 * that it likes, and must not be found by those who ask for a text. */
enum memo_kind {
    MEMO_TEXT,     /* SHA-256 of a text */
    MEMO_IDS,      /* a sum of ids (known_ids.c) */
    MEMO_DOCUMENT, /* a registered document's key or name */
};

enum status memo_new(size_t bytes_max, struct memo **memo_out);
void memo_destroy(struct memo **memo);

/* One reference to the ids, or NULL. */
struct tokens *memo_find(struct memo *memo, enum memo_kind kind, const struct dockey *name);

/* Keeps the ids (with a reference of its own); a name that is there is refreshed.  ST_NO_MEMORY,
 * also for ids that alone exceed bytes_max. */
enum status memo_put(struct memo *memo, enum memo_kind kind, const struct dockey *name,
                     struct tokens *tokens);

/* The same, under one more name of what is kept under `name`. */
enum status memo_put_alias(struct memo *memo, enum memo_kind kind, const struct dockey *alias,
                           const struct dockey *name, struct tokens *tokens);

/* Drops a name; false if it was not there. */
bool memo_forget(struct memo *memo, enum memo_kind kind, const struct dockey *name);

/* Drops a name and its aliases; returns how many there were.  Looks at all of them. */
uint32_t memo_forget_aliases(struct memo *memo, enum memo_kind kind, const struct dockey *name);

/* Drops every name of these ids; returns how many there were.  Looks at all of them. */
uint32_t memo_forget_ids(struct memo *memo, const struct tokens *tokens);

struct memo_stats {
    uint64_t hits, misses, evicted;
    size_t entries, bytes;
};

struct memo_stats memo_stats(struct memo *memo);

#endif
