/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-turn: what a request leaves, and what its follow-up finds of it. */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/fake_worker.h"
#include "tests/support/sched_world.h"

#define IDS_MAX 256

static const uint32_t docs[] = {10001, 20002};

/* A conversation: the ids of its turns so far. */
struct talk {
    uint32_t ids[IDS_MAX];
    uint32_t count;
};

static struct world *
new_world(uint32_t block_count)
{
    return world_new((struct world_config){
        .block_count = block_count,
        .block_tokens = 4,
        .reserve_tokens = 8,
        .workers = 1,
        .seqs_max = 8,
        .build_tokens = 100,
    });
}

static void
say(struct talk *talk, uint32_t count, uint32_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        talk->ids[talk->count++] = first + i;
    }
}

/* Asks with all that was said, and adds the answer. */
static const struct world_request *
ask(struct world *world, struct talk *talk, struct world_ask more, uint32_t max_tokens)
{
    uint64_t id;

    more.docs = more.docs == NULL ? docs : more.docs;
    more.doc_count = 2;
    more.query = talk->count;
    more.query_ids = talk->ids;
    more.max_tokens = max_tokens;
    more.keep_turn = true;
    id = world_submit(world, more);
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    for (uint32_t i = 0; i < max_tokens; i++) {
        talk->ids[talk->count++] = fake_token(id, i);
    }
    return world_get(world, id);
}

static uint32_t
turns_kept(struct world *world)
{
    return (uint32_t)world_pool(world).turns_kept;
}

START_TEST(a_follow_up_reuses_every_whole_block_of_the_turns_before_it)
{
    struct world *world = new_world(100);
    struct talk talk = {.count = 0};

    say(&talk, 6, 1000);
    ck_assert_uint_eq(ask(world, &talk, (struct world_ask){0}, 9)->usage.turn_tokens_reused, 0);
    /* 6 + 9 ids, of which the last has no KV: three whole blocks. */
    ck_assert_uint_eq(world_pool(world).blocks_docs, 8 + 3);
    say(&talk, 5, 2000);
    ck_assert_uint_eq(ask(world, &talk, (struct world_ask){0}, 6)->usage.turn_tokens_reused, 12);
    /* 20 + 6 ids: six blocks by now, three of them new. */
    ck_assert_uint_eq(world_pool(world).blocks_docs, 8 + 6);
    say(&talk, 1, 3000);
    const struct world_request *third = ask(world, &talk, (struct world_ask){0}, 2);

    ck_assert_uint_eq(third->usage.turn_tokens_reused, 24);
    ck_assert_uint_eq(third->usage.tokens_reused, 30);
    ck_assert_uint_eq(third->usage.query_tokens, 27);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_followed_up, 2);
    ck_assert_uint_eq(sched_counters(world_sched(world))->turn_tokens_reused, 36);
    ck_assert_uint_eq(turns_kept(world), 3);
    world_destroy(world);
}
END_TEST

START_TEST(other_documents_another_order_or_another_mode_find_nothing)
{
    static const uint32_t swapped[] = {20002, 10001};
    struct world *world = new_world(100);
    struct talk talk = {.count = 0}, again;

    say(&talk, 20, 1000);
    ask(world, &talk, (struct world_ask){0}, 2);
    say(&talk, 3, 2000);
    again = talk;
    ck_assert_uint_eq(
        ask(world, &again, (struct world_ask){.docs = swapped}, 2)->usage.turn_tokens_reused, 0);
    again = talk;
    ck_assert_uint_eq(
        ask(world, &again, (struct world_ask){.reuse = REUSE_PREFIX}, 2)->usage.turn_tokens_reused,
        0);
    again = talk;
    ck_assert_uint_eq(
        ask(world, &again, (struct world_ask){.reuse = REUSE_NONE}, 2)->usage.turn_tokens_reused,
        0);
    again = talk;
    ck_assert_uint_eq(ask(world, &again, (struct world_ask){0}, 2)->usage.turn_tokens_reused, 20);
    world_destroy(world);
}
END_TEST

