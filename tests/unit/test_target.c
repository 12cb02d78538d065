/* SPDX-License-Identifier: Apache-2.0 */
/* Targets by their text, and an OpenAI server of our own making: one thread, one answer. */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/load.h"
#include "bench/sse.h"
#include "common/clock.h"
#include "tests/support/check_main.h"

START_TEST(targets_are_read_and_wrong_ones_named)
{
    struct target t;

    ck_assert_int_eq(target_parse("a=kvasir:/run/x", &t), ST_OK);
    ck_assert(t.kind == TARGET_KVASIR && t.reuse == 0);
    ck_assert_str_eq(t.place, "/run/x");
    target_deinit(&t);
    ck_assert_int_eq(target_parse("p=kvasir:/run/x?reuse=prefix", &t), ST_OK);
    ck_assert_int_eq(t.reuse, 3);
    ck_assert_str_eq(t.place, "/run/x");
    target_deinit(&t);
    ck_assert_int_eq(target_parse("v=http://localhost:8000/v1?model=m", &t), ST_OK);
    ck_assert_str_eq(t.host, "localhost");
    ck_assert_str_eq(t.port, "8000");
    ck_assert_str_eq(t.place, "/v1");
    ck_assert_str_eq(t.model, "m");
    target_deinit(&t);
    for (int i = 0; i < 8; i++) {
        const char *const wrong[] = {"",
                                     "x",
                                     "=kvasir:/r",
                                     "x=ftp://h",
                                     "x=kvasir:",
                                     "x=http:///v1",
                                     "x=kvasir:/r?reuse=some",
                                     "x=http://h?m=1"};

        ck_assert_msg(target_parse(wrong[i], &t) == ST_INVALID, "%s", wrong[i]);
    }
}
END_TEST

/* --- events ------------------------------------------------------------------------------- */

struct events {
    char text[256];
    int count;
};

static void
collect(void *opaque, const char *data, size_t length)
{
    struct events *events = opaque;

    events->count++;
    (void)snprintf(events->text + strlen(events->text), sizeof(events->text) - strlen(events->text),
                   "%.*s|", (int)length, data);
}

#define CHUNKED                                                                                    \
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"                        \
    "Transfer-Encoding: chunked\r\n\r\n"                                                           \
    "b\r\ndata: one\n\n\r\n7\r\n: note\n\r\n7\r\ndata: t\r\n6\r\nwo\r\n\r\n\r\n0\r\n\r\n"

START_TEST(events_are_the_same_however_the_bytes_come)
{
    for (size_t step = 1; step <= strlen(CHUNKED); step++) {
        struct events events = {{0}, 0};
        struct sse sse;

        sse_begin(&sse, collect, &events);
        for (size_t at = 0; at < strlen(CHUNKED); at += step) {
            size_t n = strlen(CHUNKED) - at < step ? strlen(CHUNKED) - at : step;

            ck_assert_msg(sse_feed(&sse, CHUNKED + at, n) == ST_OK, "%s", status_detail());
        }
        ck_assert_int_eq(sse.status, 200);
        ck_assert(sse.is_done);
        ck_assert_str_eq(events.text, "one|two|");
        sse_deinit(&sse);
    }
}
END_TEST

START_TEST(bodies_end_with_their_length_or_with_the_connection)
{
    static const char *const with_length =
        "HTTP/1.1 429 Too Many\r\nContent-Length: 5\r\n\r\nbusy!";
    static const char *const until_close =
        "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n";
    struct events events = {{0}, 0};
    struct sse sse;

    sse_begin(&sse, collect, &events);
    ck_assert_int_eq(sse_feed(&sse, with_length, strlen(with_length)), ST_OK);
    ck_assert(sse.is_done);
    ck_assert_int_eq(sse.status, 429);
    ck_assert_str_eq(sse_body(&sse), "busy!");
    sse_deinit(&sse);
    sse_begin(&sse, collect, &events);
    ck_assert_int_eq(sse_feed(&sse, until_close, strlen(until_close)), ST_OK);
    ck_assert(!sse.is_done);
    ck_assert_int_eq(sse_close(&sse), ST_OK);
    ck_assert_str_eq(events.text, "x|");
    sse_deinit(&sse);
    sse_begin(&sse, collect, &events);
    ck_assert_int_eq(sse_feed(&sse, with_length, strlen(with_length) - 1), ST_OK);
    ck_assert_int_eq(sse_close(&sse), ST_INVALID); /* cut off */
    sse_deinit(&sse);
    sse_begin(&sse, collect, &events);
    ck_assert_int_eq(sse_feed(&sse, "SSH-2.0-OpenSSH_9\r\n", 19), ST_INVALID);
    sse_deinit(&sse);
}
END_TEST

