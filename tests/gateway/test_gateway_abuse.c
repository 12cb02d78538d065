/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are slow, rude or gone, and a gateway that is told to stop: what each of them gets,
 * and that nobody else notices. */
#include <string.h>

#include "common/clock.h"
#include "tests/support/check_main.h"
#include "tests/support/gateway_fixture.h"

#define CHAT "/v1/chat/completions"
#define HI   "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define HOLD "{\"messages\":[{\"role\":\"user\",\"content\":\"hold\"}],\"stream\":true}"

static void
send_text(struct http *http, const char *text)
{
    http_send(http, text, strlen(text));
}

static void
assert_serves(const struct gateway_fixture *f)
{
    ck_assert_uint_eq(http_ask(f->gateway.port, "POST", CHAT, NULL, HI, NULL), 200);
}

START_TEST(a_client_that_sends_its_request_too_slowly_is_closed)
{
    /* Short, yet time enough for a busy machine to send a request. */
    static const char *const args[] = {"--read-timeout", "5s", NULL};
    static const char *const starts[] = {
        "", "POST /v1/chat/comp", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: b\r\n",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"mess"};
    struct http *slow[sizeof(starts) / sizeof(starts[0])];
    struct gateway_fixture f;

    gateway_setup(&f, args);
    struct http *http = http_open(f.gateway.port);

    http_request(http, "POST", CHAT, NULL, HOLD);
    ck_assert_uint_eq(http_response_head(http), 200);
    (void)http_wait_body(http, "Hello");
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        slow[i] = http_open(f.gateway.port);
        send_text(slow[i], starts[i]);
    }
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        http_wait_closed(slow[i]);
        http_close(&slow[i]);
    }
    /* An answer that has taken longer than that is nobody's fault. */
    assert_serves(&f);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 0);
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

START_TEST(bodies_and_headers_have_limits)
{
    static const char *const args[] = {"--max-body", "2KiB", "--max-header", "4KiB", NULL};
    struct gateway_fixture f;
    char *big = malloc(100001);

    gateway_setup(&f, args);
    memset(big, ' ', 100000);
    big[100000] = '\0';
    ck_assert_uint_eq(http_ask(f.gateway.port, "POST", CHAT, NULL, big, NULL), 413);
    /* Without a length it is known only when it has come. */
    struct http *http = http_open(f.gateway.port);
    char head[] = "POST " CHAT " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

    send_text(http, head);
    for (int i = 0; i < 5; i++) {
        send_text(http, "400\r\n");
        http_send(http, big, 0x400);
        send_text(http, "\r\n");
    }
    send_text(http, "0\r\n\r\n");
    ck_assert_uint_eq(http_response(http), 413);
    ck_assert_ptr_nonnull(strstr(http_body(http), "larger than the 2048 bytes of --max-body"));
    http_close(&http);
    /* Headers: refused or closed, as the library has it. */
    http = http_open(f.gateway.port);
    send_text(http, "GET /health HTTP/1.1\r\nHost: x\r\nX-Long: ");
    http_send(http, big, 100000);
    send_text(http, "\r\n\r\n");
    http_wait_closed(http);
    http_close(&http);
    free(big);
    assert_serves(&f);
    gateway_teardown(&f);
}
END_TEST

/* Asks, with a body of 600 bytes, until the answer has that status. */
static void
ask_until(const struct gateway_fixture *f, unsigned status, const char *words)
{
    uint64_t until_us = process_patience_until_us();
    char body[601], *answer = NULL;
    unsigned got;

    (void)snprintf(body, sizeof(body), "%-600s", HI);
    do {
        free(answer);
        got = http_ask(f->gateway.port, "POST", CHAT, NULL, body, &answer);
        ck_assert_msg(clock_now_us() < until_us, "%u: %s", got, answer);
    } while (got != status);
    ck_assert_msg(strstr(answer, words) != NULL, "%s", answer);
    free(answer);
}

