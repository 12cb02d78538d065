/* SPDX-License-Identifier: Apache-2.0 */
/* The books of the host tier.
 *
 * Which document gives way is asked of the pool's policy: a put looks at a few documents, chosen at
 * random, takes the tail of the one that is worth least, and stops at the first that is worth no
 * less than what comes in.  Scores of documents that are not in the pool change all the time, so an
 * order kept among a million of them would be work for nothing; of sixteen the least is among the
 * lowest sixth nineteen times in twenty.
 *
 * Memory for a document's books is taken in put, before anything changes; all else cannot fail. */
#include "kvpool/tier_host.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/tier_host_state.h"

#define CHOICES 16 /* documents that are looked at for the least */

static bool
doc_has_key(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct tier_doc, node)->key, key, DOCKEY_BYTES) == 0;
}

struct tier_doc *
tier_host_find(const struct host *host, const struct dockey *key)
{
    struct htab_node *node = htab_find(&host->index, dockey_hash(key), key);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct tier_doc, node);
}

/* --- documents come and go -------------------------------------------------------------------- */

void
tier_host_free_doc(struct tier_doc *doc)
{
    mem_free(doc->run);
    mem_free(doc->sums);
    mem_free(doc);
}

struct tier_doc *
tier_host_new_doc(const struct dockey *key, uint32_t n_tokens, uint32_t n_blocks)
{
    struct tier_doc *doc = mem_zalloc(1, sizeof(*doc));

    if (doc == NULL) {
        return NULL;
    }
    list_init(&doc->link);
    list_init(&doc->writing_link);
    doc->key = *key;
    doc->n_tokens = n_tokens;
    doc->sums = mem_zalloc(n_blocks, sizeof(doc->sums[0]));
    if (doc->sums == NULL || block_run_new(n_blocks, &doc->run) != ST_OK) {
        tier_host_free_doc(doc);
        return NULL;
    }
    return doc;
}

/* Each has a place, or writes one; but for the one that is made before places are looked for. */
static size_t
docs_max(const struct host *host)
{
    return (size_t)host->config.places + 1;
}

bool
tier_host_add(struct host *host, struct tier_doc *doc)
{
    if (host->index.count == docs_max(host)) {
        return false;
    }
    if (htab_insert(&host->index, dockey_hash(&doc->key), &doc->node) != ST_OK) {
        return false;
    }
    doc->at = (uint32_t)host->index.count - 1;
    doc->is_indexed = true;
    host->docs[doc->at] = doc;
    return true;
}

void
tier_host_tell(const struct host *host, struct tier_doc *doc)
{
    const struct kvpool_watch *watch = host->config.watch;
    uint32_t told = doc->blocks_told, whole = doc->n_tokens / host->config.block_tokens;
    uint32_t count = !doc->is_indexed ? 0 : doc->run->count < whole ? doc->run->count : whole;

    doc->blocks_told = count;
    if (watch != NULL && watch->copied != NULL && count > told) {
        watch->copied(watch->arg, &doc->key, told, count - told);
    }
    if (watch != NULL && watch->uncopied != NULL && count < told) {
        watch->uncopied(watch->arg, &doc->key, count, told - count);
    }
}

static bool
is_in_use(const struct tier_doc *doc)
{
    return doc->readers > 0 || doc->writing != NULL;
}

void
tier_host_detach(struct host *host, struct tier_doc *doc)
{
    struct tier_doc *last = host->docs[host->index.count - 1];

    for (uint32_t i = 0; host->config.catalog != NULL && i < doc->run->count; i++) {
        catalog_unseal(host->config.catalog, doc->run->ids[i]);
    }
    list_push_back(&host->detached, &doc->link);
    host->docs[doc->at] = last;
    last->at = doc->at;
    htab_remove(&host->index, &doc->node);
    doc->is_indexed = false;
    tier_host_tell(host, doc);
}

static void
end_if_unused(struct host *host, struct tier_doc *doc)
{
    if (!doc->is_indexed && !is_in_use(doc)) {
        list_unlink(&doc->link);
        blocks_end_run(&host->places, &doc->run);
        tier_host_free_doc(doc);
    }
}

