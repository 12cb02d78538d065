/* SPDX-License-Identifier: Apache-2.0 */
/* What of the pool is noted in the catalog, and how the next process reads it back.
 *
 * Noting: a block's record is written when a build takes the block, sealed with its document,
 * unsealed when the document leaves the index, cleared when the block is free (blocks.c).  So at
 * every moment a sealed record is a sealed block of an indexed document, and a block that a process
 * may write says whose it is.
 *
 * Reading back: each record that verifies puts its block into its document's place; then every
 * document keeps its head, up to the first gap, and the rest is free.  A document of which two
 * blocks claim one place, or disagree about its length, is dropped: one of them lies. */
#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"
#include "kvpool/tier.h"

/* --- noting ----------------------------------------------------------------------------------- */

void
kvpool_note_build(struct kvpool *pool, const struct kvpool_doc *doc, const uint32_t *ids)
{
    uint32_t block_tokens = pool->config.block_tokens;

    if (pool->config.catalog == NULL) {
        return;
    }
    /* What is ready stays sealed: a head is whole blocks. */
    for (uint32_t i = doc->tokens_ready / block_tokens; i < doc->run->count; i++) {
        struct catalog_record record = {.key = doc->policy.key,
                                        .generation = doc->generation,
                                        .source = kvpool_doc_owner(doc),
                                        .index = i,
                                        .n_tokens = doc->policy.n_tokens};

        catalog_write(pool->config.catalog, doc->run->ids[i], &record,
                      ids == NULL ? NULL : ids + (size_t)i * block_tokens);
    }
}

/* To be called before tokens_ready says that all is sealed. */
void
kvpool_note_seal(struct kvpool *pool, const struct kvpool_doc *doc)
{
    if (pool->config.catalog == NULL || !doc->is_indexed) {
        return; /* forgotten while it was built: nobody shall find it again */
    }
    for (uint32_t i = doc->tokens_ready / pool->config.block_tokens; i < doc->run->count; i++) {
        catalog_seal(pool->config.catalog, doc->run->ids[i], doc->origin,
                     pool->blocks.contents[doc->run->ids[i]]);
    }
}

void
kvpool_note_leave(struct kvpool *pool, const struct kvpool_doc *doc)
{
    if (pool->config.catalog == NULL) {
        return;
    }
    for (uint32_t i = 0; i < doc->run->count; i++) {
        catalog_unseal(pool->config.catalog, doc->run->ids[i]);
    }
}

void
kvpool_note_pins(struct kvpool *pool, const struct kvpool_doc *doc)
{
    if (pool->config.catalog != NULL && doc->ids == NULL) { /* a turn has no record */
        catalog_set_pins(pool->config.catalog, doc->run->ids[0], doc->pins);
    }
}

void
kvpool_note_own(struct kvpool *pool, const struct kvpool_claim *claim, uint32_t from)
{
    if (pool->config.catalog == NULL || claim->lender == 0) {
        return;
    }
    for (uint32_t i = from; i < claim->own->count; i++) {
        catalog_lend(pool->config.catalog, claim->own->ids[i], claim->lender);
    }
}

void
kvpool_lend(struct kvpool *pool, struct kvpool_claim *claim, uint64_t builder, uint64_t incarnation)
{
    assert(incarnation != 0);
    claim->lender = incarnation;
    kvpool_note_own(pool, claim, 0);
    for (uint32_t i = 0; pool->config.catalog != NULL && i < claim->doc_count; i++) {
        const struct kvpool_doc *doc = claim->docs[i];

        for (uint32_t b = doc->tokens_ready / pool->config.block_tokens;
             doc->builder == builder && b < doc->run->count; b++) {
            catalog_lend(pool->config.catalog, doc->run->ids[b], incarnation);
        }
    }
}

/* --- reading back ----------------------------------------------------------------------------- */

#define NO_BLOCK UINT32_MAX

