/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in a further level: what is copied, when, and what an eviction in the middle means.
 *
 * An eviction never waits for a copy.  So copies are made ahead, in idle time of the link: of the
 * documents that the policy would take next, until a share of the pool is free or has its copy.
 * The blocks are not held meanwhile: KV of a sealed block never changes, so the only thing that can
 * happen to one that is being copied is that it is evicted and written by somebody else.  That is
 * decided here, before it happens; the spill is cut short to what was there all along, and whatever
 * its writer copied behind that point is thrown away.
 *
 * A copy stays when its document comes back: the next eviction of it is free.  It is worth less
 * while the document is here (RESIDENT_OCTAVES): a tier that is full drops it before one that
 * nothing else stands for. */
#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/pool_state.h"
#include "kvpool/tier.h"

#define RESIDENT_OCTAVES 2.0
#define DECLINED_CLAIMS  256 /* before a document is offered to the tier again */

struct spill {
    struct list_node link;
    struct kvpool_spill view;
    struct kvpool_doc *doc; /* NULL: it is gone */
    struct tier_doc *copy;
    uint64_t writer;
    uint32_t first; /* block of the document */
    uint32_t valid; /* blocks of the spill that have been there all along */
    uint32_t ids[]; /* [count] blocks, [count] places */
};

void
kvpool_use_tier(struct kvpool *pool, struct tier *tier)
{
    assert(pool->tier == NULL);
    pool->tier = tier;
    pool->may_spill = true;
}

struct tier *
kvpool_tier(const struct kvpool *pool)
{
    return pool->tier;
}

bool
kvpool_ranks_tiers(const struct kvpool *pool)
{
    return pool->config.policy->worth != NULL;
}

double
kvpool_worth(const void *pool, const struct dockey *key)
{
    const struct kvpool *p = pool;
    const struct kvpool_doc *doc = kvpool_find(p, key);
    bool is_here = doc != NULL && doc->tokens_ready == doc->policy.n_tokens;

    return p->config.policy->worth(p->policy, key) - (is_here ? RESIDENT_OCTAVES : 0);
}

/* --- copying ---------------------------------------------------------------------------------- */

/* A form of a document under a key of its own: a copy at another place, or KV behind others.  It
 * stays out of the tier, where nobody who forgets the document would find it; what is in the tier
 * says whose key it has and no more. */
static bool
is_derived(const struct kvpool_doc *doc)
{
    return doc->source != dockey_hash(&doc->policy.key);
}

/* Blocks of the document that have a copy. */
static uint32_t
copied(const struct kvpool *pool, const struct kvpool_doc *doc)
{
    return pool->tier->ops->lookup(pool->tier, &doc->policy.key);
}

static struct spill *
new_spill(struct kvpool *pool, struct kvpool_doc *doc, uint32_t first, uint32_t count,
          uint64_t writer)
{
    struct tier_put put = {.key = doc->policy.key,
                           .n_tokens = doc->policy.n_tokens,
                           .first = first,
                           .count = count,
                           .writer = writer};
    struct spill *spill = mem_zalloc(1, sizeof(*spill) + 2 * count * sizeof(spill->ids[0]));
    uint32_t taken;

    if (spill == NULL) {
        return NULL;
    }
    taken = pool->tier->ops->put(pool->tier, &put, spill->ids + count, &spill->copy);
    if (taken == 0) {
        mem_free(spill);
        return NULL;
    }
    memcpy(spill->ids, doc->run->ids + first, taken * sizeof(spill->ids[0]));
    spill->view = (struct kvpool_spill){
        .id = ++pool->spill_id, .count = taken, .blocks = spill->ids, .places = spill->ids + count};
    spill->view.is_summed = true;
    for (uint32_t i = 0; i < taken; i++) {
        spill->view.is_summed &= kvpool_block_content(pool, spill->ids[i]) != 0;
    }
    spill->doc = doc;
    spill->writer = writer;
    spill->first = first;
    spill->valid = taken;
    doc->spill = spill;
    list_push_back(&pool->spills, &spill->link);
    return spill;
}

