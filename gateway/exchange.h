/* SPDX-License-Identifier: Apache-2.0 */
/* exchange - one HTTP request and its answer, between the HTTP library's threads and the hub's.
 *
 * A handler runs once the request is there, and calls of it bring replies; both run with the lock
 * held and may use everything below.  The answer is whole (exchange_answer, exchange_refuse) or a
 * stream of events.  As long as there is none the connection sleeps; it is woken when there is
 * something to send, or when its client has gone: then all open calls are cancelled.
 *
 * It lives until the HTTP library is done with it and its last call has ended. */
#ifndef GATEWAY_EXCHANGE_H
#define GATEWAY_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/hub.h"
#include "gateway/refusal.h"
#include "gateway/text.h"

#define EXCHANGE_CALLS_MAX    128
#define EXCHANGE_ID_BYTES     64
#define EXCHANGE_TENANT_BYTES HUB_TENANT_BYTES
#define ROUTES_ALLOW_BYTES    64

struct MHD_Connection;
struct server;
struct route;
struct exchange;

/* Runs in the hub's thread with the lock held; `index` is what exchange_call was given. */
typedef void (*exchange_reply_fn)(struct exchange *exchange, unsigned index,
                                  const struct hub_reply *reply);

struct exchange_call {
    struct exchange *exchange;
    uint64_t id; /* the hub's; 0: ended */
    unsigned index;
    exchange_reply_fn on_reply;
};

enum exchange_phase {
    EXCHANGE_OPEN,     /* no answer yet */
    EXCHANGE_ANSWERED, /* whole, in `out` */
    EXCHANGE_STREAM,   /* `out` is what has not been sent yet */
};

struct exchange {
    pthread_mutex_t lock;
    atomic_uint references; /* not under the lock: it is taken before, with a connection's held */
    struct server *server;
    struct MHD_Connection *connection; /* NULL: the HTTP library is done */
    const struct route *route;
    char id[EXCHANGE_ID_BYTES];         /* x-request-id */
    char tenant[EXCHANGE_TENANT_BYTES]; /* "": none */
    char *argument;                     /* of the path, behind the route's prefix; owned */
    char allow[ROUTES_ALLOW_BYTES];     /* methods of a path that does not serve this one */
    uint64_t arrival_us;
    struct text body;
    size_t body_bytes, value_bytes; /* that server->body_bytes counts of it and its values */

    enum exchange_phase phase;
    unsigned status;
    const char *content_type;
    uint32_t retry_after_s;
    struct text out;
    size_t sent;         /* of it, of a stream; cut off now and then */
    uint64_t written_us; /* when `out` last grew */
    bool is_ended;       /* of a stream: nothing follows `out` */
    bool is_handled;     /* the handler has run */
    bool is_queued;      /* the HTTP library has the response */
    bool wants_stream;   /* may be answered by a stream, so pings may begin one */
    bool is_suspended;
    bool is_gone; /* nobody listens */

    struct exchange_call calls[EXCHANGE_CALLS_MAX];
    unsigned call_count;
    void *state; /* the handler's */
    void (*destroy_state)(void *state);
};

/* One reference; NULL without memory. */
struct exchange *exchange_new(struct server *server, struct MHD_Connection *connection);
void exchange_hold(struct exchange *exchange);
void exchange_release(struct exchange *exchange);

/* The body is read, or will not be. */
void exchange_drop_body(struct exchange *exchange);

/* The client is gone, or the gateway gives it up; takes the lock itself. */
void exchange_abandon(struct exchange *exchange);

/* ---- for handlers and their replies: the lock is held ---------------------------------------- */

/* Makes a call to kvasird.  On failure the exchange is refused. */
bool exchange_call(struct exchange *exchange, enum method_id method,
                   const ProtobufCMessage *request, unsigned index, exchange_reply_fn on_reply);
void exchange_cancel_calls(struct exchange *exchange);

/* Takes `body` over and leaves it empty. */
void exchange_answer(struct exchange *exchange, unsigned status, const char *content_type,
                     struct text *body);
void exchange_answer_json(struct exchange *exchange, struct text *body);

/* With a stream under way this is its last event. */
void exchange_refuse(struct exchange *exchange, const struct refusal *refusal);

/* The same, of a line. */
void exchange_refuse_as(struct exchange *exchange, unsigned status, const char *type,
                        const char *code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Whether a reply is an error; then it is refused with that. */
bool exchange_refuse_reply(struct exchange *exchange, const struct hub_reply *reply);

/* A stream begins with its first event.  What was put into exchange->out by the handler is sent by
 * exchange_flush. */
void exchange_begin_stream(struct exchange *exchange);
void exchange_flush(struct exchange *exchange);
void exchange_end_stream(struct exchange *exchange);

#endif
