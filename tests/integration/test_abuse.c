/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of a running kvasird that keep to nothing: what they send is refused by name or dropped,
 * and whoever asks properly at the same time is served as ever. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/endpoints.h"
#include "proto/frames.h"
#include "proto/wire.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#include "kvasir/v1/wire.pb-c.h"

#define CHECK_METHOD    "/kvasir.v1.Health/Check"
#define CANCEL_METHOD   "/kvasir.v1.Rag/Cancel"
#define GENERATE_METHOD "/kvasir.v1.Rag/Generate"
#define WAITING         400   /* calls, so that those before them have come to the queue */
#define FLOOD           20000 /* answers that nobody reads; kvasird keeps 4096 for a client */
#define STRANGERS       20

static const struct asking_doc document = {50, 1};
static const struct question question = {.docs = &document, .doc_count = 1, .max_tokens = 20};

/* --- a client without manners ----------------------------------------------------------------- */

struct rude {
    void *context, *socket;
};

static void
rude_connect(const struct rude *rude, struct host *host)
{
    char url[ENDPOINT_URL_MAX];

    ck_assert_int_eq(endpoint_url(host_dir(host), ENDPOINT_CLIENT, url), ST_OK);
    ck_assert_int_eq(zmq_connect(rude->socket, url), 0);
}

static struct rude
rude_new(void)
{
    struct rude rude = {.context = zmq_ctx_new()};

    rude.socket = zmq_socket(rude.context, ZMQ_DEALER);
    ck_assert_int_eq(frames_configure(rude.socket, ZMQ_DEALER, 2 * FLOOD, WIRE_CLIENT_BYTES_MAX),
                     ST_OK);
    return rude;
}

static struct rude
rude_open(struct host *host)
{
    struct rude rude = rude_new();

    rude_connect(&rude, host);
    return rude;
}

static void
rude_close(struct rude *rude)
{
    (void)zmq_close(rude->socket);
    (void)zmq_ctx_term(rude->context);
}

static void
send_frames(struct rude *rude, const struct frame *parts, size_t count)
{
    ck_assert_msg(frames_send(rude->socket, parts, count) == ST_OK, "%s", status_detail());
}

static void
send_call(struct rude *rude, uint32_t version, const char *method, uint64_t id,
          struct frame payload)
{
    Kvasir__V1__RequestHeader header = KVASIR__V1__REQUEST_HEADER__INIT;
    struct wire_buffer buffer = {0};

    header.has_version = header.has_request_id = true;
    header.version = version;
    header.method = (char *)(uintptr_t)method;
    header.request_id = id;
    ck_assert_int_eq(wire_pack(&buffer, &header.base), ST_OK);
    send_frames(rude, (struct frame[]){{buffer.bytes, buffer.length}, payload}, 2);
    wire_buffer_deinit(&buffer);
}

/* The next answer must be to that call, with that code and words. */
static void
expect(struct rude *rude, uint64_t id, enum rpc_code code, const char *words)
{
    zmq_pollitem_t item = {.socket = rude->socket, .events = ZMQ_POLLIN};
    const ProtobufCMessage *message;
    struct wire_arena *arena;
    struct frames frames;

    ck_assert_int_eq(zmq_poll(&item, 1, process_patience_ms()), 1);
    ck_assert_int_eq(frames_recv(rude->socket, &frames), ST_OK);
    ck_assert_int_eq(wire_arena_new(&arena), ST_OK);
    ck_assert_int_eq(wire_unpack(arena, &kvasir__v1__reply_header__descriptor,
                                 frames_bytes(&frames, 0), frames_length(&frames, 0),
                                 WIRE_HEADER_BYTES_MAX, &message),
                     ST_OK);
    const Kvasir__V1__ReplyHeader *header = (const Kvasir__V1__ReplyHeader *)message;

    const char *said = header->message == NULL ? "" : header->message;

    ck_assert_uint_eq(header->request_id, id);
    ck_assert_msg(header->status == code && strstr(said, words) != NULL, "%u: %s", header->status,
                  said);
    wire_arena_destroy(&arena);
    frames_close(&frames);
}

