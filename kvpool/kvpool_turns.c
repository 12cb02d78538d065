/* SPDX-License-Identifier: Apache-2.0 */
/* Turns: a request's own blocks live on as a document that a follow-up may begin with.
 *
 * A turn is whole blocks and never built again: what was evicted of it the follow-up computes among
 * its own tokens.  So it may be referenced while it is partly resident, as no other document may.
 * It is not in the catalog: it does not survive kvasird. */
#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"

const uint32_t *
kvpool_doc_ids(const struct kvpool_doc *doc)
{
    return doc->ids;
}

static enum status
new_turn(struct kvpool *pool, const struct dockey *key, uint32_t count, const uint32_t *ids,
         struct kvpool_doc **doc_out)
{
    uint32_t n_tokens = count * pool->config.block_tokens;
    struct kvpool_doc *doc = kvpool_doc_new(pool, key, n_tokens);

    if (doc == NULL) {
        return ERR(ST_NO_MEMORY, "record of a turn");
    }
    doc->ids = mem_zalloc(n_tokens, sizeof(ids[0]));
    if (doc->ids == NULL || block_run_new(count, &doc->run) != ST_OK
        || kvpool_index_add(pool, doc) != ST_OK) {
        kvpool_doc_free(doc);
        return ERR(ST_NO_MEMORY, "record of a turn");
    }
    memcpy(doc->ids, ids, n_tokens * sizeof(ids[0]));
    *doc_out = doc;
    return ST_OK;
}

/* The blocks change hands; nobody else may write them, so no catalog needs to know. */
static void
move_blocks(struct kvpool *pool, struct block_run *own, uint32_t first, uint32_t count,
            struct kvpool_doc *doc)
{
    memcpy(doc->run->ids, own->ids + first, count * sizeof(own->ids[0]));
    memmove(own->ids + first, own->ids + first + count,
            (own->count - first - count) * sizeof(own->ids[0]));
    own->count -= count;
    doc->run->count = count;
    doc->policy.blocks_resident = count;
    pool->blocks_own -= count;
    pool->blocks_docs += count;
    for (uint32_t i = 0; pool->config.catalog != NULL && i < count; i++) {
        catalog_clear(pool->config.catalog, doc->run->ids[i]);
    }
}

enum status
kvpool_turn_set_cites(struct kvpool *pool, const struct dockey *key, const uint64_t *cites,
                      uint32_t count)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);

    assert(doc != NULL && doc->ids != NULL && doc->cites == NULL);
    return kvpool_doc_set_cites(pool, doc, cites, count);
}

enum status
kvpool_keep_own(struct kvpool *pool, struct kvpool_claim *claim, uint32_t first, uint32_t count,
                const struct dockey *key, const uint32_t *ids, uint32_t origin)
{
    struct kvpool_doc *doc;

    assert(count > 0 && first + count <= claim->own->count && kvpool_find(pool, key) == NULL);
    TRY(new_turn(pool, key, count, ids, &doc));
    (void)ghosts_take(pool->ghosts, key, KVPOOL_MISS_COLD);
    move_blocks(pool, claim->own, first, count, doc);
    blocks_settle(&pool->blocks, doc->run);
    doc->is_indexed = true;
    doc->is_admitted = true;
    list_push_back(&pool->to_check, &doc->check_link);
    doc->tokens_ready = doc->policy.n_tokens;
    doc->origin = origin;
    doc->generation = ++pool->generation;
    doc->came = pool->claims_made;
    ages_come(pool, doc);
    pool->counted.turns_kept++;
    pool->config.policy->used(pool->policy, &doc->policy);
    pool->config.policy->admitted(pool->policy, &doc->policy);
    kvpool_doc_update_evictable(pool, doc);
    return ST_OK;
}