/* The head of `keep` blocks stays.  Not while somebody reads what goes. */
static void
cut(struct host *host, struct tier_doc *doc, uint32_t keep)
{
    blocks_give_back(&host->places, doc->run, doc->run->count - keep);
    tier_host_tell(host, doc);
    if (keep == 0 && doc->writing == NULL) {
        tier_host_detach(host, doc);
        end_if_unused(host, doc);
    }
}

/* --- looking and reading ---------------------------------------------------------------------- */

static uint32_t
host_lookup(const struct tier *tier, const struct dockey *key)
{
    const struct tier_doc *doc = tier_host_find(const_host_of(tier), key);

    return doc == NULL ? 0 : doc->run->count;
}

static struct tier_doc *
host_get(struct tier *tier, const struct dockey *key, uint32_t first, uint32_t count,
         struct tier_block *blocks_out)
{
    struct host *host = host_of(tier);
    struct tier_doc *doc = tier_host_find(host, key);

    assert(doc != NULL && count > 0 && first + count <= doc->run->count);
    for (uint32_t i = 0; i < count; i++) {
        blocks_out[i] = (struct tier_block){doc->run->ids[first + i], doc->sums[first + i]};
    }
    doc->readers++;
    doc->used = ++host->clock;
    host->counted.blocks_got += count;
    return doc;
}

static void
host_get_end(struct tier *tier, struct tier_doc *doc, bool is_bad)
{
    struct host *host = host_of(tier);

    assert(doc->readers > 0);
    doc->readers--;
    host->counted.documents_bad += is_bad;
    if (is_bad && doc->is_indexed) {
        tier_host_detach(host, doc); /* others may be reading it: they will find the same */
    }
    end_if_unused(host, doc);
}

/* --- writing ---------------------------------------------------------------------------------- */

static uint32_t
below(struct host *host, uint32_t n)
{
    host->random ^= host->random << 13;
    host->random ^= host->random >> 7;
    host->random ^= host->random << 17;
    return (uint32_t)(((host->random >> 32) * (uint64_t)n) >> 32);
}

static double
worth_of(const struct host *host, const struct dockey *key, uint64_t used)
{
    return host->config.worth == NULL ? (double)used : host->config.worth(host->config.arg, key);
}

/* The least of a few that nobody uses, or NULL. */
static struct tier_doc *
choose_victim(struct host *host, double *worth_out)
{
    uint32_t count = (uint32_t)host->index.count;
    uint32_t looks = count < CHOICES ? count : CHOICES;
    struct tier_doc *victim = NULL;

    for (uint32_t i = 0; i < looks; i++) {
        struct tier_doc *doc = host->docs[count <= CHOICES ? i : below(host, count)];
        double worth;

        if (is_in_use(doc)) {
            continue;
        }
        worth = worth_of(host, &doc->key, doc->used);
        if (victim == NULL || worth < *worth_out) {
            victim = doc;
            *worth_out = worth;
        }
    }
    return victim;
}

/* Frees places until there are `count`, as long as what goes is worth less than what comes. */
static void
make_room(struct host *host, uint32_t count, const struct dockey *key)
{
    double coming = worth_of(host, key, host->clock + 1);

    while (host->places.free_count < count) {
        uint32_t lacking = count - host->places.free_count, going;
        double worth = 0;
        struct tier_doc *victim = choose_victim(host, &worth);

        if (victim == NULL || worth >= coming) {
            return;
        }
        going = lacking < victim->run->count ? lacking : victim->run->count;
        host->counted.blocks_dropped += going;
        cut(host, victim, victim->run->count - going);
    }
}

static void
note_put(struct host *host, const struct tier_doc *doc, uint64_t writer)
{
    struct catalog_record record = {.key = doc->key, .n_tokens = doc->n_tokens};

    for (uint32_t i = 0; host->config.catalog != NULL && i < doc->writing->count; i++) {
        record.index = doc->run->count + i;
        catalog_write(host->config.catalog, doc->writing->ids[i], &record, NULL);
        catalog_lend(host->config.catalog, doc->writing->ids[i], writer);
    }
}

