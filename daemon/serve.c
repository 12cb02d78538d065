/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread, one poll.  Messages, tokenised requests, attaching workers, deaths, signals
 * and deadlines all come through here, one after the other; that is what makes the scheduler's
 * single writer true. */
#include "daemon/kvasird.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notify.h"

#define WATCHDOG_SHARE 3        /* signs of life within the time that the supervisor gives */
#define FAREWELL_US    2000000u /* for workers to leave before we do */

enum {
    FD_SIGNAL,
    FD_INGEST,
    FD_ANALYST,
    FDS_FIXED,
};

void
serve_status(struct kvasird *d)
{
    struct sched_gauges now = sched_gauges(d->sched);
    char line[160];

    if (d->stop_by_us != 0) {
        (void)snprintf(line, sizeof(line), "STATUS=stopping: %u requests to go",
                       now.waiting + now.running);
    } else if (now.workers_ready == 0) {
        (void)snprintf(line, sizeof(line), "STATUS=waiting for a worker");
    } else {
        (void)snprintf(line, sizeof(line), "STATUS=serving%s: %u workers",
                       now.is_draining ? ", draining" : "", now.workers_ready);
    }
    if (notify_send(line) != ST_OK) {
        log_warn("notify_failed", "detail=\"%s\", ignoring", status_detail());
    }
}

/* Nothing new is admitted; ends when all is done or after drain-timeout. */
static void
stop(struct kvasird *d, bool at_once)
{
    if (d->stop_by_us == 0) {
        log_info("stopping", "requests=%u drain_timeout_ms=%llu",
                 sched_gauges(d->sched).waiting + sched_gauges(d->sched).running,
                 (unsigned long long)d->options.drain_timeout);
        (void)notify_send("STOPPING=1"); /* a courtesy; we stop anyway */
        d->stop_by_us = clock_now_us() + d->options.drain_timeout * 1000;
        sched_drain(d->sched, true);
        sched_stop_background(d->sched, clock_now_us());
        deliver(d);
        serve_status(d);
    }
    d->must_stop |= at_once;
}

static void
take_signals(struct kvasird *d)
{
    struct signalfd_siginfo info;

    while (read(d->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGUSR2) {
            log_info("leaving", "pool and workers stay for the next kvasird");
            d->leaves_pool = true;
            stop(d, true); /* clients come back to the next one with what they have */
        } else if (info.ssi_signo == SIGHUP) {
            (void)notify_send("RELOADING=1");
            start_reload_access(d);
            reload_options(d);
            (void)notify_send("READY=1");
        } else {
            stop(d, d->stop_by_us != 0); /* the second one does not wait */
        }
    }
}

/* Drained, and the workers have said farewell; or out of patience. */
static bool
is_done(struct kvasird *d)
{
    struct sched_gauges now = sched_gauges(d->sched);
    uint64_t now_us = clock_now_us();

    if (d->stop_by_us == 0) {
        return false;
    }
    if (d->must_stop || now_us >= d->stop_by_us) {
        return true;
    }
    if (now.waiting + now.running > 0) {
        return false;
    }
    if (!d->has_said_farewell) {
        d->has_said_farewell = true;
        d->stop_by_us = now_us + FAREWELL_US < d->stop_by_us ? now_us + FAREWELL_US : d->stop_by_us;
        peers_farewell(d);
    }
    return sched_gauges(d->sched).workers == 0;
}

void
serve_is_busy(struct kvasird *d)
{
    d->busy_until_us = d->options.busy_poll == 0 ? 0 : clock_now_us() + d->options.busy_poll;
}

static int
timeout_ms(const struct kvasird *d, uint64_t now_us)
{
    uint64_t until_us = d->next_beat_us;

    if (now_us < d->busy_until_us || !list_is_empty(&d->listings)) {
        return 0;
    }
    if (sched_wakeup_us(d->sched) < until_us) {
        until_us = sched_wakeup_us(d->sched);
    }
    if (d->saving.bytes != NULL && d->next_save_us < until_us) {
        until_us = d->next_save_us;
    }
    if (handoff_wakeup_us(d->handoff) < until_us) {
        until_us = handoff_wakeup_us(d->handoff);
    }
    if (d->watchdog_us != 0 && d->next_watchdog_us < until_us) {
        until_us = d->next_watchdog_us;
    }
    if (d->stop_by_us != 0 && d->stop_by_us < until_us) {
        until_us = d->stop_by_us;
    }
    return until_us <= now_us ? 0 : (int)((until_us - now_us + 999) / 1000);
}

