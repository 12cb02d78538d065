/* SPDX-License-Identifier: Apache-2.0 */
/* What the reuse modes ask of the scheduler: which KV a prompt is read from, what is built, what is
 * copied, and what is counted. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

static const uint32_t abc[] = {10001, 20002, 7003}; /* 10, 20 and 7 tokens */
static const uint32_t acb[] = {10001, 7003, 20002};

static struct world *
new_world(uint32_t workers)
{
    return world_new((struct world_config){
        .block_count = 100,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .workers = workers,
        .seqs_max = 8,
        .build_tokens = 8,
    });
}

static uint64_t
submit(struct world *world, const uint32_t *docs, enum reuse_mode mode)
{
    return world_submit(
        world, (struct world_ask){
                   .docs = docs, .doc_count = 3, .query = 5, .max_tokens = 3, .reuse = mode});
}

/* Runs it to its end and checks what its usage says of its 37 document tokens. */
static void
check(struct world *world, uint64_t id, uint32_t reused, uint32_t built, uint32_t copied)
{
    const struct world_request *request = world_get(world, id);

    world_run(world, 1000);
    ck_assert_msg(request->end == SCHED_END_OK, "%s", request->message);
    ck_assert_uint_eq(request->usage.prompt_tokens, 37 + 5);
    ck_assert_uint_eq(request->usage.query_tokens, 5);
    ck_assert_uint_eq(request->usage.tokens_reused, reused);
    ck_assert_uint_eq(request->usage.tokens_built, built);
    ck_assert_uint_eq(request->usage.tokens_copied, copied);
}

static const struct sched_counters *
counters(struct world *world)
{
    return sched_counters(world_sched(world));
}

START_TEST(prefix_finds_only_what_the_prompt_begins_with)
{
    struct world *world = new_world(1);

    check(world, submit(world, abc, REUSE_PREFIX), 0, 37, 0);
    check(world, submit(world, abc, REUSE_PREFIX), 37, 0, 0);
    check(world, submit(world, acb, REUSE_PREFIX), 10, 27, 0);
    check(world, submit(world, acb, REUSE_PREFIX), 37, 0, 0);
    ck_assert_uint_eq(world_pool(world).documents, 5);
    ck_assert_uint_eq(counters(world)->requests_prefix, 4);
    ck_assert_uint_eq(counters(world)->docs_prefix, 12);
    ck_assert_uint_eq(counters(world)->tokens_reused_prefix, 37 + 10 + 37);
    ck_assert_uint_eq(counters(world)->tokens_built_prefix, 37 + 27);
    world_destroy(world);
}
END_TEST

START_TEST(the_first_document_of_a_prefix_is_the_lazy_one)
{
    struct world *world = new_world(1);

    check(world, submit(world, abc, REUSE_LAZY), 0, 37, 0);
    check(world, submit(world, abc, REUSE_PREFIX), 10, 27, 0);
    world_destroy(world);
}
END_TEST

START_TEST(none_finds_nothing_and_leaves_nothing)
{
    struct world *world = new_world(1);

    check(world, submit(world, abc, REUSE_LAZY), 0, 37, 0);
    check(world, submit(world, abc, REUSE_NONE), 0, 37, 0);
    check(world, submit(world, abc, REUSE_NONE), 0, 37, 0);
    ck_assert_uint_eq(world_pool(world).documents, 3);
    ck_assert_uint_eq(counters(world)->tokens_built, 3 * 37);
    ck_assert_uint_eq(counters(world)->tokens_built_none, 2 * 37);
    world_destroy(world);
}
END_TEST

START_TEST(reencode_builds_a_document_once_and_copies_it_to_each_offset)
{
    struct world *world = new_world(1);

    check(world, submit(world, abc, REUSE_REENCODE), 0, 37, 27);
    check(world, submit(world, abc, REUSE_REENCODE), 37, 0, 0);
    check(world, submit(world, acb, REUSE_REENCODE), 37, 0, 27);
    check(world, submit(world, acb, REUSE_LAZY), 37, 0, 0);
    ck_assert_uint_eq(world_pool(world).documents, 7);
    ck_assert_uint_eq(counters(world)->copies_made, 4);
    ck_assert_uint_eq(counters(world)->builds_sealed, 3);
    /* The pool counts a document once a prompt, found as a copy or as itself. */
    ck_assert_uint_eq(world_pool(world).tokens_hit, 3 * 37);
    ck_assert_uint_eq(world_pool(world).tokens_missed, 37);
    world_destroy(world);
}
END_TEST

START_TEST(a_copy_that_two_want_at_once_is_made_once_and_outlives_its_first_owner)
{
    struct world *world = new_world(2);
    uint64_t first = submit(world, abc, REUSE_REENCODE);
    uint64_t second = submit(world, abc, REUSE_REENCODE);

    (void)world_step(world, 0);
    (void)world_step(world, 1);
    ck_assert(world_cancel(world, first, false));
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    ck_assert_uint_eq(counters(world)->copies_made, 2);
    ck_assert_uint_eq(counters(world)->builds_started, 5);
    ck_assert_uint_gt(counters(world)->builds_handed_over, 0);
    world_destroy(world);
}
END_TEST

START_TEST(the_tail_of_a_copy_is_copied_again_from_its_document)
{
    struct world *world = new_world(1);

    check(world, submit(world, abc, REUSE_REENCODE), 0, 37, 27);
    /* The oldest go first: what the prompt read in order, then the sources.  3 blocks of the first
     * document, 2 of the second one's copy. */
    world_evict(world, 5);
    check(world, submit(world, abc, REUSE_REENCODE), 27, 10, 8);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_that_fits_without_its_copies_only_is_refused_with_both_sizes)
{
    struct world *world = new_world(1);
    const uint32_t docs[] = {150001, 60002}; /* 38 blocks and 15 */
    struct world_ask ask = {.docs = docs, .doc_count = 2, .query = 5, .max_tokens = 124};

    ask.reuse = REUSE_LAZY;
    uint64_t lazy = world_submit(world, ask);

    ask.reuse = REUSE_REENCODE;
    uint64_t reencode = world_submit(world, ask);

    ck_assert_int_eq(world_get(world, reencode)->end, SCHED_END_NEVER_FITS);
    ck_assert_str_eq(world_get(world, reencode)->message,
                     "request needs 101 blocks (404 tokens), the pool has 100 (400 tokens)");
    world_run(world, 2000);
    ck_assert_int_eq(world_get(world, lazy)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_modes", prefix_finds_only_what_the_prompt_begins_with,
           the_first_document_of_a_prefix_is_the_lazy_one, none_finds_nothing_and_leaves_nothing,
           reencode_builds_a_document_once_and_copies_it_to_each_offset,
           a_copy_that_two_want_at_once_is_made_once_and_outlives_its_first_owner,
           the_tail_of_a_copy_is_copied_again_from_its_document,
           a_request_that_fits_without_its_copies_only_is_refused_with_both_sizes)
