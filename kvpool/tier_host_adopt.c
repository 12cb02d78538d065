/* SPDX-License-Identifier: Apache-2.0 */
/* What the host tier's catalog says after a restart, and whether the books agree. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/tier_host_state.h"

/* --- the check -------------------------------------------------------------------------------- */

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "tier_host: %s:%d: broken: %s\n", __FILE__, __LINE__,            \
                          #condition);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void
check_ids(const struct host *host, bool *is_owned, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        HOLDS(ids[i] < host->config.places && !is_owned[ids[i]]);
        is_owned[ids[i]] = true;
    }
}

static void
check_record(const struct host *host, const struct tier_doc *doc, uint32_t index)
{
    struct catalog_record record;

    HOLDS(catalog_read(host->config.catalog, doc->run->ids[index], &record, NULL));
    HOLDS(memcmp(&record.key, &doc->key, DOCKEY_BYTES) == 0 && record.index == index);
    HOLDS(record.content == doc->sums[index] && record.n_tokens == doc->n_tokens);
    HOLDS(catalog_lender(host->config.catalog, doc->run->ids[index]) == 0);
}

static void
check_detached(const struct host *host, bool *is_owned)
{
    LIST_FOR_EACH(node, &host->detached)
    {
        const struct tier_doc *doc = LIST_ENTRY(node, const struct tier_doc, link);

        HOLDS(!doc->is_indexed && (doc->readers > 0 || doc->writing != NULL));
        check_ids(host, is_owned, doc->run->ids, doc->run->count);
        if (doc->writing != NULL) {
            check_ids(host, is_owned, doc->writing->ids, doc->writing->count);
        }
    }
}

void
tier_host_check(const struct tier *tier)
{
    const struct host *host = const_host_of(tier);
    bool *is_owned = mem_zalloc(host->config.places, sizeof(*is_owned));

    HOLDS(is_owned != NULL);
    for (size_t i = 0; i < host->index.count; i++) {
        const struct tier_doc *doc = host->docs[i];

        HOLDS(doc->at == i && doc->is_indexed && tier_host_find(host, &doc->key) == doc);
        HOLDS(doc->run->count > 0 || doc->writing != NULL);
        check_ids(host, is_owned, doc->run->ids, doc->run->count);
        for (uint32_t b = 0; host->config.catalog != NULL && b < doc->run->count; b++) {
            check_record(host, doc, b);
        }
        if (doc->writing != NULL) {
            check_ids(host, is_owned, doc->writing->ids, doc->writing->count);
        }
    }
    LIST_FOR_EACH(node, &host->places.quarantine)
    {
        const struct block_run *run = LIST_ENTRY(node, const struct block_run, link);

        HOLDS(run->fence != 0);
        check_ids(host, is_owned, run->ids, run->count);
    }
    LIST_FOR_EACH(node, &host->places.erasing)
    {
        const struct block_run *run = LIST_ENTRY(node, const struct block_run, link);

        HOLDS(run->fence == 0 && run->erasure != 0);
        check_ids(host, is_owned, run->ids, run->count);
    }
    check_detached(host, is_owned);
    check_ids(host, is_owned, host->places.free_ids, host->places.free_count);
    mem_free(is_owned);
}

/* --- after a restart -------------------------------------------------------------------------- */

#define NO_PLACE UINT32_MAX

/* Puts a place where its record says it belongs. */
static enum status
adopt_place(struct host *host, const struct catalog_record *record, uint32_t place)
{
    struct tier_doc *doc = tier_host_find(host, &record->key);
    uint64_t n_blocks =
        ((uint64_t)record->n_tokens + host->config.block_tokens - 1) / host->config.block_tokens;

    if (n_blocks > KVPOOL_BLOCKS_MAX) {
        return ST_OK; /* no document of ours */
    }
    if (doc == NULL) {
        doc = tier_host_new_doc(&record->key, record->n_tokens, (uint32_t)n_blocks);
        if (doc == NULL || !tier_host_add(host, doc)) {
            if (doc != NULL) {
                tier_host_free_doc(doc);
            }
            return ERR(ST_NO_MEMORY, "books of the host tier");
        }
        memset(doc->run->ids, 0xff, doc->run->capacity * sizeof(doc->run->ids[0]));
    }
    if (doc->n_tokens == record->n_tokens && doc->run->ids[record->index] == NO_PLACE) {
        doc->run->ids[record->index] = place;
        doc->sums[record->index] = record->content;
    }
    return ST_OK;
}

/* Each document keeps its head, up to the first gap. */
static void
adopt_heads(struct host *host, bool *is_kept, uint32_t *blocks_out)
{
    for (size_t i = host->index.count; i-- > 0;) {
        struct tier_doc *doc = host->docs[i];
        uint32_t count = 0;

        while (count < doc->run->capacity && doc->run->ids[count] != NO_PLACE) {
            blocks_adopt(&host->places, doc->run->ids[count], dockey_hash(&doc->key));
            is_kept[doc->run->ids[count++]] = true;
        }
        doc->run->count = count;
        tier_host_tell(host, doc);
        *blocks_out += count;
        if (count == 0) {
            tier_host_detach(host, doc);
            list_unlink(&doc->link);
            tier_host_free_doc(doc);
        }
    }
}

/* What is in no head is free, or in quarantine while its writer may live. */
static enum status
adopt_rest(struct host *host, const bool *is_kept, kvpool_may_write_fn may_write, void *arg)
{
    struct catalog *catalog = host->config.catalog;

    host->places.free_count = 0;
    for (uint32_t place = host->config.places; place-- > 0;) {
        uint64_t lender = catalog_lender(catalog, place);
        struct block_run *run = NULL;

        if (is_kept[place]) {
            continue;
        }
        blocks_adopt(&host->places, place, 0);
        if (lender != 0 && may_write(arg, lender)) {
            catalog_unseal(catalog, place);
            TRY(block_run_new(1, &run));
            run->ids[run->count++] = place;
            run->fence = lender;
            blocks_end_run(&host->places, &run);
            continue;
        }
        catalog_clear(catalog, place);
        host->places.free_ids[host->places.free_count++] = place;
    }
    return ST_OK;
}

enum status
tier_host_adopt(struct tier *tier, kvpool_may_write_fn may_write, void *arg, uint32_t *blocks_out)
{
    struct host *host = host_of(tier);
    bool *is_kept = mem_zalloc(host->config.places, sizeof(*is_kept));
    enum status st = is_kept == NULL ? ERR(ST_NO_MEMORY, "adoption of a host tier") : ST_OK;
    uint32_t blocks = 0;

    assert(host->index.count == 0 && host->places.free_count == host->config.places);
    for (uint32_t place = 0; st == ST_OK && place < host->config.places; place++) {
        struct catalog_record record;

        /* Lent: its writer may have gone on after it was sealed for somebody else. */
        if (catalog_lender(host->config.catalog, place) == 0
            && catalog_read(host->config.catalog, place, &record, NULL)) {
            st = adopt_place(host, &record, place);
        }
    }
    if (st == ST_OK) {
        adopt_heads(host, is_kept, &blocks);
        st = adopt_rest(host, is_kept, may_write, arg);
    }
    mem_free(is_kept);
    *blocks_out = blocks;
    return st;
}
