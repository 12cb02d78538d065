/* SPDX-License-Identifier: Apache-2.0 */
/* The router's sockets among clients that come, go and come again; and the table of open calls. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "daemon/calls.h"
#include "daemon/router.h"
#include "proto/endpoints.h"
#include "tests/support/check_main.h"

#define CONNECTIONS_MAX 1024
#define POLLS_MAX       1000 /* of 100 ms: far more than any of this takes */

struct seen {
    struct address last;
    char payload[32];
    uint32_t messages, losses;
    int lost_connection;
    bool is_open[CONNECTIONS_MAX]; /* by descriptor: spoke, and is not lost */
};

struct rig {
    char dir[64];
    char url[ENDPOINT_URL_MAX];
    struct router *router;
    struct seen seen;
    void *context; /* the clients' */
};

static void
note_message(void *arg, const struct message *message)
{
    struct seen *seen = arg;

    seen->last = message->from;
    seen->messages++;
    ck_assert_uint_lt(message->payload_length, sizeof(seen->payload));
    memcpy(seen->payload, message->payload, message->payload_length);
    seen->payload[message->payload_length] = '\0';
    ck_assert_int_lt(message->from.connection, CONNECTIONS_MAX);
    /* A first word over a descriptor whose earlier owner we still believe in: the loss came late.
     */
    ck_assert(strcmp(seen->payload, "new") != 0 || !seen->is_open[message->from.connection]);
    seen->is_open[message->from.connection] = true;
}

static void
note_lost(void *arg, enum router_socket socket, int connection)
{
    struct seen *seen = arg;

    (void)socket;
    seen->losses++;
    seen->lost_connection = connection;
    seen->is_open[connection] = false;
}

static void
rig_open(struct rig *rig)
{
    struct router_handlers handlers = {
        .arg = &rig->seen,
        .on_message = note_message,
        .on_lost = note_lost,
    };

    *rig = (struct rig){.dir = "/tmp/kvasir-router-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(rig->dir));
    ck_assert_int_eq(router_new(&(struct router_config){.dir = rig->dir}, &handlers, &rig->router),
                     ST_OK);
    ck_assert_int_eq(endpoint_url(rig->dir, ENDPOINT_CLIENT, rig->url), ST_OK);
    rig->context = zmq_ctx_new();
}

static void
rig_close(struct rig *rig)
{
    router_destroy(&rig->router);
    zmq_ctx_term(rig->context);
    ck_assert_int_eq(rmdir(rig->dir), 0); /* no socket is left in it */
}

static void *
connect_client(struct rig *rig)
{
    void *client = zmq_socket(rig->context, ZMQ_DEALER);
    int linger = 0;

    zmq_setsockopt(client, ZMQ_LINGER, &linger, sizeof(linger));
    ck_assert_int_eq(zmq_connect(client, rig->url), 0);
    return client;
}

static void
say(void *client, const char *text)
{
    ck_assert_int_eq(zmq_send(client, "header", 6, ZMQ_SNDMORE), 6);
    ck_assert_int_eq(zmq_send(client, text, strlen(text), 0), (int)strlen(text));
}

static void
poll_until(struct rig *rig, const uint32_t *counter, uint32_t value)
{
    for (int i = 0; i < POLLS_MAX && *counter < value; i++) {
        ck_assert_int_eq(router_poll(rig->router, NULL, 0, 100), ST_OK);
    }
    ck_assert_uint_ge(*counter, value);
}

START_TEST(a_client_that_goes_is_noticed_by_the_connection_its_messages_came_over)
{
    struct rig rig;

    rig_open(&rig);
    void *client = connect_client(&rig);

    say(client, "hello");
    poll_until(&rig, &rig.seen.messages, 1);
    ck_assert_str_eq(rig.seen.payload, "hello");
    int connection = rig.seen.last.connection;

    ck_assert_int_ge(connection, 0);
    ck_assert_uint_eq(rig.seen.losses, 0);
    zmq_close(client);
    poll_until(&rig, &rig.seen.losses, 1);
    ck_assert_int_eq(rig.seen.lost_connection, connection);

    /* And nothing can be sent to it any more, once libzmq has closed its pipe as well. */
    enum status st = router_send(rig.router, &rig.seen.last, "h", 1, "p", 1);

    while (st == ST_OK) {
        ck_assert_int_eq(router_poll(rig.router, NULL, 0, 1), ST_OK);
        st = router_send(rig.router, &rig.seen.last, "h", 1, "p", 1);
    }
    ck_assert_int_eq(st, ST_UNAVAILABLE);
    rig_close(&rig);
}
END_TEST

START_TEST(a_newcomer_on_a_reused_descriptor_does_not_inherit_the_loss)
{
    struct rig rig;
    uint32_t count = 0;

    rig_open(&rig);
    while (count < 300) {
        void *client = connect_client(&rig);

        say(client, "new");
        count++;
        poll_until(&rig, &rig.seen.messages, count); /* note_message checks the order */
        zmq_close(client);                           /* and its loss is not awaited */
    }
    poll_until(&rig, &rig.seen.losses, count);
    rig_close(&rig);
}
END_TEST

START_TEST(other_descriptors_are_waited_for_too_and_replies_reach_their_client)
{
    struct rig rig;
    int pipe_fds[2];
    char reply[8] = "";

    rig_open(&rig);
    ck_assert_int_eq(pipe(pipe_fds), 0);
    ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);

    struct pollfd fds[] = {{.fd = pipe_fds[0], .events = POLLIN}};

    ck_assert_int_eq(router_poll(rig.router, fds, 1, 60000), ST_OK);
    ck_assert_int_ne(fds[0].revents & POLLIN, 0);

    void *client = connect_client(&rig);

    say(client, "hello");
    poll_until(&rig, &rig.seen.messages, 1);
    ck_assert_int_eq(router_send(rig.router, &rig.seen.last, "head", 4, "body", 4), ST_OK);
    ck_assert_int_eq(zmq_recv(client, reply, sizeof(reply), 0), 4);
    ck_assert_int_eq(zmq_recv(client, reply, sizeof(reply), 0), 4);
    ck_assert_mem_eq(reply, "body", 4);
    zmq_close(client);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    rig_close(&rig);
}
END_TEST

