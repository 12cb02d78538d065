/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants that compete: each gets its share, whatever the others do. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

#define SEQS   8
#define TOKENS 20 /* of an answer: as many steps */
#define FLOOD  1000

static struct world_config
machine(void)
{
    return (struct world_config){.block_count = 400,
                                 .block_tokens = 4,
                                 .reserve_tokens = TOKENS,
                                 .workers = 1,
                                 .seqs_max = SEQS,
                                 .build_tokens = 16};
}

static uint64_t
submit(struct world *world, const char *tenant, uint32_t weight)
{
    return world_submit(
        world,
        (struct world_ask){.query = 5, .max_tokens = TOKENS, .tenant = tenant, .weight = weight});
}

static void
flood(struct world *world, const char *tenant, uint32_t weight, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)submit(world, tenant, weight);
    }
}

/* Answers of requests [first, last] that have ended. */
static uint32_t
ended(const struct world *world, uint64_t first, uint64_t last)
{
    uint32_t count = 0;

    for (uint64_t id = first; id <= last; id++) {
        count += world_get(world, id)->is_ended && world_get(world, id)->end == SCHED_END_OK;
    }
    return count;
}

START_TEST(a_flood_delays_nobody_else_by_more_than_the_answers_that_run)
{
    struct world *world = world_new(machine());

    flood(world, "flood", 1, FLOOD);
    (void)world_run(world, 7 * TOKENS / 2);
    for (int round = 0; round < 5; round++) {
        uint64_t id = submit(world, "calm", 1);
        uint32_t steps = 0;

        while (!world_get(world, id)->is_ended) {
            (void)world_step(world, 0);
            steps++;
        }
        ck_assert_uint_le(steps, 2 * TOKENS + 2);
    }
    world_run(world, 100000);
    ck_assert_uint_eq(ended(world, 1, FLOOD + 5), FLOOD + 5);
    world_destroy(world);
}
END_TEST

/* A calm tenant that keeps one request going gets all of it done at the pace of a machine that it
 * shares with one other tenant; that one may flood as it likes. */
START_TEST(a_calm_tenant_beside_a_flood_is_as_fast_as_beside_a_single_request)
{
    uint32_t steps[2] = {0};

    for (int i = 0; i < 2; i++) {
        struct world *world = world_new(machine());

        flood(world, "other", 1, i == 0 ? SEQS : FLOOD);
        for (int n = 0; n < 20; n++) {
            uint64_t id = submit(world, "calm", 1);

            while (!world_get(world, id)->is_ended) {
                (void)world_step(world, 0);
                steps[i]++;
            }
        }
        world_run(world, 100000);
        world_destroy(world);
    }
    printf("20 requests took %u steps beside %d, %u beside %d\n", steps[0], SEQS, steps[1], FLOOD);
    ck_assert_uint_le(steps[1], 2 * steps[0]); /* a place comes free within an answer's time */
}
END_TEST

START_TEST(work_goes_by_weight)
{
    static const uint32_t weights[] = {1, 2, 5};
    static const char *const tenants[] = {"one", "two", "five"};
    struct world *world = world_new(machine());

    for (uint32_t i = 0; i < FLOOD / 2; i++) { /* all of them at once */
        for (int t = 0; t < 3; t++) {
            (void)submit(world, tenants[t], weights[t]);
        }
    }
    (void)world_run(world, 100 * TOKENS);
    uint32_t done[3] = {0}, all = 0;

    for (uint64_t id = 1; id <= 3 * (FLOOD / 2); id++) {
        done[(id - 1) % 3] += ended(world, id, id);
    }
    all = done[0] + done[1] + done[2];
    printf("of %u answers: %u, %u, %u\n", all, done[0], done[1], done[2]);
    ck_assert_uint_gt(all, 500);
    for (int t = 0; t < 3; t++) {
        ck_assert_uint_ge(done[t] * 8 * 100, all * weights[t] * 95);
        ck_assert_uint_le(done[t] * 8 * 100, all * weights[t] * 105);
    }
    world_run(world, 100000);
    world_destroy(world);
}
END_TEST

START_TEST(quiet_times_are_not_saved_up)
{
    struct world *world = world_new(machine());
    uint64_t first;

    (void)submit(world, "late", 1);
    flood(world, "busy", 1, FLOOD / 2);
    (void)world_run(world, 40 * TOKENS);
    first = submit(world, "late", 1);
    flood(world, "late", 1, FLOOD / 2 - 1);
    uint32_t before = ended(world, 2, FLOOD / 2 + 1);

    (void)world_run(world, 10 * TOKENS);
    uint32_t late = ended(world, first, first + FLOOD / 2 - 1);
    uint32_t busy = ended(world, 2, FLOOD / 2 + 1) - before;

    ck_assert_uint_le(late, busy + 2 * SEQS); /* those that ran when it came were the other's */
    ck_assert_uint_le(busy, late + 2 * SEQS);
    world_run(world, 100000);
    world_destroy(world);
}
END_TEST

START_TEST(documents_to_encode_cost_their_tenant_its_turn)
{
    struct world *world = world_new(machine());
    uint32_t cold = 0, plain = 0;

    for (uint32_t i = 0; i < 200; i++) { /* 95 tokens more than the other's */
        uint32_t doc = 95000 + i;

        (void)world_submit(
            world,
            (struct world_ask){
                .docs = &doc, .doc_count = 1, .query = 5, .max_tokens = TOKENS, .tenant = "cold"});
        (void)submit(world, "plain", 1);
    }
    (void)world_run(world, 12 * TOKENS);
    for (uint64_t id = 1; id <= 400; id += 2) {
        cold += ended(world, id, id);
        plain += ended(world, id + 1, id + 1);
    }
    ck_assert_uint_gt(cold, 0);
    ck_assert_uint_ge(plain, 4 * cold);
    world_run(world, 100000);
    world_destroy(world);
}
END_TEST

