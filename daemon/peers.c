/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/kvasird.h"
#include "daemon/trace.h"

#include "kvasir/v1/worker.pb-c.h"

const char *
peers_state_name(enum peer_state state)
{
    static const char *const names[] = {"gone",      "expected", "returning",
                                        "attaching", "ready",    "silent"};

    return names[state];
}

void
peers_attached(struct kvasird *d, const struct handoff_event *event)
{
    struct peer_link *peer = &d->peers[event->worker];
    enum status st;

    adopt_new_pool(d, event);
    st = sched_set_pool(d->sched, event->block_count);

    assert(event->worker < SCHED_WORKERS_MAX && peer->state == PEER_FREE);
    if (st != ST_OK) { /* its first arena stays, so a later one of another size is an odd worker */
        log_error("worker_refused", "worker=%u status=%s detail=\"%s\"", event->worker,
                  status_name(st), status_detail());
    }
    *peer = (struct peer_link){
        .state = st == ST_OK ? PEER_ATTACHED : PEER_SILENT,
        .incarnation = event->incarnation,
        .pid = event->pid,
        .pidfd = event->pidfd,
        .heard_us = clock_now_us(),
    };
    (void)snprintf(peer->device, sizeof(peer->device), "%s", event->device);
    adopt_note_worker(d, event);
    log_info("worker_attached", "worker=%u incarnation=%llu pid=%d device=%s blocks=%u",
             event->worker, (unsigned long long)event->incarnation, event->pid, event->device,
             event->block_count);
}

void
peers_expect(struct kvasird *d, uint32_t worker, const struct catalog_worker *noted, int pidfd)
{
    d->peers[worker] = (struct peer_link){
        .state = PEER_EXPECTED,
        .incarnation = noted->incarnation,
        .pid = (int)noted->pid,
        .pidfd = pidfd,
        .seqs_max = noted->seqs_max,
        .heard_us = clock_now_us(),
    };
}

void
peers_rejoined(struct kvasird *d, const struct handoff_event *event)
{
    struct peer_link *peer = &d->peers[event->worker];

    (void)close(event->pidfd); /* we have one */
    assert(peer->incarnation == event->incarnation);
    peer->state = PEER_RETURNING;
    peer->seqs_max = event->seqs_max;
    peer->maps_host = event->maps_host;
    (void)snprintf(peer->device, sizeof(peer->device), "%s", event->device);
    log_info("worker_back", "worker=%u incarnation=%llu pid=%d", event->worker,
             (unsigned long long)event->incarnation, event->pid);
}

/* --- to workers ------------------------------------------------------------------------------- */

void
peers_send(struct kvasird *d, uint32_t worker, uint64_t incarnation)
{
    struct peer_link *peer = &d->peers[worker];

    assert(peer->state == PEER_READY && peer->incarnation == incarnation);
    if (!peer->is_lost
        && router_send(d->router, &peer->address, NULL, 0, d->payload.bytes, d->payload.length)
               != ST_OK) {
        log_warn("worker_unreachable", "worker=%u detail=\"%s\"", worker, status_detail());
        peer->is_lost = true;
    }
}

static void
send_message(struct kvasird *d, uint32_t worker, Kvasir__V1__DaemonMessage *message)
{
    message->has_incarnation = true;
    message->incarnation = d->peers[worker].incarnation;
    if (wire_pack(&d->payload, &message->base) == ST_OK) {
        peers_send(d, worker, message->incarnation);
    } else {
        d->peers[worker].is_lost = true;
    }
}

static void
send_fenced(struct kvasird *d, const struct address *to, uint64_t incarnation)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__Fenced fenced = KVASIR__V1__FENCED__INIT;

    message.has_incarnation = true;
    message.incarnation = incarnation;
    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_FENCED;
    message.fenced = &fenced;
    if (wire_pack(&d->payload, &message.base) == ST_OK) {
        /* It may well be gone; then there is nobody to tell. */
        (void)router_send(d->router, to, NULL, 0, d->payload.bytes, d->payload.length);
    }
}

static void
send_drain(struct kvasird *d, uint32_t worker)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__DrainWorker drain = KVASIR__V1__DRAIN_WORKER__INIT;

    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_DRAIN;
    message.drain = &drain;
    send_message(d, worker, &message);
    d->peers[worker].is_drain_sent = true;
}

static void
send_heartbeat(struct kvasird *d, uint32_t worker)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;
    Kvasir__V1__DaemonHeartbeat heartbeat = KVASIR__V1__DAEMON_HEARTBEAT__INIT;

    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_HEARTBEAT;
    message.heartbeat = &heartbeat;
    send_message(d, worker, &message);
}

