/* SPDX-License-Identifier: Apache-2.0 */
/* An arena that ends with the last worker that maps it (ipc): kvasird drops pool and arena together
 * and goes on with the next worker. */
#include <signal.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define ANSWER_TOKENS 40

static const struct asking_doc documents[] = {{100, 1}, {33, 2}};
static const struct question question = {
    .docs = documents, .doc_count = 2, .max_tokens = ANSWER_TOKENS};

static struct process *
start_ipc_worker(const struct host *host)
{
    const char *const args[] = {"--runtime-dir", host_dir(host), NULL};
    const char *const env[] = {"KVASIR_TEST_IPC=1", "KVASIR_TEST_STEPS=1000000", NULL};
    struct process *worker = process_start("./tests/support/failing_worker", args, env);

    process_wait_ready(worker);
    return worker;
}

static void
end_worker(struct process **worker, int signo)
{
    process_signal(*worker, signo);
    ck_assert_int_eq(process_wait(*worker), signo == SIGKILL ? 128 + SIGKILL : 0);
    process_destroy(worker);
}

START_TEST(documents_outlive_any_worker_but_the_last)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    struct process *first = start_ipc_worker(host);
    struct process *second = start_ipc_worker(host);
    struct answer cold, hot, anew;

    ask_ok(host, &question, &cold);
    end_worker(&first, SIGKILL);
    host_wait_exactly(host, "workers_ready", 1);
    ask_ok(host, &question, &hot);
    ck_assert_uint_eq(hot.docs_hit, 2);
    end_worker(&second, SIGKILL);
    host_wait_exactly(host, "workers_ready", 0);

    /* Pool and arena are gone; a question waits, the next worker makes both anew. */
    struct asking *asking = asking_start(host, &question);

    host_wait_exactly(host, "requests_queued", 1);
    first = start_ipc_worker(host);
    asking_end(&asking, &anew);
    ck_assert_msg(anew.code == KVASIR_OK, "%s", anew.message);
    ck_assert_uint_eq(anew.docs_hit, 0);
    ck_assert_uint_gt(anew.tokens_built, 0);
    answer_assert_same(&cold, &hot);
    answer_assert_same(&cold, &anew);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    end_worker(&first, SIGTERM);
    host_stop(&host);
}
END_TEST

START_TEST(an_answer_goes_on_with_a_new_arena)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    struct process *worker = start_ipc_worker(host);
    struct answer undisturbed, answer;

    ask_ok(host, &question, &undisturbed);
    struct asking *asking = asking_start(host, &question);

    asking_wait_tokens(asking, 1);
    end_worker(&worker, SIGKILL);
    host_wait_exactly(host, "workers_ready", 0);
    worker = start_ipc_worker(host);
    asking_end(&asking, &answer);
    ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
    answer_assert_same(&undisturbed, &answer);
    end_worker(&worker, SIGTERM);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("arena_loss", documents_outlive_any_worker_but_the_last,
           an_answer_goes_on_with_a_new_arena)
