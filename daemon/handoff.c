/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is a talk in one of four states, kept in order of arrival:
 *
 *   GREETING --Attach--> QUEUED --its turn: AttachReply--> LOADING --Attached, AttachReply--> ENDED
 *
 * and from everywhere to ENDED by refusal, loss or timeout.  An ended talk has no socket any more;
 * its slot keeps the event until handoff_next takes it, so events need no queue of their own.
 *
 * Two facts make the sharing simple.  Either both arenas are held or none, so a worker makes both
 * or maps both.  And while one makes them nobody else is LOADING, so what it was asked for is still
 * what is missing when it offers. */
#include "daemon/handoff.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/failpoint.h"
#include "common/mem.h"
#include "daemon/datagram.h"
#include "daemon/handoff_state.h"
#include "daemon/offer.h"
#include "daemon/sched.h"
#include "kvpool/dockey.h"
#include "proto/wire.h"

#include "kvasir/v1/worker.pb-c.h"

#define LOAD_TIMEOUT_MS (10u * 60 * 1000)
#define UNREAD_MAX      8        /* datagrams that a refused worker may have sent on top */
#define ACCEPT_PAUSE_US 1000000u /* after the system refused to accept: out of fds or memory */

/* --- ends ------------------------------------------------------------------------------------- */

void
handoff_end_talk(struct connection *c, enum handoff_event_kind kind)
{
    c->state = TALK_ENDED;
    c->is_creator = false;
    c->deadline_us = UINT64_MAX;
    c->event.kind = kind;
    fd_close(&c->socket);
}

/* A socket closed with something unread resets the connection, and the reason would be lost. */
static void
discard_unread(int socket)
{
    char byte;

    for (int i = 0; i < UNREAD_MAX && recv(socket, &byte, 1, MSG_DONTWAIT) > 0; i++) {
    }
}

/* Memory that no fd keeps has gone with the last worker that mapped it. */
static void
drop_lost_arenas(struct handoff *h)
{
    if (!arenas_are_held(&h->arenas) || arenas_outlive_workers(&h->arenas)) {
        return;
    }
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (h->is_taken[i]) {
            return;
        }
    }
    arenas_close(&h->arenas);
    h->device[0] = '\0';
    h->has_lost_arenas = true;
}

/* Ends a talk that failed, with the detail of `st`: the number that it reserved is free again. */
static void
end_failed(struct handoff *h, struct connection *c, enum status st)
{
    static const char *const when[] = {
        [TALK_GREETING] = "before Attach",
        [TALK_QUEUED] = "while it waited for its turn",
        [TALK_LOADING] = "while it loaded",
    };
    enum handoff_event_kind kind = st == ST_UNAVAILABLE ? HANDOFF_LOST : HANDOFF_REFUSED;

    (void)snprintf(c->event.reason, sizeof(c->event.reason), "%s%s%s", status_detail(),
                   kind == HANDOFF_LOST ? " " : "", kind == HANDOFF_LOST ? when[c->state] : "");
    if (kind == HANDOFF_REFUSED) {
        discard_unread(c->socket);
        Kvasir__V1__AttachReply reply = KVASIR__V1__ATTACH_REPLY__INIT;

        reply.has_is_refused = true;
        reply.is_refused = true;
        reply.reason = c->event.reason;
        (void)datagram_send(c->socket, &reply.base, NULL, 0); /* it may be gone as well */
    }
    if (c->has_number) {
        h->is_taken[c->event.worker] = false;
        c->has_number = false;
        drop_lost_arenas(h);
    }
    fd_close(&c->event.pidfd);
    handoff_end_talk(c, kind);
}

/* --- Attach ----------------------------------------------------------------------------------- */

/* Names go to logs and to other people's terminals. */
static bool
is_word(const char *text, size_t bytes_max)
{
    size_t length = text == NULL ? 0 : strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789:._-");

    return length > 0 && text[length] == '\0' && length < bytes_max;
}

