/* SPDX-License-Identifier: Apache-2.0 */
/* Forgetting for good.
 *
 * A document may be here in several forms: itself, copies of it at other places, documents encoded
 * behind it and turns computed over it (their KV has something of it), builds of it that were lost,
 * and blocks that were freed and nobody has taken since.  All
 * of them go, and none of their blocks is free before a worker has overwritten it.  (A block that
 * somebody has taken is wiped by his worker before it is used.)  What somebody still reads goes
 * when the last reference does: its run carries the erasure, and the run's end puts it where
 * kvpool_next_erasure finds it (blocks.c).  An answer's own blocks have something of its documents
 * too (all of them, with reuse `none`), and are remnants of each when they are free. */
#include <assert.h>

#include "common/mem.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"
#include "kvpool/tier.h"

void
kvpool_claim_own(struct kvpool *pool, struct kvpool_claim *claim, const uint64_t *documents,
                 size_t count)
{
    for (size_t i = 0; i < count; i++) {
        claim->owner =
            claim->owner == 0 || claim->owner == documents[i] ? documents[i] : BLOCKS_ANY;
    }
    blocks_own(&pool->blocks, claim->own, 0, claim->owner);
}

/* Lost or forgotten before, and still read, or fenced.  What an earlier erasure has is its own. */
static uint32_t
mark_detached(struct kvpool *pool, const struct dockey *key, uint64_t erasure)
{
    uint32_t blocks = blocks_mark_fenced(&pool->blocks, dockey_hash(key), erasure);

    LIST_FOR_EACH(node, &pool->detached)
    {
        struct kvpool_doc *doc = LIST_ENTRY(node, struct kvpool_doc, link);

        if (doc->run->erasure == 0 && kvpool_doc_stems_from(doc, key)) {
            doc->run->erasure = erasure;
            blocks += doc->run->count;
        }
    }
    return blocks;
}

/* What somebody has taken is wiped by his worker before it is used.  If it comes back without that,
 * it has to be overwritten. */
static void
taint_taken(const struct kvpool *pool, uint64_t source, uint64_t erasure)
{
    LIST_FOR_EACH(node, &pool->claims)
    {
        const struct kvpool_claim *claim = LIST_ENTRY(node, const struct kvpool_claim, link);

        blocks_taint(&pool->blocks, claim->own, source, erasure);
        for (uint32_t i = 0; i < claim->doc_count; i++) { /* a document to build is of a claim */
            blocks_taint(&pool->blocks, claim->docs[i]->run, source, erasure);
        }
    }
}

bool
kvpool_has_tainted(const struct kvpool *pool, uint64_t erasure)
{
    LIST_FOR_EACH(node, &pool->claims)
    {
        const struct kvpool_claim *claim = LIST_ENTRY(node, const struct kvpool_claim, link);
        bool is_tainted = claim->own->taint == erasure;

        for (uint32_t i = 0; i < claim->doc_count; i++) {
            is_tainted |= claim->docs[i]->run->taint == erasure;
        }
        if (is_tainted) {
            return true;
        }
    }
    return false;
}

bool
kvpool_claim_is_tainted(const struct kvpool_claim *claim, bool with_documents)
{
    bool is_tainted = claim->own->taint != 0;

    for (uint32_t i = 0; with_documents && i < claim->doc_count; i++) {
        is_tainted |= claim->docs[i]->run->taint != 0;
    }
    return is_tainted;
}

enum status
kvpool_erase_remnants(struct kvpool *pool, const struct dockey *key, uint64_t erasure,
                      struct kvpool_forgotten *forgotten_out)
{
    struct kvpool_forgotten forgotten = {0};
    uint64_t source = dockey_hash(key);

    assert(erasure != 0);
    if (pool->tier != NULL) {
        TRY(pool->tier->ops->erase(pool->tier, key, erasure, &forgotten.host_blocks));
    }
    TRY(blocks_take_remnants(&pool->blocks, source, erasure, &forgotten.remnants));
    forgotten.remnants += mark_detached(pool, key, erasure);
    forgotten.blocks = forgotten.remnants;
    taint_taken(pool, source, erasure);
    *forgotten_out = forgotten;
    return ST_OK;
}

enum status
kvpool_erase(struct kvpool *pool, const struct dockey *key, uint64_t erasure,
             struct kvpool_forgotten *forgotten_out)
{
    struct kvpool_forgotten forgotten = {0};
    struct kvpool_doc *doc;

    TRY(kvpool_erase_remnants(pool, key, erasure, &forgotten));
    while ((doc = kvpool_find_stemming(pool, key)) != NULL) {
        forgotten.documents++;
        forgotten.blocks += doc->run->count;
        doc->run->erasure = erasure;
        kvpool_detach_forgotten(pool, doc);
    }
    if (forgotten.blocks + forgotten.host_blocks == 0) {
        return ERR(ST_NOT_FOUND, "document is not in the pool");
    }
    *forgotten_out = forgotten;
    return ST_OK;
}

uint32_t
kvpool_drop_stemming(struct kvpool *pool, const struct dockey *key)
{
    struct kvpool_doc *doc;
    uint32_t count = 0;

    while ((doc = kvpool_find_stemming(pool, key)) != NULL) {
        kvpool_drop_damaged(pool, doc);
        count++;
    }
    return count;
}

bool
kvpool_is_erasing(const struct kvpool *pool, const struct dockey *key)
{
    if (blocks_are_erasing(&pool->blocks, dockey_hash(key))
        || (pool->tier != NULL && pool->tier->ops->is_erasing(pool->tier, key))) {
        return true;
    }
    LIST_FOR_EACH(node, &pool->claims) /* regained with blocks that an erasure had */
    {
        const struct kvpool_claim *claim = LIST_ENTRY(node, const struct kvpool_claim, link);

        if (claim->own->erasure != 0 && claim->own->count > 0) {
            return true;
        }
    }
    LIST_FOR_EACH(node, &pool->detached)
    {
        const struct kvpool_doc *doc = LIST_ENTRY(node, const struct kvpool_doc, link);

        if (doc->run->erasure != 0 && doc->run->count > 0 && kvpool_doc_stems_from(doc, key)) {
            return true;
        }
    }
    return false;
}

const uint32_t *
kvpool_next_erasure(struct kvpool *pool, uint64_t erase, uint64_t eraser, uint32_t *count_out)
{
    const struct block_run *run = blocks_next_erasure(&pool->blocks, erase, eraser);

    if (run == NULL) {
        return NULL;
    }
    *count_out = run->count;
    return run->ids;
}

const uint32_t *
kvpool_next_tier_erasure(struct kvpool *pool, uint64_t erase, uint64_t eraser, uint32_t *count_out)
{
    return pool->tier == NULL ? NULL
                              : pool->tier->ops->next_erasure(pool->tier, erase, eraser, count_out);
}

uint32_t
kvpool_erased(struct kvpool *pool, uint64_t erase)
{
    uint32_t count = blocks_erased(&pool->blocks, erase);

    return pool->tier == NULL ? count : count + pool->tier->ops->erased(pool->tier, erase);
}

void
kvpool_lose_eraser(struct kvpool *pool, uint64_t eraser)
{
    blocks_lose_eraser(&pool->blocks, eraser);
    if (pool->tier != NULL) {
        pool->tier->ops->lose_eraser(pool->tier, eraser);
    }
}
