/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations on the host tier beside a naive model: what each document has is an array that
 * is counted from end to end, and the tier's memory is an array of words, written when a worker
 * would write it.  After every operation both agree on every document; what is read holds the words
 * that were put there under that key, until the reader is done; a put takes from documents that
 * nobody uses and that are worth less, tails first, exactly what it lacks; what a lost writer held
 * is nobody's until its fence is lifted; and now and then kvasird is replaced: what was readable is
 * readable again, and nothing else.  TEST_SEED replays a run. */
#include <string.h>
#include <sys/mman.h>

#include "kvpool/catalog.h"
#include "kvpool/tier_host.h"
#include "tests/support/check_main.h"

#define SEEDS        SCENE(24, 8, 8)
#define OPERATIONS   3000
#define PLACES       40
#define KEYS         24
#define BLOCKS_MAX   9
#define BLOCK_TOKENS 4
#define READERS_MAX  6

struct model_doc {
    uint32_t n_tokens, n_blocks;
    uint32_t ready;
    uint64_t sums[BLOCKS_MAX];
    double worth;
    /* A put under way: */
    struct tier_doc *writing;
    uint32_t places[BLOCKS_MAX], place_count;
    uint64_t writer;
    bool is_orphan; /* removed while it was written */
    uint32_t readers;
};

struct model_reader {
    struct tier_doc *doc; /* NULL: free */
    size_t key;
    struct tier_block blocks[BLOCKS_MAX];
    uint32_t count;
    bool is_orphan; /* its document was removed while it was read */
};

static struct {
    struct tier *tier;
    struct catalog *catalog;
    void *memory;
    size_t memory_bytes;
    struct model_doc docs[KEYS];
    struct model_reader readers[READERS_MAX];
    uint64_t words[PLACES]; /* what a block's place holds */
    uint64_t fence_of[PLACES];
    uint64_t random, next_sum, next_writer;
} m;

static uint32_t
below(uint32_t n)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return (uint32_t)((m.random >> 33) % n);
}

static struct dockey
key_of(size_t index)
{
    struct dockey key = {.bytes = {(uint8_t)(index * 37 + 1), (uint8_t)index, 3, 4, 5, 6, 7, 8}};

    return key;
}

static double
worth(const void *arg, const struct dockey *key)
{
    (void)arg;
    return m.docs[key->bytes[1]].worth;
}

static void
open_tier(void)
{
    struct tier_host_config config = {.places = PLACES,
                                      .block_tokens = BLOCK_TOKENS,
                                      .seed = m.random,
                                      .worth = worth,
                                      .catalog = m.catalog};

    ck_assert_int_eq(tier_host_new(&config, &m.tier), ST_OK);
}

static struct tier_stats
stats(void)
{
    struct tier_stats s;

    m.tier->ops->stat(m.tier, &s);
    return s;
}

static void
compare(void)
{
    struct tier_stats s = stats();
    uint32_t cursor = UINT32_MAX;
    struct dockey key;
    uint32_t ready = 0, walked = 0, n_tokens, blocks;

    for (size_t i = 0; i < KEYS; i++) {
        key = key_of(i);
        ck_assert_uint_eq(m.tier->ops->lookup(m.tier, &key), m.docs[i].ready);
        ready += m.docs[i].ready;
    }
    while (m.tier->ops->next(m.tier, &cursor, &key, &n_tokens, &blocks)) {
        ck_assert_uint_eq(blocks, m.docs[key.bytes[1]].ready);
        ck_assert_uint_eq(n_tokens, m.docs[key.bytes[1]].n_tokens);
        walked += blocks;
    }
    ck_assert_uint_eq(walked, ready);
    ck_assert_uint_le(ready + s.places_free + s.places_quarantined + s.places_writing, PLACES);
    m.tier->ops->check(m.tier);
}

static bool
is_in_use(const struct model_doc *doc)
{
    return doc->readers > 0 || doc->writing != NULL;
}

