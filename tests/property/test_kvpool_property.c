/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on the pool beside a naive model of it: plain arrays, searched from end to end,
 * no counter kept that can be counted.  After every operation both must agree on all numbers and on
 * every document, and kvpool_check must pass.  The model picks its victims by looking for the
 * longest idle document, so an eviction that is not exactly LRU, or touches what is referenced or
 * pinned, shows.  Now and then the host refuses memory within a claim, which then must have changed
 * nothing.  TEST_SEED replays a run. */
#include <string.h>

#include "common/mem.h"
#include "kvpool/kvpool.h"
#include "tests/support/check_main.h"

#define OPERATIONS   150000
#define BLOCKS       40
#define BLOCK_TOKENS 4
#define GHOSTS       (2 * BLOCKS) /* the pool remembers two forgotten documents a block */
#define PIN_BLOCKS   10           /* a quarter of the pool */
#define KEYS         200
#define TOKENS_MAX   30
#define WANTS_MAX    6
#define CLAIMS_MAX   4
#define FENCES       3
#define DOCS_MAX     (BLOCKS + 1) /* each has a block */

struct model_doc {
    bool is_live, is_indexed, is_abandoned;
    size_t key;
    uint32_t resident; /* blocks */
    uint32_t ready;    /* tokens */
    uint32_t pins;
    uint64_t builder; /* 0: nobody */
    uint64_t fence;
    uint64_t idle_since; /* when it was last let go */
    struct kvpool_doc *real;
};

struct model_claim {
    struct kvpool_claim *real; /* NULL: none */
    uint32_t own;
    size_t doc_count;
    size_t docs[WANTS_MAX];
    const uint32_t *ids[WANTS_MAX];            /* where the block list was */
    uint32_t id_copies[WANTS_MAX][TOKENS_MAX]; /* and what was in it */
    uint32_t id_counts[WANTS_MAX];
};

static struct {
    struct kvpool *pool;
    uint64_t random;
    uint64_t now; /* counts whatever makes a document idle */
    uint64_t generation;
    uint64_t builders;
    struct dockey keys[KEYS];
    uint32_t tokens[KEYS];
    struct model_doc docs[DOCS_MAX];
    struct model_claim claims[CLAIMS_MAX];
    uint32_t quarantined[FENCES + 1]; /* by fence */
    size_t ghost_count;
    struct {
        size_t key;
        enum kvpool_miss reason;
    } ghosts[GHOSTS]; /* oldest first */
    struct kvpool_stats counted;
} m;

/* xorshift64*: any state but 0. */
static uint64_t
roll(uint64_t sides)
{
    m.random ^= m.random >> 12;
    m.random ^= m.random << 25;
    m.random ^= m.random >> 27;
    return (m.random * UINT64_C(0x2545f4914f6cdd1d) >> 33) % sides;
}

/* Most draws fall on few keys, so that hits, partial documents and joins are common. */
static size_t
roll_key(void)
{
    return roll(4) == 0 ? roll(KEYS) : roll(12);
}

/* --- the model: looking ----------------------------------------------------------------------- */

