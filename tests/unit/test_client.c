/* SPDX-License-Identifier: Apache-2.0 */
/* libkvasir against a fake daemon: streaming, errors, cancel, deadline, loss. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/kvasir.h"
#include "common/clock.h"
#include "common/mem.h"
#include "tests/support/check_main.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/process.h"

struct fixture {
    char dir[64];
    struct fake_daemon *daemon;
    struct kvasir *client;
};

static struct fixture
setup(void)
{
    struct fixture f = {.dir = "/tmp/kvasir-client-"
                               "XX"
                               "XX"
                               "XX"}; /* mkdtemp fills it */

    ck_assert_ptr_nonnull(mkdtemp(f.dir));
    f.daemon = fake_daemon_start(f.dir);
    ck_assert_int_eq(kvasir_open(&(struct kvasir_options){.runtime_dir = f.dir}, &f.client),
                     KVASIR_OK);
    return f;
}

static void
remove_dir(const struct fixture *f)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/client.sock", f->dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/admin.sock", f->dir);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(f->dir), 0);
}

static void
teardown(struct fixture *f)
{
    kvasir_close(&f->client);
    kvasir_close(&f->client);
    fake_daemon_stop(&f->daemon);
    remove_dir(f);
}

struct start {
    uint64_t at_us;
    struct process_waits waits;
};

static struct start
start_now(void)
{
    struct start start = {0};

    process_waits_add(&start.waits, getpid());
    start.at_us = clock_now_us();
    return start;
}

/* Not what the machine kept from us; the fake daemon is a thread here. */
static uint64_t
elapsed_us(const struct start *start)
{
    uint64_t passed_us = clock_now_us() - start->at_us;
    struct process_waits waits = {0};

    process_waits_add(&waits, getpid());
    uint64_t waited_us = process_waits_longest_us(&start->waits, &waits);

    return passed_us < waited_us ? 0 : passed_us - waited_us;
}

struct answer {
    char text[64];
    size_t length;
    unsigned chunks;
    unsigned stop_after; /* chunks; 0: never */
    struct kvasir *cancel;
    float logprob;
    float second_logprob;
};

static bool
collect(void *opaque, const struct kvasir_chunk *chunk)
{
    struct answer *answer = opaque;

    ck_assert_uint_lt(answer->length + chunk->text_bytes, sizeof(answer->text));
    memcpy(answer->text + answer->length, chunk->text, chunk->text_bytes);
    answer->length += chunk->text_bytes;
    answer->chunks++;
    ck_assert_uint_eq(chunk->token_count, 1);
    ck_assert_uint_eq(chunk->logprob_count, 1);
    answer->logprob = chunk->logprobs[0].logprob;
    answer->second_logprob = chunk->logprobs[0].top_logprobs[1];
    if (answer->cancel != NULL) {
        kvasir_cancel(answer->cancel);
    }
    return answer->stop_after == 0 || answer->chunks < answer->stop_after;
}

static enum kvasir_code
ask(struct kvasir *client, const char *query, uint32_t timeout_ms, struct answer *answer,
    struct kvasir_usage *usage)
{
    struct kvasir_document documents[] = {{.text = "a document", .id = "doc-1"}};
    struct kvasir_request request = {
        .documents = documents,
        .document_count = 1,
        .query = query,
        .sampling = {.has_seed = true, .seed = 77},
        .timeout_ms = timeout_ms,
        .on_chunk = collect,
        .opaque = answer,
    };

    return kvasir_generate(client, &request, usage);
}

START_TEST(an_answer_streams_in_order_and_ends_with_usage)
{
    struct fixture f = setup();
    struct answer answer = {0};
    struct kvasir_usage usage;

    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, &usage), KVASIR_OK);
    ck_assert_str_eq(answer.text, "Hello wörld.");
    ck_assert_uint_eq(answer.chunks, 3);
    ck_assert(answer.logprob == -0.5f && answer.second_logprob == -2.0f);
    ck_assert_int_eq(usage.finish, KVASIR_FINISH_STOP);
    ck_assert_uint_eq(usage.completion_tokens, 3);
    ck_assert_uint_eq(usage.seed, 77);
    ck_assert_uint_eq(usage.document_count, 1);
    ck_assert_str_eq(usage.documents[0].id, "doc-1");
    ck_assert_str_eq(usage.documents[0].miss_reason, "cold");
    ck_assert_ptr_null(usage.documents[0].key);
    ck_assert_str_eq(kvasir_error(f.client), "");
    teardown(&f);
}
END_TEST

