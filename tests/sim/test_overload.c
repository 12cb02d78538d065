/* SPDX-License-Identifier: Apache-2.0 */
/* Twice the load that can be served: what is finished in time stays what it was at the peak, and
 * when the load goes everybody is served again at once. */
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

#define WORKERS     2
#define ROUND_US    1000
#define DEADLINE_US (60 * ROUND_US) /* an answer alone takes a third of it */
#define TOKENS      20

static uint32_t carry; /* of a fraction of a request, in thousandths */

/* Rounds in which `per_mille` thousandths of a request come each, and every worker makes a step.
 * Returns how many answers ended in time. */
static uint32_t
run(struct world *world, uint32_t rounds, uint32_t per_mille)
{
    uint64_t before = sched_counters(world_sched(world))->requests_finished;

    for (uint32_t round = 0; round < rounds; round++) {
        for (carry += per_mille; carry >= 1000; carry -= 1000) {
            world_submit(world, (struct world_ask){
                                    .query = 5, .max_tokens = TOKENS, .timeout_us = DEADLINE_US});
        }
        for (uint32_t i = 0; i < WORKERS; i++) {
            (void)world_step(world, i);
        }
        world_pass(world, ROUND_US);
    }
    return (uint32_t)(sched_counters(world_sched(world))->requests_finished - before);
}

START_TEST(at_twice_the_capacity_as_much_is_finished_as_at_the_peak)
{
    struct world *world = world_new((struct world_config){.block_count = 400,
                                                          .block_tokens = 4,
                                                          .reserve_tokens = 8,
                                                          .waiting_max = 1000, /* far too long */
                                                          .workers = WORKERS,
                                                          .seqs_max = 8,
                                                          .build_tokens = 16});
    uint32_t capacity = WORKERS * 8 * 1000 / TOKENS; /* a token a step */

    (void)run(world, 200, capacity);
    uint32_t peak = run(world, 400, capacity * 95 / 100);
    uint32_t over = run(world, 800, 2 * capacity) / 2;
    uint64_t finished = sched_counters(world_sched(world))->requests_finished;

    printf("finished in 400 rounds: %u at 95 %% of capacity, %u at 200 %%\n", peak, over);
    ck_assert_uint_ge(10 * over, 9 * peak);

    /* Half the capacity: after the time of one answer nobody misses his deadline any more. */
    (void)run(world, TOKENS + DEADLINE_US / ROUND_US, capacity / 2);
    uint64_t missed = sched_counters(world_sched(world))->deadlines_passed;

    (void)run(world, 300, capacity / 2);
    ck_assert_uint_eq(sched_counters(world_sched(world))->deadlines_passed, missed);
    ck_assert_uint_gt(sched_counters(world_sched(world))->requests_finished, finished);
    ck_assert_uint_gt(sched_counters(world_sched(world))->requests_hopeless, 0);
    world_run(world, 1000);
    ck_assert_uint_eq(world_open(world), 0);
    world_check_clean(world);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("overload", at_twice_the_capacity_as_much_is_finished_as_at_the_peak)
