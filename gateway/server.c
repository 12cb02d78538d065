/* SPDX-License-Identifier: Apache-2.0 */
/* Connections and requests as libmicrohttpd shows them.
 *
 * Three things it leaves to us.  A suspended connection is not looked at: the hub watches its
 * socket.  Its time-out counts silence, so a client that sends a byte now and then could hold a
 * connection for ever: each has a time by which its request must be whole.  And a response whose
 * data comes later must be suspended by its reader: reader_next. */
#include "gateway/server.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <microhttpd.h>
#include <openssl/rand.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "gateway/bodies.h"
#include "gateway/routes.h"

#define STREAM_BLOCK_BYTES 4096
#define LISTEN_BACKLOG     1024
#define HALF_CLOSED_MS     1000 /* to take in what a client sent before it closed its half */

/* One connection of a client; its requests come one after the other. */
struct connection {
    struct hub_watch watch;
    struct server *server;
    pthread_mutex_t lock;
    struct exchange *exchange; /* its request under way, or NULL */
    bool has_hung_up;
    uint64_t read_by_us; /* 0: nothing is being read */
};

/* ---- connections ----------------------------------------------------------------------------- */

static struct exchange *
hold_exchange(struct connection *connection)
{
    (void)pthread_mutex_lock(&connection->lock);
    struct exchange *exchange = connection->exchange;

    if (exchange != NULL) {
        exchange_hold(exchange);
    }
    (void)pthread_mutex_unlock(&connection->lock);
    return exchange;
}

static void
on_hangup(struct hub_watch *watch)
{
    struct connection *connection = LIST_ENTRY(watch, struct connection, watch);
    struct exchange *exchange;

    (void)pthread_mutex_lock(&connection->lock);
    connection->has_hung_up = true;
    if (connection->read_by_us != 0) { /* what is not here by now will not come */
        connection->read_by_us = clock_now_us() + HALF_CLOSED_MS * UINT64_C(1000);
    }
    (void)pthread_mutex_unlock(&connection->lock);
    exchange = hold_exchange(connection);
    if (exchange != NULL) {
        exchange_abandon(exchange);
        exchange_release(exchange);
    }
}

/* A comment in a stream on which nothing happens; a stream that waits for its first token begins
 * with one. */
static void
ping(struct exchange *exchange, uint64_t now_us)
{
    uint64_t interval_us = exchange->server->options.ping_interval * 1000;

    (void)pthread_mutex_lock(&exchange->lock);
    if (now_us >= exchange->written_us + interval_us && !exchange->is_ended && !exchange->is_gone
        && (exchange->phase == EXCHANGE_STREAM
            || (exchange->phase == EXCHANGE_OPEN && exchange->wants_stream))) {
        exchange_begin_stream(exchange);
        text_add(&exchange->out, ": ping\n\n");
        exchange_flush(exchange);
    }
    (void)pthread_mutex_unlock(&exchange->lock);
}

static void
on_tick(struct hub_watch *watch, uint64_t now_us)
{
    struct connection *connection = LIST_ENTRY(watch, struct connection, watch);
    struct exchange *exchange = hold_exchange(connection);

    (void)pthread_mutex_lock(&connection->lock);
    bool is_late = connection->read_by_us != 0 && now_us >= connection->read_by_us;

    connection->read_by_us = is_late ? 0 : connection->read_by_us;
    (void)pthread_mutex_unlock(&connection->lock);
    if (is_late) { /* the HTTP library sees the end, and closes */
        log_debug("client_slow", "fd=%d", watch->fd);
        (void)shutdown(watch->fd, SHUT_RDWR);
    }
    if (exchange != NULL) {
        ping(exchange, now_us);
        exchange_release(exchange);
    }
}

static void
set_read_by(struct connection *connection, uint64_t timeout_ms)
{
    (void)pthread_mutex_lock(&connection->lock);
    if (connection->has_hung_up && timeout_ms > HALF_CLOSED_MS) {
        timeout_ms = HALF_CLOSED_MS; /* it was answered after that; nothing more will come */
    }
    connection->read_by_us = timeout_ms == 0 ? 0 : clock_now_us() + timeout_ms * 1000;
    (void)pthread_mutex_unlock(&connection->lock);
}

