/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/link.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <zmq.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/notify.h"
#include "proto/frames.h"
#include "worker/mailbox.h"

#define LIVENESS      5    /* heartbeats that may be missed before the other side counts as lost */
#define SOCKET_HWM    1000 /* messages each way */
#define BYE_LINGER_MS 500
#define REJOIN_MS     50 /* between two looks for a next kvasird */

struct link {
    struct attachment *attachment;
    struct engine *engine;
    struct mailbox *mailbox;
    void *context;
    void *socket;
    struct wire_buffer buffer; /* the link's own messages: Ready, heartbeats, Bye */
    uint64_t heard_us;         /* when kvasird last said something */
    uint64_t busy_us;          /* how long to look out without sleeping, */
    uint64_t busy_until_us;    /* and until when now */
    atomic_ullong assign_us;   /* when it last assigned something; of both threads */
    uint64_t beat_us;          /* when we last did */
    uint64_t looked_us;        /* when a turn last looked how late it is */
    bool is_draining;
    bool is_fenced;
    bool is_orphan; /* kvasird is gone or hung; there is no socket then */
    uint64_t orphan_since_us, rejoin_at_us;
    uint64_t step_seen, step_since_us; /* the step that runs, and when it was first seen to */
};

/* --- the engine thread --------------------------------------------------------------- */

/* Takes in what has come; waits for something if the last step had nothing to do.  *stop_since_out
 * is how many steps there had been when the first Stop or StopBuild of these messages came. */
static enum status
take_messages(struct link *link, bool is_idle, uint64_t *stop_since_out)
{
    if (is_idle) {
        mailbox_spin(link->mailbox, link->busy_us);
    }
    const Kvasir__V1__DaemonMessage *message = mailbox_take(link->mailbox, is_idle);

    while (message != NULL) {
        bool is_stop = message->body_case == KVASIR__V1__DAEMON_MESSAGE__BODY_STOP
                       || message->body_case == KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD;
        enum status st = engine_apply(link->engine, message);

        if (message->body_case == KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN) {
            FAILPOINT_VALUE(assign_take, message->assign->request);
        }
        uint64_t since = mailbox_taken(link->mailbox);

        if (is_stop && since < *stop_since_out) {
            *stop_since_out = since;
        }
        if (st != ST_OK) {
            return st;
        }
        message = mailbox_take(link->mailbox, false);
    }
    return ST_OK;
}

static enum status
post_step(struct link *link, Kvasir__V1__Step *step, uint64_t number, uint64_t step_us,
          uint64_t stop_since)
{
    Kvasir__V1__WorkerMessage message = KVASIR__V1__WORKER_MESSAGE__INIT;
    struct wire_buffer *buffer = mailbox_buffer(link->mailbox);

    if (buffer == NULL) {
        return ST_OK; /* closing: nobody listens any more */
    }
    step->has_step = true;
    step->step = number;
    step->has_step_us = true;
    step->step_us = step_us;
    step->has_stop_steps = stop_since < number;
    step->stop_steps = step->has_stop_steps ? (uint32_t)(number - stop_since) : 0;
    message.has_worker = true;
    message.worker = link->attachment->worker;
    message.has_incarnation = true;
    message.incarnation = link->attachment->incarnation;
    message.body_case = KVASIR__V1__WORKER_MESSAGE__BODY_STEP;
    message.step = step;
    TRY(wire_pack(buffer, &message.base));
    FAILPOINT(step_post);
    mailbox_post(link->mailbox);
    return ST_OK;
}

