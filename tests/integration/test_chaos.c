/* SPDX-License-Identifier: Apache-2.0 */
/* Random kill -9 of workers and of kvasird, workers that stop for a while, connections that are cut
 * with answers on their way, a disk that is full while that happens: under questions, every answer
 * is the one that the question has alone, and at the end nothing is left.
 * CHAOS_SECONDS=1200 (make chaos) makes it long; TEST_SEED replays the choices, not the machine's
 * timing. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/clock.h"
#include "common/htab.h"
#include "proto/endpoints.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/small_disk.h"

#define QUESTIONS     12
#define AT_ONCE       4
#define WORKERS       2
#define SECONDS_CHECK 4
#define FDS_MAX       1024
#define PAUSE_MS      150 /* between two blows: an answer gets on in between */

static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

struct counts {
    uint32_t workers, daemons, stops, cuts, disks;
};

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

/* The connections of our clients; what is on its way in them is lost. */
static uint32_t
cut_clients(void)
{
    uint32_t count = 0;

    for (int fd = 3; fd < FDS_MAX; fd++) {
        struct sockaddr_un peer = {0};
        socklen_t bytes = sizeof(peer);

        if (getpeername(fd, (struct sockaddr *)(void *)&peer, &bytes) == 0
            && peer.sun_family == AF_UNIX && strstr(peer.sun_path, ENDPOINT_CLIENT) != NULL
            && below(2) == 0) {
            count += shutdown(fd, SHUT_RDWR) == 0;
        }
    }
    return count;
}

enum blow {
    KILL_WORKER,
    KILL_WORKER_TOO, /* as often as all others together */
    KILL_DAEMON,
    STOP_WORKER,
    CUT_CLIENTS,
    BLOWS,
};

/* One that is stopped is woken before anything else happens to it. */
static void
strike(struct host *host, bool has_disk, struct counts *counts)
{
    uint32_t worker = below(WORKERS);
    bool is_full = has_disk && below(3) == 0;

    if (is_full) {
        small_disk_fill();
        counts->disks++;
    }
    switch ((enum blow)below(BLOWS)) {
    case KILL_DAEMON:
        host_kill_kept_daemon(host, SIGKILL);
        counts->daemons++;
        break;
    case STOP_WORKER:
        process_signal(host_worker(host, worker), SIGSTOP);
        (void)poll(NULL, 0, PAUSE_MS);
        process_signal(host_worker(host, worker), SIGCONT);
        counts->stops++;
        break;
    case CUT_CLIENTS: counts->cuts += cut_clients(); break;
    default:
        if (!process_has_ended(host_worker(host, worker))) {
            host_kill_worker(host, worker);
            (void)host_begin_worker(host);
            counts->workers++;
        }
    }
    if (is_full) {
        small_disk_free();
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
    bool has_disk = small_disk_mount();
    static const char *const args[] = {"--check-pool", "--host-memory", "32MiB", NULL};
    static const char *const keeper_args[] = {"--restarts", "1000000", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = WORKERS,
                               .kv_memory = "4MiB", /* so that documents go to the host tier */
                               .has_keeper = true,
                               .keeper_args = keeper_args,
                               .daemon_args = args});
    struct asking *askings[AT_ONCE];
    uint32_t which[AT_ONCE], answers = 0;
    struct counts counts = {0};

    random_state = htab_mix(test_seed());
    make_questions(host);
    uint64_t until_us = clock_now_us() + seconds() * UINT64_C(1000000);

    while (clock_now_us() < until_us) {
        for (int i = 0; i < AT_ONCE; i++) {
            which[i] = below(QUESTIONS);
            askings[i] = asking_start(host, &questions[which[i]]);
            asking_wait_tokens(askings[i], 1); /* it is sent: from here on nothing may lose it */
        }
        strike(host, has_disk, &counts);
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
    printf("%u answers, %u workers killed, %u kvasirds killed, %u workers stopped, %u connections "
           "cut, the disk full %u times\n",
           answers, counts.workers, counts.daemons, counts.stops, counts.cuts, counts.disks);
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
    if (has_disk) {
        small_disk_end();
    }
}
END_TEST

int
main(void)
{
    const TTest *const tests[] = {every_answer_is_its_solo_answer_whatever_dies};

    return check_run("chaos", tests, 1, CHECK_TIMEOUT_SECONDS + 2 * seconds());
}