static void
open_connection(struct server *server, struct MHD_Connection *mhd, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *connection = mem_zalloc(1, sizeof(*connection));

    if (connection == NULL || info == NULL) {
        mem_free(connection);
        return; /* its requests are refused */
    }
    connection->watch.fd = info->connect_fd;
    connection->watch.on_hangup = on_hangup;
    connection->watch.on_tick = on_tick;
    list_init(&connection->watch.link);
    connection->server = server;
    (void)pthread_mutex_init(&connection->lock, NULL);
    set_read_by(connection, server->options.read_timeout);
    if (hub_watch(server->hub, &connection->watch) != ST_OK) {
        log_error("watch_failed", "detail=\"%s\"", status_detail());
        (void)pthread_mutex_destroy(&connection->lock);
        mem_free(connection);
        return;
    }
    metrics_add(&server->metrics, &server->metrics.connections, 1);
    metrics_add(&server->metrics, &server->metrics.connections_open, 1);
    *socket_context = connection;
}

static void
on_connection(void *opaque, struct MHD_Connection *mhd, void **socket_context,
              enum MHD_ConnectionNotificationCode code)
{
    struct server *server = opaque;
    struct connection *connection = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        open_connection(server, mhd, socket_context);
    } else if (connection != NULL) {
        hub_unwatch(server->hub, &connection->watch);
        metrics_subtract(&server->metrics, &server->metrics.connections_open, 1);
        (void)pthread_mutex_destroy(&connection->lock);
        mem_free(connection);
        *socket_context = NULL;
    }
}

static struct connection *
connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info == NULL ? NULL : info->socket_context;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* What is sent is dropped when it is the larger part: each byte moves a few times at most. */
static size_t
take_out(struct exchange *exchange, char *buffer, size_t bytes_max)
{
    size_t left = exchange->out.length - exchange->sent;
    size_t length = left < bytes_max ? left : bytes_max;

    memcpy(buffer, exchange->out.bytes + exchange->sent, length);
    exchange->sent += length;
    if (exchange->sent > exchange->out.length / 2) {
        text_drop(&exchange->out, exchange->sent);
        exchange->sent = 0;
    }
    return length;
}

/* Gives the HTTP library the next piece of a stream; sleeps when there is none. */
static ssize_t
reader_next(void *opaque, uint64_t position, char *buffer, size_t bytes_max)
{
    struct exchange *exchange = opaque;
    ssize_t result = 0;

    (void)position;
    (void)pthread_mutex_lock(&exchange->lock);
    if (exchange->is_gone || atomic_load(&exchange->server->must_stop)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (exchange->out.length > exchange->sent) {
        result = (ssize_t)take_out(exchange, buffer, bytes_max);
    } else if (exchange->is_ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        exchange->is_suspended = true;
        MHD_suspend_connection(exchange->connection);
    }
    (void)pthread_mutex_unlock(&exchange->lock);
    return result;
}

static void
reader_free(void *opaque)
{
    exchange_release(opaque);
}

static struct MHD_Response *
make_response(struct exchange *exchange)
{
    struct MHD_Response *response;

    if (exchange->phase == EXCHANGE_STREAM) {
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES,
                                                     reader_next, exchange, reader_free);
        if (response != NULL) {
            exchange_hold(exchange);
            (void)MHD_add_response_header(response, "Cache-Control", "no-cache");
            (void)MHD_add_response_header(response, "X-Accel-Buffering", "no");
        }
        return response;
    }
    return exchange->out.length == 0
               ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
               : MHD_create_response_from_buffer(exchange->out.length, exchange->out.bytes,
                                                 MHD_RESPMEM_MUST_COPY);
}

