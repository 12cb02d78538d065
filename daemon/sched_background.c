/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that are encoded in idle time.
 *
 * Which document comes next is not decided here (corpus.h): one is offered when a worker has
 * nothing else to do.  It is a session like any other that only builds, with three differences.  It
 * never waits in the queue, so it passes nobody and nobody passes it.  It is younger than every
 * request, and its worker gives it rows only in steps with nothing else in them.  And when a
 * request lacks blocks, all of them are stopped at once: what they hold is worth less than an
 * answer. */
#include "daemon/sched_state.h"

#define ORDER_BACKGROUND (UINT64_C(1) << 62) /* behind every request */

uint32_t
sched_background_room(const struct sched *sched)
{
    uint32_t room = 0;

    if (sched->pool == NULL || sched->is_draining || sched->waiting_count > 0
        || sched->starving_count > 0) {
        return 0;
    }
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];
        bool is_idle = worker->is_ready && !worker->is_draining
                       && worker->assigned == worker->background
                       && worker->background < SCHED_BACKGROUND_MAX;

        room += is_idle ? SCHED_BACKGROUND_MAX - worker->background : 0;
    }
    return room;
}

/* Blocks that it lacks are free. */
static bool
has_free_blocks(const struct sched *sched, const struct session *session)
{
    struct kvpool_stats stats;
    uint64_t missing = 0;

    for (uint32_t i = 0; i < session->want_count; i++) {
        const struct kvpool_want *want = &session->wants[i];
        const struct kvpool_doc *doc = kvpool_find(sched->pool, &want->key);
        uint32_t resident = 0;

        if (doc != NULL) {
            (void)kvpool_doc_blocks(doc, &resident);
        }
        missing += kvpool_blocks_for(sched->pool, want->n_tokens) - resident;
    }
    kvpool_stats(sched->pool, &stats);
    return missing <= stats.blocks_free;
}

uint64_t
sched_arrival(const struct session *session)
{
    return session->order & ~ORDER_BACKGROUND;
}

void
sched_start_background(struct sched *sched, struct session *session, uint64_t now_us,
                       bool may_evict)
{
    session->is_background = true;
    session->order += ORDER_BACKGROUND;
    for (uint32_t i = 0; i < session->segment_count; i++) {
        session->wants[i].is_uncounted = true; /* nobody asked for it: neither hit nor miss */
    }
    sched_enqueue(sched, session);
    if (sched_never_fits(sched, session)) {
        sched_close(sched, now_us, session, SCHED_END_NEVER_FITS, NULL, status_detail());
    } else if (!may_evict && !has_free_blocks(sched, session)) {
        sched_close(sched, now_us, session, SCHED_END_FULL, NULL, "no free blocks");
    } else if (!sched_try_admit(sched, session, now_us) && session->state == SESSION_WAITING) {
        sched_close(sched, now_us, session, SCHED_END_FULL, NULL, "no room now");
    }
}

void
sched_submit_background(struct sched *sched, uint64_t now_us, struct sched_submit *submit,
                        bool may_evict)
{
    struct session *session;
    struct sched_action *action;

    sched_begin(sched);
    if (sched_background_room(sched) > 0 && sched_take_in(sched, submit, &session) == ST_OK) {
        sched_start_background(sched, session, now_us, may_evict);
        sched_take_turn(sched, now_us);
        return;
    }
    prompt_deinit(&submit->prompt); /* take_in has zeroed what it took */
    action = sched_push(sched, SCHED_REPLY_END, NULL);
    action->request = submit->id;
    action->end = SCHED_END_FULL;
    action->message = "no worker is idle";
}

bool
sched_yield_background(struct sched *sched, uint64_t now_us)
{
    bool any = false;

    if (sched->background_count == 0) {
        return false;
    }
    LIST_FOR_EACH_SAFE(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->is_background && session->state == SESSION_RUNNING) {
            sched->counters.background_stopped++;
            sched_stop_request(sched, session);
            sched_close(sched, now_us, session, SCHED_END_FULL, NULL, "gave way to a request");
            sched_settle(sched, session);
            any = true;
        }
    }
    return any;
}

void
sched_stop_background(struct sched *sched, uint64_t now_us)
{
    sched_begin(sched);
    sched_drop_kept(sched, NULL);
    if (sched_yield_background(sched, now_us)) {
        sched_take_turn(sched, now_us);
    }
}