/* The tier is not asked again for a while. */
static void
decline(const struct kvpool *pool, struct kvpool_doc *doc)
{
    doc->declined_at = pool->claims_made == 0 ? 1 : pool->claims_made;
}

/* Of the documents that would go next, the first that has no copy and could have one. */
static struct spill *
choose_spill(struct kvpool *pool, uint64_t writer)
{
    struct evict_doc *docs[EVICT_LOWEST_MAX];
    uint32_t enough = pool->config.block_count / KVPOOL_SPILL_AHEAD + 1;
    uint32_t covered = pool->blocks.free_count;
    uint32_t count = 0;

    if (covered < enough) {
        count = pool->config.policy->coldest(pool->policy, docs, EVICT_LOWEST_MAX);
    }
    for (uint32_t i = 0; i < count && covered < enough; i++) {
        struct kvpool_doc *doc = HTAB_ENTRY(docs[i], struct kvpool_doc, policy);
        uint32_t first, lacking;
        struct spill *spill;

        covered += doc->policy.blocks_resident;
        if (doc->spill != NULL || doc->ids != NULL || is_derived(doc)
            || (doc->declined_at != 0 && pool->claims_made - doc->declined_at < DECLINED_CLAIMS)) {
            continue;
        }
        first = copied(pool, doc);
        if (first >= doc->policy.blocks_resident) {
            continue;
        }
        lacking = doc->policy.blocks_resident - first;
        spill = new_spill(pool, doc, first,
                          lacking < KVPOOL_SPILL_BLOCKS ? lacking : KVPOOL_SPILL_BLOCKS, writer);
        if (spill != NULL) {
            return spill;
        }
        decline(pool, doc);
    }
    return NULL;
}

bool
kvpool_spill_next(struct kvpool *pool, uint64_t writer, struct kvpool_spill *spill_out)
{
    const struct spill *spill = NULL;

    if (pool->tier == NULL || !pool->may_spill) {
        return false;
    }
    spill = choose_spill(pool, writer);
    if (spill == NULL) {
        pool->may_spill = false; /* until a document may go that could not, or something went */
        return false;
    }
    *spill_out = spill->view;
    return true;
}

static void
end_spill(struct kvpool *pool, struct spill *spill, uint32_t count, const uint64_t *sums,
          uint64_t fence)
{
    if (spill->doc != NULL) {
        spill->doc->spill = NULL;
    }
    list_unlink(&spill->link);
    pool->tier->ops->put_end(pool->tier, spill->copy, count, sums, fence);
    mem_free(spill);
    pool->may_spill = true;
}

/* Of the blocks that were copied, those that were there all along and are what was sealed, as far
 * as anybody has looked: then what was sealed is what the copy must be. */
static uint32_t
count_true(const struct kvpool *pool, const struct spill *spill, uint32_t count, uint64_t *sums)
{
    uint32_t most = count < spill->valid ? count : spill->valid;

    for (uint32_t i = 0; i < most; i++) {
        uint64_t content = kvpool_block_content(pool, spill->view.blocks[i]);

        if ((content != 0 && sums[i] != 0 && content != sums[i])
            || (content == 0 && sums[i] == 0)) {
            return i;
        }
        sums[i] = content != 0 ? content : sums[i];
    }
    return most;
}

bool
kvpool_spill_end(struct kvpool *pool, uint64_t id, uint64_t writer, uint32_t count, uint64_t *sums)
{
    LIST_FOR_EACH(node, &pool->spills)
    {
        struct spill *spill = LIST_ENTRY(node, struct spill, link);

        if (spill->view.id == id && spill->writer == writer) {
            uint32_t copied_whole = count_true(pool, spill, count, sums);

            if (copied_whole < spill->valid && spill->doc != NULL) {
                decline(pool, spill->doc); /* or it would be copied again, and again */
            }
            end_spill(pool, spill, copied_whole, sums, 0);
            return true;
        }
    }
    return false;
}