/* With the lock held.  MHD_NO: the connection is closed. */
static enum MHD_Result
queue_answer(struct exchange *exchange)
{
    struct MHD_Response *response = make_response(exchange);
    enum MHD_Result result;
    char seconds[16];

    if (response == NULL) {
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", exchange->content_type);
    (void)MHD_add_response_header(response, "x-request-id", exchange->id);
    if (exchange->retry_after_s > 0) {
        (void)snprintf(seconds, sizeof(seconds), "%u", exchange->retry_after_s);
        (void)MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (exchange->status == 401) {
        (void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    }
    if (exchange->status == 405) {
        (void)MHD_add_response_header(response, "Allow", exchange->allow);
    }
    exchange->is_queued = true;
    result = MHD_queue_response(exchange->connection, exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The client's own id if it is short and plain, so that it is found in both logs; else a new one.
 */
static void
name_exchange(struct exchange *exchange)
{
    const char *given =
        MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "x-request-id");
    size_t length = given == NULL ? 0 : strlen(given);
    uint8_t random[12];
    bool is_plain = length > 0 && length < sizeof(exchange->id);

    for (size_t i = 0; is_plain && i < length; i++) {
        is_plain = isalnum((unsigned char)given[i]) || strchr("-_.:", given[i]) != NULL;
    }
    if (is_plain) {
        memcpy(exchange->id, given, length + 1);
        return;
    }
    if (RAND_bytes(random, sizeof(random)) != 1) {
        memset(random, 0, sizeof(random)); /* an id, not a secret */
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void)snprintf(exchange->id + 2 * i, 3, "%02x", random[i]);
    }
}

static bool
is_authorised(struct exchange *exchange)
{
    struct server *server = exchange->server;
    const char *header = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_AUTHORIZATION);
    bool is_ok = true;

    if (header != NULL && strncasecmp(header, "Bearer ", 7) == 0) {
        header += 7;
        header += strspn(header, " ");
    }
    (void)pthread_mutex_lock(&server->lock);
    if (server->keys != NULL) {
        is_ok = keys_find(server->keys, header, exchange->tenant);
    }
    (void)pthread_mutex_unlock(&server->lock);
    if (!is_ok) {
        metrics_add(&server->metrics, &server->metrics.auth_failures, 1);
        exchange_refuse_as(exchange, 401, "authentication_error", "invalid_api_key",
                           header == NULL ? "no API key: send it as Authorization: Bearer KEY"
                                          : "the API key is not known");
    }
    return is_ok;
}

bool
server_read_request(struct exchange *exchange, enum request_kind kind, struct request *request)
{
    struct server *server = exchange->server;
    struct request_limits limits = {
        .choices_max = (uint32_t)server->options.max_choices,
        .temperature = (float)server->options.default_temperature,
    };
    struct refusal refusal;

    *request = (struct request){0};
    if (!bodies_open(exchange)) {
        exchange_drop_body(exchange);
        return false;
    }
    bool is_ok =
        request_read(request, kind, exchange->body.bytes, exchange->body.length, &limits, &refusal);

    exchange_drop_body(exchange); /* the parser has copied what it needs */
    metrics_add(&server->metrics, &server->metrics.unknown_fields, request->unknown_fields);
    if (!is_ok) {
        exchange_refuse(exchange, &refusal);
    }
    return is_ok;
}

/* Whether a name is among those of a comma-separated list. */
static bool
is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    while (list != NULL) {
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || list[length] == '\0')) {
            return true;
        }
        list = strchr(list, ',');
        list = list == NULL ? NULL : list + 1;
    }
    return false;
}

bool
server_knows_model(struct server *server)
{
    (void)pthread_mutex_lock(&server->lock);
    bool is_known = server->model[0] != '\0';

    (void)pthread_mutex_unlock(&server->lock);
    return is_known;
}

void
server_model_name(struct server *server, char model_out[SERVER_MODEL_BYTES])
{
    const char *names = server->options.served_model_name;

    (void)pthread_mutex_lock(&server->lock);
    names = names == NULL ? server->model : names;
    (void)snprintf(model_out, SERVER_MODEL_BYTES, "%.*s", (int)strcspn(names, ","), names);
    (void)pthread_mutex_unlock(&server->lock);
}

/* As long as the daemon has not said what it serves, any name will do. */
bool
server_check_model(struct exchange *exchange, const char *name, char model_out[SERVER_MODEL_BYTES])
{
    struct server *server = exchange->server;
    char own[SERVER_MODEL_BYTES];
    struct refusal refusal;
    const char *names = server->options.served_model_name;

    (void)pthread_mutex_lock(&server->lock);
    memcpy(own, server->model, sizeof(own));
    (void)pthread_mutex_unlock(&server->lock);
    names = names == NULL ? own : names;
    if (name != NULL && names[0] != '\0' && !is_listed(names, name)) {
        refusal_set_kind(&refusal, 404, "invalid_request_error", "model_not_found", "");
        (void)snprintf(refusal.message, sizeof(refusal.message),
                       "the model %.128s does not exist here; there is %.256s", name, names);
        (void)snprintf(refusal.param, sizeof(refusal.param), "model");
        exchange_refuse(exchange, &refusal);
        return false;
    }
    (void)snprintf(model_out, SERVER_MODEL_BYTES, "%.*s",
                   name != NULL ? SERVER_MODEL_BYTES : (int)strcspn(names, ","),
                   name != NULL ? name : names);
    return true;
}