START_TEST(a_chat_travels_as_messages_and_documents)
{
    struct fixture f = setup();
    struct kvasir_document documents[] = {{.text = "text", .title = "title", .id = "in-chat"}};
    struct kvasir_message messages[] = {{"system", "be brief"}, {"user", "hi"}};
    struct kvasir_request request = {
        .documents = documents, .document_count = 1, .messages = messages, .message_count = 2};
    struct kvasir_usage usage;

    ck_assert_int_eq(kvasir_generate(f.client, &request, &usage), KVASIR_OK);
    ck_assert_str_eq(usage.documents[0].id, "in-chat");
    teardown(&f);
}
END_TEST

START_TEST(a_refusal_brings_code_message_and_when_to_retry)
{
    struct fixture f = setup();
    struct answer answer = {0};

    ck_assert_int_eq(ask(f.client, "full", 0, &answer, NULL), KVASIR_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(kvasir_error(f.client), "queue of 8 requests: full");
    ck_assert_uint_eq(kvasir_retry_after_ms(f.client), 250);
    ck_assert_str_eq(kvasir_code_name(KVASIR_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    ck_assert_uint_eq(kvasir_retry_after_ms(f.client), 0);
    teardown(&f);
}
END_TEST

START_TEST(every_unary_call_works)
{
    struct fixture f = setup();
    const uint32_t *ids;
    size_t count;
    uint64_t total;
    uint8_t key[KVASIR_KEY_BYTES], unknown[KVASIR_KEY_BYTES] = {0};
    uint32_t tokens;
    struct kvasir_document document = {.text = "abc", .id = "x"};
    struct kvasir_document_info info;
    const struct kvasir_document_info *infos;
    const struct kvasir_document_usage *usages;
    struct kvasir_health health;

    ck_assert_int_eq(kvasir_tokenize(f.client, "AB", true, &ids, &count), KVASIR_OK);
    ck_assert_uint_eq(count, 2);
    ck_assert(ids[0] == 'A' && ids[1] == 'B');
    ck_assert_int_eq(kvasir_tokenize(f.client, "", false, &ids, &count), KVASIR_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(kvasir_register(f.client, &document, true, "salt", 4, key, &tokens),
                     KVASIR_OK);
    ck_assert(key[0] == 'a' && key[31] == 'a' && tokens == 3);
    ck_assert_int_eq(kvasir_get(f.client, key, &info), KVASIR_OK);
    ck_assert_mem_eq(info.key, key, sizeof(key));
    ck_assert_str_eq(info.state, "sealed");
    ck_assert_int_eq(kvasir_get(f.client, unknown, &info), KVASIR_NOT_FOUND);
    ck_assert_str_eq(kvasir_error(f.client), "no document has this key");
    ck_assert_int_eq(kvasir_list(f.client, 0, NULL, &infos, &count, &total), KVASIR_OK);
    ck_assert(count == 2 && total == 9 && infos[1].key[0] == 0xab && infos[1].hits == 3);
    ck_assert_int_eq(kvasir_probe(f.client, &document, 1, NULL, 0, &usages, &count), KVASIR_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(usages[0].miss_reason, "evicted");
    ck_assert_int_eq(kvasir_pin(f.client, key), KVASIR_OK);
    ck_assert_int_eq(kvasir_unpin(f.client, key), KVASIR_OK);
    ck_assert_int_eq(kvasir_warm(f.client, key), KVASIR_OK);
    ck_assert_int_eq(kvasir_forget(f.client, unknown), KVASIR_NOT_FOUND);
    ck_assert_int_eq(kvasir_health(f.client, &health), KVASIR_OK);
    ck_assert(health.is_serving && health.protocol == 1);
    ck_assert_str_eq(health.detail, "1 worker");
    teardown(&f);
}
END_TEST

START_TEST(the_callback_can_cancel)
{
    struct fixture f = setup();
    struct answer answer = {.stop_after = 1};
    struct kvasir_usage usage;

    ck_assert_int_eq(ask(f.client, "hold", 0, &answer, &usage), KVASIR_CANCELLED);
    ck_assert_str_eq(kvasir_error(f.client), "cancelled by the client");
    ck_assert_int_eq(usage.finish, KVASIR_FINISH_NONE);
    ck_assert_uint_eq(answer.chunks, 1);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 1);
    answer = (struct answer){0};
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    teardown(&f);
}
END_TEST

START_TEST(an_end_that_crosses_a_hang_up_is_no_whole_answer)
{
    struct fixture f = setup();
    struct answer answer = {.stop_after = 1};

    /* "hi" is answered whole at once, so the end is here before the daemon reads the Cancel. */
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_CANCELLED);
    ck_assert_uint_eq(answer.chunks, 1);
    ck_assert_str_eq(answer.text, "Hello ");
    teardown(&f);
}
END_TEST

START_TEST(an_end_that_crosses_a_cancel_is_a_whole_answer)
{
    struct fixture f = setup();
    struct answer answer = {.cancel = f.client};

    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    ck_assert_str_eq(answer.text, "Hello wörld.");
    teardown(&f);
}
END_TEST

static void *
cancel_when_told(void *opaque)
{
    struct fixture *f = opaque;

    kvasir_cancel(f->client);
    return NULL;
}

static bool
start_canceller(void *opaque, const struct kvasir_chunk *chunk)
{
    struct fixture *f = opaque;
    pthread_t thread;

    (void)chunk;
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_when_told, f), 0);
    ck_assert_int_eq(pthread_detach(thread), 0);
    return true;
}

START_TEST(another_thread_can_cancel)
{
    struct fixture f = setup();
    struct kvasir_request request = {.query = "hold", .on_chunk = start_canceller, .opaque = &f};

    ck_assert_int_eq(kvasir_generate(f.client, &request, NULL), KVASIR_CANCELLED);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 1);
    teardown(&f);
}
END_TEST

