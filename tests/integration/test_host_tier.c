/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that the pool has no room for go to the host tier and come back from there: the same
 * answers, nothing computed twice; what changed there meanwhile is computed, with an alarm; and the
 * copies outlive kvasird as the pool does. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define DOCS       12
#define DOC_TOKENS 300    /* 10 blocks of 32 */
#define POOL       "4MiB" /* 64 blocks */
#define HOST       "16MiB"

enum {
    BLOCK_BYTES = (4 << 20) / 64
};

static const char *const with_host[] = {"--host-memory", HOST, "--eviction", "lru", NULL};

static struct asking_doc docs[DOCS];
static struct answer expected[DOCS];

static struct question
question_of(size_t index)
{
    docs[index] = (struct asking_doc){DOC_TOKENS, (uint32_t)index + 1};
    return (struct question){.docs = &docs[index], .doc_count = 1, .query_seed = 3};
}

/* One whose arena ends with it. */
static struct process *
start_ipc_worker(const struct host *host)
{
    const char *const args[] = {"--runtime-dir", host_dir(host), NULL};
    const char *const env[] = {"KVASIR_TEST_IPC=1", "KVASIR_TEST_STEPS=1000000", NULL};
    struct process *worker = process_start("./tests/support/failing_worker", args, env);

    process_wait_ready(worker);
    return worker;
}

/* What every question is answered without any pressure. */
static void
ask_plainly(void)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});

    for (size_t i = 0; i < DOCS; i++) {
        struct question question = question_of(i);

        ask_ok(host, &question, &expected[i]);
    }
    host_stop(&host);
}

/* Asks all of them; waits until what should be copied is. */
static void
ask_all(struct host *host)
{
    struct answer answer;

    for (size_t i = 0; i < DOCS; i++) {
        struct question question = question_of(i);

        ask_ok(host, &question, &answer);
        answer_assert_same(&expected[i], &answer);
        host_wait_exactly(host, "host_blocks_writing", 0);
    }
}

/* A host that was asked for all: what its pool has no room for lies in the tier. */
static struct host *
start_full(struct host_options options)
{
    struct host *host;

    ask_plainly();
    options.kv_memory = POOL;
    host = host_start(&options);
    ask_all(host);
    return host;
}

static struct host *
start_full_and_kept(const char *const *daemon_args)
{
    return start_full(
        (struct host_options){.workers = 1, .daemon_args = daemon_args, .keeps_pool = true});
}

