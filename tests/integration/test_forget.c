/* SPDX-License-Identifier: Apache-2.0 */
/* Documents.Forget on a running host: nobody finds the document, and nothing of it is left. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/kv_memory.h"

enum {
    BLOCKS = 3, /* of the document; a fresh pool gives them in order, */
    ALL = 4, /* with the one of the answer's own behind them: it was computed over the document */
    KEY_TEXT = 2 * KVASIR_KEY_BYTES + 1
};

static const struct asking_doc document = {96, 1};
static const struct question question = {.docs = &document, .doc_count = 1, .query_seed = 7};

/* The key of the only document. */
static void
only_key(struct host *host, char key_out[KEY_TEXT])
{
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    const struct kvasir_document_info *infos;
    struct kvasir *client;
    uint64_t total;
    size_t count;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_list(client, 10, NULL, &infos, &count, &total), KVASIR_OK);
    ck_assert_uint_eq(count, 1);
    for (size_t i = 0; i < KVASIR_KEY_BYTES; i++) {
        (void)snprintf(key_out + 2 * i, 3, "%02x", infos[0].key[i]);
    }
    kvasir_close(&client);
}

static struct process *
start_forget(struct host *host, const char *key, const char *option)
{
    const char *const args[] = {"docs",  "forget", "--runtime-dir", host_dir(host),
                                "--yes", key,      option,          NULL};

    return process_start_piped("./kvasirctl", args, NULL);
}

/* Waits for its end; it must be a good one, and have said that. */
static void
end_forget(struct process **process, const char *said)
{
    const char *output = process_output(*process);

    ck_assert_msg(strstr(output, said) != NULL, "\"%s\" and not \"%s\"", output, said);
    ck_assert_int_eq(process_wait(*process), 0);
    process_destroy(process);
}

static uint32_t
blocks_of_zeros(const struct kv_memory *memory, uint32_t count)
{
    uint32_t zeros = 0;

    for (uint32_t block = 0; block < count; block++) {
        const unsigned char *at = memory->bytes + block * memory->block_bytes;
        size_t i = 0;

        while (i < memory->block_bytes && at[i] == 0) {
            i++;
        }
        zeros += i == memory->block_bytes;
    }
    return zeros;
}

static void
map(struct host *host, struct kv_memory *memory_out)
{
    kv_memory_map(memory_out, process_pid(host_worker(host, 0)), host_counter(host, "block_count"));
}

START_TEST(a_forgotten_document_is_zeros_and_missed)
{
    const char *const args[] = {"--check-pool", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct answer before, after;
    struct kv_memory memory;
    char key[KEY_TEXT];

    ask_ok(host, &question, &before);
    only_key(host, key);
    map(host, &memory);
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), 0);
    struct process *forget = start_forget(host, key, NULL);

    end_forget(&forget, "erased 4 blocks");
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), ALL);
    ck_assert_uint_eq(host_counter(host, "blocks_erased"), ALL);
    ck_assert_uint_eq(host_counter(host, "documents"), 0);
    ask_ok(host, &question, &after);
    answer_assert_same(&before, &after);
    ck_assert_uint_eq(after.tokens_built, 96);
    ck_assert_uint_eq(host_counter(host, "doc_misses_forgotten"), 1);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(what_was_evicted_before_is_erased_too)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer answer;
    struct kv_memory memory;
    char key[KEY_TEXT];

    ask_ok(host, &question, &answer);
    only_key(host, key);
    map(host, &memory);
    ck_assert_uint_eq(host_evict(host, 1), 1); /* its tail */
    struct process *forget = start_forget(host, key, NULL);

    end_forget(&forget, "erased 4 blocks");
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), ALL);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

/* A worker that is stopped for as long as a test likes is not lost by that. */
static const char *const patient[] = {"--worker-liveness", "10min", NULL};

/* The worker stands still until the Forget has begun, so that the answer is not over by then. */
START_TEST(readers_are_waited_for_and_nobody_else_finds_it_meanwhile)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = patient});
    struct question longer = question;
    static struct answer whole, alone;
    struct answer other;
    struct kv_memory memory;
    char key[KEY_TEXT];

    longer.max_tokens = 300;
    ask_ok(host, &longer, &alone);
    only_key(host, key);
    map(host, &memory);
    process_signal(host_worker(host, 0), SIGSTOP);
    struct asking *asking = asking_start(host, &longer);

    host_wait_exactly(host, "requests_running", 1);
    struct process *forget = start_forget(host, key, NULL);

    host_wait_exactly(host, "documents", 0);
    process_signal(host_worker(host, 0), SIGCONT);
    ask_ok(host, &question, &other);
    ck_assert_uint_eq(other.tokens_reused, 0); /* it has made a new one of its own */
    asking_end(&asking, &whole);
    answer_assert_same(&alone, &whole);
    end_forget(&forget, "1 waited for, 0 ended");
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), ALL);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(with_abort_its_readers_end_at_once)
{
    const struct tiny_model_config model = host_slow_model();
    struct host *host = host_start(&(struct host_options){.workers = 1, .model = &model});
    struct question endless = question;
    static struct answer ended;
    struct kv_memory memory;
    char key[KEY_TEXT];

    ask_ok(host, &question, &ended);
    only_key(host, key);
    map(host, &memory);
    endless.max_tokens = ASKING_TOKENS_MAX;
    struct asking *asking = asking_start(host, &endless);

    asking_wait_tokens(asking, 3);
    struct process *forget = start_forget(host, key, "--abort");

    end_forget(&forget, "0 waited for, 1 ended");
    asking_end(&asking, &ended);
    ck_assert_int_eq(ended.code, KVASIR_CANCELLED);
    ck_assert_str_eq(ended.message, "a document of it was forgotten");
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), ALL);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

