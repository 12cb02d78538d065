/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "proto/endpoints.h"
#include "proto/frames.h"
#include "proto/wire.h"
#include "tests/support/check_main.h"

#include "kvasir/v1/rag.pb-c.h"

struct pair {
    void *context;
    void *router;
    void *dealer;
};

static struct pair
pair_new(void)
{
    struct pair pair = {.context = zmq_ctx_new()};

    pair.router = zmq_socket(pair.context, ZMQ_ROUTER);
    pair.dealer = zmq_socket(pair.context, ZMQ_DEALER);
    ck_assert_int_eq(frames_configure(pair.router, ZMQ_ROUTER, 4, 1 << 20), ST_OK);
    ck_assert_int_eq(frames_configure(pair.dealer, ZMQ_DEALER, 4, 1 << 20), ST_OK);
    ck_assert_int_eq(zmq_bind(pair.router, "inproc://frames"), 0);
    ck_assert_int_eq(zmq_connect(pair.dealer, "inproc://frames"), 0);
    return pair;
}

static void
pair_destroy(struct pair *pair)
{
    ck_assert_int_eq(zmq_close(pair->dealer), 0);
    ck_assert_int_eq(zmq_close(pair->router), 0);
    ck_assert_int_eq(zmq_ctx_term(pair->context), 0);
}

static enum status
wait_and_receive(void *socket, struct frames *frames)
{
    zmq_pollitem_t item = {.socket = socket, .events = ZMQ_POLLIN};

    ck_assert_int_eq(zmq_poll(&item, 1, 600000), 1);
    return frames_recv(socket, frames);
}

START_TEST(frames_travel_both_ways_whole)
{
    struct pair pair = pair_new();
    struct frames frames;
    char large[70000];

    memset(large, 'x', sizeof(large));
    ck_assert_int_eq(frames_recv(pair.router, &frames), ST_UNAVAILABLE);
    ck_assert_int_eq(frames_send(pair.dealer,
                                 (struct frame[]){{"head", 4}, {NULL, 0}, {large, sizeof(large)}},
                                 3),
                     ST_OK);
    ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_OK);
    ck_assert_uint_eq(frames.count, 4);
    ck_assert_uint_eq(frames_length(&frames, 1), 4);
    ck_assert_mem_eq(frames_bytes(&frames, 1), "head", 4);
    ck_assert_uint_eq(frames_length(&frames, 2), 0);
    ck_assert_mem_eq(frames_bytes(&frames, 3), large, sizeof(large));

    struct frame reply[] = {{frames_bytes(&frames, 0), frames_length(&frames, 0)}, {"ok", 2}};

    ck_assert_int_eq(frames_send(pair.router, reply, 2), ST_OK);
    frames_close(&frames);
    ck_assert_int_eq(wait_and_receive(pair.dealer, &frames), ST_OK);
    ck_assert_uint_eq(frames.count, 1);
    ck_assert_mem_eq(frames_bytes(&frames, 0), "ok", 2);
    frames_close(&frames);
    frames_close(&frames);
    pair_destroy(&pair);
}
END_TEST

START_TEST(a_message_is_packed_where_it_leaves_from)
{
    struct pair pair = pair_new();
    struct frames frames;
    struct wire_buffer packed = {0};
    Kvasir__V1__TokenizeRequest request = KVASIR__V1__TOKENIZE_REQUEST__INIT;

    char text[] = "to be packed";

    request.text = text;
    ck_assert_int_eq(wire_pack(&packed, &request.base), ST_OK);
    ck_assert_int_eq(
        frames_send_packed(pair.dealer, (struct frame){"head", 4}, &request.base, packed.length),
        ST_OK);
    ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_OK);
    ck_assert_uint_eq(frames.count, 3);
    ck_assert_mem_eq(frames_bytes(&frames, 1), "head", 4);
    ck_assert_uint_eq(frames_length(&frames, 2), packed.length);
    ck_assert_mem_eq(frames_bytes(&frames, 2), packed.bytes, packed.length);
    frames_close(&frames);
    wire_buffer_deinit(&packed);
    pair_destroy(&pair);
}
END_TEST

/* Short ones lie in the message itself, long ones behind a pointer. */
START_TEST(a_frame_that_is_taken_outlives_its_message)
{
    struct pair pair = pair_new();
    char bytes[70000];

    memset(bytes, 'y', sizeof(bytes));
    for (size_t length = 0; length <= sizeof(bytes); length = length * 10 + 7) {
        struct frames frames, taken;

        ck_assert_int_eq(
            frames_send(pair.dealer, (struct frame[]){{"head", 4}, {bytes, length}}, 2), ST_OK);
        ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_OK);
        frames_take(&frames, frames.count - 1, &taken);
        ck_assert_uint_eq(frames_length(&frames, frames.count - 1), 0);
        frames_close(&frames);
        ck_assert_uint_eq(taken.count, 1);
        ck_assert_uint_eq(frames_length(&taken, 0), length);
        ck_assert(length == 0 || memcmp(frames_bytes(&taken, 0), bytes, length) == 0);
        frames_close(&taken);
    }
    pair_destroy(&pair);
}
END_TEST

