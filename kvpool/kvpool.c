/* SPDX-License-Identifier: Apache-2.0 */
/* How the pool keeps its promises:
 *
 * - A claim first looks, then allocates, then acts.  Looking counts what is missing and what could
 *   be evicted, documents of this claim left out; since any evictable block can go, that count
 *   alone decides, and a refusal has nothing to undo but the records of unseen documents.  Acting
 *   cannot fail.
 * - A document's list of blocks has room for all of it from the start.  So it never moves, and a
 *   reader of the head may keep the pointer while a builder appends the tail.
 * - A referenced document is never a victim, so it cannot lose blocks; a building one always has a
 *   reference.  Hence "partly resident" and "referenced" together mean "being built",
 *   "abandoned", or a turn, of which any head is enough.
 * - Blocks that a lost process may still write are quarantined as they are, with the list that
 *   names them: giving blocks up allocates nothing. */
#include "kvpool/kvpool.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/pool_state.h"
#include "kvpool/tier.h"

#define GHOSTS_PER_BLOCK 2
#define GHOSTS_MAX       (1u << 18) /* about 20 MiB of remembered keys */

/* --- the pool --------------------------------------------------------------------------------- */

static enum status
check_config(const struct kvpool_config *config)
{
    assert(config->policy != NULL);
    if (config->block_count == 0 || config->block_count > KVPOOL_BLOCKS_MAX) {
        return ERR(ST_INVALID, "pool of %u blocks: not in 1..%u", config->block_count,
                   KVPOOL_BLOCKS_MAX);
    }
    if (config->block_tokens == 0 || (config->block_tokens & (config->block_tokens - 1)) != 0) {
        return ERR(ST_INVALID, "block of %u tokens: not a power of two", config->block_tokens);
    }
    if (!(config->pin_share_max >= 0 && config->pin_share_max <= 1)) {
        return ERR(ST_INVALID, "pin share %g: not in 0..1", config->pin_share_max);
    }
    return ST_OK;
}

enum status
kvpool_new(const struct kvpool_config *config, struct kvpool **pool_out)
{
    uint64_t ghosts = config->is_replay ? 1 : (uint64_t)config->block_count * GHOSTS_PER_BLOCK;
    struct kvpool *pool;
    enum status st;

    TRY(check_config(config));
    pool = mem_zalloc(1, sizeof(*pool));
    if (pool == NULL) {
        return ERR(ST_NO_MEMORY, "pool");
    }
    pool->config = *config;
    ages_init(&pool->ages);
    list_init(&pool->detached);
    list_init(&pool->claims);
    list_init(&pool->spills);
    list_init(&pool->to_check);
    st = htab_init(&pool->awaited, awaited_equal);
    if (st == ST_OK) {
        st = blocks_init(&pool->blocks, config->block_count, !config->is_replay);
    }
    pool->blocks.catalog = config->catalog;
    if (st == ST_OK) {
        st = kvpool_index_init(pool);
    }
    if (st == ST_OK) {
        st = ghosts_new((uint32_t)(ghosts < GHOSTS_MAX ? ghosts : GHOSTS_MAX), &pool->ghosts);
    }
    if (st == ST_OK) {
        st = kvpool_create_policy(pool);
    }
    if (st != ST_OK) {
        kvpool_destroy(&pool);
        return st;
    }
    *pool_out = pool;
    return ST_OK;
}

void
kvpool_doc_free(struct kvpool_doc *doc)
{
    mem_free(doc->run);
    mem_free(doc->ids);
    mem_free(doc->cites);
    mem_free(doc);
}

void
kvpool_destroy(struct kvpool **pool)
{
    if (*pool == NULL) {
        return;
    }
    assert(list_is_empty(&(*pool)->claims));
    assert(list_is_empty(&(*pool)->detached));
    kvpool_tier_deinit(*pool);
    if ((*pool)->policy != NULL) {
        (*pool)->config.policy->destroy(&(*pool)->policy);
    }
    await_deinit(*pool);
    ghosts_destroy(&(*pool)->ghosts);
    kvpool_index_deinit(*pool);
    blocks_deinit(&(*pool)->blocks);
    MEM_FREE(*pool);
}

