/* SPDX-License-Identifier: Apache-2.0 */
/* What the next kvasird finds of a pool in the catalog, whenever the one before it dies. */
#include "kvpool/catalog.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/pool_fixture.h"

#define RECORD_BYTES (96 + BLOCK_TOKENS * sizeof(uint32_t)) /* as the next kvasird maps it */
#define HELD_AT      16
#define BLOCKS       64
#define WORKER       77 /* the incarnation that writes */

/* Memory as kvasird's: shared with a child, and still there when that is dead. */
struct world {
    struct catalog_pool config;
    size_t bytes;
    void *memory;
    struct catalog *catalog;
    struct kvpool *pool;
};

static struct kvpool *
make_pool(struct catalog *catalog)
{
    struct kvpool_config config = {.block_count = BLOCKS,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = 0.5,
                                   .catalog = catalog};
    struct kvpool *pool = NULL;

    ck_assert_int_eq(kvpool_new(&config, &pool), ST_OK);
    return pool;
}

static struct world
make_world(void)
{
    struct world w = {.config = {.id = "0123456789abcde",
                                 .fingerprint = {1},
                                 .block_count = BLOCKS,
                                 .block_tokens = BLOCK_TOKENS,
                                 .block_bytes = 100,
                                 .device = "cpu",
                                 .arenas = {{6400, "shm"}, {10, "shm"}}}};

    w.bytes = catalog_bytes(&w.config);
    w.memory = mmap(NULL, w.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(w.memory, MAP_FAILED);
    ck_assert_int_eq(catalog_format(w.memory, &w.config, &w.catalog), ST_OK);
    w.pool = make_pool(w.catalog);
    return w;
}

static void
end_world(struct world *w)
{
    kvpool_destroy(&w->pool);
    catalog_close(&w->catalog);
    ck_assert_int_eq(munmap(w->memory, w->bytes), 0);
}

static bool
always(void *arg, uint64_t incarnation)
{
    (void)arg;
    ck_assert_uint_eq(incarnation, WORKER);
    return true;
}

static bool
never(void *arg, uint64_t incarnation)
{
    (void)arg;
    (void)incarnation;
    return false;
}

/* A copy of the memory, as another process would find it now, and a pool from it. */
struct successor {
    void *memory;
    struct catalog *catalog;
    struct kvpool *pool;
    struct kvpool_adopted adopted;
};

static struct successor
succeed(const struct world *w, kvpool_may_write_fn may_write)
{
    struct successor s = {.memory = aligned_alloc(4096, (w->bytes + 4095) / 4096 * 4096)};

    ck_assert_ptr_nonnull(s.memory);
    memcpy(s.memory, w->memory, w->bytes);
    ck_assert_msg(catalog_open(s.memory, w->bytes, &s.catalog) == ST_OK, "%s", status_detail());
    s.pool = make_pool(s.catalog);
    ck_assert_int_eq(kvpool_adopt(s.pool, may_write, NULL, &s.adopted), ST_OK);
    kvpool_check(s.pool);
    return s;
}

static void
end_successor(struct successor *s)
{
    kvpool_destroy(&s->pool);
    catalog_close(&s->catalog);
    free(s->memory);
}

static uint32_t
ready_in(const struct kvpool *pool, const char *name)
{
    struct dockey key = named(name);
    const struct kvpool_doc *doc = kvpool_find(pool, &key);

    return doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);
}

static struct kvpool_claim *
begin_build(struct world *w, const char *name, uint32_t tokens, struct kvpool_doc **doc_out)
{
    static const uint32_t ids[BLOCKS * BLOCK_TOKENS] = {5, 6, 7, 8, 9, 10};
    struct kvpool_want one = want(name, tokens);
    struct kvpool_claim *made;

    one.ids = ids;
    made = claim(w->pool, &one, 1, 2, WORKER + 1);
    kvpool_lend(w->pool, made, WORKER + 1, WORKER);
    *doc_out = one.doc;
    return made;
}

static void
build(struct world *w, const char *name, uint32_t tokens)
{
    struct kvpool_doc *doc;
    struct kvpool_claim *made = begin_build(w, name, tokens, &doc);

    kvpool_doc_seal(w->pool, doc, 3);
    release(w->pool, &made);
}