/* The document of a record, with an empty place for each of its blocks. */
static enum status
require_doc(struct kvpool *pool, const struct catalog_record *record, struct kvpool_doc **doc_out)
{
    struct kvpool_doc *doc = kvpool_find(pool, &record->key);

    if (doc == NULL) {
        doc = kvpool_doc_new(pool, &record->key, record->n_tokens);
        if (doc == NULL
            || block_run_new(kvpool_blocks_for(pool, record->n_tokens), &doc->run) != ST_OK
            || kvpool_index_add(pool, doc) != ST_OK) {
            if (doc != NULL) {
                kvpool_doc_free(doc);
            }
            return ERR(ST_NO_MEMORY, "record of a document");
        }
        memset(doc->run->ids, 0xff, doc->run->capacity * sizeof(doc->run->ids[0]));
    }
    *doc_out = doc;
    return ST_OK;
}

/* Puts a block into its place; a document in which that cannot be is abandoned. */
static enum status
place(struct kvpool *pool, const struct catalog_record *record, uint32_t block)
{
    struct kvpool_doc *doc = NULL;

    if (kvpool_blocks_for(pool, record->n_tokens) > pool->config.block_count) {
        return ST_OK; /* more than the pool has: no document of ours */
    }
    TRY(require_doc(pool, record, &doc));
    if (doc->policy.n_tokens != record->n_tokens || doc->run->ids[record->index] != NO_BLOCK) {
        doc->is_abandoned = true;
        return ST_OK;
    }
    doc->run->ids[record->index] = block;
    pool->blocks.contents[block] = record->content;
    if (record->index == 0) {
        doc->pins = record->pins;
        doc->origin = record->origin;
        kvpool_doc_set_source(pool, doc, record->source);
    }
    if (record->generation > doc->generation) {
        doc->generation = record->generation;
    }
    return ST_OK;
}

/* Blocks from the first one to the first gap. */
static uint32_t
head_of(const struct kvpool_doc *doc)
{
    uint32_t count = 0;

    while (!doc->is_abandoned && count < doc->run->capacity && doc->run->ids[count] != NO_BLOCK) {
        count++;
    }
    return count;
}

static void
index_head(struct kvpool *pool, struct kvpool_doc *doc, uint32_t count,
           struct kvpool_adopted *adopted)
{
    uint64_t tokens = (uint64_t)count * pool->config.block_tokens;
    uint32_t pinnable = (uint32_t)(pool->config.pin_share_max * pool->config.block_count);

    doc->run->count = doc->policy.blocks_resident = count;
    doc->tokens_ready = tokens < doc->policy.n_tokens ? (uint32_t)tokens : doc->policy.n_tokens;
    doc->is_indexed = true;
    doc->is_admitted = true;
    doc->is_adopted = true;
    list_push_back(&pool->to_check, &doc->check_link);
    if (doc->tokens_ready < doc->policy.n_tokens || count > pinnable - pool->blocks_pinned) {
        doc->pins = 0; /* pin_share_max may be another one now */
    }
    pool->blocks_pinned += doc->pins > 0 ? count : 0;
    pool->blocks_docs += count;
    if (doc->generation > pool->generation) {
        pool->generation = doc->generation;
    }
    pool->config.policy->admitted(pool->policy, &doc->policy);
    kvpool_doc_update_evictable(pool, doc);
    adopted->documents++;
    adopted->blocks += count;
}

/* Keeps the heads; `is_kept` says of each block whether it is in one. */
static void
index_heads(struct kvpool *pool, bool *is_kept, struct kvpool_adopted *adopted)
{
    struct htab_node *next;

    for (struct htab_node *node = htab_next(&pool->index, NULL); node != NULL; node = next) {
        struct kvpool_doc *doc = HTAB_ENTRY(node, struct kvpool_doc, node);
        uint32_t count = head_of(doc);

        next = htab_next(&pool->index, node);
        if (count == 0) {
            kvpool_index_remove(pool, doc);
            kvpool_doc_free(doc);
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            is_kept[doc->run->ids[i]] = true;
            blocks_adopt(&pool->blocks, doc->run->ids[i], doc->source);
        }
        index_head(pool, doc, count, adopted);
    }
}