/* --- states of a document --------------------------------------------------------------------- */

/* Blocks of the document that are not there. */
static uint32_t
blocks_missing(const struct kvpool_doc *doc)
{
    return doc->policy.n_blocks - doc->policy.blocks_resident;
}

void
kvpool_doc_update_evictable(struct kvpool *pool, struct kvpool_doc *doc)
{
    bool is_evictable = doc->is_indexed && !doc_is_building(doc) && doc->references == 0
                        && doc->pins == 0 && doc->policy.blocks_resident > 0;

    if (is_evictable == doc->policy.is_evictable) {
        return;
    }
    doc->policy.is_evictable = is_evictable;
    pool->may_spill |= is_evictable;
    if (is_evictable) {
        pool->blocks_evictable += doc->policy.blocks_resident;
    } else {
        pool->blocks_evictable -= doc->policy.blocks_resident;
    }
    pool->config.policy->evictable(pool->policy, &doc->policy);
}

static void
give_back_tail(struct kvpool *pool, struct kvpool_doc *doc, uint32_t count)
{
    uint64_t resident_tokens;

    assert(doc->policy.is_evictable);
    blocks_give_back(&pool->blocks, doc->run, count);
    doc->policy.blocks_resident -= count;
    kvpool_tell_removed(pool, doc, doc->policy.blocks_resident);
    pool->blocks_docs -= count;
    pool->blocks_evictable -= count;
    resident_tokens = (uint64_t)doc->policy.blocks_resident * pool->config.block_tokens;
    if (resident_tokens < doc->tokens_ready) {
        doc->tokens_ready = (uint32_t)resident_tokens;
    }
    kvpool_tier_cut(pool, doc, doc->policy.blocks_resident + count);
}

static void
end_doc(struct kvpool *pool, struct kvpool_doc *doc)
{
    assert(doc->references == 0 && !doc->is_indexed);
    list_unlink(&doc->link);
    pool->blocks_docs -= doc->policy.blocks_resident;
    blocks_end_run(&pool->blocks, &doc->run);
    kvpool_doc_free(doc);
}

/* Out of the index, and why is remembered.  The document ends now, or with its last reference. */
static void
detach(struct kvpool *pool, struct kvpool_doc *doc, enum kvpool_miss reason)
{
    bool is_turn = doc->ids != NULL; /* nobody comes back to ask for the same one */
    enum evict_end end = reason == KVPOOL_MISS_FORGOTTEN || is_turn ? EVICT_END_FORGOTTEN
                         : reason == KVPOOL_MISS_EVICTED            ? EVICT_END_EVICTED
                                                                    : EVICT_END_LOST;

    if (doc->pins > 0) {
        doc->pins = 0;
        pool->blocks_pinned -= doc->policy.blocks_resident;
    }
    doc->is_indexed = false;
    list_unlink(&doc->check_link);
    kvpool_tier_leave(pool, doc, reason == KVPOOL_MISS_FORGOTTEN || reason == KVPOOL_MISS_DAMAGED);
    kvpool_note_leave(pool, doc);
    kvpool_tell_removed(pool, doc, 0);
    kvpool_doc_update_evictable(pool, doc);
    pool->config.policy->forgotten(pool->policy, &doc->policy, end);
    kvpool_index_remove(pool, doc);
    if (!is_turn) {
        ghosts_add(pool->ghosts, &doc->policy.key, (int)reason);
    }
    if (doc->references == 0) {
        end_doc(pool, doc);
    } else {
        list_push_back(&pool->detached, &doc->link);
    }
}

static void
begin_build(struct kvpool *pool, struct kvpool_doc *doc, uint64_t builder)
{
    doc->builder = builder;
    doc->generation = ++pool->generation;
}

