/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest is applied: its documents are encoded in idle time, and when it is applied again only
 * what has changed.  Pins hold, and end. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/kvasir.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

static char manifest[512];

/* Documents of the tiny model's byte tokens: as many tokens as bytes, with --raw. */
static void
write_manifest(const struct host *host, const char *lines)
{
    (void)snprintf(manifest, sizeof(manifest), "%s/manifest.jsonl", host_dir(host));
    FILE *file = fopen(manifest, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(lines, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* Runs `kvasirctl docs warm MANIFEST --raw --wait` and checks its first line. */
static void
warm(struct host *host, const char *more, const char *expected)
{
    const char *const args[] = {"docs",          "warm",         manifest, "--raw", "--wait",
                                "--runtime-dir", host_dir(host), more,     NULL};
    struct process *process = process_start_piped("./kvasirctl", args, NULL);
    const char *output = process_output(process);

    ck_assert_int_eq(process_wait(process), 0);
    ck_assert_msg(strncmp(output, expected, strlen(expected)) == 0, "said: %s", output);
    process_destroy(&process);
    ck_assert_int_eq(unlink(manifest), 0);
}

static struct kvasir_coverage
coverage(struct host *host)
{
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    struct kvasir_coverage coverage;
    struct kvasir *client;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_coverage(client, &coverage), KVASIR_OK);
    kvasir_close(&client);
    return coverage;
}

START_TEST(a_manifest_is_encoded_in_idle_time_and_again_only_where_it_changed)
{
    static const char three[] =
        "{\"id\": \"a\", \"version\": \"1\", \"text\": \"the first document\"}\n"
        "\n"
        "{\"id\": \"b\", \"version\": \"1\", \"text\": \"the second one\"}\n"
        "{\"id\": \"c\", \"tokens\": [10, 11, 12, 13], \"weight\": 2}\n";
    struct host *host = host_start(&(struct host_options){.workers = 2});

    write_manifest(host, three);
    warm(host, NULL,
         "3 documents: 3 new or changed, 0 unchanged (0 not even read), 0 removed\n"
         "coverage 100.0% ");
    ck_assert_uint_eq(host_counter(host, "docs_warmed"), 3);
    ck_assert_uint_eq(coverage(host).documents_resident, 3);
    ck_assert(coverage(host).tokens_per_s > 0);

    /* Nothing is new; the one without a version is looked at by its tokens. */
    write_manifest(host, three);
    warm(host, NULL, "3 documents: 0 new or changed, 3 unchanged (2 not even read), 0 removed\n");
    ck_assert_uint_eq(host_counter(host, "docs_warmed"), 3);

    /* One has another text, one only another version, one is gone. */
    write_manifest(host,
                   "{\"id\": \"a\", \"version\": \"2\", \"text\": \"the first document\"}\n"
                   "{\"id\": \"b\", \"version\": \"2\", \"text\": \"the second one, mended\"}\n");
    warm(host, "--prune",
         "2 documents: 1 new or changed, 1 unchanged (0 not even read), 1 removed\n");
    ck_assert_uint_eq(host_counter(host, "docs_warmed"), 4);
    ck_assert_uint_eq(host_counter(host, "documents"), 2);
    ck_assert_uint_eq(coverage(host).documents, 2);
    host_stop(&host);
}
END_TEST

START_TEST(what_was_warmed_is_hit_by_the_first_request)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    const uint32_t ids[] = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29};
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    struct kvasir_document document = {.token_ids = ids, .token_count = 10, .id = "mine"};
    struct kvasir_wish wish = {.weight = 1, .version = "7"};
    struct kvasir_request request = {.documents = &document,
                                     .document_count = 1,
                                     .query_ids = ids,
                                     .query_id_count = 2,
                                     .sampling = {.max_tokens = 2}};
    struct kvasir_usage usage;
    struct kvasir *client;
    uint8_t key[KVASIR_KEY_BYTES];
    bool is_unchanged;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_keep(client, &document, false, NULL, 0, &wish, key, &is_unchanged),
                     KVASIR_OK);
    ck_assert(!is_unchanged);
    host_wait_exactly(host, "docs_warmed", 1);
    ck_assert_int_eq(kvasir_generate(client, &request, &usage), KVASIR_OK);
    ck_assert_uint_eq(usage.tokens_reused, 10);
    ck_assert_uint_eq(usage.tokens_built, 0);
    ck_assert_int_eq(kvasir_keep(client, &document, false, NULL, 0, &wish, key, &is_unchanged),
                     KVASIR_OK);
    ck_assert(is_unchanged);
    wish.weight = 0;
    ck_assert_int_eq(kvasir_keep(client, &document, false, NULL, 0, &wish, key, &is_unchanged),
                     KVASIR_INVALID_ARGUMENT);
    ck_assert_str_eq(kvasir_error(client), "weight is 0: it must be above 0");
    kvasir_close(&client);
    host_stop(&host);
}
END_TEST

START_TEST(pins_hold_against_eviction_until_their_time_is_over)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});

    write_manifest(host,
                   "{\"id\": \"a\", \"text\": \"stays\", \"pin\": true}\n"
                   "{\"id\": \"b\", \"text\": \"stays a while\", \"pin\": true, \"ttl\": \"1s\"}\n"
                   "{\"id\": \"c\", \"text\": \"goes\"}\n");
    warm(host, NULL, "3 documents: 3 new or changed");
    host_wait_at_least(host, "pins_ended", 1);
    ck_assert_uint_eq(host_evict(host, 100), 2);
    host_wait_exactly(host, "documents", 3); /* there is room again: they come back */
    ck_assert_uint_eq(coverage(host).documents_pinned, 1);
    host_stop(&host);
}
END_TEST

START_TEST(what_has_no_room_is_told_and_evicts_nothing)
{
    const char *const args[] = {"--pin-share", "0.25", NULL};
    struct host *host =
        host_start(&(struct host_options){.workers = 1, .kv_memory = "1MiB", .daemon_args = args});
    uint64_t blocks = host_counter(host, "block_count");
    static char lines[65536];
    size_t length = 0;

    /* Twice as many documents of a block as there are blocks, all to be pinned. */
    for (uint64_t i = 0; i < 2 * blocks; i++) {
        length += (size_t)snprintf(lines + length, sizeof(lines) - length,
                                   "{\"id\": \"d%llu\", \"tokens\": [%llu, 5]}\n",
                                   (unsigned long long)i, (unsigned long long)(3 + i % 250));
        ck_assert_uint_lt(length, sizeof(lines));
    }
    write_manifest(host, lines);
    warm(host, NULL, "");
    ck_assert_uint_eq(host_counter(host, "blocks_evicted"), 0);
    ck_assert_uint_eq(host_counter(host, "blocks_free"), 0);
    ck_assert_uint_eq(coverage(host).documents_waiting, 0);
    ck_assert_uint_gt(coverage(host).documents_without_room, 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("warm", a_manifest_is_encoded_in_idle_time_and_again_only_where_it_changed,
           what_was_warmed_is_hit_by_the_first_request,
           pins_hold_against_eviction_until_their_time_is_over,
           what_has_no_room_is_told_and_evicts_nothing)
