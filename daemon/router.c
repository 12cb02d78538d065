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

#define MONITORS      3                        /* of all but ROUTER_WORKER, which is the last */
#define ZAP_URL       "inproc://zeromq.zap.01" /* where libzmq asks */
#define LAST_WORDS_MS 500                      /* for replies still on their way when we close */

struct router {
    struct router_handlers handlers;
    void *context;
    void *sockets[ROUTER_SOCKETS];
    void *monitors[MONITORS];
    void *zap;                                     /* with ROUTER_REMOTE */
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
    [ROUTER_REMOTE] = {NULL, ROUTER_CLIENT_HWM, WIRE_CLIENT_BYTES_MAX, 2},
    [ROUTER_WORKER] = {ENDPOINT_WORKER, ROUTER_WORKER_HWM, WIRE_WORKER_BYTES_MAX, 1},
};

static enum status
open_socket(struct router *router, enum router_socket which)
{
    const int backlog = 4096; /* who comes when it is full is told that nobody is here */

    router->sockets[which] = zmq_socket(router->context, ZMQ_ROUTER);
    if (router->sockets[which] == NULL) {
        return ERR(ST_SYSTEM, "zmq_socket: %s", zmq_strerror(errno));
    }
    if (zmq_setsockopt(router->sockets[which], ZMQ_BACKLOG, &backlog, sizeof(backlog)) != 0) {
        return ERR(ST_SYSTEM, "ZMQ_BACKLOG: %s", zmq_strerror(errno));
    }
    TRY(frames_configure(router->sockets[which], ZMQ_ROUTER, plans[which].hwm,
                         plans[which].bytes_max));
    return which == ROUTER_WORKER ? ST_OK : frames_watch_clients(router->sockets[which]);
}

static enum status
bind_local(struct router *router, const char *dir, enum router_socket which)
{
    char url[ENDPOINT_URL_MAX];
    char path[ENDPOINT_PATH_MAX];
    mode_t mode = which == ROUTER_WORKER ? 0600 : 0660; /* workers are of our own user */

    TRY(open_socket(router, which));
    TRY(endpoint_path(dir, plans[which].name, path));
    TRY(endpoint_url(dir, plans[which].name, url));
    if (zmq_bind(router->sockets[which], url) != 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, zmq_strerror(errno));
    }
    memcpy(router->paths[which], path, sizeof(path));
    if (chmod(path, mode) != 0) {
        return ERR(ST_SYSTEM, "chmod %s: %s", path, strerror(errno));
    }
    return ST_OK;
}

/* The ZAP socket comes first: libzmq looks for it when a client knocks. */
static enum status
bind_remote(struct router *router, const struct router_config *config)
{
    int handover = 0; /* nobody takes another's place by its name */
    void *socket;

    router->zap = zmq_socket(router->context, ZMQ_REP);
    if (router->zap == NULL || zmq_bind(router->zap, ZAP_URL) != 0) {
        return ERR(ST_SYSTEM, ZAP_URL ": %s", zmq_strerror(errno));
    }
    TRY(open_socket(router, ROUTER_REMOTE));
    socket = router->sockets[ROUTER_REMOTE];
    TRY(curve_be_server(socket, config->remote_secret));
    if (zmq_setsockopt(socket, ZMQ_ROUTER_HANDOVER, &handover, sizeof(handover)) != 0
        || zmq_bind(socket, config->remote_url) != 0) {
        return ERR(ST_SYSTEM, "listen %s: %s", config->remote_url,
                   errno == EINVAL ? "it must be tcp://ADDRESS:PORT" : zmq_strerror(errno));
    }
    return ST_OK;
}

