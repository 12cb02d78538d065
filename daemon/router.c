/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/router.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#include "common/mem.h"
#include "proto/endpoints.h"
#include "proto/frames.h"
#include "proto/wire.h"

#define MONITORS      2   /* of ROUTER_CLIENT and ROUTER_ADMIN */
#define LAST_WORDS_MS 500 /* for replies still on their way when we close */

struct router {
    struct router_handlers handlers;
    void *context;
    void *sockets[ROUTER_SOCKETS];
    void *monitors[MONITORS];
    char paths[ROUTER_SOCKETS][ENDPOINT_PATH_MAX]; /* bound, to be removed */
};

static const struct {
    const char *name;
    int hwm;
    int64_t bytes_max;
    size_t frames; /* of a message, after the identity */
} plans[ROUTER_SOCKETS] = {
    [ROUTER_CLIENT] = {ENDPOINT_CLIENT, ROUTER_CLIENT_HWM, WIRE_CLIENT_BYTES_MAX, 2},
    [ROUTER_ADMIN] = {ENDPOINT_ADMIN, ROUTER_CLIENT_HWM, WIRE_CLIENT_BYTES_MAX, 2},
    [ROUTER_WORKER] = {ENDPOINT_WORKER, ROUTER_WORKER_HWM, WIRE_WORKER_BYTES_MAX, 1},
};

static enum status
bind_socket(struct router *router, const char *dir, enum router_socket which)
{
    char url[ENDPOINT_URL_MAX];
    char path[ENDPOINT_PATH_MAX];

    router->sockets[which] = zmq_socket(router->context, ZMQ_ROUTER);
    if (router->sockets[which] == NULL) {
        return ERR(ST_SYSTEM, "zmq_socket: %s", zmq_strerror(errno));
    }
    TRY(frames_configure(router->sockets[which], ZMQ_ROUTER, plans[which].hwm,
                         plans[which].bytes_max));
    if (which != ROUTER_WORKER) {
        TRY(frames_watch_connection(router->sockets[which]));
    }
    TRY(endpoint_path(dir, plans[which].name, path));
    TRY(endpoint_url(dir, plans[which].name, url));
    if (zmq_bind(router->sockets[which], url) != 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, zmq_strerror(errno));
    }
    memcpy(router->paths[which], path, sizeof(path));
    if (chmod(path, 0660) != 0) {
        return ERR(ST_SYSTEM, "chmod %s: %s", path, strerror(errno));
    }
    return ST_OK;
}

static enum status
open_monitor(struct router *router, enum router_socket which)
{
    static const char *const urls[MONITORS] = {"inproc://monitor.client", "inproc://monitor.admin"};

    if (zmq_socket_monitor(router->sockets[which], urls[which], ZMQ_EVENT_DISCONNECTED) != 0) {
        return ERR(ST_SYSTEM, "zmq_socket_monitor: %s", zmq_strerror(errno));
    }
    router->monitors[which] = zmq_socket(router->context, ZMQ_PAIR);
    if (router->monitors[which] == NULL || zmq_connect(router->monitors[which], urls[which]) != 0) {
        return ERR(ST_SYSTEM, "socket monitor: %s", zmq_strerror(errno));
    }
    return ST_OK;
}

static enum status
open_all(struct router *router, const char *dir)
{
    router->context = zmq_ctx_new();
    if (router->context == NULL) {
        return ERR(ST_SYSTEM, "zmq_ctx_new: %s", zmq_strerror(errno));
    }
    for (int i = 0; i < ROUTER_SOCKETS; i++) {
        TRY(bind_socket(router, dir, (enum router_socket)i));
    }
    TRY(open_monitor(router, ROUTER_CLIENT));
    return open_monitor(router, ROUTER_ADMIN);
}

enum status
router_new(const char *dir, const struct router_handlers *handlers, struct router **router_out)
{
    struct router *router = mem_zalloc(1, sizeof(*router));
    enum status st;

    if (router == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the router");
    }
    router->handlers = *handlers;
    st = open_all(router, dir);
    if (st != ST_OK) {
        router_destroy(&router);
        return st;
    }
    *router_out = router;
    return ST_OK;
}