void
kvpool_spills_lost(struct kvpool *pool, uint64_t writer)
{
    LIST_FOR_EACH_SAFE(node, &pool->spills)
    {
        struct spill *spill = LIST_ENTRY(node, struct spill, link);

        if (spill->writer == writer) {
            end_spill(pool, spill, 0, NULL, writer);
        }
    }
}

/* --- what happens meanwhile ------------------------------------------------------------------- */

void
kvpool_tier_cut(struct kvpool *pool, struct kvpool_doc *doc, uint32_t blocks_before)
{
    struct spill *spill = doc->spill;
    uint32_t resident = doc->policy.blocks_resident, safe;

    if (pool->tier == NULL) {
        return;
    }
    if (spill != NULL && resident < spill->first + spill->valid) {
        spill->valid = resident < spill->first ? 0 : resident - spill->first;
    }
    safe = copied(pool, doc);
    safe = safe < resident ? resident : safe;
    pool->counted.blocks_uncopied += safe < blocks_before ? blocks_before - safe : 0;
    pool->may_spill = true;
}

void
kvpool_tier_leave(struct kvpool *pool, struct kvpool_doc *doc, bool is_forgotten)
{
    if (doc->spill != NULL) {
        doc->spill->doc = NULL;
        doc->spill->valid = 0; /* its blocks may be anybody's from now on */
        doc->spill = NULL;
    }
    if (is_forgotten && pool->tier != NULL) {
        (void)pool->tier->ops->remove(pool->tier, &doc->policy.key);
    }
}

void
kvpool_tier_deinit(struct kvpool *pool)
{
    LIST_FOR_EACH_SAFE(node, &pool->spills)
    {
        end_spill(pool, LIST_ENTRY(node, struct spill, link), 0, NULL, 0);
    }
    if (pool->tier != NULL) {
        pool->tier->ops->destroy(&pool->tier);
    }
}

/* --- taking back ------------------------------------------------------------------------------ */

uint32_t
kvpool_loadable(const struct kvpool *pool, const struct kvpool_doc *doc)
{
    uint32_t first = doc->tokens_ready / pool->config.block_tokens;
    uint32_t last = pool->tier == NULL || is_derived(doc) ? 0 : copied(pool, doc);

    assert(doc_is_building(doc));
    return last > first ? last - first : 0;
}

enum status
kvpool_load_begin(struct kvpool *pool, const struct kvpool_doc *doc, struct kvpool_load **load_out)
{
    uint32_t count = kvpool_loadable(pool, doc);
    struct kvpool_load *load;
    struct tier_block *blocks;

    load = mem_zalloc(1, sizeof(*load) + count * (sizeof(load->sums[0]) + sizeof(load->places[0])));
    blocks = mem_zalloc(count, sizeof(blocks[0]));
    if (load == NULL || blocks == NULL) {
        mem_free(load);
        mem_free(blocks);
        return ERR(ST_NO_MEMORY, "a load of %u blocks", count);
    }
    load->count = count;
    load->sums = (uint64_t *)(void *)(load + 1);
    load->places = (uint32_t *)(void *)(load->sums + count);
    load->copy = pool->tier->ops->get(pool->tier, &doc->policy.key,
                                      doc->tokens_ready / pool->config.block_tokens, count, blocks);
    for (uint32_t i = 0; i < count; i++) {
        load->places[i] = blocks[i].place;
        load->sums[i] = blocks[i].sum;
    }
    mem_free(blocks);
    *load_out = load;
    return ST_OK;
}

void
kvpool_load_end(struct kvpool *pool, struct kvpool_load **load, bool is_bad)
{
    if (*load == NULL) {
        return;
    }
    pool->tier->ops->get_end(pool->tier, (*load)->copy, is_bad);
    MEM_FREE(*load);
}