static void *
run_engine(void *arg)
{
    struct link *link = arg;
    enum status st = engine_bind(link->engine);
    uint64_t steps = 0;
    bool is_idle = true;

    while (st == ST_OK && !mailbox_is_closed(link->mailbox)) {
        Kvasir__V1__Step *step = NULL;
        uint64_t stop_since = UINT64_MAX;

        mailbox_set_state(link->mailbox, steps, engine_open(link->engine), false);
        st = take_messages(link, is_idle, &stop_since);
        if (st != ST_OK) {
            break;
        }
        mailbox_set_state(link->mailbox, steps, engine_open(link->engine), true);
        uint64_t assign_us = atomic_load(&link->assign_us);
        uint64_t start_us = clock_now_us();

        st = engine_step(link->engine, &step);
        is_idle = step == NULL && !engine_has_upkeep(link->engine);
        if (st == ST_OK && step != NULL) {
            steps++;
            uint64_t end_us = clock_now_us();
            uint64_t step_us = end_us - start_us;

            step->has_heard_us = step->has_begun_us = step->has_ended_us = true;
            step->heard_us = assign_us;
            step->begun_us = start_us;
            step->ended_us = end_us;

            log_trace("step", "step=%" PRIu64 " rows=%u built=%u elapsed_us=%" PRIu64, steps,
                      step->rows, step->rows_built, step_us);
            st = post_step(link, step, steps, step_us, stop_since);
        }
    }
    mailbox_end(link->mailbox, st, st == ST_OK ? "" : status_detail());
    return NULL;
}

/* --- what the link itself says ------------------------------------------------------- */

static enum status
say(struct link *link, Kvasir__V1__WorkerMessage *message)
{
    message->has_worker = true;
    message->worker = link->attachment->worker;
    message->has_incarnation = true;
    message->incarnation = link->attachment->incarnation;
    TRY(wire_pack(&link->buffer, &message->base));
    link->beat_us = clock_now_us();
    return frames_send(link->socket,
                       &(struct frame){.bytes = link->buffer.bytes, .length = link->buffer.length},
                       1);
}

static enum status
say_ready(struct link *link, uint32_t seqs_max)
{
    Kvasir__V1__WorkerMessage message = KVASIR__V1__WORKER_MESSAGE__INIT;
    Kvasir__V1__Ready ready = KVASIR__V1__READY__INIT;

    ready.has_seqs_max = true;
    ready.seqs_max = seqs_max;
    message.body_case = KVASIR__V1__WORKER_MESSAGE__BODY_READY;
    message.ready = &ready;
    return say(link, &message);
}

static enum status
say_heartbeat(struct link *link)
{
    Kvasir__V1__WorkerMessage message = KVASIR__V1__WORKER_MESSAGE__INIT;
    Kvasir__V1__WorkerHeartbeat heartbeat = KVASIR__V1__WORKER_HEARTBEAT__INIT;
    struct mailbox_state state = mailbox_state(link->mailbox);

    heartbeat.has_steps = true;
    heartbeat.steps = state.steps;
    heartbeat.has_running = true;
    heartbeat.running = state.open;
    heartbeat.has_is_stepping = true;
    heartbeat.is_stepping = state.is_stepping;
    message.body_case = KVASIR__V1__WORKER_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    enum status st = say(link, &message);

    /* A full queue means that kvasird does not read: its silence will tell. */
    return st == ST_UNAVAILABLE ? ST_OK : st;
}

static void
say_bye(struct link *link, const char *reason)
{
    Kvasir__V1__WorkerMessage message = KVASIR__V1__WORKER_MESSAGE__INIT;
    Kvasir__V1__Bye bye = KVASIR__V1__BYE__INIT;
    char text[32];

    (void)snprintf(text, sizeof(text), "%s", reason);
    bye.reason = text;
    message.body_case = KVASIR__V1__WORKER_MESSAGE__BODY_BYE;
    message.bye = &bye;
    if (say(link, &message) != ST_OK) {
        log_warn("bye_unsent", "detail=\"%s\"", status_detail());
    }
    (void)zmq_setsockopt(link->socket, ZMQ_LINGER, &(int){BYE_LINGER_MS}, sizeof(int));
}

/* --- both ways ----------------------------------------------------------------------- */

