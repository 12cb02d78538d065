/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/property/pool_model.h"

#include <string.h>

#include "tests/support/check_main.h"

struct pool_model m;

/* xorshift64*: any state but 0. */
uint64_t
model_roll(uint64_t sides)
{
    m.random ^= m.random >> 12;
    m.random ^= m.random << 25;
    m.random ^= m.random >> 27;
    return (m.random * UINT64_C(0x2545f4914f6cdd1d) >> 33) % sides;
}

/* Most draws fall on few keys, so that hits, partial documents and joins are common. */
size_t
model_roll_key(void)
{
    return model_roll(4) == 0 ? model_roll(m.key_count) : model_roll(12);
}

/* --- the model: looking ----------------------------------------------------------------------- */

uint32_t
model_blocks_for(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

struct model_doc *
model_find(size_t key)
{
    for (size_t i = 0; i < DOCS_MAX; i++) {
        if (m.docs[i].is_live && m.docs[i].is_indexed && m.docs[i].key == key) {
            return &m.docs[i];
        }
    }
    return NULL;
}

uint32_t
model_references(const struct model_doc *doc)
{
    uint32_t count = 0;

    for (size_t c = 0; c < CLAIMS_MAX; c++) {
        for (size_t i = 0; m.claims[c].real != NULL && i < m.claims[c].doc_count; i++) {
            count += &m.docs[m.claims[c].docs[i]] == doc;
        }
    }
    return count;
}

bool
model_is_evictable(const struct model_doc *doc)
{
    return doc->is_live && doc->is_indexed && doc->builder == 0 && doc->pins == 0
           && model_references(doc) == 0;
}

bool
model_is_awaited(const struct model_doc *doc)
{
    for (size_t w = 0; w < WAITS_MAX; w++) {
        for (size_t i = 0; i < m.waits[w].count; i++) {
            if (m.waits[w].keys[i] == doc->key) {
                return true;
            }
        }
    }
    return false;
}

/* The instantaneous numbers of the pool, counted afresh. */
struct kvpool_stats
model_count(void)
{
    struct kvpool_stats s = m.counted;

    s.block_count = BLOCKS;
    s.block_tokens = BLOCK_TOKENS;
    for (size_t i = 0; i < DOCS_MAX; i++) {
        const struct model_doc *doc = &m.docs[i];

        if (doc->is_live) {
            s.blocks_docs += doc->resident;
            s.blocks_pinned += doc->pins > 0 ? doc->resident : 0;
            s.blocks_evictable += model_is_evictable(doc) ? doc->resident : 0;
            s.documents += doc->is_indexed;
        }
    }
    for (size_t c = 0; c < CLAIMS_MAX; c++) {
        s.blocks_own += m.claims[c].real == NULL ? 0 : m.claims[c].own;
    }
    for (size_t f = 1; f <= FENCES; f++) {
        s.blocks_quarantined += m.quarantined[f];
    }
    s.blocks_free = BLOCKS - s.blocks_docs - s.blocks_own - s.blocks_quarantined;
    return s;
}

/* --- the model: changing ---------------------------------------------------------------------- */

static void
ghost_remove(size_t index)
{
    m.ghost_count--;
    memmove(&m.ghosts[index], &m.ghosts[index + 1], (m.ghost_count - index) * sizeof(m.ghosts[0]));
}

enum kvpool_miss
model_ghost_take(size_t key)
{
    for (size_t i = 0; i < m.ghost_count; i++) {
        if (m.ghosts[i].key == key) {
            enum kvpool_miss reason = m.ghosts[i].reason;

            ghost_remove(i);
            return reason;
        }
    }
    return KVPOOL_MISS_COLD;
}

void
model_leave_index(struct model_doc *doc, enum kvpool_miss reason)
{
    doc->is_indexed = false;
    doc->pins = 0;
    doc->is_live = model_references(doc) > 0;
    if (m.ghost_count == GHOSTS) {
        ghost_remove(0);
    }
    m.ghosts[m.ghost_count].key = doc->key;
    m.ghosts[m.ghost_count].reason = reason;
    m.ghost_count++;
}

static void
lose_blocks(struct model_doc *doc, uint32_t count)
{
    doc->resident -= count;
    m.counted.blocks_evicted += count;
    if (doc->ready > doc->resident * BLOCK_TOKENS) {
        doc->ready = doc->resident * BLOCK_TOKENS;
    }
    if (doc->resident == 0) {
        m.counted.docs_evicted++;
        model_leave_index(doc, KVPOOL_MISS_EVICTED);
    }
}

/* Takes blocks, one at a time, from whatever evictable document has been idle the longest. */
static void
evict_longest_idle(uint32_t count)
{
    for (; count > 0; count--) {
        struct model_doc *victim = NULL;

        for (size_t i = 0; i < DOCS_MAX; i++) {
            struct model_doc *doc = &m.docs[i];

            if (!model_is_evictable(doc)) {
                continue;
            }
            if (victim == NULL || model_is_awaited(doc) < model_is_awaited(victim)
                || (model_is_awaited(doc) == model_is_awaited(victim)
                    && doc->idle_since < victim->idle_since)) {
                victim = doc;
            }
        }
        ck_assert_ptr_nonnull(victim);
        lose_blocks(victim, 1);
    }
}

/* Takes over what the policy has chosen, if it was allowed to.  The real eviction is over. */
static void
evict_as_chosen(uint32_t count)
{
    bool is_awaited_lost = false, is_other_left = false;
    uint32_t cut = 0;

    for (size_t i = 0; i < DOCS_MAX; i++) {
        struct model_doc *doc = &m.docs[i];
        const struct kvpool_doc *real;
        uint32_t left = 0, lost;
        bool was_awaited;

        if (!model_is_evictable(doc)) {
            continue; /* compare() finds a block that is missing here */
        }
        real = kvpool_find(m.pool, &m.keys[doc->key]);
        if (real != NULL) {
            (void)kvpool_doc_blocks(real, &left);
        }
        was_awaited = model_is_awaited(doc);
        ck_assert_uint_le(left, doc->resident);
        lost = doc->resident - left;
        ck_assert_uint_le(lost, count);
        count -= lost;
        cut += lost > 0 && left > 0;
        is_awaited_lost = is_awaited_lost || (was_awaited && lost > 0);
        is_other_left = is_other_left || (!was_awaited && left > 0);
        if (lost > 0) {
            lose_blocks(doc, lost);
        }
    }
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_le(cut, 1);
    ck_assert(!(is_awaited_lost && is_other_left));
}

void
model_evict(uint32_t count)
{
    if (m.policy == &evict_lru) {
        evict_longest_idle(count);
    } else {
        evict_as_chosen(count);
    }
}

size_t
model_add_doc(size_t key)
{
    size_t i = 0;

    while (m.docs[i].is_live) {
        i++;
        ck_assert_uint_lt(i, DOCS_MAX);
    }
    m.docs[i] = (struct model_doc){.is_live = true, .is_indexed = true, .key = key};
    return i;
}
