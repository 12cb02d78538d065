/* SPDX-License-Identifier: Apache-2.0 */
/* The real scheduler through thousands of random events: requests of all sizes, cancels, deadlines,
 * clients that go, workers that answer late, fall silent, die and come back, operators who pin,
 * forget and prioritise, a host tier of any size whose memory changes; under each eviction policy.
 * sched_world checks every event; here we check that in the end every request has ended and the
 * pool is clean. */
#include "common/htab.h"
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

#define EVENTS     2000
#define RUNS       SCENE(24, 24, 14)
#define REQUESTS   500
#define SLICE      5  /* steps between two bits that flip, while what is open comes to its end */
#define VISITS     12 /* documents; together more than the largest pool */
#define ROUNDS     5  /* in which they come back */
#define PIN_US_MAX 2000

static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state++;
    return (uint32_t)(htab_mix(random_state) % limit);
}

/* The documents of the last request: half of all ask about the same again. */
struct last {
    uint32_t docs[6];
    uint32_t count;
    enum reuse_mode mode;
};

static struct last last;

static void
choose_documents(void)
{
    last.count = below(6);
    last.mode = below(2) == 0 ? REUSE_LAZY : below(REUSE_MODES);
    for (uint32_t i = 0; i < last.count; i++) {
        /* A few popular documents, 0 to 40 tokens; the id says the length. */
        uint32_t rank = below(4) == 0 ? below(40) : below(6);

        last.docs[i] = (rank * 7 % 41) * 1000 + rank;
    }
}

static void
submit_random(struct world *world, uint32_t block_count)
{
    uint32_t own_max = block_count * 2; /* in tokens; blocks hold 4 */

    if (below(2) != 0) {
        choose_documents();
    }
    bool is_warm = last.count > 0 && below(12) == 0;
    static const char *const tenants[] = {NULL, "a", "b", "c"};

    world_submit(world, (struct world_ask){
                            .docs = last.docs,
                            .doc_count = last.count,
                            .query = 1 + below(20),
                            .max_tokens = 1 + below(own_max),
                            .priority = below(3) * 50,
                            .tenant = tenants[below(4)],
                            .weight = below(4),
                            .timeout_us = below(10) == 0 ? 1 + below(300) : 0,
                            .is_warm = is_warm,
                            .keep_turn = !is_warm && below(4) != 0,
                            .reuse = last.mode,
                        });
}

/* Often followed by a request that would rather have its blocks. */
static void
warm_random(struct world *world, uint32_t block_count, uint32_t *submitted)
{
    uint32_t rank = below(40);

    world_evict(world, below(40)); /* it takes free blocks only */
    (void)world_warm(world, (rank * 7 % 41 + 10) * 1000 + 500 + rank, below(4) == 0);
    ++*submitted;
    if (below(3) != 0) {
        submit_random(world, block_count);
        ++*submitted;
    }
}

/* Documents are pinned for a while only, so that everybody gets in at last. */
static void
steer_random(struct world *world, uint64_t done[WORLD_WISHES])
{
    uint32_t rank = below(3) == 0 ? below(40) : below(6);
    enum world_wish wish = (enum world_wish)below(WORLD_WISHES);

    done[wish] +=
        world_steer(world, wish, (rank * 7 % 41) * 1000 + rank, 1 + below(PIN_US_MAX)) == ST_OK;
}

static void
disturb_worker(struct world *world, uint32_t worker, bool *is_silent)
{
    switch (below(4)) {
    case 0:
        if (world_is_alive(world, worker)) {
            (below(2) == 0 && !*is_silent ? world_farewell : world_kill)(world, worker);
            *is_silent = false;
        }
        break;
    case 1:
        if (world_is_alive(world, worker) && !*is_silent) {
            world_silence(world, worker);
            *is_silent = true;
        }
        break;
    default:
        if (!world_is_alive(world, worker)) {
            world_start(world, worker);
        }
    }
}

/* In quiet times few requests come, so that workers have time for documents that nobody asked for.
 */
