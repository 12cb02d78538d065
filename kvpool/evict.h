/* SPDX-License-Identifier: Apache-2.0 */
/* evict - the policy seam: a policy only decides, the pool carries out.
 *
 * The pool tells the policy what happens to documents (the calls below) and asks for a victim
 * when it is short of blocks.  The victim's tail blocks go first, exactly as many as are missing; a
 * document stays the victim until it is gone or the shortfall is met.  Pinned and referenced
 * documents are never offered.  A policy's clock is the count of requests.  Deterministic for a
 * seed. */
#ifndef KVPOOL_EVICT_H
#define KVPOOL_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "kvpool/dockey.h"

/* What a policy may know of a document; embedded in the pool's record. */
struct evict_doc {
    struct list_node link; /* the policy's own list; unlinked when it has no use for it */
    struct dockey key;
    uint32_t n_tokens;
    uint32_t blocks_resident; /* kept up to date by the pool */
    bool is_evictable;        /* kept by the pool: sealed, no reference, no pin, in the index */
};

struct evict_policy;

struct evict_policy_ops {
    const char *name; /* "lru" */
    enum status (*create)(uint32_t block_count, uint64_t seed, struct evict_policy **policy_out);
    void (*destroy)(struct evict_policy **policy);
    void (*tick)(struct evict_policy *); /* one request was admitted; its `used` follow */
    /* A request cites it, hit or not; once a request, also before the first `admitted`. */
    void (*used)(struct evict_policy *, struct evict_doc *);
    void (*admitted)(struct evict_policy *, struct evict_doc *);  /* first sealed blocks */
    void (*evictable)(struct evict_policy *, struct evict_doc *); /* is_evictable changed */
    /* The document leaves: evicted whole, forgotten, or its build was lost.  Its last call. */
    void (*forgotten)(struct evict_policy *, struct evict_doc *);
    /* The document to lose its tail next, or NULL if none is evictable. */
    struct evict_doc *(*victim)(struct evict_policy *);
};

extern const struct evict_policy_ops evict_lru;

/* By name; NULL if there is none.  evict_policy_names: NULL-terminated, for messages and --help. */
const struct evict_policy_ops *evict_policy_find(const char *name);
extern const char *const evict_policy_names[];

#endif
