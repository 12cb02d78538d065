/* SPDX-License-Identifier: Apache-2.0 */
/* tier_host_state - the insides of the host tier, shared by tier_host.c, which changes them, and
 * tier_host_adopt.c, which fills them after a restart and checks them.  Nobody else includes it. */
#ifndef KVPOOL_TIER_HOST_STATE_H
#define KVPOOL_TIER_HOST_STATE_H

#include <stddef.h>

#include "common/htab.h"
#include "common/list.h"
#include "kvpool/blocks.h"
#include "kvpool/tier_host.h"

struct tier_doc {
    struct htab_node node; /* in the index while is_indexed */
    struct dockey key;
    uint32_t n_tokens;
    struct block_run *run;     /* places that can be read, in order; room for the whole document */
    struct block_run *writing; /* places of a put that has not ended; NULL: none */
    uint64_t *sums;            /* [run->capacity] */
    uint32_t blocks_told;      /* to the watch */
    uint32_t readers;
    uint32_t at; /* in docs[], while is_indexed */
    uint64_t used;
    bool is_indexed;
    struct list_node link;         /* in detached while it is not */
    struct list_node writing_link; /* in writers while there is a put */
};

struct host {
    struct tier tier;
    struct tier_host_config config;
    struct blocks places;
    struct htab index;
    struct list_node detached; /* tier_doc.link: out of the index, still used */
    struct list_node writers;  /* tier_doc.writing_link */
    struct tier_doc **docs;    /* [index.count], for a random choice, and walks */
    uint64_t random;
    uint64_t clock; /* of `used` */
    uint32_t writing;
    struct tier_stats counted; /* only the uint64_t counters */
};

static inline struct host *
host_of(struct tier *tier)
{
    return (struct host *)(void *)((char *)tier - offsetof(struct host, tier));
}

static inline const struct host *
const_host_of(const struct tier *tier)
{
    return (const struct host *)(const void *)((const char *)tier - offsetof(struct host, tier));
}

/* tier_host.c */
struct tier_doc *tier_host_find(const struct host *host, const struct dockey *key);
struct tier_doc *tier_host_new_doc(const struct dockey *key, uint32_t n_tokens, uint32_t n_blocks);
void tier_host_free_doc(struct tier_doc *doc);
bool tier_host_add(struct host *host, struct tier_doc *doc);
/* Whoever watches hears what has changed: whole blocks that can be read, from the head on. */
void tier_host_tell(const struct host *host, struct tier_doc *doc);
/* Out of the index, and nobody shall find it again, though its places stay while they are used. */
void tier_host_detach(struct host *host, struct tier_doc *doc);

/* tier_host_adopt.c */
void tier_host_check(const struct tier *tier);

#endif
