/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on the pool beside a naive model of it: plain arrays, searched from end to end,
 * no counter kept that can be counted.  After every operation both must agree on all numbers and on
 * every document, and kvpool_check must pass.  Under lru the model picks its victims itself, by
 * looking for the longest idle document that no waiting request needs, so an eviction that is not
 * exactly LRU, or touches what is referenced or pinned, shows.  Under the other policies it looks
 * whom they took: only what could go, exactly the shortfall, tails first, one drained before the
 * next, and what a waiting request needs only if nothing else was left.  Now and then the host
 * refuses memory within a claim, which then must have changed nothing.  TEST_SEED replays a run. */
#include <string.h>

#include "common/mem.h"
#include "tests/property/pool_model.h"
#include "tests/support/check_main.h"

#define OPERATIONS           SCENE(150000, 60000, 60000)
#define SEEDS                24 /* of each policy, lru's with a share of the operations */
#define OPERATIONS_OF_OTHERS SCENE(2500, 1250, 1250) /* and seed */

/* --- claims ----------------------------------------------------------------------------------- */

/* What the claim of these keys should do, by counting; *missing_out: blocks to be taken. */
static enum status
expect_claim(const size_t *keys, size_t key_count, uint32_t own, uint32_t *missing_out)
{
    struct kvpool_stats s = model_count();
    uint32_t whole = own, missing = own, available = s.blocks_free + s.blocks_evictable;

    for (size_t i = 0; i < key_count; i++) {
        const struct model_doc *doc = model_find(keys[i]);
        bool is_repeat = false;

        for (size_t j = 0; j < i; j++) {
            is_repeat = is_repeat || keys[j] == keys[i];
        }
        if (is_repeat) {
            continue;
        }
        whole += model_blocks_for(m.tokens[keys[i]]);
        missing += model_blocks_for(m.tokens[keys[i]]) - (doc == NULL ? 0 : doc->resident);
        available -= doc != NULL && model_is_evictable(doc) ? doc->resident : 0;
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
    struct model_doc *doc = model_find(key);
    size_t index;

    *expected = (struct kvpool_want){.key = m.keys[key], .n_tokens = m.tokens[key]};
    if (m.tokens[key] == 0) {
        m.counted.doc_hits++;
        return;
    }
    index = doc == NULL ? model_add_doc(key) : (size_t)(doc - m.docs);
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
        expected->reason = doc->ready > 0 ? KVPOOL_MISS_PARTIAL : model_ghost_take(key);
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
        ck_assert_uint_eq(claim->id_counts[n], model_blocks_for(said[i].n_tokens));
        memcpy(claim->id_copies[n], claim->ids[n], claim->id_counts[n] * sizeof(uint32_t));
        n++;
    }
}

static void
do_claim(void)
{
    struct kvpool_want wants[WANTS_MAX], expected[WANTS_MAX];
    size_t keys[WANTS_MAX], count = model_roll(WANTS_MAX + 1), c = 0;
    uint32_t own = (uint32_t)model_roll(5), missing, free_blocks;
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
        keys[i] = i > 0 && model_roll(6) == 0 ? keys[model_roll(i)] : model_roll_key();
        wants[i] = (struct kvpool_want){.key = m.keys[keys[i]], .n_tokens = m.tokens[keys[i]]};
    }
    st = expect_claim(keys, count, own, &missing);
    mem_fail_at(model_roll(20) == 0 ? 1 + model_roll(2 * WANTS_MAX + 2) : 0);
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
    free_blocks = model_count().blocks_free;
    m.claims[c] = (struct model_claim){.real = real};
    for (size_t i = 0; i < count; i++) {
        cite(&m.claims[c], keys[i], builder, &expected[i]);
    }
    if (missing > free_blocks) {
        model_evict(missing - free_blocks);
    }
    for (size_t i = 0; i < m.claims[c].doc_count; i++) {
        struct model_doc *doc = &m.docs[m.claims[c].docs[i]];

        doc->resident = model_blocks_for(m.tokens[doc->key]);
    }
    m.claims[c].own = own;
    compare_wants(&m.claims[c], wants, expected, count);
}

static struct model_claim *
roll_claim(void)
{
    struct model_claim *claim = &m.claims[model_roll(CLAIMS_MAX)];

    return claim->real == NULL ? NULL : claim;
}

