/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/support/check_main.h"
#include "worker/batch.h"

#define ITEMS_MAX 8

/* A step of which nobody knows what came before it. */
static uint32_t
pick(struct batch_item *items, uint32_t count, struct batch_limits limits)
{
    return batch_pick(items, count, limits, &(uint32_t){0});
}

/* A table in short: what each item is and the rows it must get. */
struct row {
    char kind; /* 'd' decoding, 'b' build, 'q' prompt */
    uint32_t rows_left;
    uint32_t slots_left;
    int deps[2]; /* indices + 1; 0 = none */
    uint32_t expected;
};

static void
check_table(const struct row *rows, uint32_t count, uint32_t budget)
{
    struct batch_item items[ITEMS_MAX];
    uint32_t deps[ITEMS_MAX][2];
    uint32_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct batch_item){.is_decoding = rows[i].kind == 'd',
                                       .is_prompt = rows[i].kind != 'b',
                                       .rows_left = rows[i].rows_left,
                                       .slots_left = rows[i].slots_left,
                                       .deps = deps[i],
                                       .rows = 12345};
        for (int k = 0; k < 2 && rows[i].deps[k] != 0; k++) {
            deps[i][items[i].n_deps++] = (uint32_t)rows[i].deps[k] - 1;
        }
        total += rows[i].expected;
    }
    ck_assert_uint_eq(
        pick(items, count, (struct batch_limits){.rows = budget, .segs = 99, .pairs = 999}), total);
    ck_assert_uint_le(total, budget);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_msg(items[i].rows == rows[i].expected, "item %u: %u rows, not %u", i,
                      items[i].rows, rows[i].expected);
    }
}

#define CHECK_TABLE(budget, ...)                                                                   \
    do {                                                                                           \
        const struct row rows_[] = {__VA_ARGS__};                                                  \
        check_table(rows_, sizeof(rows_) / sizeof(rows_[0]), budget);                              \
    } while (0)

START_TEST(decodes_go_first_and_prompts_share_the_rest_in_order_of_arrival)
{
    CHECK_TABLE(10, {'q', 6, 99, {0}, 6}, {'d', 1, 5, {0}, 1}, {'q', 6, 99, {0}, 2},
                {'d', 1, 5, {0}, 1}, {'q', 6, 99, {0}, 0});
}
END_TEST

START_TEST(a_long_prompt_is_cut_at_the_budget)
{
    CHECK_TABLE(16, {'q', 100, 128, {0}, 16});
    CHECK_TABLE(16, {'b', 15, 32, {0}, 8}, {'q', 100, 128, {0}, 8});
}
END_TEST

START_TEST(a_query_enters_the_step_that_completes_its_documents)
{
    CHECK_TABLE(64, {'b', 20, 32, {0}, 20}, {'b', 30, 32, {0}, 30}, {'q', 9, 32, {1, 2}, 9});
    CHECK_TABLE(50, {'b', 20, 32, {0}, 20}, {'b', 30, 32, {0}, 30}, {'q', 9, 32, {1, 2}, 0});
    CHECK_TABLE(55, {'b', 20, 32, {0}, 20}, {'b', 30, 32, {0}, 30}, {'q', 9, 32, {1, 2}, 5});
}
END_TEST

START_TEST(a_query_waits_while_a_document_is_unfinished)
{
    CHECK_TABLE(40, {'b', 20, 32, {0}, 20}, {'b', 30, 32, {0}, 20}, {'q', 9, 32, {1, 2}, 0});
}
END_TEST

START_TEST(a_build_without_rows_left_is_complete)
{
    CHECK_TABLE(40, {'b', 0, 0, {0}, 0}, {'q', 9, 32, {1, 0}, 9});
}
END_TEST

START_TEST(what_has_no_slot_stalls_and_leaves_its_rows_to_others)
{
    CHECK_TABLE(8, {'d', 1, 0, {0}, 0}, {'q', 20, 4, {0}, 4}, {'q', 20, 32, {0}, 4});
    CHECK_TABLE(8, {'d', 1, 0, {0}, 0});
}
END_TEST

START_TEST(more_decodes_than_budget_serve_the_oldest)
{
    CHECK_TABLE(2, {'d', 1, 9, {0}, 1}, {'d', 1, 9, {0}, 1}, {'d', 1, 9, {0}, 0});
}
END_TEST

START_TEST(a_dep_that_stands_later_in_the_table_is_not_complete)
{
    CHECK_TABLE(64, {'q', 9, 32, {2, 0}, 0}, {'b', 20, 32, {0}, 20});
}
END_TEST

/* A question over hot documents does not wait for the thousands of tokens that came before it, and
 * takes no more than half of a step from them. */
