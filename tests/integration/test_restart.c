/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird dies or leaves, and the next one has its pool and its workers. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "kvpool/catalog.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define DOCS       12
#define RECOVER_US 2000000u

static struct asking_doc docs[DOCS];
static struct question question = {.docs = docs, .doc_count = DOCS, .max_tokens = 24};

static void
name_documents(void)
{
    for (uint32_t i = 0; i < DOCS; i++) {
        docs[i] = (struct asking_doc){.n_tokens = 20 + 7 * i, .seed = 100 + i};
    }
}

static struct host *
start_host(uint32_t workers)
{
    static const char *const args[] = {"--check-pool", NULL};

    name_documents();
    return host_start(
        &(struct host_options){.workers = workers, .keeps_pool = true, .daemon_args = args});
}

/* Sanitizers and wrappers slow everything down. */
static uint64_t
recover_limit_us(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 10 * RECOVER_US;
#else
    return getenv("KVASIR_TEST_WRAPPER") == NULL ? RECOVER_US : 60 * RECOVER_US;
#endif
}

static void
assert_all_hit(const struct answer *warm, const struct answer *answer)
{
    answer_assert_same(warm, answer);
    ck_assert_uint_eq(answer->docs_hit, DOCS);
    ck_assert_uint_eq(answer->tokens_built, 0);
}

/* Of all who take part; a daemon that is not there has not waited yet. */
static struct process_waits
read_waits(struct host *host, uint32_t workers, bool has_daemon)
{
    struct process_waits waits = {0};

    process_waits_add(&waits, getpid());
    for (uint32_t i = 0; i < workers; i++) {
        process_waits_add(&waits, process_pid(host_worker(host, i)));
    }
    if (has_daemon) {
        process_waits_add(&waits, process_pid(host_daemon(host)));
    }
    return waits;
}

/* The daemon goes in one way or the other, and the next one has it all. */
static void
restart_and_ask(struct host *host, uint32_t workers, void (*end)(struct host *),
                const struct answer *warm)
{
    struct answer answer;

    end(host);
    struct process_waits before = read_waits(host, workers, false);
    uint64_t start_us = clock_now_us();

    host_restart_daemon(host);
    ask_ok(host, &question, &answer);
    uint64_t elapsed_us = clock_now_us() - start_us;
    struct process_waits after = read_waits(host, workers, true);
    uint64_t waited_us = process_waits_longest_us(&before, &after);

    assert_all_hit(warm, &answer);
    printf("from death to the whole first answer: %llu ms, and %llu ms waited for a processor\n",
           (unsigned long long)elapsed_us / 1000, (unsigned long long)waited_us / 1000);
    ck_assert_uint_lt(elapsed_us, recover_limit_us() + waited_us);
}

START_TEST(the_first_request_after_a_crash_finds_every_document_and_gives_the_same_answer)
{
    struct host *host = start_host(2);
    struct answer warm;
    pid_t pids[2] = {process_pid(host_worker(host, 0)), process_pid(host_worker(host, 1))};

    ask_ok(host, &question, &warm);
    for (int i = 0; i < 5; i++) {
        restart_and_ask(host, 2, host_kill_daemon, &warm);
        host_wait_exactly(host, "workers_ready", 2);
    }
    ck_assert_uint_eq(host_counter(host, "blocks_quarantined"), 0);
    /* They are the same processes; which number each has does not matter. */
    ck_assert_uint_ne(host_worker_by_pid(host, pids[0]).worker,
                      host_worker_by_pid(host, pids[1]).worker);
    host_stop(&host);
}
END_TEST

START_TEST(a_daemon_that_leaves_is_followed_as_well)
{
    struct host *host = start_host(1);
    struct answer warm;

    ask_ok(host, &question, &warm);
    restart_and_ask(host, 1, host_leave_daemon, &warm);
    host_stop(&host);
}
END_TEST

START_TEST(documents_outlive_all_processes_that_ever_mapped_them)
{
    struct host *host = start_host(2);
    struct answer warm, answer;

    ask_ok(host, &question, &warm);
    host_kill_worker(host, 0);
    host_kill_daemon(host);
    host_kill_worker(host, 1);
    host_restart_daemon(host);
    (void)host_add_worker(host);
    ask_ok(host, &question, &answer);
    assert_all_hit(&warm, &answer);
    host_stop(&host);
}
END_TEST