void
router_destroy(struct router **router_ref)
{
    struct router *router = *router_ref;

    if (router == NULL) {
        return;
    }
    for (int i = 0; i < MONITORS; i++) {
        if (router->monitors[i] != NULL) {
            (void)zmq_socket_monitor(router->sockets[i], NULL, 0);
            (void)zmq_close(router->monitors[i]);
        }
    }
    for (int i = 0; i < ROUTER_SOCKETS; i++) {
        if (router->sockets[i] != NULL) {
            int linger_ms = LAST_WORDS_MS;

            (void)zmq_setsockopt(router->sockets[i], ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
            (void)zmq_close(router->sockets[i]);
        }
        if (router->paths[i][0] != '\0') {
            (void)unlink(router->paths[i]);
        }
    }
    if (router->context != NULL) {
        (void)zmq_ctx_term(router->context);
    }
    MEM_FREE(*router_ref);
}

/* A monitor's event: [u16 event, u32 value][endpoint]; we asked for one kind, its value is the fd.
 */
static void
read_monitor(struct router *router, enum router_socket which)
{
    struct frames frames;

    while (frames_recv(router->monitors[which], &frames) == ST_OK) {
        uint32_t connection;

        if (frames_length(&frames, 0) >= sizeof(uint16_t) + sizeof(connection)) {
            memcpy(&connection, (const uint8_t *)frames_bytes(&frames, 0) + sizeof(uint16_t),
                   sizeof(connection));
            router->handlers.on_lost(router->handlers.arg, which, (int)connection);
        }
        frames_close(&frames);
    }
}

static bool
read_address(struct frames *frames, enum router_socket which, struct address *address_out)
{
    size_t length = frames_length(frames, 0);

    if (frames->count != plans[which].frames + 1 || length > ROUTER_IDENTITY_MAX) {
        return false;
    }
    address_out->socket = which;
    address_out->identity_length = (uint8_t)length;
    memcpy(address_out->identity, frames_bytes(frames, 0), length);
    address_out->connection = zmq_msg_get(&frames->parts[1], ZMQ_SRCFD);
    return true;
}

static void
read_socket(struct router *router, enum router_socket which)
{
    for (int i = 0; i < ROUTER_BURST_MAX; i++) {
        struct frames frames;
        struct message message = {0};
        enum status st = frames_recv(router->sockets[which], &frames);

        if (st == ST_INVALID) {
            continue; /* too many frames: dropped */
        }
        if (st != ST_OK) {
            return;
        }
        if (which != ROUTER_WORKER) {
            read_monitor(router, which);
        }
        if (read_address(&frames, which, &message.from)) {
            size_t last = plans[which].frames;

            message.payload = frames_bytes(&frames, last);
            message.payload_length = frames_length(&frames, last);
            if (last == 2) {
                message.header = frames_bytes(&frames, 1);
                message.header_length = frames_length(&frames, 1);
            }
            router->handlers.on_message(router->handlers.arg, &message);
        }
        frames_close(&frames);
    }
}

static void
read_sockets(struct router *router, const zmq_pollitem_t *items)
{
    for (int i = 0; i < MONITORS; i++) {
        if (items[ROUTER_SOCKETS + i].revents != 0) {
            read_monitor(router, (enum router_socket)i);
        }
    }
    /* What workers report comes first: it ends requests and brings blocks back. */
    for (int i = ROUTER_SOCKETS - 1; i >= 0; i--) {
        if (items[i].revents != 0) {
            read_socket(router, (enum router_socket)i);
        }
    }
}

enum status
router_poll(struct router *router, struct pollfd *fds, size_t fd_count, int timeout_ms)
{
    zmq_pollitem_t items[ROUTER_SOCKETS + MONITORS + ROUTER_FDS_MAX];
    zmq_pollitem_t *others = items + ROUTER_SOCKETS + MONITORS;

    assert(fd_count <= ROUTER_FDS_MAX);
    for (int i = 0; i < ROUTER_SOCKETS; i++) {
        items[i] = (zmq_pollitem_t){.socket = router->sockets[i], .events = ZMQ_POLLIN};
    }
    for (int i = 0; i < MONITORS; i++) {
        items[ROUTER_SOCKETS + i] =
            (zmq_pollitem_t){.socket = router->monitors[i], .events = ZMQ_POLLIN};
    }
    for (size_t i = 0; i < fd_count; i++) {
        fds[i].revents = 0;
        others[i] = (zmq_pollitem_t){.fd = fds[i].fd, .events = ZMQ_POLLIN};
    }
    if (zmq_poll(items, ROUTER_SOCKETS + MONITORS + (int)fd_count, timeout_ms) < 0) {
        return errno == EINTR ? ST_OK : ERR(ST_SYSTEM, "zmq_poll: %s", zmq_strerror(errno));
    }
    for (size_t i = 0; i < fd_count; i++) {
        fds[i].revents |= (others[i].revents & ZMQ_POLLIN) != 0 ? POLLIN : 0;
        fds[i].revents |= (others[i].revents & ZMQ_POLLERR) != 0 ? POLLHUP : 0;
    }
    read_sockets(router, items);
    return ST_OK;
}

enum status
router_send(struct router *router, const struct address *to, const void *header,
            size_t header_length, const void *payload, size_t payload_length)
{
    struct frame parts[3] = {{.bytes = to->identity, .length = to->identity_length}};
    size_t count = 1;

    if (header != NULL) {
        parts[count++] = (struct frame){.bytes = header, .length = header_length};
    }
    parts[count++] = (struct frame){.bytes = payload, .length = payload_length};
    return frames_send(router->sockets[to->socket], parts, count);
}
