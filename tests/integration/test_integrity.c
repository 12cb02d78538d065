/* SPDX-License-Identifier: Apache-2.0 */
/* A bit flips in the KV memory of a running host: it is found, told, and no answer comes of it.
 *
 * The flips are the lowest bit of a float, so that nothing but a checksum can see them. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/kv_memory.h"

#define FAST "--scrub-interval", "20ms"

static const struct asking_doc documents[] = {{96, 1}, {70, 2}};

static void
map(struct host *host, struct kv_memory *memory_out)
{
    kv_memory_map(memory_out, process_pid(host_worker(host, 0)), host_counter(host, "block_count"));
}

/* Asks about the first `count` documents. */
static struct question
about(size_t count)
{
    return (struct question){.docs = documents, .doc_count = count, .query_seed = 7};
}

/* Flips a bit in every block that holds anything; `documents` alone do, once answers have ended. */
static void
flip_all(const struct kv_memory *memory)
{
    for (uint32_t block = 0; block < memory->block_count; block++) {
        if (kv_memory_is_written(memory, block)) {
            kv_memory_flip(memory, block);
        }
    }
}

START_TEST(a_flipped_bit_is_found_told_and_the_document_is_built_again)
{
    const char *const args[] = {FAST, "--check-pool", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct question question = about(1);
    struct answer before, after;
    struct kv_memory memory;

    ask_ok(host, &question, &before);
    host_wait_at_least(host, "docs_checked", 2);
    ck_assert_uint_eq(host_counter(host, "docs_damaged"), 0);
    map(host, &memory);
    kv_memory_flip(&memory, 1); /* of the document, as below */
    host_wait_at_least(host, "docs_damaged", 1);
    ck_assert_uint_eq(host_counter(host, "blocks_damaged"), 1);
    ck_assert_uint_eq(host_counter(host, "documents"), 0);
    ask_ok(host, &question, &after);
    answer_assert_same(&before, &after);
    ck_assert_uint_eq(after.tokens_reused, 0);
    ck_assert_uint_eq(after.tokens_built, 96);
    ck_assert_uint_eq(host_counter(host, "doc_misses_damaged"), 1);
    uint64_t checked = host_counter(host, "docs_checked");

    host_wait_at_least(host, "docs_checked", checked + 2); /* now all is well */
    ck_assert_uint_eq(host_counter(host, "docs_damaged"), 1);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(only_the_damaged_document_goes)
{
    const char *const args[] = {FAST, NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct question both = about(2);
    struct answer before, after;
    struct kv_memory memory;

    ask_ok(host, &both, &before);
    map(host, &memory);
    kv_memory_flip(&memory, 1); /* a fresh pool gives its blocks in order: of the first one */
    host_wait_at_least(host, "docs_damaged", 1);
    ask_ok(host, &both, &after);
    answer_assert_same(&before, &after);
    ck_assert_uint_eq(host_counter(host, "docs_damaged"), 1);
    ck_assert_uint_eq(host_counter(host, "blocks_damaged"), 1);
    ck_assert_uint_eq(after.tokens_reused, 70);
    ck_assert_uint_eq(after.tokens_built, 96);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(an_answer_under_way_over_a_damaged_document_does_not_end_well)
{
    const char *const args[] = {FAST, NULL};
    const struct tiny_model_config model = host_slow_model();
    struct host *host =
        host_start(&(struct host_options){.workers = 2, .daemon_args = args, .model = &model});
    struct question question = about(1), endless = about(1);
    struct answer before, after, broken;
    struct kv_memory memory;

    ask_ok(host, &question, &before);
    map(host, &memory);
    endless.max_tokens = ASKING_TOKENS_MAX;
    struct asking *asking = asking_start(host, &endless);

    asking_wait_tokens(asking, 3);
    kv_memory_flip(&memory, 2); /* a fresh pool gives its blocks in order: of the document */
    host_wait_at_least(host, "docs_damaged", 1);
    asking_end(&asking, &broken);
    ck_assert_int_eq(broken.code, KVASIR_DATA_LOSS);
    ck_assert_uint_eq(host_counter(host, "readers_failed"), 1);
    ask_ok(host, &question, &after);
    answer_assert_same(&before, &after);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(what_was_damaged_while_no_daemon_was_there_is_found_at_once)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .keeps_pool = true});
    struct question question = about(1);
    struct answer before, after;
    struct kv_memory memory;

    ask_ok(host, &question, &before); /* with the default interval: nothing is due for minutes */
    map(host, &memory);
    host_kill_daemon(host);
    flip_all(&memory); /* nobody looks at some of them meanwhile */
    host_restart_daemon(host);
    host_wait_at_least(host, "docs_damaged", 1);
    ck_assert_uint_eq(host_counter(host, "blocks_damaged"), 3);
    ask_ok(host, &question, &after);
    answer_assert_same(&before, &after);
    ck_assert_uint_eq(after.tokens_built, 96);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(a_document_that_is_not_what_its_tokens_give_is_found_by_computing_it_again)
{
    const char *const args[] = {"--verify-reuse", "100", "--scrub-interval", "0",
                                "--check-pool",   NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct question question = about(2);
    struct answer before, after;
    struct kv_memory memory;

    ask_ok(host, &question, &before);
    ask_ok(host, &question, &after);
    host_wait_at_least(host, "docs_verified", 2); /* those that the second one found */
    ck_assert_uint_eq(host_counter(host, "docs_verify_failed"), 0);
    ck_assert_uint_eq(host_counter(host, "documents"), 2); /* the second copies are gone */
    map(host, &memory);
    kv_memory_flip(&memory, 1); /* as if it had been written so: no checksum is looked at */
    ask_ok(host, &question, &after);
    host_wait_at_least(host, "docs_damaged", 1);
    ck_assert_uint_eq(host_counter(host, "docs_verify_failed"), 1);
    ask_ok(host, &question, &after);
    answer_assert_same(&before, &after);
    ck_assert_uint_eq(after.tokens_built, 96);
    ck_assert_uint_eq(after.tokens_reused, 70);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("integrity", a_document_that_is_not_what_its_tokens_give_is_found_by_computing_it_again,
           a_flipped_bit_is_found_told_and_the_document_is_built_again,
           only_the_damaged_document_goes,
           an_answer_under_way_over_a_damaged_document_does_not_end_well,
           what_was_damaged_while_no_daemon_was_there_is_found_at_once)
