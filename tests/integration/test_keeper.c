/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-keeper: kvasird dies or is replaced, and its pool does not; a hung one is killed. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

static const struct asking_doc docs[] = {{40, 1}, {33, 2}, {50, 3}};
static const struct question question = {.docs = docs, .doc_count = 3};

static void
assert_warm(struct host *host, const struct answer *before)
{
    struct answer answer;

    ask_ok(host, &question, &answer);
    answer_assert_same(before, &answer);
    ck_assert_uint_eq(answer.docs_hit, 3);
    ck_assert_uint_eq(answer.tokens_built, 0);
}

START_TEST(a_killed_kvasird_is_started_again_with_its_pool)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .has_keeper = true});
    struct answer before;

    ask_ok(host, &question, &before);
    for (int i = 0; i < 3; i++) {
        host_kill_kept_daemon(host, SIGKILL);
        assert_warm(host, &before);
    }
    host_stop(&host);
}
END_TEST

START_TEST(an_upgrade_is_one_signal)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .has_keeper = true});
    struct answer before;

    ask_ok(host, &question, &before);
    process_signal(host_daemon(host), SIGUSR2);
    process_wait_ready(host_daemon(host));
    assert_warm(host, &before);
    host_stop(&host);
}
END_TEST

START_TEST(a_hung_kvasird_is_killed_and_followed)
{
    static const char *const args[] = {"--watchdog", "5s", NULL}; /* a busy one is not hung */
    struct host *host =
        host_start(&(struct host_options){.workers = 1, .has_keeper = true, .keeper_args = args});
    struct answer before;

    ask_ok(host, &question, &before);
    host_kill_kept_daemon(host, SIGSTOP);
    assert_warm(host, &before);
    host_stop(&host);
}
END_TEST

START_TEST(wrong_options_are_not_tried_again)
{
    const char *const args[] = {"./kvasird", "--no-such-option", NULL};
    struct process *keeper = process_start("./kvasir-keeper", args, NULL);

    ck_assert_int_eq(process_wait(keeper), 2);
    process_destroy(&keeper);
}
END_TEST

START_TEST(a_program_that_never_starts_well_is_given_up)
{
    char dir[] = "/tmp/kvasir-keeper.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    const char *const args[] = {"--restarts",    "2", "./kvasird", "--model", "/nowhere",
                                "--runtime-dir", dir, NULL};
    struct process *keeper = process_start("./kvasir-keeper", args, NULL);

    ck_assert_int_eq(process_wait(keeper), 1);
    process_destroy(&keeper);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

CHECK_MAIN("keeper", a_killed_kvasird_is_started_again_with_its_pool, an_upgrade_is_one_signal,
           a_hung_kvasird_is_killed_and_followed, wrong_options_are_not_tried_again,
           a_program_that_never_starts_well_is_given_up)
