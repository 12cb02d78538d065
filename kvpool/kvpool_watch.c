/* SPDX-License-Identifier: Apache-2.0 */
/* What a watch hears.  Whole blocks only: whoever routes by tokens counts in whole blocks, and a
 * document's last one is seldom full. */
#include <stddef.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"

void
kvpool_announce(struct kvpool *pool, struct kvpool_doc *doc, const uint32_t *ids)
{
    const struct kvpool_watch *watch = pool->config.watch;
    uint32_t first = doc->blocks_told;
    uint32_t end = doc->tokens_ready / pool->config.block_tokens;

    if (watch == NULL || !doc->is_indexed || first >= end) {
        return;
    }
    doc->blocks_told = end;
    watch->stored(watch->arg, &doc->policy.key, first, end - first,
                  ids + (size_t)first * pool->config.block_tokens);
}

void
kvpool_tell_removed(struct kvpool *pool, struct kvpool_doc *doc, uint32_t keep)
{
    const struct kvpool_watch *watch = pool->config.watch;
    uint32_t told = doc->blocks_told;

    if (told > keep) {
        doc->blocks_told = keep;
        watch->removed(watch->arg, &doc->policy.key, keep, told - keep);
    }
}

/* The document's tokens as far as it is resident, from its blocks' records; false: not known. */
static bool
collect_ids(const struct kvpool *pool, const struct kvpool_doc *doc, uint32_t *ids)
{
    uint32_t block_tokens = pool->config.block_tokens;
    bool is_known = false; /* zeros stand for ids that are not */

    for (uint32_t i = 0; i < doc->tokens_ready / block_tokens; i++) {
        struct catalog_record record;
        const uint32_t *its;

        if (!catalog_read(pool->config.catalog, doc->run->ids[i], &record, &its)) {
            return false;
        }
        for (uint32_t t = 0; t < block_tokens; t++) {
            ids[(size_t)i * block_tokens + t] = its[t];
            is_known |= its[t] != 0;
        }
    }
    return is_known;
}

enum status
kvpool_announce_adopted(struct kvpool *pool)
{
    struct htab_node *node = NULL;

    if (pool->config.watch == NULL || pool->config.catalog == NULL) {
        return ST_OK;
    }
    while ((node = htab_next(&pool->index, node)) != NULL) {
        struct kvpool_doc *doc = HTAB_ENTRY(node, struct kvpool_doc, node);
        uint32_t *ids = mem_zalloc(doc->tokens_ready, sizeof(ids[0]));

        if (ids == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for the tokens of a document");
        }
        if (doc->ids == NULL && collect_ids(pool, doc, ids)) {
            kvpool_announce(pool, doc, ids);
        }
        mem_free(ids);
    }
    return ST_OK;
}
