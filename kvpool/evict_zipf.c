/* SPDX-License-Identifier: Apache-2.0 */
/* Which document goes?  The one with the lowest value density:
 *
 *     expected references per request  x  cost of computing it again  /  blocks it holds
 *
 * The rate is learned.  A record of each document, kept long after the document was evicted
 * (zipf_memory), feeds three estimates of its popularity (zipf_rate), which are corrected by how
 * such predictions turned out lately (zipf_calibration).  The score is log2 of the density, so that
 * corrections and the operator's priority are sums:
 *
 *     log2 rate + corrections + log2(cost / blocks) + priority + (awaited? 1000)
 *
 * Cost is nearly proportional to size, so unlike GDSF, made for web pages, we do not divide by size
 * and then prefer small documents: a block of a short document is worth as much as one of a long
 * document that is asked for as often.
 *
 * What a waiting request needs outranks every prediction: it will be used, and soon.
 *
 * Choosing.  Evictable documents stand in a heap, the lowest score on top.  A score changes with
 * time though nobody touches the document, but it only sinks, and slowly; so entries are scored
 * anew three at a time, round robin, at every reference, and the top once more before it becomes
 * the victim.  Scoring everything exactly gained nothing measurable.  A victim is drained before
 * the next is begun: what is left of a half evicted document is worth keeping only if the rest is
 * not asked for next, and a handful of partial documents is enough.
 *
 * Costs: O(log n) a call, no allocation after the start, no wall clock: the clock is the count of
 * requests.  The only randomness is the choice of samples, from the seed.
 *
 * Deliberately absent: a window or a filter for new documents (their posterior does that), classes
 * of tenants (the gap expert adapts to each document), and any guarantee against LRU: the tests
 * hold how near it comes. */
#include "kvpool/evict_zipf.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"

/* Four times the documents that fit is enough to remember; and documents have at least a block. */
#define REMEMBERED_PER_BLOCK 4
#define REMEMBERED_MAX       (1u << 20)
#define REMEMBERED_SPARE     8192 /* documents of a claim that are not resident yet, and more */
#define RECYCLE_CHOICES      8    /* random ghosts, of which the worst is forgotten */
#define RECYCLE_TRIES        64

#define AWAITED_BIAS       1000.0f /* octaves: more than any prediction can make up for */
#define PRIORITY_OCTAVE    10.0f   /* points of priority that double a document's value */
#define UNKNOWN_SCORE      (-100.0f)
#define STALE_TOLERANCE    0.02f /* a top whose score rose by no more is a victim */
#define DRAINING_TOLERANCE 1.0f  /* octaves */
#define VICTIM_TRIES       8
#define REFRESH_MIN        3
#define REFRESH_MAX        4
#define REFRESH_AHEAD      4    /* entries */
#define REFRESH_PERIOD     3000 /* references in which every entry is scored once */
#define SAMPLES_PER_TICK   3.0  /* of the last request, and as many of the heap */
#define HORIZON_MIN        16.0
#define HORIZON_MAX        800.0
#define BUILT_SMOOTHING    0.005
#define HORIZON_BUILT_MIN                                                                          \
    0.05 /* a pool that misses nothing has a long horizon, not an endless one */

static uint32_t
below(struct evict_policy *policy, uint32_t n)
{
    policy->random ^= policy->random << 13;
    policy->random ^= policy->random >> 7;
    policy->random ^= policy->random << 17;
    return (uint32_t)(((policy->random >> 32) * (uint64_t)n) >> 32);
}

/* --- scores ----------------------------------------------------------------------------------- */

static float
record_score(const struct evict_policy *policy, const struct zipf_record *record)
{
    float bias = (float)record->density / ZIPF_DENSITY_ONE
                 + ((float)record->priority - EVICT_PRIORITY_DEFAULT) / PRIORITY_OCTAVE;
    struct zipf_estimate estimate;

    if (record->count_slow == 0) {
        return UNKNOWN_SCORE + bias;
    }
    zipf_estimate(&policy->clock, record, &estimate);
    return zipf_log2(estimate.rate) + zipf_correction(&policy->calibration, estimate.at) + bias;
}

static float
score_slot(const struct evict_policy *policy, uint32_t slot, bool is_awaited)
{
    return record_score(policy, &policy->memory.records[slot]) + (is_awaited ? AWAITED_BIAS : 0);
}