static enum status
send_steps(struct link *link)
{
    for (;;) {
        const struct wire_buffer *buffer = mailbox_outgoing(link->mailbox);

        if (buffer == NULL) {
            return ST_OK;
        }
        enum status st = frames_send(
            link->socket, &(struct frame){.bytes = buffer->bytes, .length = buffer->length}, 1);

        if (st != ST_OK) {
            return st == ST_UNAVAILABLE ? ST_OK : st; /* when the socket takes more */
        }
        link->beat_us = clock_now_us();
        link->busy_until_us = link->beat_us + link->busy_us;
        mailbox_sent(link->mailbox);
        FAILPOINT(step_send);
    }
}

static void
take_frame(struct link *link, struct wire_arena *arena, struct frames *frames)
{
    const ProtobufCMessage *parsed = NULL;
    enum status st =
        frames->count == 1
            ? wire_unpack(arena, &kvasir__v1__daemon_message__descriptor, frames_bytes(frames, 0),
                          frames_length(frames, 0), WIRE_WORKER_BYTES_MAX, &parsed)
            : ERR(ST_INVALID, "%zu frames where one is due", frames->count);

    if (st != ST_OK) {
        log_warn("message_dropped", "detail=\"%s\"", status_detail());
        wire_arena_reset(arena);
        return;
    }
    const Kvasir__V1__DaemonMessage *message = (const Kvasir__V1__DaemonMessage *)parsed;

    if (message->incarnation != link->attachment->incarnation) {
        log_warn("message_of_another_life", "incarnation=%" PRIu64, message->incarnation);
        wire_arena_reset(arena);
        return;
    }
    link->heard_us = clock_now_us();
    link->busy_until_us = link->heard_us + link->busy_us;
    switch (message->body_case) {
    case KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN:
        atomic_store(&link->assign_us, link->heard_us);
        mailbox_deliver(link->mailbox, message);
        return;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_CHECK:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_PROBE:
    case KVASIR__V1__DAEMON_MESSAGE__BODY_SPILL: mailbox_deliver(link->mailbox, message); return;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_DRAIN: link->is_draining = true; break;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_FENCED: link->is_fenced = true; break;
    default: break; /* a heartbeat, or what a later version says */
    }
    wire_arena_reset(arena);
}

/* Reads until the socket or the mailbox has no more. */
static enum status
receive(struct link *link)
{
    for (;;) {
        struct wire_arena *arena = mailbox_next_arena(link->mailbox);
        struct frames frames;

        if (arena == NULL) {
            return ST_OK; /* what waits in the socket is a sign of life that we do not count yet */
        }
        enum status st = frames_recv(link->socket, &frames);

        if (st == ST_UNAVAILABLE) {
            return ST_OK;
        }
        if (st == ST_INVALID) {
            log_warn("message_dropped", "detail=\"%s\"", status_detail());
            continue;
        }
        if (st != ST_OK) {
            return st;
        }
        take_frame(link, arena, &frames);
        frames_close(&frames);
    }
}

/* --- life ---------------------------------------------------------------------------- */

static void
excuse(uint64_t *since_us, uint64_t now_us, uint64_t late_us)
{
    *since_us = *since_us + late_us < now_us ? *since_us + late_us : now_us;
}

/* A turn takes a heartbeat's period at most.  What a host that stood still for longer, wherever in
 * the turn that was, has kept kvasird from saying, us from hearing and the engine from doing is not
 * held against them. */
static void
excuse_standstill(struct link *link, uint64_t now_us)
{
    uint64_t due_us = link->looked_us + link->attachment->heartbeat_ms * UINT64_C(1000);

    link->looked_us = now_us;
    if (now_us > due_us) {
        excuse(&link->heard_us, now_us, now_us - due_us);
        if (link->step_since_us != 0) {
            excuse(&link->step_since_us, now_us, now_us - due_us);
        }
    }
}