/* Whoever is shorter after a put gave way: was that right? */
static void
take_losses(size_t coming, uint32_t lacking)
{
    uint32_t lost = 0, partly = 0;

    for (size_t i = 0; i < KEYS; i++) {
        struct dockey key = key_of(i);
        struct model_doc *doc = &m.docs[i];
        uint32_t now = m.tier->ops->lookup(m.tier, &key);

        if (now == doc->ready) {
            continue;
        }
        ck_assert_uint_lt(now, doc->ready);
        ck_assert(i != coming && !is_in_use(doc));
        ck_assert(doc->worth < m.docs[coming].worth);
        lost += doc->ready - now;
        partly += now > 0;
        doc->ready = now;
    }
    ck_assert_uint_le(lost, lacking); /* never more than the shortfall */
    ck_assert_uint_le(partly, 1);     /* one is drained before the next */
}

static void
do_put(void)
{
    size_t i = below(KEYS);
    struct model_doc *doc = &m.docs[i];
    struct tier_put put = {.key = key_of(i), .n_tokens = doc->n_tokens, .first = doc->ready};
    struct tier_doc *handle = NULL;
    uint32_t before_free = stats().places_free, taken;
    uint32_t places[BLOCKS_MAX];

    if (doc->ready == doc->n_blocks || (doc->writing != NULL && doc->is_orphan)) {
        return; /* whole; or its name is free, and this model has no place for a second one */
    }
    put.count = 1 + below(doc->n_blocks - doc->ready);
    put.writer = m.next_writer + below(2);
    taken = m.tier->ops->put(m.tier, &put, places, &handle);
    if (doc->writing != NULL) {
        ck_assert_uint_eq(taken, 0); /* one put a document */
        return;
    }
    take_losses(i, put.count > before_free ? put.count - before_free : 0);
    ck_assert_uint_le(taken, put.count);
    if (put.count <= before_free) {
        ck_assert_uint_eq(taken, put.count);
    }
    if (taken == 0) {
        return;
    }
    doc->writing = handle;
    doc->writer = put.writer;
    doc->place_count = taken;
    doc->is_orphan = false;
    for (uint32_t b = 0; b < taken; b++) {
        ck_assert_uint_eq(m.fence_of[places[b]], 0);
        doc->places[b] = places[b];
        m.words[places[b]] = ++m.next_sum; /* the worker begins at once */
    }
}

static void
do_put_end(void)
{
    size_t i = below(KEYS);
    struct model_doc *doc = &m.docs[i];
    uint32_t done = below(doc->place_count + 1);
    bool is_lost = below(4) == 0;
    uint64_t sums[BLOCKS_MAX];

    if (doc->writing == NULL) {
        return;
    }
    for (uint32_t b = 0; b < doc->place_count; b++) {
        sums[b] = m.words[doc->places[b]];
        m.fence_of[doc->places[b]] = is_lost ? doc->writer : 0;
    }
    m.tier->ops->put_end(m.tier, doc->writing, is_lost ? 0 : done, sums, is_lost ? doc->writer : 0);
    doc->writing = NULL;
    if (!is_lost && !doc->is_orphan) {
        memcpy(doc->sums + doc->ready, sums, done * sizeof(sums[0]));
        doc->ready += done;
    }
}

static void
do_lift(void)
{
    uint64_t writer = m.next_writer + below(2);

    for (size_t i = 0; i < KEYS; i++) {
        if (m.docs[i].writing != NULL && m.docs[i].writer == writer) {
            return; /* nothing may be fenced after its lift */
        }
    }
    m.tier->ops->fence_lift(m.tier, writer);
    for (uint32_t p = 0; p < PLACES; p++) {
        m.fence_of[p] = m.fence_of[p] == writer ? 0 : m.fence_of[p];
    }
}

