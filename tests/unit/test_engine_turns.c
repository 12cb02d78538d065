/* SPDX-License-Identifier: Apache-2.0 */
/* More answers than the device takes in one step: they take turns, and each has the text of an
 * undisturbed run. */
#include <string.h>

#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

#define N       10
#define SINGLES 4
#define QUERY   11
#define TOKENS  30 /* of each answer */
#define IN_TURN 3  /* steps from token to token: N / SINGLES, rounded up */

static struct rig_config config;
static uint32_t singles_most;
static uint32_t n_allocated;
static struct ops real;
static struct rig_heard undisturbed[N + 1];
static uint32_t queries[N + 1][QUERY];
static uint32_t waits[N + 1]; /* steps since the last token of each */

static enum status
hear_begin_step(const struct ops *ops, struct attn_step step)
{
    singles_most = step.n_decode > singles_most ? step.n_decode : singles_most;
    return real.begin_step(ops, step);
}

static enum status
hear_alloc_host(const struct ops *ops, size_t bytes, void **memory_out)
{
    n_allocated++;
    return real.alloc_host(ops, bytes, memory_out);
}

static struct rig_request
request_of(uint64_t id, size_t n_query)
{
    return (struct rig_request){.id = id,
                                .query = queries[id],
                                .n_query = n_query,
                                .max_tokens = TOKENS,
                                .temperature = 0.8f,
                                .seed = id,
                                .ignores_end = true};
}

static void
assign(struct rig *rig, uint64_t id, size_t n_query)
{
    struct rig_request request = request_of(id, n_query);

    rig_assign(rig, &request);
}

static void
assign_all(struct rig *rig, size_t n_query)
{
    for (uint64_t id = 1; id <= N; id++) {
        assign(rig, id, n_query);
    }
}

/* Nobody has asked; at most `singles` a step, 0: all. */
static void
begin(struct rig *rig, uint32_t singles)
{
    rig->ops->step_singles_max = singles;
    rig->ops->step_single_segs_max = OPS_STEP_SEGS_MIN;
    rig_restart(rig, &config);
    memset(waits, 0, sizeof(waits));
    singles_most = 0;
}

/* A step, after which every answer that has begun and not ended has waited less than IN_TURN. */
static bool
step_in_turn(struct rig *rig)
{
    size_t before[N + 1];

    for (uint32_t id = 1; id <= N; id++) {
        before[id] = rig->heard[id].n_ids;
    }
    bool is_more = rig_step(rig);

    for (uint32_t id = 1; id <= N; id++) {
        const struct rig_heard *heard = &rig->heard[id];
        bool is_waiting = heard->n_ids == before[id] && heard->n_ids > 0 && heard->finish < 0;

        waits[id] = is_waiting ? waits[id] + 1 : 0;
        ck_assert_msg(!is_more || waits[id] < IN_TURN, "%u waits %u steps", id, waits[id]);
    }
    return is_more;
}

static struct rig *
open_rig(void)
{
    config = rig_defaults();
    config.step_tokens = 256;
    config.seqs_max = N + 1;
    struct rig *rig = rig_new(&config);

    real = *rig->ops;
    rig->ops->begin_step = hear_begin_step;
    rig->ops->alloc_host = hear_alloc_host;
    for (uint32_t id = 1; id <= N; id++) {
        fill_ids(queries[id], QUERY, 100 + id);
    }
    begin(rig, 0);
    assign_all(rig, QUERY);
    rig_run(rig);
    ck_assert_uint_eq(singles_most, N);
    memcpy(undisturbed, rig->heard, sizeof(undisturbed));
    return rig;
}

static void
check_texts(const struct rig *rig, uint64_t except)
{
    for (uint64_t id = 1; id <= N; id++) {
        ck_assert_uint_eq(undisturbed[id].n_ids, TOKENS);
        if (id != except) {
            check_same_answer(&undisturbed[id], &rig->heard[id]);
        }
    }
    ck_assert_uint_eq(engine_open(rig->engine), 0);
}

START_TEST(ten_answers_on_a_device_for_four_have_a_token_every_three_steps)
{
    struct rig *rig = open_rig();

    begin(rig, SINGLES);
    assign_all(rig, QUERY);
    uint32_t steps = rig->steps;

    n_allocated = 0;
    while (step_in_turn(rig)) {
    }
    ck_assert_uint_eq(singles_most, SINGLES);
    ck_assert_uint_eq(n_allocated, 0);
    /* The prompts are one step; then no place of a step stays empty but in the last. */
    ck_assert_uint_eq(rig->steps - steps, 1 + (N * (TOKENS - 1) + SINGLES - 1) / SINGLES);
    check_texts(rig, 0);
    rig_destroy(&rig);
}
END_TEST

START_TEST(whoever_chooses_the_limit_has_it_in_place_of_the_devices)
{
    struct rig *rig = open_rig();

    config.decodes_max = 7;
    begin(rig, SINGLES);
    assign_all(rig, QUERY);
    rig_run(rig);
    ck_assert_uint_eq(singles_most, 7);
    check_texts(rig, 0);
    rig_destroy(&rig);
}
END_TEST