/* With 65 000 bytes of another there is no room for the body, with 60 000 none for its values. */
START_TEST(bodies_that_do_not_end_have_a_limit_together)
{
    static const char *const args[] = {"--max-bodies", "64KiB", NULL};
    static const char start[] =
        "POST " CHAT " HTTP/1.1\r\nHost: x\r\nContent-Length: 80000\r\n\r\n";
    static char half[65000];
    struct gateway_fixture f;

    gateway_setup(&f, args);
    ask_until(&f, 200, "Hello");
    memset(half, ' ', sizeof(half));
    for (size_t there = 60000; there <= sizeof(half); there += 5000) {
        struct http *http = http_open(f.gateway.port);

        send_text(http, start);
        http_send(http, half, there);
        ask_until(&f, 503, "bytes of requests are being read: the limit is 65536");
        http_close(&http);
        ask_until(&f, 200, "Hello");
    }
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_body_counts_as_what_its_values_take)
{
    static const char *const args[] = {"--max-bodies", "8MiB", NULL};
    static const char *const values[] = {"{},", "[],", "1,", "\"\","};
    static char body[400000];
    struct gateway_fixture f;
    char *answer = NULL;

    gateway_setup(&f, args);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        size_t step = strlen(values[i]);
        char *at = body + snprintf(body, sizeof(body), "{\"metadata\":[");

        for (size_t n = 0; n < 90000; n++, at += step) {
            memcpy(at, values[i], step);
        }
        memcpy(at, "0]}", sizeof("0]}"));
        ck_assert_uint_eq(http_ask(f.gateway.port, "POST", CHAT, NULL, body, &answer), 413);
        ck_assert_msg(strstr(answer, "the limit is the 8388608 of --max-bodies") != NULL, "%s",
                      answer);
        free(answer);
        assert_serves(&f);
    }
    gateway_teardown(&f);
}
END_TEST

START_TEST(what_is_no_http_harms_nobody)
{
    static const char *const rows[] = {
        "\r\n\r\n",
        "HELO there\r\n\r\n",
        "GET\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET /%00%ff/../../etc HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http *http = http_open(f.gateway.port);

        send_text(http, rows[i]);
        http_shut_down(http);
        http_wait_closed(http);
        http_close(&http);
        assert_serves(&f);
    }
    gateway_teardown(&f);
}
END_TEST

START_TEST(requests_that_come_together_are_answered_in_order)
{
    static const char two[] = "GET /version HTTP/1.1\r\nHost: x\r\nx-request-id: a\r\n\r\n"
                              "GET /health HTTP/1.1\r\nHost: x\r\nx-request-id: b\r\n\r\n";
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct http *http = http_open(f.gateway.port);

    http_send(http, two, sizeof(two) - 1);
    ck_assert_uint_eq(http_response(http), 200);
    ck_assert_ptr_nonnull(strstr(http_head(http), "x-request-id: a\r\n"));
    ck_assert_uint_eq(http_response(http), 200);
    ck_assert_ptr_nonnull(strstr(http_head(http), "x-request-id: b\r\n"));
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

/* Not when its connection has been idle for long enough. */
START_TEST(a_client_that_does_not_read_its_stream_is_dropped)
{
    static const char *const args[] = {"--idle-timeout", "1h", NULL};
    struct gateway_fixture f;

    gateway_setup(&f, args);
    struct http *http = http_open_unread(f.gateway.port);

    http_request(http, "POST", CHAT, NULL,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"flood\"}],\"stream\":true}");
    gateway_wait_metric(&f.gateway, "kvasir_http_client_aborts_total", 1);
    http_close(&http);
    assert_serves(&f);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_client_that_closes_its_half_is_taken_for_gone)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct http *http = http_open(f.gateway.port);

    http_request(http, "POST", CHAT, NULL, HOLD);
    ck_assert_uint_eq(http_response_head(http), 200);
    (void)http_wait_body(http, "Hello");
    http_shut_down(http);
    ck_assert(!http_wait_end(http));
    /* A call that goes behind the Cancel. */
    gateway_wait_metric(&f.gateway, "kvasir_http_client_aborts_total", 1);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 1);
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

START_TEST(connections_leave_nothing_behind)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    assert_serves(&f);
    gateway_wait_metric(&f.gateway, "kvasir_http_connections_open", 1);
    int fds = process_count_fds(f.gateway.process);

    for (int i = 0; i < 50; i++) {
        assert_serves(&f);
        struct http *http = http_open(f.gateway.port);

        http_request(http, "POST", CHAT, NULL, HOLD);
        (void)http_response_head(http);
        http_close(&http);
    }
    gateway_wait_metric(&f.gateway, "kvasir_http_connections_open", 1);
    gateway_wait_metric(&f.gateway, "kvasir_http_requests_open", 1);
    ck_assert_int_le(process_count_fds(f.gateway.process), fds + 1);
    gateway_teardown(&f);
}
END_TEST