START_TEST(messages_of_another_shape_are_dropped)
{
    struct rig rig;

    rig_open(&rig);
    void *client = connect_client(&rig);

    ck_assert_int_eq(zmq_send(client, "alone", 5, 0), 5);
    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(zmq_send(client, "many", 4, i < 8 ? ZMQ_SNDMORE : 0), 4);
    }
    say(client, "good");
    poll_until(&rig, &rig.seen.messages, 1);
    ck_assert_str_eq(rig.seen.payload, "good");
    zmq_close(client);
    rig_close(&rig);
}
END_TEST

START_TEST(a_call_is_found_by_both_of_its_names_and_lost_with_its_connection)
{
    struct calls *calls;
    struct call *a, *b, *other;
    struct address alice = {.identity = "alice", .identity_length = 5, .connection = 7};
    struct address bob = {.identity = "bob", .identity_length = 3, .connection = 8};

    ck_assert_int_eq(calls_new(&calls), ST_OK);
    ck_assert_int_eq(calls_open(calls, &alice, 1, &a), ST_OK);
    ck_assert_int_eq(calls_open(calls, &bob, 1, &b), ST_OK);
    ck_assert_int_eq(calls_open(calls, &alice, 1, &other), ST_INVALID);
    ck_assert_str_eq(status_detail(), "request_id 1 names an open call of this client");
    ck_assert_ptr_eq(calls_find(calls, a->id), a);
    ck_assert_ptr_eq(calls_find_of(calls, &bob, 1), b);
    ck_assert_ptr_null(calls_find_of(calls, &bob, 2));
    ck_assert_ptr_null(calls_next_lost(calls));
    ck_assert_uint_eq(calls_lose_connection(calls, ROUTER_CLIENT, 7), 1);
    ck_assert_uint_eq(calls_lose_connection(calls, ROUTER_ADMIN, 8), 0);
    ck_assert_ptr_eq(calls_next_lost(calls), a);
    calls_close(calls, a);
    ck_assert_ptr_null(calls_next_lost(calls));
    ck_assert_uint_eq(calls_lose_client(calls, &bob), 1);
    calls_destroy(&calls); /* with an open one */
}
END_TEST

CHECK_MAIN("router", a_client_that_goes_is_noticed_by_the_connection_its_messages_came_over,
           a_newcomer_on_a_reused_descriptor_does_not_inherit_the_loss,
           other_descriptors_are_waited_for_too_and_replies_reach_their_client,
           messages_of_another_shape_are_dropped,
           a_call_is_found_by_both_of_its_names_and_lost_with_its_connection)
