/* SPDX-License-Identifier: Apache-2.0 */
/* KV events over real sockets: numbered, said again on request, and nobody ever waits.  What is in
 * a batch is decoded by tests/events/run.sh. */
#include "daemon/kv_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/mem.h"
#include "tests/support/check_main.h"

#define PATIENCE_MS 30000
#define EVENTS      "inproc://events"
#define REPLAY      "inproc://replay"

static void *
open_socket(void *context, int type, const char *url, int hwm)
{
    void *socket = zmq_socket(context, type);
    int patience = PATIENCE_MS, linger = 0;

    ck_assert_ptr_nonnull(socket);
    (void)zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof(patience));
    (void)zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
    (void)zmq_setsockopt(socket, ZMQ_RCVHWM, &hwm, sizeof(hwm));
    if (type == ZMQ_SUB) {
        ck_assert_int_eq(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), 0);
    }
    ck_assert_int_eq(zmq_connect(socket, url), 0);
    return socket;
}

static struct kv_publisher *
start_publisher(void *context, const struct kv_publisher_config *config)
{
    struct kv_publisher *publisher;

    ck_assert_int_eq(kv_publisher_new(config, &publisher), ST_OK);
    ck_assert_msg(kv_publisher_start(publisher, context) == ST_OK, "%s", status_detail());
    return publisher;
}

static void
submit(struct kv_publisher *publisher, uint64_t number, size_t length)
{
    uint8_t *bytes = mem_zalloc(length, 1);

    ck_assert_ptr_nonnull(bytes);
    memset(bytes, (int)(number & 0x7f), length);
    kv_publisher_submit(publisher, number, bytes, length);
}

