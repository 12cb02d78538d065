/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dealer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "common/mem.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/frames.h"

#define DEALER_HWM 1000
#define MONITOR_EVENTS                                                                             \
    (ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL    \
     | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_CLOSED    \
     | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_DISCONNECTED)

#define SOCKETS_MAX 8192 /* three a connection, and libzmq's own choice is 1023 */

/* ---- one context a process ------------------------------------------------------------------- */

/* libzmq 4.3.4 may crash when one of several contexts ends, so connections share one. */
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *shared_context;
static unsigned shared_context_users;

static void *
context_acquire(void)
{
    (void)pthread_mutex_lock(&context_lock);
    if (shared_context == NULL) {
        shared_context = zmq_ctx_new();
        if (shared_context != NULL) {
            (void)zmq_ctx_set(shared_context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
        }
    }
    shared_context_users += shared_context != NULL;
    void *context = shared_context;

    (void)pthread_mutex_unlock(&context_lock);
    return context;
}

static void
context_release(void)
{
    (void)pthread_mutex_lock(&context_lock);
    assert(shared_context_users > 0);
    if (--shared_context_users == 0) {
        (void)zmq_ctx_term(shared_context);
        shared_context = NULL;
    }
    (void)pthread_mutex_unlock(&context_lock);
}

/* ---- connecting ------------------------------------------------------------------------------ */

void
dealer_close(struct dealer *dealer)
{
    if (dealer->socket != NULL) {
        (void)zmq_socket_monitor(dealer->socket, NULL, 0);
        (void)zmq_close(dealer->socket);
        dealer->socket = NULL;
    }
    if (dealer->monitor != NULL) {
        (void)zmq_close(dealer->monitor);
        dealer->monitor = NULL;
    }
}

/* An event is [u16 event, u32 value][endpoint]. */
int
dealer_next_event(struct dealer *dealer)
{
    struct frames frames;
    uint16_t event = 0;
    uint32_t value;

    if (frames_recv(dealer->monitor, &frames) != ST_OK) {
        return 0;
    }
    if (frames_length(&frames, 0) >= sizeof(event) + sizeof(value)) {
        memcpy(&event, frames_bytes(&frames, 0), sizeof(event));
        memcpy(&value, (const uint8_t *)frames_bytes(&frames, 0) + sizeof(event), sizeof(value));
        dealer->connection = event == ZMQ_EVENT_CONNECTED ? (int)value : dealer->connection;
        dealer->is_accepted |= event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    }
    frames_close(&frames);
    return event;
}

enum status
dealer_unreachable(const struct dealer *dealer)
{
    const char *path = strncmp(dealer->url, "ipc://", 6) == 0 ? dealer->url + 6 : NULL;

    if (path != NULL && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0 && errno == EACCES) {
        return ERR(ST_UNAVAILABLE,
                   "%s: permission denied: who may use kvasird is in the group of its runtime "
                   "directory",
                   path);
    }
    if (dealer->connection >= 0 && !dealer->is_accepted) {
        return ERR(ST_UNAVAILABLE,
                   "%s ends the connection: kvasird stops there, or wants keys (its public one and "
                   "a secret one that it knows)",
                   dealer->url);
    }
    return ERR(ST_UNAVAILABLE, "no kvasird at %s", dealer->url);
}

bool
dealer_has_hung_up(const struct dealer *dealer)
{
    struct pollfd fd = {.fd = dealer->connection, .events = POLLRDHUP};

    return poll(&fd, 1, 0) > 0;
}

static enum status
make_sockets(struct dealer *dealer)
{
    static atomic_uint_fast64_t serial; /* monitors' names are never used twice */
    char monitor_url[96];
    int linger = 0;

    (void)snprintf(monitor_url, sizeof(monitor_url), "inproc://kvasir-monitor-%llu",
                   (unsigned long long)atomic_fetch_add(&serial, 1));
    dealer->connection = -1;
    dealer->is_accepted = false;
    dealer->socket = zmq_socket(dealer->context, ZMQ_DEALER);
    dealer->monitor = zmq_socket(dealer->context, ZMQ_PAIR);
    if (dealer->socket == NULL || dealer->monitor == NULL) {
        return ERR(ST_SYSTEM, "zmq_socket: %s", zmq_strerror(errno));
    }
    /* Not ZMQ_IMMEDIATE: with it libzmq drops unread replies when the connection ends. */
    TRY(frames_configure(dealer->socket, ZMQ_DEALER, DEALER_HWM, WIRE_CLIENT_BYTES_MAX));
    TRY(frames_watch_connection(dealer->socket));
    if (zmq_setsockopt(dealer->monitor, ZMQ_LINGER, &linger, sizeof(linger)) != 0
        || zmq_socket_monitor(dealer->socket, monitor_url, MONITOR_EVENTS) != 0
        || zmq_connect(dealer->monitor, monitor_url) != 0) {
        return ERR(ST_SYSTEM, "%s: %s", monitor_url, zmq_strerror(errno));
    }
    if (dealer->server_key[0] != '\0') {
        TRY(curve_be_client(dealer->socket, dealer->server_key, dealer->secret_key));
    }
    if (zmq_connect(dealer->socket, dealer->url) != 0) {
        return ERR(ST_INVALID, "endpoint %s: %s; it is ipc://PATH of a socket or tcp://HOST:PORT",
                   dealer->url, zmq_strerror(errno));
    }
    return ST_OK;
}

enum status
dealer_open(struct dealer *dealer)
{
    enum status st = make_sockets(dealer);

    if (st != ST_OK) {
        dealer_close(dealer);
    }
    return st;
}

enum status
dealer_init(struct dealer *dealer, const char *url)
{
    dealer->connection = -1;
    dealer->context = context_acquire();
    dealer->url = mem_strdup(url);
    if (dealer->context != NULL && dealer->url != NULL) {
        return ST_OK;
    }
    enum status st = dealer->context == NULL ? ERR(ST_SYSTEM, "zmq_ctx_new: %s", strerror(errno))
                                             : ERR(ST_NO_MEMORY, "no memory for a connection");

    dealer_deinit(dealer);
    return st;
}

enum status
dealer_use_keys(struct dealer *dealer, const char *server_key, const char *secret_file)
{
    if (server_key == NULL || secret_file == NULL) {
        return ERR(ST_INVALID, "the server's key and a secret key of ours go together");
    }
    TRY(curve_read_public(server_key, dealer->server_key));
    return curve_read_secret(secret_file, dealer->secret_key);
}

void
dealer_deinit(struct dealer *dealer)
{
    dealer_close(dealer);
    if (dealer->context != NULL) {
        context_release();
        dealer->context = NULL;
    }
    wire_buffer_deinit(&dealer->header);
    MEM_FREE(dealer->url);
}

/* ---- requests -------------------------------------------------------------------------------- */

enum status
dealer_send(struct dealer *dealer, const char *method, uint64_t id, uint32_t timeout_ms,
            const void *payload, size_t length)
{
    return dealer_send_with(dealer, method, id, timeout_ms, &(struct dealer_header){0}, payload,
                            length);
}

/* Packs the header of a payload of `length` bytes. */
static enum status
pack_header(struct dealer *dealer, const char *method, uint64_t id, uint32_t timeout_ms,
            const struct dealer_header *more, size_t length)
{
    Kvasir__V1__RequestHeader header = KVASIR__V1__REQUEST_HEADER__INIT;

    header.has_version = true;
    header.version = WIRE_VERSION;
    header.method = (char *)(uintptr_t)method; /* protobuf-c has no const; it only reads */
    header.has_request_id = true;
    header.request_id = id;
    header.has_timeout_ms = timeout_ms != 0;
    header.timeout_ms = timeout_ms;
    header.has_retry_key = more->retry_key_length > 0;
    header.retry_key =
        (ProtobufCBinaryData){more->retry_key_length, (void *)(uintptr_t)more->retry_key};
    header.tenant = (char *)(uintptr_t)more->tenant;
    if (length > WIRE_CLIENT_BYTES_MAX) {
        return ERR(ST_INVALID, "request of %zu bytes: at most %u are taken", length,
                   WIRE_CLIENT_BYTES_MAX);
    }
    return wire_pack(&dealer->header, &header.base);
}

enum status
dealer_send_with(struct dealer *dealer, const char *method, uint64_t id, uint32_t timeout_ms,
                 const struct dealer_header *more, const void *payload, size_t length)
{
    TRY(pack_header(dealer, method, id, timeout_ms, more, length));
    struct frame parts[] = {{dealer->header.bytes, dealer->header.length}, {payload, length}};

    return frames_send(dealer->socket, parts, 2);
}

enum status
dealer_send_message(struct dealer *dealer, const char *method, uint64_t id, uint32_t timeout_ms,
                    const struct dealer_header *more, const ProtobufCMessage *message)
{
    size_t length = protobuf_c_message_get_packed_size(message);

    TRY(pack_header(dealer, method, id, timeout_ms, more, length));
    struct frame head = {dealer->header.bytes, dealer->header.length};

    return frames_send_packed(dealer->socket, head, message, length);
}