START_TEST(a_hot_prompt_goes_before_cold_documents_with_up_to_half_of_a_step)
{
    CHECK_TABLE(100, {'b', 5000, 9999, {0}, 60}, {'q', 9, 32, {1, 0}, 0}, {'q', 40, 64, {0}, 40});
    CHECK_TABLE(100, {'b', 5000, 9999, {0}, 50}, {'q', 40, 64, {0}, 40}, {'q', 40, 64, {0}, 10});
    CHECK_TABLE(101, {'b', 20, 32, {0}, 20}, {'q', 400, 999, {0}, 81});
    CHECK_TABLE(1, {'b', 20, 32, {0}, 1}, {'q', 4, 16, {0}, 0});
}
END_TEST

START_TEST(a_step_that_decodes_is_kept_short)
{
    struct batch_item items[] = {
        {.is_decoding = true, .is_prompt = true, .rows_left = 1, .slots_left = 9},
        {.rows_left = 5000, .slots_left = 9999},
        {.is_prompt = true, .rows_left = 50, .slots_left = 64},
    };
    struct batch_limits limits = {.rows = 1000, .rows_beside = 80, .segs = 9, .pairs = 9};

    ck_assert_uint_eq(pick(items, 3, limits), 81);
    ck_assert_uint_eq(items[0].rows, 1);
    ck_assert_uint_eq(items[1].rows, 40);
    ck_assert_uint_eq(items[2].rows, 40);
    ck_assert_uint_eq(pick(items + 1, 2, limits), 1000);
    limits.rows = 50;
    ck_assert_uint_eq(pick(items, 3, limits), 50);
}
END_TEST

START_TEST(a_sequence_over_many_documents_gets_the_rows_that_pairs_are_left_for)
{
    struct batch_item items[] = {
        {.is_decoding = true, .rows_left = 1, .slots_left = 9, .n_segs = 40},
        {.rows_left = 50, .slots_left = 64, .n_segs = 10},
        {.is_decoding = true, .rows_left = 1, .slots_left = 9, .n_segs = 40},
        {.rows_left = 50, .slots_left = 64, .n_segs = 1},
    };

    ck_assert_uint_eq(pick(items, 4, (struct batch_limits){.rows = 64, .segs = 99, .pairs = 135}),
                      12);
    ck_assert_uint_eq(items[0].rows, 1);
    ck_assert_uint_eq(items[2].rows, 1);
    ck_assert_uint_eq(items[1].rows, 5);
    ck_assert_uint_eq(items[3].rows, 5);
    /* None left for the second decode: it waits, and those behind it share what is left. */
    ck_assert_uint_eq(pick(items, 4, (struct batch_limits){.rows = 64, .segs = 99, .pairs = 70}),
                      4);
    ck_assert_uint_eq(items[0].rows, 1);
    ck_assert_uint_eq(items[2].rows, 0);
    ck_assert_uint_eq(items[1].rows, 3);
    ck_assert_uint_eq(items[3].rows, 0);
}
END_TEST

START_TEST(no_step_has_more_segments_than_the_device_takes)
{
    struct batch_item items[] = {
        {.rows_left = 5, .slots_left = 16, .n_segs = 40},
        {.rows_left = 5, .slots_left = 16, .n_segs = 30},
        {.rows_left = 5, .slots_left = 16, .n_segs = 10},
    };

    ck_assert_uint_eq(pick(items, 3, (struct batch_limits){.rows = 64, .segs = 50, .pairs = 9999}),
                      10);
    ck_assert_uint_eq(items[0].rows, 5);
    ck_assert_uint_eq(items[1].rows, 0);
    ck_assert_uint_eq(items[2].rows, 5);
}
END_TEST

/* --- turns --------------------------------------------------------------------------- */

#define TURNS_MAX 40

static uint32_t waits[TURNS_MAX]; /* steps since its last row */

/* One step; returns the items that got one row, and notes how long each waits. */
static uint32_t
take_turn(struct batch_item *items, uint32_t count, struct batch_limits limits, uint32_t *turn)
{
    uint32_t singles = 0;

    batch_pick(items, count, limits, turn);
    for (uint32_t i = 0; i < count; i++) {
        singles += items[i].rows == 1;
        waits[i] = items[i].rows > 0 || items[i].rows_left == 0 ? 0 : waits[i] + 1;
    }
    return singles;
}

