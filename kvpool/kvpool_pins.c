/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator does by hand: documents are pinned, up to a share of the pool, or evicted. */
#include "kvpool/kvpool.h"

#include "kvpool/pool_state.h"

enum status
kvpool_pin(struct kvpool *pool, const struct dockey *key)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);
    uint32_t allowed = (uint32_t)(pool->config.pin_share_max * pool->config.block_count);

    if (doc == NULL) {
        return ERR(ST_NOT_FOUND, "document is not in the pool");
    }
    if (!kvpool_doc_is_ready(doc)) {
        return ERR(ST_UNAVAILABLE, "document has %u of its %u tokens", doc->tokens_ready,
                   doc->policy.n_tokens);
    }
    if (doc->pins == UINT32_MAX) {
        return ERR(ST_NO_MEMORY, "document has %u pins", doc->pins);
    }
    if (doc->pins == 0) {
        if (doc->policy.blocks_resident > allowed - pool->blocks_pinned) {
            return ERR(ST_NO_MEMORY,
                       "document of %u blocks beside %u pinned ones, %u may be pinned",
                       doc->policy.blocks_resident, pool->blocks_pinned, allowed);
        }
        pool->blocks_pinned += doc->policy.blocks_resident;
    }
    doc->pins++;
    kvpool_note_pins(pool, doc);
    kvpool_doc_update_evictable(pool, doc);
    return ST_OK;
}

enum status
kvpool_unpin(struct kvpool *pool, const struct dockey *key)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);

    if (doc == NULL || doc->pins == 0) {
        return ERR(ST_NOT_FOUND, "document is not %s", doc == NULL ? "in the pool" : "pinned");
    }
    doc->pins--;
    if (doc->pins == 0) {
        pool->blocks_pinned -= doc->policy.blocks_resident;
    }
    kvpool_note_pins(pool, doc);
    kvpool_doc_update_evictable(pool, doc);
    return ST_OK;
}

uint32_t
kvpool_doc_pins(const struct kvpool_doc *doc)
{
    return doc->pins;
}

enum status
kvpool_evict_doc(struct kvpool *pool, const struct dockey *key, uint32_t blocks,
                 uint32_t *blocks_out)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);

    if (doc == NULL) {
        return ERR(ST_NOT_FOUND, "the document is not resident");
    }
    if (!doc->policy.is_evictable) {
        return ERR(ST_UNAVAILABLE, "the document is pinned, read or built");
    }
    *blocks_out = blocks < doc->policy.blocks_resident ? blocks : doc->policy.blocks_resident;
    kvpool_evict_tail(pool, doc, *blocks_out);
    return ST_OK;
}
