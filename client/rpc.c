/* SPDX-License-Identifier: Apache-2.0 */
/* One poll loop a call over three things: the DEALER, its monitor, and an eventfd for cancels.
 * Replies of abandoned calls on a living socket are known by their request id. */
#include "client/rpc.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <zmq.h>

#include "client/dealer.h"
#include "common/clock.h"
#include "common/mem.h"
#include "kvasir/v1/wire.pb-c.h"
#include "proto/frames.h"

#define RPC_MESSAGE_BYTES 512

struct rpc {
    struct dealer dealer;
    int cancel_fd;
    uint64_t last_id;
    uint32_t retry_after_ms;
    bool was_lost;
    bool was_refused; /* our key is nobody's */
    char message[RPC_MESSAGE_BYTES];
    struct wire_arena *header_arena;
    struct wire_arena *arena;
};

/* State of the running call. */
struct running {
    const struct rpc_call *call;
    uint64_t id;
    uint64_t give_up_us; /* 0: never */
    uint64_t busy_until_us;
    uint32_t next_seq;
    bool is_cancelled;
    bool is_refused; /* on_reply wants no more */
    bool is_ended;
    enum rpc_code code;
    const ProtobufCMessage *last;
};

/* ---- connecting ------------------------------------------------------------------------------ */

/* Waits for the handshake.  The first refusal counts: nobody listens. */
static enum status
wait_connected(struct rpc *rpc)
{
    uint64_t deadline_us = clock_now_us() + RPC_CONNECT_TIMEOUT_MS * 1000u;

    for (;;) {
        uint64_t now_us = clock_now_us();
        zmq_pollitem_t item = {.socket = rpc->dealer.monitor, .events = ZMQ_POLLIN};

        if (now_us >= deadline_us) {
            return ERR(ST_UNAVAILABLE, "no answer from %s within %d ms", rpc->dealer.url,
                       RPC_CONNECT_TIMEOUT_MS);
        }
        (void)zmq_poll(&item, 1, (long)((deadline_us - now_us + 999) / 1000));
        int event = dealer_next_event(&rpc->dealer);

        if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            return ST_OK;
        }
        if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
            rpc->was_refused = true;
            return ERR(ST_UNAVAILABLE, "kvasird at %s does not know our key", rpc->dealer.url);
        }
        if (event != 0 && event != ZMQ_EVENT_CONNECTED) {
            return dealer_unreachable(&rpc->dealer);
        }
    }
}

static enum status
require_connection(struct rpc *rpc)
{
    enum status st = ST_OK;

    if (rpc->dealer.socket != NULL
        && (dealer_has_hung_up(&rpc->dealer) || dealer_next_event(&rpc->dealer) != 0)) {
        dealer_close(&rpc->dealer); /* lost since the last call */
    }
    rpc->was_refused = false;
    if (rpc->dealer.socket == NULL) {
        st = dealer_open(&rpc->dealer);
        st = st != ST_OK ? st : wait_connected(rpc);
    }
    if (st != ST_OK) {
        dealer_close(&rpc->dealer);
    }
    return st;
}

enum status
rpc_open(const char *url, struct rpc **rpc_out)
{
    enum status st = ST_NO_MEMORY;
    struct rpc *rpc = mem_zalloc(1, sizeof(*rpc));

    if (rpc == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a connection");
    }
    rpc->cancel_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (rpc->cancel_fd < 0) {
        st = ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
        goto fail;
    }
    st = dealer_init(&rpc->dealer, url);
    if (st != ST_OK) {
        goto fail;
    }
    st = wire_arena_new(&rpc->header_arena);
    if (st != ST_OK) {
        goto fail;
    }
    st = wire_arena_new(&rpc->arena);
    if (st != ST_OK) {
        goto fail;
    }
    *rpc_out = rpc;
    return ST_OK;

fail:
    rpc_close(&rpc);
    return st;
}

enum status
rpc_use_keys(struct rpc *rpc, const char *server_key, const char *secret_file)
{
    return dealer_use_keys(&rpc->dealer, server_key, secret_file);
}

void
rpc_close(struct rpc **rpc)
{
    struct rpc *old = *rpc;

    if (old == NULL) {
        return;
    }
    dealer_deinit(&old->dealer);
    if (old->cancel_fd >= 0) {
        (void)close(old->cancel_fd);
    }
    wire_arena_destroy(&old->header_arena);
    wire_arena_destroy(&old->arena);
    MEM_FREE(*rpc);
}

/* ---- one call -------------------------------------------------------------------------------- */

static void
set_message(struct rpc *rpc, const char *text)
{
    (void)snprintf(rpc->message, sizeof(rpc->message), "%s", text);
}

