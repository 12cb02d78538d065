/* SPDX-License-Identifier: Apache-2.0 */
/* router - the daemon's ZeroMQ sockets and its one poll; the only zmq here, but for kv_publisher.
 *
 * Three ROUTERs of the runtime directory (clients, operators, workers) and, when it is asked for,
 * one for a network, where CURVE says who speaks (ZeroMQ RFC 27: libzmq asks us over a socket of
 * its own).  A monitor on each but the workers', and the descriptors that the caller waits for as
 * well.  It moves messages and notices who is gone; it
 * understands none.
 *
 * A dead client is noticed at once, not when its next chunk fails: the monitor reports the
 * descriptor of a lost connection, and each message tells the descriptor it came over.  Descriptors
 * are reused, but an event about the old connection is queued before the first message of the new
 * one can be, and we read all events before we hand a message on.  So an event never hits a
 * newcomer. */
#ifndef DAEMON_ROUTER_H
#define DAEMON_ROUTER_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/curve.h"

struct frames;
struct router;

#define ROUTER_CLIENT_HWM   4096 /* messages that wait for one client; then it counts as lost */
#define ROUTER_WORKER_HWM   8192
#define ROUTER_BURST_MAX    64 /* messages of one socket before the others have their turn */
#define ROUTER_IDENTITY_MAX 255
#define ROUTER_FDS_MAX      256 /* other descriptors in one poll */

enum router_socket {
    ROUTER_CLIENT,
    ROUTER_ADMIN,
    ROUTER_REMOTE, /* over a network; closed unless it is configured */
    ROUTER_WORKER,
    ROUTER_SOCKETS,
};

/* Who sent a message, and where an answer goes. */
struct address {
    enum router_socket socket;
    uint8_t identity[ROUTER_IDENTITY_MAX];
    uint8_t identity_length;
    int connection; /* descriptor of its connection; -1 if unknown */
};

struct message {
    struct address from;
    const char *peer;   /* of ROUTER_REMOTE: the name that on_knock gave; else NULL */
    const void *header; /* of clients; NULL for workers */
    size_t header_length;
    const void *payload;
    size_t payload_length;
    struct frames *frames; /* as they came; who keeps the payload may take the last (frames_take) */
};

struct router_handlers {
    void *arg;
    void (*on_message)(void *arg, const struct message *message);
    /* The connection is gone, with all who spoke over it. */
    void (*on_lost)(void *arg, enum router_socket socket, int connection);
    /* Somebody comes with this public key: its name, borrowed for the time of this call, or NULL to
     * refuse.  Only with a remote endpoint. */
    const char *(*on_knock)(void *arg, const uint8_t key[CURVE_KEY_BYTES]);
};

struct router_config {
    const char *dir;           /* of the local sockets */
    const char *remote_url;    /* ZeroMQ endpoint to listen on; NULL: none */
    const char *remote_secret; /* Z85, of the server's key pair */
};

/* Binds the sockets.  ST_SYSTEM names the socket. */
enum status router_new(const struct router_config *config, const struct router_handlers *handlers,
                       struct router **router_out);

/* Closes everything and removes the sockets' files. */
void router_destroy(struct router **router);

/* libzmq's context, for sockets of other threads; they close before router_destroy.  One a process:
 * the end of one context may hurt the threads of another (libzmq 4.3.4). */
void *router_context(const struct router *router);

/* Waits for at most `timeout_ms` and calls the handlers.  Fills `revents` of the caller's own
 * descriptors, at most ROUTER_FDS_MAX. */
enum status router_poll(struct router *router, struct pollfd *fds, size_t fd_count, int timeout_ms);

/* To a client: header and payload; to a worker: payload only (header NULL).
 * ST_UNAVAILABLE: the receiver is gone or does not read. */
enum status router_send(struct router *router, const struct address *to, const void *header,
                        size_t header_length, const void *payload, size_t payload_length);

#endif