static void
do_get(void)
{
    size_t i = below(KEYS);
    struct model_doc *doc = &m.docs[i];
    struct model_reader *reader = &m.readers[below(READERS_MAX)];
    struct dockey key = key_of(i);

    if (doc->ready == 0 || reader->doc != NULL) {
        return;
    }
    uint32_t first = below(doc->ready);

    *reader = (struct model_reader){.key = i, .count = doc->ready - first};
    reader->doc = m.tier->ops->get(m.tier, &key, first, reader->count, reader->blocks);
    for (uint32_t b = 0; b < reader->count; b++) {
        ck_assert_uint_eq(reader->blocks[b].sum, doc->sums[first + b]);
    }
    doc->readers++;
}

/* What is removed while it is used is another document from then on. */
static void
orphan(size_t i)
{
    struct model_doc *doc = &m.docs[i];

    for (size_t r = 0; r < READERS_MAX; r++) {
        m.readers[r].is_orphan |= m.readers[r].doc != NULL && m.readers[r].key == i;
    }
    doc->readers = 0;
    doc->ready = 0;
    doc->is_orphan = true;
}

/* A word that changes under a reader would be the end of this test, but for the one that flips. */
static void
do_get_end(void)
{
    struct model_reader *reader = &m.readers[below(READERS_MAX)];
    bool is_bad = below(8) == 0;

    if (reader->doc == NULL) {
        return;
    }
    for (uint32_t b = 0; b < reader->count; b++) {
        ck_assert_uint_eq(m.words[reader->blocks[b].place], reader->blocks[b].sum);
    }
    m.tier->ops->get_end(m.tier, reader->doc, is_bad);
    reader->doc = NULL;
    if (!reader->is_orphan) {
        m.docs[reader->key].readers--;
        if (is_bad) {
            orphan(reader->key);
        }
    }
}

static void
do_remove(void)
{
    size_t i = below(KEYS);
    struct model_doc *doc = &m.docs[i];
    struct dockey key = key_of(i);
    bool is_there = doc->ready > 0 || (doc->writing != NULL && !doc->is_orphan);

    ck_assert(m.tier->ops->remove(m.tier, &key) == is_there);
    if (is_there) {
        orphan(i);
    }
}

static bool
may_write(void *arg, uint64_t incarnation)
{
    (void)arg;
    return incarnation == m.next_writer;
}

/* kvasird dies: readers and writers are forgotten, of the two writers one lives on. */
static void
do_restart(void)
{
    uint32_t blocks = 0, expected = 0;

    for (size_t r = 0; r < READERS_MAX; r++) {
        if (m.readers[r].doc != NULL) {
            m.tier->ops->get_end(m.tier, m.readers[r].doc, false);
            m.readers[r].doc = NULL;
        }
    }
    for (size_t i = 0; i < KEYS; i++) {
        struct model_doc *doc = &m.docs[i];

        for (uint32_t b = 0; doc->writing != NULL && b < doc->place_count; b++) {
            m.fence_of[doc->places[b]] = doc->writer;
        }
        if (doc->writing != NULL) { /* only so that its memory is freed: no record changes */
            m.tier->ops->put_end(m.tier, doc->writing, 0, NULL, doc->writer);
        }
        doc->writing = NULL;
        doc->readers = 0;
        expected += doc->ready;
    }
    m.tier->ops->destroy(&m.tier);
    catalog_close(&m.catalog);
    ck_assert_int_eq(catalog_open(m.memory, m.memory_bytes, &m.catalog), ST_OK);
    open_tier();
    ck_assert_int_eq(tier_host_adopt(m.tier, may_write, NULL, &blocks), ST_OK);
    ck_assert_uint_eq(blocks, expected);
    for (uint32_t p = 0; p < PLACES; p++) {
        m.fence_of[p] = m.fence_of[p] == m.next_writer ? m.next_writer : 0;
    }
}