static enum status
take_attach(struct handoff *h, struct connection *c, const struct datagram *d)
{
    const ProtobufCMessage *message;

    TRY(wire_unpack(h->messages, &kvasir__v1__attach__descriptor, d->bytes, d->length,
                    DATAGRAM_BYTES_MAX, &message));
    const Kvasir__V1__Attach *attach = (const Kvasir__V1__Attach *)message;
    uint32_t seqs_most = h->config.step_tokens < SCHED_WORKER_SEQS_MAX ? h->config.step_tokens
                                                                       : SCHED_WORKER_SEQS_MAX;

    if (attach->version != WIRE_VERSION) {
        return ERR(ST_INVALID, "the worker speaks version %" PRIu32 ", kvasird version %d",
                   attach->version, WIRE_VERSION);
    }
    if (!is_word(attach->device, sizeof(c->event.device))) {
        return ERR(ST_INVALID, "Attach without the name of a device of 1 to %zu characters",
                   sizeof(c->event.device) - 1);
    }
    if (!is_word(attach->backend, sizeof(c->event.backend))
        || (strcmp(attach->backend, "cpu") != 0 && strcmp(attach->backend, "cuda") != 0)) {
        return ERR(ST_INVALID, "the worker's backend is neither cpu nor cuda");
    }
    if (attach->seqs_max == 0 || attach->seqs_max > seqs_most) {
        return ERR(ST_INVALID,
                   "the worker takes %" PRIu32 " sequences at once: 1 to %" PRIu32
                   " with kvasird's steps of %" PRIu32 " tokens",
                   attach->seqs_max, seqs_most, h->config.step_tokens);
    }
    if (d->fd_count != 0) {
        return ERR(ST_INVALID, "Attach comes with %zu file descriptors: none", d->fd_count);
    }
    (void)snprintf(c->event.device, sizeof(c->event.device), "%s", attach->device);
    (void)snprintf(c->event.backend, sizeof(c->event.backend), "%s", attach->backend);
    c->event.seqs_max = attach->seqs_max;
    if (attach->has_pool_id) {
        return handoff_take_back(h, c, attach);
    }
    c->state = TALK_QUEUED;
    c->deadline_us = UINT64_MAX;
    return ST_OK;
}

/* --- the first AttachReply -------------------------------------------------------------------- */