/* --- silence and loss ------------------------------------------------------------------------- */

static void
give_up(struct kvasird *d, uint32_t worker, const char *why)
{
    struct peer_link *peer = &d->peers[worker];

    log_warn("worker_lost", "worker=%u incarnation=%llu reason=%s silent_ms=%llu", worker,
             (unsigned long long)peer->incarnation, why,
             (unsigned long long)((clock_now_us() - peer->heard_us) / 1000));
    peer->state = PEER_SILENT;
    peer->is_lost = false;
    sched_worker_lost(d->sched, clock_now_us(), worker, peer->incarnation);
    send_fenced(d, &peer->address, peer->incarnation);
}

void
peers_refuse(struct kvasird *d, uint32_t worker)
{
    struct peer_link *peer = &d->peers[worker];

    peer->state = PEER_SILENT;
    send_fenced(d, &peer->address, peer->incarnation);
}

bool
peers_lose_marked(struct kvasird *d)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].is_lost && d->peers[i].state == PEER_READY) {
            give_up(d, i, "unreachable");
            return true;
        }
    }
    return false;
}

void
peers_excuse(struct kvasird *d, uint64_t now_us, uint64_t late_us)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        uint64_t heard_us = d->peers[i].heard_us + late_us;

        d->peers[i].heard_us = heard_us < now_us ? heard_us : now_us;
    }
}

void
peers_beat(struct kvasird *d, uint64_t now_us)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        struct peer_link *peer = &d->peers[i];

        if (peer->state != PEER_READY) {
            continue;
        }
        if (now_us - peer->heard_us > d->options.worker_liveness * 1000) {
            give_up(d, i, "silent");
            deliver(d);
            serve_status(d);
            continue;
        }
        send_heartbeat(d, i);
    }
    deliver(d);
}

void
peers_farewell(struct kvasird *d)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].state == PEER_READY && !d->peers[i].is_drain_sent) {
            send_drain(d, i);
        }
    }
    deliver(d);
}

size_t
peers_poll_fill(const struct kvasird *d, struct pollfd fds[SCHED_WORKERS_MAX])
{
    size_t count = 0;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].state != PEER_FREE) {
            fds[count++] = (struct pollfd){.fd = d->peers[i].pidfd, .events = POLLIN};
        }
    }
    return count;
}

void
peers_see_losses(struct kvasird *d)
{
    if (handoff_lost_arenas(d->handoff)) {
        log_warn("pool_lost",
                 "reason=\"its memory ended with the last worker; the next makes it anew\"");
        sched_drop_pool(d->sched);
        adopt_erase_free_host(d); /* of what was being forgotten, and that nobody knows any more */
        kv_events_clear(d->kv_events);
    }
}

static void
bury(struct kvasird *d, uint32_t worker)
{
    struct peer_link *peer = &d->peers[worker];

    log_info("worker_gone", "worker=%u incarnation=%llu pid=%d was=%s", worker,
             (unsigned long long)peer->incarnation, peer->pid,
             peer->is_leaving ? "leaving" : peers_state_name(peer->state));
    adopt_drop_worker(d, worker);
    uint64_t incarnation = peer->incarnation;

    (void)close(peer->pidfd);
    *peer = (struct peer_link){.state = PEER_FREE};
    peers_count_expected(d);
    sched_worker_gone(d->sched, clock_now_us(), worker, incarnation);
    handoff_worker_gone(d->handoff, worker);
    peers_see_losses(d);
    deliver(d);
    serve_status(d);
}

void
peers_poll_done(struct kvasird *d, const struct pollfd *fds, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        for (uint32_t i = 0; fds[at].revents != 0 && i < SCHED_WORKERS_MAX; i++) {
            if (d->peers[i].state != PEER_FREE && d->peers[i].pidfd == fds[at].fd) {
                bury(d, i);
                break;
            }
        }
    }
}

void
peers_close(struct kvasird *d)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (d->peers[i].state != PEER_FREE) {
            (void)close(d->peers[i].pidfd);
            d->peers[i].state = PEER_FREE;
        }
    }
}

/* --- from workers ----------------------------------------------------------------------------- */