static uint32_t
blocks_for(uint32_t tokens)
{
    return (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static struct model_doc *
find(size_t key)
{
    for (size_t i = 0; i < DOCS_MAX; i++) {
        if (m.docs[i].is_live && m.docs[i].is_indexed && m.docs[i].key == key) {
            return &m.docs[i];
        }
    }
    return NULL;
}

static uint32_t
references(const struct model_doc *doc)
{
    uint32_t count = 0;

    for (size_t c = 0; c < CLAIMS_MAX; c++) {
        for (size_t i = 0; m.claims[c].real != NULL && i < m.claims[c].doc_count; i++) {
            count += &m.docs[m.claims[c].docs[i]] == doc;
        }
    }
    return count;
}

static bool
is_evictable(const struct model_doc *doc)
{
    return doc->is_live && doc->is_indexed && doc->builder == 0 && doc->pins == 0
           && references(doc) == 0;
}

/* The instantaneous numbers of the pool, counted afresh. */
static struct kvpool_stats
count_all(void)
{
    struct kvpool_stats s = m.counted;

    s.block_count = BLOCKS;
    s.block_tokens = BLOCK_TOKENS;
    for (size_t i = 0; i < DOCS_MAX; i++) {
        const struct model_doc *doc = &m.docs[i];

        if (doc->is_live) {
            s.blocks_docs += doc->resident;
            s.blocks_pinned += doc->pins > 0 ? doc->resident : 0;
            s.blocks_evictable += is_evictable(doc) ? doc->resident : 0;
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

static enum kvpool_miss
ghost_take(size_t key)
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

static void
leave_index(struct model_doc *doc, enum kvpool_miss reason)
{
    doc->is_indexed = false;
    doc->pins = 0;
    doc->is_live = references(doc) > 0;
    if (m.ghost_count == GHOSTS) {
        ghost_remove(0);
    }
    m.ghosts[m.ghost_count].key = doc->key;
    m.ghosts[m.ghost_count].reason = reason;
    m.ghost_count++;
}

/* Takes blocks, one at a time, from whatever evictable document has been idle the longest. */
static void
evict(uint32_t count)
{
    for (; count > 0; count--) {
        struct model_doc *victim = NULL;

        for (size_t i = 0; i < DOCS_MAX; i++) {
            if (is_evictable(&m.docs[i])
                && (victim == NULL || m.docs[i].idle_since < victim->idle_since)) {
                victim = &m.docs[i];
            }
        }
        ck_assert_ptr_nonnull(victim);
        victim->resident--;
        m.counted.blocks_evicted++;
        if (victim->ready > victim->resident * BLOCK_TOKENS) {
            victim->ready = victim->resident * BLOCK_TOKENS;
        }
        if (victim->resident == 0) {
            m.counted.docs_evicted++;
            leave_index(victim, KVPOOL_MISS_EVICTED);
        }
    }
}

static size_t
add_doc(size_t key)
{
    size_t i = 0;

    while (m.docs[i].is_live) {
        i++;
        ck_assert_uint_lt(i, DOCS_MAX);
    }
    m.docs[i] = (struct model_doc){.is_live = true, .is_indexed = true, .key = key};
    return i;
}

/* --- claims ----------------------------------------------------------------------------------- */

/* What the claim of these keys should do, by counting; *missing_out: blocks to be taken. */
static enum status
expect_claim(const size_t *keys, size_t key_count, uint32_t own, uint32_t *missing_out)
{
    struct kvpool_stats s = count_all();
    uint32_t whole = own, missing = own, available = s.blocks_free + s.blocks_evictable;

    for (size_t i = 0; i < key_count; i++) {
        const struct model_doc *doc = find(keys[i]);
        bool is_repeat = false;

        for (size_t j = 0; j < i; j++) {
            is_repeat = is_repeat || keys[j] == keys[i];
        }
        if (is_repeat) {
            continue;
        }
        whole += blocks_for(m.tokens[keys[i]]);
        missing += blocks_for(m.tokens[keys[i]]) - (doc == NULL ? 0 : doc->resident);
        available -= doc != NULL && is_evictable(doc) ? doc->resident : 0;
    }
    *missing_out = missing;
    if (whole > BLOCKS) {
        return ST_INVALID;
    }
    if (missing > available) {
        m.counted.claims_refused++;
        return ST_NO_MEMORY;
    }
    return ST_OK;
}

/* One want of a successful claim: says in `expected` what the pool should have said. */
static void
cite(struct model_claim *claim, size_t key, uint64_t builder, struct kvpool_want *expected)
{
    struct model_doc *doc = find(key);
    size_t index;

    *expected = (struct kvpool_want){.key = m.keys[key], .n_tokens = m.tokens[key]};
    if (m.tokens[key] == 0) {
        m.counted.doc_hits++;
        return;
    }
    index = doc == NULL ? add_doc(key) : (size_t)(doc - m.docs);
    doc = &m.docs[index];
    claim->docs[claim->doc_count++] = index;
    expected->tokens_ready = doc->ready;
    m.counted.tokens_hit += doc->ready;
    m.counted.tokens_missed += m.tokens[key] - doc->ready;
    if (doc->ready == m.tokens[key]) {
        m.counted.doc_hits++;
        return;
    }
    if (doc->builder != 0) {
        expected->reason = KVPOOL_MISS_BUILDING;
    } else {
        expected->reason = doc->ready > 0 ? KVPOOL_MISS_PARTIAL : ghost_take(key);
        expected->must_build = true;
        doc->builder = builder;
    }
    m.counted.doc_misses[expected->reason]++;
}

/* Compares what the pool said with what it should have, and keeps the block lists to watch. */
static void
compare_wants(struct model_claim *claim, const struct kvpool_want *said,
              const struct kvpool_want *expected, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(said[i].reason, expected[i].reason);
        ck_assert(said[i].must_build == expected[i].must_build);
        ck_assert_uint_eq(said[i].tokens_ready, expected[i].tokens_ready);
        ck_assert((said[i].doc == NULL) == (said[i].n_tokens == 0));
        if (said[i].doc == NULL) {
            continue;
        }

        struct model_doc *doc = &m.docs[claim->docs[n]];

        if (said[i].must_build) {
            ck_assert_uint_gt(kvpool_doc_generation(said[i].doc), m.generation);
            m.generation = kvpool_doc_generation(said[i].doc);
        }
        if (doc->real == NULL) {
            doc->real = said[i].doc;
        }
        ck_assert_ptr_eq(said[i].doc, doc->real);
        claim->ids[n] = kvpool_doc_blocks(doc->real, &claim->id_counts[n]);
        ck_assert_uint_eq(claim->id_counts[n], blocks_for(said[i].n_tokens));
        memcpy(claim->id_copies[n], claim->ids[n], claim->id_counts[n] * sizeof(uint32_t));
        n++;
    }
}

static void
do_claim(void)
{
    struct kvpool_want wants[WANTS_MAX], expected[WANTS_MAX];
    size_t keys[WANTS_MAX], count = roll(WANTS_MAX + 1), c = 0;
    uint32_t own = (uint32_t)roll(5), missing, free_blocks;
    struct kvpool_claim *real = NULL;
    uint64_t builder = ++m.builders;
    enum status st, said;

    while (c < CLAIMS_MAX && m.claims[c].real != NULL) {
        c++;
    }
    if (c == CLAIMS_MAX) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = i > 0 && roll(6) == 0 ? keys[roll(i)] : roll_key();
        wants[i] = (struct kvpool_want){.key = m.keys[keys[i]], .n_tokens = m.tokens[keys[i]]};
    }
    st = expect_claim(keys, count, own, &missing);
    mem_fail_at(roll(20) == 0 ? 1 + roll(2 * WANTS_MAX + 2) : 0);
    said = kvpool_claim(m.pool, wants, count, own, builder, &real);
    mem_fail_at(0);
    if (said == ST_NO_MEMORY && strstr(status_detail(), "blocks needed") == NULL) {
        m.counted.claims_refused -= st == ST_NO_MEMORY; /* the host was short, not the pool */
        return;
    }
    ck_assert_int_eq(said, st);
    if (st != ST_OK) {
        return;
    }
    free_blocks = count_all().blocks_free;
    m.claims[c] = (struct model_claim){.real = real};
    for (size_t i = 0; i < count; i++) {
        cite(&m.claims[c], keys[i], builder, &expected[i]);
    }
    if (missing > free_blocks) {
        evict(missing - free_blocks);
    }
    for (size_t i = 0; i < m.claims[c].doc_count; i++) {
        struct model_doc *doc = &m.docs[m.claims[c].docs[i]];

        doc->resident = blocks_for(m.tokens[doc->key]);
    }
    m.claims[c].own = own;
    compare_wants(&m.claims[c], wants, expected, count);
}

static struct model_claim *
roll_claim(void)
{
    struct model_claim *claim = &m.claims[roll(CLAIMS_MAX)];

    return claim->real == NULL ? NULL : claim;
}

static void
do_grow(void)
{
    struct model_claim *claim = roll_claim();
    uint32_t blocks = (uint32_t)roll(4);
    struct kvpool_stats s = count_all();
    uint32_t count;

    if (claim == NULL) {
        return;
    }
    if (blocks > s.blocks_free + s.blocks_evictable) {
        ck_assert_int_eq(kvpool_claim_grow(m.pool, claim->real, blocks), ST_NO_MEMORY);
        return;
    }
    ck_assert_int_eq(kvpool_claim_grow(m.pool, claim->real, blocks), ST_OK);
    if (blocks > s.blocks_free) {
        evict(blocks - s.blocks_free);
    }
    claim->own += blocks;
    kvpool_claim_blocks(claim->real, &count);
    ck_assert_uint_eq(count, claim->own);
}

static void seal(struct model_doc *doc);
static void abandon(struct model_doc *doc);

/* The last reference to a build may not go: it is finished or given up first. */
static void
settle_builds(const struct model_claim *claim)
{
    for (size_t i = 0; i < claim->doc_count; i++) {
        struct model_doc *doc = &m.docs[claim->docs[i]];
        uint32_t ours = 0;

        for (size_t j = 0; j < claim->doc_count; j++) {
            ours += claim->docs[j] == claim->docs[i];
        }
        if (doc->builder != 0 && references(doc) == ours) {
            if (roll(3) > 0) {
                seal(doc);
            } else {
                abandon(doc);
            }
        }
    }
}

static void
do_release(void)
{
    struct model_claim *claim = roll_claim();
    uint64_t fence = roll(3) == 0 ? 1 + roll(FENCES) : 0;

    if (claim == NULL) {
        return;
    }
    settle_builds(claim);
    for (size_t i = 0; i < claim->doc_count; i++) { /* the lists that were borrowed are as before */
        uint32_t count;

        ck_assert_ptr_eq(kvpool_doc_blocks(m.docs[claim->docs[i]].real, &count), claim->ids[i]);
        ck_assert_uint_eq(count, claim->id_counts[i]);
        ck_assert_mem_eq(claim->ids[i], claim->id_copies[i], count * sizeof(uint32_t));
    }
    kvpool_claim_release(m.pool, &claim->real, fence);
    ck_assert_ptr_null(claim->real);
    m.quarantined[fence] += claim->own; /* [0] is not looked at: these are free */
    for (size_t i = 0; i < claim->doc_count; i++) {
        struct model_doc *doc = &m.docs[claim->docs[i]];
        bool is_last = true;

        for (size_t j = i + 1; j < claim->doc_count; j++) {
            is_last = is_last && claim->docs[j] != claim->docs[i];
        }
        if (!is_last || references(doc) > 0) {
            continue;
        }
        if (doc->is_indexed) {
            doc->idle_since = ++m.now;
        } else {
            m.quarantined[doc->fence] += doc->resident;
            doc->is_live = false;
        }
    }
}

/* --- documents -------------------------------------------------------------------------------- */

static void
seal(struct model_doc *doc)
{
    uint32_t origin = (uint32_t)roll(4);

    kvpool_doc_seal(m.pool, doc->real, origin);
    ck_assert_uint_eq(kvpool_doc_origin(doc->real), origin);
    doc->builder = 0;
    doc->ready = m.tokens[doc->key];
    m.counted.docs_built++;
}

static void
abandon(struct model_doc *doc)
{
    doc->fence = roll(2) == 0 ? 0 : 1 + roll(FENCES);
    kvpool_doc_abandon(m.pool, doc->real, doc->fence);
    ck_assert(kvpool_doc_is_abandoned(doc->real));
    doc->builder = 0;
    doc->is_abandoned = true;
    if (doc->is_indexed) {
        leave_index(doc, KVPOOL_MISS_ABANDONED);
    }
}

static void
do_build_event(void)
{
    struct model_doc *doc = &m.docs[roll(DOCS_MAX)];

    if (!doc->is_live || doc->builder == 0) {
        return;
    }
    switch (roll(4)) {
    case 0: abandon(doc); return;
    case 1:
        doc->builder = ++m.builders;
        kvpool_doc_set_builder(doc->real, doc->builder);
        return;
    default: seal(doc); return;
    }
}

static void
do_forget(void)
{
    size_t key = roll_key();
    struct model_doc *doc = find(key);

    ck_assert_int_eq(kvpool_forget(m.pool, &m.keys[key]), doc == NULL ? ST_NOT_FOUND : ST_OK);
    if (doc != NULL) {
        leave_index(doc, KVPOOL_MISS_FORGOTTEN);
    }
}

static void
do_pin(void)
{
    size_t key = roll_key();
    struct model_doc *doc = find(key);
    enum status st = ST_OK;

    if (doc == NULL) {
        st = ST_NOT_FOUND;
    } else if (doc->ready < m.tokens[key]) {
        st = ST_UNAVAILABLE;
    } else if (doc->pins == 0 && count_all().blocks_pinned + doc->resident > PIN_BLOCKS) {
        st = ST_NO_MEMORY;
    }
    ck_assert_int_eq(kvpool_pin(m.pool, &m.keys[key]), st);
    if (st == ST_OK) {
        doc->pins++;
    }
}

static void
do_unpin(void)
{
    struct model_doc *doc = &m.docs[roll(DOCS_MAX)];
    size_t key = doc->is_live && doc->is_indexed ? doc->key : roll_key();
    bool is_pinned;

    doc = find(key);
    is_pinned = doc != NULL && doc->pins > 0;
    ck_assert_int_eq(kvpool_unpin(m.pool, &m.keys[key]), is_pinned ? ST_OK : ST_NOT_FOUND);
    if (is_pinned) {
        doc->pins--;
        if (is_evictable(doc)) {
            doc->idle_since = ++m.now;
        }
    }
}

static void
do_evict(void)
{
    uint32_t blocks = (uint32_t)roll(4), evictable = count_all().blocks_evictable;

    blocks = roll(50) == 0 ? UINT32_MAX : blocks;
    ck_assert_uint_eq(kvpool_evict(m.pool, blocks), blocks < evictable ? blocks : evictable);
    evict(blocks < evictable ? blocks : evictable);
}

static void
do_lift(void)
{
    uint64_t fence = 1 + roll(FENCES);

    ck_assert_uint_eq(kvpool_fence_lift(m.pool, fence), m.quarantined[fence]);
    m.quarantined[fence] = 0;
    for (size_t i = 0; i < DOCS_MAX; i++) {
        if (m.docs[i].is_live && m.docs[i].fence == fence) {
            m.docs[i].fence = 0;
        }
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

static void
compare(void)
{
    struct kvpool_stats expected = count_all(), said;
    size_t indexed = 0;

    memset(&said, 0, sizeof(said));
    kvpool_stats(m.pool, &said);
    ck_assert_mem_eq(&said, &expected, sizeof(said));
    for (size_t i = 0; i < DOCS_MAX; i++) {
        const struct model_doc *doc = &m.docs[i];
        uint32_t count;

        if (!doc->is_live) {
            continue;
        }
        indexed += doc->is_indexed;
        kvpool_doc_blocks(doc->real, &count);
        ck_assert_uint_eq(count, doc->resident);
        ck_assert_uint_eq(kvpool_doc_tokens_ready(doc->real), doc->ready);
        ck_assert_uint_eq(kvpool_doc_builder(doc->real), doc->builder);
        ck_assert(kvpool_doc_is_abandoned(doc->real) == doc->is_abandoned);
        if (doc->is_indexed) {
            ck_assert_ptr_eq(kvpool_find(m.pool, &m.keys[doc->key]), doc->real);
        }
    }
    ck_assert_uint_eq(indexed, said.documents);
    kvpool_check(m.pool);
}

static void
start(void)
{
    struct kvpool_config config = {.block_count = BLOCKS,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = (double)PIN_BLOCKS / BLOCKS};

    memset(&m, 0, sizeof(m));
    m.random = 2 * test_seed() + 1;
    ck_assert_int_eq(kvpool_new(&config, &m.pool), ST_OK);
    for (size_t i = 0; i < KEYS; i++) {
        uint64_t number = roll(UINT32_MAX);

        memcpy(&m.keys[i].bytes[roll(2) == 0 ? 0 : 8], &number, sizeof(number));
        memcpy(&m.keys[i].bytes[24], &i, sizeof(i));
        m.tokens[i] = (uint32_t)roll(TOKENS_MAX + 1);
    }
    m.tokens[5] = 0;
    m.tokens[150] = 1000; /* never fits */
}

START_TEST(the_pool_agrees_with_a_naive_model)
{
    static void (*const operations[])(void) = {
        do_claim,   do_claim,       do_claim,       do_claim,  do_release,
        do_release, do_release,     do_grow,        do_forget, do_pin,
        do_unpin,   do_build_event, do_build_event, do_evict,  do_lift,
    };

    start();
    for (uint32_t n = 0; n < OPERATIONS; n++) {
        operations[roll(sizeof(operations) / sizeof(operations[0]))]();
        compare();
    }
    for (int reason = KVPOOL_MISS_COLD; reason < KVPOOL_MISS_REASONS; reason++) {
        ck_assert_uint_gt(m.counted.doc_misses[reason], 0);
    }
    printf("%d operations: %llu hits, %llu refusals, %llu evicted blocks, %llu builds; misses:",
           OPERATIONS, (unsigned long long)m.counted.doc_hits,
           (unsigned long long)m.counted.claims_refused,
           (unsigned long long)m.counted.blocks_evicted, (unsigned long long)m.counted.docs_built);
    for (int reason = KVPOOL_MISS_COLD; reason < KVPOOL_MISS_REASONS; reason++) {
        printf(" %llu", (unsigned long long)m.counted.doc_misses[reason]);
    }
    printf("\n");
    for (size_t c = 0; c < CLAIMS_MAX; c++) {
        if (m.claims[c].real != NULL) {
            settle_builds(&m.claims[c]);
            kvpool_claim_release(m.pool, &m.claims[c].real, 0);
        }
    }
    kvpool_check(m.pool);
    kvpool_destroy(&m.pool);
}
END_TEST

CHECK_MAIN("kvpool_property", the_pool_agrees_with_a_naive_model)