static enum status
reserve_number(struct handoff *h, struct connection *c)
{
    for (uint32_t worker = 0; worker < SCHED_WORKERS_MAX; worker++) {
        if (!h->is_taken[worker]) {
            h->is_taken[worker] = true;
            c->has_number = true;
            c->event.worker = worker;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "%d workers are attached: no more", SCHED_WORKERS_MAX);
}

static void
describe_host(const struct handoff *h, Kvasir__V1__ArenaInfo *info)
{
    kvasir__v1__arena_info__init(info);
    info->has_kind = info->has_is_present = info->has_bytes = true;
    info->kind = KVASIR__V1__ARENA_KIND__ARENA_HOST;
    info->is_present = true;
    info->bytes = h->host_bytes;
}

/* Sends what the worker must be, with the arenas or the order to make them. */
static enum status
send_orders(struct handoff *h, struct connection *c)
{
    static const Kvasir__V1__ArenaKind kinds[ARENA_INDEX_COUNT] = {
        KVASIR__V1__ARENA_KIND__ARENA_KV, KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS};
    Kvasir__V1__AttachReply reply = KVASIR__V1__ATTACH_REPLY__INIT;
    Kvasir__V1__ArenaInfo infos[ARENA_INDEX_COUNT + 1];
    Kvasir__V1__ArenaInfo *list[ARENA_INDEX_COUNT + 1];
    int fds[DATAGRAM_FDS_MAX];
    size_t fd_count;
    bool is_present = arenas_are_held(&h->arenas);

    for (size_t i = 0; i < ARENA_INDEX_COUNT; i++) {
        kvasir__v1__arena_info__init(&infos[i]);
        infos[i].has_kind = infos[i].has_is_present = infos[i].has_must_create = true;
        infos[i].kind = kinds[i];
        infos[i].is_present = is_present;
        infos[i].must_create = !is_present;
        infos[i].has_bytes = is_present;
        infos[i].bytes = h->arenas.held[i].bytes;
        infos[i].mechanism = is_present ? h->arenas.held[i].mechanism : NULL;
        list[i] = &infos[i];
        fds[i] = h->arenas.held[i].fd;
    }
    fd_count = is_present ? ARENA_INDEX_COUNT : 0;
    reply.n_arenas = ARENA_INDEX_COUNT;
    if (h->host_bytes > 0) {
        list[reply.n_arenas] = &infos[reply.n_arenas];
        describe_host(h, &infos[reply.n_arenas++]);
        fds[fd_count++] = h->host_fd;
    }
    reply.arenas = list;
    reply.model_path = h->model_path;
    reply.worker_endpoint = h->worker_endpoint;
    reply.has_checkpoint_fingerprint = reply.has_pool_fingerprint = true;
    reply.checkpoint_fingerprint = (ProtobufCBinaryData){32, h->config.checkpoint};
    reply.pool_fingerprint = (ProtobufCBinaryData){32, h->pool_fingerprint};
    reply.has_checkpoint_identity = true;
    reply.checkpoint_identity = (ProtobufCBinaryData){32, h->config.checkpoint_identity};
    reply.has_kv_memory = reply.has_block_tokens = reply.has_kv_type = reply.has_kv_layout = true;
    reply.kv_memory = h->config.kv_memory;
    reply.has_kv_percent = h->config.kv_memory == 0;
    reply.kv_percent = h->config.kv_percent;
    reply.block_tokens = h->config.block_tokens;
    reply.kv_type = h->config.kv_type;
    reply.kv_layout = h->config.kv_layout;
    reply.has_step_tokens = reply.has_heartbeat_ms = true;
    reply.step_tokens = h->config.step_tokens;
    reply.heartbeat_ms = h->config.heartbeat_ms;
    reply.has_is_deterministic = true;
    reply.is_deterministic = h->config.is_deterministic;
    reply.has_pool_id = reply.has_orphan_timeout_ms = reply.has_step_timeout_ms = true;
    reply.step_timeout_ms = h->config.step_timeout_ms;
    reply.pool_id = (ProtobufCBinaryData){sizeof(h->pool_id), h->pool_id};
    reply.orphan_timeout_ms = h->config.orphan_timeout_ms;
    reply.has_block_count = is_present;
    reply.block_count = h->arenas.block_count;
    return datagram_send(c->socket, &reply.base, fds, fd_count);
}

static enum status
invite(struct handoff *h, struct connection *c, uint64_t now_us)
{
    if (arenas_are_held(&h->arenas) && strcmp(c->event.device, h->device) != 0) {
        return ERR(ST_INVALID, "the worker is of device %s, the arenas are on %s", c->event.device,
                   h->device);
    }
    TRY(reserve_number(h, c));
    TRY(send_orders(h, c));
    c->state = TALK_LOADING;
    c->is_creator = !arenas_are_held(&h->arenas);
    c->deadline_us = now_us + h->config.load_timeout_ms * 1000;
    return ST_OK;
}

static bool
has_creator(const struct handoff *h)
{
    for (size_t i = 0; i < h->connection_count; i++) {
        if (h->connections[i].is_creator) {
            return true;
        }
    }
    return false;
}

/* Those who wait get their turn, in order of arrival, unless somebody makes the arenas. */
static void
invite_waiting(struct handoff *h, uint64_t now_us)
{
    for (size_t i = 0; i < h->connection_count && !has_creator(h); i++) {
        struct connection *c = &h->connections[i];

        if (c->state == TALK_QUEUED) {
            enum status st = invite(h, c, now_us);

            if (st != ST_OK) {
                end_failed(h, c, st);
            }
        }
    }
}

/* --- Attached --------------------------------------------------------------------------------- */

static enum status
send_acceptance(struct handoff *h, struct connection *c)
{
    Kvasir__V1__AttachReply reply = KVASIR__V1__ATTACH_REPLY__INIT;

    c->event.incarnation = h->incarnation_next++;
    reply.has_is_refused = reply.has_worker = reply.has_incarnation = true;
    reply.worker = c->event.worker;
    reply.incarnation = c->event.incarnation;
    return datagram_send(c->socket, &reply.base, NULL, 0);
}

static enum status
take_attached(struct handoff *h, struct connection *c, struct datagram *d)
{
    struct arenas offer = ARENAS_NONE;
    const ProtobufCMessage *message;

    TRY(wire_unpack(h->messages, &kvasir__v1__attached__descriptor, d->bytes, d->length,
                    DATAGRAM_BYTES_MAX, &message));
    const Kvasir__V1__Attached *attached = (const Kvasir__V1__Attached *)message;

    TRY(offer_check_pool(attached, h->pool_fingerprint, &h->arenas, h->config.kv_memory));
    if (c->is_creator) {
        TRY(offer_take(attached, d, &offer));
    } else if (attached->n_arenas != 0 || d->fd_count != 0) {
        return ERR(ST_INVALID, "%zu arenas with %zu file descriptors offered: none was asked for",
                   attached->n_arenas, d->fd_count);
    }
    FAILPOINT(offer_take);
    enum status st = send_acceptance(h, c);

    FAILPOINT(offer_accept);
    if (st != ST_OK) {
        arenas_close(&offer);
        return st;
    }
    if (c->is_creator) {
        h->arenas = offer;
        memcpy(h->device, c->event.device, sizeof(h->device));
    }
    c->event.block_count = h->arenas.block_count;
    c->event.block_bytes = h->arenas.block_bytes;
    handoff_end_talk(c, HANDOFF_ATTACHED);
    return ST_OK;
}

/* --- connections ------------------------------------------------------------------------------ */

static enum status
take_datagram(struct handoff *h, struct connection *c)
{
    struct datagram *d = &h->datagram;
    bool has_come;
    enum status st;

    TRY(datagram_receive(c->socket, d, &has_come));
    if (!has_come) {
        return ST_OK;
    }
    wire_arena_reset(h->messages);
    if (c->state == TALK_GREETING) {
        st = take_attach(h, c, d);
    } else if (c->state == TALK_LOADING) {
        st = take_attached(h, c, d);
    } else {
        st = ERR(ST_INVALID, "the worker spoke before its turn");
    }
    datagram_close(d);
    return st;
}

/* A dead process counts before anything it said: a child of it may hold the socket open. */
static void
serve(struct handoff *h, struct connection *c, short socket_events, short pidfd_events)
{
    enum status st = ST_OK;

    if (c->state == TALK_ENDED) {
        return;
    }
    if (pidfd_events != 0) {
        st = ERR(ST_UNAVAILABLE, "the worker's process ended");
    } else if (socket_events != 0) {
        st = take_datagram(h, c);
    }
    if (st != ST_OK) {
        end_failed(h, c, st);
    }
}

/* Who it is.  The pid could have passed to another process since the connect; but the worker speaks
 * again after our reply, so it was alive after its pidfd was opened, and the pidfd is its own. */
static enum status
identify(struct connection *c)
{
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);

    if (getsockopt(c->socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return ERR(ST_SYSTEM, "SO_PEERCRED: %s", strerror(errno));
    }
    c->event.pid = peer.pid;
    if (peer.uid != geteuid() && peer.uid != 0) {
        return ERR(ST_INVALID, "the worker is of uid %u, kvasird of uid %u", (unsigned)peer.uid,
                   (unsigned)geteuid());
    }
    if (peer.pid <= 0) {
        return ERR(ST_INVALID,
                   "the worker's process is not to be seen from kvasird's pid namespace");
    }
    c->event.pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (c->event.pidfd < 0) {
        return errno == ESRCH ? ERR(ST_UNAVAILABLE, "the worker's process ended")
                              : ERR(ST_SYSTEM, "pidfd_open %d: %s", (int)peer.pid, strerror(errno));
    }
    return ST_OK;
}

static void
accept_all(struct handoff *h, uint64_t now_us)
{
    while (h->connection_count < HANDOFF_CONNECTIONS_MAX) {
        int fd = accept4(h->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
                h->accept_after_us = now_us + ACCEPT_PAUSE_US; /* or poll would spin on it */
            }
            return;
        }
        struct connection *c = &h->connections[h->connection_count++];

        *c = (struct connection){.state = TALK_GREETING,
                                 .socket = fd,
                                 .deadline_us = now_us + HANDOFF_GREETING_US,
                                 .event = {.pidfd = -1}};
        enum status st = identify(c);

        if (st != ST_OK) {
            end_failed(h, c, st);
        }
    }
}

