/* SPDX-License-Identifier: Apache-2.0 */
/* dealer - one connection to kvasird: the DEALER, its monitor, and requests put on the wire.
 *
 * What rpc (one call at a time) and the gateway's hub (many) have in common.  It belongs to one
 * thread.  After a loss the sockets are thrown away, so no reply of an earlier life can reach a
 * later call. */
#ifndef CLIENT_DEALER_H
#define CLIENT_DEALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/curve.h"
#include "proto/wire.h"

struct dealer {
    char *url;
    char server_key[CURVE_KEY_TEXT]; /* "": without CURVE, on a socket of this host */
    char secret_key[CURVE_KEY_TEXT];
    void *context; /* shared by all connections of this process */
    void *socket;  /* NULL: not open */
    void *monitor;
    int connection; /* the socket's file descriptor: libzmq's, only looked at; -1: not connected */
    bool is_accepted; /* the handshake has succeeded */
    struct wire_buffer header;
};

/* Prepares a zeroed struct for a ZeroMQ URL, which is copied; opens nothing yet. */
enum status dealer_init(struct dealer *dealer, const char *url);
void dealer_deinit(struct dealer *dealer);

/* For a kvasird over a network, before dealer_open: its public key (or a file of it) and the file
 * of our secret.  Errors of curve_read_*. */
enum status dealer_use_keys(struct dealer *dealer, const char *server_key, const char *secret_file);

/* Makes the sockets and begins to connect; what is sent waits for the connection. */
enum status dealer_open(struct dealer *dealer);

/* Closes them; what waits in them is dropped.  Closed already is fine. */
void dealer_close(struct dealer *dealer);

/* One event of the monitor, 0 when none waits.  The connection is there with
 * ZMQ_EVENT_HANDSHAKE_SUCCEEDED; any other event but ZMQ_EVENT_CONNECTED says that it is lost, or
 * that nobody listens. */
int dealer_next_event(struct dealer *dealer);

/* The failure to tell of when nobody was reached: kvasird is not there, we may not go to its
 * socket, or it wants keys.  ST_UNAVAILABLE, always. */
enum status dealer_unreachable(const struct dealer *dealer);

/* Whether the other side has closed.  The kernel knows at once; the monitor learns it only when
 * libzmq's thread has run, and until then a request would be sent to nobody.  Should the number
 * have become another file's by now, then the event is there, so look for it afterwards. */
bool dealer_has_hung_up(const struct dealer *dealer);

/* Sends a packed request.  ST_INVALID: larger than is taken; ST_UNAVAILABLE: too much waits. */
enum status dealer_send(struct dealer *dealer, const char *method, uint64_t id, uint32_t timeout_ms,
                        const void *payload, size_t length);

/* What a header says beside the method; zeroed says nothing. */
struct dealer_header {
    const void *retry_key; /* of a call that may be sent again after a loss */
    size_t retry_key_length;
    const char *tenant; /* for whom, of a client that stands between; NULL: nobody's */
};

/* The same with more to say. */
enum status dealer_send_with(struct dealer *dealer, const char *method, uint64_t id,
                             uint32_t timeout_ms, const struct dealer_header *more,
                             const void *payload, size_t length);

/* The same of a message that is not packed yet: its bytes are written once, where they leave from.
 */
enum status dealer_send_message(struct dealer *dealer, const char *method, uint64_t id,
                                uint32_t timeout_ms, const struct dealer_header *more,
                                const ProtobufCMessage *message);

#endif