static enum status
wait_events(struct link *link, int stop_fd, bool *must_stop_out, bool *is_daemon_gone_out)
{
    uint64_t period_us = link->attachment->heartbeat_ms * UINT64_C(1000);
    uint64_t now_us = clock_now_us();
    uint64_t due_us = link->beat_us + period_us;
    bool is_busy = now_us < link->busy_until_us;
    long timeout_ms = !is_busy && due_us > now_us ? (long)((due_us - now_us) / 1000 + 1) : 0;
    /* Reading waits while the engine has no room for more. */
    bool can_read = mailbox_next_arena(link->mailbox) != NULL;
    bool has_output = mailbox_outgoing(link->mailbox) != NULL;
    zmq_pollitem_t items[] = {
        {.socket = link->socket,
         .events = (short)((can_read ? ZMQ_POLLIN : 0) | (has_output ? ZMQ_POLLOUT : 0))},
        {.fd = mailbox_fd(link->mailbox), .events = ZMQ_POLLIN},
        {.fd = stop_fd, .events = ZMQ_POLLIN},
        {.fd = link->attachment->daemon_pidfd, .events = ZMQ_POLLIN},
    };
    int count = link->attachment->daemon_pidfd >= 0 ? 4 : 3;

    if (zmq_poll(items, count, timeout_ms) < 0 && errno != EINTR) {
        return ERR(ST_SYSTEM, "zmq_poll: %s", zmq_strerror(errno));
    }
    mailbox_clear_fd(link->mailbox);
    *must_stop_out = items[2].revents != 0;
    *is_daemon_gone_out = count == 4 && items[3].revents != 0;
    return ST_OK;
}

/* --- without a kvasird --------------------------------------------------------------- */

/* The socket goes with it, and with that all that was said and not heard, either way: a next
 * kvasird must not take it for its own. */
static enum status
begin_orphan(struct link *link, const char *why)
{
    if (link->attachment->orphan_timeout_ms == 0) {
        return ERR(ST_UNAVAILABLE, "kvasird is %s", why);
    }
    log_warn("daemon_lost", "worker=%" PRIu32 " reason=%s orphan_timeout_ms=%" PRIu32,
             link->attachment->worker, why, link->attachment->orphan_timeout_ms);
    (void)notify_send("STATUS=waiting for the next kvasird");
    (void)zmq_close(link->socket);
    link->socket = NULL;
    link->is_orphan = true;
    FAILPOINT(orphan);
    link->orphan_since_us = link->rejoin_at_us = clock_now_us();
    return ST_OK;
}

/* What the engine still has of the earlier kvasird goes, after the messages that it has not taken
 * yet; its next report says so. */
static enum status
deliver_reset(struct link *link)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__Reset reset = KVASIR__V1__RESET__INIT;
    const ProtobufCMessage *parsed = NULL;

    reset.has_life = true;
    reset.life = link->attachment->life;
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_RESET;
    message.reset = &reset;
    TRY(wire_pack(&link->buffer, &message.base));
    TRY(wire_unpack(mailbox_next_arena(link->mailbox), &kvasir__v1__daemon_message__descriptor,
                    link->buffer.bytes, link->buffer.length, WIRE_WORKER_BYTES_MAX, &parsed));
    mailbox_deliver(link->mailbox, (const Kvasir__V1__DaemonMessage *)parsed);
    return ST_OK;
}

static enum status connect_socket(struct link *link);

/* Looks for a next kvasird, and goes to it. */
static enum status
rejoin(struct link *link, int stop_fd, uint64_t now_us)
{
    enum status st;

    link->rejoin_at_us = now_us + REJOIN_MS * UINT64_C(1000);
    if (mailbox_next_arena(link->mailbox) == NULL) {
        return ST_OK; /* no room for the Reset yet; the engine makes some */
    }
    st = attach_again(link->attachment, stop_fd,
                      link->orphan_since_us + link->attachment->orphan_timeout_ms * UINT64_C(1000));
    if (st == ST_UNAVAILABLE) {
        return ST_OK;
    }
    TRY(st);
    TRY(connect_socket(link));
    TRY(deliver_reset(link));
    FAILPOINT(rejoin_done);
    link->is_orphan = link->is_draining = link->is_fenced = false;
    link->heard_us = link->looked_us = clock_now_us();
    log_info("worker_back", "worker=%" PRIu32 " orphan_ms=%" PRIu64, link->attachment->worker,
             (clock_now_us() - link->orphan_since_us) / 1000);
    (void)notify_send("STATUS=serving");
    return ST_OK;
}