START_TEST(a_cancel_before_a_call_does_not_harm_it)
{
    struct fixture f = setup();
    struct answer answer = {0};

    kvasir_cancel(f.client);
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    teardown(&f);
}
END_TEST

START_TEST(a_daemon_that_ignores_a_cancel_is_waited_for_only_so_long)
{
    struct fixture f = setup();
    struct answer answer = {0};
    struct start start = start_now();

    answer.cancel = f.client;
    ck_assert_int_eq(ask(f.client, "deaf", 0, &answer, NULL), KVASIR_CANCELLED);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "did not confirm"));
    ck_assert_uint_lt(elapsed_us(&start), 10000000);
    teardown(&f);
}
END_TEST

START_TEST(a_deadline_holds_even_when_nobody_answers)
{
    struct fixture f = setup();
    struct answer answer = {0};
    const uint32_t *ids;
    size_t count;
    struct kvasir *hasty = NULL;

    ck_assert_int_eq(ask(f.client, "deaf", 50, &answer, NULL), KVASIR_DEADLINE_EXCEEDED);
    /* 50 ms, less what went by before it was sent. */
    ck_assert_msg(strncmp(kvasir_error(f.client), "no end within ", 14) == 0, "%s",
                  kvasir_error(f.client));
    ck_assert_int_eq(ask(f.client, "late", 60000, &answer, NULL), KVASIR_DEADLINE_EXCEEDED);
    ck_assert_str_eq(kvasir_error(f.client), "deadline of 5 ms passed");
    ck_assert_int_eq(
        kvasir_open(&(struct kvasir_options){.runtime_dir = f.dir, .timeout_ms = 20}, &hasty),
        KVASIR_OK);
    ck_assert_int_eq(kvasir_tokenize(hasty, "mute", false, &ids, &count), KVASIR_DEADLINE_EXCEEDED);
    enum kvasir_code code;

    do { /* it serves the next one, if that is in time on this machine */
        code = kvasir_tokenize(hasty, "ok", false, &ids, &count);
    } while (code == KVASIR_DEADLINE_EXCEEDED);
    ck_assert_int_eq(code, KVASIR_OK);
    kvasir_close(&hasty);
    teardown(&f);
}
END_TEST

static void
never_retry(struct fixture *f)
{
    kvasir_close(&f->client);
    ck_assert_int_eq(
        kvasir_open(&(struct kvasir_options){.runtime_dir = f->dir, .retry_ms = KVASIR_RETRY_NEVER},
                    &f->client),
        KVASIR_OK);
}

START_TEST(a_daemon_that_vanishes_is_unavailable_and_may_come_back)
{
    struct fixture f = setup();

    never_retry(&f);
    struct answer answer = {0};
    struct start start = start_now();

    ck_assert_int_eq(ask(f.client, "vanish", 0, &answer, NULL), KVASIR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "is gone"));
    ck_assert_str_eq(answer.text, "Hello ");
    fake_daemon_stop(&f.daemon); /* until then its listener may still be there */
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "no kvasird at ipc://"));
    ck_assert_uint_lt(elapsed_us(&start), 8000000);
    f.daemon = fake_daemon_start(f.dir);
    answer = (struct answer){0};
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    teardown(&f);
}
END_TEST