/* The document's record with room to write `count` blocks more; NULL: not now. */
static struct tier_doc *
require_doc(struct host *host, const struct tier_put *put, uint32_t count)
{
    struct tier_doc *doc = tier_host_find(host, &put->key);
    struct block_run *writing = NULL;
    uint32_t n_blocks = (uint32_t)(((uint64_t)put->n_tokens + host->config.block_tokens - 1)
                                   / host->config.block_tokens);

    assert(put->count > 0 && put->first + put->count <= n_blocks);
    assert(put->first == (doc == NULL ? 0 : doc->run->count));
    if ((doc != NULL && doc->writing != NULL) || block_run_new(count, &writing) != ST_OK) {
        return NULL;
    }
    if (doc == NULL) {
        doc = tier_host_new_doc(&put->key, put->n_tokens, n_blocks);
        if (doc == NULL || !tier_host_add(host, doc)) {
            if (doc != NULL) {
                tier_host_free_doc(doc);
            }
            mem_free(writing);
            return NULL;
        }
    }
    doc->writing = writing; /* in use from now on: no victim */
    return doc;
}

static uint32_t
host_put(struct tier *tier, const struct tier_put *put, uint32_t *places_out,
         struct tier_doc **doc_out)
{
    struct host *host = host_of(tier);
    struct tier_doc *doc = require_doc(host, put, put->count);
    uint32_t taken;

    if (doc == NULL) {
        host->counted.blocks_declined += put->count;
        return 0;
    }
    make_room(host, put->count, &put->key);
    taken = put->count < host->places.free_count ? put->count : host->places.free_count;
    host->counted.blocks_declined += put->count - taken;
    blocks_take(&host->places, doc->writing, taken, dockey_hash(&put->key));
    host->writing += taken;
    if (taken == 0) {
        MEM_FREE(doc->writing);
        cut(host, doc, doc->run->count); /* ends it, if it was only made for this */
        return 0;
    }
    note_put(host, doc, put->writer);
    list_push_back(&host->writers, &doc->writing_link);
    memcpy(places_out, doc->writing->ids, taken * sizeof(places_out[0]));
    *doc_out = doc;
    return taken;
}

/* The first `count` written places become the next of the head. */
static void
take_written(struct host *host, struct tier_doc *doc, uint32_t count, const uint64_t *sums)
{
    struct block_run *writing = doc->writing, *run = doc->run;

    for (uint32_t i = 0; i < count; i++) {
        doc->sums[run->count] = sums[i];
        run->ids[run->count++] = writing->ids[i];
        if (host->config.catalog != NULL) {
            catalog_seal(host->config.catalog, writing->ids[i], 0, sums[i]);
        }
    }
    blocks_settle(&host->places, run);
    memmove(writing->ids, writing->ids + count, (writing->count - count) * sizeof(writing->ids[0]));
    writing->count -= count;
    host->counted.blocks_put += count;
    doc->used = ++host->clock;
}

static void
host_put_end(struct tier *tier, struct tier_doc *doc, uint32_t count, const uint64_t *sums,
             uint64_t fence)
{
    struct host *host = host_of(tier);

    assert(doc->writing != NULL && count <= doc->writing->count && (fence == 0 || count == 0));
    host->writing -= doc->writing->count;
    if (doc->is_indexed) {
        take_written(host, doc, count, sums);
    }
    /* A block that was evicted meanwhile may have been anybody's when it was copied. */
    blocks_own(&host->places, doc->writing, 0, BLOCKS_ANY);
    doc->writing->fence = fence;
    list_unlink(&doc->writing_link);
    blocks_end_run(&host->places, &doc->writing);
    if (doc->is_indexed) {
        cut(host, doc, doc->run->count);
    } else {
        end_if_unused(host, doc);
    }
}

