/* SPDX-License-Identifier: Apache-2.0 */
/* server - the HTTP side: connections, routes, keys; and what all of the gateway's parts share.
 *
 * libmicrohttpd's threads read requests and write answers; handlers are called when a request is
 * whole, and never wait. */
#ifndef GATEWAY_SERVER_H
#define GATEWAY_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/status.h"
#include "gateway/exchange.h"
#include "gateway/hub.h"
#include "gateway/keys.h"
#include "gateway/metrics.h"
#include "gateway/options.h"
#include "gateway/request.h"

#define SERVER_MODEL_BYTES 256

struct MHD_Daemon;

struct server {
    struct options options;
    struct hub *hub;
    struct MHD_Daemon *daemon;
    struct metrics metrics;
    struct keys *keys; /* NULL: none are asked for */
    pthread_mutex_t lock;
    char model[SERVER_MODEL_BYTES]; /* as the daemon names it; "": not known yet */
    atomic_uint exchanges_open;
    atomic_size_t body_bytes; /* of all exchanges */
    atomic_bool is_draining;
    atomic_bool must_stop;           /* nothing may sleep any more */
    char *certificate, *private_key; /* PEM; NULL: no TLS */
};

/* For handlers.  The body, read; false: refused.  request_deinit in both cases. */
bool server_read_request(struct exchange *exchange, enum request_kind kind,
                         struct request *request);

/* Whether the model that a request names (NULL: none) is ours; the name to answer with.  False:
 * refused. */
bool server_check_model(struct exchange *exchange, const char *name,
                        char model_out[SERVER_MODEL_BYTES]);

/* The first of its names; "" if it is not known yet. */
void server_model_name(struct server *server, char model_out[SERVER_MODEL_BYTES]);

/* Whether the daemon has said what it serves: soon after the first connection. */
bool server_knows_model(struct server *server);

/* Opens the port.  ST_SYSTEM names it. */
enum status server_start(struct server *server);

/* The port that was opened (for --port 0). */
unsigned server_port(const struct server *server);

/* Takes no further connections; what is open goes on.  /health says 503. */
void server_drain(struct server *server);

/* Gives up what is open, and closes everything. */
void server_stop(struct server *server);

#endif
