/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are killed and kvasirds that are killed and followed, under questions, on a device:
 * every answer is its undisturbed one, what was read once is not read again, and what the dead had
 * of the device's memory is back within a second of their end.
 *
 *   losses [--list]        from the folder that has kvasird and kvasir-worker
 *
 * KVASIR_DEVICE is the workers' --device (cpu: what `make check` runs, in a short form);
 * LOSSES_KILLS and LOSSES_RESTARTS set how many of each.  With LOSSES_MPS=1 the last two tests
 * start a Multi-Process Service of their own and kill its server; without, they kill all workers at
 * once, which is what the death of a server is to kvasird. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define QUESTIONS      8
#define AT_ONCE        4
#define KILLS_CHECK    4 /* in make check */
#define RESTARTS_CHECK 2
#define TOKENS_BEFORE  4 /* of each answer, before the blow */
#define BACK_US        1000000u
#define LOOK_MS        5
#define EQUAL_BYTES    (2u << 20)   /* the grain in which a device hands out memory */
#define HOST_BYTES     (256u << 20) /* kernel and file system keep some of their own */
#define CONTEXT_BYTES  (64u << 20)  /* a survivor loads code when it first needs it */

static struct asking_doc docs[QUESTIONS + 2];
static struct question questions[QUESTIONS];
static struct answer alone[QUESTIONS], answer;

static const char *
device(void)
{
    const char *name = getenv("KVASIR_DEVICE");

    return name == NULL ? "cpu" : name;
}

static bool
is_cpu(void)
{
    return strcmp(device(), "cpu") == 0;
}

static unsigned
number(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : (unsigned)strtoul(text, NULL, 10);
}

/* --- the device's memory ---------------------------------------------------------------------- */

/* Of NVML, which tells without a context of its own; its header is not on every machine. */
struct nvml_memory {
    unsigned long long total, free, used;
};
typedef int (*nvml_init_fn)(void);
typedef int (*nvml_device_fn)(unsigned index, void **device_out);
typedef int (*nvml_memory_fn)(void *device, struct nvml_memory *memory_out);

static nvml_memory_fn nvml_memory_of;
static void *nvml_device;

static void
open_nvml(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    ck_assert_msg(nvml != NULL, "%s", dlerror());
    nvml_init_fn init = (nvml_init_fn)(uintptr_t)dlsym(nvml, "nvmlInit_v2");
    nvml_device_fn find = (nvml_device_fn)(uintptr_t)dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");

    nvml_memory_of = (nvml_memory_fn)(uintptr_t)dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    ck_assert(init != NULL && find != NULL && nvml_memory_of != NULL);
    ck_assert_int_eq(init(), 0);
    ck_assert_int_eq(find(0, &nvml_device), 0);
}

/* Bytes in use; always 0 on a CPU, where a process takes its memory along. */
static uint64_t
used_bytes(void)
{
    struct nvml_memory memory = {0};

    if (is_cpu()) {
        return 0;
    }
    if (nvml_memory_of == NULL) {
        open_nvml();
    }
    ck_assert_int_eq(nvml_memory_of(nvml_device, &memory), 0);
    return memory.used;
}

/* Of the machine, by all: on one that runs nothing else this is ours. */
static uint64_t
host_used_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long total = 0, free = 0, available = 0;

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "MemTotal: %llu kB MemFree: %llu kB MemAvailable: %llu", &total,
                            &free, &available),
                     3);
    (void)fclose(file);
    return (total - available) * 1024;
}

static double
mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* What is used a second after a death; the deaths that follow are measured by it. */
static uint64_t
settled_bytes(void)
{
    (void)poll(NULL, 0, is_cpu() ? 0 : BACK_US / 1000);
    return used_bytes();
}

struct returns {
    uint64_t expected, slack; /* in use, once what a dead worker had is back */
    uint64_t lowest, highest, last;
    uint64_t host_first, host_last;
    uint64_t longest_us;
    uint32_t count;
};