struct kvpool_doc *
kvpool_doc_new(const struct kvpool *pool, const struct dockey *key, uint32_t n_tokens)
{
    struct kvpool_doc *doc = mem_zalloc(1, sizeof(*doc));

    if (doc != NULL) {
        doc->policy.key = *key;
        doc->source = dockey_hash(key);
        doc->policy.n_tokens = n_tokens;
        doc->policy.n_blocks = kvpool_blocks_for(pool, n_tokens);
        doc->policy.is_awaited = await_is_awaited(pool, key);
        list_init(&doc->policy.link);
        list_init(&doc->link);
        list_init(&doc->check_link);
        list_init(&doc->stem_link);
    }
    return doc;
}

/* --- eviction --------------------------------------------------------------------------------- */

void
kvpool_evict_tail(struct kvpool *pool, struct kvpool_doc *doc, uint32_t count)
{
    give_back_tail(pool, doc, count);
    pool->counted.blocks_evicted += count;
    if (doc->policy.blocks_resident == 0) {
        pool->counted.docs_evicted++;
        kvpool_note_residency(pool, doc);
        ages_go(pool, doc);
        detach(pool, doc, KVPOOL_MISS_EVICTED);
    }
}

uint32_t
kvpool_evict(struct kvpool *pool, uint32_t blocks)
{
    uint32_t count = blocks < pool->blocks_evictable ? blocks : pool->blocks_evictable;

    for (uint32_t left = count, going; left > 0; left -= going) { /* tail after tail */
        struct evict_doc *victim = pool->config.policy->victim(pool->policy);

        assert(victim != NULL && victim->is_evictable);
        going = left < victim->blocks_resident ? left : victim->blocks_resident;
        kvpool_evict_tail(
            pool,
            (struct kvpool_doc *)(void *)((char *)victim - offsetof(struct kvpool_doc, policy)),
            going);
    }
    return count;
}

/* Makes sure that `count` blocks are free; they are free or evictable. */
static void
make_room(struct kvpool *pool, uint32_t count)
{
    if (count > pool->blocks.free_count) {
        uint32_t lacking = count - pool->blocks.free_count;
        uint32_t gone = kvpool_evict(pool, lacking);

        assert(gone == lacking);
        (void)gone;
    }
}

/* --- claims ----------------------------------------------------------------------------------- */

/* What looking at the wants of a claim found. */
struct plan {
    struct list_node fresh;  /* kvpool_doc.link: unseen documents, in the index, without blocks */
    uint64_t blocks_whole;   /* of all documents and private ones, resident or not */
    uint64_t blocks_missing; /* to be taken */
    uint64_t blocks_unevictable; /* evictable now, but cited by this claim */
};

static enum status
look_up(struct kvpool *pool, struct kvpool_want *want, struct plan *plan)
{
    struct kvpool_doc *doc = kvpool_find(pool, &want->key);

    if (doc == NULL && want->is_optional) {
        return ST_OK;
    }
    if (doc == NULL) {
        doc = kvpool_doc_new(pool, &want->key, want->n_tokens);
        if (doc == NULL || kvpool_index_add(pool, doc) != ST_OK) {
            mem_free(doc);
            return ERR(ST_NO_MEMORY, "record of a document");
        }
        doc->is_indexed = true;
        list_push_back(&plan->fresh, &doc->link);
    }
    want->doc = doc;
    TRY(kvpool_doc_note_behind(pool, doc, want));
    if (doc->policy.n_tokens != want->n_tokens) {
        return ERR(ST_INVALID, "one document key with %u tokens and with %u", want->n_tokens,
                   doc->policy.n_tokens);
    }
    if (doc->mark == pool->mark) {
        return ST_OK;
    }
    doc->mark = pool->mark;
    plan->blocks_whole += want->is_optional ? doc->policy.blocks_resident : doc->policy.n_blocks;
    if (!doc_is_building(doc) && !want->is_optional) {
        plan->blocks_missing += blocks_missing(doc);
    }
    if (doc->policy.is_evictable) {
        plan->blocks_unevictable += doc->policy.blocks_resident;
    }
    return ST_OK;
}