/* --- a server ----------------------------------------------------------------------------- */

struct server {
    int listener;
    uint16_t port;
    const char *answers[4]; /* one a connection, in order */
    int count;
    char request[4][8192];
    uint64_t thinks_us;                    /* before it answers */
    uint64_t asked_us[4], answering_us[4]; /* once the request is here, and before the answer */
    pthread_t thread;
};

static void *
serve(void *arg)
{
    struct server *server = arg;

    for (int i = 0; i < server->count; i++) {
        int fd = accept(server->listener, NULL, NULL);
        size_t length = 0;
        char *request = server->request[i];

        if (fd < 0) {
            return NULL;
        }
        for (;;) { /* until the body is whole */
            ssize_t n = recv(fd, request + length, sizeof(server->request[i]) - 1 - length, 0);
            const char *head_end, *body_bytes;

            if (n <= 0) {
                break;
            }
            length += (size_t)n;
            request[length] = '\0';
            head_end = strstr(request, "\r\n\r\n");
            body_bytes = strstr(request, "Content-Length: ");
            if (head_end != NULL && strncmp(request, "GET ", 4) == 0) {
                break;
            }
            if (head_end != NULL && body_bytes != NULL
                && length
                       >= (size_t)(head_end + 4 - request) + strtoul(body_bytes + 16, NULL, 10)) {
                break;
            }
        }
        server->asked_us[i] = clock_now_us();
        do {
            server->answering_us[i] = clock_now_us();
        } while (server->answering_us[i] < server->asked_us[i] + server->thinks_us);
        (void)send(fd, server->answers[i], strlen(server->answers[i]), MSG_NOSIGNAL);
        (void)close(fd);
    }
    return NULL;
}

static void
start(struct server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);

    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(server->listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(server->listener, 8), 0);
    ck_assert_int_eq(getsockname(server->listener, (struct sockaddr *)&address, &length), 0);
    server->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void
stop(struct server *server)
{
    ck_assert_int_eq(pthread_join(server->thread, NULL), 0);
    (void)close(server->listener);
}

#define SSE_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