/* Just after the end of a worker. */
static void
see_return(struct returns *r)
{
    uint64_t start_us = clock_now_us(), used = used_bytes(), elapsed_us = 0;

    while (used > r->expected + r->slack && elapsed_us < BACK_US) {
        (void)poll(NULL, 0, LOOK_MS);
        used = used_bytes();
        elapsed_us = clock_now_us() - start_us;
    }
    ck_assert_msg(used <= r->expected + r->slack,
                  "death %u: %.1f MiB are used after %.0f ms, %.1f after the first", r->count,
                  mib(used), (double)elapsed_us / 1000, mib(r->expected));
    r->longest_us = elapsed_us > r->longest_us ? elapsed_us : r->longest_us;
    r->lowest = r->count == 0 || used < r->lowest ? used : r->lowest;
    r->highest = used > r->highest ? used : r->highest;
    r->last = used;
    r->host_last = host_used_bytes();
    r->host_first = r->count == 0 ? r->host_last : r->host_first;
    r->count++;
}

/* --- questions -------------------------------------------------------------------------------- */

static void
make_questions(struct host *host)
{
    for (uint32_t i = 0; i < QUESTIONS + 2; i++) {
        docs[i] = (struct asking_doc){.n_tokens = 20 + 31 * i, .seed = 7 + i};
    }
    for (uint32_t i = 0; i < QUESTIONS; i++) {
        questions[i] = (struct question){.docs = docs + i,
                                         .doc_count = 1 + i % 3,
                                         .query_seed = i,
                                         .max_tokens = 200 + 100 * (i % 4)};
        ask_ok(host, &questions[i], &alone[i]);
    }
}

static void
begin_asking(struct host *host, uint32_t first, uint32_t count, struct asking **askings)
{
    for (uint32_t i = 0; i < count; i++) {
        askings[i] = asking_start(host, &questions[(first + i) % QUESTIONS]);
    }
    for (uint32_t i = 0; i < count; i++) {
        asking_wait_tokens(askings[i], TOKENS_BEFORE);
    }
}

static void
end_asking(uint32_t first, uint32_t count, struct asking **askings, const char *after)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t which = (first + i) % QUESTIONS;

        asking_end(&askings[i], &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "question %u after %s: %s", which, after,
                      answer.message);
        answer_assert_same(&alone[which], &answer);
    }
}

/* Everything was read before, so all of it is found. */
static void
assert_all_found(struct host *host)
{
    for (uint32_t i = 0; i < QUESTIONS; i++) {
        ask_ok(host, &questions[i], &answer);
        answer_assert_same(&alone[i], &answer);
        ck_assert_uint_eq(answer.docs_hit, questions[i].doc_count);
        ck_assert_uint_eq(answer.tokens_built, 0);
    }
}

/* --- blows ------------------------------------------------------------------------------------ */

static struct host *
start_host(uint32_t workers)
{
    static const char *const cpu[] = {"--check-pool", NULL};
    static const char *const gpu[] = {"--check-pool",    "--kv-type",   "bf16",
                                      "--deterministic", "--heartbeat", "200ms",
                                      "--step-timeout",  "5s",          NULL};
    static const char *worker_args[] = {"--device", NULL, NULL};

    worker_args[1] = device();
    return host_start(&(struct host_options){.workers = workers,
                                             .keeps_pool = true,
                                             .daemon_args = is_cpu() ? cpu : gpu,
                                             .worker_args = worker_args});
}

static void
kill_worker(struct host *host, uint32_t round, uint32_t workers, struct returns *returns)
{
    struct asking *askings[AT_ONCE];

    begin_asking(host, round, AT_ONCE, askings);
    host_kill_worker(host, round % workers);
    if (returns->count == 0) {
        returns->expected = settled_bytes();
    }
    see_return(returns);
    (void)host_begin_worker(host);
    end_asking(round, AT_ONCE, askings, "a worker's death");
    host_wait_exactly(host, "workers_ready", workers);
    host_wait_exactly(host, "blocks_quarantined", 0);
    host_wait_exactly(host, "blocks_own", 0);
}

/* Returns how long it took until the answers went on: to the first token of a question that came
 * after the restart. */
static uint64_t
kill_daemon(struct host *host, uint32_t round, uint32_t workers)
{
    struct asking *askings[AT_ONCE];

    begin_asking(host, round, AT_ONCE, askings);
    host_kill_daemon(host);
    uint64_t start_us = clock_now_us();

    host_restart_daemon(host);
    struct asking *next = asking_start(host, &questions[round % QUESTIONS]);

    asking_wait_tokens(next, 1);
    uint64_t elapsed_us = clock_now_us() - start_us;

    end_asking(round, 1, &next, "a restart");
    end_asking(round, AT_ONCE, askings, "a restart under way");
    host_wait_exactly(host, "workers_ready", workers);
    assert_all_found(host);
    return elapsed_us;
}

