/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of blocks, and which document is read again next.
 *
 * A sum belongs to a block from its seal to its next owner; what was never told is 0.  Documents
 * that have sealed blocks stand in one line: the front is looked at and goes to the back. */
#include <assert.h>

#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"

uint64_t
kvpool_block_content(const struct kvpool *pool, uint32_t block)
{
    assert(block < pool->config.block_count);
    return pool->blocks.contents[block];
}

void
kvpool_doc_set_contents(struct kvpool *pool, const struct kvpool_doc *doc, uint32_t first,
                        const uint64_t *sums, uint32_t count)
{
    struct catalog *catalog = pool->config.catalog;

    assert(first + count <= doc->run->count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = doc->run->ids[first + i];

        pool->blocks.contents[block] = sums[i];
        if (catalog != NULL) {
            catalog_set_content(catalog, block, sums[i]);
        }
    }
}

struct kvpool_doc *
kvpool_next_to_check(struct kvpool *pool)
{
    uint32_t left =
        pool->index.count > CHECK_TRIES_MAX ? CHECK_TRIES_MAX : (uint32_t)pool->index.count;

    for (; left > 0 && !list_is_empty(&pool->to_check); left--) {
        struct kvpool_doc *doc = LIST_ENTRY(pool->to_check.next, struct kvpool_doc, check_link);

        list_unlink(&doc->check_link);
        list_push_back(&pool->to_check, &doc->check_link);
        if (!doc_is_building(doc) && doc->policy.blocks_resident > 0) {
            return doc;
        }
    }
    return NULL;
}

bool
kvpool_doc_is_adopted(const struct kvpool_doc *doc)
{
    return doc->is_adopted;
}

bool
kvpool_doc_compare(struct kvpool *pool, struct kvpool_doc *doc, const uint32_t *blocks,
                   const uint64_t *sums, uint32_t count, uint32_t *damaged_out)
{
    uint32_t damaged = 0;

    *damaged_out = 0;
    for (uint32_t i = 0; i < count && i < doc->run->count; i++) {
        uint64_t content = pool->blocks.contents[blocks[i]];

        if (doc->run->ids[i] != blocks[i]) {
            return false;
        }
        damaged += content != 0 && content != sums[i];
        if (content == 0) { /* nobody told: what is there now is what it is measured by */
            kvpool_doc_set_contents(pool, doc, i, &sums[i], 1);
        }
    }
    *damaged_out = damaged;
    doc->is_adopted = false;
    return true;
}