/* --- the rest --------------------------------------------------------------------------------- */

static bool
host_remove(struct tier *tier, const struct dockey *key)
{
    struct host *host = host_of(tier);
    struct tier_doc *doc = tier_host_find(host, key);

    if (doc == NULL) {
        return false;
    }
    tier_host_detach(host, doc);
    end_if_unused(host, doc);
    return true;
}

/* --- erasure ---------------------------------------------------------------------------------- */

/* What is marked only ends with its last use; what an earlier erasure has is its own. */
static uint32_t
mark(struct tier_doc *doc, uint64_t erasure)
{
    uint32_t blocks = doc->run->count;

    doc->run->erasure = erasure;
    if (doc->writing != NULL) {
        doc->writing->erasure = erasure;
        blocks += doc->writing->count;
    }
    return blocks;
}

static uint32_t
mark_detached(struct host *host, const struct dockey *key, uint64_t erasure)
{
    uint32_t blocks = 0;

    LIST_FOR_EACH(node, &host->detached)
    {
        struct tier_doc *doc = LIST_ENTRY(node, struct tier_doc, link);

        if (doc->run->erasure == 0 && memcmp(&doc->key, key, DOCKEY_BYTES) == 0) {
            blocks += mark(doc, erasure);
        }
    }
    return blocks;
}

/* Whatever is being copied: what of it does not become a document's may be anything, so it has to
 * be overwritten in its end, and that is waited for. */
static void
taint_written(struct host *host, uint64_t erasure)
{
    LIST_FOR_EACH(node, &host->writers)
    {
        LIST_ENTRY(node, struct tier_doc, writing_link)->writing->taint = erasure;
    }
}

static enum status
host_erase(struct tier *tier, const struct dockey *key, uint64_t erasure, uint32_t *blocks_out)
{
    struct host *host = host_of(tier);
    struct tier_doc *doc = tier_host_find(host, key);
    uint64_t owner = dockey_hash(key);
    uint32_t remnants;

    TRY(blocks_take_remnants(&host->places, owner, erasure, &remnants));
    *blocks_out += remnants + blocks_mark_fenced(&host->places, owner, erasure);
    *blocks_out += mark_detached(host, key, erasure);
    taint_written(host, erasure);
    if (doc == NULL) {
        return ST_OK;
    }
    *blocks_out += mark(doc, erasure);
    tier_host_detach(host, doc);
    end_if_unused(host, doc);
    return ST_OK;
}

static bool
host_is_erasing(const struct tier *tier, const struct dockey *key)
{
    const struct host *host = const_host_of(tier);
    bool is_erasing = blocks_are_erasing(&host->places, dockey_hash(key));

    LIST_FOR_EACH(node, &host->detached)
    {
        const struct tier_doc *doc = LIST_ENTRY(node, const struct tier_doc, link);

        is_erasing |= doc->run->erasure != 0 && memcmp(&doc->key, key, DOCKEY_BYTES) == 0
                      && (doc->run->count > 0 || doc->writing != NULL);
    }
    LIST_FOR_EACH(node, &host->writers)
    {
        const struct block_run *writing =
            LIST_ENTRY(node, const struct tier_doc, writing_link)->writing;

        is_erasing |= writing->taint != 0 && writing->count > 0;
    }
    return is_erasing;
}

static const uint32_t *
host_next_erasure(struct tier *tier, uint64_t erase, uint64_t eraser, uint32_t *count_out)
{
    const struct block_run *run = blocks_next_erasure(&host_of(tier)->places, erase, eraser);

    if (run == NULL) {
        return NULL;
    }
    *count_out = run->count;
    return run->ids;
}

static uint32_t
host_erased(struct tier *tier, uint64_t erase)
{
    return blocks_erased(&host_of(tier)->places, erase);
}

static void
host_lose_eraser(struct tier *tier, uint64_t eraser)
{
    blocks_lose_eraser(&host_of(tier)->places, eraser);
}

static void
host_fence_lift(struct tier *tier, uint64_t fence)
{
    (void)blocks_lift(&host_of(tier)->places, fence);
}