static float
score(const struct evict_policy *policy, const struct evict_doc *doc)
{
    return score_slot(policy, doc->slot, doc->is_awaited);
}

/* From the entry alone: an awaited one is known by its score. */
static float
score_entry(const struct evict_policy *policy, const struct evict_heap_entry *entry)
{
    return score_slot(policy, entry->slot, entry->score > AWAITED_BIAS / 2);
}

static uint16_t
density_of(const struct evict_policy *policy, const struct evict_doc *doc)
{
    double n = doc->n_tokens, quadratic = policy->config.quadratic_tokens;
    double cost = n + (quadratic > 0 ? n * n / (2 * quadratic) : 0);
    double density = log2(cost / doc->n_blocks) * (double)ZIPF_DENSITY_ONE;

    return density <= 0 ? 0 : density >= UINT16_MAX ? UINT16_MAX : (uint16_t)density;
}

/* --- records ---------------------------------------------------------------------------------- */

static uint32_t
random_ghost(struct evict_policy *policy)
{
    struct zipf_memory *memory = &policy->memory;
    uint32_t slot = 0;

    for (int i = 0; i < RECYCLE_TRIES; i++) {
        slot = 1 + below(policy, memory->taken);
        if (memory->records[slot].here == 0 && memory->records[slot].priority != ZIPF_UNUSED) {
            return slot;
        }
    }
    /* At least half of the memory is ghosts, so nobody comes here; but it must end. */
    do {
        slot = slot % memory->taken + 1;
    } while (memory->records[slot].here > 0 || memory->records[slot].priority == ZIPF_UNUSED);
    return slot;
}

static void
forget_record(struct evict_policy *policy, uint32_t slot)
{
    zipf_sample_drop(&policy->calibration, &policy->memory.records[slot]);
    zipf_memory_drop(&policy->memory, slot);
}

static void
recycle(struct evict_policy *policy)
{
    uint32_t worst = 0;
    float worst_score = 0;

    for (int i = 0; i < RECYCLE_CHOICES; i++) {
        uint32_t slot = random_ghost(policy);
        float s = record_score(policy, &policy->memory.records[slot]);

        if (worst == 0 || s < worst_score) {
            worst = slot;
            worst_score = s;
        }
    }
    forget_record(policy, worst);
}

/* The record of a key: found, or made at the price of the least of a few ghosts. */
static uint32_t
require_record(struct evict_policy *policy, const struct dockey *key)
{
    uint32_t slot = zipf_memory_find(&policy->memory, dockey_hash(key));

    if (slot == 0) {
        if (zipf_memory_is_full(&policy->memory)) {
            recycle(policy);
        }
        slot = zipf_memory_add(&policy->memory, dockey_hash(key));
    }
    return slot;
}

/* The document's record, and that it is here: from its first call on until it is forgotten. */
static struct zipf_record *
record_of(struct evict_policy *policy, struct evict_doc *doc)
{
    if (doc->slot == 0) {
        doc->slot = require_record(policy, &doc->key);
        zipf_memory_come(&policy->memory, doc->slot);
        policy->memory.records[doc->slot].density = density_of(policy, doc);
    }
    return &policy->memory.records[doc->slot];
}

/* --- the seam --------------------------------------------------------------------------------- */

static void
zipf_destroy(struct evict_policy **policy)
{
    if (*policy == NULL) {
        return;
    }
    evict_heap_deinit(&(*policy)->heap);
    zipf_calibration_deinit(&(*policy)->calibration);
    zipf_memory_deinit(&(*policy)->memory);
    MEM_FREE(*policy);
}

/* Room for those that are here, whatever the pool's size, and as many ghosts at the least. */
static uint32_t
remembered_max(uint32_t block_count)
{
    uint64_t wanted = (uint64_t)block_count * REMEMBERED_PER_BLOCK;
    uint64_t least = (uint64_t)block_count * 2;

    wanted = wanted < REMEMBERED_MAX ? wanted : REMEMBERED_MAX;
    return (uint32_t)(wanted > least ? wanted : least) + REMEMBERED_SPARE;
}

