/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frames.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ZMTP heartbeats (the I/O thread sends them) find dead connections; whether the process behind one
 * still works is found out by messages of our own. */
#define HEARTBEAT_INTERVAL_MS 2000
#define HEARTBEAT_TIMEOUT_MS  6000

static int
receive_part(void *socket, zmq_msg_t *part)
{
    int rc;

    do {
        rc = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

/* Drops the parts that are left of the current message. */
static enum status
drain(void *socket)
{
    zmq_msg_t part;
    int has_more = 1;

    while (has_more) {
        (void)zmq_msg_init(&part);
        if (receive_part(socket, &part) < 0) {
            int error = errno;

            (void)zmq_msg_close(&part);
            return ERR(ST_SYSTEM, "zmq_msg_recv: %s", zmq_strerror(error));
        }
        has_more = zmq_msg_more(&part);
        (void)zmq_msg_close(&part);
    }
    return ERR(ST_INVALID, "message of more than %d frames: dropped", FRAMES_MAX);
}

enum status
frames_recv(void *socket, struct frames *frames_out)
{
    struct frames frames = {.count = 0};
    int has_more = 1;

    while (has_more && frames.count < FRAMES_MAX) {
        zmq_msg_t *part = &frames.parts[frames.count];

        (void)zmq_msg_init(part);
        if (receive_part(socket, part) < 0) {
            int error = errno;

            frames.count++;
            bool is_idle = error == EAGAIN && frames.count == 1;

            frames_close(&frames);
            return is_idle ? ST_UNAVAILABLE
                           : ERR(ST_SYSTEM, "zmq_msg_recv: %s", zmq_strerror(error));
        }
        has_more = zmq_msg_more(part);
        frames.count++;
    }
    if (has_more) {
        frames_close(&frames);
        return drain(socket);
    }
    /* Moved, not copied: libzmq may keep short messages inside zmq_msg_t. */
    frames_out->count = frames.count;
    for (size_t i = 0; i < frames.count; i++) {
        (void)zmq_msg_init(&frames_out->parts[i]);
        (void)zmq_msg_move(&frames_out->parts[i], &frames.parts[i]);
    }
    frames_close(&frames);
    return ST_OK;
}

void
frames_close(struct frames *frames)
{
    for (size_t i = 0; i < frames->count; i++) {
        (void)zmq_msg_close(&frames->parts[i]);
    }
    frames->count = 0;
}

void
frames_take(struct frames *frames, size_t index, struct frames *taken_out)
{
    assert(index < frames->count);
    taken_out->count = 1;
    (void)zmq_msg_init(&taken_out->parts[0]);
    (void)zmq_msg_move(&taken_out->parts[0], &frames->parts[index]);
}

const void *
frames_bytes(struct frames *frames, size_t index)
{
    assert(index < frames->count);
    return zmq_msg_data(&frames->parts[index]);
}

size_t
frames_length(struct frames *frames, size_t index)
{
    assert(index < frames->count);
    return zmq_msg_size(&frames->parts[index]);
}

/* One more part, to be written. */
static enum status
add_part(struct frames *frames, size_t length, void **bytes_out)
{
    zmq_msg_t *part = &frames->parts[frames->count];

    if (zmq_msg_init_size(part, length) != 0) {
        return ERR(ST_NO_MEMORY, "no memory for a frame of %zu bytes", length);
    }
    frames->count++;
    *bytes_out = zmq_msg_data(part);
    return ST_OK;
}

static enum status
copy_parts(struct frames *frames, const struct frame *parts, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *bytes;

        TRY(add_part(frames, parts[i].length, &bytes));
        if (parts[i].length > 0) {
            memcpy(bytes, parts[i].bytes, parts[i].length);
        }
    }
    return ST_OK;
}

static enum status
send_part(void *socket, zmq_msg_t *part, int flags)
{
    int rc;

    do {
        rc = zmq_msg_send(part, socket, ZMQ_DONTWAIT | flags);
    } while (rc < 0 && errno == EINTR);
    if (rc >= 0) {
        return ST_OK;
    }
    switch (errno) {
    case EAGAIN: return ERR(ST_UNAVAILABLE, "the other side does not take messages: queue full");
    case EHOSTUNREACH: return ERR(ST_UNAVAILABLE, "the other side is gone");
    default: return ERR(ST_SYSTEM, "zmq_msg_send: %s", zmq_strerror(errno));
    }
}

/* All parts, which are there, so that only the first can be refused. */
static enum status
send_parts(void *socket, struct frames *frames)
{
    enum status st = ST_OK;

    for (size_t i = 0; st == ST_OK && i < frames->count; i++) {
        st = send_part(socket, &frames->parts[i], i + 1 < frames->count ? ZMQ_SNDMORE : 0);
        /* After its first part libzmq has taken the message; losing the peer then drops it
         * silently. */
        assert(i == 0 || st != ST_UNAVAILABLE);
    }
    return st;
}

enum status
frames_send(void *socket, const struct frame *parts, size_t count)
{
    struct frames frames = {.count = 0};

    assert(count >= 1 && count <= FRAMES_MAX);
    enum status st = copy_parts(&frames, parts, count);

    st = st == ST_OK ? send_parts(socket, &frames) : st;
    frames_close(&frames);
    return st;
}

enum status
frames_send_packed(void *socket, struct frame head, const ProtobufCMessage *message, size_t length)
{
    struct frames frames = {.count = 0};
    void *bytes;
    enum status st = copy_parts(&frames, &head, 1);

    st = st == ST_OK ? add_part(&frames, length, &bytes) : st;
    if (st == ST_OK) {
        size_t packed = protobuf_c_message_pack(message, bytes);

        assert(packed == length);
        (void)packed;
        st = send_parts(socket, &frames);
    }
    frames_close(&frames);
    return st;
}

static enum status
set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0
               ? ST_OK
               : ERR(ST_SYSTEM, "zmq_setsockopt %d: %s", option, zmq_strerror(errno));
}

enum status
frames_configure(void *socket, int zmq_type, int hwm, int64_t bytes_max)
{
    TRY(set_int(socket, ZMQ_LINGER, 0));
    TRY(set_int(socket, ZMQ_SNDHWM, hwm));
    TRY(set_int(socket, ZMQ_RCVHWM, hwm));
    if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &bytes_max, sizeof(bytes_max)) != 0) {
        return ERR(ST_SYSTEM, "zmq_setsockopt ZMQ_MAXMSGSIZE: %s", zmq_strerror(errno));
    }
    if (zmq_type == ZMQ_ROUTER) {
        TRY(set_int(socket, ZMQ_ROUTER_MANDATORY, 1));
        TRY(set_int(socket, ZMQ_ROUTER_HANDOVER, 1));
    }
    return ST_OK;
}

enum status
frames_watch_connection(void *socket)
{
    TRY(set_int(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS));
    TRY(set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS));
    return set_int(socket, ZMQ_HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS);
}

enum status
frames_watch_clients(void *socket)
{
    TRY(set_int(socket, ZMQ_TCP_KEEPALIVE, 1));
    TRY(set_int(socket, ZMQ_TCP_KEEPALIVE_IDLE, HEARTBEAT_INTERVAL_MS / 1000));
    TRY(set_int(socket, ZMQ_TCP_KEEPALIVE_INTVL, HEARTBEAT_INTERVAL_MS / 1000));
    return set_int(socket, ZMQ_TCP_KEEPALIVE_CNT, HEARTBEAT_TIMEOUT_MS / HEARTBEAT_INTERVAL_MS);
}