static void
keep_deadlines(struct handoff *h, uint64_t now_us)
{
    if (now_us >= h->accept_after_us) {
        h->accept_after_us = 0;
    }
    for (size_t i = 0; i < h->connection_count; i++) {
        struct connection *c = &h->connections[i];

        if (now_us >= c->deadline_us) {
            end_failed(h, c,
                       c->state == TALK_GREETING
                           ? ERR(ST_TIMEOUT, "no Attach within %u s", HANDOFF_GREETING_US / 1000000)
                           : ERR(ST_TIMEOUT, "no Attached within %" PRIu64 " ms",
                                 h->config.load_timeout_ms));
        }
    }
}

/* --- the caller's loop ------------------------------------------------------------------------ */

size_t
handoff_poll_count(const struct handoff *h)
{
    return 1 + 2 * h->connection_count;
}

void
handoff_poll_fill(const struct handoff *h, struct pollfd *items)
{
    bool accepts = h->accept_after_us == 0 && h->connection_count < HANDOFF_CONNECTIONS_MAX;

    *items++ = (struct pollfd){.fd = accepts ? h->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < h->connection_count; i++) {
        const struct connection *c = &h->connections[i];
        bool is_open = c->state != TALK_ENDED;

        *items++ = (struct pollfd){.fd = c->socket, .events = POLLIN};
        *items++ = (struct pollfd){.fd = is_open ? c->event.pidfd : -1, .events = POLLIN};
    }
}