static enum status
look(struct kvpool *pool, struct kvpool_want *wants, size_t want_count, uint32_t own_blocks,
     struct plan *plan)
{
    *plan = (struct plan){.blocks_whole = own_blocks, .blocks_missing = own_blocks};
    list_init(&plan->fresh);
    pool->mark++;
    for (size_t i = 0; i < want_count; i++) {
        wants[i].doc = NULL;
    }
    for (size_t i = 0; i < want_count; i++) {
        if (wants[i].n_tokens > 0) {
            TRY(look_up(pool, &wants[i], plan));
        }
    }
    return ST_OK;
}

static enum status
check_room(struct kvpool *pool, const struct plan *plan)
{
    uint64_t evictable = pool->blocks_evictable - plan->blocks_unevictable;

    TRY(kvpool_check_size(pool, plan->blocks_whole));
    if (plan->blocks_missing > pool->blocks.free_count + evictable) {
        pool->counted.claims_refused++;
        return ERR(ST_NO_MEMORY,
                   "%llu blocks needed, %u free, %llu evictable beside the request's own documents",
                   (unsigned long long)plan->blocks_missing, pool->blocks.free_count,
                   (unsigned long long)evictable);
    }
    return ST_OK;
}

/* All that can fail in a claim, except for the lack of blocks. */
static enum status
allocate(const struct plan *plan, size_t want_count, uint32_t own_blocks,
         struct kvpool_claim **claim_out)
{
    struct kvpool_claim *claim;

    LIST_FOR_EACH(node, &plan->fresh)
    {
        struct kvpool_doc *doc = LIST_ENTRY(node, struct kvpool_doc, link);

        TRY(block_run_new(doc->policy.n_blocks, &doc->run));
    }
    claim = mem_zalloc(1, sizeof(*claim) + want_count * sizeof(claim->docs[0]));
    if (claim == NULL) {
        return ERR(ST_NO_MEMORY, "claim on %zu documents", want_count);
    }
    if (block_run_new(own_blocks, &claim->own) != ST_OK) {
        mem_free(claim);
        return ST_NO_MEMORY;
    }
    *claim_out = claim;
    return ST_OK;
}

static void
take_reference(struct kvpool *pool, struct kvpool_doc *doc)
{
    doc->references++;
    kvpool_doc_update_evictable(pool, doc);
    if (doc->mark == pool->mark) { /* once a claim, however often it is cited */
        doc->mark = 0;
        pool->config.policy->used(pool->policy, &doc->policy);
        ages_use(pool, doc);
    }
}

/* Why the document misses, and who builds it.  Sets the want's results. */
static void
resolve(struct kvpool *pool, struct kvpool_want *want, uint64_t builder)
{
    struct kvpool_doc *doc = want->doc;

    want->tokens_ready = doc->tokens_ready;
    want->must_build = false;
    if (doc->tokens_ready == doc->policy.n_tokens || want->is_optional) {
        want->reason = KVPOOL_HIT;
        doc->hits++;
        return;
    }
    if (doc_is_building(doc)) {
        want->reason = KVPOOL_MISS_BUILDING;
        return;
    }
    want->reason = doc->tokens_ready > 0
                       ? KVPOOL_MISS_PARTIAL
                       : (enum kvpool_miss)ghosts_take(pool->ghosts, &want->key, KVPOOL_MISS_COLD);
    want->must_build = true;
    kvpool_doc_set_source(pool, doc, want->source != 0 ? want->source : doc->source);
    begin_build(pool, doc, builder);
}

static void
count_want(struct kvpool_stats *counted, const struct kvpool_want *want)
{
    if (want->is_uncounted) {
        return;
    }
    if (want->reason == KVPOOL_HIT) {
        counted->doc_hits++;
    } else {
        counted->doc_misses[want->reason]++;
    }
    counted->tokens_hit += want->tokens_ready;
    counted->tokens_missed += want->n_tokens - want->tokens_ready;
}

static void
take_missing(struct kvpool *pool, struct kvpool_doc *doc)
{
    uint32_t missing = blocks_missing(doc);

    blocks_take(&pool->blocks, doc->run, missing, kvpool_doc_owner(doc));
    doc->policy.blocks_resident += missing;
    pool->blocks_docs += missing;
}

