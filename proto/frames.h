/* SPDX-License-Identifier: Apache-2.0 */
/* frames - multipart ZeroMQ messages with caps; the one way this project touches a zmq socket.
 *
 * A ROUTER's message is [identity][frame...], a DEALER's is [frame...]; both are at most FRAMES_MAX
 * frames.  Nothing here blocks: sockets are used with ZMQ_DONTWAIT behind a poll. */
#ifndef PROTO_FRAMES_H
#define PROTO_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>
#include <zmq.h>

#include "common/status.h"

#define FRAMES_MAX 4

struct frames {
    zmq_msg_t parts[FRAMES_MAX];
    size_t count;
};

/* Receives one whole multipart message.  ST_UNAVAILABLE when none waits (not an error: no detail);
 * ST_INVALID for more than FRAMES_MAX parts (the rest is drained and dropped); ST_SYSTEM.
 * On ST_OK the caller releases with frames_close. */
enum status frames_recv(void *socket, struct frames *frames_out);
void frames_close(struct frames *frames);

/* Takes one frame out of a message, to be kept without a copy: what is left there is empty.  The
 * bytes of a short one may move. */
void frames_take(struct frames *frames, size_t index, struct frames *taken_out);

const void *frames_bytes(struct frames *frames, size_t index);
size_t frames_length(struct frames *frames, size_t index);

struct frame {
    const void *bytes;
    size_t length;
};

/* Sends all parts or nothing.  ST_UNAVAILABLE: the queue is full, or a ROUTER's peer is gone
 * (detail says which).  ST_SYSTEM. */
enum status frames_send(void *socket, const struct frame *parts, size_t count);

/* Two frames, the second a message of `length` packed bytes, which is packed where it leaves
 * from. */
enum status frames_send_packed(void *socket, struct frame head, const ProtobufCMessage *message,
                               size_t length);

/* Common options of all sockets of ours: linger 0, small high-water marks, message cap; ROUTER:
 * mandatory, handover. */
enum status frames_configure(void *socket, int zmq_type, int hwm, int64_t bytes_max);

/* A client's side: has libzmq, at both ends, drop a connection whose other side is silent for 6 s.
 * Not for workers, who have heartbeats of their own, as long as --worker-liveness says. */
enum status frames_watch_connection(void *socket);

/* kvasird's side.  It asks for no heartbeats: libzmq 4.3.4 aborts the process when its own falls
 * due on a connection that was closed while more had come than the socket takes.  A client that is
 * silent is dropped since its heartbeats name their time to live; the kernel tells of a host that
 * is gone. */
enum status frames_watch_clients(void *socket);

#endif