void
handoff_poll_done(struct handoff *h, const struct pollfd *items, size_t count, uint64_t now_us)
{
    assert(count == handoff_poll_count(h));
    for (size_t i = 0; i < (count - 1) / 2; i++) {
        serve(h, &h->connections[i], items[1 + 2 * i].revents, items[2 + 2 * i].revents);
    }
    if (items[0].revents != 0) {
        accept_all(h, now_us);
    }
    keep_deadlines(h, now_us);
    invite_waiting(h, now_us);
}

uint64_t
handoff_wakeup_us(const struct handoff *h)
{
    uint64_t first_us = h->accept_after_us == 0 ? UINT64_MAX : h->accept_after_us;

    for (size_t i = 0; i < h->connection_count; i++) {
        if (h->connections[i].deadline_us < first_us) {
            first_us = h->connections[i].deadline_us;
        }
    }
    return first_us;
}

bool
handoff_next(struct handoff *h, struct handoff_event *event_out)
{
    for (size_t i = 0; i < h->connection_count; i++) {
        if (h->connections[i].state == TALK_ENDED) {
            *event_out = h->connections[i].event;
            h->connection_count--;
            memmove(&h->connections[i], &h->connections[i + 1],
                    (h->connection_count - i) * sizeof(h->connections[0]));
            return true;
        }
    }
    return false;
}

void
handoff_worker_gone(struct handoff *h, uint32_t worker)
{
    assert(worker < SCHED_WORKERS_MAX && h->is_taken[worker]);
    h->is_taken[worker] = false;
    h->expected[worker] = (struct expected){0};
    drop_lost_arenas(h);
}

bool
handoff_lost_arenas(struct handoff *h)
{
    bool has_lost = h->has_lost_arenas;

    h->has_lost_arenas = false;
    return has_lost;
}

bool
handoff_keeps_arenas(const struct handoff *h)
{
    return arenas_outlive_workers(&h->arenas);
}

void
handoff_arena_fds(const struct handoff *h, int fds_out[2])
{
    for (size_t i = 0; i < ARENA_INDEX_COUNT; i++) {
        fds_out[i] = h->arenas.held[i].fd;
    }
}

const uint8_t *
handoff_pool_fingerprint(const struct handoff *h)
{
    return h->pool_fingerprint;
}