/* Whoever's turn it is goes away, be it known to the step planned ahead or not. */
START_TEST(a_cancelled_answer_takes_nobodys_turn)
{
    struct rig *rig = open_rig();

    for (uint64_t gone = 1; gone <= N; gone++) {
        begin(rig, SINGLES);
        assign_all(rig, QUERY);
        for (uint64_t i = 0; i < 3 + gone % 3; i++) {
            ck_assert(step_in_turn(rig));
        }
        rig_stop(rig, gone);
        rig->heard[gone].finish = 0; /* it waits for nothing */
        while (step_in_turn(rig)) {
        }
        ck_assert_uint_eq(rig->heard[gone].n_released, 1);
        check_texts(rig, gone);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_preempted_answer_comes_back_among_those_that_take_turns)
{
    static struct rig_heard before;
    struct rig *rig = open_rig();

    for (uint64_t id = 1; id <= N; id += 3) {
        begin(rig, SINGLES);
        assign_all(rig, QUERY);
        for (uint64_t i = 0; i < 4 + id; i++) {
            ck_assert(step_in_turn(rig));
        }
        rig_stop(rig, id);
        ck_assert(step_in_turn(rig));
        before = rig->heard[id];
        struct rig_request again = request_of(id, QUERY);

        again.sent = before.ids;
        again.n_sent = before.n_ids;
        again.sent_text_bytes = (uint32_t)before.n_text;
        rig_assign(rig, &again);
        while (step_in_turn(rig)) {
        }
        check_texts(rig, 0);
    }
    rig_destroy(&rig);
}
END_TEST

/* One that comes late does not wait for the end of the others, nor do they for it. */
START_TEST(one_that_comes_later_has_its_turn_like_the_others)
{
    struct rig *rig = open_rig();

    begin(rig, SINGLES);
    for (uint64_t id = 1; id <= N; id++) {
        assign(rig, id, QUERY);
        ck_assert(step_in_turn(rig));
        ck_assert_uint_eq(rig->heard[id].n_ids, 1);
    }
    while (step_in_turn(rig)) {
    }
    check_texts(rig, 0);
    rig_destroy(&rig);
}
END_TEST

/* To the device a question of one token is a decode: it comes in turn, not when all others end. */
START_TEST(questions_of_one_token_take_turns_with_answers)
{
    static struct rig_heard expected[N + 1];
    struct rig *rig = open_rig();

    for (uint32_t singles = 0; singles <= SINGLES; singles += SINGLES) {
        begin(rig, singles);
        assign_all(rig, 1);
        for (uint32_t i = 0; i < IN_TURN; i++) {
            ck_assert(rig_step(rig));
        }
        for (uint64_t id = 1; id <= N; id++) {
            ck_assert_uint_ge(rig->heard[id].n_ids, 1);
        }
        while (step_in_turn(rig)) {
        }
        ck_assert_uint_eq(singles_most, singles > 0 ? SINGLES : N);
        for (uint64_t id = 1; id <= N; id++) {
            if (singles == 0) {
                expected[id] = rig->heard[id];
            }
            check_same_answer(&expected[id], &rig->heard[id]);
        }
    }
    rig_destroy(&rig);
}
END_TEST

/* The first from `from` on that is a character by itself. */
static char
letter_of(const struct rig_heard *heard, size_t from)
{
    while (from < heard->n_text && (heard->text[from] & 0x80) != 0) {
        from++;
    }
    ck_assert_uint_lt(from, heard->n_text);
    return heard->text[from];
}

/* A text that ends where nobody foresaw it makes the step planned ahead void, and with it the turn
 * that this one gave. */
START_TEST(a_plan_made_in_vain_costs_nobody_a_turn)
{
    struct rig *rig = open_rig();
    char stops[N + 1][2] = {{0}};

    begin(rig, SINGLES);
    for (uint64_t id = 1; id <= N; id++) {
        struct rig_request request = request_of(id, QUERY);

        stops[id][0] = letter_of(&undisturbed[id], 3 + id);
        request.stops[0] = stops[id];
        request.n_stops = id % 2;
        rig_assign(rig, &request);
    }
    while (step_in_turn(rig)) {
    }
    for (uint64_t id = 1; id <= N; id++) {
        ck_assert_int_eq(rig->heard[id].finish, id % 2 == 1
                                                    ? KVASIR__V1__FINISH_REASON__FINISH_STOP
                                                    : KVASIR__V1__FINISH_REASON__FINISH_LENGTH);
        ck_assert_mem_eq(rig->heard[id].ids, undisturbed[id].ids,
                         rig->heard[id].n_ids * sizeof(uint32_t));
    }
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_turns", ten_answers_on_a_device_for_four_have_a_token_every_three_steps,
           whoever_chooses_the_limit_has_it_in_place_of_the_devices,
           a_cancelled_answer_takes_nobodys_turn,
           a_preempted_answer_comes_back_among_those_that_take_turns,
           one_that_comes_later_has_its_turn_like_the_others,
           questions_of_one_token_take_turns_with_answers, a_plan_made_in_vain_costs_nobody_a_turn)
