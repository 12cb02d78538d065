/* SPDX-License-Identifier: Apache-2.0 */
/* Cancel, deadline, death of a client: the blocks are back within two steps.
 *
 * kvasird sends Stop in the turn in which it learns of the end (test_sched_requests); from then on
 * the worker counts, since how many steps pass while a message is under way is a matter of how busy
 * the machine is. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define STEPS_MAX 2

static const struct asking_doc documents[] = {{40, 1}, {40, 2}};
static const struct question long_question = {
    .docs = &documents[0], .doc_count = 1, .max_tokens = 4000};

static struct host *
start_slow_host(void)
{
    struct tiny_model_config model = host_slow_model();

    return host_start(&(struct host_options){.workers = 1, .kv_memory = "64MiB", .model = &model});
}

static void
assert_back_within_two_steps(struct host *host)
{
    host_wait_exactly(host, "blocks_own", 0);
    ck_assert_uint_eq(host_counter(host, "blocks_quarantined"), 0);
    ck_assert_uint_le(host_counter(host, "stop_steps_max"), STEPS_MAX);
}

/* The same for a request that ran, so that a Stop has been counted. */
static void
assert_stopped_within_two_steps(struct host *host)
{
    assert_back_within_two_steps(host);
    ck_assert_uint_ge(host_counter(host, "stop_steps_max"), 1);
}

START_TEST(a_cancelled_answer_gives_its_blocks_back_within_two_steps)
{
    struct host *host = start_slow_host();
    struct asking *asking = asking_start(host, &long_question);
    struct answer answer;

    asking_wait_tokens(asking, 5);
    asking_cancel(asking);
    asking_cancel(asking); /* twice is once */
    asking_end(&asking, &answer);
    ck_assert_int_eq(answer.code, KVASIR_CANCELLED);
    ck_assert_uint_ge(answer.id_count, 5);
    assert_stopped_within_two_steps(host);
    ck_assert_uint_eq(host_counter(host, "requests_cancelled"), 1);
    /* The document stays for the next one. */
    struct question again = {.docs = documents, .doc_count = 1};
    ask_ok(host, &again, &answer);
    ck_assert_uint_eq(answer.docs_hit, 1);
    host_stop(&host);
}
END_TEST

START_TEST(cancelling_what_is_unknown_or_has_ended_disturbs_nothing)
{
    struct host *host = start_slow_host();
    struct question question = {.docs = documents, .doc_count = 2};
    struct answer first, second;

    host_cancel_call(host, 12345);
    ask_ok(host, &question, &first);
    host_cancel_call(host, 1);
    host_cancel_request(host, 1);
    host_cancel_request(host, 99999);
    ask_ok(host, &question, &second);
    answer_assert_same(&first, &second);
    ck_assert_uint_eq(host_counter(host, "requests_cancelled"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(an_operator_cancels_a_request_by_its_number)
{
    struct host *host = start_slow_host();
    struct asking *asking = asking_start(host, &long_question);
    struct answer answer;

    asking_wait_tokens(asking, 1);
    uint64_t id = host_only_request(host);
    host_cancel_request(host, id);
    host_cancel_request(host, id); /* while it ends */
    asking_end(&asking, &answer);
    ck_assert_int_eq(answer.code, KVASIR_CANCELLED);
    host_cancel_request(host, id); /* after its end */
    ck_assert_uint_eq(host_counter(host, "requests_cancelled"), 1);
    assert_stopped_within_two_steps(host);
    host_stop(&host);
}
END_TEST

START_TEST(a_deadline_ends_an_answer_and_gives_its_blocks_back)
{
    struct host *host = start_slow_host();
    struct question question = long_question;
    struct answer answer;

    question.timeout_ms = 300;
    ask(host, &question, &answer);
    ck_assert_int_eq(answer.code, KVASIR_DEADLINE_EXCEEDED);
    assert_back_within_two_steps(host);
    ck_assert_uint_eq(host_counter(host, "deadlines_passed"), 1);
    host_stop(&host);
}
END_TEST

START_TEST(a_killed_client_gives_its_blocks_back_within_two_steps)
{
    struct host *host = start_slow_host();
    const char *args[] = {"ask",          "--runtime-dir", host_dir(host), "--ignore-end",
                          "--max-tokens", "4000",          "hello",        NULL};
    struct process *client = process_start_piped("./kvasir", args, NULL);

    process_wait_output(client);
    process_signal(client, SIGKILL);
    ck_assert_int_eq(process_wait(client), 128 + SIGKILL);
    assert_stopped_within_two_steps(host);
    ck_assert_uint_eq(host_counter(host, "clients_gone"), 1);
    process_destroy(&client);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("cancel", a_cancelled_answer_gives_its_blocks_back_within_two_steps,
           cancelling_what_is_unknown_or_has_ended_disturbs_nothing,
           an_operator_cancels_a_request_by_its_number,
           a_deadline_ends_an_answer_and_gives_its_blocks_back,
           a_killed_client_gives_its_blocks_back_within_two_steps)