/* Refuses what need not be read to its end. */
static void
begin(struct exchange *exchange, const char *url, const char *method)
{
    struct server *server = exchange->server;
    const char *length = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND,
                                                     MHD_HTTP_HEADER_CONTENT_LENGTH);

    exchange->route = routes_find(method, url, &exchange->argument, exchange->allow);
    if (exchange->route == NULL && exchange->allow[0] != '\0') {
        exchange_refuse_as(exchange, 405, "invalid_request_error", "method_not_allowed",
                           "%.200s does not serve the method %.16s", url, method);
    } else if (exchange->route == NULL) {
        exchange_refuse_as(exchange, 404, "invalid_request_error", "unknown_url",
                           "there is no such path: %.200s", url);
    } else if (!exchange->route->is_open && !is_authorised(exchange)) {
        return;
    } else if (length != NULL && strtoull(length, NULL, 10) > server->options.max_body) {
        bodies_refuse(exchange);
    } else if (atomic_load(&server->is_draining) && !exchange->route->is_open) {
        exchange_refuse_as(exchange, 503, "unavailable_error", "draining",
                           "the gateway is stopping");
        exchange->retry_after_s = 1;
    }
}

static enum MHD_Result
first_call(struct server *server, struct MHD_Connection *mhd, const char *url, const char *method,
           void **request_context)
{
    struct connection *connection = connection_of(mhd);
    struct exchange *exchange = connection == NULL ? NULL : exchange_new(server, mhd);
    enum MHD_Result result = MHD_YES;

    if (exchange == NULL) {
        return MHD_NO;
    }
    *request_context = exchange;
    atomic_fetch_add(&server->exchanges_open, 1);
    name_exchange(exchange);
    set_read_by(connection, server->options.read_timeout);
    (void)pthread_mutex_lock(&exchange->lock);
    begin(exchange, url, method);
    if (exchange->phase != EXCHANGE_OPEN) {
        result = queue_answer(exchange);
    }
    (void)pthread_mutex_unlock(&exchange->lock);
    (void)pthread_mutex_lock(&connection->lock);
    connection->exchange = exchange;
    (void)pthread_mutex_unlock(&connection->lock);
    return result;
}

/* The request is whole, or we were woken. */
static enum MHD_Result
go_on(struct exchange *exchange, struct connection *connection)
{
    (void)pthread_mutex_lock(&connection->lock);
    bool has_hung_up = connection->has_hung_up;

    (void)pthread_mutex_unlock(&connection->lock);
    if (!exchange->is_handled && exchange->phase == EXCHANGE_OPEN) {
        exchange->is_handled = true;
        set_read_by(connection, 0);
        if (exchange->body.has_failed) {
            exchange_refuse_as(exchange, 503, "unavailable_error", "no_memory",
                               "no memory for the request");
        } else {
            exchange->route->handle(exchange);
            bodies_close(exchange); /* the handler kept none of them */
        }
    }
    if (exchange->is_gone || atomic_load(&exchange->server->must_stop)
        || (has_hung_up && exchange->phase == EXCHANGE_OPEN)) {
        return MHD_NO;
    }
    if (exchange->is_queued) {
        return MHD_YES;
    }
    if (exchange->phase != EXCHANGE_OPEN) {
        return queue_answer(exchange);
    }
    exchange->is_suspended = true;
    MHD_suspend_connection(exchange->connection);
    return MHD_YES;
}

static enum MHD_Result
on_request(void *opaque, struct MHD_Connection *mhd, const char *url, const char *method,
           const char *version, const char *upload, size_t *upload_length, void **request_context)
{
    struct exchange *exchange = *request_context;
    enum MHD_Result result = MHD_YES;

    (void)version;
    if (exchange == NULL) {
        return first_call(opaque, mhd, url, method, request_context);
    }
    (void)pthread_mutex_lock(&exchange->lock);
    if (*upload_length > 0) {
        bodies_take(exchange, upload, *upload_length);
        *upload_length = 0;
    } else {
        result = go_on(exchange, connection_of(mhd));
    }
    (void)pthread_mutex_unlock(&exchange->lock);
    return result;
}

