/* SPDX-License-Identifier: Apache-2.0 */
/* isolation=constant-time: a tenant asks once about each of 200 shared documents, half of which
 * another tenant has used before, and tries to tell which from the time to the first token. */
#include <stdlib.h>
#include <string.h>

#include "common/htab.h"
#include "tests/support/check_main.h"
#include "tests/support/sched_world.h"

#define PROBES  200
#define SPIES   8
#define STEP_US 1000

static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state++;
    return (uint32_t)(htab_mix(random_state) % limit);
}

static struct world *
new_world(bool is_constant_time)
{
    return world_new((struct world_config){.block_count = 16000,
                                           .block_tokens = 4,
                                           .reserve_tokens = 8,
                                           .workers = 1,
                                           .seqs_max = 8,
                                           .build_tokens = 16,
                                           .is_constant_time = is_constant_time,
                                           .is_quiet = true});
}

static uint64_t
submit(struct world *world, const char *tenant, uint32_t doc)
{
    return world_submit(world, (struct world_ask){.docs = &doc,
                                                  .doc_count = 1,
                                                  .query = 3,
                                                  .max_tokens = 2,
                                                  .tenant = tenant,
                                                  .is_shared = true});
}

/* Asks and waits for the end; the time to the first token.  A step takes a millisecond or so. */
static double
ask(struct world *world, const char *tenant, uint32_t doc)
{
    uint64_t start_us = world_now(world);
    uint64_t id = submit(world, tenant, doc);

    while (!world_get(world, id)->is_ended) {
        (void)world_step(world, 0);
        world_pass(world, STEP_US * 3 / 4 + below(STEP_US / 2));
    }
    ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
    return (double)(world_get(world, id)->first_us - start_us);
}

/* 96 to 159 tokens, each its own. */
static uint32_t
make_doc(uint32_t number)
{
    return (96 + below(64)) * 1000 + number;
}

/* The share of pairs of a cold and a hot probe in which the cold one takes longer: 0.5 says
 * nothing, 1 all. */
static double
area_under_curve(const double *us, const bool *is_hot)
{
    double wins = 0, pairs = 0;

    for (int i = 0; i < PROBES; i++) {
        for (int j = 0; j < PROBES; j++) {
            if (is_hot[j] && !is_hot[i]) {
                wins += us[i] > us[j] ? 1 : us[i] < us[j] ? 0 : 0.5;
                pairs++;
            }
        }
    }
    return wins / pairs;
}

/* By time a token, since lengths are known to who asks. */
static double
spy(bool is_constant_time)
{
    struct world *world = new_world(is_constant_time);
    uint32_t docs[PROBES];
    bool is_hot[PROBES];
    double us[PROBES];

    for (int i = 0; i < PROBES; i++) {
        docs[i] = make_doc((uint32_t)i);
        is_hot[i] = below(2) == 0;
        if (is_hot[i]) {
            (void)ask(world, "victim", docs[i]);
        }
    }
    for (int i = 0; i < PROBES; i++) {
        us[i] = ask(world, "spy", docs[i]) / world_doc_tokens(docs[i]);
    }
    world_destroy(world);
    return area_under_curve(us, is_hot);
}

START_TEST(a_first_use_does_not_tell_whether_others_have_used_a_document)
{
    random_state = htab_mix(test_seed());
    double open = spy(false), mean = 0;

    ck_assert(open > 0.99); /* or there would be nothing to hide */
    for (int i = 0; i < SPIES; i++) {
        double closed = spy(true);

        /* Of a coin too 200 probes are 0.4 to 0.6 only in 98 of 100 cases. */
        ck_assert(closed > 0.35 && closed < 0.65);
        mean += closed / SPIES;
    }
    printf("area under the curve: %.3f without isolation, %.3f with it\n", open, mean);
    ck_assert(mean > 0.4 && mean < 0.6);
}
END_TEST

START_TEST(the_second_use_is_as_fast_as_the_document_is_there)
{
    struct world *world = new_world(true);
    double first, second, cold;

    for (uint32_t i = 0; i < 20; i++) {
        (void)ask(world, "victim", make_doc(i));
    }
    cold = ask(world, "victim", 120900);
    first = ask(world, "spy", 120900);
    second = ask(world, "spy", 120900);
    ck_assert(first > 0.8 * cold);
    ck_assert(second < first / 3);
    ck_assert_uint_eq(sched_counters(world_sched(world))->requests_held, 22);
    world_destroy(world);
}
END_TEST

START_TEST(a_document_that_others_have_brought_back_is_a_first_use_again)
{
    struct world *world = new_world(true);
    struct dockey key = world_doc_key(120900);

    for (uint32_t i = 0; i < 20; i++) {
        (void)ask(world, "victim", make_doc(i));
    }
    (void)ask(world, "spy", 120900);
    ck_assert(sched_has_used(world_sched(world), "spy", &key));
    ck_assert(!sched_has_used(world_sched(world), "victim", &key));
    ck_assert(sched_has_used(world_sched(world), "", &key)); /* who sits at the machine may know */
    world_evict(world, 16000);
    ck_assert(!sched_has_used(world_sched(world), "spy", &key));
    (void)ask(world, "victim", 120900);
    ck_assert(!sched_has_used(world_sched(world), "spy", &key));
    ck_assert(ask(world, "spy", 120900) > 3 * STEP_US);
    world_destroy(world);
}
END_TEST

