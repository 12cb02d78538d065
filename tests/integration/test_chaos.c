/* SPDX-License-Identifier: Apache-2.0 */
/* Random kill -9 of workers and of kvasird, and workers that stop for a while, under questions:
 * every answer is the one that the question has alone, and at the end nothing is left.
 * CHAOS_SECONDS=1200 (make chaos) makes it long; TEST_SEED replays the choices, not the machine's
 * timing. */
#include <poll.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/htab.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define QUESTIONS     12
#define AT_ONCE       4
#define WORKERS       2
#define SECONDS_CHECK 4
#define PAUSE_MS      150 /* between two blows: an answer gets on in between */

static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

static struct asking_doc docs[QUESTIONS + 2];
static struct question questions[QUESTIONS];
static struct answer alone[QUESTIONS], answer;

static void
make_questions(struct host *host)
{
    for (uint32_t i = 0; i < QUESTIONS + 2; i++) {
        docs[i] = (struct asking_doc){.n_tokens = 20 + 11 * i, .seed = 7 + i};
    }
    for (uint32_t i = 0; i < QUESTIONS; i++) {
        questions[i] = (struct question){.docs = docs + i,
                                         .doc_count = 1 + i % 3,
                                         .query_seed = i,
                                         .max_tokens = 40 + 30 * (i % 4)};
        ask_ok(host, &questions[i], &alone[i]);
    }
}

/* One that is stopped is woken before anything else happens to it. */
static void
strike(struct host *host, uint32_t counts[3])
{
    uint32_t worker = below(WORKERS);

    switch (below(4)) {
    case 0:
        host_kill_kept_daemon(host, SIGKILL);
        counts[1]++;
        break;
    case 1:
        process_signal(host_worker(host, worker), SIGSTOP);
        (void)poll(NULL, 0, PAUSE_MS);
        process_signal(host_worker(host, worker), SIGCONT);
        counts[2]++;
        break;
    default:
        if (!process_has_ended(host_worker(host, worker))) {
            host_kill_worker(host, worker);
            (void)host_begin_worker(host);
            counts[0]++;
        }
    }
}

/* Workers that a kvasird did not take back are started again, as a service manager would. */
static void
start_ended_workers(struct host *host)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (process_has_ended(host_worker(host, i))) {
            (void)host_wait_worker(host, i);
            (void)host_begin_worker(host);
        }
    }
}

static unsigned
seconds(void)
{
    const char *text = getenv("CHAOS_SECONDS");

    return text == NULL ? SECONDS_CHECK : (unsigned)strtoul(text, NULL, 10);
}

START_TEST(every_answer_is_its_solo_answer_whatever_dies)
{
    static const char *const args[] = {"--check-pool", "--host-memory", "32MiB", NULL};
    static const char *const keeper_args[] = {"--restarts", "1000000", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = WORKERS,
                               .kv_memory = "4MiB", /* so that documents go to the host tier */
                               .has_keeper = true,
                               .keeper_args = keeper_args,
                               .daemon_args = args});
    struct asking *askings[AT_ONCE];
    uint32_t which[AT_ONCE], counts[3] = {0}, answers = 0;

    random_state = htab_mix(test_seed());
    make_questions(host);
    uint64_t until_us = clock_now_us() + seconds() * UINT64_C(1000000);

    while (clock_now_us() < until_us) {
        for (int i = 0; i < AT_ONCE; i++) {
            which[i] = below(QUESTIONS);
            askings[i] = asking_start(host, &questions[which[i]]);
            asking_wait_tokens(askings[i], 1); /* it is sent: from here on nothing may lose it */
        }
        strike(host, counts);
        start_ended_workers(host);
        for (int i = 0; i < AT_ONCE; i++) {
            asking_end(&askings[i], &answer);
            ck_assert_msg(answer.code == KVASIR_OK, "question %u: %s", which[i], answer.message);
            answer_assert_same(&alone[which[i]], &answer);
            answers++;
        }
        (void)host_evict(host, below(40));
        start_ended_workers(host);
    }
    printf("%u answers, %u workers killed, %u kvasirds killed, %u workers stopped\n", answers,
           counts[0], counts[1], counts[2]);
    host_wait_exactly(host, "blocks_own", 0);
    host_wait_exactly(host, "blocks_quarantined", 0);
    host_wait_exactly(host, "host_blocks_writing", 0);
    host_wait_exactly(host, "host_blocks_quarantined", 0);
    ck_assert_uint_eq(host_counter(host, "loads_bad"), 0);
    printf("%llu documents came back from the host tier of the last kvasird\n",
           (unsigned long long)host_counter(host, "docs_loaded"));
    ck_assert_uint_gt(answers, 0);
    start_ended_workers(host);
    host_wait_exactly(host, "workers_ready", WORKERS);
    host_stop(&host);
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {every_answer_is_its_solo_answer_whatever_dies};

    return check_run("chaos", tests, 1, 120 + 2 * seconds());
}