/* A run of its own for each block: they are few, and their fences differ. */
static enum status
fence(struct kvpool *pool, uint32_t block, uint64_t incarnation)
{
    struct block_run *run = NULL;

    TRY(block_run_new(1, &run));
    run->ids[run->count++] = block;
    run->fence = incarnation;
    blocks_end_run(&pool->blocks, &run);
    return ST_OK;
}

/* Every block that is in no head is free, or fenced. */
static enum status
sort_rest(struct kvpool *pool, const bool *is_kept, kvpool_may_write_fn may_write, void *arg,
          struct kvpool_adopted *adopted)
{
    struct catalog *catalog = pool->config.catalog;

    pool->blocks.free_count = 0;
    for (uint32_t block = pool->config.block_count; block-- > 0;) { /* so that block 0 goes first */
        uint64_t lender = catalog_lender(catalog, block);
        struct catalog_record record;

        if (is_kept[block]) {
            continue;
        }
        blocks_adopt(&pool->blocks, block, 0);
        adopted->blocks_dropped +=
            catalog_read(catalog, block, &record, NULL) || catalog_is_torn(catalog, block);
        if (lender != 0 && may_write(arg, lender)) {
            catalog_unseal(catalog, block);
            TRY(fence(pool, block, lender));
            adopted->blocks_fenced++;
            continue;
        }
        catalog_clear(catalog, block);
        pool->blocks.free_ids[pool->blocks.free_count++] = block;
    }
    return ST_OK;
}

enum status
kvpool_adopt(struct kvpool *pool, kvpool_may_write_fn may_write, void *arg,
             struct kvpool_adopted *adopted_out)
{
    struct kvpool_adopted adopted = {0};
    bool *is_kept = mem_zalloc(pool->config.block_count, sizeof(*is_kept));
    enum status st = is_kept == NULL ? ERR(ST_NO_MEMORY, "adoption of a pool") : ST_OK;

    assert(pool->index.count == 0 && pool->blocks.free_count == pool->config.block_count);
    for (uint32_t block = 0; st == ST_OK && block < pool->config.block_count; block++) {
        struct catalog_record record;

        /* Sealed and lent cannot both be true; whoever is lent it may have written it since. */
        if (catalog_lender(pool->config.catalog, block) == 0
            && catalog_read(pool->config.catalog, block, &record, NULL)) {
            st = place(pool, &record, block);
        }
    }
    if (st == ST_OK) {
        index_heads(pool, is_kept, &adopted);
        st = sort_rest(pool, is_kept, may_write, arg, &adopted);
    }
    mem_free(is_kept);
    *adopted_out = adopted;
    return st;
}

void
kvpool_leave_catalog(struct kvpool *pool)
{
    pool->config.catalog = NULL;
    pool->blocks.catalog = NULL;
    if (pool->tier != NULL) {
        pool->tier->ops->leave(pool->tier);
    }
}

enum status
kvpool_claim_regain(struct kvpool *pool, struct kvpool_claim *claim, uint64_t fence,
                    const uint32_t *blocks, uint32_t count)
{
    bool *is_wanted;
    bool is_done;

    assert(claim->own->count == 0 && fence != 0);
    TRY(block_run_reserve(&claim->own, count));
    is_wanted = mem_zalloc(pool->config.block_count, sizeof(*is_wanted));
    if (is_wanted == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %u blocks", pool->config.block_count);
    }
    is_done = blocks_regain(&pool->blocks, fence, blocks, count, claim->own, is_wanted);
    mem_free(is_wanted);
    if (!is_done) {
        return ERR(ST_INVALID, "%u blocks that were not lent to this worker", count);
    }
    pool->blocks_own += count;
    claim->lender = fence;
    claim->owner = BLOCKS_ANY; /* nobody has said yet what it reads */
    return ST_OK;
}
