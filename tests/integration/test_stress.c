/* SPDX-License-Identifier: Apache-2.0 */
/* tests/stress against two workers and a pool that is too small for what is asked. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/check_main.h"
#include "tests/support/host.h"

#define KILLS        2
#define KILL_EVERY   400 /* tokens; a quarter of what 48 requests send at once */
#define SEED_CHARS   24
#define REQUESTS     SCENE("128", "48", "48")
#define KV_MEMORY    "10MiB"                  /* 160 blocks; a request takes up to 25 + 5 */
#define RESERVE      "--reserve-tokens", "12" /* so that answers run short */
#define STRESS_START "./tests/stress/stress"

static struct process *
start_stress(struct host *host, const char *option)
{
    static char seed[SEED_CHARS];
    const char *args[] = {"--runtime-dir", host_dir(host), "--requests", REQUESTS,
                          "--seed",        seed,           option,       NULL};

    (void)snprintf(seed, sizeof(seed), "%llu", test_seed());
    return process_start(STRESS_START, args, NULL);
}

static void
end_stress(struct process *stress)
{
    ck_assert_int_eq(process_wait(stress), 0);
    process_destroy(&stress);
}

/* The i-th blow falls when so many tokens have come since `before`; if we had no processor when it
 * should, on a worker that has nothing to do by then. */
static void
wait_tokens(struct host *host, uint64_t before, uint64_t i)
{
    host_wait_at_least(host, "completion_tokens", before + i * KILL_EVERY);
}

START_TEST(requests_among_many_get_the_answers_they_get_alone)
{
    const char *const args[] = {RESERVE, NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 2, .kv_memory = KV_MEMORY, .daemon_args = args});
    do {
        end_stress(start_stress(host, NULL));
    } while (host_counter(host, "requests_preempted") == 0
             || host_counter(host, "docs_evicted") == 0);
    host_stop(&host);
}
END_TEST

START_TEST(the_pool_holds_its_invariants_after_every_event_meanwhile)
{
    const char *const args[] = {RESERVE, "--check-pool", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 2, .kv_memory = KV_MEMORY, .daemon_args = args});

    end_stress(start_stress(host, NULL));
    host_stop(&host);
}
END_TEST

START_TEST(requests_get_the_answers_they_get_alone_while_a_worker_is_killed_twice)
{
    const char *const args[] = {RESERVE, "--check-pool", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 2, .kv_memory = KV_MEMORY, .daemon_args = args});
    uint64_t killed = 0;

    do {
        uint64_t before = host_counter(host, "completion_tokens");
        struct process *stress = start_stress(host, "--may-lose-workers");

        for (uint64_t i = 1; i <= KILLS; i++) {
            wait_tokens(host, before, i);
            host_kill_worker(host, 0);
            ck_assert_uint_eq(host_add_worker(host), 0);
            killed++;
        }
        end_stress(stress);
        ck_assert_uint_eq(host_counter(host, "workers_lost"), killed);
    } while (host_counter(host, "requests_requeued") == 0);
    host_stop(&host);
}
END_TEST

START_TEST(no_request_is_lost_while_all_workers_are_replaced)
{
    const char *const args[] = {RESERVE, "--check-pool", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 2, .kv_memory = KV_MEMORY, .daemon_args = args});

    do {
        uint64_t before = host_counter(host, "completion_tokens");
        struct process *stress = start_stress(host, "--may-lose-workers");

        for (uint32_t i = 0; i < 2 * KILLS; i++) {
            wait_tokens(host, before, i + 1);
            process_signal(host_worker(host, i % 2), SIGTERM);
            ck_assert_int_eq(host_wait_worker(host, i % 2), 0);
            ck_assert_uint_eq(host_add_worker(host), i % 2);
        }
        end_stress(stress);
        ck_assert_uint_eq(host_counter(host, "requests_failed"), 0);
    } while (host_counter(host, "requests_requeued") == 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("stress", requests_among_many_get_the_answers_they_get_alone,
           the_pool_holds_its_invariants_after_every_event_meanwhile,
           requests_get_the_answers_they_get_alone_while_a_worker_is_killed_twice,
           no_request_is_lost_while_all_workers_are_replaced)