static enum status
open_monitor(struct router *router, enum router_socket which)
{
    static const char *const urls[MONITORS] = {"inproc://monitor.client", "inproc://monitor.admin",
                                               "inproc://monitor.remote"};

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
open_all(struct router *router, const struct router_config *config)
{
    router->context = zmq_ctx_new();
    if (router->context == NULL) {
        return ERR(ST_SYSTEM, "zmq_ctx_new: %s", zmq_strerror(errno));
    }
    for (int i = 0; i < ROUTER_SOCKETS; i++) {
        if (i != ROUTER_REMOTE) {
            TRY(bind_local(router, config->dir, (enum router_socket)i));
        } else if (config->remote_url != NULL) {
            TRY(bind_remote(router, config));
        }
    }
    for (int i = 0; i < MONITORS; i++) {
        if (router->sockets[i] != NULL) {
            TRY(open_monitor(router, (enum router_socket)i));
        }
    }
    return ST_OK;
}

enum status
router_new(const struct router_config *config, const struct router_handlers *handlers,
           struct router **router_out)
{
    struct router *router = mem_zalloc(1, sizeof(*router));
    enum status st;

    if (router == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the router");
    }
    router->handlers = *handlers;
    st = open_all(router, config);
    if (st != ST_OK) {
        router_destroy(&router);
        return st;
    }
    *router_out = router;
    return ST_OK;
}

void *
router_context(const struct router *router)
{
    return router->context;
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
    if (router->zap != NULL) {
        (void)zmq_close(router->zap);
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

/* One question: [version, request, domain, address, identity, mechanism, key]; one answer:
 * [version, request, code, text, name, metadata].  libzmq's own, but for the key. */
enum {
    ZAP_VERSION,
    ZAP_REQUEST,
    ZAP_MECHANISM = 5,
    ZAP_KEY,
    ZAP_FRAMES
};

static bool
recv_question(void *zap, zmq_msg_t parts[ZAP_FRAMES])
{
    int more = 1;

    for (int i = 0; i < ZAP_FRAMES; i++) {
        (void)zmq_msg_init(&parts[i]);
    }
    for (int i = 0; more != 0; i++) {
        assert(i < ZAP_FRAMES);
        if (zmq_msg_recv(&parts[i], zap, ZMQ_DONTWAIT) < 0) {
            return false;
        }
        more = zmq_msg_more(&parts[i]);
    }
    return true;
}

static void
answer_knock(struct router *router, zmq_msg_t parts[ZAP_FRAMES])
{
    const char *name = NULL;

    if (zmq_msg_size(&parts[ZAP_KEY]) == CURVE_KEY_BYTES
        && zmq_msg_size(&parts[ZAP_MECHANISM]) == strlen("CURVE")
        && memcmp(zmq_msg_data(&parts[ZAP_MECHANISM]), "CURVE", strlen("CURVE")) == 0) {
        name = router->handlers.on_knock(router->handlers.arg, zmq_msg_data(&parts[ZAP_KEY]));
    }
    const struct frame answer[] = {
        {zmq_msg_data(&parts[ZAP_VERSION]), zmq_msg_size(&parts[ZAP_VERSION])},
        {zmq_msg_data(&parts[ZAP_REQUEST]), zmq_msg_size(&parts[ZAP_REQUEST])},
        {name == NULL ? "400" : "200", 3},
        {"", 0},
        {name == NULL ? "" : name, name == NULL ? 0 : strlen(name)},
        {"", 0},
    };
    const size_t count = sizeof(answer) / sizeof(answer[0]);

    for (size_t i = 0; i < count; i++) {
        (void)zmq_send(router->zap, answer[i].bytes, answer[i].length,
                       ZMQ_DONTWAIT | (i + 1 < count ? ZMQ_SNDMORE : 0));
    }
}

static void
read_knocks(struct router *router)
{
    zmq_msg_t parts[ZAP_FRAMES];
    bool is_there = true;

    for (int i = 0; i < ROUTER_BURST_MAX && is_there; i++) {
        is_there = recv_question(router->zap, parts);
        if (is_there) {
            answer_knock(router, parts);
        }
        for (int j = 0; j < ZAP_FRAMES; j++) {
            (void)zmq_msg_close(&parts[j]);
        }
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

            message.frames = &frames;
            message.payload = frames_bytes(&frames, last);
            message.payload_length = frames_length(&frames, last);
            message.peer =
                which == ROUTER_REMOTE ? zmq_msg_gets(&frames.parts[last], "User-Id") : NULL;
            if (last == 2) {
                message.header = frames_bytes(&frames, 1);
                message.header_length = frames_length(&frames, 1);
            }
            router->handlers.on_message(router->handlers.arg, &message);
        }
        frames_close(&frames);
    }
}

/* What router_poll waits for: ROUTERs, monitors, the ZAP socket, the caller's descriptors. */
enum {
    ZAP_ITEM = ROUTER_SOCKETS + MONITORS,
    OTHER_ITEMS
};

static void
read_sockets(struct router *router, const zmq_pollitem_t *items)
{
    for (int i = 0; i < MONITORS; i++) {
        if (items[ROUTER_SOCKETS + i].revents != 0) {
            read_monitor(router, (enum router_socket)i);
        }
    }
    if (items[ZAP_ITEM].revents != 0) {
        read_knocks(router);
    }
    /* What workers report comes first: it ends requests and brings blocks back. */
    for (int i = ROUTER_SOCKETS - 1; i >= 0; i--) {
        if (items[i].revents != 0) {
            read_socket(router, (enum router_socket)i);
        }
    }
}

/* A socket that is not open is waited for as a descriptor that does not exist. */
static zmq_pollitem_t
item_of(void *socket)
{
    return (zmq_pollitem_t){.socket = socket, .fd = -1, .events = socket == NULL ? 0 : ZMQ_POLLIN};
}

enum status
router_poll(struct router *router, struct pollfd *fds, size_t fd_count, int timeout_ms)
{
    zmq_pollitem_t items[OTHER_ITEMS + ROUTER_FDS_MAX];
    zmq_pollitem_t *others = items + OTHER_ITEMS;

    assert(fd_count <= ROUTER_FDS_MAX);
    for (int i = 0; i < ROUTER_SOCKETS; i++) {
        items[i] = item_of(router->sockets[i]);
    }
    for (int i = 0; i < MONITORS; i++) {
        items[ROUTER_SOCKETS + i] = item_of(router->monitors[i]);
    }
    items[ZAP_ITEM] = item_of(router->zap);
    for (size_t i = 0; i < fd_count; i++) {
        fds[i].revents = 0;
        others[i] = (zmq_pollitem_t){.fd = fds[i].fd, .events = ZMQ_POLLIN};
    }
    if (zmq_poll(items, OTHER_ITEMS + (int)fd_count, timeout_ms) < 0) {
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
