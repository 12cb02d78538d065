/* SPDX-License-Identifier: Apache-2.0 */
/* Death at every place that common/failpoint.h lists: the answer is the undisturbed one, and
 * nothing of the dead is left, within a second of its end. */
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define BACK_US 1000000u /* from a death to the books as they were */
#ifdef __SANITIZE_ADDRESS__
#define KILLS 20 /* a worker takes ten times as long to start */
#else
#define KILLS 100
#endif

static const struct asking_doc docs[] = {{40, 1}, {33, 2}, {50, 3}};
static const struct question question = {.docs = docs, .doc_count = 3, .max_tokens = 30};

static const char *const worker_places[] = {
#define PLACE(name, where) #name,
    FAILPOINTS_WORKER(PLACE)};
static const char *const daemon_places[] = {FAILPOINTS_DAEMON(PLACE)};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool
is_among(const char *name, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (strcmp(*list, name) == 0) {
            return true;
        }
    }
    return false;
}

/* --- accounts --------------------------------------------------------------------------------- */

struct accounts {
    int daemon_fds;
    unsigned shm, sockets;
    uint64_t kib; /* of the arenas and whatever else is kept in memory files */
};

static unsigned
count_entries(const char *path)
{
    DIR *folder = opendir(path);
    unsigned count = 0;

    if (folder == NULL) {
        return 0;
    }
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count;
}

/* But for what the policy has learned, which it notes from time to time. */
static uint64_t
memory_files_kib(pid_t pid)
{
    char path[64], file[384], target[64];
    uint64_t kib = 0;
    struct stat st;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        ssize_t length = readlink(file, target, sizeof(target) - 1);

        target[length < 0 ? 0 : length] = '\0';
        if (strncmp(target, "/memfd:", strlen("/memfd:")) == 0
            && strstr(target, "kvasir-learned") == NULL && stat(file, &st) == 0) {
            kib += (uint64_t)st.st_blocks / 2;
        }
    }
    (void)closedir(folder);
    return kib;
}

static struct accounts
take_accounts(struct host *host)
{
    return (struct accounts){.daemon_fds = process_count_fds(host_daemon(host)),
                             .shm = count_entries("/dev/shm"),
                             .sockets = count_entries(host_dir(host)),
                             .kib = memory_files_kib(process_pid(host_daemon(host)))};
}

/* Memory is there once a block has been written: so that no account grows by that, all of it has.
 */
static void
write_every_block(struct host *host)
{
    struct asking_doc whole = {.n_tokens = (uint32_t)(host_counter(host, "block_count") - 1)
                                           * (uint32_t)host_counter(host, "block_tokens"),
                               .seed = 99};
    struct answer answer;

    ask_ok(host, &(struct question){.docs = &whole, .doc_count = 1, .max_tokens = 1}, &answer);
    (void)host_evict(host, UINT32_MAX);
}

/* /dev/shm is everybody's: other processes of the machine may come and go there. */
static bool
is_as_before(struct host *host, const struct accounts *before)
{
    struct accounts now = take_accounts(host);

    return now.daemon_fds <= before->daemon_fds && now.sockets == before->sockets
           && now.kib <= before->kib && host_counter(host, "blocks_quarantined") == 0
           && host_counter(host, "blocks_own") == 0;
}

static uint64_t
limit_us(uint64_t us)
{
#ifdef __SANITIZE_ADDRESS__
    us *= 10;
#endif
    return getenv("KVASIR_TEST_WRAPPER") == NULL ? us : 60 * us;
}

/* A second from now; what the machine keeps from kvasird and from us does not count. */
struct limit {
    uint64_t until_us;
    struct process_waits before;
};

static struct process_waits
read_waits(struct host *host)
{
    struct process_waits waits = {0};

    process_waits_add(&waits, getpid());
    process_waits_add(&waits, process_pid(host_daemon(host)));
    return waits;
}

static struct limit
limit_begin(struct host *host)
{
    return (struct limit){.until_us = clock_now_us() + limit_us(BACK_US),
                          .before = read_waits(host)};
}

static bool
limit_has_passed(struct host *host, const struct limit *limit)
{
    uint64_t now_us = clock_now_us();
    struct process_waits now = read_waits(host);

    return now_us >= limit->until_us + process_waits_longest_us(&limit->before, &now);
}

/* Too late is too late also if it is all back by now: kvasird may not have answered before. */
static void
wait_as_before(struct host *host, const struct accounts *before, const char *after)
{
    struct limit limit = limit_begin(host);

    for (;;) {
        bool is_back = is_as_before(host, before);
        bool is_late = limit_has_passed(host, &limit);
        struct accounts now = take_accounts(host);

        ck_assert_msg(!is_late,
                      "after %s: %d descriptors (%d before), %u files (%u), %llu KiB of memory "
                      "files (%llu), %llu blocks in quarantine, %llu of requests",
                      after, now.daemon_fds, before->daemon_fds, now.sockets, before->sockets,
                      (unsigned long long)now.kib, (unsigned long long)before->kib,
                      (unsigned long long)host_counter(host, "blocks_quarantined"),
                      (unsigned long long)host_counter(host, "blocks_own"));
        if (is_back) {
            return;
        }
        (void)poll(NULL, 0, 1);
    }
}