static void
do_grow(void)
{
    struct model_claim *claim = roll_claim();
    uint32_t blocks = (uint32_t)model_roll(4);
    struct kvpool_stats s = model_count();
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
        model_evict(blocks - s.blocks_free);
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
        if (doc->builder != 0 && model_references(doc) == ours) {
            if (model_roll(3) > 0) {
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
    uint64_t fence = model_roll(3) == 0 ? 1 + model_roll(FENCES) : 0;

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
        if (!is_last || model_references(doc) > 0) {
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
    uint32_t origin = (uint32_t)model_roll(4);

    kvpool_doc_seal(m.pool, doc->real, origin);
    ck_assert_uint_eq(kvpool_doc_origin(doc->real), origin);
    doc->builder = 0;
    doc->ready = m.tokens[doc->key];
    m.counted.docs_built++;
}

static void
abandon(struct model_doc *doc)
{
    doc->fence = model_roll(2) == 0 ? 0 : 1 + model_roll(FENCES);
    kvpool_doc_abandon(m.pool, doc->real, doc->fence);
    ck_assert(kvpool_doc_is_abandoned(doc->real));
    doc->builder = 0;
    doc->is_abandoned = true;
    if (doc->is_indexed) {
        model_leave_index(doc, KVPOOL_MISS_ABANDONED);
    }
}

static void
do_build_event(void)
{
    struct model_doc *doc = &m.docs[model_roll(DOCS_MAX)];

    if (!doc->is_live || doc->builder == 0) {
        return;
    }
    switch (model_roll(4)) {
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
    size_t key = model_roll_key();
    struct model_doc *doc = model_find(key);

    ck_assert_int_eq(kvpool_forget(m.pool, &m.keys[key]), doc == NULL ? ST_NOT_FOUND : ST_OK);
    if (doc != NULL) {
        model_leave_index(doc, KVPOOL_MISS_FORGOTTEN);
    }
}

static void
do_damage(void)
{
    struct model_doc *doc = model_find(model_roll_key());

    if (doc != NULL && doc->builder == 0) {
        kvpool_drop_damaged(m.pool, doc->real);
        model_leave_index(doc, KVPOOL_MISS_DAMAGED);
    }
}

static void
do_pin(void)
{
    size_t key = model_roll_key();
    struct model_doc *doc = model_find(key);
    enum status st = ST_OK;

    if (doc == NULL) {
        st = ST_NOT_FOUND;
    } else if (doc->ready < m.tokens[key]) {
        st = ST_UNAVAILABLE;
    } else if (doc->pins == 0 && model_count().blocks_pinned + doc->resident > PIN_BLOCKS) {
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
    struct model_doc *doc = &m.docs[model_roll(DOCS_MAX)];
    size_t key = doc->is_live && doc->is_indexed ? doc->key : model_roll_key();
    bool is_pinned;

    doc = model_find(key);
    is_pinned = doc != NULL && doc->pins > 0;
    ck_assert_int_eq(kvpool_unpin(m.pool, &m.keys[key]), is_pinned ? ST_OK : ST_NOT_FOUND);
    if (is_pinned) {
        doc->pins--;
        if (model_is_evictable(doc)) {
            doc->idle_since = ++m.now;
        }
    }
}

static void
do_evict(void)
{
    uint32_t blocks = (uint32_t)model_roll(4), evictable = model_count().blocks_evictable;

    blocks = model_roll(50) == 0 ? UINT32_MAX : blocks;
    ck_assert_uint_eq(kvpool_evict(m.pool, blocks), blocks < evictable ? blocks : evictable);
    model_evict(blocks < evictable ? blocks : evictable);
}

static void
do_lift(void)
{
    uint64_t fence = 1 + model_roll(FENCES);

    ck_assert_uint_eq(kvpool_fence_lift(m.pool, fence), m.quarantined[fence]);
    m.quarantined[fence] = 0;
    for (size_t i = 0; i < DOCS_MAX; i++) {
        if (m.docs[i].is_live && m.docs[i].fence == fence) {
            m.docs[i].fence = 0;
        }
    }
}

/* A request joins the queue, or leaves it.  Who is awaited now, or no more, counts as used. */
static void
do_wait(void)
{
    struct model_wait *wait = &m.waits[model_roll(WAITS_MAX)], joining = {.count = 0};
    bool is_leaving = wait->count > 0, was_awaited[WANTS_MAX];
    struct kvpool_want wants[WANTS_MAX];

    if (is_leaving) {
        joining = *wait;
    } else {
        joining.count = 1 + model_roll(WANTS_MAX);
        for (size_t i = 0; i < joining.count; i++) {
            joining.keys[i] = model_roll_key();
        }
    }
    for (size_t i = 0; i < joining.count; i++) {
        const struct model_doc *doc = model_find(joining.keys[i]);

        wants[i] = (struct kvpool_want){.key = m.keys[joining.keys[i]]};
        was_awaited[i] = doc != NULL && model_is_awaited(doc);
    }
    if (is_leaving) {
        kvpool_unawait(m.pool, wants, joining.count);
        wait->count = 0;
    } else {
        mem_fail_at(model_roll(20) == 0 ? 1 + model_roll(WANTS_MAX) : 0);
        if (kvpool_await(m.pool, wants, joining.count) == ST_OK) {
            *wait = joining;
        }
        mem_fail_at(0);
    }
    for (size_t i = 0; i < joining.count; i++) {
        struct model_doc *doc = model_find(joining.keys[i]);

        for (size_t j = 0; j < i && doc != NULL; j++) {
            doc = joining.keys[j] == joining.keys[i] ? NULL : doc; /* seen */
        }
        if (doc != NULL && model_is_evictable(doc) && model_is_awaited(doc) != was_awaited[i]) {
            doc->idle_since = ++m.now;
        }
    }
}

static void
do_prioritize(void)
{
    enum status st =
        kvpool_prioritize(m.pool, &m.keys[model_roll_key()], (uint32_t)model_roll(101));

    ck_assert_int_eq(st, m.policy == &evict_zipf ? ST_OK : ST_UNAVAILABLE);
}

/* --- the run ---------------------------------------------------------------------------------- */

static void
compare(void)
{
    struct kvpool_stats expected = model_count(), said;
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
start(const struct evict_policy_ops *policy, unsigned long long seed)
{
    struct kvpool_config config = {.block_count = BLOCKS,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = policy,
                                   .pin_share_max = (double)PIN_BLOCKS / BLOCKS};

    memset(&m, 0, sizeof(m));
    m.policy = policy;
    /* In which order several went is for the policy to know; so none of them may be forgotten. */
    m.key_count = policy == &evict_lru ? KEYS : GHOSTS;
    m.random = 2 * seed + 1;
    ck_assert_int_eq(kvpool_new(&config, &m.pool), ST_OK);
    for (size_t i = 0; i < KEYS; i++) {
        uint64_t number = model_roll(UINT32_MAX);

        memcpy(&m.keys[i].bytes[model_roll(2) == 0 ? 0 : 8], &number, sizeof(number));
        memcpy(&m.keys[i].bytes[24], &i, sizeof(i));
        m.tokens[i] = (uint32_t)model_roll(TOKENS_MAX + 1);
    }
    m.tokens[5] = 0;
    m.tokens[70] = 1000; /* never fits */
}

static void
run(const struct evict_policy_ops *policy, unsigned long long seed, uint32_t count)
{
    static void (*const operations[])(void) = {
        do_claim,       do_claim, do_claim,  do_claim, do_release,    do_release,
        do_release,     do_grow,  do_forget, do_pin,   do_unpin,      do_build_event,
        do_build_event, do_evict, do_lift,   do_wait,  do_prioritize, do_damage,
    };

    start(policy, seed);
    for (uint32_t n = 0; n < count; n++) {
        operations[model_roll(sizeof(operations) / sizeof(operations[0]))]();
        compare();
    }
    for (int reason = KVPOOL_MISS_COLD; reason < KVPOOL_MISS_REASONS; reason++) {
        ck_assert_uint_gt(m.counted.doc_misses[reason], 0);
    }
    printf("%s, %u operations: %llu hits, %llu refusals, %llu evicted blocks, %llu builds\n",
           policy->name, count, (unsigned long long)m.counted.doc_hits,
           (unsigned long long)m.counted.claims_refused,
           (unsigned long long)m.counted.blocks_evicted, (unsigned long long)m.counted.docs_built);
    for (size_t c = 0; c < CLAIMS_MAX; c++) {
        if (m.claims[c].real != NULL) {
            settle_builds(&m.claims[c]);
            kvpool_claim_release(m.pool, &m.claims[c].real, 0);
        }
    }
    kvpool_check(m.pool);
    kvpool_destroy(&m.pool); /* also with requests in the queue */
}

static void
run_seeds(const struct evict_policy_ops *policy)
{
    unsigned long long seed = test_seed();

    for (unsigned long long i = 0; i < SEEDS; i++) {
        run(policy, seed + i, policy == &evict_lru ? OPERATIONS / SEEDS : OPERATIONS_OF_OTHERS);
    }
}

START_TEST(under_lru_the_pool_is_exactly_a_naive_model)
{
    run_seeds(&evict_lru);
}
END_TEST

START_TEST(zipf_takes_only_what_may_go_and_exactly_the_shortfall)
{
    run_seeds(&evict_zipf);
}
END_TEST

START_TEST(s3fifo_takes_only_what_may_go_and_exactly_the_shortfall)
{
    run_seeds(&evict_s3fifo);
}
END_TEST

START_TEST(arc_takes_only_what_may_go_and_exactly_the_shortfall)
{
    run_seeds(&evict_arc);
}
END_TEST

CHECK_MAIN("kvpool_property", under_lru_the_pool_is_exactly_a_naive_model,
           zipf_takes_only_what_may_go_and_exactly_the_shortfall,
           s3fifo_takes_only_what_may_go_and_exactly_the_shortfall,
           arc_takes_only_what_may_go_and_exactly_the_shortfall)