START_TEST(more_decodes_than_the_device_takes_take_turns)
{
    struct batch_item items[10];
    struct batch_limits limits = {
        .rows = 64, .segs = 99, .pairs = 999, .singles = 4, .single_segs = 99};
    uint32_t tokens[10] = {0};
    uint32_t turn = 0;

    memset(waits, 0, sizeof(waits));
    for (uint32_t i = 0; i < 10; i++) {
        items[i] =
            (struct batch_item){.is_decoding = true, .rows_left = 1, .slots_left = 9, .n_segs = 2};
    }
    for (uint32_t step = 1; step <= 50; step++) {
        ck_assert_uint_eq(take_turn(items, 10, limits, &turn), 4);
        for (uint32_t i = 0; i < 10; i++) {
            tokens[i] += items[i].rows;
            ck_assert_uint_lt(waits[i], 3); /* a token every ceil(10 / 4) steps */
            ck_assert_uint_ge(tokens[i], step * 4 / 10);
            ck_assert_uint_le(tokens[i], step * 4 / 10 + 1);
        }
    }
    limits.singles = 0;
    ck_assert_uint_eq(take_turn(items, 10, limits, &turn), 10);
    ck_assert_uint_eq(turn, 0);
}
END_TEST

START_TEST(prompts_beside_decodes_that_take_turns_have_what_they_had_before)
{
    struct batch_item items[12];
    uint32_t turn = 0;

    for (uint32_t i = 0; i < 10; i++) {
        items[i] = (struct batch_item){.is_decoding = true, .rows_left = 1, .slots_left = 9};
    }
    items[10] = (struct batch_item){.rows_left = 5000, .slots_left = 9999};
    items[11] = (struct batch_item){.is_prompt = true, .rows_left = 50, .slots_left = 64};
    for (uint32_t step = 0; step < 5; step++) {
        ck_assert_uint_eq(batch_pick(items, 12,
                                     (struct batch_limits){.rows = 1000,
                                                           .rows_beside = 80,
                                                           .segs = 9,
                                                           .pairs = 9,
                                                           .singles = 4,
                                                           .single_segs = 9},
                                     &turn),
                          84);
        ck_assert_uint_eq(items[10].rows, 40);
        ck_assert_uint_eq(items[11].rows, 40);
    }
}
END_TEST

/* A question of one token over hot documents, and a document of which one is left. */
START_TEST(last_rows_of_prompts_and_builds_take_turns_with_decodes)
{
    struct batch_item items[10];
    uint32_t deps[] = {8};
    struct batch_limits limits = {
        .rows = 64, .segs = 99, .pairs = 999, .singles = 4, .single_segs = 99};
    uint32_t turn = 0;

    for (uint32_t i = 0; i < 10; i++) {
        items[i] = (struct batch_item){
            .is_decoding = i < 5, .is_prompt = i != 8, .rows_left = 1, .slots_left = 9};
    }
    items[9].deps = deps; /* of the build before it */
    items[9].n_deps = 1;
    memset(waits, 0, sizeof(waits));
    for (uint32_t step = 0; step < 20; step++) {
        ck_assert_uint_eq(take_turn(items, 10, limits, &turn), 4);
        for (uint32_t i = 0; i < 10; i++) {
            ck_assert_uint_lt(waits[i], i == 9 ? 6 : 3);
        }
        if (items[8].rows == 1) {
            items[8].rows_left = 0;
        }
    }
    ck_assert_uint_eq(items[8].rows_left, 0);
}
END_TEST

START_TEST(a_cut_of_one_row_counts_as_a_decode_and_more_rows_do_not)
{
    struct batch_item items[] = {
        {.is_decoding = true, .rows_left = 1, .slots_left = 9},
        {.is_prompt = true, .rows_left = 50, .slots_left = 64},
    };
    struct batch_limits limits = {.rows = 2, .segs = 9, .pairs = 9, .singles = 1, .single_segs = 9};

    ck_assert_uint_eq(pick(items, 2, limits), 1);
    ck_assert_uint_eq(items[1].rows, 0);
    limits.rows = 3;
    ck_assert_uint_eq(pick(items, 2, limits), 3); /* half of it first, then the other half */
    limits.rows = 4;
    items[0] = items[1];
    limits.singles = 2;
    ck_assert_uint_eq(pick(items, 2, limits), 4);
    ck_assert_uint_eq(items[0].rows, 4);
}
END_TEST

/* However few segments are left when its turn has passed: the next step begins with it. */
START_TEST(one_over_many_documents_gets_its_turn)
{
    struct batch_item items[4];
    uint32_t turn = 0;

    for (uint32_t i = 0; i < 4; i++) {
        items[i] = (struct batch_item){
            .is_decoding = true, .rows_left = 1, .slots_left = 9, .n_segs = i == 2 ? 50 : 10};
    }
    for (int by_pairs = 0; by_pairs < 2; by_pairs++) {
        memset(waits, 0, sizeof(waits));
        for (uint32_t step = 0; step < 12; step++) {
            (void)take_turn(items, 4,
                            by_pairs ? (struct batch_limits){.rows = 64, .segs = 99, .pairs = 60}
                                     : (struct batch_limits){.rows = 64,
                                                             .segs = 999,
                                                             .pairs = 999,
                                                             .singles = 9,
                                                             .single_segs = 60},
                            &turn);
            for (uint32_t i = 0; i < 4; i++) {
                ck_assert_uint_lt(waits[i], 2);
            }
        }
    }
}
END_TEST

