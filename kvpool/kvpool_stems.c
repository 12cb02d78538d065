/* SPDX-License-Identifier: Apache-2.0 */
/* Which documents have something of another one: copies of it at other places, documents encoded
 * behind it, turns computed over it.  They are found without looking at all.
 *
 * Most documents have something of themselves alone and are found by their key; the others stand
 * in a table by what they stem from, once for each, or in one list if it may be any.
 *
 * Documents are told apart by eight bytes of their keys here: two that share them (once in 2^64
 * pairs) would go together. */
#include <assert.h>

#include "common/mem.h"
#include "kvpool/pool_state.h"

#define SOURCES_MIN 64

enum status
kvpool_stems_init(struct kvpool *pool)
{
    size_t count = SOURCES_MIN;

    while (!pool->config.is_replay && count < pool->config.block_count / 4) {
        count *= 2;
    }
    pool->stems = mem_zalloc(2 * count, sizeof(pool->stems[0]));
    if (pool->stems == NULL) {
        return ERR(ST_NO_MEMORY, "table of what documents stem from");
    }
    for (size_t i = 0; i < 2 * count; i++) {
        list_init(&pool->stems[i]);
    }
    pool->cites = pool->stems + count;
    pool->stem_mask = count - 1;
    list_init(&pool->stems_any);
    return ST_OK;
}

void
kvpool_stems_deinit(struct kvpool *pool)
{
    MEM_FREE(pool->stems);
}

/* It is a turn, or from an earlier kvasird, of which nobody has said yet what it was computed over.
 */
static bool
may_be_of_any(const struct kvpool_doc *doc)
{
    return doc->source == BLOCKS_ANY || (doc->ids != NULL && doc->cites == NULL);
}

void
kvpool_unstem(struct kvpool_doc *doc)
{
    list_unlink(&doc->stem_link);
    for (uint32_t i = 0; i < doc->cite_count; i++) {
        list_unlink(&doc->cites[i].link);
    }
}

void
kvpool_stem(struct kvpool *pool, struct kvpool_doc *doc)
{
    kvpool_unstem(doc);
    if (may_be_of_any(doc)) {
        list_push_back(&pool->stems_any, &doc->stem_link);
    } else if (doc->source != dockey_hash(&doc->policy.key)) {
        list_push_back(&pool->stems[doc->source & pool->stem_mask], &doc->stem_link);
    }
    for (uint32_t i = 0; i < doc->cite_count; i++) {
        list_push_back(&pool->cites[doc->cites[i].of & pool->stem_mask], &doc->cites[i].link);
    }
}

bool
kvpool_stem_is_right(const struct kvpool_doc *doc)
{
    bool is_plain = !may_be_of_any(doc) && doc->source == dockey_hash(&doc->policy.key);
    bool is_right = list_is_empty(&doc->stem_link) == is_plain;

    for (uint32_t i = 0; i < doc->cite_count; i++) {
        is_right &= doc->cites[i].doc == doc && !list_is_empty(&doc->cites[i].link);
    }
    return is_right;
}

enum status
kvpool_doc_set_cites(struct kvpool *pool, struct kvpool_doc *doc, const uint64_t *cites,
                     uint32_t count)
{
    assert(doc->cites == NULL);
    doc->cites = mem_zalloc(count, sizeof(doc->cites[0]));
    if (doc->cites == NULL) {
        return ERR(ST_NO_MEMORY, "what a document was computed over");
    }
    for (uint32_t i = 0; i < count; i++) {
        doc->cites[i] = (struct stem){.doc = doc, .of = cites[i]};
        list_init(&doc->cites[i].link);
    }
    doc->cite_count = count;
    kvpool_stem(pool, doc);
    return ST_OK;
}

/* Adopted ones have their documents' names from whoever finds them first; until then they may be
 * of any. */
enum status
kvpool_doc_note_behind(struct kvpool *pool, struct kvpool_doc *doc, const struct kvpool_want *want)
{
    if (want->behind_count == 0 || doc->cites != NULL) {
        return ST_OK;
    }
    TRY(kvpool_doc_set_cites(pool, doc, want->behind, want->behind_count));
    kvpool_doc_set_source(pool, doc, want->source);
    return ST_OK;
}

void
kvpool_doc_set_source(struct kvpool *pool, struct kvpool_doc *doc, uint64_t source)
{
    if (doc->source != source) {
        doc->source = source;
        kvpool_stem(pool, doc);
    }
}

uint64_t
kvpool_doc_owner(const struct kvpool_doc *doc)
{
    return doc->cite_count > 0 ? BLOCKS_ANY : doc->source;
}

bool
kvpool_doc_stems_from(const struct kvpool_doc *doc, const struct dockey *key)
{
    uint64_t source = dockey_hash(key);
    bool is_cited = dockey_hash(&doc->policy.key) == source;

    for (uint32_t i = 0; i < doc->cite_count; i++) {
        is_cited |= doc->cites[i].of == source;
    }
    return is_cited || doc->source == source || may_be_of_any(doc);
}

struct kvpool_doc *
kvpool_find_stemming(struct kvpool *pool, const struct dockey *key)
{
    struct kvpool_doc *itself = kvpool_find(pool, key);
    uint64_t source = dockey_hash(key);

    if (itself != NULL) {
        return itself;
    }
    if (!list_is_empty(&pool->stems_any)) {
        return LIST_ENTRY(pool->stems_any.next, struct kvpool_doc, stem_link);
    }
    LIST_FOR_EACH(node, &pool->stems[source & pool->stem_mask])
    {
        struct kvpool_doc *doc = LIST_ENTRY(node, struct kvpool_doc, stem_link);

        if (doc->source == source) {
            return doc;
        }
    }
    LIST_FOR_EACH(node, &pool->cites[source & pool->stem_mask])
    {
        const struct stem *stem = LIST_ENTRY(node, const struct stem, link);

        if (stem->of == source) {
            return stem->doc;
        }
    }
    return NULL;
}