START_TEST(an_openai_server_is_asked_and_its_answer_measured)
{
    struct server server = {.count = 2,
                            .answers = {SSE_HEAD
                                        "data: {\"choices\":[{\"text\":\"Lis\"}]}\n\n"
                                        "data: {\"choices\":[{\"text\":\"bon\"}]}\n\n"
                                        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":46,"
                                        "\"completion_tokens\":2,"
                                        "\"prompt_tokens_details\":{\"cached_tokens\":32}}}\n\n"
                                        "data: [DONE]\n\n",
                                        "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nfull"}};
    struct workload_config config = {.seed = 1,
                                     .vocab = 32000,
                                     .n_requests = 2,
                                     .pool = 3,
                                     .cited = 2,
                                     .burstiness = 1,
                                     .document_tokens = {LENGTHS_UNIFORM, 20, 20, 0, 0},
                                     .query_tokens = {LENGTHS_UNIFORM, 6, 6, 0, 0},
                                     .output_tokens = {LENGTHS_UNIFORM, 2, 2, 0, 0}};
    struct outcome outcomes[2];
    struct target target;
    struct workload *workload = NULL;
    uint64_t elapsed_us;
    char text[80];

    start(&server);
    (void)snprintf(text, sizeof(text), "s=http://127.0.0.1:%u/v1?model=m", server.port);
    ck_assert_int_eq(target_parse(text, &target), ST_OK);
    ck_assert_int_eq(workload_make(&config, &workload), ST_OK);
    struct load load = {.target = &target,
                        .run = {.workload = workload, .timeout_ms = 60000},
                        .count = 2,
                        .concurrency = 1};

    ck_assert_int_eq(load_run(&load, outcomes, &elapsed_us), ST_OK);
    stop(&server);
    ck_assert_msg(outcomes[0].is_ok, "%s", outcomes[0].error);
    ck_assert_uint_eq(outcomes[0].input_tokens, 46);
    ck_assert_uint_eq(outcomes[0].output_tokens, 2);
    ck_assert_uint_eq(outcomes[0].tokens_reused, 32);
    ck_assert_uint_eq(outcomes[0].n_gaps, 1);
    ck_assert(outcomes[0].sent_us <= outcomes[0].first_us
              && outcomes[0].first_us <= outcomes[0].end_us);
    ck_assert(outcomes[0].end_us <= outcomes[1].sent_us); /* one at a time */
    ck_assert(!outcomes[1].is_ok);
    ck_assert_str_eq(outcomes[1].error, "HTTP 503: full");
    ck_assert_ptr_nonnull(strstr(server.request[0], "POST /v1/completions HTTP/1.1\r\n"));
    ck_assert_ptr_nonnull(strstr(server.request[0], "\"stream\":true"));
    const char *prompt = strstr(server.request[0], "\"prompt\":[");
    ck_assert_ptr_nonnull(prompt);
    int commas = 0;
    for (; *prompt != ']'; prompt++) {
        commas += *prompt == ',';
    }
    ck_assert_int_eq(commas, 45); /* 2 x 20 + 6 ids */
    for (int i = 0; i < 2; i++) {
        outcome_deinit(&outcomes[i]);
    }
    workload_destroy(&workload);
    target_deinit(&target);
}
END_TEST

/* The server's clock is ours: its own times lie between those that the client measured. */
START_TEST(each_request_goes_at_its_time_and_the_first_token_counts_from_there)
{
    const char *answer = SSE_HEAD "data: {\"choices\":[{\"text\":\"yes\"}]}\n\ndata: [DONE]\n\n";
    struct server server = {.count = 3, .answers = {answer, answer, answer}, .thinks_us = 3000};
    struct workload_config config = {.seed = test_seed(),
                                     .vocab = 32000,
                                     .n_requests = 3,
                                     .rate = 50,
                                     .pool = 3,
                                     .cited = 1,
                                     .burstiness = 1,
                                     .document_tokens = {LENGTHS_UNIFORM, 20, 20, 0, 0},
                                     .query_tokens = {LENGTHS_UNIFORM, 6, 6, 0, 0},
                                     .output_tokens = {LENGTHS_UNIFORM, 1, 1, 0, 0}};
    struct outcome outcomes[3];
    struct target target;
    struct workload *workload = NULL;
    uint64_t elapsed_us, begin_us = clock_now_us();
    char text[80];

    start(&server);
    (void)snprintf(text, sizeof(text), "s=http://127.0.0.1:%u/v1?model=m", server.port);
    ck_assert_int_eq(target_parse(text, &target), ST_OK);
    ck_assert_int_eq(workload_make(&config, &workload), ST_OK);
    struct load load = {.target = &target,
                        .run = {.workload = workload, .timeout_ms = 60000},
                        .count = 3,
                        .concurrency = 1};

    ck_assert_int_eq(load_run(&load, outcomes, &elapsed_us), ST_OK);
    stop(&server);
    ck_assert_uint_ge(outcomes[0].due_us, begin_us);
    for (int i = 0; i < 3; i++) {
        const struct outcome *o = &outcomes[i];

        ck_assert_msg(o->is_ok, "%s", o->error);
        ck_assert_uint_eq(o->due_us - outcomes[0].due_us,
                          workload->requests[i].arrival_us - workload->requests[0].arrival_us);
        ck_assert_uint_ge(o->sent_us, o->due_us);
        ck_assert_uint_le(o->sent_us, server.asked_us[i]);
        ck_assert_uint_ge(o->first_us, server.answering_us[i]);
        ck_assert_uint_ge(o->end_us, o->first_us);
        ck_assert_double_ge(outcome_ttft_ms(o), 3.0);
        ck_assert_double_ge(outcome_e2el_ms(o), outcome_ttft_ms(o));
    }
    for (int i = 0; i < 3; i++) {
        outcome_deinit(&outcomes[i]);
    }
    ck_assert_uint_ge(elapsed_us, 3 * server.thinks_us);
    workload_destroy(&workload);
    target_deinit(&target);
}
END_TEST

