/* SPDX-License-Identifier: Apache-2.0 */
/* Which resident document begins most like another one: for people who wonder about a miss. */
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "kvpool/pool_state.h"

/* The ids in block `at` of a document; NULL: not known.  Borrowed; zeros may stand for unknown. */
static const uint32_t *
block_ids(const struct kvpool *pool, const struct kvpool_doc *doc, uint32_t at)
{
    const uint32_t *ids = NULL;
    struct catalog_record record;

    if (doc->ids != NULL || at >= doc->run->count || pool->config.catalog == NULL
        || !catalog_read(pool->config.catalog, doc->run->ids[at], &record, &ids)) {
        return NULL;
    }
    return ids;
}

/* Tokens at the beginning that two documents have in common, as far as both are known. */
static uint32_t
common_tokens(const struct kvpool *pool, const struct kvpool_doc *a, const struct kvpool_doc *b)
{
    uint32_t P = pool->config.block_tokens, count = 0;
    uint32_t end = a->tokens_ready < b->tokens_ready ? a->tokens_ready : b->tokens_ready;

    while (count < end) {
        const uint32_t *ids_a = block_ids(pool, a, count / P), *ids_b;

        ids_b = block_ids(pool, b, count / P);
        if (ids_a == NULL || ids_b == NULL) {
            return count;
        }
        do {
            if (ids_a[count % P] != ids_b[count % P]) {
                return count;
            }
            count++;
        } while (count < end && count % P != 0);
    }
    return count;
}

static uint32_t
copy_ids(const struct kvpool *pool, const struct kvpool_doc *doc, uint32_t from, uint32_t *ids_out)
{
    uint32_t P = pool->config.block_tokens, count = 0;

    while (count < KVPOOL_ALIKE_IDS && from + count < doc->tokens_ready) {
        const uint32_t *ids = block_ids(pool, doc, (from + count) / P);

        if (ids == NULL) {
            break;
        }
        ids_out[count] = ids[(from + count) % P];
        count++;
    }
    return count;
}

bool
kvpool_most_alike(const struct kvpool *pool, const struct dockey *key, struct kvpool_alike *out)
{
    const struct kvpool_doc *doc = kvpool_find(pool, key), *best = NULL;
    struct htab_node *node = NULL;
    uint32_t most = 0;

    if (doc == NULL || block_ids(pool, doc, 0) == NULL) {
        return false;
    }
    while ((node = htab_next(&pool->index, node)) != NULL) {
        const struct kvpool_doc *other = HTAB_ENTRY(node, struct kvpool_doc, node);
        uint32_t common = other == doc ? 0 : common_tokens(pool, doc, other);

        if (common > most) {
            most = common;
            best = other;
        }
    }
    if (best == NULL) {
        return false;
    }
    *out = (struct kvpool_alike){
        .key = best->policy.key,
        .n_tokens = best->policy.n_tokens,
        .first_difference = most,
    };
    out->here_count = copy_ids(pool, doc, most, out->here);
    out->there_count = copy_ids(pool, best, most, out->there);
    return true;
}
