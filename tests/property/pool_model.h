/* SPDX-License-Identifier: Apache-2.0 */
/* pool_model - a naive model of the pool: plain arrays, searched from end to end, no counter kept
 * that can be counted. */
#ifndef TESTS_PROPERTY_POOL_MODEL_H
#define TESTS_PROPERTY_POOL_MODEL_H

#include "kvpool/kvpool.h"

#define BLOCKS       40
#define BLOCK_TOKENS 4
#define GHOSTS       (2 * BLOCKS) /* the pool remembers two forgotten documents a block */
#define PIN_BLOCKS   10           /* a quarter of the pool */
#define KEYS         200
#define TOKENS_MAX   30
#define WANTS_MAX    6
#define CLAIMS_MAX   4
#define FENCES       3
#define DOCS_MAX     (BLOCKS + 1) /* each has a block */

struct model_doc {
    bool is_live, is_indexed, is_abandoned;
    size_t key;
    uint32_t resident; /* blocks */
    uint32_t ready;    /* tokens */
    uint32_t pins;
    uint64_t builder; /* 0: nobody */
    uint64_t fence;
    uint64_t idle_since; /* when it was last let go */
    struct kvpool_doc *real;
};

struct model_claim {
    struct kvpool_claim *real; /* NULL: none */
    uint32_t own;
    size_t doc_count;
    size_t docs[WANTS_MAX];
    const uint32_t *ids[WANTS_MAX];            /* where the block list was */
    uint32_t id_copies[WANTS_MAX][TOKENS_MAX]; /* and what was in it */
    uint32_t id_counts[WANTS_MAX];
};

#define WAITS_MAX 3

/* A request in the queue. */
struct model_wait {
    size_t count;
    size_t keys[WANTS_MAX];
};

struct pool_model {
    const struct evict_policy_ops *policy;
    struct kvpool *pool;
    struct model_wait waits[WAITS_MAX];
    uint64_t random;
    uint64_t now; /* counts whatever makes a document idle */
    uint64_t generation;
    uint64_t builders;
    size_t key_count; /* in use */
    struct dockey keys[KEYS];
    uint32_t tokens[KEYS];
    struct model_doc docs[DOCS_MAX];
    struct model_claim claims[CLAIMS_MAX];
    uint32_t quarantined[FENCES + 1]; /* by fence */
    size_t ghost_count;
    struct {
        size_t key;
        enum kvpool_miss reason;
    } ghosts[GHOSTS]; /* oldest first */
    struct kvpool_stats counted;
};

extern struct pool_model m; /* one at a time */

/* A random number below `sides`; the seed is m.random. */
uint64_t model_roll(uint64_t sides);
/* Most draws fall on few keys, so that hits, partial documents and joins are common. */
size_t model_roll_key(void);

uint32_t model_blocks_for(uint32_t tokens);
/* The document of a key in the index, or NULL. */
struct model_doc *model_find(size_t key);
uint32_t model_references(const struct model_doc *doc);
bool model_is_evictable(const struct model_doc *doc);
bool model_is_awaited(const struct model_doc *doc);

/* The instantaneous numbers of the pool, counted afresh. */
struct kvpool_stats model_count(void);

/* Forgets why a key is not here any more, and says it. */
enum kvpool_miss model_ghost_take(size_t key);
void model_leave_index(struct model_doc *doc, enum kvpool_miss reason);
/* The pool has evicted `count` blocks. */
void model_evict(uint32_t count);
size_t model_add_doc(size_t key);

#endif