START_TEST(the_next_process_finds_every_sealed_document_in_the_same_blocks)
{
    struct world w = make_world();
    uint32_t count, count_next;

    build(&w, "a", 9);
    build(&w, "b", 4);
    build(&w, "c", 1);
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(s.adopted.documents, 3);
    ck_assert_uint_eq(s.adopted.blocks, 3 + 1 + 1);
    ck_assert_uint_eq(s.adopted.blocks_dropped, 0);
    for (const char *const *name = (const char *const[]){"a", "b", "c", NULL}; *name; name++) {
        struct dockey key = named(*name);
        const struct kvpool_doc *doc = kvpool_find(w.pool, &key);
        const struct kvpool_doc *next = kvpool_find(s.pool, &key);

        ck_assert_ptr_nonnull(next);
        ck_assert(kvpool_doc_is_ready(next));
        ck_assert_uint_eq(kvpool_doc_tokens(next), kvpool_doc_tokens(doc));
        ck_assert_uint_eq(kvpool_doc_origin(next), 3);
        const uint32_t *blocks = kvpool_doc_blocks(doc, &count);
        const uint32_t *blocks_next = kvpool_doc_blocks(next, &count_next);
        ck_assert_uint_eq(count, count_next);
        ck_assert_mem_eq(blocks, blocks_next, count * sizeof(blocks[0]));
    }
    struct kvpool_want again = want("a", 9);
    struct kvpool_claim *made = claim(s.pool, &again, 1, 1, 5);
    ck_assert_int_eq(again.reason, KVPOOL_HIT);
    release(s.pool, &made);
    end_successor(&s);
    end_world(&w);
}
END_TEST

START_TEST(the_ids_of_a_document_are_kept_with_it)
{
    struct world w = make_world();
    struct dockey key = named("a");
    struct catalog_record record;
    const uint32_t *ids;
    uint32_t count;

    build(&w, "a", 6);
    const uint32_t *blocks = kvpool_doc_blocks(kvpool_find(w.pool, &key), &count);

    ck_assert_uint_eq(count, 2);
    ck_assert(catalog_read(w.catalog, blocks[0], &record, &ids));
    ck_assert_uint_eq(catalog_ids_count(w.catalog, &record), BLOCK_TOKENS);
    ck_assert_uint_eq(ids[0], 5);
    ck_assert(catalog_read(w.catalog, blocks[1], &record, &ids));
    ck_assert_uint_eq(catalog_ids_count(w.catalog, &record), 2);
    ck_assert_uint_eq(ids[0], 9);
    ck_assert_uint_eq(ids[1], 10);
    ck_assert_uint_eq(ids[2], 0);
    end_world(&w);
}
END_TEST

START_TEST(a_document_that_was_not_sealed_is_a_miss)
{
    struct world w = make_world();
    struct kvpool_doc *doc;
    struct kvpool_claim *made = begin_build(&w, "a", 9, &doc);
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(s.adopted.documents, 0);
    ck_assert_uint_eq(ready_in(s.pool, "a"), 0);
    end_successor(&s);
    kvpool_doc_abandon(w.pool, doc, 0);
    release(w.pool, &made);
    end_world(&w);
}
END_TEST

START_TEST(what_a_living_process_may_write_is_fenced_until_it_is_gone)
{
    struct world w = make_world();
    struct kvpool_doc *doc;

    build(&w, "sealed", 8);
    struct kvpool_claim *made = begin_build(&w, "a", 9, &doc);

    ck_assert_int_eq(kvpool_claim_grow(w.pool, made, 3), ST_OK);
    struct successor s = succeed(&w, always);
    struct kvpool_stats stats;

    ck_assert_uint_eq(s.adopted.blocks_fenced, 3 + 2 + 3); /* the document, and its own ones */
    ck_assert_uint_eq(s.adopted.documents, 1);
    kvpool_stats(s.pool, &stats);
    ck_assert_uint_eq(stats.blocks_quarantined, 8);
    ck_assert_uint_eq(kvpool_fence_lift(s.pool, WORKER), 8);
    kvpool_check(s.pool);
    end_successor(&s);
    kvpool_doc_abandon(w.pool, doc, WORKER);
    kvpool_claim_release(w.pool, &made, WORKER);

    /* Given up and fenced by this process already: by the next one as well. */
    s = succeed(&w, always);
    ck_assert_uint_eq(s.adopted.blocks_fenced, 8);
    end_successor(&s);
    ck_assert_uint_eq(kvpool_fence_lift(w.pool, WORKER), 8);
    s = succeed(&w, always);
    ck_assert_uint_eq(s.adopted.blocks_fenced, 0);
    end_successor(&s);
    end_world(&w);
}
END_TEST