static void
random_event(struct world *world, struct world_config config, bool is_quiet, uint32_t *submitted,
             bool is_silent[WORLD_WORKERS_MAX], uint64_t steered[WORLD_WISHES])
{
    uint32_t worker = below(config.workers);

    switch (below(17)) {
    case 16: steer_random(world, steered); break;
    case 0:
    case 1:
    case 2:
        if (*submitted < REQUESTS && (!is_quiet || below(20) == 0)) {
            submit_random(world, config.block_count);
            ++*submitted;
        }
        break;
    case 3:
        if (*submitted > 0 && below(2) == 0) {
            (void)world_cancel(world, 1 + below(*submitted + 3), below(2) == 0);
        }
        break;
    case 4: world_pass(world, below(20)); break;
    case 5: /* its report is late, comes twice, after the next or never */
        world_work(world, worker);
        if (below(8) == 0) {
            world_repeat(world, worker);
        } else if (below(60) == 0) {
            (below(2) == 0 ? world_lose : world_reorder)(world, worker);
            is_silent[worker] = true;
        }
        break;
    case 6:
        if (below(8) == 0) {
            disturb_worker(world, worker, &is_silent[worker]);
        }
        break;
    case 7:
    case 8:
        if (*submitted < REQUESTS && is_quiet) {
            warm_random(world, config.block_count, submitted);
        } else if (!is_quiet) {
            world_evict(world, below(3));
        }
        break;
    default: (void)world_step(world, worker); break;
    }
}

static void
spoil(struct world *world, struct world_config config)
{
    if (config.host_places > 0) {
        world_spoil(world, below(config.host_places));
    }
}

static void
ask_alone(struct world *world, uint32_t doc)
{
    (void)world_submit(
        world, (struct world_ask){.docs = &doc, .doc_count = 1, .query = 2, .max_tokens = 1});
    (void)world_run(world, 200);
}

/* What chance may leave out of a run is in each: documents leave the pool and are asked for again,
 * and operators do all that they can to those that are there. */
static void
visit_all(struct world *world, uint64_t done[WORLD_WISHES])
{
    world_pass(world, PIN_US_MAX + 1);
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < VISITS; i++) {
            ask_alone(world, (20 + i) * 1000 + 700 + i);
        }
        if (round + 1 < ROUNDS) {
            world_evict(world, UINT32_MAX);
        }
    }
    for (uint32_t i = VISITS - 3; i < VISITS; i++) {
        for (uint32_t w = 0; w < WORLD_WISHES; w++) {
            enum world_wish wish = (enum world_wish)((w + WORLD_PIN) % WORLD_WISHES);

            if (wish != WORLD_FORGET) {
                done[wish] += world_steer(world, wish, (20 + i) * 1000 + 700 + i, 1 + i) == ST_OK;
            }
        }
        done[WORLD_FORGET] +=
            world_steer(world, WORLD_FORGET, (20 + i) * 1000 + 700 + i, 1) == ST_OK;
        (void)world_run(world, 200);
    }
}

static void
settle(struct world *world, struct world_config config, uint64_t done[WORLD_WISHES])
{
    for (uint32_t i = 0; i < config.workers; i++) {
        if (world_is_alive(world, i)) {
            world_kill(world, i);
        }
        world_start(world, i);
    }
    sched_set_scrub_interval(world_sched(world), 0); /* or there would be no end */
    for (uint32_t steps = 0; world_run(world, SLICE) == SLICE; steps += SLICE) {
        ck_assert_uint_lt(steps, 200000);
        spoil(world, config);
    }
    for (uint32_t i = 0; i < 4; i++) { /* found, so that it may be drawn to be computed again */
        ask_alone(world, 8001);
    }
    visit_all(world, done);
    sched_set_scrub_interval(world_sched(world), 1);
    for (uint32_t i = 0; i < 20; i++) { /* now there is time to read everything again */
        world_pass(world, 1);
        (void)world_run(world, SLICE);
    }
}

/* By hand: SIM_RUNS=1000 is two million events. */
static uint32_t
runs(void)
{
    const char *text = getenv("SIM_RUNS");

    return text == NULL ? RUNS : (uint32_t)strtoul(text, NULL, 10);
}

static struct world_config
random_config(uint32_t run)
{
    return (struct world_config){
        .block_count = 40 + below(60),
        .block_tokens = 4,
        .policy = evict_policy_find(evict_policy_names[run % 4]),
        .reserve_tokens = 1 + below(16),
        .waiting_max = 50 + below(500),
        .workers = 1 + below(3),
        .seqs_max = 1 + below(8),
        .build_tokens = 1 + below(20),
        .host_places = run % 3 == 2 ? 0 : 20 + below(200),
        .verify_share = run % 3 == 0 ? 0 : 0.5,
        .scrub_us = run % 4 == 3 ? 0 : 1 + below(60),
    };
}