/* Carries the plan out.  Nothing here can fail. */
static void
act(struct kvpool *pool, const struct plan *plan, struct kvpool_want *wants, size_t want_count,
    uint32_t own_blocks, uint64_t builder, struct kvpool_claim *claim)
{
    pool->claims_made++;
    pool->config.policy->tick(pool->policy);
    for (size_t i = 0; i < want_count; i++) {
        struct kvpool_want *want = &wants[i];

        if (want->doc == NULL) {
            want->tokens_ready = 0;
            want->must_build = false;
            want->reason = KVPOOL_HIT;
        } else {
            claim->docs[claim->doc_count++] = want->doc;
            take_reference(pool, want->doc);
            resolve(pool, want, builder);
        }
        count_want(&pool->counted, want);
    }
    LIST_FOR_EACH_SAFE(node, &plan->fresh)
    {
        list_unlink(node);
    }
    make_room(pool, (uint32_t)plan->blocks_missing);
    for (size_t i = 0; i < want_count; i++) {
        if (wants[i].must_build) {
            take_missing(pool, wants[i].doc);
            kvpool_note_build(pool, wants[i].doc, wants[i].ids);
        }
    }
    blocks_take(&pool->blocks, claim->own, own_blocks, claim->owner);
    pool->blocks_own += own_blocks;
    list_push_back(&pool->claims, &claim->link);
}

/* Forgets what looking left behind. */
static void
drop_plan(struct kvpool *pool, struct plan *plan, struct kvpool_want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        wants[i].doc = NULL;
    }
    LIST_FOR_EACH_SAFE(node, &plan->fresh)
    {
        struct kvpool_doc *doc = LIST_ENTRY(node, struct kvpool_doc, link);

        kvpool_index_remove(pool, doc);
        kvpool_doc_free(doc);
    }
}

enum status
kvpool_claim(struct kvpool *pool, struct kvpool_want *wants, size_t want_count, uint32_t own_blocks,
             uint64_t builder, struct kvpool_claim **claim_out)
{
    struct kvpool_claim *claim = NULL;
    struct plan plan;
    enum status st;

    assert(builder != 0);
    if (want_count > KVPOOL_CLAIM_DOCS_MAX) {
        return ERR(ST_INVALID, "%zu documents in one request, %d allowed", want_count,
                   KVPOOL_CLAIM_DOCS_MAX);
    }
    st = look(pool, wants, want_count, own_blocks, &plan);
    if (st == ST_OK) {
        st = check_room(pool, &plan);
    }
    if (st == ST_OK) {
        st = allocate(&plan, want_count, own_blocks, &claim);
    }
    if (st != ST_OK) {
        drop_plan(pool, &plan, wants, want_count);
        return st;
    }
    act(pool, &plan, wants, want_count, own_blocks, builder, claim);
    *claim_out = claim;
    return ST_OK;
}

enum status
kvpool_claim_grow(struct kvpool *pool, struct kvpool_claim *claim, uint32_t blocks)
{
    uint32_t available = pool->blocks.free_count + pool->blocks_evictable;
    uint32_t needed;

    if (blocks > available) {
        return ERR(ST_NO_MEMORY, "%u more blocks needed, %u free, %u evictable", blocks,
                   pool->blocks.free_count, pool->blocks_evictable);
    }
    needed = claim->own->count + blocks;
    if (needed > claim->own->capacity) {
        /* Answers grow block by block: double, so that the copies stay few. */
        TRY(block_run_reserve(&claim->own, needed < 8 ? 8 : 2 * needed));
    }
    make_room(pool, blocks);
    blocks_take(&pool->blocks, claim->own, blocks, claim->owner);
    pool->blocks_own += blocks;
    kvpool_note_own(pool, claim, claim->own->count - blocks);
    return ST_OK;
}

const uint32_t *
kvpool_claim_blocks(const struct kvpool_claim *claim, uint32_t *count_out)
{
    *count_out = claim->own->count;
    return claim->own->ids;
}