static void
lose_again_and_again(uint32_t workers)
{
    uint64_t before = used_bytes(), start_us = clock_now_us(), longest_us = 0;
    struct host *host = start_host(workers);
    struct returns returns = {.slack = workers == 1 ? EQUAL_BYTES : CONTEXT_BYTES};
    uint32_t kills = number("LOSSES_KILLS", KILLS_CHECK);
    uint32_t restarts = number("LOSSES_RESTARTS", RESTARTS_CHECK);

    make_questions(host);
    assert_all_found(host);
    uint64_t full = used_bytes();
    int fds = process_count_fds(host_daemon(host));

    for (uint32_t kill = 0, restart = 0; kill < kills || restart < restarts;) {
        if (restart * kills <= kill * restarts && restart < restarts) {
            uint64_t elapsed_us = kill_daemon(host, restart++, workers);

            longest_us = elapsed_us > longest_us ? elapsed_us : longest_us;
        } else {
            kill_worker(host, kill++, workers, &returns);
        }
    }
    assert_all_found(host);
    printf("%u workers killed, %u kvasirds killed: all answers right, all documents found\n", kills,
           restarts);
    printf("device memory: %.1f MiB with %u workers; without the dead one %.1f to %.1f, last %.1f; "
           "back after at most %.0f ms\n",
           mib(full), workers, mib(returns.lowest), mib(returns.highest), mib(returns.last),
           (double)returns.longest_us / 1000);
    printf(
        "host memory of the machine in use after the first death %.0f MiB, after the last %.0f\n",
        mib(returns.host_first), mib(returns.host_last));
    ck_assert(is_cpu() || returns.host_last < returns.host_first + HOST_BYTES);
    printf("a kvasird's death to the first token of a new question: at most %.0f ms; descriptors "
           "of kvasird %d, at the end %d\n",
           (double)longest_us / 1000, fds, process_count_fds(host_daemon(host)));
    ck_assert_int_le(process_count_fds(host_daemon(host)), fds);
    host_stop(&host);
    returns = (struct returns){.expected = before, .slack = EQUAL_BYTES};
    see_return(&returns);
    printf("device memory at the end %.1f MiB, before %.1f; %.1f s\n", mib(returns.last),
           mib(before), (double)(clock_now_us() - start_us) / 1e6);
}

START_TEST(one_worker_killed_again_and_again_costs_no_answer_no_document_and_no_memory)
{
    lose_again_and_again(1);
}
END_TEST

START_TEST(nor_does_one_of_two_on_the_same_device)
{
    lose_again_and_again(2);
}
END_TEST

/* --- the death of an MPS server --------------------------------------------------------------- */

static bool
is_mps(void)
{
    return getenv("LOSSES_MPS") != NULL;
}

static char mps_dir[] = "/tmp/kvasir-mps.XXXXXX";
static struct process *mps;

/* Runs a line of shell; the first number that it says, 0 if there is none. */
static int
run_shell(const char *line)
{
    const char *const args[] = {"-c", line, NULL};
    struct process *shell = process_start_piped("/bin/sh", args, NULL);
    int answered = (int)strtol(process_output(shell), NULL, 10);

    (void)process_wait(shell);
    process_destroy(&shell);
    return answered;
}

static int
tell_mps(const char *command)
{
    char line[128];

    (void)snprintf(line, sizeof(line), "echo %s | timeout 20 nvidia-cuda-mps-control", command);
    return run_shell(line);
}

static void
start_mps(void)
{
    static const char *const args[] = {"-f", NULL};
    char socket[64];
    struct stat info;

    if (!is_mps()) {
        return;
    }
    ck_assert_ptr_nonnull(mkdtemp(mps_dir));
    (void)setenv("CUDA_MPS_PIPE_DIRECTORY", mps_dir, 1);
    (void)setenv("CUDA_MPS_LOG_DIRECTORY", mps_dir, 1);
    mps = process_start("nvidia-cuda-mps-control", args, NULL);
    (void)snprintf(socket, sizeof(socket), "%s/control", mps_dir);
    for (int i = 0; i < 2000 && stat(socket, &info) != 0; i++) {
        ck_assert_msg(!process_has_ended(mps), "nvidia-cuda-mps-control ends at once");
        (void)poll(NULL, 0, LOOK_MS);
    }
}