/* Sequences come, stall, end and change places; whoever can run does so in time. */
START_TEST(nobody_waits_for_more_turns_than_there_are_others)
{
    unsigned long long state = test_seed();
    struct batch_item items[TURNS_MAX];
    uint32_t turn = 0;

    memset(items, 0, sizeof(items));
    memset(waits, 0, sizeof(waits));
    for (int step = 0; step < 20000; step++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        struct batch_item *item = &items[(state >> 33) % TURNS_MAX];
        struct batch_limits limits = {.rows = 64,
                                      .segs = 9999,
                                      .pairs = 9999,
                                      .singles = 1 + (uint32_t)(state >> 50) % 8,
                                      .single_segs = 40};

        *item = (struct batch_item){.is_decoding = (state >> 20) % 3 > 0,
                                    .is_prompt = (state >> 24) % 2 > 0,
                                    .rows_left = (state >> 28) % 4 > 0,
                                    .slots_left = (state >> 31) % 5 > 0,
                                    .n_segs = 1 + (uint32_t)(state >> 40) % 40};
        waits[item - items] = 0;
        ck_assert_uint_le(take_turn(items, TURNS_MAX, limits, &turn), limits.singles);
        ck_assert_uint_lt(turn, TURNS_MAX);
        for (uint32_t i = 0; i < TURNS_MAX; i++) {
            waits[i] = items[i].slots_left > 0 ? waits[i] : 0;
            ck_assert_uint_lt(waits[i], TURNS_MAX);
        }
    }
}
END_TEST

/* Random tables, step after step: budget kept, every item ends, the oldest unfinished one moves. */
START_TEST(every_item_ends_and_the_oldest_always_moves)
{
    unsigned long long state = test_seed();

    for (int round = 0; round < 2000; round++) {
        struct batch_item items[ITEMS_MAX];
        uint32_t deps[ITEMS_MAX];
        uint32_t left = 0;

        for (uint32_t i = 0; i < ITEMS_MAX; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            uint32_t rows = (uint32_t)(state >> 33) % 50;

            deps[i] = i == 0 ? 0 : (uint32_t)(state >> 50) % i;
            items[i] = (struct batch_item){.rows_left = rows,
                                           .slots_left = rows,
                                           .deps = &deps[i],
                                           .n_deps = i % 2 == 1 ? 1u : 0u};
            left += rows;
        }
        uint32_t budget = 1 + (uint32_t)(state >> 40) % 40;

        while (left > 0) {
            uint32_t total =
                pick(items, ITEMS_MAX, (struct batch_limits){.rows = budget, .segs = UINT64_MAX});
            uint32_t oldest = 0;

            while (items[oldest].rows_left == 0) {
                oldest++;
            }
            ck_assert_uint_gt(items[oldest].rows, 0);
            ck_assert_uint_eq(total, left < budget ? left : budget);
            for (uint32_t i = 0; i < ITEMS_MAX; i++) {
                items[i].rows_left -= items[i].rows;
                items[i].slots_left -= items[i].rows;
            }
            left -= total;
        }
    }
}
END_TEST

CHECK_MAIN("batch", decodes_go_first_and_prompts_share_the_rest_in_order_of_arrival,
           a_long_prompt_is_cut_at_the_budget, a_query_enters_the_step_that_completes_its_documents,
           a_query_waits_while_a_document_is_unfinished, a_build_without_rows_left_is_complete,
           what_has_no_slot_stalls_and_leaves_its_rows_to_others,
           more_decodes_than_budget_serve_the_oldest,
           a_dep_that_stands_later_in_the_table_is_not_complete,
           a_hot_prompt_goes_before_cold_documents_with_up_to_half_of_a_step,
           a_step_that_decodes_is_kept_short,
           a_sequence_over_many_documents_gets_the_rows_that_pairs_are_left_for,
           no_step_has_more_segments_than_the_device_takes,
           more_decodes_than_the_device_takes_take_turns,
           prompts_beside_decodes_that_take_turns_have_what_they_had_before,
           last_rows_of_prompts_and_builds_take_turns_with_decodes,
           a_cut_of_one_row_counts_as_a_decode_and_more_rows_do_not,
           one_over_many_documents_gets_its_turn, nobody_waits_for_more_turns_than_there_are_others,
           every_item_ends_and_the_oldest_always_moves)