START_TEST(five_hundred_streams_are_held_and_given_up_together)
{
    enum {
        STREAMS = 512
    };
    static const char *const args[] = {"--threads", "2", NULL};
    struct http *https[STREAMS];
    struct gateway_fixture f;

    gateway_setup(&f, args);
    for (int i = 0; i < STREAMS; i++) {
        https[i] = http_open(f.gateway.port);
        http_request(https[i], "POST", CHAT, NULL, HOLD);
    }
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_uint_eq(http_response_head(https[i]), 200);
        (void)http_wait_body(https[i], "Hello");
    }
    ck_assert(gateway_metric(&f.gateway, "kvasir_http_requests_open") == STREAMS + 1);
    for (int i = 0; i < STREAMS; i++) {
        http_close(&https[i]);
    }
    gateway_wait_metric(&f.gateway, "kvasir_http_client_aborts_total", STREAMS);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), STREAMS);
    gateway_teardown(&f);
}
END_TEST

START_TEST(keys_are_read_again_when_told)
{
    char path[] = "/tmp/kvasir-keys-XXXXXX";
    const char *const args[] = {"--api-keys", path, NULL};
    struct gateway_fixture f;
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a = old\n", 8), 8);
    gateway_setup(&f, args);
    ck_assert_uint_eq(
        http_ask(f.gateway.port, "POST", CHAT, "Authorization: Bearer old\r\n", HI, NULL), 200);
    ck_assert_uint_eq(http_ask(f.gateway.port, "POST", CHAT, NULL, HI, NULL), 401);
    ck_assert_int_eq(pwrite(fd, "a = new\n", 8, 0), 8);
    process_signal(f.gateway.process, SIGHUP);
    while (http_ask(f.gateway.port, "POST", CHAT, "Authorization: Bearer new\r\n", HI, NULL)
           != 200) {
    }
    ck_assert_uint_eq(
        http_ask(f.gateway.port, "POST", CHAT, "Authorization: Bearer old\r\n", HI, NULL), 401);
    /* What cannot be read changes nothing. */
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    process_signal(f.gateway.process, SIGHUP);
    ck_assert_uint_eq(
        http_ask(f.gateway.port, "POST", CHAT, "Authorization: Bearer new\r\n", HI, NULL), 200);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(unlink(path), 0);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_gateway_that_stops_refuses_what_is_new_and_finishes_what_is_open)
{
    static const char *const args[] = {"--drain-timeout", "10min", NULL};
    struct gateway_fixture f;

    gateway_setup(&f, args);
    struct http *http = http_open(f.gateway.port);

    http_request(http, "POST", CHAT, NULL, HOLD);
    ck_assert_uint_eq(http_response_head(http), 200);
    (void)http_wait_body(http, "Hello");
    process_signal(f.gateway.process, SIGTERM);
    gateway_wait_health(&f.gateway, 503);
    ck_assert_uint_eq(http_ask(f.gateway.port, "POST", CHAT, NULL, HI, NULL), 503);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 0);
    http_close(&http); /* the last one has gone: so may the gateway */
    ck_assert_int_eq(process_wait(f.gateway.process), 0);
    gateway_teardown(&f);
}
END_TEST

START_TEST(the_second_signal_does_not_wait)
{
    static const char *const args[] = {"--drain-timeout", "10min", NULL};
    struct gateway_fixture f;

    gateway_setup(&f, args);
    struct http *http = http_open(f.gateway.port);

    http_request(http, "POST", CHAT, NULL, HOLD);
    ck_assert_uint_eq(http_response_head(http), 200);
    process_signal(f.gateway.process, SIGTERM);
    gateway_wait_health(&f.gateway, 503);
    process_signal(f.gateway.process, SIGTERM);
    ck_assert_int_eq(process_wait(f.gateway.process), 0);
    http_wait_closed(http);
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

CHECK_MAIN("gateway_abuse", a_client_that_sends_its_request_too_slowly_is_closed,
           bodies_and_headers_have_limits, bodies_that_do_not_end_have_a_limit_together,
           a_body_counts_as_what_its_values_take, what_is_no_http_harms_nobody,
           requests_that_come_together_are_answered_in_order,
           a_client_that_does_not_read_its_stream_is_dropped,
           a_client_that_closes_its_half_is_taken_for_gone, connections_leave_nothing_behind,
           five_hundred_streams_are_held_and_given_up_together, keys_are_read_again_when_told,
           a_gateway_that_stops_refuses_what_is_new_and_finishes_what_is_open,
           the_second_signal_does_not_wait)