START_TEST(the_head_of_a_document_outlives_its_evicted_tail)
{
    struct world w = make_world();

    build(&w, "a", 4 * BLOCK_TOKENS);
    ck_assert_uint_eq(kvpool_evict(w.pool, 3), 3);
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(ready_in(s.pool, "a"), BLOCK_TOKENS);
    end_successor(&s);
    build(&w, "a", 4 * BLOCK_TOKENS); /* the tail again: records of two builds in one document */
    s = succeed(&w, never);
    ck_assert_uint_eq(ready_in(s.pool, "a"), 4 * BLOCK_TOKENS);
    end_successor(&s);
    end_world(&w);
}
END_TEST

START_TEST(a_forgotten_document_does_not_come_back)
{
    struct world w = make_world();
    struct dockey key = named("a");

    build(&w, "a", 9);
    struct kvpool_want reader = want("a", 9);
    struct kvpool_claim *made = claim(w.pool, &reader, 1, 0, 9);

    ck_assert_int_eq(kvpool_forget(w.pool, &key),
                     ST_OK); /* its blocks stay until the reader goes */
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(s.adopted.documents, 0);
    end_successor(&s);
    release(w.pool, &made);
    end_world(&w);
}
END_TEST

START_TEST(pins_outlive_the_process_that_knew_them)
{
    struct world w = make_world();
    struct dockey key = named("a");

    build(&w, "a", 9);
    ck_assert_int_eq(kvpool_pin(w.pool, &key), ST_OK);
    ck_assert_int_eq(kvpool_pin(w.pool, &key), ST_OK);
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(kvpool_evict(s.pool, BLOCKS), 0);
    ck_assert_int_eq(kvpool_unpin(s.pool, &key), ST_OK);
    ck_assert_int_eq(kvpool_unpin(s.pool, &key), ST_OK);
    ck_assert_uint_eq(kvpool_evict(s.pool, BLOCKS), 3);
    kvpool_check(s.pool);
    end_successor(&s);
    end_world(&w);
}
END_TEST

/* Every byte of the records is flipped in turn: the document it belongs to is shorter or gone, and
 * the others are as they were. */
START_TEST(a_flipped_bit_is_a_miss_and_hurts_no_neighbour)
{
    struct world w = make_world();
    struct dockey key = named("a");
    uint32_t count;

    build(&w, "a", 3 * BLOCK_TOKENS);
    build(&w, "b", 2 * BLOCK_TOKENS);
    const uint32_t *blocks = kvpool_doc_blocks(kvpool_find(w.pool, &key), &count);
    size_t record = RECORD_BYTES;
    uint8_t *at = (uint8_t *)w.memory + w.bytes - (BLOCKS - blocks[1]) * record;

    for (size_t i = 0; i < record; i++) {
        bool is_held =
            i >= HELD_AT && i < HELD_AT + sizeof(uint64_t); /* of others, nothing of it */

        at[i] ^= 0x10;
        struct successor s = succeed(&w, never);

        ck_assert_uint_eq(ready_in(s.pool, "a"), is_held ? 3 * BLOCK_TOKENS : BLOCK_TOKENS);
        ck_assert_uint_eq(ready_in(s.pool, "b"), 2 * BLOCK_TOKENS);
        ck_assert_uint_ge(s.adopted.blocks_dropped, is_held ? 0 : 1);
        end_successor(&s);
        at[i] ^= 0x10;
    }
    end_world(&w);
}
END_TEST