static enum status
zipf_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    struct evict_policy *policy = mem_zalloc(1, sizeof(*policy));
    enum status st;

    if (policy == NULL) {
        return ERR(ST_NO_MEMORY, "eviction policy zipf");
    }
    policy->config = *config;
    policy->random = config->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    policy->built_per_request = 1;
    st = zipf_memory_init(&policy->memory, remembered_max(config->block_count));
    if (st == ST_OK) {
        st = zipf_calibration_init(&policy->calibration);
    }
    if (st == ST_OK) {
        st = evict_heap_init(&policy->heap, config->block_count);
    }
    if (st != ST_OK) {
        zipf_destroy(&policy);
        return st;
    }
    zipf_clock_set(&policy->clock, 0);
    zipf_lesson_apply(&policy->calibration, &policy->clock);
    *policy_out = policy;
    return ST_OK;
}

/* About as long as a document stays: how many are here, over how many come with a request. */
static double
horizon(const struct evict_policy *policy)
{
    double requests = policy->memory.here / (policy->built_per_request + HORIZON_BUILT_MIN);

    return requests < HORIZON_MIN ? HORIZON_MIN : requests > HORIZON_MAX ? HORIZON_MAX : requests;
}

static void
take_samples(struct evict_policy *policy)
{
    uint32_t fresh = policy->fresh_seen < ZIPF_FRESH_MAX ? policy->fresh_seen : ZIPF_FRESH_MAX;
    double most = ZIPF_SAMPLES_MAX / (2 * policy->calibration.horizon); /* that the ring holds */

    policy->sample_credit += most < SAMPLES_PER_TICK ? most : SAMPLES_PER_TICK;
    for (; policy->sample_credit >= 1; policy->sample_credit--) {
        if (fresh > 0) {
            zipf_sample_take(&policy->calibration, &policy->clock, &policy->memory,
                             policy->fresh[below(policy, fresh)]);
        }
        if (policy->heap.count > 0) {
            uint32_t index = below(policy, policy->heap.count);

            zipf_sample_take(&policy->calibration, &policy->clock, &policy->memory,
                             policy->heap.entries[index].doc->slot);
        }
    }
    policy->fresh_seen = 0;
}

static void
zipf_tick(struct evict_policy *policy)
{
    zipf_clock_set(&policy->clock, policy->clock.now + 1);
    policy->built_per_request += (policy->built - policy->built_per_request) * BUILT_SMOOTHING;
    policy->built = 0;
    zipf_calibrate(&policy->calibration, &policy->clock, &policy->memory, horizon(policy));
    take_samples(policy);
}

/* A random choice of the request's documents, each as likely (reservoir sampling). */
static void
note_fresh(struct evict_policy *policy, uint32_t slot)
{
    uint32_t at = policy->fresh_seen++;

    if (at >= ZIPF_FRESH_MAX) {
        at = below(policy, at + 1);
    }
    if (at < ZIPF_FRESH_MAX) {
        policy->fresh[at] = slot;
    }
}

/* Most of what refreshing costs is waiting for memory: records stand in no order there.  So those
 * of the next reference are asked for now. */
static void
prefetch(const struct evict_policy *policy, uint32_t index)
{
    const struct evict_heap *heap = &policy->heap;

    if (index + REFRESH_AHEAD < heap->count) {
        __builtin_prefetch(&policy->memory.records[heap->entries[index + REFRESH_AHEAD].slot]);
    }
}

static void
refresh(struct evict_policy *policy)
{
    uint32_t count = policy->heap.count / REFRESH_PERIOD;

    count = count < REFRESH_MIN ? REFRESH_MIN : count > REFRESH_MAX ? REFRESH_MAX : count;
    for (; count > 0 && policy->heap.count > 0; count--) {
        uint32_t index = policy->next_refresh++ % policy->heap.count;

        policy->next_refresh = index + 1;
        prefetch(policy, index);
        evict_heap_rescore(&policy->heap, index, score_entry(policy, &policy->heap.entries[index]));
    }
}

static void
zipf_used(struct evict_policy *policy, struct evict_doc *doc)
{
    struct zipf_record *record = record_of(policy, doc);

    assert(doc->place == 0); /* it is referenced now */
    policy->built += doc->blocks_resident == 0;
    if (policy->draining == doc) {
        policy->draining = NULL;
    }
    zipf_sample_hit(&policy->calibration, &policy->clock, record);
    zipf_count(&policy->clock, record);
    note_fresh(policy, doc->slot);
    refresh(policy);
}

static void
zipf_admitted(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)record_of(policy, doc); /* new to us if it was adopted after a restart */
}

