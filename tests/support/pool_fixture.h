/* SPDX-License-Identifier: Apache-2.0 */
/* pool_fixture - short words for tests of the pool: documents by name, claims that must succeed. */
#ifndef TESTS_SUPPORT_POOL_FIXTURE_H
#define TESTS_SUPPORT_POOL_FIXTURE_H

#include <string.h>

#include "kvpool/kvpool.h"
#include "tests/support/check_main.h"

#define BLOCK_TOKENS 4 /* small, so that partial blocks are everywhere */

static inline struct kvpool *
new_pool(uint32_t block_count)
{
    struct kvpool_config config = {.block_count = block_count,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = 0.5};
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    return pool;
}

/* The key of a document called `name`; not a hash, but as good as unique. */
static inline struct dockey
named(const char *name)
{
    struct dockey key = {.bytes = {0}};

    memcpy(key.bytes, name, strlen(name));
    return key;
}

static inline struct kvpool_want
want(const char *name, uint32_t n_tokens)
{
    return (struct kvpool_want){.key = named(name), .n_tokens = n_tokens};
}

/* Claims `want_count` documents and private blocks; must succeed. */
static inline struct kvpool_claim *
claim(struct kvpool *pool, struct kvpool_want *wants, size_t want_count, uint32_t own_blocks,
      uint64_t builder)
{
    struct kvpool_claim *made = NULL;

    ck_assert_msg(kvpool_claim(pool, wants, want_count, own_blocks, builder, &made) == ST_OK,
                  "claim refused: %s", status_detail());
    kvpool_check(pool);
    return made;
}

static inline void
release(struct kvpool *pool, struct kvpool_claim **made)
{
    kvpool_claim_release(pool, made, 0);
    ck_assert_ptr_null(*made);
    kvpool_check(pool);
}

/* Seals what this claim builds. */
static inline void
seal_all(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        if (wants[i].must_build) {
            kvpool_doc_seal(pool, wants[i].doc, 0);
        }
    }
    kvpool_check(pool);
}

/* Makes a document resident; it is then the most recently used one. */
static inline void
load(struct kvpool *pool, const char *name, uint32_t n_tokens)
{
    struct kvpool_want w = want(name, n_tokens);
    struct kvpool_claim *made = claim(pool, &w, 1, 0, 1);

    seal_all(pool, &w, 1);
    release(pool, &made);
}

static inline struct kvpool_stats
stats_of(const struct kvpool *pool)
{
    struct kvpool_stats stats;

    kvpool_stats(pool, &stats);
    return stats;
}

/* Resident tokens of a document, 0 if it is not in the pool. */
static inline uint32_t
ready_of(const struct kvpool *pool, const char *name)
{
    struct dockey key = named(name);
    const struct kvpool_doc *doc = kvpool_find(pool, &key);

    return doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);
}

/* All that can be seen of a pool, except for the count of refusals. */
struct snapshot {
    struct kvpool_stats stats;
    uint64_t docs; /* sum over the documents, in no order */
};

static inline struct snapshot
snapshot(const struct kvpool *pool)
{
    struct snapshot seen = {.stats = stats_of(pool)};
    uint32_t cursor = KVPOOL_WALK;
    struct kvpool_doc_info info;

    while (kvpool_next_doc(pool, &cursor, &info)) {
        seen.docs +=
            (dockey_hash(&info.key) + 1)
            * (1 + info.tokens_ready + 1000u * info.blocks_resident + 1000000u * info.references
               + 100000000u * info.pins + (info.is_building ? 7u : 0u));
    }
    seen.stats.claims_refused = 0;
    return seen;
}

#endif