/* --- birth and death -------------------------------------------------------------------------- */

static enum status
open_listener(struct handoff *h)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (strlen(h->path) >= sizeof(addr.sun_path)) {
        return ERR(ST_INVALID, "%s: a socket's path has at most %zu bytes", h->path,
                   sizeof(addr.sun_path) - 1);
    }
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", h->path);
    h->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (h->listener < 0) {
        return ERR(ST_SYSTEM, "attach socket: %s", strerror(errno));
    }
    /* The file gets the mode that the socket has when it is bound, so it is never open to others.
     */
    if (fchmod(h->listener, S_IRUSR | S_IWUSR) != 0) {
        return ERR(ST_SYSTEM, "%s: fchmod: %s", h->path, strerror(errno));
    }
    if (bind(h->listener, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
        return ERR(ST_SYSTEM, "%s: bind: %s", h->path, strerror(errno));
    }
    h->is_bound = true;
    if (listen(h->listener, HANDOFF_CONNECTIONS_MAX) != 0) {
        return ERR(ST_SYSTEM, "%s: listen: %s", h->path, strerror(errno));
    }
    return ST_OK;
}

/* A worker that outlives a kvasird must not be taken for one of the next: each begins elsewhere. */
static enum status
choose_incarnations(struct handoff *h)
{
    uint32_t life;

    if (getrandom(&life, sizeof(life), 0) != (ssize_t)sizeof(life)) {
        return ERR(ST_SYSTEM, "getrandom: %s", strerror(errno));
    }
    h->incarnation_next = ((uint64_t)life << 24) + 1;
    h->life = h->incarnation_next;
    return ST_OK;
}

static enum status
prepare(struct handoff *h, const struct handoff_config *config)
{
    struct pool_identity identity = {.kv_type = config->kv_type,
                                     .kv_layout = config->kv_layout,
                                     .block_tokens = config->block_tokens};

    memcpy(identity.checkpoint, config->checkpoint, sizeof(identity.checkpoint));
    memcpy(identity.tokenizer, config->tokenizer, sizeof(identity.tokenizer));
    h->config = *config;
    h->config.path = h->config.model_path = h->config.worker_endpoint = NULL;
    if (h->config.load_timeout_ms == 0) {
        h->config.load_timeout_ms = LOAD_TIMEOUT_MS;
    }
    h->path = mem_strdup(config->path);
    h->model_path = mem_strdup(config->model_path);
    h->worker_endpoint = mem_strdup(config->worker_endpoint);
    if (h->path == NULL || h->model_path == NULL || h->worker_endpoint == NULL) {
        return ERR(ST_NO_MEMORY, "the paths of the attach socket");
    }
    TRY(pool_fingerprint(&identity, h->pool_fingerprint));
    TRY(choose_incarnations(h));
    TRY(wire_arena_new(&h->messages));
    return open_listener(h);
}

enum status
handoff_new(const struct handoff_config *config, struct handoff **handoff_out)
{
    struct handoff *h = mem_zalloc(1, sizeof(*h));

    if (h == NULL) {
        return ERR(ST_NO_MEMORY, "attach socket: %zu bytes", sizeof(*h));
    }
    h->listener = -1;
    h->arenas = ARENAS_NONE;
    enum status st = prepare(h, config);

    if (st != ST_OK) {
        handoff_destroy(&h);
        return st;
    }
    *handoff_out = h;
    return ST_OK;
}

void
handoff_destroy(struct handoff **handoff)
{
    struct handoff *h = *handoff;

    if (h == NULL) {
        return;
    }
    for (size_t i = 0; i < h->connection_count; i++) {
        fd_close(&h->connections[i].socket);
        fd_close(&h->connections[i].event.pidfd);
    }
    arenas_close(&h->arenas);
    fd_close(&h->listener);
    if (h->is_bound) {
        (void)unlink(h->path);
    }
    wire_arena_destroy(&h->messages);
    mem_free(h->worker_endpoint);
    mem_free(h->model_path);
    mem_free(h->path);
    MEM_FREE(*handoff);
}