START_TEST(in_a_full_queue_a_flood_gives_way_to_others_and_not_to_itself)
{
    struct world_config config = machine();

    config.waiting_max = 100;
    struct world *world = world_new(config);
    uint64_t last, calm;

    flood(world, "flood", 1, SEQS + 100);
    last = submit(world, "flood", 1);
    ck_assert_int_eq(world_get(world, last)->end, SCHED_END_FULL);
    calm = submit(world, "calm", 1);
    ck_assert(!world_get(world, calm)->is_ended);
    ck_assert(world_get(world, SEQS + 100)->is_ended); /* its last one */
    ck_assert_int_eq(world_get(world, SEQS + 100)->end, SCHED_END_FULL);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_displaced, 1);
    flood(world, "calm", 1, 200); /* no better than the other one: it gets half of the places */
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_displaced, 50);
    ck_assert_uint_eq(sched_gauges(world_sched(world)).waiting, 100);
    world_run(world, 100000);
    ck_assert_int_eq(world_get(world, calm)->end, SCHED_END_OK);
    world_destroy(world);
}
END_TEST

START_TEST(a_request_that_does_not_fit_yet_is_still_passed_a_bounded_number_of_times)
{
    struct world_config config = machine();

    config.block_count = 60;
    struct world *world = world_new(config);
    uint64_t big;

    flood(world, "flood", 1, FLOOD);
    (void)world_run(world, TOKENS / 2);
    big = world_submit(world, (struct world_ask){.query = 200, .max_tokens = 10, .tenant = "calm"});
    (void)world_run(world, 8 * TOKENS); /* 16 passes are two fillings of the machine */
    ck_assert_int_eq(world_get(world, big)->end, SCHED_END_OK);
    ck_assert(world_get(world, big)->is_ended);
    world_run(world, 100000);
    world_destroy(world);
}
END_TEST

/* One of the flood goes first for its priority; the flood's own turn is no later for that, and so
 * neither is the turn of who comes then. */
START_TEST(who_comes_in_out_of_turn_sets_no_new_tenant_behind_those_it_has_passed)
{
    static const struct {
        uint32_t flood, urgent;
    } table[] = {{500, 1}, {500, 5}, {20, 1}, {SEQS, 1}};

    for (size_t row = 0; row < sizeof(table) / sizeof(table[0]); row++) {
        struct world *world = world_new(machine());
        uint64_t calm;

        flood(world, "flood", 1, SEQS + table[row].flood);
        for (uint32_t i = 0; i < table[row].urgent; i++) {
            (void)world_submit(
                world, (struct world_ask){
                           .query = 5, .max_tokens = TOKENS, .tenant = "flood", .priority = 1});
        }
        (void)world_run(world, TOKENS + 2); /* those in front are done, the urgent are in */
        calm = submit(world, "calm", 1);
        (void)world_run(world, 2 * TOKENS + 4);
        ck_assert(world_get(world, calm)->is_ended);
        ck_assert_int_eq(world_get(world, calm)->end, SCHED_END_OK);
        world_run(world, 100000);
        world_destroy(world);
    }
}
END_TEST

/* Nine of ten of its requests leave before they come in; what they would have cost is not held
 * against the others. */
START_TEST(a_tenant_whose_requests_leave_unserved_still_gets_its_share)
{
    enum leaving {
        CANCEL,
        DEADLINE,
        LEAVINGS
    };

    for (int leaving = 0; leaving < LEAVINGS; leaving++) {
        struct world *world = world_new(machine());
        uint64_t eager, first;
        uint32_t count = 400;

        flood(world, "steady", 1, FLOOD);
        eager = FLOOD + 1;
        for (uint32_t i = 0; i < count; i++) {
            (void)world_submit(
                world, (struct world_ask){.query = 5,
                                          .max_tokens = TOKENS,
                                          .tenant = "eager",
                                          .timeout_us = leaving == DEADLINE && i % 10 > 0 ? 1 : 0});
        }
        for (uint32_t i = 0; i < count && leaving == CANCEL; i++) {
            if (i % 10 > 0) {
                (void)world_cancel(world, eager + i, false);
            }
        }
        world_pass(world, 2);
        first = eager + count;
        flood(world, "eager", 1, FLOOD / 2); /* and those that come now */
        (void)world_run(world, 40 * TOKENS);
        uint32_t steady = ended(world, 1, FLOOD);
        uint32_t served = ended(world, eager, first + FLOOD / 2 - 1);

        printf("steady %u, eager %u\n", steady, served);
        ck_assert_uint_gt(served, 100);
        ck_assert_uint_le(steady, served + 2 * SEQS);
        world_run(world, 100000);
        world_destroy(world);
    }
}
END_TEST

CHECK_MAIN("sched_share", a_flood_delays_nobody_else_by_more_than_the_answers_that_run,
           a_calm_tenant_beside_a_flood_is_as_fast_as_beside_a_single_request, work_goes_by_weight,
           quiet_times_are_not_saved_up, documents_to_encode_cost_their_tenant_its_turn,
           in_a_full_queue_a_flood_gives_way_to_others_and_not_to_itself,
           a_request_that_does_not_fit_yet_is_still_passed_a_bounded_number_of_times,
           who_comes_in_out_of_turn_sets_no_new_tenant_behind_those_it_has_passed,
           a_tenant_whose_requests_leave_unserved_still_gets_its_share)