static void
begin(uint64_t seed)
{
    struct catalog_pool pool = {.block_count = PLACES, .block_tokens = BLOCK_TOKENS};

    memset(&m, 0, sizeof(m));
    m.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    m.next_writer = 100;
    m.memory_bytes = catalog_bytes(&pool);
    m.memory =
        mmap(NULL, m.memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(m.memory, MAP_FAILED);
    ck_assert_int_eq(catalog_format(m.memory, &pool, &m.catalog), ST_OK);
    for (size_t i = 0; i < KEYS; i++) {
        m.docs[i].n_tokens = 1 + below(BLOCKS_MAX * BLOCK_TOKENS);
        m.docs[i].n_blocks = (m.docs[i].n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
        m.docs[i].worth = below(6);
    }
    open_tier();
}

static void
end(void)
{
    for (size_t r = 0; r < READERS_MAX; r++) {
        if (m.readers[r].doc != NULL) {
            m.tier->ops->get_end(m.tier, m.readers[r].doc, false);
        }
    }
    for (size_t i = 0; i < KEYS; i++) {
        if (m.docs[i].writing != NULL) {
            m.tier->ops->put_end(m.tier, m.docs[i].writing, 0, NULL, 0);
        }
    }
    m.tier->ops->destroy(&m.tier);
    catalog_close(&m.catalog);
    (void)munmap(m.memory, m.memory_bytes);
}

START_TEST(the_tier_agrees_with_a_naive_model)
{
    static void (*const operations[])(void) = {do_put, do_put, do_put_end, do_put_end, do_put_end,
                                               do_get, do_get, do_get_end, do_get_end, do_lift};
    uint64_t seed = test_seed();
    uint64_t put = 0, dropped = 0, declined = 0;

    for (uint64_t s = 0; s < SEEDS; s++) {
        begin(seed + s);
        for (int n = 0; n < OPERATIONS; n++) {
            uint32_t what = below(100);

            if (what == 0) {
                do_restart();
            } else if (what < 4) {
                do_remove();
            } else if (what < 8) {
                m.docs[below(KEYS)].worth = below(6);
            } else {
                operations[below(sizeof(operations) / sizeof(operations[0]))]();
            }
            compare();
        }
        put += stats().blocks_put;
        dropped += stats().blocks_dropped;
        declined += stats().blocks_declined;
        end();
    }
    /* It was about something. */
    ck_assert_uint_gt(put, 0);
    ck_assert_uint_gt(dropped, 0);
    ck_assert_uint_gt(declined, 0);
}
END_TEST

START_TEST(a_document_worth_less_than_all_others_is_declined_and_the_lowest_gives_way_first)
{
    struct tier_put put = {.count = BLOCKS_MAX};
    uint32_t places[BLOCKS_MAX];
    uint64_t sums[BLOCKS_MAX] = {0};
    struct dockey k0 = key_of(0), k1 = key_of(1);
    struct tier_doc *handle;

    begin(1);
    for (size_t i = 0; i < 6; i++) {
        m.docs[i].worth = (double)i + 1;
        m.docs[i].n_tokens = put.n_tokens = BLOCKS_MAX * BLOCK_TOKENS;
        put.key = key_of(i);
        ck_assert_uint_eq(m.tier->ops->put(m.tier, &put, places, &handle), BLOCKS_MAX);
        m.tier->ops->put_end(m.tier, handle, BLOCKS_MAX, sums, 0);
    }
    /* 40 places: of the first document 5 blocks went for the fifth, the rest of it and 5 of the
     * second for the sixth. */
    ck_assert_uint_eq(m.tier->ops->lookup(m.tier, &k0), 0);
    ck_assert_uint_eq(m.tier->ops->lookup(m.tier, &k1), 4);
    m.docs[7].worth = 0;
    put.key = key_of(7);
    ck_assert_uint_eq(m.tier->ops->put(m.tier, &put, places, &handle), 0);
    ck_assert_uint_eq(stats().blocks_declined, BLOCKS_MAX);
    m.tier->ops->check(m.tier);
    end();
}
END_TEST

CHECK_MAIN("tier_property", the_tier_agrees_with_a_naive_model,
           a_document_worth_less_than_all_others_is_declined_and_the_lowest_gives_way_first)