START_TEST(a_clean_stop_leaves_nothing_to_keep)
{
    struct host *host = start_host(1);
    struct answer warm;

    ask_ok(host, &question, &warm);
    ck_assert_uint_eq(host_store(host)->count, 4);
    process_signal(host_daemon(host), SIGTERM);
    ck_assert_int_eq(process_wait(host_daemon(host)), 0);
    ck_assert_uint_eq(host_store(host)->count, 0);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    host_stop(&host);
}
END_TEST

START_TEST(another_checkpoint_under_the_same_path_starts_cold)
{
    struct host *host = start_host(1);
    struct tiny_model_config other = tiny_model_defaults();
    struct answer warm, answer;

    ask_ok(host, &question, &warm);
    host_kill_daemon(host);
    other.seed++;
    ck_assert_int_eq(tiny_model_write(&other, host_model(host)), ST_OK);
    host_restart_daemon(host);
    ck_assert_int_eq(host_wait_worker(host, 0), 1); /* it has the weights of the old one */
    (void)host_add_worker(host);
    ask_ok(host, &question, &answer);
    ck_assert_uint_eq(answer.docs_hit, 0);
    ck_assert_uint_eq(host_store(host)->count, 4); /* the old pool's memory is given up */
    host_stop(&host);
}
END_TEST

/* The catalog, as the supervisor keeps it. */
static uint8_t *
map_catalog(struct host *host, size_t *bytes_out)
{
    const struct process_store *store = host_store(host);

    for (size_t i = 0; i < store->count; i++) {
        struct stat info;

        if (strncmp(store->names[i], "kvasir-catalog-", 15) == 0) {
            ck_assert_int_eq(fstat(store->fds[i], &info), 0);
            *bytes_out = (size_t)info.st_size;
            uint8_t *at =
                mmap(NULL, *bytes_out, PROT_READ | PROT_WRITE, MAP_SHARED, store->fds[i], 0);
            ck_assert_ptr_ne(at, MAP_FAILED);
            return at;
        }
    }
    ck_abort_msg("no catalog is kept");
    return NULL;
}

START_TEST(what_does_not_verify_is_a_miss_and_the_answer_is_right)
{
    struct host *host = start_host(1);
    struct answer warm, answer;
    struct catalog *catalog;
    struct catalog_record record;
    const uint32_t *ids;
    size_t bytes;
    uint32_t broken = 0;

    ask_ok(host, &question, &warm);
    host_kill_daemon(host);
    uint8_t *at = map_catalog(host, &bytes);

    ck_assert_int_eq(catalog_open(at, bytes, &catalog), ST_OK);
    for (uint32_t block = 0; broken == 0 && block < catalog_pool(catalog)->block_count; block++) {
        if (catalog_read(catalog, block, &record, &ids) && record.index == 0) {
            broken = record.n_tokens;
            *(uint32_t *)(uintptr_t)ids ^= 1;
        }
    }
    ck_assert_uint_gt(broken, 0);
    catalog_close(&catalog);
    ck_assert_int_eq(munmap(at, bytes), 0);
    host_restart_daemon(host);
    ask_ok(host, &question, &answer);
    answer_assert_same(&warm, &answer);
    ck_assert_uint_eq(answer.docs_hit, DOCS - 1);
    ck_assert_uint_eq(answer.tokens_built, broken);
    host_stop(&host);
}
END_TEST

START_TEST(a_second_daemon_on_the_same_pool_refuses)
{
    struct host *host = start_host(1);
    struct answer warm, answer;
    char dir[] = "/tmp/kvasir-second.XXXXXX";

    ask_ok(host, &question, &warm);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    struct process_store copy = *host_store(host);

    for (size_t i = 0; i < copy.count; i++) {
        copy.fds[i] = fcntl(copy.fds[i], F_DUPFD_CLOEXEC, 0);
    }
    const char *const args[] = {"--runtime-dir", dir,     "--model", host_model(host),
                                "--kv-memory",   "64MiB", NULL};
    struct process *second = process_start_kept("./kvasird", args, NULL, &copy);

    ck_assert_int_eq(process_wait(second), 1);
    process_read_notify(second);
    ck_assert_uint_eq(copy.count, 4); /* and gives nothing of it up */
    process_destroy(&second);
    process_store_close(&copy);
    ask_ok(host, &question, &answer);
    assert_all_hit(&warm, &answer);
    ck_assert_int_eq(rmdir(dir), 0);
    host_stop(&host);
}
END_TEST

static const struct question longer = {
    .docs = docs, .doc_count = 3, .max_tokens = SCENE(1500, 600, 200)};