/* Ends the call for a reason found on this side. */
static void
end_here(struct rpc *rpc, struct running *run, enum rpc_code code)
{
    run->is_ended = true;
    run->code = code;
    set_message(rpc, status_detail());
}

static enum status
send_request(struct rpc *rpc, const struct rpc_call *call, uint64_t id)
{
    const struct method *method = method_get(call->method);
    const ProtobufCMessage *request = call->request;
    Kvasir__V1__Empty empty = KVASIR__V1__EMPTY__INIT;

    assert(request == NULL || request->descriptor == method->request);
    struct dealer_header more = {.retry_key = call->retry_key,
                                 .retry_key_length = call->retry_key_bytes};

    return dealer_send_message(&rpc->dealer, method->path, id, call->timeout_ms, &more,
                               request == NULL ? &empty.base : request);
}

static void
send_cancel(struct rpc *rpc, struct running *run)
{
    Kvasir__V1__CancelRequest cancel = KVASIR__V1__CANCEL_REQUEST__INIT;
    uint64_t give_up_us = clock_now_us() + RPC_CANCEL_GRACE_MS * 1000u;

    if (run->is_cancelled) {
        return;
    }
    run->is_cancelled = true;
    run->give_up_us =
        run->give_up_us == 0 || run->give_up_us > give_up_us ? give_up_us : run->give_up_us;
    cancel.has_request_id = true;
    cancel.request_id = run->id;
    /* If it cannot be sent, the call ends by its grace or by the loss that the monitor reports. */
    (void)send_request(rpc, &(struct rpc_call){.method = METHOD_CANCEL, .request = &cancel.base},
                       ++rpc->last_id);
}

/* Takes a reply's payload; a missing one is an empty message. */
static enum status
take_payload(struct rpc *rpc, struct running *run, struct frames *frames, bool is_last)
{
    const struct method *method = method_get(run->call->method);
    const void *bytes = frames->count > 1 ? frames_bytes(frames, 1) : NULL;
    size_t length = frames->count > 1 ? frames_length(frames, 1) : 0;
    const ProtobufCMessage *reply;

    wire_arena_reset(rpc->arena);
    TRY(wire_unpack(rpc->arena, method->reply, bytes, length, WIRE_CLIENT_BYTES_MAX, &reply));
    run->last = is_last ? reply : NULL;
    if (run->call->on_reply != NULL && (is_last || !run->is_refused)
        && !run->call->on_reply(run->call->opaque, reply) && !is_last) {
        run->is_refused = true;
        send_cancel(rpc, run);
    }
    return ST_OK;
}

static enum status
take_reply(struct rpc *rpc, struct running *run, struct frames *frames)
{
    const ProtobufCMessage *message;

    if (frames->count > 2) {
        return ERR(ST_INVALID, "reply of %zu frames: at most 2 are taken", frames->count);
    }
    wire_arena_reset(rpc->header_arena);
    TRY(wire_unpack(rpc->header_arena, &kvasir__v1__reply_header__descriptor,
                    frames_bytes(frames, 0), frames_length(frames, 0), WIRE_HEADER_BYTES_MAX,
                    &message));
    const Kvasir__V1__ReplyHeader *header = (const void *)message;

    if (header->request_id != run->id) {
        return ST_OK; /* of an abandoned call, or the answer to our Cancel */
    }
    if (header->has_seq && header->seq != run->next_seq++) {
        return ERR(ST_INVALID, "reply %u came instead of %u", header->seq, run->next_seq - 1);
    }
    if (header->status == RPC_OK) {
        TRY(take_payload(rpc, run, frames, !header->more));
    }
    if (header->status != RPC_OK || !header->more) {
        run->is_ended = true;
        run->code = header->status;
        rpc->retry_after_ms = header->retry_after_ms;
        set_message(rpc, header->message == NULL ? "" : header->message);
    }
    return ST_OK;
}

/* Takes one message; false if none waits. */
static bool
receive_one(struct rpc *rpc, struct running *run)
{
    struct frames frames;
    enum status st = frames_recv(rpc->dealer.socket, &frames);

    if (st == ST_UNAVAILABLE) {
        return false;
    }
    if (st == ST_OK) {
        st = take_reply(rpc, run, &frames);
        frames_close(&frames);
    }
    if (st != ST_OK) {
        (void)ERR(st, "bad reply from kvasird: %s", status_detail());
        end_here(rpc, run, st == ST_NO_MEMORY ? RPC_RESOURCE_EXHAUSTED : RPC_INTERNAL);
        dealer_close(&rpc->dealer);
    }
    return true;
}