static void
zipf_evictable(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)record_of(policy, doc);
    if (doc->is_evictable) {
        evict_heap_push(&policy->heap, doc, score(policy, doc));
    } else {
        evict_heap_remove(&policy->heap, doc);
    }
}

static void
zipf_awaited(struct evict_policy *policy, struct evict_doc *doc)
{
    if (doc->place != 0) {
        evict_heap_rescore(&policy->heap, doc->place - 1, score(policy, doc));
    }
}

static void
zipf_forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    evict_heap_remove(&policy->heap, doc);
    if (policy->draining == doc) {
        policy->draining = NULL;
    }
    if (doc->slot == 0) {
        return;
    }
    zipf_memory_leave(&policy->memory, doc->slot);
    if (end == EVICT_END_FORGOTTEN && policy->memory.records[doc->slot].here == 0) {
        forget_record(policy, doc->slot);
    }
    doc->slot = 0;
}

/* The last victim goes on, unless something is worth much less than what is left of it.  An awaited
 * one was taken for want of others; now there may be others. */
static bool
goes_on(const struct evict_policy *policy)
{
    const struct evict_doc *doc = policy->draining;

    return doc != NULL && doc->is_evictable && !doc->is_awaited
           && score(policy, doc) <= policy->heap.entries[0].score + DRAINING_TOLERANCE;
}

static struct evict_doc *
zipf_victim(struct evict_policy *policy)
{
    struct evict_heap *heap = &policy->heap;

    if (heap->count == 0) {
        return NULL;
    }
    if (goes_on(policy)) {
        return policy->draining;
    }
    for (int i = 0; i < VICTIM_TRIES; i++) {
        float s = score_entry(policy, &heap->entries[0]);

        if (s <= heap->entries[0].score + STALE_TOLERANCE) {
            break;
        }
        evict_heap_rescore(heap, 0, s);
    }
    policy->draining = heap->entries[0].doc;
    return policy->draining;
}

static void
zipf_prioritized(struct evict_policy *policy, const struct dockey *key, struct evict_doc *doc,
                 uint8_t priority)
{
    assert(priority <= EVICT_PRIORITY_MAX);
    if (doc != NULL) {
        record_of(policy, doc)->priority = priority;
        if (doc->place != 0) {
            evict_heap_rescore(&policy->heap, doc->place - 1, score(policy, doc));
        }
        return;
    }
    policy->memory.records[require_record(policy, key)].priority = priority;
}

void
evict_zipf_rescore(struct evict_policy *policy)
{
    struct evict_heap *heap = &policy->heap;

    for (uint32_t i = 0; i < heap->count; i++) {
        heap->entries[i].score = score(policy, heap->entries[i].doc);
    }
    evict_heap_restore(heap);
}

static uint32_t
zipf_coldest(const struct evict_policy *policy, struct evict_doc **docs_out, uint32_t max)
{
    return evict_heap_lowest(&policy->heap, docs_out, max);
}

static double
zipf_worth(const struct evict_policy *policy, const struct dockey *key)
{
    uint32_t slot = zipf_memory_find(&policy->memory, dockey_hash(key));

    return slot == 0 ? (double)UNKNOWN_SCORE
                     : (double)record_score(policy, &policy->memory.records[slot]);
}

struct zipf_view
evict_zipf_view(const struct evict_policy *policy)
{
    const struct zipf_lesson *lesson = &policy->calibration.lesson;
    struct zipf_view view = {.remembered = policy->memory.taken};
    double moving = lesson->weight_hits[ZIPF_FAST] + lesson->weight_hits[ZIPF_GAP];
    double all = moving + lesson->weight_hits[ZIPF_SLOW];

    memcpy(view.weight, lesson->weight, sizeof(view.weight));
    view.drift = all > 0 ? moving / all : 0;
    return view;
}

const struct evict_policy_ops evict_zipf = {
    .name = "zipf",
    .create = zipf_create,
    .destroy = zipf_destroy,
    .tick = zipf_tick,
    .used = zipf_used,
    .admitted = zipf_admitted,
    .evictable = zipf_evictable,
    .awaited = zipf_awaited,
    .forgotten = zipf_forgotten,
    .victim = zipf_victim,
    .prioritized = zipf_prioritized,
    .save_max = zipf_state_max,
    .save = zipf_state_save,
    .restore = zipf_state_restore,
    .coldest = zipf_coldest,
    .worth = zipf_worth,
};