/* --- workers ---------------------------------------------------------------------------------- */

static struct process *
start_doomed_worker(struct host *host, const char *place, const char *action)
{
    char failpoint[96];
    const char *const args[] = {"--runtime-dir", host_dir(host), NULL};
    const char *const env[] = {failpoint, NULL};

    (void)snprintf(failpoint, sizeof(failpoint), "KVASIR_FAILPOINTS=%s=%s", place, action);
    return process_start("./kvasir-worker", args, env);
}

/* A worker dies at the place while it is the only one, then another takes over. */
static void
die_at(struct host *host, const char *place, const struct answer *undisturbed,
       const struct accounts *before)
{
    static const char *const at_end[] = {"detach_bye", "detach_unmap", NULL};
    struct process *doomed = start_doomed_worker(host, place, "kill");
    struct asking *asking = NULL;
    struct answer answer;

    if (is_among(place, at_end)) {
        process_wait_ready(doomed);
        ask_ok(host, &question, &answer);
        process_signal(doomed, SIGTERM);
    } else {
        asking = asking_start(host, &question);
    }
    ck_assert_msg(process_wait(doomed) == 128 + SIGKILL, "nobody came to %s", place);
    uint32_t next = host_add_worker(host);

    if (asking != NULL) {
        asking_end(&asking, &answer);
    }
    ck_assert_msg(answer.code == KVASIR_OK, "after %s: %s", place, answer.message);
    answer_assert_same(undisturbed, &answer);
    process_signal(host_worker(host, next), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, next), 0);
    process_destroy(&doomed);
    wait_as_before(host, before, place);
    ck_assert_uint_eq(host_counter(host, "requests_lost_twice"), 0);
    ck_assert_uint_eq(host_counter(host, "docs_in_quarantine"), 0);
}

START_TEST(a_worker_may_die_at_every_step_of_its_life)
{
    static const char *const other_tests[] = {"orphan", "rejoin_done", NULL};
    static const char *const args[] = {"--check-pool", NULL};
    struct host *host =
        host_start(&(struct host_options){.workers = 1, .kv_memory = "4MiB", .daemon_args = args});
    struct answer undisturbed;

    write_every_block(host);
    ask_ok(host, &question, &undisturbed);
    process_signal(host_worker(host, 0), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    host_wait_exactly(host, "workers_ready", 0);
    struct accounts before = take_accounts(host);

    for (size_t i = 0; i < COUNT(worker_places); i++) {
        (void)host_evict(host, UINT32_MAX); /* so that there is something to build */
        if (!is_among(worker_places[i], other_tests)) {
            die_at(host, worker_places[i], &undisturbed, &before);
        }
    }
    host_stop(&host);
}
END_TEST

/* While it makes the arenas nothing is there yet, and the next one makes them. */
START_TEST(the_first_worker_may_die_at_every_step_of_its_attach)
{
    struct answer undisturbed, answer;
    struct host *host = host_start(&(struct host_options){.workers = 1});

    ask_ok(host, &question, &undisturbed);
    host_stop(&host);
    for (size_t i = 0; i < COUNT(worker_places); i++) {
        if (strncmp(worker_places[i], "attach_", 7) != 0) {
            continue;
        }
        host = host_start(&(struct host_options){.workers = 0});
        struct process *doomed = start_doomed_worker(host, worker_places[i], "kill");

        ck_assert_int_eq(process_wait(doomed), 128 + SIGKILL);
        process_destroy(&doomed);
        (void)host_add_worker(host);
        ask_ok(host, &question, &answer);
        answer_assert_same(&undisturbed, &answer);
        host_stop(&host);
    }
}
END_TEST

START_TEST(a_hundred_deaths_in_the_middle_of_answers_leave_nothing)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "4MiB"});
    struct answer undisturbed, answer;

    write_every_block(host);
    ask_ok(host, &question, &undisturbed);
    process_signal(host_worker(host, 0), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    host_wait_exactly(host, "workers_ready", 0);
    struct accounts before = take_accounts(host);

    for (int i = 0; i < KILLS; i++) {
        char when[32];

        (void)snprintf(when, sizeof(when), "kill@%d", 2 + i % 25);
        struct process *doomed = start_doomed_worker(host, "step_done", when);
        struct asking *asking = asking_start(host, &question);

        ck_assert_int_eq(process_wait(doomed), 128 + SIGKILL);
        process_destroy(&doomed);
        struct limit limit = limit_begin(host);

        host_wait_exactly(host, "blocks_quarantined", 0);
        ck_assert(!limit_has_passed(host, &limit));
        (void)host_add_worker(host);
        asking_end(&asking, &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "death %d: %s", i, answer.message);
        answer_assert_same(&undisturbed, &answer);
        process_signal(host_worker(host, 0), SIGTERM);
        ck_assert_int_eq(host_wait_worker(host, 0), 0);
        wait_as_before(host, &before, "a kill");
    }
    ck_assert_uint_eq(host_counter(host, "requests_requeued"), KILLS);
    host_stop(&host);
}
END_TEST