static void
host_stat(const struct tier *tier, struct tier_stats *stats_out)
{
    const struct host *host = const_host_of(tier);

    *stats_out = host->counted;
    stats_out->places = host->config.places;
    stats_out->places_free = host->places.free_count;
    stats_out->places_quarantined = host->places.quarantined;
    stats_out->places_writing = host->writing;
    stats_out->documents = (uint32_t)host->index.count;
}

static void
host_leave(struct tier *tier)
{
    host_of(tier)->config.catalog = NULL;
    host_of(tier)->places.catalog = NULL;
}

static uint32_t
host_tokens(const struct tier *tier, const struct dockey *key)
{
    const struct tier_doc *doc = tier_host_find(const_host_of(tier), key);

    return doc == NULL ? 0 : doc->n_tokens;
}

static bool
host_next(const struct tier *tier, uint32_t *cursor, struct dockey *key_out, uint32_t *n_tokens_out,
          uint32_t *blocks_out)
{
    const struct host *host = const_host_of(tier);
    uint32_t count = (uint32_t)host->index.count;
    const struct tier_doc *doc;

    *cursor = *cursor < count ? *cursor : count;
    if (*cursor == 0) {
        return false;
    }
    doc = host->docs[--*cursor];
    *key_out = doc->key;
    *n_tokens_out = doc->n_tokens;
    *blocks_out = doc->run->count;
    return true;
}

/* --- life ------------------------------------------------------------------------------------- */

static void
host_destroy(struct tier **tier)
{
    struct host *host;

    if (*tier == NULL) {
        return;
    }
    host = host_of(*tier);
    while (host->index.count > 0) {
        struct tier_doc *doc = host->docs[host->index.count - 1];

        assert(!is_in_use(doc));
        htab_remove(&host->index, &doc->node);
        tier_host_free_doc(doc);
    }
    htab_deinit(&host->index);
    blocks_deinit(&host->places);
    mem_free(host->docs);
    mem_free(host);
    *tier = NULL;
}

static const struct tier_ops host_ops = {
    .name = "host",
    .destroy = host_destroy,
    .lookup = host_lookup,
    .get = host_get,
    .get_end = host_get_end,
    .put = host_put,
    .put_end = host_put_end,
    .remove = host_remove,
    .erase = host_erase,
    .is_erasing = host_is_erasing,
    .next_erasure = host_next_erasure,
    .erased = host_erased,
    .lose_eraser = host_lose_eraser,
    .fence_lift = host_fence_lift,
    .stat = host_stat,
    .leave = host_leave,
    .tokens = host_tokens,
    .next = host_next,
    .check = tier_host_check,
};

enum status
tier_host_new(const struct tier_host_config *config, struct tier **tier_out)
{
    struct host *host;
    struct tier *tier;
    enum status st;

    if (config->places == 0 || config->places > KVPOOL_BLOCKS_MAX) {
        return ERR(ST_INVALID, "host tier of %u blocks: not in 1..%u", config->places,
                   KVPOOL_BLOCKS_MAX);
    }
    host = mem_zalloc(1, sizeof(*host));
    if (host == NULL) {
        return ERR(ST_NO_MEMORY, "host tier");
    }
    host->tier.ops = &host_ops;
    list_init(&host->detached);
    list_init(&host->writers);
    host->config = *config;
    host->random = config->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    tier = &host->tier;
    st = blocks_init(&host->places, config->places, true);
    host->places.catalog = config->catalog;
    if (st == ST_OK) {
        st = htab_init(&host->index, doc_has_key);
    }
    if (st == ST_OK) { /* not zeroed: it costs what is used of it */
        host->docs = mem_realloc(NULL, docs_max(host), sizeof(host->docs[0]));
        st = host->docs == NULL ? ERR(ST_NO_MEMORY, "list of the host tier") : ST_OK;
    }
    if (st != ST_OK) {
        host_destroy(&tier);
        return st;
    }
    *tier_out = tier;
    return ST_OK;
}
