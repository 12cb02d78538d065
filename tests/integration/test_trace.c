/* SPDX-License-Identifier: Apache-2.0 */
/* A request tells when it passed each point on its way to the first token. */
#include <string.h>

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

static struct kvasir_usage
ask_and_check(struct kvasir *client, const struct kvasir_document *document)
{
    uint32_t ids[20];
    struct kvasir_usage usage;
    struct kvasir_request request = {
        .documents = document,
        .document_count = 1,
        .query_ids = ids,
        .query_id_count = sizeof(ids) / sizeof(ids[0]),
        .sampling = {.max_tokens = 5},
        .ignore_end = true,
    };

    for (uint32_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        ids[i] = 8 + i * 7;
    }
    uint64_t start_us = clock_now_us();

    ck_assert_msg(kvasir_generate(client, &request, &usage) == KVASIR_OK, "%s",
                  kvasir_error(client));
    const struct kvasir_trace *t = &usage.trace;
    const uint64_t points[] = {start_us,    t->arrived_us, t->read_us,  t->assigned_us,
                               t->heard_us, t->begun_us,   t->ended_us, t->returned_us,
                               t->sent_us,  clock_now_us()};

    check_order(points, sizeof(points) / sizeof(points[0]));
    return usage;
}

/* One document as ids, under its key, and as the text that these ids are of: whoever is first
 * builds it, the others find it. */
static void
ask_in_every_form(struct kvasir *client, char first_letter)
{
    char text[TOKENS + 1] = {0};
    const uint32_t *ids;
    uint32_t own[TOKENS];
    size_t count;
    uint8_t key[KVASIR_KEY_BYTES];

    for (uint32_t i = 0; i < TOKENS; i++) {
        text[i] = (char)('a' + i * 7 % 26);
    }
    text[0] = first_letter;
    ck_assert_msg(kvasir_tokenize(client, text, false, &ids, &count) == KVASIR_OK, "%s",
                  kvasir_error(client));
    ck_assert_uint_le(count, TOKENS);
    memcpy(own, ids, count * sizeof(*ids));
    struct kvasir_document by_ids = {.token_ids = own, .token_count = count};

    ck_assert_msg(kvasir_register(client, &by_ids, false, NULL, 0, key, NULL) == KVASIR_OK, "%s",
                  kvasir_error(client));
    const struct kvasir_document forms[] = {{.text = text}, by_ids, {.key = key}, {.text = text}};

    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct kvasir_usage usage = ask_and_check(client, &forms[i]);

        ck_assert_uint_eq(usage.tokens_built, i == 0 ? count : 0);
        ck_assert_uint_eq(usage.tokens_reused, i == 0 ? 0 : count);
    }
}

static void
ask_some(const struct host_options *options)
{
    struct host *host = host_start(options);
    struct kvasir *client;

    ck_assert_int_eq(kvasir_open(&(struct kvasir_options){.runtime_dir = host_dir(host)}, &client),
                     KVASIR_OK);
    ask_in_every_form(client, 'A');
    ask_in_every_form(client, 'B');
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