static enum status
turn_orphan(struct link *link, int stop_fd, bool *is_over_out)
{
    uint64_t now_us = clock_now_us();
    zmq_pollitem_t items[] = {{.fd = mailbox_fd(link->mailbox), .events = ZMQ_POLLIN},
                              {.fd = stop_fd, .events = ZMQ_POLLIN}};
    long timeout_ms =
        link->rejoin_at_us > now_us ? (long)((link->rejoin_at_us - now_us) / 1000 + 1) : 0;

    if (zmq_poll(items, 2, timeout_ms) < 0 && errno != EINTR) {
        return ERR(ST_SYSTEM, "zmq_poll: %s", zmq_strerror(errno));
    }
    mailbox_clear_fd(link->mailbox);
    while (mailbox_outgoing(link->mailbox) != NULL) {
        mailbox_sent(link->mailbox); /* to nobody */
    }
    struct mailbox_state state = mailbox_state(link->mailbox);

    now_us = clock_now_us();
    if (state.is_ended) {
        return ERR(state.status, "engine: %s", state.detail);
    }
    if (items[1].revents != 0) {
        log_info("worker_leaving", "worker=%" PRIu32 " reason=signal", link->attachment->worker);
        *is_over_out = true;
        return ST_OK;
    }
    if (now_us - link->orphan_since_us > link->attachment->orphan_timeout_ms * UINT64_C(1000)) {
        return ERR(ST_UNAVAILABLE, "kvasird is gone, and none came within %" PRIu32 " ms",
                   link->attachment->orphan_timeout_ms);
    }
    return now_us >= link->rejoin_at_us ? rejoin(link, stop_fd, now_us) : ST_OK;
}

/* --- with one ------------------------------------------------------------------------ */

/* The engine's thread is in a kernel or a driver and does not come back, so nobody can wait for it
 * and nothing can be undone.  An engine that waits for its reports to be sent does not hang. */
static void
end_if_hung(struct link *link, const struct mailbox_state *state, uint64_t now_us)
{
    uint64_t limit_us = link->attachment->step_timeout_ms * UINT64_C(1000);
    bool is_stepping = state->is_stepping && mailbox_outgoing(link->mailbox) == NULL;

    if (!is_stepping || link->step_since_us == 0 || state->steps != link->step_seen) {
        link->step_seen = state->steps;
        link->step_since_us = is_stepping ? now_us : 0;
    } else if (limit_us > 0 && now_us - link->step_since_us > limit_us) {
        log_error("step_hung", "worker=%" PRIu32 " steps=%" PRIu64 " elapsed_ms=%" PRIu64,
                  link->attachment->worker, state->steps, (now_us - link->step_since_us) / 1000);
        _exit(EXIT_FAILURE);
    }
}