/* The HTTP library is done with a request: it is answered, or its connection is gone. */
static void
on_completed(void *opaque, struct MHD_Connection *mhd, void **request_context,
             enum MHD_RequestTerminationCode code)
{
    struct server *server = opaque;
    struct connection *connection = connection_of(mhd);
    struct exchange *exchange = *request_context;

    if (exchange == NULL) {
        return;
    }
    if (connection != NULL) {
        (void)pthread_mutex_lock(&connection->lock);
        connection->exchange = NULL;
        (void)pthread_mutex_unlock(&connection->lock);
        set_read_by(connection, server->options.idle_timeout + server->options.read_timeout);
    }
    (void)pthread_mutex_lock(&exchange->lock);
    bool is_whole = code == MHD_REQUEST_TERMINATED_COMPLETED_OK && exchange->is_queued;
    unsigned status = is_whole ? exchange->status : 499;
    double seconds = (double)(clock_now_us() - exchange->arrival_us) / 1e6;

    exchange->is_gone = true;
    exchange->is_suspended = false;
    exchange->connection = NULL;
    exchange_cancel_calls(exchange);
    (void)pthread_mutex_unlock(&exchange->lock);
    metrics_request(&server->metrics, exchange->route == NULL ? "none" : exchange->route->name,
                    status, seconds);
    if (!is_whole) {
        metrics_add(&server->metrics, &server->metrics.client_aborts, 1);
    }
    log_debug("request", "id=%s route=%s status=%u seconds=%.4f", exchange->id,
              exchange->route == NULL ? "none" : exchange->route->name, status, seconds);
    *request_context = NULL;
    atomic_fetch_sub(&server->exchanges_open, 1);
    exchange_release(exchange);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum status
resolve(const struct options *options, struct addrinfo **address_out)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    char port[8];
    int error;

    (void)snprintf(port, sizeof(port), "%u", (unsigned)options->port);
    error = getaddrinfo(options->host, port, &hints, address_out);
    return error == 0 ? ST_OK : ERR(ST_INVALID, "host %s: %s", options->host, gai_strerror(error));
}

static void
on_mhd_log(void *opaque, const char *format, va_list args)
{
    char line[512];

    (void)opaque;
    (void)vsnprintf(line, sizeof(line), format, args);
    line[strcspn(line, "\n")] = '\0';
    log_debug("http", "detail=\"%s\"", line);
}

enum status
server_start(struct server *server)
{
    const struct options *o = &server->options;
    struct addrinfo *address = NULL;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    unsigned threads = (unsigned)o->threads;

    TRY(resolve(o, &address));
    flags |= address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u;
    flags |= server->certificate != NULL ? MHD_USE_TLS : 0u;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, server->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, server->private_key},
        {MHD_OPTION_END, 0, NULL},
    };

    errno = 0; /* stays so if all that is wrong is a certificate */
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_mhd_log, NULL,
        MHD_OPTION_SOCK_ADDR, address->ai_addr, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_THREAD_POOL_SIZE,
        threads > 1 ? threads : 0u, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)o->max_connections_per_ip,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)o->max_header, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)(o->idle_timeout / 1000), MHD_OPTION_LISTEN_BACKLOG_SIZE,
        (unsigned)LISTEN_BACKLOG, MHD_OPTION_ARRAY, server->certificate != NULL ? tls : tls + 2,
        MHD_OPTION_END);
    freeaddrinfo(address);
    if (server->daemon == NULL && errno == 0 && server->certificate != NULL) {
        return ERR(ST_INVALID, "tls-cert %s, tls-key %s: no certificate in PEM and its key",
                   o->tls_cert, o->tls_key);
    }
    return server->daemon != NULL ? ST_OK
                                  : ERR(ST_SYSTEM, "cannot listen on %s port %u: %s", o->host,
                                        (unsigned)o->port, strerror(errno));
}

unsigned
server_port(const struct server *server)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);

    return info == NULL ? 0 : info->port;
}

void
server_drain(struct server *server)
{
    atomic_store(&server->is_draining, true);
}

/* The hub goes last: it still ends the calls of exchanges that were given up. */
void
server_stop(struct server *server)
{
    if (server->daemon != NULL) {
        atomic_store(&server->must_stop, true);
        hub_hang_up_all(server->hub);
        MHD_stop_daemon(server->daemon);
        server->daemon = NULL;
    }
}