static void
check_is_served(struct host *host, const struct answer *before)
{
    struct answer answer;

    ask_ok(host, &question, &answer);
    answer_assert_same(before, &answer);
}

static void
wait_fds_at_most(const struct process *process, int at_most)
{
    uint64_t limit_us = process_patience_until_us();

    while (process_count_fds(process) > at_most) {
        ck_assert_msg(clock_now_us() < limit_us, "%d descriptors, %d before",
                      process_count_fds(process), at_most);
        (void)poll(NULL, 0, 1);
    }
}

START_TEST(what_is_no_request_is_refused_by_name_or_dropped)
{
    static const char junk[] = "\xff\xff\xff\xff nothing of ours";
    static uint8_t entries[2u << 20]; /* of a list: tag and length 0, a million times */
    const struct frame nothing = {"", 0}, garbage = {junk, sizeof(junk)};
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer before;

    ask_ok(host, &question, &before);
    struct rude rude = rude_open(host);

    send_call(&rude, 99, CHECK_METHOD, 1, nothing);
    expect(&rude, 1, RPC_FAILED_PRECONDITION, "protocol version 99: this daemon speaks 1");
    send_call(&rude, WIRE_VERSION, "/kvasir.v1.Rag/Divine", 2, nothing);
    expect(&rude, 2, RPC_UNIMPLEMENTED, "/kvasir.v1.Rag/Divine: there is no such method");
    send_call(&rude, WIRE_VERSION, NULL, 3, nothing);
    expect(&rude, 3, RPC_UNIMPLEMENTED, "(none)");
    send_call(&rude, WIRE_VERSION, "/kvasir.v1.Rag/Generate", 4, garbage);
    expect(&rude, 4, RPC_INVALID_ARGUMENT, "");
    send_call(&rude, WIRE_VERSION, "/kvasir.v1.Admin/Stats", 5, nothing);
    expect(&rude, 5, RPC_PERMISSION_DENIED, "");
    for (size_t i = 0; i < sizeof(entries); i += 2) {
        entries[i] = 1 << 3 | 2; /* field 1, of bytes */
    }
    send_call(&rude, WIRE_VERSION, "/kvasir.v1.Documents/Register", 6,
              (struct frame){entries, sizeof(entries)});
    expect(&rude, 6, RPC_INVALID_ARGUMENT, "");
    /* Too few frames, too many, a head that is none: nothing comes, and then what was asked. */
    send_frames(&rude, &garbage, 1);
    send_frames(&rude, (struct frame[]){garbage, nothing}, 2);
    send_frames(&rude, (struct frame[]){nothing, nothing, nothing}, 3);
    send_call(&rude, WIRE_VERSION, CHECK_METHOD, 7, nothing);
    expect(&rude, 7, RPC_OK, "");
    check_is_served(host, &before);
    rude_close(&rude);
    host_stop(&host);
}
END_TEST

/* Bytes of ZeroMQ's own protocol, or of none: cut off anywhere, or with lengths beyond all memory.
 */
START_TEST(half_frames_and_absurd_lengths_leave_nothing)
{
    static const struct {
        const char *bytes;
        size_t length;
    } starts[] = {
        {"", 0},
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\xff\0\0\0\0\0\0\0\1\x7f", 10},          /* half a greeting */
        {"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL", 16},  /* more of it */
        {"\2\x7f\xff\xff\xff\xff\xff\xff\xff", 9}, /* a frame of 2^63 - 1 bytes */
    };
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer before;
    int sockets[STRANGERS];
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    ask_ok(host, &question, &before);
    check_is_served(host, &before);
    int fds = process_count_fds(host_daemon(host));

    ck_assert_int_eq(endpoint_path(host_dir(host), ENDPOINT_CLIENT, address.sun_path), ST_OK);
    for (size_t i = 0; i < STRANGERS; i++) {
        size_t start = i % (sizeof(starts) / sizeof(starts[0]));

        sockets[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ck_assert_int_eq(
            connect(sockets[i], (const struct sockaddr *)(const void *)&address, sizeof(address)),
            0);
        (void)send(sockets[i], starts[start].bytes, starts[start].length, MSG_NOSIGNAL);
        check_is_served(host, &before);
    }
    for (size_t i = 0; i < STRANGERS; i++) {
        (void)close(sockets[i]);
    }
    check_is_served(host, &before);
    wait_fds_at_most(host_daemon(host), fds);
    host_stop(&host);
}
END_TEST

START_TEST(a_client_that_reads_no_answer_holds_up_nobody)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer before;

    ask_ok(host, &question, &before);
    int fds = process_count_fds(host_daemon(host));
    struct rude rude = rude_open(host);

    for (uint64_t id = 1; id <= FLOOD; id++) {
        send_call(&rude, WIRE_VERSION, CHECK_METHOD, id, (struct frame){"", 0});
        if (id % (FLOOD / 10) == 0) {
            check_is_served(host, &before);
        }
    }
    rude_close(&rude);
    wait_fds_at_most(host_daemon(host), fds);
    check_is_served(host, &before);
    host_stop(&host);
}
END_TEST

