/* SPDX-License-Identifier: Apache-2.0 */
/* rpc - calls to kvasird: one connection, one call at a time, protobuf in and out.
 *
 * The engine below libkvasir and the command line tools.  A connection belongs to one thread;
 * rpc_cancel alone may come from anywhere, a signal handler included.
 *
 * Loss is found by the socket's monitor: when the daemon closes, dies, or misses ZMTP heartbeats
 * for 6 s, the running call ends with UNAVAILABLE; the next call connects anew.  A daemon that went
 * between two calls is noticed before the second is sent, so a restart in between is no failure.
 * A connection that cannot be made is UNAVAILABLE at once, not after a time-out. */
#ifndef CLIENT_RPC_H
#define CLIENT_RPC_H

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/methods.h"
#include "proto/wire.h"

#define RPC_CONNECT_TIMEOUT_MS 5000 /* until the handshake is through */
#define RPC_UNARY_TIMEOUT_MS   30000
#define RPC_DEADLINE_GRACE_MS  1000 /* after its deadline the daemon may still say so itself */
#define RPC_CANCEL_GRACE_MS    3000 /* after Cancel the call may still end properly */

struct rpc;

/* Prepares a connection to a ZeroMQ URL; connects with the first call.  The URL is copied. */
enum status rpc_open(const char *url, struct rpc **rpc_out);
void rpc_close(struct rpc **rpc);

/* For a kvasird over a network, before the first call: see dealer_use_keys. */
enum status rpc_use_keys(struct rpc *rpc, const char *server_key, const char *secret_file);

/* Takes one reply of a call, borrowed for the time of this function.  False cancels the call. */
typedef bool (*rpc_reply_fn)(void *opaque, const ProtobufCMessage *reply);

struct rpc_call {
    enum method_id method;
    const ProtobufCMessage *request; /* NULL: an empty message */
    uint32_t timeout_ms;             /* 0: no limit of ours; the daemon has its default */
    rpc_reply_fn on_reply;           /* may be NULL */
    void *opaque;
    uint64_t busy_us;      /* how long to wait for a reply without sleeping, from the one before */
    const void *retry_key; /* RequestHeader.retry_key; NULL: none */
    size_t retry_key_bytes;
};

/* Makes a call and waits for its end.  *reply_out (may be NULL) is the last reply, borrowed until
 * the next call, written only for RPC_OK.  After a cancel the daemon's own end is awaited for
 * RPC_CANCEL_GRACE_MS; replies still reach on_reply, but after it has returned false only the last
 * one does.  What failed is in rpc_message. */
enum rpc_code rpc_call(struct rpc *rpc, const struct rpc_call *call,
                       const ProtobufCMessage **reply_out);

/* One line about the last call's failure, and the daemon's advice when to try again (0: none). */
const char *rpc_message(const struct rpc *rpc);
uint32_t rpc_retry_after_ms(const struct rpc *rpc);

/* Whether the last call was sent and then lost its connection: a retry may find what it began. */
bool rpc_was_lost(const struct rpc *rpc);

/* Waits between two attempts; false: it was cancelled meanwhile. */
bool rpc_pause(struct rpc *rpc, uint32_t ms);

/* Cancels the running call, or the next one if none runs.  Any thread; async-signal-safe. */
void rpc_cancel(struct rpc *rpc);

/* Takes back a cancel that no call has met. */
void rpc_uncancel(struct rpc *rpc);

#endif
