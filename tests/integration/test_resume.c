/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird dies in the middle of answers: workers keep what they run, and retries go on there.
 * Nothing is computed a second time. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define STREAMS 4
#define TOKENS  SCENE(1200, 500, 200) /* still under way when the last kvasird goes */

static struct asking_doc docs[STREAMS];
static struct question questions[STREAMS];
static struct answer alone[STREAMS], answer;

static const char *args[] = {"--check-pool", "--orphan-timeout", "30s", NULL};

static struct host *
start_host(const struct tiny_model_config *model)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        docs[i] = (struct asking_doc){.n_tokens = 30 + 20 * i, .seed = 40 + i};
        questions[i] =
            (struct question){.docs = docs, .doc_count = i, .query_seed = i, .max_tokens = TOKENS};
    }
    return host_start(&(struct host_options){
        .workers = 1, .keeps_pool = true, .daemon_args = args, .model = model});
}

static uint64_t
rows(struct host *host)
{
    return host_worker_by_pid(host, process_pid(host_worker(host, 0))).rows;
}

/* Asks all of them once, so that every document is there; then counts what they cost. */
static uint64_t
ask_alone(struct host *host)
{
    uint64_t before;

    for (uint32_t i = 0; i < STREAMS; i++) {
        ask_ok(host, &questions[i], &alone[i]);
    }
    before = rows(host);
    for (uint32_t i = 0; i < STREAMS; i++) {
        ask_ok(host, &questions[i], &answer);
    }
    return rows(host) - before;
}

/* Ends the daemon in the middle of the answers, as often as `ends` has functions.  How many went
 * over the last end: one that was over by then, while we had no processor, did not. */
static uint64_t
disturb(struct host *host, void (*const *ends)(struct host *))
{
    struct asking *askings[STREAMS];
    uint32_t times = 0;

    for (uint32_t i = 0; i < STREAMS; i++) {
        askings[i] = asking_start(host, &questions[i]);
    }
    for (; ends[times] != NULL; times++) {
        for (uint32_t i = 0; i < STREAMS; i++) { /* each has come back to this kvasird */
            asking_wait_more(askings[i], times == 0 ? 2 : 20);
        }
        ends[times](host);
        host_restart_daemon(host);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        asking_end(&askings[i], &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
        answer_assert_same(&alone[i], &answer);
    }
    uint64_t regained = host_counter(host, "requests_regained");

    ck_assert_uint_eq(host_counter(host, "requests_submitted"), regained);
    host_wait_exactly(host, "blocks_own", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_quarantined"), 0);
    return regained;
}

static void
assert_computed_once(void (*const *ends)(struct host *))
{
    struct host *host = start_host(NULL);
    uint64_t cost = ask_alone(host), before, regained;

    do { /* until all have gone over all of it */
        before = rows(host);
        regained = disturb(host, ends);
        ck_assert_uint_eq(rows(host) - before, cost);
    } while (regained < STREAMS);
    ck_assert_uint_gt(host_counter(host, "tokens_regained"), 0);
    host_stop(&host);
}

START_TEST(streams_go_on_over_a_crash_and_every_token_is_computed_once)
{
    void (*const ends[])(struct host *) = {host_kill_daemon, NULL};

    assert_computed_once(ends);
}
END_TEST

START_TEST(and_over_three_crashes_and_an_upgrade)
{
    void (*const ends[])(struct host *) = {host_kill_daemon, host_kill_daemon, host_leave_daemon,
                                           host_kill_daemon, NULL};

    assert_computed_once(ends);
}
END_TEST

/* Long enough to be seen waiting by the kvasird after the first, and not by the one after that. */
START_TEST(what_nobody_comes_back_for_is_stopped_and_its_blocks_are_free)
{
    const struct tiny_model_config model = host_slow_model();
    struct host *host = start_host(&model);
    struct question question = questions[1];
    struct asking *asking;

    question.max_tokens = ASKING_TOKENS_MAX;
    question.retry_ms = 1; /* it gives up before the next kvasird is there */
    asking = asking_start(host, &question);
    asking_wait_tokens(asking, 2);
    host_kill_daemon(host);
    asking_end(&asking, &answer);
    ck_assert_int_eq(answer.code, KVASIR_UNAVAILABLE);
    host_restart_daemon(host);
    host_wait_exactly(host, "workers_ready", 1);
    ck_assert_uint_gt(host_counter(host, "blocks_own"), 0);
    ck_assert_uint_ge(host_counter(host, "requests_kept"), 1);
    ck_assert_uint_eq(host_counter(host, "requests_orphaned"), 0);
    host_kill_daemon(host);
    args[2] = "100ms";
    host_restart_daemon(host);
    host_wait_at_least(host, "requests_orphaned", 1);
    host_wait_exactly(host, "blocks_own", 0);
    ck_assert_uint_eq(host_counter(host, "requests_orphaned"), 1);
    ck_assert_uint_eq(host_counter(host, "blocks_quarantined"), 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("resume", streams_go_on_over_a_crash_and_every_token_is_computed_once,
           and_over_three_crashes_and_an_upgrade,
           what_nobody_comes_back_for_is_stopped_and_its_blocks_are_free)