static uint64_t
read_number(const uint8_t bytes[8])
{
    uint64_t number = 0;

    for (int i = 0; i < 8; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

/* Receives number and payload, behind `empty` frames that have no content; the payload's length. */
static int
receive(void *socket, int empty, uint64_t *number_out)
{
    uint8_t number[8], payload[64];
    int length;

    for (int i = 0; i < empty; i++) {
        ck_assert_int_eq(zmq_recv(socket, payload, sizeof(payload), 0), 0);
    }
    ck_assert_int_eq(zmq_recv(socket, number, sizeof(number), 0), 8);
    *number_out = read_number(number);
    length = zmq_recv(socket, payload, sizeof(payload), 0);
    ck_assert_int_ge(length, 0);
    ck_assert(length == 0 || payload[0] == (*number_out & 0x7f));
    return length;
}

static void
ask_from(void *socket, uint64_t from, bool has_delimiter)
{
    uint8_t bytes[8];

    for (int i = 8; i-- > 0; from >>= 8) {
        bytes[i] = (uint8_t)from;
    }
    if (has_delimiter) {
        ck_assert_int_eq(zmq_send(socket, "", 0, ZMQ_SNDMORE), 0);
    }
    ck_assert_int_eq(zmq_send(socket, bytes, sizeof(bytes), 0), 8);
}

START_TEST(batches_come_numbered_and_again_on_request)
{
    void *context = zmq_ctx_new();
    struct kv_publisher *publisher = start_publisher(
        context, &(struct kv_publisher_config){.url = EVENTS, .replay_url = REPLAY, .topic = ""});
    void *sub = open_socket(context, ZMQ_SUB, EVENTS, 0);
    void *dealer = open_socket(context, ZMQ_DEALER, REPLAY, 0);
    uint64_t number, first = 0;

    /* A subscription takes its time: from the first batch that comes, all come. */
    for (bool is_in = false; !is_in; first++) {
        zmq_pollitem_t item = {.socket = sub, .events = ZMQ_POLLIN};

        submit(publisher, first, 5);
        is_in = zmq_poll(&item, 1, 10) > 0;
    }
    ck_assert_int_eq(receive(sub, 1, &number), 5);
    while (number + 1 < first) {
        ck_assert_int_eq(receive(sub, 1, &number), 5);
    }
    submit(publisher, first, 7);
    ck_assert_int_eq(receive(sub, 1, &number), 7);
    ck_assert_uint_eq(number, first);

    /* Both ways of asking; then what is no question, which is passed over. */
    for (int has_delimiter = 0; has_delimiter < 2; has_delimiter++) {
        ask_from(dealer, first - 1, has_delimiter);
        ck_assert_int_eq(receive(dealer, has_delimiter, &number), 5);
        ck_assert_uint_eq(number, first - 1);
        ck_assert_int_eq(receive(dealer, has_delimiter, &number), 7);
        ck_assert_int_eq(receive(dealer, has_delimiter, &number), 0);
        ck_assert_uint_eq(number, UINT64_MAX);
    }
    ck_assert_int_eq(zmq_send(dealer, "short", 5, 0), 5);
    ck_assert_int_eq(zmq_send(dealer, "no delimiter", 12, ZMQ_SNDMORE), 12);
    ck_assert_int_eq(zmq_send(dealer, "12345678", 8, 0), 8);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(zmq_send(dealer, "", 0, i < 4 ? ZMQ_SNDMORE : 0), 0);
    }
    ask_from(dealer, first + 1, false);
    ck_assert_int_eq(receive(dealer, 0, &number), 0);
    ck_assert_uint_eq(kv_publisher_stats(publisher).published, first + 1);
    ck_assert_uint_eq(kv_publisher_stats(publisher).replayed, 4);
    ck_assert_uint_eq(kv_publisher_stats(publisher).dropped, 0);
    zmq_close(sub);
    zmq_close(dealer);
    kv_publisher_destroy(&publisher);
    zmq_ctx_term(context);
}
END_TEST

START_TEST(a_subscriber_that_does_not_read_holds_up_nobody_and_is_counted)
{
    void *context = zmq_ctx_new();
    struct kv_publisher *publisher = start_publisher(
        context, &(struct kv_publisher_config){.url = EVENTS, .replay_url = REPLAY, .topic = "t"});
    void *lazy = open_socket(context, ZMQ_SUB, EVENTS, 10);
    void *dealer = open_socket(context, ZMQ_DEALER, REPLAY, 0);
    uint64_t count = 0, number, last = 0;

    while (kv_publisher_stats(publisher).missed == 0) {
        submit(publisher, count++, 1);
        ck_assert_uint_lt(count, 1u << 24);
    }
    /* Who asks still gets the last ones, in order, and only those that are kept. */
    submit(publisher, count++, 2);
    while (kv_publisher_stats(publisher).published < count) {
    }
    ask_from(dealer, 0, false);
    for (int got = 0, length = 1; length != 0; got++) {
        length = receive(dealer, 0, &number);
        ck_assert(length == 0 || got == 0 || number == last + 1);
        last = length == 0 ? last : number;
        ck_assert_int_le(got, KV_PUBLISHER_KEPT);
    }
    ck_assert_uint_eq(last, count - 1);
    zmq_close(lazy);
    zmq_close(dealer);
    kv_publisher_destroy(&publisher);
    zmq_ctx_term(context);
}
END_TEST

START_TEST(what_does_not_fit_into_the_queue_is_dropped_and_its_number_is_missing)
{
    static const uint32_t ids[4] = {1, 2, 3, 4};
    struct kv_events_config config = {
        .publisher = {.url = EVENTS, .replay_url = REPLAY, .topic = ""}, .block_tokens = 4};
    void *context = zmq_ctx_new();
    struct kv_publisher *publisher;
    struct dockey key = {.bytes = {1}};
    struct kv_events *events;
    const struct kvpool_watch *watch;
    uint64_t number;
    void *dealer;

    /* Nobody publishes yet, so the queue is full at some point. */
    ck_assert_int_eq(kv_publisher_new(&config.publisher, &publisher), ST_OK);
    submit(publisher, 0, KV_PUBLISHER_QUEUE_BYTES);
    submit(publisher, 1, 1);
    kv_publisher_submit(publisher, 2, NULL, 0);
    ck_assert_uint_eq(kv_publisher_stats(publisher).dropped, 2);
    kv_publisher_destroy(&publisher);

    ck_assert_int_eq(kv_events_new(&config, &events), ST_OK);
    watch = kv_events_watch(events);
    kv_events_flush(events);
    mem_fail_at(1);
    watch->stored(watch->arg, &key, 0, 1, ids);
    mem_fail_at(0);
    kv_events_flush(events);
    watch->stored(watch->arg, &key, 0, 1, ids);
    kv_events_flush(events);
    kv_events_flush(events); /* nothing to tell */
    ck_assert_int_eq(kv_events_start(events, context), ST_OK);
    dealer = open_socket(context, ZMQ_DEALER, REPLAY, 0);
    while (kv_events_stats(events).published < 2) {
    }
    ck_assert_uint_eq(kv_events_stats(events).dropped, 1);
    ask_from(dealer, 1, false);
    uint8_t bytes[8], batch[256];
    ck_assert_int_eq(zmq_recv(dealer, bytes, sizeof(bytes), 0), 8);
    ck_assert_uint_eq(read_number(bytes), 2);
    ck_assert_int_gt(zmq_recv(dealer, batch, sizeof(batch), 0), 0);
    ck_assert_int_eq(receive(dealer, 0, &number), 0);
    zmq_close(dealer);
    kv_events_destroy(&events);
    zmq_ctx_term(context);
}
END_TEST

/* Such a frame would be taken into memory whole, and a thousand of them, before we look. */
START_TEST(who_sends_more_than_a_question_or_a_topic_is_cut_off)
{
    static const char *const names[] = {"events", "replay"};
    static const char *const cuts[] = {"inproc://cut-off", "inproc://cut-too"};
    static char much[1 << 20];
    char dir[] = "/tmp/kvasir-events.XXXXXX", urls[2][64];
    void *context = zmq_ctx_new();

    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        (void)snprintf(urls[i], sizeof(urls[i]), "ipc://%s/%s", dir, names[i]);
    }
    struct kv_publisher *publisher = start_publisher(
        context, &(struct kv_publisher_config){.url = urls[0], .replay_url = urls[1], .topic = ""});

    for (int i = 0; i < 2; i++) {
        void *client = open_socket(context, i == 0 ? ZMQ_XSUB : ZMQ_DEALER, urls[i], 10);
        void *monitor = zmq_socket(context, ZMQ_PAIR);
        int patience = PATIENCE_MS;
        uint16_t event = 0;
        char rest[128];

        (void)zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &patience, sizeof(patience));
        ck_assert_int_eq(zmq_socket_monitor(client, cuts[i], ZMQ_EVENT_DISCONNECTED), 0);
        ck_assert_int_eq(zmq_connect(monitor, cuts[i]), 0);
        much[0] = 2; /* no subscription: one of that length is too deep for libzmq itself */
        ck_assert_int_eq(zmq_send(client, much, sizeof(much), 0), sizeof(much));
        ck_assert_int_gt(zmq_recv(monitor, &event, sizeof(event), 0), 0);
        ck_assert_int_ge(zmq_recv(monitor, rest, sizeof(rest), 0), 0);
        (void)zmq_close(client);
        (void)zmq_close(monitor);
    }
    kv_publisher_destroy(&publisher);
    (void)zmq_ctx_term(context);
    for (int i = 0; i < 2; i++) {
        (void)unlink(urls[i] + strlen("ipc://"));
    }
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(an_endpoint_that_cannot_be_had_is_named)
{
    void *context = zmq_ctx_new();
    struct kv_publisher_config config = {.url = "ipc:///nowhere/at/all", .topic = ""};
    struct kv_publisher *publisher;

    ck_assert_int_eq(kv_publisher_new(&config, &publisher), ST_OK);
    ck_assert_int_eq(kv_publisher_start(publisher, context), ST_SYSTEM);
    ck_assert_ptr_nonnull(strstr(status_detail(), "ipc:///nowhere/at/all"));
    kv_publisher_destroy(&publisher);
    zmq_ctx_term(context);
}
END_TEST

START_TEST(blocks_of_one_document_and_of_others_have_other_names)
{
    struct dockey one = {.bytes = {0, 1, 2, 3, 4, 5, 6, 7, 8}}, two = one;

    two.bytes[7] ^= 1;
    ck_assert_uint_eq(kv_events_hash(&one, 0), UINT64_C(0x0001020304050607));
    ck_assert_uint_eq(kv_events_hash(&one, 1),
                      UINT64_C(0x0001020304050607) + UINT64_C(0x9e3779b97f4a7c15));
    ck_assert_uint_ne(kv_events_hash(&one, 0), kv_events_hash(&two, 0));
}
END_TEST

CHECK_MAIN("kv_events", batches_come_numbered_and_again_on_request,
           a_subscriber_that_does_not_read_holds_up_nobody_and_is_counted,
           what_does_not_fit_into_the_queue_is_dropped_and_its_number_is_missing,
           who_sends_more_than_a_question_or_a_topic_is_cut_off,
           an_endpoint_that_cannot_be_had_is_named,
           blocks_of_one_document_and_of_others_have_other_names)
