/* SPDX-License-Identifier: Apache-2.0 */
/* Two locks, never held together: `lock` guards what other threads leave for us (new calls,
 * cancels), the other one is that of the watched sockets (watches.h).  Everything else is the
 * thread's own. */
#include "gateway/hub.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <zmq.h>

#include "client/dealer.h"
#include "common/clock.h"
#include "common/htab.h"
#include "common/log.h"
#include "common/mem.h"
#include "gateway/retry.h"
#include "gateway/watches.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/frames.h"

#define RECONNECT_US       1000000u
#define CONNECT_TIMEOUT_US 5000000u
#define DEADLINE_GRACE_MS  1000u /* the daemon may still say so itself */
#define CANCEL_GRACE_US    3000000u
#define BURST              256 /* replies before the other sources have their turn */

enum connection {
    CLOSED,
    CONNECTING, /* calls are handed to the socket already; it sends them when it can */
    CONNECTED,
};

struct call {
    struct list_node link; /* in hub.fresh */
    struct htab_node by_id;
    uint64_t id;
    enum method_id method;
    char tenant[HUB_TENANT_BYTES];
    struct wire_buffer payload;
    uint32_t timeout_ms;
    uint64_t give_up_us; /* 0: never */
    uint32_t next_seq;
    bool is_cancelled;
    struct retry retry;
    size_t kept_bytes; /* of the payload, while it is kept for a retry */
    hub_reply_fn on_reply;
    void *opaque;
};

struct cancel {
    struct list_node link;
    uint64_t id;
};

struct hub {
    struct hub_config config;
    pthread_t thread;
    int wake_fd;
    atomic_uint_fast64_t last_id;
    atomic_bool must_stop;
    atomic_bool is_connected;

    pthread_mutex_t lock;
    struct list_node fresh;   /* struct call */
    struct list_node cancels; /* struct cancel */

    struct watches watches;

    /* The thread's own. */
    struct dealer dealer;
    enum connection connection;
    bool has_told;          /* in the log, that there is no connection */
    uint64_t connect_by_us; /* CONNECTING: to be through; CLOSED: not to be tried before */
    struct htab calls;
    size_t kept_bytes; /* sum over them */
    struct wire_arena *header_arena;
    struct wire_arena *arena;
};

static bool
call_is(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, struct call, by_id)->id == *(const uint64_t *)key;
}

static void
call_destroy(struct call *call)
{
    wire_buffer_deinit(&call->payload);
    retry_deinit(&call->retry);
    mem_free(call);
}

static void
wake(struct hub *hub)
{
    uint64_t one = 1;

    /* Full means that a wake-up is already on its way. */
    if (write(hub->wake_fd, &one, sizeof(one)) < 0) {
        return;
    }
}

/* ---- ends of calls --------------------------------------------------------------------------- */

static void
end_call(struct hub *hub, struct call *call, const struct hub_reply *reply)
{
    htab_remove(&hub->calls, &call->by_id);
    hub->kept_bytes -= call->kept_bytes;
    call->on_reply(call->opaque, reply);
    call_destroy(call);
}

static void
fail_call(struct hub *hub, struct call *call, uint32_t code, const char *detail)
{
    struct hub_reply reply = {
        .code = code,
        .detail = detail,
        .retry_after_ms = code == RPC_UNAVAILABLE ? 1000 : 0,
        .is_last = true,
    };

    end_call(hub, call, &reply);
}

/* Calls that have been sent and will not be answered; the others wait for their next attempt. */
static void
fail_all(struct hub *hub, bool was_lost, const char *detail)
{
    uint64_t now_us = clock_now_us();
    struct htab_node *next;

    for (struct htab_node *node = htab_next(&hub->calls, NULL); node != NULL; node = next) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        next = htab_next(&hub->calls, node);
        if (call->retry.at_us == 0
            && (call->is_cancelled
                || !retry_may(&call->retry, was_lost, RPC_UNAVAILABLE, now_us))) {
            fail_call(hub, call, RPC_UNAVAILABLE, detail);
        }
    }
}