/* Asks and ends the daemon in the middle of the answer, as often as `ends` has functions; has the
 * answer whole and the same as undisturbed.  Whether the last daemon had to do with it: it has not
 * if all was said by then, while we had no processor. */
static bool
goes_on(struct host *host, void (*const *ends)(struct host *), const struct answer *undisturbed)
{
    struct asking *asking = asking_start(host, &longer);
    struct answer answer;

    for (size_t tokens = 2; *ends != NULL; ends++, tokens += 20) {
        asking_wait_tokens(asking, tokens);
        (*ends)(host);
        host_restart_daemon(host);
    }
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(undisturbed, &answer);
    uint64_t submitted = host_counter(host, "requests_submitted");

    ck_assert_uint_le(submitted, 1);
    ck_assert_uint_eq(host_counter(host, "requests_resumed"), submitted);
    host_wait_exactly(host, "blocks_own", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_quarantined"), 0);
    return submitted == 1;
}

static void
assert_goes_on(struct host *host, void (*const *ends)(struct host *))
{
    struct answer undisturbed;

    ask_ok(host, &longer, &undisturbed);
    while (!goes_on(host, ends, &undisturbed)) {
    }
}

START_TEST(an_answer_goes_on_over_crashes_of_the_daemon_and_nothing_comes_twice)
{
    struct host *host = start_host(1);
    void (*const ends[])(struct host *) = {host_kill_daemon, host_kill_daemon, NULL};

    assert_goes_on(host, ends);
    host_stop(&host);
}
END_TEST

START_TEST(an_answer_goes_on_over_an_upgrade)
{
    struct host *host = start_host(2);
    void (*const ends[])(struct host *) = {host_leave_daemon, NULL};

    assert_goes_on(host, ends);
    host_stop(&host);
}
END_TEST

START_TEST(a_stopped_worker_keeps_its_blocks_fenced_over_a_restart)
{
    struct host *host = start_host(1);
    const char *const args[] = {"--runtime-dir", host_dir(host), NULL};
    const char *const env[] = {"KVASIR_FAILPOINTS=step_done=stop@3", NULL}; /* of 24 */
    struct answer undisturbed, answer;
    siginfo_t info;

    ask_ok(host, &question, &undisturbed);
    process_signal(host_worker(host, 0), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    struct process *stopped = process_start("./kvasir-worker", args, env);
    struct asking *asking = asking_start(host, &question);

    ck_assert_int_eq(waitid(P_PID, (id_t)process_pid(stopped), &info, WSTOPPED | WNOWAIT), 0);
    host_kill_daemon(host);
    host_restart_daemon(host);
    ck_assert_uint_gt(host_counter(host, "blocks_quarantined"), 0);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    answer_assert_same(&undisturbed, &answer);
    ck_assert_uint_gt(host_counter(host, "blocks_quarantined"), 0);
    process_destroy(&stopped);
    host_wait_exactly(host, "blocks_quarantined", 0);
    host_stop(&host);
}
END_TEST

/* The shortest document is worth the least by its size alone, so it stays for being asked for. */
START_TEST(what_the_policy_has_learned_comes_along)
{
    struct host *host = start_host(1);
    struct question favourite = {.docs = docs, .doc_count = 1, .max_tokens = 1};
    struct answer answer;

    ask_ok(host, &question, &answer);
    for (int i = 0; i < 20; i++) {
        ask_ok(host, &favourite, &answer);
    }
    host_leave_daemon(host);
    host_restart_daemon(host);
    (void)host_evict(host, (uint32_t)host_counter(host, "blocks_evictable") - 1);
    ck_assert_uint_eq(host_counter(host, "documents"), 1);
    ask_ok(host, &favourite, &answer);
    ck_assert_uint_eq(answer.docs_hit, 1);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("restart",
           the_first_request_after_a_crash_finds_every_document_and_gives_the_same_answer,
           a_daemon_that_leaves_is_followed_as_well,
           documents_outlive_all_processes_that_ever_mapped_them,
           a_clean_stop_leaves_nothing_to_keep, another_checkpoint_under_the_same_path_starts_cold,
           what_does_not_verify_is_a_miss_and_the_answer_is_right,
           a_second_daemon_on_the_same_pool_refuses, what_the_policy_has_learned_comes_along,
           an_answer_goes_on_over_crashes_of_the_daemon_and_nothing_comes_twice,
           an_answer_goes_on_over_an_upgrade,
           a_stopped_worker_keeps_its_blocks_fenced_over_a_restart)