START_TEST(a_message_of_too_many_frames_is_dropped_whole)
{
    struct pair pair = pair_new();
    struct frames frames;

    for (int i = 0; i < 9; i++) {
        ck_assert_int_eq(zmq_send(pair.dealer, "x", 1, i < 8 ? ZMQ_SNDMORE : 0), 1);
    }
    ck_assert_int_eq(frames_send(pair.dealer, (struct frame[]){{"next", 4}}, 1), ST_OK);
    ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_INVALID);
    ck_assert_str_eq(status_detail(), "message of more than 4 frames: dropped");
    ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_OK);
    ck_assert_mem_eq(frames_bytes(&frames, 1), "next", 4);
    frames_close(&frames);
    pair_destroy(&pair);
}
END_TEST

START_TEST(sending_to_a_stranger_or_a_full_queue_is_unavailable)
{
    struct pair pair = pair_new();
    enum status st = ST_OK;
    int sent = 0;

    ck_assert_int_eq(frames_send(pair.router, (struct frame[]){{"nobody", 6}, {"x", 1}}, 2),
                     ST_UNAVAILABLE);
    ck_assert_str_eq(status_detail(), "the other side is gone");
    for (; st == ST_OK && sent < 1000; sent++) {
        st = frames_send(pair.dealer, (struct frame[]){{"a", 1}, {"b", 1}}, 2);
    }
    ck_assert_int_eq(st, ST_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(status_detail(), "queue full"));

    struct frames frames;

    for (int i = 0; i + 1 < sent; i++) {
        ck_assert_int_eq(wait_and_receive(pair.router, &frames), ST_OK);
        ck_assert_uint_eq(frames.count, 3);
        frames_close(&frames);
    }
    ck_assert_int_eq(frames_recv(pair.router, &frames), ST_UNAVAILABLE);
    pair_destroy(&pair);
}
END_TEST

static int
heartbeat_ms(void *socket)
{
    int value = -1;
    size_t size = sizeof(value);

    ck_assert_int_eq(zmq_getsockopt(socket, ZMQ_HEARTBEAT_IVL, &value, &size), 0);
    return value;
}

/* libzmq's patience must not cut short the --worker-liveness that an operator chose. */
START_TEST(only_who_asks_for_it_loses_a_silent_connection)
{
    struct pair pair = pair_new();

    ck_assert_int_eq(heartbeat_ms(pair.dealer), 0);
    ck_assert_int_eq(frames_watch_connection(pair.dealer), ST_OK);
    ck_assert_int_gt(heartbeat_ms(pair.dealer), 0);
    ck_assert_int_eq(frames_watch_clients(pair.router), ST_OK);
    ck_assert_int_eq(heartbeat_ms(pair.router), 0);
    pair_destroy(&pair);
}
END_TEST

START_TEST(the_runtime_directory_is_found_in_the_documented_order)
{
    char dir[ENDPOINT_PATH_MAX], url[ENDPOINT_URL_MAX], text[200];

    ck_assert_int_eq(setenv(ENDPOINT_DIR_ENV, "/tmp/from-env", 1), 0);
    ck_assert_int_eq(endpoint_dir("/tmp/option", dir), ST_OK);
    ck_assert_str_eq(dir, "/tmp/option");
    ck_assert_int_eq(endpoint_dir(NULL, dir), ST_OK);
    ck_assert_str_eq(dir, "/tmp/from-env");
    ck_assert_int_eq(endpoint_url(dir, ENDPOINT_CLIENT, url), ST_OK);
    ck_assert_str_eq(url, "ipc:///tmp/from-env/client.sock");
    memset(text, 'd', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    ck_assert_int_eq(endpoint_dir(text, dir), ST_INVALID);
    text[100] = '\0';
    ck_assert_int_eq(endpoint_dir(text, dir), ST_OK);
    ck_assert_int_eq(endpoint_url(dir, ENDPOINT_CLIENT, url), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "longer than 107 bytes"));
    if (access(ENDPOINT_DIR_DEFAULT, F_OK) != 0) {
        ck_assert_int_eq(unsetenv(ENDPOINT_DIR_ENV), 0);
        ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", "/run/user/1", 1), 0);
        ck_assert_int_eq(endpoint_dir(NULL, dir), ST_OK);
        ck_assert_str_eq(dir, "/run/user/1/kvasir");
        ck_assert_int_eq(unsetenv("XDG_RUNTIME_DIR"), 0);
        ck_assert_int_eq(endpoint_dir(NULL, dir), ST_NOT_FOUND);
    }
}
END_TEST

CHECK_MAIN("frames", frames_travel_both_ways_whole, a_message_is_packed_where_it_leaves_from,
           a_frame_that_is_taken_outlives_its_message,
           a_message_of_too_many_frames_is_dropped_whole,
           sending_to_a_stranger_or_a_full_queue_is_unavailable,
           only_who_asks_for_it_loses_a_silent_connection,
           the_runtime_directory_is_found_in_the_documented_order)