START_TEST(a_step_that_hangs_ends_its_worker_and_the_answer_goes_on)
{
    static const char *const args[] = {"--step-timeout", "5s", NULL}; /* no other step is so slow */
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct answer undisturbed, answer;

    ask_ok(host, &question, &undisturbed);
    process_signal(host_worker(host, 0), SIGTERM);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    struct process *hung = start_doomed_worker(host, "step_run", "hang@4");
    struct asking *asking = asking_start(host, &question);

    ck_assert_int_eq(process_wait(hung), 1);
    (void)host_add_worker(host);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    process_destroy(&hung);
    host_stop(&host);
}
END_TEST

START_TEST(a_document_that_kills_workers_is_quarantined_and_says_why)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    const struct asking_doc bad[] = {{40, 1}, {35, 666}};
    const struct question killing = {.docs = bad, .doc_count = 2, .max_tokens = 10};
    struct answer answer, innocent;
    char failpoint[64];

    (void)snprintf(failpoint, sizeof(failpoint), "kill:%u", asking_first_id(bad[1]));
    struct asking *asking = asking_start(host, &killing);
    int deaths = 0;

    while (host_counter(host, "docs_in_quarantine") == 0) {
        struct process *doomed = start_doomed_worker(host, "build_run", failpoint);

        ck_assert_int_eq(process_wait(doomed), 128 + SIGKILL);
        process_destroy(&doomed);
        host_wait_exactly(host, "workers_ready", 0);
        ck_assert_int_le(++deaths, 3); /* the first in the company of another document */
    }
    asking_end(&asking, &answer);
    ck_assert_int_eq(answer.code, KVASIR_FAILED_PRECONDITION);
    ck_assert_ptr_nonnull(strstr(answer.message, "is in quarantine: encoding it alone ended 2"));
    struct process *worker = start_doomed_worker(host, "build_run", failpoint);

    process_wait_ready(worker);
    ask_ok(host, &question, &innocent); /* the worker is still one that would die of it */
    ask(host, &killing, &answer);
    ck_assert_int_eq(answer.code, KVASIR_FAILED_PRECONDITION);
    ck_assert_uint_eq(host_counter(host, "requests_quarantined"), 2);
    process_stop(&worker);
    host_stop(&host);
}
END_TEST

/* --- kvasird ---------------------------------------------------------------------------------- */

/* It dies at the place while it serves its first request; for an adoption, the next one does. */
static void
kill_daemon_at(const char *place, const struct answer *undisturbed)
{
    char failpoint[64];
    const char *const env[] = {failpoint, NULL};
    bool is_adoption = strcmp(place, "adopt_pool") == 0;
    bool is_queued = strcmp(place, "message_read") != 0; /* when it dies */
    struct answer answer;

    (void)snprintf(failpoint, sizeof(failpoint), "KVASIR_FAILPOINTS=%s=kill", place);
    struct host *host = host_start(
        &(struct host_options){.keeps_pool = true, .daemon_env = is_adoption ? NULL : env});
    struct asking *asking = asking_start(host, &question);

    if (is_queued) {
        host_wait_exactly(host, "requests_queued", 1); /* it is sent, so it may be sent again */
    }
    uint32_t worker = host_begin_worker(host);

    if (is_adoption) {
        asking_wait_tokens(asking, 3);
        host_kill_daemon(host);
        host_doom_daemon(host, env);
    } else {
        host_reap_daemon(host);
    }
    host_restart_daemon(host);
    host_settle_worker(host, worker);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "after %s: %s", place, answer.message);
    answer_assert_same(undisturbed, &answer);
    host_wait_exactly(host, "blocks_own", 0);
    host_wait_exactly(host, "blocks_quarantined", 0);
    host_stop(&host);
}

START_TEST(kvasird_may_die_at_every_step_and_the_answer_goes_on)
{
    struct answer undisturbed;
    struct host *host = host_start(&(struct host_options){.workers = 1});

    ask_ok(host, &question, &undisturbed);
    host_stop(&host);
    for (size_t i = 0; i < COUNT(daemon_places); i++) {
        kill_daemon_at(daemon_places[i], &undisturbed);
    }
}
END_TEST

CHECK_MAIN("deaths", a_worker_may_die_at_every_step_of_its_life,
           the_first_worker_may_die_at_every_step_of_its_attach,
           a_hundred_deaths_in_the_middle_of_answers_leave_nothing,
           a_step_that_hangs_ends_its_worker_and_the_answer_goes_on,
           a_document_that_kills_workers_is_quarantined_and_says_why,
           kvasird_may_die_at_every_step_and_the_answer_goes_on)