void
kvpool_claim_release(struct kvpool *pool, struct kvpool_claim **claim, uint64_t fence)
{
    struct kvpool_claim *ending = *claim;

    *claim = NULL;
    for (uint32_t i = 0; i < ending->doc_count; i++) {
        struct kvpool_doc *doc = ending->docs[i];

        assert(doc->references > 0);
        doc->references--;
        /* A build that nobody waits for has to be abandoned by whoever stops it. */
        assert(doc->references > 0 || !doc_is_building(doc));
        if (doc->references == 0 && !doc->is_indexed) {
            end_doc(pool, doc);
        } else {
            kvpool_doc_update_evictable(pool, doc);
        }
    }
    list_unlink(&ending->link);
    pool->blocks_own -= ending->own->count;
    ending->own->fence = fence;
    blocks_end_run(&pool->blocks, &ending->own);
    mem_free(ending);
}

/* --- documents -------------------------------------------------------------------------------- */

void
kvpool_doc_seal(struct kvpool *pool, struct kvpool_doc *doc, uint32_t origin)
{
    assert(doc_is_building(doc));
    assert(blocks_missing(doc) == 0);
    doc->builder = 0;
    doc->origin = origin;
    blocks_settle(&pool->blocks, doc->run);
    kvpool_note_seal(pool, doc);
    doc->tokens_ready = doc->policy.n_tokens;
    pool->counted.docs_built++;
    if (doc->is_indexed && !doc->is_admitted) {
        doc->is_admitted = true;
        list_push_back(&pool->to_check, &doc->check_link);
        doc->came = pool->claims_made;
        ages_come(pool, doc);
        pool->config.policy->admitted(pool->policy, &doc->policy);
    }
}

void
kvpool_doc_abandon(struct kvpool *pool, struct kvpool_doc *doc, uint64_t fence)
{
    assert(doc_is_building(doc));
    doc->builder = 0;
    doc->is_abandoned = true;
    doc->run->fence = fence;
    if (doc->is_indexed) { /* not, if it was forgotten while it was built */
        detach(pool, doc, KVPOOL_MISS_ABANDONED);
    }
}

void
kvpool_doc_set_builder(struct kvpool_doc *doc, uint64_t builder)
{
    assert(doc_is_building(doc) && builder != 0);
    doc->builder = builder;
}

enum status
kvpool_forget(struct kvpool *pool, const struct dockey *key)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);

    if (doc == NULL && pool->tier != NULL && pool->tier->ops->remove(pool->tier, key)) {
        (void)ghosts_take(pool->ghosts, key, KVPOOL_MISS_COLD);
        ghosts_add(pool->ghosts, key, KVPOOL_MISS_FORGOTTEN);
        return ST_OK;
    }
    if (doc == NULL) {
        return ERR(ST_NOT_FOUND, "document is not in the pool");
    }
    detach(pool, doc, KVPOOL_MISS_FORGOTTEN);
    return ST_OK;
}

void
kvpool_detach_forgotten(struct kvpool *pool, struct kvpool_doc *doc)
{
    detach(pool, doc, KVPOOL_MISS_FORGOTTEN);
}

void
kvpool_drop_damaged(struct kvpool *pool, struct kvpool_doc *doc)
{
    assert(doc->is_indexed);
    detach(pool, doc, KVPOOL_MISS_DAMAGED);
}

/* --- fences ----------------------------------------------------------------------------------- */

uint32_t
kvpool_fence_lift(struct kvpool *pool, uint64_t fence)
{
    assert(fence != 0);
    /* Abandoned documents that are still referenced come back later: then not to quarantine. */
    LIST_FOR_EACH(node, &pool->detached)
    {
        struct kvpool_doc *doc = LIST_ENTRY(node, struct kvpool_doc, link);

        if (doc->run->fence == fence) {
            doc->run->fence = 0;
        }
    }
    if (pool->tier != NULL) {
        pool->tier->ops->fence_lift(pool->tier, fence);
    }
    return blocks_lift(&pool->blocks, fence);
}