/* One turn of the loop; *is_over_out with ST_OK is a clean end. */
static enum status
turn(struct link *link, int stop_fd, bool *is_over_out)
{
    uint64_t period_us = link->attachment->heartbeat_ms * UINT64_C(1000);
    bool must_stop = false;
    bool is_daemon_gone = false;

    if (link->is_orphan) {
        return turn_orphan(link, stop_fd, is_over_out);
    }
    TRY(wait_events(link, stop_fd, &must_stop, &is_daemon_gone));
    TRY(receive(link));
    struct mailbox_state state = mailbox_state(link->mailbox);

    TRY(send_steps(link));
    uint64_t now_us = clock_now_us();

    excuse_standstill(link, now_us);
    end_if_hung(link, &state, now_us);
    if (now_us - link->beat_us >= period_us) {
        TRY(say_heartbeat(link));
    }
    if (state.is_ended) {
        return ERR(state.status, "engine: %s", state.detail);
    }
    bool is_drained = link->is_draining && state.is_idle && mailbox_outgoing(link->mailbox) == NULL;

    if (is_daemon_gone && !must_stop && !is_drained) {
        return begin_orphan(link, "gone");
    }
    if (link->is_fenced) {
        return ERR(ST_UNAVAILABLE, "fenced: kvasird has given this worker up");
    }
    if (now_us - link->heard_us > LIVENESS * period_us
        && mailbox_next_arena(link->mailbox) != NULL) {
        return begin_orphan(link, "silent"); /* hung: it will be replaced, or refuse us */
    }
    if (must_stop || is_drained) {
        say_bye(link, must_stop ? "told to stop" : "drained");
        FAILPOINT(detach_bye);
        log_info("worker_leaving", "worker=%u reason=%s", link->attachment->worker,
                 must_stop ? "signal" : "drained");
        *is_over_out = true;
    }
    return ST_OK;
}

static enum status
connect_socket(struct link *link)
{
    char identity[64];
    int length = snprintf(identity, sizeof(identity), "worker-%" PRIu32 "-%" PRIu64,
                          link->attachment->worker, link->attachment->incarnation);

    if (link->context == NULL) {
        link->context = zmq_ctx_new();
    }
    link->socket = link->context == NULL ? NULL : zmq_socket(link->context, ZMQ_DEALER);
    if (link->socket == NULL) {
        return ERR(ST_SYSTEM, "zmq socket: %s", zmq_strerror(errno));
    }
    TRY(frames_configure(link->socket, ZMQ_DEALER, SOCKET_HWM, WIRE_WORKER_BYTES_MAX));
    if (zmq_setsockopt(link->socket, ZMQ_ROUTING_ID, identity, (size_t)length) != 0
        || zmq_connect(link->socket, link->attachment->worker_endpoint) != 0) {
        return ERR(ST_SYSTEM, "connect to %s: %s", link->attachment->worker_endpoint,
                   zmq_strerror(errno));
    }
    return ST_OK;
}

/* Called by the mover's thread. */
static void
nudge(void *arg)
{
    mailbox_nudge(arg);
}

static enum status
serve(struct link *link, uint32_t seqs_max, int stop_fd)
{
    pthread_t thread;
    bool is_over = false;
    enum status st;

    TRY(mailbox_new(&link->mailbox));
    engine_set_wake(link->engine, nudge, link->mailbox);
    TRY(connect_socket(link));
    TRY(say_ready(link, seqs_max));
    FAILPOINT(ready_say);
    if (notify_send("READY=1\nSTATUS=serving") != ST_OK) {
        log_warn("notify_failed", "detail=\"%s\" ignoring", status_detail());
    }
    link->heard_us = link->looked_us = clock_now_us();
    int error = pthread_create(&thread, NULL, run_engine, link);

    if (error != 0) {
        return ERR(ST_SYSTEM, "engine thread: error %d", error);
    }
    do {
        st = turn(link, stop_fd, &is_over);
    } while (st == ST_OK && !is_over);
    (void)notify_send("STOPPING=1");
    mailbox_close(link->mailbox);
    (void)pthread_join(thread, NULL);
    return st;
}

enum status
link_serve(struct attachment *attachment, struct engine *engine, uint32_t seqs_max,
           uint64_t busy_us, int stop_fd)
{
    struct link link = {.attachment = attachment, .engine = engine, .busy_us = busy_us};
    enum status st = serve(&link, seqs_max, stop_fd);

    engine_set_wake(engine, NULL, NULL);
    if (link.socket != NULL) {
        (void)zmq_close(link.socket);
    }
    if (link.context != NULL) {
        (void)zmq_ctx_term(link.context);
    }
    mailbox_destroy(&link.mailbox);
    wire_buffer_deinit(&link.buffer);
    return st;
}