START_TEST(a_restart_between_calls_goes_unnoticed)
{
    struct fixture f = setup();
    struct answer answer = {0};

    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    for (int i = 0; i < 20; i++) { /* often: libzmq's thread may hear of the loss first, or last */
        fake_daemon_stop(&f.daemon);
        f.daemon = fake_daemon_start(f.dir);
        answer = (struct answer){0};
        ck_assert_msg(ask(f.client, "hi", 0, &answer, NULL) == KVASIR_OK, "%s",
                      kvasir_error(f.client));
        ck_assert_str_eq(answer.text, "Hello wörld.");
    }
    teardown(&f);
}
END_TEST

START_TEST(nonsense_from_the_daemon_is_an_internal_error)
{
    struct fixture f = setup();
    struct answer answer = {0};

    ck_assert_int_eq(ask(f.client, "junk", 0, &answer, NULL), KVASIR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "GenerateReply"));
    answer = (struct answer){0};
    ck_assert_int_eq(ask(f.client, "gap", 0, &answer, NULL), KVASIR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "reply 2 came instead of 1"));
    answer = (struct answer){0};
    ck_assert_int_eq(ask(f.client, "hi", 0, &answer, NULL), KVASIR_OK);
    teardown(&f);
}
END_TEST

START_TEST(a_request_over_the_cap_is_refused_here_with_both_sizes)
{
    struct fixture f = setup();
    size_t bytes = 17u << 20;
    char *text = malloc(bytes + 1);
    const uint32_t *ids;
    size_t count;

    memset(text, 'x', bytes);
    text[bytes] = '\0';
    ck_assert_int_eq(kvasir_tokenize(f.client, text, false, &ids, &count), KVASIR_INVALID_ARGUMENT);
    ck_assert_str_eq(kvasir_error(f.client),
                     "request of 17825799 bytes: at most 16777216 are taken");
    ck_assert_uint_eq(fake_daemon_calls(f.daemon), 0);
    free(text);
    teardown(&f);
}
END_TEST

START_TEST(who_may_not_go_to_the_socket_is_told_so)
{
    struct fixture f = setup();
    struct kvasir_health health;
    bool was_root = geteuid() == 0;

    ck_assert_int_eq(chmod(f.dir, 0), 0);
    ck_assert(!was_root || seteuid(65534) == 0);
    ck_assert_int_eq(kvasir_health(f.client, &health), KVASIR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "/client.sock: permission denied: "));
    ck_assert(!was_root || seteuid(0) == 0);
    ck_assert_int_eq(chmod(f.dir, 0700), 0);
    teardown(&f);
}
END_TEST

START_TEST(an_impossible_endpoint_says_so_at_once)
{
    struct kvasir *client = NULL;
    struct kvasir_health health;
    struct start start = start_now();

    ck_assert_int_eq(
        kvasir_open(&(struct kvasir_options){.endpoint = "ipc:///nonexistent/client.sock"},
                    &client),
        KVASIR_OK);
    ck_assert_int_eq(kvasir_health(client, &health), KVASIR_UNAVAILABLE);
    ck_assert_str_eq(kvasir_error(client), "no kvasird at ipc:///nonexistent/client.sock");
    ck_assert_uint_lt(elapsed_us(&start), 3000000);
    kvasir_close(&client);
    ck_assert_int_eq(kvasir_open(&(struct kvasir_options){.endpoint = "nonsense"}, &client),
                     KVASIR_OK);
    ck_assert_int_eq(kvasir_health(client, &health), KVASIR_INVALID_ARGUMENT);
    kvasir_close(&client);
    ck_assert_int_eq(
        kvasir_open(&(struct kvasir_options){.runtime_dir =
                                                 "/a/directory/with/a/name/that/is/much/too/"
                                                 "long/for/the/path/of/a/unix/socket/which/"
                                                 "ends/at/one/hundred/and/seven/bytes"},
                    &client),
        KVASIR_INVALID_ARGUMENT);
    ck_assert_ptr_null(client);
    ck_assert_ptr_nonnull(strstr(kvasir_open_error(), "longer than 107 bytes"));
}
END_TEST

/* A fake daemon in a process of its own, so that it can be stopped whole. */
static pid_t
start_daemon_process(const char *dir)
{
    int ready[2];
    char byte = 'r';

    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)fake_daemon_start(dir);
        _exit(write(ready[1], &byte, 1) == 1 && pause() == 0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(close(ready[0]), 0);
    ck_assert_int_eq(close(ready[1]), 0);
    return pid;
}

