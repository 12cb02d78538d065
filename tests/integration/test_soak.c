/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed load for a long time: the books balance at every look, and memory does not grow.
 *
 * SOAK_SECONDS=2700 (make soak) makes it long; in check it is short, and the slope of the resident
 * sizes is told but not judged: there is no warm-up to speak of.  After the first third, samples
 * are gathered in blocks and a line is laid through their medians (memory that is taken for a
 * moment and given back is no growth); a slope counts when it is above zero with 99 % confidence
 * and more than GROWTH_KIB_AN_HOUR, which pages and malloc's own books explain. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/htab.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define AT_ONCE            6
#define QUESTIONS          48
#define WORKERS            2
#define SECONDS_CHECK      4
#define SECONDS_JUDGED     300   /* shorter runs are not judged by their slope */
#define LOOKS              180   /* of a run */
#define BLOCKS             9     /* that samples are averaged in */
#define STUDENT_T99        2.998 /* one-sided, BLOCKS - 2 degrees of freedom */
#define GROWTH_KIB_AN_HOUR 1024

static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

static unsigned
seconds(void)
{
    const char *text = getenv("SOAK_SECONDS");

    return text == NULL ? SECONDS_CHECK : (unsigned)strtoul(text, NULL, 10);
}

/* --- load ------------------------------------------------------------------------------------- */

static struct asking_doc docs[QUESTIONS + 4];

/* From a set that does not grow: what can be remembered of it is, in the first minutes. */
static struct question
make_question(void)
{
    static const char *const salts[] = {NULL, "a", "b"};
    uint32_t i = below(4) == 0 ? below(QUESTIONS) : below(8);

    return (struct question){.docs = docs + i,
                             .doc_count = i % 5,
                             .query_seed = i,
                             .query_tokens = 1 + i % 20,
                             .max_tokens = 1 + 20 * (i % 4),
                             .salt = salts[i % 3],
                             .priority = 1 + below(100),
                             .timeout_ms = below(20) == 0 ? 1 + below(20) : 0,
                             .reuse = (enum kvasir_reuse)(i % 7 == 0 ? 1 + i % 4 : 0),
                             .keep_turn = i % 2 == 0};
}

static void
ask_some(struct host *host, uint64_t ends[2])
{
    static struct answer answer;
    struct asking *askings[AT_ONCE];

    for (int i = 0; i < AT_ONCE; i++) {
        struct question question = make_question();

        askings[i] = asking_start(host, &question);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        if (below(8) == 0) {
            asking_cancel(askings[i]);
        }
        asking_end(&askings[i], &answer);
        ends[answer.code != KVASIR_OK]++;
        ck_assert_msg(answer.code == KVASIR_OK || answer.code == KVASIR_CANCELLED
                          || answer.code == KVASIR_DEADLINE_EXCEEDED,
                      "%s", answer.message);
    }
    if (below(16) == 0) {
        (void)host_evict(host, below(60));
    }
}

/* --- looking ---------------------------------------------------------------------------------- */

/* What is resident, and what it is made of. */
enum part {
    PART_ALL,
    PART_HEAP, /* and stacks: what only this process has */
    PART_FILE,
    PART_SHARED, /* the pool's arenas */
    PARTS,
};

static const char *const part_names[PARTS] = {"VmRSS:", "RssAnon:", "RssFile:", "RssShmem:"};

static void
read_resident(pid_t pid, double kib_out[PARTS])
{
    char path[64], line[256];
    uint32_t found = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        for (int part = 0; part < PARTS; part++) {
            size_t length = strlen(part_names[part]);

            if (strncmp(line, part_names[part], length) == 0) {
                kib_out[part] = strtod(line + length, NULL);
                found++;
            }
        }
    }
    (void)fclose(file);
    ck_assert_uint_eq(found, PARTS);
}

/* Every block is in exactly one account, and every request too. */
static void
check_books(struct host *host)
{
    static const char *const names[] = {
        "block_count",        "blocks_free",        "blocks_docs",       "blocks_own",
        "blocks_quarantined", "requests_submitted", "requests_finished", "requests_cancelled",
        "requests_refused",   "requests_failed",    "deadlines_passed",  "requests_quarantined",
        "requests_running",   "requests_queued"};
    uint64_t at[sizeof(names) / sizeof(names[0])];

    host_counters(host, names, at, sizeof(names) / sizeof(names[0]));
    ck_assert_uint_eq(at[0], at[1] + at[2] + at[3] + at[4]);
    /* A request that has ended for its client runs until its worker has let go of it. */
    uint64_t ended = at[6] + at[7] + at[8] + at[9] + at[10] + at[11];

    ck_assert_uint_le(ended, at[5]);
    ck_assert_uint_le(at[5] - ended, at[12] + at[13]);
}

struct samples {
    double at[LOOKS + 2];                      /* hours */
    double kib[1 + WORKERS][PARTS][LOOKS + 2]; /* of kvasird and each worker */
    uint32_t count;
};

