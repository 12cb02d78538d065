/* SPDX-License-Identifier: Apache-2.0 */
/* A request tells when it passed each point on its way to the first token. */
#include "common/clock.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define TOKENS 300

static void
check_order(const uint64_t *points, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        ck_assert_msg(points[i - 1] != 0 && points[i - 1] <= points[i],
                      "point %zu at %llu, the one before at %llu", i, (unsigned long long)points[i],
                      (unsigned long long)points[i - 1]);
    }
}

static void
ask_and_check(struct kvasir *client, uint32_t seed)
{
    uint32_t ids[TOKENS];
    struct kvasir_document document = {.token_ids = ids, .token_count = TOKENS};
    struct kvasir_usage usage;
    struct kvasir_request request = {
        .documents = &document,
        .document_count = 1,
        .query_ids = ids,
        .query_id_count = 20,
        .sampling = {.max_tokens = 5},
        .ignore_end = true,
    };

    for (uint32_t i = 0; i < TOKENS; i++) {
        ids[i] = 8 + (i * 7 + seed) % 200;
    }
    uint64_t start_us = clock_now_us();

    ck_assert_msg(kvasir_generate(client, &request, &usage) == KVASIR_OK, "%s",
                  kvasir_error(client));
    const struct kvasir_trace *t = &usage.trace;
    const uint64_t points[] = {start_us,    t->arrived_us, t->read_us,  t->assigned_us,
                               t->heard_us, t->begun_us,   t->ended_us, t->returned_us,
                               t->sent_us,  clock_now_us()};

    check_order(points, sizeof(points) / sizeof(points[0]));
}

static void
ask_some(const struct host_options *options)
{
    struct host *host = host_start(options);
    struct kvasir *client;

    ck_assert_int_eq(kvasir_open(&(struct kvasir_options){.runtime_dir = host_dir(host)}, &client),
                     KVASIR_OK);
    for (uint32_t seed = 0; seed < 3; seed++) {
        ask_and_check(client, seed / 2);
    }
    kvasir_close(&client);
    host_stop(&host);
}

START_TEST(points_of_the_first_token_are_in_order_cold_and_hot)
{
    ask_some(&(struct host_options){.workers = 1});
}
END_TEST

START_TEST(a_daemon_and_a_worker_that_do_not_sleep_serve_and_end_as_well)
{
    static const char *const busy[] = {"--busy-poll", "20000", NULL};

    ask_some(&(struct host_options){.workers = 1, .daemon_args = busy, .worker_args = busy});
}
END_TEST

CHECK_MAIN("trace", points_of_the_first_token_are_in_order_cold_and_hot,
           a_daemon_and_a_worker_that_do_not_sleep_serve_and_end_as_well)