static void
take_ready(struct kvasird *d, uint32_t worker, const struct message *message,
           const Kvasir__V1__Ready *ready)
{
    struct peer_link *peer = &d->peers[worker];

    if (peer->state != PEER_ATTACHED || ready->seqs_max == 0) {
        log_warn("worker_odd", "worker=%u says=ready state=%s seqs_max=%u, ignoring", worker,
                 peers_state_name(peer->state), ready->seqs_max);
        return;
    }
    peer->state = PEER_READY;
    peer->address = message->from;
    log_info("worker_ready", "worker=%u incarnation=%llu seqs_max=%u", worker,
             (unsigned long long)peer->incarnation, ready->seqs_max);
    sched_worker_use_tier(d->sched, worker); /* it was told of the memory when it attached */
    sched_worker_ready(d->sched, clock_now_us(), worker, peer->incarnation, ready->seqs_max);
    deliver(d);
    serve_status(d);
}

/* Of all that an earlier kvasird gave it it has what it says, and nothing else; before that, what
 * it says is an answer to that one. */
static void
take_reset(struct kvasird *d, uint32_t worker, const struct message *message,
           const Kvasir__V1__WorkerMessage *wire)
{
    struct peer_link *peer = &d->peers[worker];

    if (peer->state != PEER_RETURNING || wire->body_case != KVASIR__V1__WORKER_MESSAGE__BODY_STEP
        || wire->step->reset_life != handoff_life(d->handoff)) {
        return;
    }
    peer->state = PEER_READY;
    peer->address = message->from;
    peer->heard_us = clock_now_us();
    log_info("worker_ready", "worker=%u incarnation=%llu seqs_max=%u after=restart kept=%zu",
             worker, (unsigned long long)peer->incarnation, peer->seqs_max, wire->step->n_kept);
    if (peer->maps_host) {
        sched_worker_use_tier(d->sched, worker);
    }
    peers_back(d, worker, wire->step);
    serve_status(d);
}

static struct sched_result
read_result(const Kvasir__V1__StepResult *wire)
{
    return (struct sched_result){
        .request = wire->request,
        .ids = wire->token_ids,
        .id_count = wire->n_token_ids,
        .text = (const char *)wire->text.data,
        .text_bytes = wire->has_text ? wire->text.len : 0,
        .extra = wire,
        .finish = wire->has_finish ? (enum sched_finish)wire->finish : SCHED_FINISH_NONE,
        .own_tokens = wire->own_tokens,
        .tokens_read = wire->tokens_reused,
        .own_reused = wire->own_tokens_reused,
        .error = wire->error,
    };
}

/* What came of copies from the host tier and to it.  A bad one is an alarm: memory has changed. */
static void
read_moves(uint32_t worker, const Kvasir__V1__Step *wire, struct sched_loaded *loaded,
           struct sched_spilled *spilled)
{
    for (size_t i = 0; i < wire->n_loaded; i++) {
        const Kvasir__V1__Loaded *from = wire->loaded[i];

        loaded[i] =
            (struct sched_loaded){from->build, from->blocks, from->copy_us, from->is_unread};
        if (from->error != NULL && from->is_unread) {
            log_warn("load_refused", "worker=%u build=%llu blocks_good=%u detail=\"%.200s\"",
                     worker, (unsigned long long)from->build, from->blocks, from->error);
        } else if (from->error != NULL) {
            log_error("host_block_bad", "worker=%u build=%llu blocks_good=%u detail=\"%.200s\"",
                      worker, (unsigned long long)from->build, from->blocks, from->error);
        }
    }
    for (size_t i = 0; i < wire->n_spilled; i++) {
        const Kvasir__V1__Spilled *from = wire->spilled[i];

        spilled[i] = (struct sched_spilled){.spill = from->spill,
                                            .sums = from->sums,
                                            .sum_count = (uint32_t)from->n_sums,
                                            .is_refused = from->error != NULL,
                                            .copy_us = from->copy_us};
        if (from->error != NULL) {
            log_warn("spill_refused", "worker=%u spill=%llu detail=\"%.200s\"", worker,
                     (unsigned long long)from->spill, from->error);
        }
    }
}

static struct sched_checked
read_checked(const Kvasir__V1__Checked *wire)
{
    return (struct sched_checked){.check = wire->check,
                                  .sums = wire->sums,
                                  .sum_count = wire->n_sums,
                                  .differing = wire->differing,
                                  .relative = wire->relative};
}