static void
tick(struct kvasird *d)
{
    uint64_t now_us = clock_now_us();

    if (now_us >= sched_wakeup_us(d->sched)) {
        sched_tick(d->sched, now_us);
        deliver(d);
    }
    if (now_us >= d->next_beat_us) {
        peers_excuse(d, now_us, now_us - d->next_beat_us);
        d->next_beat_us = now_us + d->options.heartbeat * 1000;
        peers_beat(d, now_us);
        insight_tick(d, now_us);
    }
    adopt_save_some(d, now_us);
}

/* Said at the end of a whole turn and nowhere else: whoever is stuck in one does not say it. */
static void
feed_watchdog(struct kvasird *d)
{
    uint64_t now_us = clock_now_us();

    if (d->watchdog_us != 0 && now_us >= d->next_watchdog_us) {
        d->next_watchdog_us = now_us + d->watchdog_us;
        (void)notify_send("WATCHDOG=1"); /* a reader that is behind hears the next one */
    }
}

static void
take_attached(struct kvasird *d)
{
    struct handoff_event event;

    peers_see_losses(d);
    while (handoff_next(d->handoff, &event)) {
        if (event.kind == HANDOFF_ATTACHED) {
            peers_attached(d, &event);
        } else if (event.kind == HANDOFF_REJOINED) {
            peers_rejoined(d, &event);
        } else {
            log_warn(event.kind == HANDOFF_REFUSED ? "attach_refused" : "attach_lost",
                     "pid=%d device=%s reason=\"%s\"", (int)event.pid, event.device, event.reason);
        }
    }
}

void
serve_tell_events(struct kvasird *d)
{
    if (d->kv_events != NULL) {
        bool is_gpu = strncmp(handoff_device(d->handoff), "cuda", 4) == 0;

        kv_events_set_media(d->kv_events, is_gpu ? "GPU" : "CPU", is_gpu ? "CPU" : "HOST");
        kv_events_flush(d->kv_events);
    }
}

static enum status
turn(struct kvasird *d)
{
    struct pollfd fds[ROUTER_FDS_MAX];
    size_t peers, handoffs;

    fds[FD_SIGNAL] = (struct pollfd){.fd = d->signal_fd, .events = POLLIN};
    fds[FD_INGEST] = (struct pollfd){.fd = ingest_fd(d->ingest), .events = POLLIN};
    fds[FD_ANALYST] = (struct pollfd){.fd = analyst_fd(d->insight.analyst), .events = POLLIN};
    peers = peers_poll_fill(d, fds + FDS_FIXED);
    handoffs = handoff_poll_count(d->handoff);
    assert(FDS_FIXED + peers + handoffs <= ROUTER_FDS_MAX);
    handoff_poll_fill(d->handoff, fds + FDS_FIXED + peers);
    TRY(router_poll(d->router, fds, FDS_FIXED + peers + handoffs, timeout_ms(d, clock_now_us())));
    if (fds[FD_SIGNAL].revents != 0) {
        take_signals(d);
    }
    if (fds[FD_INGEST].revents != 0) {
        serve_is_busy(d);
        service_ingested(d);
    }
    if (fds[FD_ANALYST].revents != 0) {
        insight_done(d);
    }
    peers_poll_done(d, fds + FDS_FIXED, peers);
    handoff_poll_done(d->handoff, fds + FDS_FIXED + peers, handoffs, clock_now_us());
    take_attached(d);
    tick(d);
    corpus_pump(d);
    listing_pump(d);
    serve_tell_events(d);
    news_flush(d);
    feed_watchdog(d);
    return ST_OK;
}

enum status
serve(struct kvasird *d)
{
    d->next_beat_us = clock_now_us() + d->options.heartbeat * 1000;
    d->watchdog_us = notify_watchdog_us() / WATCHDOG_SHARE;
    while (!is_done(d)) {
        TRY(turn(d));
    }
    return ST_OK;
}