static void
look(struct host *host, struct samples *samples, uint64_t since_us)
{
    uint32_t n = samples->count;

    check_books(host);
    if (n == LOOKS + 2) {
        return;
    }
    samples->at[n] = (double)(clock_now_us() - since_us) / 3.6e9;
    for (uint32_t p = 0; p < 1 + WORKERS; p++) {
        double kib[PARTS];

        read_resident(process_pid(p == 0 ? host_daemon(host) : host_worker(host, p - 1)), kib);
        for (int part = 0; part < PARTS; part++) {
            samples->kib[p][part][n] = kib[part];
        }
    }
    samples->count++;
}

/* --- the slope -------------------------------------------------------------------------------- */

struct slope {
    double kib_an_hour, error; /* its standard error */
    double mean;
};

static int
by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double
median_of(const double *values, uint32_t count)
{
    double sorted[LOOKS + 2];

    memcpy(sorted, values, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), by_size);
    return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static struct slope
slope_of(const struct samples *samples, const double *kib)
{
    uint32_t first = samples->count / 3, count = samples->count - first;
    double x[BLOCKS] = {0}, y[BLOCKS] = {0};
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0;

    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t from = first + b * count / BLOCKS, to = first + (b + 1) * count / BLOCKS;

        for (uint32_t i = from; i < to; i++) {
            x[b] += samples->at[i] / (to - from);
        }
        y[b] = median_of(kib + from, to - from);
        mean_x += x[b] / BLOCKS;
        mean_y += y[b] / BLOCKS;
    }
    for (uint32_t b = 0; b < BLOCKS; b++) {
        xx += (x[b] - mean_x) * (x[b] - mean_x);
        xy += (x[b] - mean_x) * (y[b] - mean_y);
    }
    for (uint32_t b = 0; b < BLOCKS; b++) {
        double miss = y[b] - mean_y - xy / xx * (x[b] - mean_x);

        rest += miss * miss;
    }
    return (struct slope){
        .kib_an_hour = xy / xx, .error = sqrt(rest / (BLOCKS - 2) / xx), .mean = mean_y};
}

static void
judge(const struct samples *samples)
{
    if (samples->count < 3 * BLOCKS) {
        return;
    }
    uint32_t growing = 0;

    for (uint32_t p = 0; p < 1 + WORKERS; p++) {
        struct slope slope = slope_of(samples, samples->kib[p][PART_ALL]);
        bool grows =
            slope.kib_an_hour > STUDENT_T99 * slope.error && slope.kib_an_hour > GROWTH_KIB_AN_HOUR;

        printf("%s %u: %.0f KiB resident, %+.0f KiB an hour (standard error %.0f)%s\n",
               p == 0 ? "kvasird" : "worker", p, slope.mean, slope.kib_an_hour, slope.error,
               grows ? ": it grows" : "");
        for (int part = 1; part < PARTS; part++) {
            slope = slope_of(samples, samples->kib[p][part]);
            printf("    %-9s %.0f KiB, %+.0f an hour (%.0f)\n", part_names[part], slope.mean,
                   slope.kib_an_hour, slope.error);
        }
        growing += grows;
    }
    (void)fflush(stdout); /* a test that fails does not */
    ck_assert_msg(growing == 0 || seconds() < SECONDS_JUDGED, "memory grows");
}

/* --- the run ---------------------------------------------------------------------------------- */

static struct host *host;
static struct samples samples;
static uint64_t ends[2]; /* answers that were whole, and that were not */

/* Before the test, as far as Check is concerned: it counts a test's microseconds in an int, and
 * ends a program whose test took more than 35 minutes. */
static void
run_load(void)
{
    static const char *const args[] = {"--check-pool", "--memo-memory", "1MiB", NULL};
    uint64_t start_us, next_us, end_us;

    host = host_start(
        &(struct host_options){.workers = WORKERS, .kv_memory = "24MiB", .daemon_args = args});
    start_us = next_us = clock_now_us();
    end_us = start_us + seconds() * UINT64_C(1000000);
    random_state = htab_mix(test_seed());
    for (uint32_t i = 0; i < QUESTIONS + 4; i++) {
        docs[i] = (struct asking_doc){.n_tokens = 10 + 17 * i, .seed = 300 + i};
    }
    while (clock_now_us() < end_us) {
        ask_some(host, ends);
        if (clock_now_us() >= next_us) {
            next_us += (end_us - start_us) / LOOKS;
            look(host, &samples, start_us);
        }
    }
}

START_TEST(the_books_balance_and_memory_does_not_grow)
{
    printf("%llu answers, %llu cancelled or late; %llu blocks evicted, %llu preempted\n",
           (unsigned long long)ends[0], (unsigned long long)ends[1],
           (unsigned long long)host_counter(host, "blocks_evicted"),
           (unsigned long long)host_counter(host, "requests_preempted"));
    judge(&samples);
    ck_assert_uint_gt(ends[0], 0);
    host_wait_exactly(host, "blocks_own", 0);
    host_stop(&host);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("soak");
    TCase *tcase = tcase_create("soak");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS + 2 * seconds());
    tcase_add_checked_fixture(tcase, run_load, NULL);
    tcase_add_test(tcase, the_books_balance_and_memory_does_not_grow);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);

    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