static void
take_step(struct kvasird *d, uint32_t worker, const Kvasir__V1__Step *wire)
{
    struct sched_result *results = mem_zalloc(wire->n_results, sizeof(*results));
    struct sched_loaded *loaded = mem_zalloc(wire->n_loaded, sizeof(*loaded));
    struct sched_spilled *spilled = mem_zalloc(wire->n_spilled, sizeof(*spilled));
    struct sched_checked checked =
        wire->n_checked > 0 ? read_checked(wire->checked[0]) : (struct sched_checked){0};
    struct sched_step step = {
        .step = wire->step,
        .stop_steps = wire->stop_steps,
        .sealed = wire->sealed,
        .sealed_count = wire->n_sealed,
        .sums = wire->sealed_sums,
        .sum_count = wire->n_sealed_sums,
        .erased = wire->erased,
        .erased_count = wire->n_erased,
        .checked = &checked,
        .checked_count = wire->n_checked > 0, /* there is one at a time */
        .results = results,
        .result_count = wire->n_results,
        .released = wire->released,
        .released_count = wire->n_released,
        .dropped = wire->builds_dropped,
        .dropped_count = wire->n_builds_dropped,
        .kept_released = wire->kept_released,
        .kept_released_count = wire->n_kept_released,
        .rows_total = wire->rows_total,
        .probed = wire->probed,
        .loaded = loaded,
        .loaded_count = wire->n_loaded,
        .spilled = spilled,
        .spilled_count = wire->n_spilled,
    };

    if (results == NULL || loaded == NULL || spilled == NULL) {
        /* Its requests would wait for ever for what we cannot read. */
        log_error("no_memory", "worker=%u results=%zu", worker, wire->n_results);
        d->peers[worker].is_lost = true;
        deliver(d);
        goto end;
    }
    read_moves(worker, wire, loaded, spilled);
    for (size_t i = 0; i < wire->n_results; i++) {
        results[i] = read_result(wire->results[i]);
    }
    log_trace("step", "worker=%u step=%llu rows=%u rows_built=%u elapsed_us=%llu", worker,
              (unsigned long long)wire->step, wire->rows, wire->rows_built,
              (unsigned long long)wire->step_us);
    trace_step(d->calls, wire);
    measures_step(&d->measures, wire->rows);
    if (!sched_worker_step(d->sched, clock_now_us(), worker, d->peers[worker].incarnation, &step)) {
        d->peers[worker].is_lost = true;
    }
    FAILPOINT(step_taken);
    deliver(d);
end:
    mem_free(results);
    mem_free(loaded);
    mem_free(spilled);
}

static void
take_bye(struct kvasird *d, uint32_t worker, const Kvasir__V1__Bye *bye)
{
    struct peer_link *peer = &d->peers[worker];

    log_info("worker_leaving", "worker=%u reason=\"%.100s\"", worker,
             bye->reason == NULL ? "" : bye->reason);
    peer->is_leaving = true;
    if (peer->state == PEER_READY) {
        peer->state = PEER_SILENT;
        sched_worker_left(d->sched, clock_now_us(), worker, peer->incarnation);
        deliver(d);
    }
}

void
peers_message(struct kvasird *d, const struct message *message)
{
    const ProtobufCMessage *parsed;
    const Kvasir__V1__WorkerMessage *wire;
    struct peer_link *peer;

    wire_arena_reset(d->arena);
    if (wire_unpack(d->arena, &kvasir__v1__worker_message__descriptor, message->payload,
                    message->payload_length, WIRE_WORKER_BYTES_MAX, &parsed)
        != ST_OK) {
        log_warn("worker_message_bad", "detail=\"%s\", ignoring", status_detail());
        return;
    }
    wire = (const Kvasir__V1__WorkerMessage *)parsed;
    peer = &d->peers[wire->worker < SCHED_WORKERS_MAX ? wire->worker : 0];
    if (wire->worker >= SCHED_WORKERS_MAX || peer->incarnation != wire->incarnation
        || peer->state == PEER_FREE || (peer->state == PEER_SILENT && !peer->is_leaving)) {
        log_debug("worker_message_late", "worker=%u incarnation=%llu", wire->worker,
                  (unsigned long long)wire->incarnation);
        send_fenced(d, &message->from, wire->incarnation);
        return;
    }
    if (peer->state == PEER_EXPECTED || peer->state == PEER_RETURNING) {
        take_reset(d, wire->worker, message, wire);
        return;
    }
    peer->heard_us = clock_now_us();
    switch (wire->body_case) {
    case KVASIR__V1__WORKER_MESSAGE__BODY_READY:
        take_ready(d, wire->worker, message, wire->ready);
        break;
    case KVASIR__V1__WORKER_MESSAGE__BODY_STEP: take_step(d, wire->worker, wire->step); break;
    case KVASIR__V1__WORKER_MESSAGE__BODY_BYE: take_bye(d, wire->worker, wire->bye); break;
    default: break; /* a heartbeat: heard_us is all it is for */
    }
}