START_TEST(an_answer_told_differently_is_reused_up_to_there_and_both_live_on)
{
    struct world *world = new_world(100);
    struct talk talk = {.count = 0}, other;

    say(&talk, 6, 1000);
    ask(world, &talk, (struct world_ask){0}, 15); /* five whole blocks */
    other = talk;
    other.ids[13] ^= 1; /* in the fourth block */
    ck_assert_uint_eq(ask(world, &other, (struct world_ask){0}, 5)->usage.turn_tokens_reused, 12);
    say(&talk, 1, 5000);
    ck_assert_uint_eq(ask(world, &talk, (struct world_ask){0}, 2)->usage.turn_tokens_reused, 20);
    say(&other, 1, 6000);
    ck_assert_uint_eq(ask(world, &other, (struct world_ask){0}, 2)->usage.turn_tokens_reused, 24);
    world_destroy(world);
}
END_TEST

START_TEST(what_was_evicted_of_a_turn_is_computed_again_and_kept_behind_the_rest)
{
    struct world *world = new_world(100);
    struct talk talk = {.count = 0};

    say(&talk, 30, 1000);
    ask(world, &talk, (struct world_ask){0}, 3); /* 8 blocks: 32 tokens */
    world_evict(world, 3);                       /* a turn goes before the documents under it */
    say(&talk, 1, 2000);
    const struct world_request *second = ask(world, &talk, (struct world_ask){0}, 2);

    ck_assert_uint_eq(second->usage.turn_tokens_reused, 20);
    ck_assert_uint_eq(second->usage.tokens_built, 0);
    say(&talk, 1, 3000);
    ck_assert_uint_eq(ask(world, &talk, (struct world_ask){0}, 2)->usage.turn_tokens_reused, 32);
    world_destroy(world);
}
END_TEST

START_TEST(equal_turns_that_ran_at_once_are_kept_once)
{
    struct world *world = new_world(100);
    uint32_t ids[21];
    uint64_t first, second;
    struct world_ask same = {.docs = docs,
                             .doc_count = 2,
                             .query = 21,
                             .max_tokens = 1,
                             .query_ids = ids,
                             .keep_turn = true};

    for (uint32_t i = 0; i < 21; i++) {
        ids[i] = 7 * i;
    }
    first = world_submit(world, same);
    second = world_submit(world, same);
    world_run(world, 1000);
    ck_assert_int_eq(world_get(world, first)->end, SCHED_END_OK);
    ck_assert_int_eq(world_get(world, second)->end, SCHED_END_OK);
    ck_assert_uint_eq(world_pool(world).blocks_docs, 8 + 5);
    ck_assert_uint_eq(turns_kept(world), 1);
    world_destroy(world);
}
END_TEST

START_TEST(a_turn_makes_room_like_any_document)
{
    struct world *world = new_world(24);
    struct talk talk = {.count = 0}, other = {.count = 0};

    for (uint32_t i = 0; i < 10; i++) {
        talk.count = other.count = 0;
        say(&talk, 20, 1000 * i);
        ask(world, &talk, (struct world_ask){0}, 3);
    }
    ck_assert_uint_gt(world_pool(world).blocks_evicted, 0);
    ck_assert_uint_eq(world_pool(world).blocks_own, 0);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_that_does_not_keep_its_turn_leaves_nothing)
{
    struct world *world = new_world(100);
    uint64_t id = world_submit(
        world, (struct world_ask){.docs = docs, .doc_count = 2, .query = 20, .max_tokens = 2});

    world_run(world, 100);
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    ck_assert_uint_eq(turns_kept(world), 0);
    /* Nor does one that was cancelled. */
    id = world_submit(
        world, (struct world_ask){
                   .docs = docs, .doc_count = 2, .query = 20, .max_tokens = 50, .keep_turn = true});
    (void)world_step(world, 0);
    (void)world_step(world, 0);
    ck_assert(world_cancel(world, id, false));
    world_run(world, 100);
    ck_assert_uint_eq(turns_kept(world), 0);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_turns", a_follow_up_reuses_every_whole_block_of_the_turns_before_it,
           other_documents_another_order_or_another_mode_find_nothing,
           an_answer_told_differently_is_reused_up_to_there_and_both_live_on,
           what_was_evicted_of_a_turn_is_computed_again_and_kept_behind_the_rest,
           equal_turns_that_ran_at_once_are_kept_once, a_turn_makes_room_like_any_document,
           a_request_that_does_not_keep_its_turn_leaves_nothing)