START_TEST(a_server_is_asked_for_its_model_where_none_is_named)
{
    struct server server = {
        .count = 2,
        .answers = {"HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n"
                    "{\"object\":\"list\",\"data\":[{\"id\":\"smollm2\"}]}",
                    "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"data\":[]}"}};
    struct target target;
    char text[80];

    start(&server);
    (void)snprintf(text, sizeof(text), "s=http://127.0.0.1:%u/v1", server.port);
    ck_assert_int_eq(target_parse(text, &target), ST_OK);
    ck_assert_msg(target_find_model(&target) == ST_OK, "%s", status_detail());
    ck_assert_str_eq(target.model, "smollm2");
    ck_assert_int_eq(target_find_model(&target), ST_OK); /* known: nobody is asked */
    target_deinit(&target);
    ck_assert_int_eq(target_parse(text, &target), ST_OK);
    ck_assert_int_eq(target_find_model(&target), ST_INVALID);
    target_deinit(&target);
    stop(&server);
}
END_TEST

START_TEST(questions_over_texts_are_chats_with_the_documents_in_front)
{
    struct server server = {
        .count = 1,
        .answers = {SSE_HEAD "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
                             "data: {\"choices\":[{\"delta\":{\"content\":\"yes\"}}]}\n\n"
                             "data: [DONE]\n\n"}};
    const struct workload_text texts[] = {{"Lisbon is a city.", "Lisbon"}};
    struct workload_config config = {.seed = 1,
                                     .vocab = 32000,
                                     .n_requests = 1,
                                     .cited = 1,
                                     .burstiness = 1,
                                     .query_tokens = {LENGTHS_UNIFORM, 1, 1, 0, 0},
                                     .output_tokens = {LENGTHS_UNIFORM, 2, 2, 0, 0}};
    struct outcome outcome;
    struct target target;
    struct workload *workload = NULL;
    uint64_t elapsed_us;
    char text[80];

    start(&server);
    (void)snprintf(text, sizeof(text), "s=http://127.0.0.1:%u/v1", server.port);
    ck_assert_int_eq(target_parse(text, &target), ST_OK);
    ck_assert_int_eq(workload_make_texts(&config, texts, 1, "Is it?", &workload), ST_OK);
    struct load load = {.target = &target,
                        .run = {.workload = workload, .timeout_ms = 60000},
                        .count = 1,
                        .concurrency = 1};

    ck_assert_int_eq(load_run(&load, &outcome, &elapsed_us), ST_OK);
    stop(&server);
    ck_assert_msg(outcome.is_ok, "%s", outcome.error);
    ck_assert_uint_eq(outcome.output_tokens, 1); /* it says nothing: outputs are counted */
    ck_assert_uint_eq(outcome.n_gaps, 0);        /* a role is no output */
    ck_assert_ptr_nonnull(strstr(server.request[0], "POST /v1/chat/completions "));
    ck_assert_ptr_nonnull(strstr(server.request[0], "Lisbon\\nLisbon is a city.\\n\\nIs it?"));
    outcome_deinit(&outcome);
    workload_destroy(&workload);
    target_deinit(&target);
}
END_TEST

CHECK_MAIN("target", targets_are_read_and_wrong_ones_named,
           events_are_the_same_however_the_bytes_come,
           bodies_end_with_their_length_or_with_the_connection,
           an_openai_server_is_asked_and_its_answer_measured,
           each_request_goes_at_its_time_and_the_first_token_counts_from_there,
           a_server_is_asked_for_its_model_where_none_is_named,
           questions_over_texts_are_chats_with_the_documents_in_front)
