/* SPDX-License-Identifier: Apache-2.0 */
/* evict - the policy seam: a policy only decides, the pool carries out.
 *
 * The pool tells the policy what happens to documents (the calls below) and asks for a victim
 * when it is short of blocks.  The victim's tail blocks go first, exactly as many as are missing; a
 * document stays the victim until it is gone or the shortfall is met.  Pinned and referenced
 * documents are never offered, and what a waiting request needs only when nothing else is left.
 * A policy's clock is the count of requests.  Deterministic for a seed. */
#ifndef KVPOOL_EVICT_H
#define KVPOOL_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "common/status.h"
#include "kvpool/dockey.h"

#define EVICT_PRIORITY_DEFAULT 50
#define EVICT_PRIORITY_MAX     100
#define EVICT_LOWEST_MAX       64 /* that a policy is asked for at once */

/* What a policy may know of a document; embedded in the pool's record. */
struct evict_doc {
    struct dockey key;
    uint32_t n_tokens;
    uint32_t n_blocks;        /* that hold all its tokens */
    uint32_t blocks_resident; /* kept up to date by the pool */
    bool is_evictable;        /* kept by the pool: sealed, no reference, no pin, in the index */
    bool is_awaited;          /* kept by the pool: a request in the queue cites it */
    /* The policy's own, zero and unlinked when a document comes: */
    uint8_t mark;
    uint32_t slot;
    uint32_t place;
    struct list_node link;
};

struct evict_config {
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t seed;
    double quadratic_tokens; /* cost of n tokens ~ n + n^2 / (2 * this); 0: ~ n */
};

/* Why a document leaves. */
enum evict_end {
    EVICT_END_EVICTED,   /* the policy said so: worth remembering */
    EVICT_END_LOST,      /* its build was lost or stopped; somebody may want it again */
    EVICT_END_FORGOTTEN, /* somebody asked to forget it: all of it */
};

/* How far a save has come.  Zeroed it begins; each call looks at so many records, so that nobody
 * waits for a million of them, and the policy goes on between the calls.  The most useful come
 * first, as far as `max` bytes go, which are the same in every call. */
struct evict_saving {
    size_t size; /* with is_done: what the whole takes; 0: there is no room for anything */
    bool is_done;
    uint32_t pass, slot, records; /* the policy's own */
    uint64_t sum;
};

struct evict_policy;

struct evict_policy_ops {
    const char *name; /* "lru" */
    enum status (*create)(const struct evict_config *config, struct evict_policy **policy_out);
    void (*destroy)(struct evict_policy **policy);
    void (*tick)(struct evict_policy *); /* one request was admitted; its `used` follow */
    /* A request cites it, hit or not; once a request, also before the first `admitted`. */
    void (*used)(struct evict_policy *, struct evict_doc *);
    void (*admitted)(struct evict_policy *, struct evict_doc *);  /* first sealed blocks */
    void (*evictable)(struct evict_policy *, struct evict_doc *); /* is_evictable changed */
    void (*awaited)(struct evict_policy *, struct evict_doc *);   /* is_awaited changed */
    /* The document leaves.  Its last call. */
    void (*forgotten)(struct evict_policy *, struct evict_doc *, enum evict_end end);
    /* The document to lose its tail next, or NULL if none is evictable. */
    struct evict_doc *(*victim)(struct evict_policy *);

    /* The rest may be NULL: the policy has no use for it. */

    /* An operator's wish, 0..EVICT_PRIORITY_MAX; `doc` is NULL while the document is not here. */
    void (*prioritized)(struct evict_policy *, const struct dockey *key, struct evict_doc *doc,
                        uint8_t priority);
    /* What the policy has learned, for the life after a restart.  `save` writes a part of it, as
     * struct evict_saving says; `save_max` is a bound of all its bytes.  `restore` is for a policy
     * that has seen no request yet; documents may have been admitted.  ST_INVALID with nothing
     * changed: not written by this policy, or damaged. */
    size_t (*save_max)(const struct evict_policy *);
    void (*save)(const struct evict_policy *, struct evict_saving *saving, void *bytes, size_t max,
                 uint32_t records);
    enum status (*restore)(struct evict_policy *, const void *bytes, size_t size);

    /* Writes up to `max` of the documents that would be the next victims, the first of them first,
     * as far as that can be said without choosing one; returns how many.  Changes nothing. */
    uint32_t (*coldest)(const struct evict_policy *, struct evict_doc **docs_out, uint32_t max);
    /* What a block of the document is worth now, here or not: for comparison with others of the
     * same moment. */
    double (*worth)(const struct evict_policy *, const struct dockey *key);
};

extern const struct evict_policy_ops evict_zipf;
extern const struct evict_policy_ops evict_lru;
extern const struct evict_policy_ops evict_s3fifo;
extern const struct evict_policy_ops evict_arc;

/* By name; NULL if there is none.  evict_policy_names: NULL-terminated, for messages and --help. */
const struct evict_policy_ops *evict_policy_find(const char *name);
extern const char *const evict_policy_names[];
#define EVICT_POLICY_NAMES "zipf, lru, s3fifo or arc"

#endif