START_TEST(a_record_in_another_place_says_nothing)
{
    struct world w = make_world();
    size_t record = RECORD_BYTES;
    uint8_t *end = (uint8_t *)w.memory + w.bytes;

    build(&w, "a", 1);
    memcpy(end - record, end - BLOCKS * record, record); /* of the first block, to the last one */
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(s.adopted.documents, 1);
    ck_assert_uint_eq(s.adopted.blocks_dropped, 1);
    end_successor(&s);
    end_world(&w);
}
END_TEST

START_TEST(a_head_that_does_not_verify_is_refused)
{
    struct world w = make_world();
    struct catalog *other = NULL;
    uint8_t *at = w.memory;

    ck_assert_int_eq(catalog_open(w.memory, w.bytes - 1, &other), ST_INVALID);
    ck_assert_int_eq(catalog_open(w.memory, 64, &other), ST_INVALID);
    for (size_t i = 0; i < 3 * sizeof(uint64_t) + sizeof(struct catalog_pool); i++) {
        at[i] ^= 1;
        ck_assert_int_eq(catalog_open(w.memory, w.bytes, &other), ST_INVALID);
        at[i] ^= 1;
    }
    ck_assert_int_eq(catalog_open(w.memory, w.bytes, &other), ST_OK);
    ck_assert_mem_eq(catalog_pool(other), &w.config, sizeof(w.config));
    catalog_close(&other);
    end_world(&w);
}
END_TEST

START_TEST(workers_are_remembered_until_they_are_dropped)
{
    struct world w = make_world();
    struct catalog_worker worker = {.incarnation = 5, .start_ticks = 6, .pid = 7, .seqs_max = 8};
    struct catalog_worker found;

    ck_assert(!catalog_get_worker(w.catalog, 63, &found));
    catalog_set_worker(w.catalog, 63, &worker);
    ck_assert(catalog_get_worker(w.catalog, 63, &found));
    ck_assert_mem_eq(&worker, &found, sizeof(worker));
    catalog_drop_worker(w.catalog, 63);
    ck_assert(!catalog_get_worker(w.catalog, 63, &found));
    end_world(&w);
}
END_TEST

START_TEST(after_a_restart_it_is_known_what_copies_and_free_blocks_are_of)
{
    struct world w = make_world();
    struct kvpool_forgotten forgotten;
    struct kvpool_want copy = want("a at another place", 2 * BLOCK_TOKENS);
    struct dockey a = named("a");
    uint32_t count;

    build(&w, "a", 3 * BLOCK_TOKENS);
    build(&w, "b", 2 * BLOCK_TOKENS);
    ck_assert_uint_eq(kvpool_evict(w.pool, 5), 5); /* both are free blocks now */
    copy.source = dockey_hash(&a);
    struct kvpool_claim *made = claim(w.pool, &copy, 1, 1, WORKER + 1);

    kvpool_claim_own(w.pool, made, &copy.source, 1);
    kvpool_doc_seal(w.pool, copy.doc, 3);
    release(w.pool, &made); /* its own block is free again as well */
    struct successor s = succeed(&w, never);

    ck_assert_uint_eq(s.adopted.documents, 1);
    ck_assert_int_eq(kvpool_erase(s.pool, &a, 5, &forgotten), ST_OK);
    ck_assert_uint_eq(forgotten.documents, 1);
    /* Of the five blocks that were free, the copy and its request's own took three, whoever had
     * them before; the rest of "a" is free, "b" is not asked for. */
    ck_assert_uint_ge(forgotten.remnants, 1);
    ck_assert_uint_ge(forgotten.blocks, 3);
    while (kvpool_next_erasure(s.pool, 9, WORKER, &count) != NULL) {
        ck_assert_uint_eq(kvpool_erased(s.pool, 9), count);
    }
    for (uint32_t block = 0; block < BLOCKS; block++) {
        ck_assert_uint_ne(catalog_held(s.catalog, block), dockey_hash(&a));
        ck_assert_uint_ne(catalog_held(s.catalog, block), UINT64_MAX);
    }
    ck_assert_int_eq(kvpool_erase(s.pool, &a, 6, &forgotten), ST_NOT_FOUND);
    end_successor(&s);
    end_world(&w);
}
END_TEST

/* --- death at any moment ---------------------------------------------------------------------- */