static void
stop_mps(void)
{
    char line[128];

    if (is_mps()) {
        (void)tell_mps("quit");
        process_destroy(&mps);
        (void)snprintf(line, sizeof(line), "tail -n 12 %s/*.log >&2; rm -rf %s", mps_dir, mps_dir);
        (void)run_shell(line);
        memcpy(mps_dir + strlen(mps_dir) - 6, "XXXXXX", 6);
    }
}

/* All workers are dead then: of their own, as their device is. */
static void
kill_server(struct host *host, uint32_t workers)
{
    uint64_t start_us = clock_now_us();
    int server = is_mps() ? tell_mps("get_server_list") : 0;

    if (is_mps()) {
        ck_assert_msg(server > 0, "MPS has no server");
        ck_assert_int_eq(kill(server, SIGKILL), 0);
        printf("MPS server %d is killed\n", server);
    }
    for (uint32_t i = 0; i < workers && !is_mps(); i++) {
        process_signal(host_worker(host, i), SIGSTOP); /* so that none sees another one's end */
    }
    for (uint32_t i = 0; i < workers && !is_mps(); i++) {
        process_signal(host_worker(host, i), SIGKILL);
    }
    for (uint32_t i = 0; i < workers; i++) {
        int status = host_wait_worker(host, i);

        printf("worker %u ended with status %d after %.0f ms\n", i, status,
               (double)(clock_now_us() - start_us) / 1000);
    }
}

static void
lose_the_server(uint32_t at_once)
{
    struct asking *askings[AT_ONCE];
    uint32_t workers = 2, events = is_cpu() ? 2 : 3;
    uint64_t before = used_bytes();

    start_mps();
    struct host *host = start_host(workers);

    make_questions(host);
    for (uint32_t event = 0; event < events; event++) {
        begin_asking(host, event, at_once, askings);
        kill_server(host, workers);
        for (uint32_t i = 0; i < workers; i++) {
            (void)host_begin_worker(host);
        }
        end_asking(event, at_once, askings, "the death of all workers");
        host_wait_exactly(host, "workers_ready", workers);
        printf("event %u: %llu workers lost in %llu events, %llu requests moved\n", event + 1,
               (unsigned long long)host_counter(host, "workers_lost"),
               (unsigned long long)host_counter(host, "loss_events"),
               (unsigned long long)host_counter(host, "requests_requeued"));
        ck_assert_uint_eq(host_counter(host, "loss_events"), event + 1);
        ck_assert_uint_eq(host_counter(host, "requests_lost_twice"), 0);
        ck_assert_uint_eq(host_counter(host, "docs_quarantined"), 0);
        host_wait_exactly(host, "blocks_quarantined", 0);
        assert_all_found(host);
    }
    host_stop(&host);
    stop_mps();
    struct returns returns = {.expected = before, .slack = EQUAL_BYTES};

    see_return(&returns);
}

START_TEST(the_death_of_all_workers_at_once_is_one_event_and_costs_no_answer)
{
    lose_the_server(AT_ONCE);
}
END_TEST

START_TEST(nor_does_it_cost_one_that_ran_alone)
{
    lose_the_server(1);
}
END_TEST

int
main(int argc, char **argv)
{
    const TTest *const tests[] = {
        one_worker_killed_again_and_again_costs_no_answer_no_document_and_no_memory,
        nor_does_one_of_two_on_the_same_device,
        the_death_of_all_workers_at_once_is_one_event_and_costs_no_answer,
        nor_does_it_cost_one_that_ran_alone};
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    Suite *suite = suite_create("losses");

    for (size_t i = 0; i < count; i++) {
        TCase *tcase = tcase_create(tests[i]->name);

        if (argc > 1 && strcmp(argv[1], "--list") == 0) {
            printf("%s\n", tests[i]->name);
        }
        tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS);
        tcase_add_test(tcase, tests[i]);
        suite_add_tcase(suite, tcase);
    }
    SRunner *runner = srunner_create(suite);

    if (argc == 1) {
        srunner_run_all(runner, CK_NORMAL);
    }
    int failed = srunner_ntests_failed(runner);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