/* It has encoded the document for itself: what others have left is still not for it to know. */
START_TEST(a_request_that_reads_nothing_of_the_pool_is_no_use)
{
    static const enum reuse_mode modes[] = {REUSE_NONE, REUSE_PREFIX};
    struct dockey key = world_doc_key(120900);
    uint32_t docs[] = {96001, 120900};

    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        struct world *world = new_world(true);
        uint64_t id;

        (void)ask(world, "victim", 120900);
        id = world_submit(world, (struct world_ask){.docs = docs,
                                                    .doc_count = 2,
                                                    .query = 3,
                                                    .max_tokens = 2,
                                                    .tenant = "spy",
                                                    .is_shared = true,
                                                    .reuse = modes[m]});
        for (int i = 0; i < 1000 && !world_get(world, id)->is_ended; i++) {
            (void)world_step(world, 0);
            world_pass(world, STEP_US);
        }
        ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
        ck_assert(world_get(world, id)->is_ended);
        ck_assert(!sched_has_used(world_sched(world), "spy", &key));
        ck_assert(sched_has_used(world_sched(world), "victim", &key));
        world_destroy(world);
    }
}
END_TEST

/* A copy that is there is read without its source; the use is that of the copy. */
START_TEST(a_use_of_a_copy_that_others_have_made_is_held_once)
{
    static const enum reuse_mode modes[] = {REUSE_REENCODE, REUSE_PREFIX};
    static const char *const tenants[] = {"victim", "spy", "spy"};
    uint32_t docs[] = {96001, 120900};

    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        struct world *world = new_world(true);

        for (uint32_t k = 0; k < 3; k++) {
            uint64_t id = world_submit(world, (struct world_ask){.docs = docs,
                                                                 .doc_count = 2,
                                                                 .query = 3,
                                                                 .max_tokens = 2,
                                                                 .tenant = tenants[k],
                                                                 .is_shared = true,
                                                                 .reuse = modes[m]});

            for (int i = 0; i < 1000 && !world_get(world, id)->is_ended; i++) {
                (void)world_step(world, 0);
                world_pass(world, STEP_US);
            }
            ck_assert_int_eq(world_get(world, id)->end, SCHED_END_OK);
            ck_assert_uint_eq(sched_counters(world_sched(world))->requests_held, k < 2 ? k + 1 : 2);
        }
        world_destroy(world);
    }
}
END_TEST

START_TEST(usage_does_not_tell_either)
{
    struct world *world = new_world(true);
    uint64_t id;

    (void)ask(world, "victim", 120900);
    id = submit(world, "spy", 120900);
    while (!world_get(world, id)->is_ended) {
        (void)world_step(world, 0);
        world_pass(world, STEP_US);
    }
    const struct session_usage *usage = &world_get(world, id)->usage;

    ck_assert_uint_eq(usage->tokens_reused, 120); /* for the daemon's own counters */
    ck_assert_uint_eq(usage->tokens_hidden, 120);
    world_destroy(world);
}
END_TEST

/* Cancelled, late, without a worker: whatever it waits for, it ends. */
START_TEST(one_that_is_held_ends_like_any_other)
{
    struct world *world = new_world(true);
    uint64_t ids[3];
    uint32_t doc = 120900;

    (void)ask(world, "victim", doc);
    ids[0] = submit(world, "a", doc);
    ck_assert(world_cancel(world, ids[0], false));
    ids[1] = world_submit(world, (struct world_ask){.docs = &doc,
                                                    .doc_count = 1,
                                                    .query = 3,
                                                    .max_tokens = 2,
                                                    .tenant = "b",
                                                    .is_shared = true,
                                                    .timeout_us = STEP_US});
    world_pass(world, 2 * STEP_US);
    ids[2] = submit(world, "c", doc);
    world_kill(world, 0);
    world_start(world, 0);
    for (int i = 0; i < 1000 && world_open(world) > 0; i++) {
        (void)world_step(world, 0);
        world_pass(world, STEP_US);
    }
    ck_assert_int_eq(world_get(world, ids[0])->end, SCHED_END_CANCELLED);
    ck_assert_int_eq(world_get(world, ids[1])->end, SCHED_END_DEADLINE);
    ck_assert_int_eq(world_get(world, ids[2])->end, SCHED_END_OK);
    world_run(world, 100);
    world_destroy(world);
}
END_TEST

CHECK_MAIN("sched_hold", a_first_use_does_not_tell_whether_others_have_used_a_document,
           the_second_use_is_as_fast_as_the_document_is_there,
           a_document_that_others_have_brought_back_is_a_first_use_again,
           a_request_that_reads_nothing_of_the_pool_is_no_use,
           a_use_of_a_copy_that_others_have_made_is_held_once, usage_does_not_tell_either,
           one_that_is_held_ends_like_any_other)