/* Document d has d % 13 + 1 tokens with the ids d, d + 1, ...; its name says d. */
static struct kvpool_want
numbered(uint32_t d, uint32_t ids[16])
{
    struct kvpool_want w = {.key = {.bytes = {1}}, .n_tokens = d % 13 + 1, .ids = ids};

    memcpy(w.key.bytes + 8, &d, sizeof(d));
    for (uint32_t i = 0; i < w.n_tokens; i++) {
        ids[i] = d + i;
    }
    return w;
}

/* Builds, reads, evicts, forgets, for ever. */
static _Noreturn void
live(struct world *w, uint64_t seed)
{
    for (;;) {
        uint32_t ids[16];
        struct kvpool_want one;
        struct kvpool_claim *made = NULL;

        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        one = numbered((uint32_t)(seed >> 33) % 40, ids);
        switch ((seed >> 60) & 7) {
        case 0: (void)kvpool_evict(w->pool, 1 + (uint32_t)(seed >> 50) % 8); continue;
        case 1: (void)kvpool_forget(w->pool, &one.key); continue;
        case 2:
            (void)(kvpool_pin(w->pool, &one.key) == ST_OK && kvpool_unpin(w->pool, &one.key));
            continue;
        default: break;
        }
        if (kvpool_claim(w->pool, &one, 1, 1, 9, &made) != ST_OK) {
            continue;
        }
        kvpool_lend(w->pool, made, 9, WORKER);
        if (one.must_build && (seed >> 59) % 4 == 0) {
            kvpool_doc_abandon(w->pool, one.doc, 0);
        } else if (one.must_build) {
            kvpool_doc_seal(w->pool, one.doc, 0);
        }
        kvpool_claim_release(w->pool, &made, 0);
    }
}

/* All that is adopted is what its key says, to the last id. */
static void
check_adopted(const struct world *w, struct successor *s)
{
    for (uint32_t d = 0; d < 40; d++) {
        uint32_t ids[16], count;
        struct kvpool_want one = numbered(d, ids);
        const struct kvpool_doc *doc = kvpool_find(s->pool, &one.key);

        if (doc == NULL) {
            continue;
        }
        const uint32_t *blocks = kvpool_doc_blocks(doc, &count);
        ck_assert_uint_eq(kvpool_doc_tokens(doc), one.n_tokens);
        for (uint32_t i = 0; i < count; i++) {
            struct catalog_record record;
            const uint32_t *found;

            ck_assert(catalog_read(s->catalog, blocks[i], &record, &found));
            ck_assert_mem_eq(found, ids + (size_t)i * BLOCK_TOKENS,
                             catalog_ids_count(w->catalog, &record) * sizeof(ids[0]));
        }
    }
}

START_TEST(a_process_killed_at_any_moment_leaves_only_what_is_true)
{
    uint64_t seed = test_seed();
    uint32_t documents = 0;

    for (int round = 0; round < 40; round++) {
        struct world w = make_world();
        pid_t child = fork();

        ck_assert_int_ge(child, 0);
        if (child == 0) {
            live(&w, seed + (uint64_t)round);
        }
        /* It is killed in the middle of something, wherever the machine has got to by then. */
        for (volatile unsigned i = 0; i < 200000u + 50000u * (unsigned)round; i++) {
        }
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        struct successor s = succeed(&w, never);

        check_adopted(&w, &s);
        documents += s.adopted.documents;
        end_successor(&s);
        end_world(&w);
    }
    ck_assert_uint_gt(documents, 0);
}
END_TEST

CHECK_MAIN("catalog", the_next_process_finds_every_sealed_document_in_the_same_blocks,
           the_ids_of_a_document_are_kept_with_it, a_document_that_was_not_sealed_is_a_miss,
           what_a_living_process_may_write_is_fenced_until_it_is_gone,
           the_head_of_a_document_outlives_its_evicted_tail,
           a_forgotten_document_does_not_come_back, pins_outlive_the_process_that_knew_them,
           a_flipped_bit_is_a_miss_and_hurts_no_neighbour, a_record_in_another_place_says_nothing,
           a_head_that_does_not_verify_is_refused, workers_are_remembered_until_they_are_dropped,
           after_a_restart_it_is_known_what_copies_and_free_blocks_are_of,
           a_process_killed_at_any_moment_leaves_only_what_is_true)
