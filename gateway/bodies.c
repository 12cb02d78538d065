/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/bodies.h"

#include <inttypes.h>

#include "gateway/server.h"
#include "model/json.h"

void
bodies_refuse(struct exchange *exchange)
{
    exchange_refuse_as(exchange, 413, "invalid_request_error", "request_too_large",
                       "the body is larger than the %" PRIu64 " bytes of --max-body",
                       exchange->server->options.max_body);
}

/* A client may be slow with a body, so thousands of them may lie here at once. */
static bool
count(struct exchange *exchange, size_t *counted, size_t bytes)
{
    struct server *server = exchange->server;
    size_t all = atomic_fetch_add(&server->body_bytes, bytes) + bytes;

    *counted += bytes;
    if (all <= server->options.max_bodies) {
        return true;
    }
    exchange_refuse_as(exchange, 503, "unavailable_error", "overloaded",
                       "%zu bytes of requests are being read: the limit is %" PRIu64, all,
                       server->options.max_bodies);
    exchange->retry_after_s = 1;
    return false;
}

void
bodies_take(struct exchange *exchange, const char *bytes, size_t length)
{
    if (exchange->is_queued || exchange->phase != EXCHANGE_OPEN) {
        return; /* refused already; the rest is read and dropped */
    }
    if (exchange->body.length + length > exchange->server->options.max_body) {
        exchange_drop_body(exchange);
        bodies_refuse(exchange);
    } else if (!count(exchange, &exchange->body_bytes, length)) {
        exchange_drop_body(exchange);
    } else {
        text_append(&exchange->body, bytes, length);
    }
}

bool
bodies_open(struct exchange *exchange)
{
    uint64_t weight =
        exchange->body.bytes == NULL ? 0 : json_weight(exchange->body.bytes, exchange->body.length);
    uint64_t max = exchange->server->options.max_bodies;

    if (weight > max) { /* never, however quiet it is */
        exchange_refuse_as(exchange, 413, "invalid_request_error", "request_too_large",
                           "the values of the body would take up to %" PRIu64
                           " bytes: the limit is the %" PRIu64 " of --max-bodies",
                           weight, max);
        return false;
    }
    return count(exchange, &exchange->value_bytes, (size_t)weight);
}

void
bodies_close(struct exchange *exchange)
{
    (void)atomic_fetch_sub(&exchange->server->body_bytes, exchange->value_bytes);
    exchange->value_bytes = 0;
}
