/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include <microhttpd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "gateway/server.h"

/* What a client that does not read may leave lying here before it is given up. */
#define STREAM_BYTES_MAX (1u << 20)

struct exchange *
exchange_new(struct server *server, struct MHD_Connection *connection)
{
    struct exchange *exchange = mem_zalloc(1, sizeof(*exchange));

    if (exchange == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&exchange->lock, NULL);
    atomic_init(&exchange->references, 1);
    exchange->server = server;
    exchange->connection = connection;
    exchange->arrival_us = clock_now_us();
    exchange->written_us = exchange->arrival_us;
    return exchange;
}

void
exchange_drop_body(struct exchange *exchange)
{
    text_deinit(&exchange->body);
    (void)atomic_fetch_sub(&exchange->server->body_bytes, exchange->body_bytes);
    exchange->body_bytes = 0;
}

static void
destroy(struct exchange *exchange)
{
    if (exchange->destroy_state != NULL) {
        exchange->destroy_state(exchange->state);
    }
    exchange_drop_body(exchange);
    text_deinit(&exchange->out);
    mem_free(exchange->argument);
    (void)pthread_mutex_destroy(&exchange->lock);
    mem_free(exchange);
}

void
exchange_hold(struct exchange *exchange)
{
    (void)atomic_fetch_add(&exchange->references, 1);
}

void
exchange_release(struct exchange *exchange)
{
    if (atomic_fetch_sub(&exchange->references, 1) == 1) {
        destroy(exchange);
    }
}

/* The HTTP library looks again at the connection. */
static void
wake(struct exchange *exchange)
{
    if (exchange->is_suspended) {
        exchange->is_suspended = false;
        MHD_resume_connection(exchange->connection);
    }
}

void
exchange_cancel_calls(struct exchange *exchange)
{
    for (unsigned i = 0; i < exchange->call_count; i++) {
        if (exchange->calls[i].id != 0) {
            hub_cancel(exchange->server->hub, exchange->calls[i].id);
        }
    }
}

static void
give_up(struct exchange *exchange)
{
    if (!exchange->is_gone) {
        exchange->is_gone = true;
        exchange_cancel_calls(exchange);
        wake(exchange);
    }
}

void
exchange_abandon(struct exchange *exchange)
{
    (void)pthread_mutex_lock(&exchange->lock);
    give_up(exchange);
    (void)pthread_mutex_unlock(&exchange->lock);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void
on_reply(void *opaque, const struct hub_reply *reply)
{
    struct exchange_call *call = opaque;
    struct exchange *exchange = call->exchange;

    (void)pthread_mutex_lock(&exchange->lock);
    if (reply->is_last) {
        call->id = 0;
    }
    if (!exchange->is_gone) {
        call->on_reply(exchange, call->index, reply);
    }
    (void)pthread_mutex_unlock(&exchange->lock);
    if (reply->is_last) {
        exchange_release(exchange);
    }
}

static enum status
start_call(struct exchange *exchange, enum method_id method, const ProtobufCMessage *request,
           unsigned index, exchange_reply_fn reply_fn)
{
    if (exchange->call_count >= EXCHANGE_CALLS_MAX) {
        return ERR(ST_INVALID, "more than %d answers at once", EXCHANGE_CALLS_MAX);
    }
    struct exchange_call *call = &exchange->calls[exchange->call_count];
    struct hub_call to_hub = {
        .method = method,
        .request = request,
        .tenant = exchange->tenant,
        .timeout_ms = (uint32_t)exchange->server->options.request_timeout,
        .on_reply = on_reply,
        .opaque = call,
    };

    *call = (struct exchange_call){.exchange = exchange, .index = index, .on_reply = reply_fn};
    TRY(hub_call(exchange->server->hub, &to_hub, &call->id));
    exchange->call_count++;
    exchange_hold(exchange);
    return ST_OK;
}

bool
exchange_call(struct exchange *exchange, enum method_id method, const ProtobufCMessage *request,
              unsigned index, exchange_reply_fn reply_fn)
{
    enum status st = start_call(exchange, method, request, index, reply_fn);
    struct refusal refusal;

    if (st != ST_OK) {
        struct hub_reply reply = {.code = rpc_code_of(st), .detail = status_detail()};

        refusal_of_reply(&refusal, &reply);
        exchange_refuse(exchange, &refusal);
        exchange_cancel_calls(exchange);
    }
    return st == ST_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

void
exchange_answer(struct exchange *exchange, unsigned status, const char *content_type,
                struct text *body)
{
    if (exchange->phase == EXCHANGE_OPEN) {
        exchange->phase = EXCHANGE_ANSWERED;
        exchange->status = body->has_failed ? 500 : status;
        exchange->content_type = content_type;
        exchange->out = *body;
        exchange->is_ended = true;
        *body = (struct text){0};
        wake(exchange);
    }
    text_deinit(body);
}

void
exchange_answer_json(struct exchange *exchange, struct text *body)
{
    text_add(body, "\n");
    exchange_answer(exchange, 200, "application/json", body);
}

void
exchange_refuse(struct exchange *exchange, const struct refusal *refusal)
{
    struct text body = {0};

    if (exchange->phase == EXCHANGE_STREAM) {
        if (!exchange->is_ended) {
            text_add(&exchange->out, "data: ");
            refusal_render(refusal, &exchange->out);
            text_add(&exchange->out, "\n\n");
            exchange_end_stream(exchange);
        }
        return;
    }
    refusal_render(refusal, &body);
    text_add(&body, "\n");
    if (exchange->phase == EXCHANGE_OPEN) {
        exchange->retry_after_s = refusal->retry_after_s;
    }
    exchange_answer(exchange, refusal->status, "application/json", &body);
}

void
exchange_refuse_as(struct exchange *exchange, unsigned status, const char *type, const char *code,
                   const char *format, ...)
{
    char message[REFUSAL_MESSAGE_BYTES];
    struct refusal refusal;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    refusal_set_kind(&refusal, status, type, code, message);
    exchange_refuse(exchange, &refusal);
}

bool
exchange_refuse_reply(struct exchange *exchange, const struct hub_reply *reply)
{
    struct refusal refusal;

    if (reply->code != RPC_OK) {
        refusal_of_reply(&refusal, reply);
        exchange_refuse(exchange, &refusal);
    }
    return reply->code != RPC_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

void
exchange_begin_stream(struct exchange *exchange)
{
    if (exchange->phase == EXCHANGE_OPEN) {
        exchange->phase = EXCHANGE_STREAM;
        exchange->status = 200;
        exchange->content_type = "text/event-stream; charset=utf-8";
    }
}

/* The HTTP library waits until the client reads; this it sees, and closes. */
static void
cut(struct exchange *exchange)
{
    const union MHD_ConnectionInfo *info =
        exchange->connection == NULL
            ? NULL
            : MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (info != NULL) {
        (void)shutdown(info->connect_fd, SHUT_RDWR);
    }
}

void
exchange_flush(struct exchange *exchange)
{
    size_t unread = exchange->out.length - exchange->sent;

    exchange->written_us = clock_now_us();
    if (exchange->out.has_failed || unread > STREAM_BYTES_MAX) {
        log_warn("stream_dropped", "request=%s unread_bytes=%zu", exchange->id, unread);
        cut(exchange);
        give_up(exchange);
        return;
    }
    wake(exchange);
}

void
exchange_end_stream(struct exchange *exchange)
{
    exchange->is_ended = true;
    exchange_flush(exchange);
}