START_TEST(a_lost_worker_erases_nothing_and_the_next_one_does)
{
    struct host *host = host_start(&(struct host_options){.workers = 2, .daemon_args = patient});
    struct answer answer;
    struct kv_memory memory;
    char key[KEY_TEXT];

    ask_ok(host, &question, &answer);
    only_key(host, key);
    map(host, &memory);
    process_signal(host_worker(host, 0), SIGSTOP);
    process_signal(host_worker(host, 1), SIGSTOP);
    struct process *forget = start_forget(host, key, NULL);

    host_wait_exactly(host, "documents", 0);
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), 0);
    host_kill_worker(host, 0);
    process_signal(host_worker(host, 1), SIGCONT);
    end_forget(&forget, "erased 4 blocks");
    ck_assert_uint_eq(blocks_of_zeros(&memory, ALL), ALL);
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

/* Copies at other places, behind another document, turns, an answer that had it among its own ids:
 * made by an earlier kvasird, and partly evicted. */
START_TEST(after_a_restart_it_is_erased_in_all_its_forms)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .keeps_pool = true});
    const struct asking_doc both[] = {{96, 2}, document};
    const enum kvasir_reuse modes[] = {KVASIR_REUSE_LAZY, KVASIR_REUSE_REENCODE,
                                       KVASIR_REUSE_PREFIX, KVASIR_REUSE_NONE};
    struct answer answer;
    struct kv_memory memory;
    char key[KEY_TEXT];

    ask_ok(host, &question, &answer);
    only_key(host, key);
    ck_assert_uint_eq(host_evict(host, 2), 2);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct question next = {.docs = both,
                                .doc_count = 2,
                                .query_seed = 8 + (uint32_t)i,
                                .query_tokens = 40,
                                .max_tokens = 40,
                                .reuse = modes[i],
                                .keep_turn = true};

        ask_ok(host, &next, &answer);
    }
    host_kill_daemon(host);
    host_restart_daemon(host);
    host_wait_exactly(host, "workers_ready", 1);
    ck_assert_uint_ge(host_counter(host, "documents"), 4); /* both, a copy, one behind the other */
    map(host, &memory);
    struct process *forget = start_forget(host, key, NULL);

    end_forget(&forget, "3 copies");
    ck_assert_uint_eq(host_counter(host, "documents"), 1); /* the other one */
    ck_assert_uint_eq(kv_memory_written(&memory), host_counter(host, "blocks_docs"));
    kv_memory_unmap(&memory);
    host_stop(&host);
}
END_TEST

/* With full attention KV of a document has something of all that stood before it: that goes, and
 * the same document by itself stays.  A next kvasird knows it too. */
START_TEST(what_was_encoded_behind_it_goes_with_it)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct host *host = host_start(&(struct host_options){.workers = 1, .keeps_pool = true});
        const struct asking_doc both[] = {document, {96, 2}};
        const struct question alone = {.docs = &both[1], .doc_count = 1, .query_seed = 5};
        const struct question behind = {
            .docs = both, .doc_count = 2, .query_seed = 6, .reuse = KVASIR_REUSE_PREFIX};
        struct answer before, after;
        struct kv_memory memory;
        char key[KEY_TEXT];

        ask_ok(host, &question, &before);
        only_key(host, key);
        ask_ok(host, &behind, &before);
        ask_ok(host, &alone, &after);
        ck_assert_uint_eq(host_counter(host, "documents"), 3);
        if (restarts > 0) {
            host_kill_daemon(host);
            host_restart_daemon(host);
            host_wait_exactly(host, "workers_ready", 1);
        }
        map(host, &memory);
        struct process *forget = start_forget(host, key, NULL);

        end_forget(&forget, "2 copies");
        ck_assert_uint_eq(host_counter(host, "documents"), 1);
        /* And the block of the answer over that one alone. */
        ck_assert_uint_eq(kv_memory_written(&memory), host_counter(host, "blocks_docs") + 1);
        ask_ok(host, &behind, &after);
        answer_assert_same(&before, &after);
        ck_assert_uint_eq(after.tokens_reused, 0);
        kv_memory_unmap(&memory);
        host_stop(&host);
    }
}
END_TEST

CHECK_MAIN("forget", after_a_restart_it_is_erased_in_all_its_forms,
           what_was_encoded_behind_it_goes_with_it, a_forgotten_document_is_zeros_and_missed,
           what_was_evicted_before_is_erased_too,
           readers_are_waited_for_and_nobody_else_finds_it_meanwhile,
           with_abort_its_readers_end_at_once, a_lost_worker_erases_nothing_and_the_next_one_does)