/* The end of a call that is cancelled is the first message too many for who reads nothing, or the
 * answer to the Cancel is; a message more before them makes it the other one. */
static void
cancel_without_reading(struct host *host, bool is_odd)
{
    struct rude rude = rude_new();
    uint8_t cancel[1 + 10] = {1 << 3}; /* request_id = */
    const struct frame nothing = {"", 0};
    int hwm = 1;

    ck_assert_int_eq(zmq_setsockopt(rude.socket, ZMQ_RCVHWM, &hwm, sizeof(hwm)), 0);
    rude_connect(&rude, host);
    if (is_odd) {
        send_call(&rude, WIRE_VERSION, CHECK_METHOD, 2 * FLOOD, nothing);
    }
    for (uint64_t id = 1; id <= FLOOD; id++) {
        size_t length = 1;

        send_call(&rude, WIRE_VERSION, GENERATE_METHOD, id, (struct frame){"\x1a\1\1", 3});
        if (id <= WAITING) {
            continue;
        }
        for (uint64_t rest = id - WAITING; length == 1 || rest > 0; rest >>= 7) {
            cancel[length++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        }
        send_call(&rude, WIRE_VERSION, CANCEL_METHOD, FLOOD + id, (struct frame){cancel, length});
    }
    rude_close(&rude);
}

START_TEST(a_client_that_cancels_and_reads_nothing_hurts_nobody)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    struct answer answer;

    for (int i = 0; i < 6; i++) {
        cancel_without_reading(host, i % 2 == 1);
    }
    (void)host_add_worker(host);
    ask_ok(host, &question, &answer);
    host_stop(&host);
}
END_TEST

/* SIGTERM: what runs is finished, what comes then is refused, and the end is a good one. */
START_TEST(a_daemon_that_is_told_to_stop_finishes_what_runs_and_refuses_what_is_new)
{
    static const char *const args[] = {"--drain-timeout", "10min", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct question longer = question, late = question;
    static struct answer alone, whole, refused;

    longer.max_tokens = 600;
    late.retry_ms = KVASIR_RETRY_NEVER;
    ask_ok(host, &longer, &alone);
    struct asking *asking = asking_start(host, &longer);

    asking_wait_tokens(asking, 3);
    process_signal(host_daemon(host), SIGTERM);
    do { /* the signal is on its way */
        ask(host, &late, &refused);
    } while (refused.code == KVASIR_OK);
    ck_assert_int_eq(refused.code, KVASIR_UNAVAILABLE);
    asking_end(&asking, &whole);
    ck_assert_msg(whole.code == KVASIR_OK, "%s", whole.message);
    answer_assert_same(&alone, &whole);
    ck_assert_int_eq(process_wait(host_daemon(host)), 0);
    ck_assert_int_eq(host_wait_worker(host, 0), 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("abuse", what_is_no_request_is_refused_by_name_or_dropped,
           half_frames_and_absurd_lengths_leave_nothing,
           a_client_that_reads_no_answer_holds_up_nobody,
           a_client_that_cancels_and_reads_nothing_hurts_nobody,
           a_daemon_that_is_told_to_stop_finishes_what_runs_and_refuses_what_is_new)