static void
end_all(struct hub *hub, const char *detail)
{
    struct htab_node *node;

    while ((node = htab_next(&hub->calls, NULL)) != NULL) {
        fail_call(hub, HTAB_ENTRY(node, struct call, by_id), RPC_UNAVAILABLE, detail);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

/* The last error of this thread says why.  `is_gone`: kvasird, and not our patience with it. */
static void
lose_connection(struct hub *hub, bool is_gone)
{
    char detail[256];
    bool was_connected = hub->connection == CONNECTED;

    (void)snprintf(detail, sizeof(detail), "%s%s", is_gone ? "" : "bad reply: ", status_detail());
    dealer_close(&hub->dealer);
    hub->connection = CLOSED;
    hub->connect_by_us = clock_now_us() + RECONNECT_US;
    atomic_store(&hub->is_connected, false);
    if (!hub->has_told) {
        log_warn(was_connected ? "daemon_lost" : "daemon_unreachable", "detail=\"%s\" calls=%zu",
                 detail, hub->calls.count);
    }
    hub->has_told = true;
    if (was_connected) {
        hub->config.on_connection(hub->config.opaque, hub, false);
    }
    fail_all(hub, was_connected && is_gone, detail);
}

static enum status
require_socket(struct hub *hub)
{
    if (hub->connection != CLOSED) {
        return ST_OK;
    }
    TRY(dealer_open(&hub->dealer));
    hub->connection = CONNECTING;
    hub->connect_by_us = clock_now_us() + CONNECT_TIMEOUT_US;
    return ST_OK;
}

/* Without room for it the call may not be sent a second time. */
static void
keep_for_retry(struct hub *hub, struct call *call)
{
    size_t bytes = call->payload.capacity;

    if (call->kept_bytes > 0 || !call->retry.is_on) {
        return;
    }
    call->retry.is_on = hub->kept_bytes + bytes <= hub->config.retry_bytes_max;
    if (call->retry.is_on) {
        call->kept_bytes = bytes;
        hub->kept_bytes += bytes;
    }
}

static void
send_call(struct hub *hub, struct call *call)
{
    const struct method *method = method_get(call->method);
    struct dealer_header more = {.tenant = call->tenant[0] == '\0' ? NULL : call->tenant};
    enum status st = require_socket(hub);

    keep_for_retry(hub, call);
    if (call->retry.is_on) {
        more.retry_key = call->retry.resume.key;
        more.retry_key_length = sizeof(call->retry.resume.key);
    }
    if (st == ST_OK) {
        st = dealer_send_with(&hub->dealer, method->path, call->id, call->timeout_ms, &more,
                              call->payload.bytes, call->payload.length);
    }
    if (!call->retry.is_on) {
        wire_buffer_deinit(&call->payload);
    }
    if (st == ST_UNAVAILABLE && retry_may(&call->retry, false, RPC_UNAVAILABLE, clock_now_us())) {
        return; /* the socket takes no more now, and it is not the first attempt: later */
    }
    if (st != ST_OK) {
        fail_call(hub, call, rpc_code_of(st), status_detail());
    }
}

/* The next attempts that are due, with what is left of their time.  When the next one is. */
static uint64_t
send_again(struct hub *hub, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;
    struct htab_node *next;

    for (struct htab_node *node = htab_next(&hub->calls, NULL); node != NULL; node = next) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        next = htab_next(&hub->calls, node);
        if (call->retry.at_us > now_us) {
            next_us = call->retry.at_us < next_us ? call->retry.at_us : next_us;
        } else if (call->retry.at_us != 0) {
            if (call->give_up_us != 0) {
                uint64_t end_us = call->give_up_us - DEADLINE_GRACE_MS * 1000;

                call->timeout_ms =
                    end_us > now_us + 1000 ? (uint32_t)((end_us - now_us) / 1000) : 1;
            }
            call->next_seq = 0;
            if (retry_prepare(&call->retry, &call->payload) == ST_OK) {
                send_call(hub, call);
            } else {
                fail_call(hub, call, RPC_RESOURCE_EXHAUSTED, status_detail());
            }
        }
    }
    return next_us;
}

static void
send_cancel(struct hub *hub, struct call *call)
{
    Kvasir__V1__CancelRequest cancel = KVASIR__V1__CANCEL_REQUEST__INIT;
    struct wire_buffer payload = {0};
    uint64_t give_up_us = clock_now_us() + CANCEL_GRACE_US;

    if (call->is_cancelled) {
        return;
    }
    call->is_cancelled = true;
    if (call->retry.at_us != 0) { /* no kvasird has it now; it ends with the next tick */
        call->retry.at_us = 0;
        call->give_up_us = 1;
        return;
    }
    call->give_up_us =
        call->give_up_us == 0 || call->give_up_us > give_up_us ? give_up_us : call->give_up_us;
    cancel.has_request_id = true;
    cancel.request_id = call->id;
    /* If it cannot be sent, the call ends by its grace or by the loss of the connection. */
    if (wire_pack(&payload, &cancel.base) == ST_OK) {
        (void)dealer_send(&hub->dealer, method_get(METHOD_CANCEL)->path,
                          atomic_fetch_add(&hub->last_id, 1) + 1, 0, payload.bytes, payload.length);
    }
    wire_buffer_deinit(&payload);
}

/* ---- replies --------------------------------------------------------------------------------- */

static enum status
take_payload(struct hub *hub, const struct call *call, struct frames *frames,
             struct hub_reply *reply)
{
    const void *bytes = frames->count > 1 ? frames_bytes(frames, 1) : NULL;
    size_t length = frames->count > 1 ? frames_length(frames, 1) : 0;

    wire_arena_reset(hub->arena);
    return wire_unpack(hub->arena, method_get(call->method)->reply, bytes, length,
                       WIRE_CLIENT_BYTES_MAX, &reply->message);
}

static enum status
take_reply(struct hub *hub, struct frames *frames)
{
    const ProtobufCMessage *message;
    struct hub_reply reply = {0};

    wire_arena_reset(hub->header_arena);
    TRY(wire_unpack(hub->header_arena, &kvasir__v1__reply_header__descriptor,
                    frames_bytes(frames, 0), frames_length(frames, 0), WIRE_HEADER_BYTES_MAX,
                    &message));
    const Kvasir__V1__ReplyHeader *header = (const void *)message;
    struct htab_node *node =
        htab_find(&hub->calls, htab_mix(header->request_id), &header->request_id);

    if (node == NULL) {
        return ST_OK; /* the answer to a Cancel, or of a call that was given up */
    }
    struct call *call = HTAB_ENTRY(node, struct call, by_id);

    if (header->has_seq && header->seq != call->next_seq++) {
        return ERR(ST_INVALID, "reply %u came instead of %u", header->seq, call->next_seq - 1);
    }
    if (header->status == RPC_OK) {
        TRY(take_payload(hub, call, frames, &reply));
    }
    reply.code = header->status;
    reply.detail = header->message == NULL ? "" : header->message;
    reply.retry_after_ms = header->retry_after_ms;
    reply.is_last = header->status != RPC_OK || !header->more;
    if (reply.message != NULL && call->retry.is_on) {
        retry_take(&call->retry, (const Kvasir__V1__GenerateReply *)reply.message);
    }
    if (reply.is_last && !call->is_cancelled
        && retry_may(&call->retry, false, reply.code, clock_now_us())) {
        return ST_OK;
    }
    if (reply.is_last) {
        end_call(hub, call, &reply);
    } else {
        call->on_reply(call->opaque, &reply);
    }
    return ST_OK;
}

/* Takes what waits, at most BURST; returns whether there may be more.  What cannot be understood
 * costs the connection. */
static bool
receive(struct hub *hub)
{
    struct frames frames;

    for (int i = 0; i < BURST && hub->connection != CLOSED; i++) {
        enum status st = frames_recv(hub->dealer.socket, &frames);

        if (st == ST_UNAVAILABLE) {
            return false;
        }
        if (st == ST_OK) {
            st = take_reply(hub, &frames);
            frames_close(&frames);
        }
        if (st != ST_OK) {
            lose_connection(hub, false);
        }
    }
    return hub->connection != CLOSED;
}

/* What is waiting is read before a loss is believed: the daemon may have answered and gone. */
static void
take_events(struct hub *hub)
{
    while (hub->connection != CLOSED) {
        int event = dealer_next_event(&hub->dealer);

        if (event == 0) {
            return;
        }
        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            hub->connection = CONNECTED;
            atomic_store(&hub->is_connected, true);
            hub->has_told = false;
            log_info("daemon_connected", "url=%s", hub->dealer.url);
            hub->config.on_connection(hub->config.opaque, hub, true);
        } else if (event != ZMQ_EVENT_CONNECTED) {
            while (receive(hub)) {
            }
            if (hub->connection != CLOSED) {
                (void)dealer_unreachable(&hub->dealer);
                lose_connection(hub, true);
            }
        }
    }
}