START_TEST(a_pool_that_is_too_small_answers_the_same_and_computes_every_document_once)
{
    struct host *host = start_full((struct host_options){.workers = 1, .daemon_args = with_host});

    ck_assert_uint_eq(host_counter(host, "tokens_built"), DOCS * DOC_TOKENS);
    ck_assert_uint_gt(host_counter(host, "docs_evicted"), 0);
    ask_all(host);
    ask_all(host);
    /* Whatever was not in the pool came from the host, to the last token. */
    ck_assert_uint_eq(host_counter(host, "tokens_built"), DOCS * DOC_TOKENS);
    ck_assert_uint_gt(host_counter(host, "docs_loaded"), 0);
    ck_assert_uint_eq(host_counter(host, "tokens_loaded") % DOC_TOKENS % 32, 0);
    ck_assert_uint_eq(host_counter(host, "loads_bad"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(two_workers_share_the_tier)
{
    struct host *host = start_full((struct host_options){.workers = 2, .daemon_args = with_host});

    host_kill_worker(host, 0);
    ask_all(host);
    ck_assert_uint_eq(host_counter(host, "tokens_built"), DOCS * DOC_TOKENS);
    host_stop(&host);
}
END_TEST

/* The tier's memory, through kvasird's own descriptor. */
static int
open_memory(const struct process *daemon)
{
    char path[64], target[64];

    for (int fd = 3; fd < 256; fd++) {
        ssize_t length;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)process_pid(daemon), fd);
        length = readlink(path, target, sizeof(target) - 1);
        if (length < 0) {
            continue;
        }
        target[length] = '\0';
        if (strncmp(target, "/memfd:kvasir-host (", 20) == 0) {
            int memory = open(path, O_RDWR | O_CLOEXEC);

            ck_assert_int_ge(memory, 0);
            return memory;
        }
    }
    ck_abort_msg("kvasird holds no memory of a host tier");
    return -1;
}

/* Writes over all of it. */
static void
spoil_memory(const struct process *daemon)
{
    int memory = open_memory(daemon);
    char bytes[4096];

    memset(bytes, 0x5a, sizeof(bytes));
    for (off_t at = 0; at < 16 << 20; at += (off_t)sizeof(bytes)) {
        ck_assert_int_eq(pwrite(memory, bytes, sizeof(bytes), at), sizeof(bytes));
    }
    (void)close(memory);
}

/* Places that hold anything but zeros. */
static uint32_t
written_places(const struct process *daemon)
{
    static char bytes[BLOCK_BYTES], zeros[BLOCK_BYTES];
    int memory = open_memory(daemon);
    uint32_t written = 0;

    for (off_t at = 0; at < 16 << 20; at += BLOCK_BYTES) {
        ck_assert_int_eq(pread(memory, bytes, BLOCK_BYTES, at), BLOCK_BYTES);
        written += memcmp(bytes, zeros, BLOCK_BYTES) != 0;
    }
    (void)close(memory);
    return written;
}

START_TEST(memory_that_changed_is_a_miss_with_an_alarm_and_the_right_answer)
{
    struct host *host = start_full((struct host_options){.workers = 1, .daemon_args = with_host});

    spoil_memory(host_daemon(host));
    ask_all(host);
    ck_assert_uint_gt(host_counter(host, "loads_bad"), 0);
    ck_assert_uint_gt(host_counter(host, "tokens_built"), DOCS * DOC_TOKENS);
    ck_assert_uint_eq(host_counter(host, "host_docs_bad"), host_counter(host, "loads_bad"));
    host_stop(&host);
}
END_TEST

START_TEST(the_copies_outlive_kvasird)
{
    struct host *host = start_full_and_kept(with_host);
    uint64_t blocks = host_counter(host, "host_blocks");

    ck_assert_uint_gt(blocks, 0);
    host_kill_worker(host, 0);
    host_kill_daemon(host);
    host_restart_daemon(host);
    (void)host_add_worker(host);
    host_wait_at_least(host, "workers_ready", 1);
    host_wait_exactly(host, "host_blocks_writing",
                      0); /* which adopted one goes next, nobody knows */
    ck_assert_uint_eq(host_counter(host, "host_blocks_adopted"), blocks);
    ask_all(host);
    ck_assert_uint_eq(host_counter(host, "tokens_built"), 0);
    ck_assert_uint_gt(host_counter(host, "docs_loaded"), 0);
    ck_assert_uint_eq(host_counter(host, "loads_bad"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(a_worker_that_lives_on_goes_on_with_the_same_memory)
{
    struct host *host = start_full_and_kept(with_host);

    for (int life = 0; life < 3; life++) {
        host_kill_daemon(host);
        host_restart_daemon(host);
        host_wait_at_least(host, "workers_ready", 1);
        host_wait_exactly(host, "host_blocks_writing", 0);
        ask_all(host);
        ck_assert_uint_eq(host_counter(host, "tokens_built"), 0);
        ck_assert_uint_gt(host_counter(host, "docs_loaded"), 0);
        ck_assert_uint_eq(host_counter(host, "spills_refused"), 0);
    }
    /* And one that comes now has it too. */
    host_kill_worker(host, 0);
    (void)host_add_worker(host);
    host_wait_at_least(host, "workers_ready", 1);
    host_wait_exactly(host, "host_blocks_writing", 0);
    ask_all(host);
    ck_assert_uint_eq(host_counter(host, "tokens_built"), 0);
    ck_assert_uint_eq(host_counter(host, "loads_bad"), 0);
    host_stop(&host);
}
END_TEST

/* It would keep the memory of the old one, and with it what is forgotten from now on. */
START_TEST(a_worker_with_the_memory_of_a_tier_that_is_no_more_starts_anew)
{
    static const char *args[] = {"--host-memory", HOST, "--eviction", "lru", NULL};
    struct host *host = start_full_and_kept(args);

    host_kill_daemon(host);
    args[1] = "24MiB";
    host_restart_daemon(host);
    ck_assert_int_eq(host_wait_worker(host, 0), 1);
    (void)host_add_worker(host);
    ask_all(host);
    host_wait_at_least(host, "host_blocks", 1);
    ck_assert_uint_eq(host_counter(host, "spills_refused"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(a_worker_that_came_before_the_tier_is_never_asked_for_it)
{
    static const char *args[] = {"--host-memory", "0", "--eviction", "lru", NULL};
    struct host *host = start_full_and_kept(args);

    args[1] = HOST;
    for (int life = 0; life < 2; life++) { /* the second one adopts the tier of the first */
        host_kill_daemon(host);
        host_restart_daemon(host);
        host_wait_exactly(host, "workers_ready", 1);
        ask_all(host);
        ck_assert_uint_eq(host_counter(host, "spills_refused"), 0);
        ck_assert_uint_eq(host_counter(host, "host_blocks"), 0);
    }
    host_stop(&host);
}
END_TEST

struct forgets {
    struct process *processes[DOCS];
    size_t count;
};

/* Asks for all that the pool has to be forgotten; returns when it is found no more. */
static struct forgets
begin_forgets(struct host *host)
{
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    struct forgets forgets;
    const struct kvasir_document_info *infos;
    struct kvasir *client;
    uint64_t total;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_list(client, DOCS, NULL, &infos, &forgets.count, &total), KVASIR_OK);
    ck_assert_uint_gt(forgets.count, 0);
    for (size_t i = 0; i < forgets.count; i++) {
        char key[2 * KVASIR_KEY_BYTES + 1];
        const char *const args[] = {"docs", "forget", "--runtime-dir", host_dir(host), "--yes",
                                    key,    NULL};

        for (size_t k = 0; k < KVASIR_KEY_BYTES; k++) {
            (void)snprintf(key + 2 * k, 3, "%02x", infos[i].key[k]);
        }
        forgets.processes[i] = process_start_piped("./kvasirctl", args, NULL);
    }
    kvasir_close(&client);
    host_wait_exactly(host, "documents", 0);
    host_wait_exactly(host, "host_documents", 0); /* those in the tier alone are listed, too */
    return forgets;
}

static void
end_forgets(struct forgets *forgets)
{
    while (forgets->count > 0) {
        process_destroy(&forgets->processes[--forgets->count]);
    }
}

START_TEST(what_was_forgotten_and_not_yet_erased_there_is_zeros_after_a_restart)
{
    struct host *host = start_full_and_kept(with_host);

    ck_assert_uint_eq(written_places(host_daemon(host)), host_counter(host, "host_blocks"));
    process_signal(host_worker(host, 0), SIGSTOP); /* so it erases nothing */
    struct forgets forgets = begin_forgets(host);

    ck_assert_uint_gt(written_places(host_daemon(host)), host_counter(host, "host_blocks"));
    host_kill_worker(host, 0);
    host_kill_daemon(host);
    host_restart_daemon(host);
    ck_assert_uint_eq(written_places(host_daemon(host)), host_counter(host, "host_blocks"));
    end_forgets(&forgets);
    (void)host_add_worker(host);
    ask_all(host);
    host_stop(&host);
}
END_TEST

/* The first worker was asked for it, and dies with kvasird; the other one was not. */
START_TEST(a_worker_that_lives_on_erases_what_was_forgotten_before_the_restart)
{
    struct host *host = start_full_and_kept(with_host);

    (void)host_add_worker(host);
    host_wait_exactly(host, "workers_ready", 2);
    process_signal(host_worker(host, 0), SIGSTOP);
    process_signal(host_worker(host, 1), SIGSTOP);
    struct forgets forgets = begin_forgets(host);

    host_kill_daemon(host);
    host_kill_worker(host, 0);
    host_restart_daemon(host);
    process_signal(host_worker(host, 1), SIGCONT);
    host_wait_exactly(host, "workers_ready", 1);
    host_wait_exactly(host, "docs_being_forgotten", 0);
    ck_assert_uint_eq(written_places(host_daemon(host)), host_counter(host, "host_blocks"));
    end_forgets(&forgets);
    ask_all(host);
    host_stop(&host);
}
END_TEST

START_TEST(and_after_the_pool_was_lost_with_its_last_worker)
{
    struct host *host;

    ask_plainly();
    host = host_start(&(struct host_options){.kv_memory = POOL, .daemon_args = with_host});
    struct process *worker = start_ipc_worker(host);

    ask_all(host);
    process_signal(worker, SIGSTOP);
    struct forgets forgets = begin_forgets(host);

    process_signal(worker, SIGKILL);
    ck_assert_int_eq(process_wait(worker), 128 + SIGKILL);
    process_destroy(&worker);
    host_wait_exactly(host, "workers_ready", 0);
    worker = start_ipc_worker(host);
    for (size_t i = 0; i < forgets.count; i++) {
        ck_assert_ptr_nonnull(strstr(process_output(forgets.processes[i]), "erased"));
        ck_assert_int_eq(process_wait(forgets.processes[i]), 0);
    }
    end_forgets(&forgets);
    ck_assert_uint_eq(written_places(host_daemon(host)), host_counter(host, "host_blocks"));
    ask_all(host);
    process_stop(&worker);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("host_tier", a_pool_that_is_too_small_answers_the_same_and_computes_every_document_once,
           two_workers_share_the_tier,
           memory_that_changed_is_a_miss_with_an_alarm_and_the_right_answer,
           the_copies_outlive_kvasird, a_worker_that_lives_on_goes_on_with_the_same_memory,
           a_worker_with_the_memory_of_a_tier_that_is_no_more_starts_anew,
           a_worker_that_came_before_the_tier_is_never_asked_for_it,
           what_was_forgotten_and_not_yet_erased_there_is_zeros_after_a_restart,
           a_worker_that_lives_on_erases_what_was_forgotten_before_the_restart,
           and_after_the_pool_was_lost_with_its_last_worker)
