/* SPDX-License-Identifier: Apache-2.0 */
/* All that only looks at the pool: sizes, numbers, and the check of every invariant. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"
#include "kvpool/tier.h"

/* --- sizes ------------------------------------------------------------------------------------ */

uint32_t
kvpool_blocks_for(const struct kvpool *pool, uint64_t tokens)
{
    uint64_t blocks =
        tokens / pool->config.block_tokens + (tokens % pool->config.block_tokens != 0);

    return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

enum status
kvpool_check_size(const struct kvpool *pool, uint64_t blocks)
{
    uint32_t block_tokens = pool->config.block_tokens;

    if (blocks > pool->config.block_count) {
        return ERR(
            ST_INVALID, "request needs %llu blocks (%llu tokens), the pool has %u (%llu tokens)",
            (unsigned long long)blocks, (unsigned long long)blocks * block_tokens,
            pool->config.block_count, (unsigned long long)pool->config.block_count * block_tokens);
    }
    return ST_OK;
}

#define SEEN_SLOTS_MAX (2 * KVPOOL_CLAIM_DOCS_MAX)

static_assert(KVPOOL_CLAIM_DOCS_MAX < UINT16_MAX, "a want's number plus one fits in a slot");
static_assert((SEEN_SLOTS_MAX & (SEEN_SLOTS_MAX - 1)) == 0, "slots are found by a mask");

/* Whether an earlier want has the key of wants[i]; remembers wants[i] in the open hash table
 * `seen`. */
static bool
is_repeat(const struct kvpool_want *wants, size_t i, uint16_t *seen, size_t slot_mask)
{
    size_t slot = dockey_hash(&wants[i].key) & slot_mask;

    while (seen[slot] != 0) {
        if (memcmp(&wants[seen[slot] - 1].key, &wants[i].key, DOCKEY_BYTES) == 0) {
            return true;
        }
        slot = (slot + 1) & slot_mask;
    }
    seen[slot] = (uint16_t)(i + 1);
    return false;
}

enum status
kvpool_fits(const struct kvpool *pool, const struct kvpool_want *wants, size_t want_count,
            uint64_t own_tokens)
{
    uint64_t blocks = kvpool_blocks_for(pool, own_tokens);
    uint16_t seen[SEEN_SLOTS_MAX];
    size_t slots = 2;

    if (want_count > KVPOOL_CLAIM_DOCS_MAX) {
        return ERR(ST_INVALID, "%zu documents in one request, %d allowed", want_count,
                   KVPOOL_CLAIM_DOCS_MAX);
    }
    while (slots < 2 * want_count) {
        slots *= 2;
    }
    memset(seen, 0, slots * sizeof(seen[0]));
    for (size_t i = 0; i < want_count; i++) {
        if (!is_repeat(wants, i, seen, slots - 1)) {
            blocks += kvpool_blocks_for(pool, wants[i].n_tokens);
        }
    }
    return kvpool_check_size(pool, blocks);
}

/* --- documents -------------------------------------------------------------------------------- */

const uint32_t *
kvpool_doc_blocks(const struct kvpool_doc *doc, uint32_t *count_out)
{
    *count_out = doc->run->count;
    return doc->run->ids;
}

const struct dockey *
kvpool_doc_key(const struct kvpool_doc *doc)
{
    return &doc->policy.key;
}

uint32_t
kvpool_doc_tokens(const struct kvpool_doc *doc)
{
    return doc->policy.n_tokens;
}

uint32_t
kvpool_doc_tokens_ready(const struct kvpool_doc *doc)
{
    return doc->tokens_ready;
}

bool
kvpool_doc_is_ready(const struct kvpool_doc *doc)
{
    return doc->tokens_ready == doc->policy.n_tokens;
}

bool
kvpool_doc_is_abandoned(const struct kvpool_doc *doc)
{
    return doc->is_abandoned;
}

uint64_t
kvpool_doc_builder(const struct kvpool_doc *doc)
{
    return doc->builder;
}

uint64_t
kvpool_doc_generation(const struct kvpool_doc *doc)
{
    return doc->generation;
}

uint32_t
kvpool_doc_origin(const struct kvpool_doc *doc)
{
    return doc->origin;
}

/* --- numbers ---------------------------------------------------------------------------------- */

void
kvpool_stats(const struct kvpool *pool, struct kvpool_stats *stats_out)
{
    *stats_out = pool->counted;
    stats_out->block_count = pool->config.block_count;
    stats_out->block_tokens = pool->config.block_tokens;
    stats_out->blocks_free = pool->blocks.free_count;
    stats_out->blocks_docs = pool->blocks_docs;
    stats_out->blocks_own = pool->blocks_own;
    stats_out->blocks_quarantined = pool->blocks.quarantined;
    stats_out->blocks_pinned = pool->blocks_pinned;
    stats_out->blocks_evictable = pool->blocks_evictable;
    stats_out->documents = (uint32_t)pool->index.count;
}

void
kvpool_note_residency(struct kvpool *pool, const struct kvpool_doc *doc)
{
    uint64_t stayed = pool->claims_made - doc->came;
    int level = 0;

    while (stayed > 0 && level < KVPOOL_RESIDENCY_LEVELS - 1) {
        stayed /= 2;
        level++;
    }
    pool->residency[level]++;
}

void
kvpool_residency(const struct kvpool *pool, uint64_t counts_out[KVPOOL_RESIDENCY_LEVELS])
{
    memcpy(counts_out, pool->residency, sizeof(pool->residency));
}

static struct kvpool_doc_info
info_of(const struct kvpool *pool, const struct kvpool_doc *doc)
{
    return (struct kvpool_doc_info){
        .key = doc->policy.key,
        .n_tokens = doc->policy.n_tokens,
        .tokens_ready = doc->tokens_ready,
        .blocks_resident = doc->policy.blocks_resident,
        .references = doc->references,
        .pins = doc->pins,
        .blocks_copied =
            pool->tier == NULL ? 0 : pool->tier->ops->lookup(pool->tier, &doc->policy.key),
        .is_building = doc_is_building(doc),
        .hits = doc->hits,
    };
}

bool
kvpool_doc_info(const struct kvpool *pool, const struct dockey *key,
                struct kvpool_doc_info *info_out)
{
    const struct kvpool_doc *doc = kvpool_find(pool, key);

    if (doc != NULL) {
        *info_out = info_of(pool, doc);
    }
    return doc != NULL;
}

bool
kvpool_next_doc(const struct kvpool *pool, uint32_t *cursor, struct kvpool_doc_info *info_out)
{
    uint32_t count = (uint32_t)pool->index.count;

    assert(pool->docs != NULL);
    *cursor = *cursor < count ? *cursor : count;
    if (*cursor == 0) {
        return false;
    }
    *info_out = info_of(pool, pool->docs[--*cursor]);
    return true;
}

/* --- the check -------------------------------------------------------------------------------- */

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "kvpool_check: %s:%d: broken: %s\n", __FILE__, __LINE__,         \
                          #condition);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* What the walk over the pool found. */
struct census {
    bool *is_owned; /* [block_count] */
    uint32_t docs, own, evictable, pinned, quarantined;
};

static void
check_ids(const struct kvpool *pool, const uint32_t *ids, uint32_t count, struct census *census)
{
    for (uint32_t i = 0; i < count; i++) {
        HOLDS(ids[i] < pool->config.block_count);
        HOLDS(!census->is_owned[ids[i]]);
        census->is_owned[ids[i]] = true;
    }
}

static void
check_doc(const struct kvpool *pool, const struct kvpool_doc *doc, struct census *census)
{
    const struct evict_doc *policy = &doc->policy;
    uint32_t needed = kvpool_blocks_for(pool, policy->n_tokens);
    uint64_t resident_tokens = (uint64_t)policy->blocks_resident * pool->config.block_tokens;

    HOLDS(policy->n_tokens > 0);
    HOLDS(doc->run->count == policy->blocks_resident);
    HOLDS(doc->run->capacity == needed);
    HOLDS(policy->blocks_resident > 0 && policy->blocks_resident <= needed);
    HOLDS(doc->tokens_ready <= policy->n_tokens && doc->tokens_ready <= resident_tokens);
    HOLDS(doc->references == doc->counted_references);
    HOLDS(doc->is_indexed || doc->references > 0);
    HOLDS(doc->is_indexed ? kvpool_stem_is_right(doc) : list_is_empty(&doc->stem_link));
    HOLDS(!(doc->is_abandoned && (doc->is_indexed || doc_is_building(doc))));
    if (doc_is_building(doc)) {
        HOLDS(doc->references > 0);
        HOLDS(policy->blocks_resident == needed);
        HOLDS(doc->tokens_ready < policy->n_tokens);
    } else if (!doc->is_abandoned) {
        HOLDS(doc->tokens_ready == policy->n_tokens || doc->tokens_ready == resident_tokens);
        HOLDS(doc->references == 0 || doc->tokens_ready == policy->n_tokens || doc->ids != NULL);
    }
    HOLDS(policy->is_evictable
          == (doc->is_indexed && !doc_is_building(doc) && doc->references == 0 && doc->pins == 0));
    HOLDS(doc->pins == 0 || (doc->is_indexed && doc->tokens_ready == policy->n_tokens));
    HOLDS(doc->run->fence == 0 || doc->is_abandoned);
    census->docs += policy->blocks_resident;
    census->evictable += policy->is_evictable ? policy->blocks_resident : 0;
    census->pinned += doc->pins > 0 ? policy->blocks_resident : 0;
    check_ids(pool, doc->run->ids, doc->run->count, census);
}

static void
check_docs(const struct kvpool *pool, struct census *census)
{
    size_t indexed = 0;

    for (struct htab_node *node = htab_next(&pool->index, NULL); node != NULL;
         node = htab_next(&pool->index, node)) {
        const struct kvpool_doc *doc = HTAB_ENTRY(node, const struct kvpool_doc, node);

        indexed++;
        HOLDS(doc->is_indexed);
        HOLDS(pool->docs == NULL || pool->docs[doc->at] == doc);
        HOLDS(ghosts_find(pool->ghosts, &doc->policy.key, KVPOOL_HIT) == KVPOOL_HIT);
        check_doc(pool, doc, census);
    }
    HOLDS(indexed == pool->index.count);
    LIST_FOR_EACH(node, &pool->detached)
    {
        const struct kvpool_doc *doc = LIST_ENTRY(node, const struct kvpool_doc, link);

        HOLDS(!doc->is_indexed);
        HOLDS(doc->spill == NULL); /* copies are of what can be found */
        check_doc(pool, doc, census);
    }
}

static void
zero_counted_references(const struct kvpool *pool)
{
    for (struct htab_node *node = htab_next(&pool->index, NULL); node != NULL;
         node = htab_next(&pool->index, node)) {
        HTAB_ENTRY(node, struct kvpool_doc, node)->counted_references = 0;
    }
    LIST_FOR_EACH(node, &pool->detached)
    {
        LIST_ENTRY(node, struct kvpool_doc, link)->counted_references = 0;
    }
}

static void
check_claims(const struct kvpool *pool, struct census *census)
{
    zero_counted_references(pool);
    LIST_FOR_EACH(node, &pool->claims)
    {
        const struct kvpool_claim *claim = LIST_ENTRY(node, const struct kvpool_claim, link);

        for (uint32_t i = 0; i < claim->doc_count; i++) {
            claim->docs[i]->counted_references++;
        }
        HOLDS(claim->own->fence == 0);
        census->own += claim->own->count;
        check_ids(pool, claim->own->ids, claim->own->count, census);
    }
}

void
kvpool_check(const struct kvpool *pool)
{
    struct census census = {.is_owned = mem_zalloc(pool->config.block_count, sizeof(bool))};

    HOLDS(census.is_owned != NULL);
    check_claims(pool, &census); /* counts the references that check_docs compares */
    check_docs(pool, &census);
    LIST_FOR_EACH(node, &pool->blocks.quarantine)
    {
        const struct block_run *run = LIST_ENTRY(node, const struct block_run, link);

        HOLDS(run->fence != 0 && run->count > 0);
        census.quarantined += run->count;
        check_ids(pool, run->ids, run->count, &census);
    }
    LIST_FOR_EACH(node, &pool->blocks.erasing)
    {
        const struct block_run *run = LIST_ENTRY(node, const struct block_run, link);

        HOLDS(run->fence == 0 && run->erasure != 0 && run->count > 0);
        census.quarantined += run->count;
        check_ids(pool, run->ids, run->count, &census);
    }
    check_ids(pool, pool->blocks.free_ids, pool->blocks.free_count, &census);
    HOLDS(census.docs == pool->blocks_docs);
    HOLDS(census.own == pool->blocks_own);
    HOLDS(census.evictable == pool->blocks_evictable);
    HOLDS(census.pinned == pool->blocks_pinned);
    HOLDS(census.quarantined == pool->blocks.quarantined);
    HOLDS((uint64_t)census.docs + census.own + census.quarantined + pool->blocks.free_count
          == pool->config.block_count);
    mem_free(census.is_owned);
}