/* ---- what other threads left ----------------------------------------------------------------- */

static void
take_calls(struct hub *hub)
{
    struct list_node fresh, cancels;

    list_init(&fresh);
    list_init(&cancels);
    (void)pthread_mutex_lock(&hub->lock);
    list_move_all(&hub->fresh, &fresh);
    list_move_all(&hub->cancels, &cancels);
    (void)pthread_mutex_unlock(&hub->lock);
    LIST_FOR_EACH_SAFE(node, &fresh)
    {
        struct call *call = LIST_ENTRY(node, struct call, link);

        list_unlink(node);
        if (call->timeout_ms != 0) {
            call->give_up_us =
                clock_now_us() + ((uint64_t)call->timeout_ms + DEADLINE_GRACE_MS) * 1000;
        }
        if (htab_insert(&hub->calls, htab_mix(call->id), &call->by_id) != ST_OK) {
            struct hub_reply reply = {
                .code = RPC_RESOURCE_EXHAUSTED, .detail = "no memory for a call", .is_last = true};

            call->on_reply(call->opaque, &reply);
            call_destroy(call);
            continue;
        }
        send_call(hub, call);
    }
    LIST_FOR_EACH_SAFE(node, &cancels)
    {
        struct cancel *cancel = LIST_ENTRY(node, struct cancel, link);
        struct htab_node *found = htab_find(&hub->calls, htab_mix(cancel->id), &cancel->id);

        list_unlink(node);
        if (found != NULL) {
            send_cancel(hub, HTAB_ENTRY(found, struct call, by_id));
        }
        mem_free(cancel);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

/* A call that is over its time ends here, one a look, since ends change the table. */
static struct call *
find_late(struct hub *hub, uint64_t now_us)
{
    for (struct htab_node *node = htab_next(&hub->calls, NULL); node != NULL;
         node = htab_next(&hub->calls, node)) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        if (call->give_up_us != 0 && call->give_up_us <= now_us) {
            return call;
        }
    }
    return NULL;
}

static void
tick(struct hub *hub, uint64_t now_us)
{
    struct call *late;

    while ((late = find_late(hub, now_us)) != NULL) {
        if (late->is_cancelled) {
            fail_call(hub, late, RPC_CANCELLED, "cancelled; kvasird did not confirm it");
        } else {
            send_cancel(hub, late);
            fail_call(hub, late, RPC_DEADLINE_EXCEEDED, "the deadline passed");
        }
    }
    if (hub->connection == CONNECTING && hub->connect_by_us <= now_us) {
        (void)ERR(ST_UNAVAILABLE, "kvasird does not answer");
        lose_connection(hub, true);
    } else if (hub->connection == CLOSED && hub->connect_by_us <= now_us
               && require_socket(hub) != ST_OK) {
        hub->connect_by_us = now_us + RECONNECT_US;
    }
    watches_tick(&hub->watches, now_us);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void
wait_for_work(struct hub *hub, uint64_t now_us, uint64_t next_tick_us)
{
    zmq_pollitem_t items[] = {
        {.fd = hub->wake_fd, .events = ZMQ_POLLIN},
        {.fd = hub->watches.epoll_fd, .events = ZMQ_POLLIN},
        {.socket = hub->dealer.socket, .events = ZMQ_POLLIN},
        {.socket = hub->dealer.monitor, .events = ZMQ_POLLIN},
    };
    long wait_ms = next_tick_us > now_us ? (long)((next_tick_us - now_us + 999) / 1000) : 0;
    uint64_t count;

    (void)zmq_poll(items, hub->connection == CLOSED ? 2 : 4, wait_ms);
    if ((items[0].revents & ZMQ_POLLIN) != 0 && read(hub->wake_fd, &count, sizeof(count)) < 0) {
        return; /* taken already */
    }
}

static void *
run(void *opaque)
{
    struct hub *hub = opaque;
    uint64_t next_tick_us = 0;

    while (!atomic_load(&hub->must_stop)) {
        uint64_t now_us = clock_now_us();

        if (now_us >= next_tick_us) {
            tick(hub, now_us);
            next_tick_us = now_us + HUB_TICK_MS * 1000u;
        }
        uint64_t again_us = send_again(hub, now_us);

        wait_for_work(hub, now_us, again_us < next_tick_us ? again_us : next_tick_us);
        watches_take_hangups(&hub->watches);
        take_calls(hub);
        (void)receive(hub);
        take_events(hub);
    }
    take_calls(hub);
    dealer_close(&hub->dealer);
    hub->connection = CLOSED;
    end_all(hub, "the gateway stops");
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void
free_parts(struct hub *hub)
{
    if (hub->wake_fd >= 0) {
        (void)close(hub->wake_fd);
    }
    watches_deinit(&hub->watches);
    dealer_deinit(&hub->dealer);
    htab_deinit(&hub->calls);
    wire_arena_destroy(&hub->header_arena);
    wire_arena_destroy(&hub->arena);
    (void)pthread_mutex_destroy(&hub->lock);
    mem_free(hub);
}

static enum status
make_parts(struct hub *hub)
{
    int error;

    TRY(dealer_init(&hub->dealer, hub->config.url));
    hub->config.url = hub->dealer.url;
    TRY(htab_init(&hub->calls, call_is));
    TRY(wire_arena_new(&hub->header_arena));
    TRY(wire_arena_new(&hub->arena));
    hub->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (hub->wake_fd < 0) {
        return ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
    }
    TRY(watches_open(&hub->watches));
    error = pthread_create(&hub->thread, NULL, run, hub);
    return error == 0 ? ST_OK : ERR(ST_SYSTEM, "pthread_create: %s", strerror(error));
}

enum status
hub_new(const struct hub_config *config, struct hub **hub_out)
{
    struct hub *hub = mem_zalloc(1, sizeof(*hub));

    if (hub == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the hub");
    }
    hub->config = *config;
    hub->wake_fd = -1;
    watches_init(&hub->watches);
    (void)pthread_mutex_init(&hub->lock, NULL);
    list_init(&hub->fresh);
    list_init(&hub->cancels);
    enum status st = make_parts(hub);

    if (st != ST_OK) {
        free_parts(hub);
        return st;
    }
    *hub_out = hub;
    return ST_OK;
}

void
hub_destroy(struct hub **hub)
{
    if (*hub == NULL) {
        return;
    }
    atomic_store(&(*hub)->must_stop, true);
    wake(*hub);
    (void)pthread_join((*hub)->thread, NULL);
    free_parts(*hub);
    *hub = NULL;
}

enum status
hub_call(struct hub *hub, const struct hub_call *from, uint64_t *id_out)
{
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;
    struct call *call = mem_zalloc(1, sizeof(*call));
    enum status st;

    if (call == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a call");
    }
    st = wire_pack(&call->payload, from->request == NULL ? &empty.base : from->request);
    if (st == ST_OK && from->method == METHOD_GENERATE && from->request != NULL) {
        st = retry_begin(&call->retry, hub->config.retry_ms,
                         (const Kvasir__V1__GenerateRequest *)from->request, &call->payload);
    }
    if (st == ST_OK && call->payload.length > WIRE_CLIENT_BYTES_MAX) {
        st = ERR(ST_INVALID, "request of %zu bytes: at most %u are taken", call->payload.length,
                 WIRE_CLIENT_BYTES_MAX);
    }
    if (st != ST_OK) {
        call_destroy(call);
        return st;
    }
    call->id = atomic_fetch_add(&hub->last_id, 1) + 1;
    call->method = from->method;
    (void)snprintf(call->tenant, sizeof(call->tenant), "%s",
                   from->tenant == NULL ? "" : from->tenant);
    call->timeout_ms = from->timeout_ms;
    call->on_reply = from->on_reply;
    call->opaque = from->opaque;
    *id_out = call->id;
    (void)pthread_mutex_lock(&hub->lock);
    list_push_back(&hub->fresh, &call->link);
    (void)pthread_mutex_unlock(&hub->lock);
    wake(hub);
    return ST_OK;
}

/* Without memory for it the call just goes on: nobody reads it, but it ends. */
void
hub_cancel(struct hub *hub, uint64_t id)
{
    struct cancel *cancel = mem_zalloc(1, sizeof(*cancel));

    if (cancel == NULL) {
        return;
    }
    cancel->id = id;
    (void)pthread_mutex_lock(&hub->lock);
    list_push_back(&hub->cancels, &cancel->link);
    (void)pthread_mutex_unlock(&hub->lock);
    wake(hub);
}

bool
hub_is_connected(struct hub *hub)
{
    return atomic_load(&hub->is_connected);
}

enum status
hub_watch(struct hub *hub, struct hub_watch *watch)
{
    return watches_add(&hub->watches, watch);
}

void
hub_unwatch(struct hub *hub, struct hub_watch *watch)
{
    watches_remove(&hub->watches, watch);
}

void
hub_hang_up_all(struct hub *hub)
{
    watches_hang_up_all(&hub->watches);
}
