/* SPDX-License-Identifier: Apache-2.0 */
/* htab - an intrusive chained hash table; the node lives inside the element, the key too.
 *
 * The caller gives the hash of a key (uniform: keys here are SHA-256 or run through htab_mix) and
 * an equality test.  Grows at load 1, a few buckets with every insert, so that no insert takes
 * long; never shrinks.  One owner, no locks. */
#ifndef COMMON_HTAB_H
#define COMMON_HTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct htab_node {
    struct htab_node *next;
    uint64_t hash;
};

typedef bool (*htab_equal_fn)(const struct htab_node *node, const void *key);

#define HTAB_MOVES 2 /* old buckets emptied by an insert into a table that grows */

struct htab {
    struct htab_node **buckets; /* [bucket_count], a power of two */
    size_t bucket_count;
    struct htab_node **old; /* [bucket_count / 2] while it grows, else NULL */
    size_t moved;           /* old buckets that are empty; the others are still in use */
    size_t count;
    htab_equal_fn equal;
};

#define HTAB_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Makes an empty table in the caller's storage.  ST_NO_MEMORY. */
enum status htab_init(struct htab *tab, htab_equal_fn equal);

/* Frees the buckets, not the elements.  A zeroed struct is fine. */
void htab_deinit(struct htab *tab);

/* The element with this key, or NULL. */
struct htab_node *htab_find(const struct htab *tab, uint64_t hash, const void *key);

/* Adds an element whose key is absent (the caller looked).  ST_NO_MEMORY with nothing changed. */
enum status htab_insert(struct htab *tab, uint64_t hash, struct htab_node *node);

/* Removes an element that is in the table. */
void htab_remove(struct htab *tab, struct htab_node *node);

/* Walks all elements in no order: start with NULL; ends with NULL.  No change during a walk. */
struct htab_node *htab_next(const struct htab *tab, const struct htab_node *node);

/* A good 64-bit hash of a small integer key (splitmix64's finaliser). */
uint64_t htab_mix(uint64_t x);

#endif