/* What is waiting is read before a loss is believed: the daemon may have answered and gone. */
static void
check_loss(struct rpc *rpc, struct running *run)
{
    if (!run->is_ended && dealer_next_event(&rpc->dealer) != 0) {
        while (!run->is_ended && receive_one(rpc, run)) {
        }
        if (!run->is_ended) {
            (void)ERR(ST_UNAVAILABLE, "kvasird at %s is gone", rpc->dealer.url);
            end_here(rpc, run, RPC_UNAVAILABLE);
            rpc->was_lost = true;
        }
        dealer_close(&rpc->dealer);
    }
}

static void
check_time(struct rpc *rpc, struct running *run)
{
    if (run->is_ended || run->give_up_us == 0 || clock_now_us() < run->give_up_us) {
        return;
    }
    if (run->is_cancelled) {
        (void)ERR(ST_TIMEOUT, "cancelled; kvasird did not confirm it within %d ms",
                  RPC_CANCEL_GRACE_MS);
        end_here(rpc, run, RPC_CANCELLED);
        return;
    }
    (void)ERR(ST_TIMEOUT, "no end within %u ms", run->call->timeout_ms);
    end_here(rpc, run, RPC_DEADLINE_EXCEEDED);
    send_cancel(rpc, run);
}

static void
wait_for_end(struct rpc *rpc, struct running *run)
{
    run->busy_until_us = clock_now_us() + run->call->busy_us;
    while (!run->is_ended) {
        zmq_pollitem_t items[] = {
            {.socket = rpc->dealer.socket, .events = ZMQ_POLLIN},
            {.socket = rpc->dealer.monitor, .events = ZMQ_POLLIN},
            {.fd = rpc->cancel_fd, .events = run->is_cancelled ? 0 : ZMQ_POLLIN},
        };
        uint64_t now_us = clock_now_us();
        long wait_ms = run->give_up_us == 0       ? -1
                       : run->give_up_us > now_us ? (long)((run->give_up_us - now_us + 999) / 1000)
                                                  : 0;

        if (now_us < run->busy_until_us) {
            wait_ms = 0;
        }
        (void)zmq_poll(items, 3,
                       wait_ms);     /* EINTR: a signal; the cancel it meant shows next time */
        if (receive_one(rpc, run)) { /* one: a fast stream must not hide a cancel or the time */
            run->busy_until_us = clock_now_us() + run->call->busy_us;
        }
        if (rpc->dealer.socket != NULL) {
            check_loss(rpc, run);
            check_time(rpc, run);
        }
        if (!run->is_ended && (items[2].revents & ZMQ_POLLIN) != 0) {
            send_cancel(rpc, run);
        }
    }
}

enum rpc_code
rpc_call(struct rpc *rpc, const struct rpc_call *call, const ProtobufCMessage **reply_out)
{
    struct running run = {.call = call, .id = ++rpc->last_id};

    rpc->retry_after_ms = 0;
    rpc->was_lost = false;
    set_message(rpc, "");
    enum status st = require_connection(rpc);

    if (call->timeout_ms != 0) {
        run.give_up_us =
            clock_now_us() + ((uint64_t)call->timeout_ms + RPC_DEADLINE_GRACE_MS) * 1000u;
    }
    st = st != ST_OK ? st : send_request(rpc, call, run.id);
    if (st != ST_OK) {
        end_here(rpc, &run, rpc->was_refused ? RPC_UNAUTHENTICATED : rpc_code_of(st));
    }
    wait_for_end(rpc, &run);
    rpc_uncancel(rpc);
    if (run.code == RPC_OK && reply_out != NULL) {
        *reply_out = run.last;
    }
    return run.code;
}

const char *
rpc_message(const struct rpc *rpc)
{
    return rpc->message;
}

uint32_t
rpc_retry_after_ms(const struct rpc *rpc)
{
    return rpc->retry_after_ms;
}

bool
rpc_was_lost(const struct rpc *rpc)
{
    return rpc->was_lost;
}

bool
rpc_pause(struct rpc *rpc, uint32_t ms)
{
    struct pollfd fd = {.fd = rpc->cancel_fd, .events = POLLIN};

    if (poll(&fd, 1, (int)ms) <= 0) {
        return true;
    }
    rpc_uncancel(rpc);
    return false;
}

void
rpc_cancel(struct rpc *rpc)
{
    uint64_t one = 1;
    int saved = errno; /* a signal handler must leave it */

    /* Full means that a cancel is already waiting. */
    if (write(rpc->cancel_fd, &one, sizeof(one)) < 0) {
        errno = saved;
    }
}

void
rpc_uncancel(struct rpc *rpc)
{
    uint64_t count;

    if (read(rpc->cancel_fd, &count, sizeof(count)) < 0) {
        return; /* none was waiting */
    }
}
