/* SPDX-License-Identifier: Apache-2.0 */
/* The documents that can be found: by key, and in a list for walks that go on later.
 *
 * The list has room for all from the start, so that it never moves: every document in the index
 * has a block, but for those that a claim is looking at.  It is not zeroed, so it costs what is
 * used. */
#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/pool_state.h"

static size_t
docs_max(const struct kvpool *pool)
{
    return (size_t)pool->config.block_count + KVPOOL_CLAIM_DOCS_MAX;
}

static bool
doc_equal(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct kvpool_doc, node)->policy.key, key, DOCKEY_BYTES)
           == 0;
}

enum status
kvpool_index_init(struct kvpool *pool)
{
    if (!pool->config.is_replay) {
        pool->docs = mem_realloc(NULL, docs_max(pool), sizeof(struct kvpool_doc *));
        if (pool->docs == NULL) {
            return ERR(ST_NO_MEMORY, "list of documents");
        }
    }
    TRY(kvpool_stems_init(pool));
    return htab_init(&pool->index, doc_equal);
}

void
kvpool_index_deinit(struct kvpool *pool)
{
    for (struct htab_node *node = htab_next(&pool->index, NULL), *next; node != NULL; node = next) {
        next = htab_next(&pool->index, node);
        kvpool_doc_free(HTAB_ENTRY(node, struct kvpool_doc, node));
    }
    htab_deinit(&pool->index);
    kvpool_stems_deinit(pool);
    mem_free(pool->docs);
}

struct kvpool_doc *
kvpool_find(const struct kvpool *pool, const struct dockey *key)
{
    struct htab_node *node = htab_find(&pool->index, dockey_hash(key), key);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct kvpool_doc, node);
}

enum status
kvpool_index_add(struct kvpool *pool, struct kvpool_doc *doc)
{
    size_t at = pool->index.count;

    TRY(htab_insert(&pool->index, dockey_hash(&doc->policy.key), &doc->node));
    if (pool->docs != NULL) {
        assert(at < docs_max(pool));
        pool->docs[at] = doc;
        doc->at = (uint32_t)at;
    }
    kvpool_stem(pool, doc);
    return ST_OK;
}

/* The last one takes its place in the list. */
void
kvpool_index_remove(struct kvpool *pool, struct kvpool_doc *doc)
{
    htab_remove(&pool->index, &doc->node);
    kvpool_unstem(doc);
    if (pool->docs != NULL) {
        struct kvpool_doc *last = pool->docs[pool->index.count];

        pool->docs[doc->at] = last;
        last->at = doc->at;
    }
}