static bool
freeze(void *opaque, const struct kvasir_chunk *chunk)
{
    (void)chunk;
    ck_assert_int_eq(kill(*(pid_t *)opaque, SIGSTOP), 0);
    return true;
}

START_TEST(a_daemon_that_hangs_is_unavailable_within_eight_seconds)
{
    struct fixture f = {.dir = "/tmp/kvasir-client-"
                               "XX"
                               "XX"
                               "XX"}; /* mkdtemp fills it */
    struct kvasir_request request = {.query = "hold", .on_chunk = freeze};
    pid_t daemon;

    ck_assert_ptr_nonnull(mkdtemp(f.dir));
    daemon = start_daemon_process(f.dir);
    request.opaque = &daemon;
    struct start start = start_now();

    ck_assert_int_eq(
        kvasir_open(&(struct kvasir_options){.runtime_dir = f.dir, .retry_ms = KVASIR_RETRY_NEVER},
                    &f.client),
        KVASIR_OK);
    ck_assert_int_eq(kvasir_generate(f.client, &request, NULL), KVASIR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(kvasir_error(f.client), "is gone"));
    ck_assert_uint_lt(elapsed_us(&start), 12000000); /* 8 s, and a slow machine */
    ck_assert_int_eq(kill(daemon, SIGKILL), 0);
    ck_assert_int_eq(waitpid(daemon, NULL, 0), daemon);
    kvasir_close(&f.client);
    remove_dir(&f);
}
END_TEST

START_TEST(a_handle_that_cannot_be_made_leaks_nothing)
{
    enum kvasir_code code = KVASIR_UNKNOWN;
    struct kvasir *client = NULL;

    for (uint64_t n = 1; code != KVASIR_OK; n++) {
        mem_fail_at(n);
        code = kvasir_open(&(struct kvasir_options){.endpoint = "ipc:///nowhere"}, &client);
        mem_fail_at(0);
        ck_assert(code == KVASIR_OK || code == KVASIR_RESOURCE_EXHAUSTED);
        ck_assert_int_eq(client == NULL, code != KVASIR_OK);
        ck_assert_uint_lt(n, 20);
    }
    kvasir_close(&client);
}
END_TEST

enum {
    CLIENTS = 8
};

static void *
ask_ten_times(void *opaque)
{
    struct kvasir *client = NULL;

    if (kvasir_open(&(struct kvasir_options){.runtime_dir = opaque}, &client) != KVASIR_OK) {
        return opaque;
    }
    for (int i = 0; i < 10; i++) {
        struct kvasir_request request = {.query = "hi"};
        struct kvasir_usage usage = {0};

        if (kvasir_generate(client, &request, &usage) != KVASIR_OK
            || usage.completion_tokens != 3) {
            kvasir_close(&client);
            return opaque;
        }
    }
    kvasir_close(&client);
    return NULL;
}

START_TEST(a_handle_a_thread_works_for_many_threads)
{
    struct fixture f = setup();
    pthread_t threads[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, ask_ten_times, f.dir), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        void *failed;

        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
    ck_assert_uint_eq(fake_daemon_calls(f.daemon), 10 * CLIENTS);
    teardown(&f);
}
END_TEST

CHECK_MAIN("client", an_answer_streams_in_order_and_ends_with_usage,
           a_chat_travels_as_messages_and_documents,
           a_refusal_brings_code_message_and_when_to_retry, every_unary_call_works,
           the_callback_can_cancel, an_end_that_crosses_a_hang_up_is_no_whole_answer,
           an_end_that_crosses_a_cancel_is_a_whole_answer, another_thread_can_cancel,
           a_cancel_before_a_call_does_not_harm_it,
           a_daemon_that_ignores_a_cancel_is_waited_for_only_so_long,
           a_deadline_holds_even_when_nobody_answers,
           a_daemon_that_vanishes_is_unavailable_and_may_come_back,
           a_daemon_that_hangs_is_unavailable_within_eight_seconds,
           a_handle_that_cannot_be_made_leaks_nothing, a_restart_between_calls_goes_unnoticed,
           nonsense_from_the_daemon_is_an_internal_error,
           a_request_over_the_cap_is_refused_here_with_both_sizes,
           an_impossible_endpoint_says_so_at_once, who_may_not_go_to_the_socket_is_told_so,
           a_handle_a_thread_works_for_many_threads)