START_TEST(whatever_happens_every_request_ends_once_and_the_pool_is_clean)
{
    unsigned long long seed = test_seed();
    uint32_t ends[SCHED_END_DAMAGED + 1] = {0};
    uint64_t preempted = 0, requeued = 0, copies = 0, warmed = 0, stopped = 0, followed = 0;
    uint64_t loaded = 0, bad = 0, checked = 0, erased = 0, brought_back = 0, verified = 0;
    uint64_t steered[WORLD_WISHES] = {0}, missed = 0;

    for (uint32_t run = 0; run < runs(); run++) {
        struct world_config config;
        struct world *world;
        uint32_t submitted = 0;
        bool is_silent[WORLD_WORKERS_MAX] = {false};

        random_state = htab_mix(seed * 1000 + run);
        config = random_config(run);
        world = world_new(config);
        for (uint32_t i = 0; i < EVENTS; i++) {
            if (below(8) == 0) {
                spoil(world, config);
            }
            random_event(world, config, i / (EVENTS / 8) % 2 == 0, &submitted, is_silent, steered);
        }
        settle(world, config, steered);
        ck_assert_uint_eq(world_open(world), 0);
        world_check_clean(world);
        for (uint32_t id = 1; id <= submitted; id++) {
            ends[world_get(world, id)->end]++;
        }
        preempted += sched_counters(world_sched(world))->requests_preempted;
        requeued += sched_counters(world_sched(world))->requests_requeued;
        followed += sched_counters(world_sched(world))->requests_followed_up;
        warmed += sched_counters(world_sched(world))->docs_warmed;
        stopped += sched_counters(world_sched(world))->background_stopped;
        copies += sched_counters(world_sched(world))->copies_made;
        loaded += sched_counters(world_sched(world))->docs_loaded;
        bad += sched_counters(world_sched(world))->loads_bad;
        checked += sched_counters(world_sched(world))->docs_checked;
        erased += world_erased(world);
        brought_back += world_brought_back(world);
        verified += sched_counters(world_sched(world))->docs_verified;
        missed += sched_counters(world_sched(world))->messages_missed;
        ck_assert_uint_eq(world_damaged(world), 0); /* no alarm without damage */
        world_destroy(world);
    }
    printf("ok %u, cancelled %u, deadline %u, never fits %u, full %u, failed %u; preempted %llu, "
           "requeued %llu, copies %llu, warmed %llu, gave way %llu, followed up %llu, loaded %llu, "
           "bad %llu, checked %llu, erased %llu (%llu were brought back meanwhile), "
           "verified %llu\n",
           ends[SCHED_END_OK], ends[SCHED_END_CANCELLED], ends[SCHED_END_DEADLINE],
           ends[SCHED_END_NEVER_FITS], ends[SCHED_END_FULL], ends[SCHED_END_FAILED],
           (unsigned long long)preempted, (unsigned long long)requeued, (unsigned long long)copies,
           (unsigned long long)warmed, (unsigned long long)stopped, (unsigned long long)followed,
           (unsigned long long)loaded, (unsigned long long)bad, (unsigned long long)checked,
           (unsigned long long)erased, (unsigned long long)brought_back,
           (unsigned long long)verified);
    /* A simulation in which nothing happens proves nothing. */
    ck_assert_uint_gt(checked, 100);
    ck_assert_uint_gt(erased - brought_back, 10);
    ck_assert_uint_gt(verified, 0);
    ck_assert_uint_gt(missed, 3);
    ck_assert_uint_gt(ends[SCHED_END_OK], 100);
    ck_assert_uint_gt(ends[SCHED_END_DEADLINE], 10);
    ck_assert_uint_gt(preempted, 10);
    ck_assert_uint_gt(requeued, 10);
    for (int wish = 0; wish < WORLD_WISHES; wish++) {
        ck_assert_uint_gt(steered[wish], 10);
    }
    ck_assert_uint_gt(copies, 100);
    ck_assert(warmed > 0 && followed > 0);
    ck_assert_uint_gt(loaded, 100);
    ck_assert_uint_gt(bad, 3);
}
END_TEST

CHECK_MAIN("sched_sim", whatever_happens_every_request_ends_once_and_the_pool_is_clean)
