/* SPDX-License-Identifier: Apache-2.0 */
/* How requests end, and how their blocks come back.
 *
 * A request ends for its client at once (sched_close), for the pool when its worker has let go of
 * the request and of every build that nobody else waits for (sched_settle).  A build whose owner
 * goes is handed to another request that waits for it; without one it is stopped, and its document
 * stays in the index as one that cannot be joined until the worker has answered: it may have been
 * sealed meanwhile. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/failpoint.h"
#include "common/mem.h"

/* Of a request whose attention ran. */
static void
count_mode(struct sched_counters *c, const struct session *session,
           const struct session_usage *usage)
{
    const struct {
        uint64_t *requests, *docs, *reused, *built;
    } modes[REUSE_MODES] = {
        [REUSE_LAZY] = {&c->requests_lazy, &c->docs_lazy, &c->tokens_reused_lazy,
                        &c->tokens_built_lazy},
        [REUSE_REENCODE] = {&c->requests_reencode, &c->docs_reencode, &c->tokens_reused_reencode,
                            &c->tokens_built_reencode},
        [REUSE_PREFIX] = {&c->requests_prefix, &c->docs_prefix, &c->tokens_reused_prefix,
                          &c->tokens_built_prefix},
        [REUSE_NONE] = {&c->requests_none, &c->docs_none, &c->tokens_reused_none,
                        &c->tokens_built_none},
    };

    *modes[session->prompt.reuse].requests += 1;
    *modes[session->prompt.reuse].docs += session->prompt.document_count;
    *modes[session->prompt.reuse].reused += usage->tokens_reused;
    *modes[session->prompt.reuse].built += usage->tokens_built;
}

static void
count_end(struct sched *sched, const struct session *session, enum sched_end end, uint64_t now_us)
{
    struct session_usage usage = session_usage(session, sched->config.block_tokens, now_us);

    if (session->is_background) {
        bool is_warmed = end == SCHED_END_OK && session->id != sched->verify.session;

        sched->counters.docs_warmed += is_warmed;
        sched->counters.tokens_warmed += is_warmed ? usage.tokens_built : 0;
        return;
    }
    switch (end) {
    case SCHED_END_OK: sched->counters.requests_finished++; break;
    case SCHED_END_CANCELLED: sched->counters.requests_cancelled++; break;
    case SCHED_END_DEADLINE: sched->counters.deadlines_passed++; break;
    case SCHED_END_NEVER_FITS:
    case SCHED_END_FULL:
    case SCHED_END_DRAINING: sched->counters.requests_refused++; break;
    case SCHED_END_QUARANTINED: sched->counters.requests_quarantined++; break;
    case SCHED_END_FAILED:
    case SCHED_END_DAMAGED:
    case SCHED_END_NO_MEMORY: sched->counters.requests_failed++; break;
    }
    if (session->first_token_us != 0) {
        count_mode(&sched->counters, session, &usage);
        sched->counters.tokens_reused += usage.tokens_reused;
        sched->counters.turn_tokens_reused += usage.turn_tokens_reused;
        sched->counters.requests_followed_up += usage.turn_tokens_reused > 0;
        sched->counters.tokens_padded += usage.tokens_padded;
    }
}

void
sched_close(struct sched *sched, uint64_t now_us, struct session *session, enum sched_end end,
            const struct sched_result *result, const char *message)
{
    enum session_state before = session->state;
    struct sched_action *action = sched_push(sched, SCHED_REPLY_END, session);

    assert(before != SESSION_CLOSING && before != SESSION_ENDED);
    (void)snprintf(session->message, sizeof(session->message), "%s", message);
    action->end = end;
    action->result = result;
    action->message = session->message;
    action->usage = session_usage(session, sched->config.block_tokens, now_us);
    session->has_answered = end == SCHED_END_OK;
    count_end(sched, session, end, now_us);
    if (end == SCHED_END_OK && !session->is_regained) {
        sched_pace_note(sched, session, now_us);
    }
    session_move(session, SESSION_CLOSE);
    if (session->state == SESSION_ENDED) {
        sched_unawait(sched, session);
        sched_leave_place(sched, session, false);
        list_unlink(&session->queue_link);
        list_unlink(&session->age_link);
        sched->waiting_count--;
        sched->has_news = true;
        sched_bury(sched, session);
    }
}

/* A request that runs and waits for this build, other than its owner. */
static struct session *
find_heir(const struct sched *sched, const struct build *build)
{
    LIST_FOR_EACH(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session == build->owner || session->state != SESSION_RUNNING) {
            continue;
        }
        for (uint32_t i = 0; i < session->want_count; i++) {
            if (session->wants[i].doc == build->doc) {
                assert(session->worker == build->worker);
                return session;
            }
        }
    }
    return NULL;
}

static void
stop_builds(struct sched *sched, struct session *session)
{
    LIST_FOR_EACH_SAFE(node, &session->owned_builds)
    {
        struct build *build = LIST_ENTRY(node, struct build, owner_link);
        struct session *heir = build->is_dropping ? NULL : find_heir(sched, build);

        if (build->is_dropping) {
            continue;
        }
        if (heir != NULL) {
            build->owner = heir;
            kvpool_doc_set_builder(build->doc, heir->id);
            list_unlink(&build->owner_link);
            list_push_back(&heir->owned_builds, &build->owner_link);
            sched->counters.builds_handed_over++;
            continue;
        }
        build->is_dropping = true;
        session->drops_pending++;
        struct sched_action *action = sched_push(sched, SCHED_SEND_STOP_BUILD, session);

        action->worker = build->worker;
        action->incarnation = session->incarnation;
        action->build = build->id;
    }
}

/* Asks the worker to let go of a running request and of the builds that were only for it. */
void
sched_stop_request(struct sched *sched, struct session *session)
{
    if (!session_is_warm(session)) {
        struct sched_action *action = sched_push(sched, SCHED_SEND_STOP, session);

        action->worker = session->worker;
        action->incarnation = session->incarnation;
    }
    stop_builds(sched, session);
}

/* The worker ended it: it lets go of the request unasked, and of the builds when told. */
void
sched_close_by_worker(struct sched *sched, uint64_t now_us, struct session *session,
                      enum sched_end end, const struct sched_result *result, const char *message)
{
    sched_close(sched, now_us, session, end, result, message);
    stop_builds(sched, session);
}

void
sched_preempt(struct sched *sched, struct session *session)
{
    session_move(session, SESSION_PREEMPT);
    session->preemptions++;
    sched->counters.requests_preempted++;
    sched_stop_request(sched, session);
    sched_settle(sched, session);
}

/* Leaves the running; the claim has been released. */
static void
leave_worker(struct sched *sched, struct session *session)
{
    struct worker *worker = &sched->workers[session->worker];

    assert(session->claim == NULL && list_is_empty(&session->owned_builds));
    sched_end_alone(sched, session);
    sched_end_hold(session);
    if (worker->incarnation == session->incarnation) {
        assert(worker->assigned > 0);
        worker->assigned--;
        worker->background -= session->is_background;
    }
    list_unlink(&session->age_link);
    sched->running_count--;
    sched->warm_count -= session_is_warm(session);
    sched->background_count -= session->is_background;
    sched->has_news = true;
    session->is_starving = false;
    for (uint32_t i = 0; i < session->want_count; i++) {
        session->wants[i].doc = NULL;
    }
    if (session->state == SESSION_WAITING) {
        sched_enqueue(sched, session);
    } else {
        sched_bury(sched, session);
    }
}

void
sched_settle(struct sched *sched, struct session *session)
{
    if (session->state == SESSION_RUNNING || !session->is_released || session->drops_pending > 0) {
        return;
    }
    sched_keep_turn(sched, session);
    kvpool_claim_release(sched->pool, &session->claim, 0);
    session_move(session, SESSION_RELEASE);
    leave_worker(sched, session);
}

static void
remove_build(struct sched *sched, struct build *build)
{
    struct session *owner = build->owner;

    owner->drops_pending -= build->is_dropping;
    sched_end_load(sched, build);
    list_unlink(&build->owner_link);
    htab_remove(&sched->builds, &build->by_id);
    mem_free(build);
    sched_settle(sched, owner);
}

void
sched_seal_build(struct sched *sched, struct build *build)
{
    uint32_t tokens = kvpool_doc_tokens(build->doc) - build->start - build->loaded;
    struct worker *worker = &sched->workers[build->worker];

    kvpool_doc_seal(sched->pool, build->doc, build->worker);
    FAILPOINT(seal_note);
    sched_announce(sched, build);
    sched_acquit(sched, kvpool_doc_key(build->doc));
    if (build->is_copy) {
        build->owner->tokens_copied += tokens;
        sched->counters.copies_made++;
        sched->counters.tokens_copied += tokens;
    } else {
        build->owner->tokens_built += tokens;
        worker->info.docs_built++;
        worker->info.tokens_built += tokens;
        build->owner->tokens_loaded += build->loaded;
        sched->counters.builds_sealed++;
        sched->counters.tokens_built += tokens;
        sched->counters.docs_loaded += build->loaded > 0;
        sched->counters.tokens_loaded += build->loaded;
    }
    sched->has_news = true;
    struct session *owner = build->owner;

    remove_build(sched, build);
    if (list_is_empty(&owner->owned_builds)) {
        sched_note_build(sched, owner, sched->now_us);
    }
    if (owner->is_alone && owner->state == SESSION_RUNNING) {
        sched_push_assign(sched, owner);
    }
}

void
sched_drop_build(struct sched *sched, struct build *build)
{
    kvpool_doc_abandon(sched->pool, build->doc, 0);
    sched->counters.builds_dropped++;
    sched->has_news = true;
    remove_build(sched, build);
}

/* The builds go first: a claim may not be released while a document it builds is in the index. */
static void
lose_builds(struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH_SAFE(node, &session->owned_builds)
    {
        struct build *build = LIST_ENTRY(node, struct build, owner_link);

        kvpool_doc_abandon(sched->pool, build->doc, session->incarnation);
        sched_end_load(sched, build);
        sched->counters.builds_lost++;
        list_unlink(&build->owner_link);
        htab_remove(&sched->builds, &build->by_id);
        mem_free(build);
    }
}

/* What it was doing is lost; it goes on elsewhere, unless it is what workers die of. */
static void
lose_session(struct sched *sched, uint64_t now_us, struct session *session)
{
    char message[SESSION_MESSAGE_BYTES];
    enum session_state before = session->state;

    if (before != SESSION_CLOSING && session->is_background) {
        sched_close(sched, now_us, session, SCHED_END_FULL, NULL, "lost its worker");
    } else if (before != SESSION_CLOSING && session->strikes >= SCHED_STRIKES_MAX) {
        (void)snprintf(message, sizeof(message),
                       "%u workers died while they ran it alone, the last one was worker %u",
                       session->strikes, session->worker);
        sched->counters.requests_lost_twice++;
        sched_close(sched, now_us, session, SCHED_END_FAILED, NULL, message);
    } else if (before != SESSION_CLOSING) {
        sched->counters.requests_requeued++;
    }
    session->drops_pending = 0;
    kvpool_claim_release(sched->pool, &session->claim, session->incarnation);
    session_move(session, SESSION_LOSE);
    leave_worker(sched, session);
}

bool
sched_is_next_step(struct sched *sched, const struct worker *worker, uint64_t step)
{
    uint64_t last = worker->info.steps;

    if (step == 0 || last == 0 || step == last + 1) {
        return true;
    }
    sched->counters.messages_late += step <= last;
    sched->counters.messages_missed += step > last;
    return false;
}

void
sched_lose_worker(struct sched *sched, uint64_t now_us, uint32_t worker, bool is_farewell)
{
    uint64_t incarnation = sched->workers[worker].incarnation;
    bool was_alone = sched->workers[worker].assigned == 1 && sched->workers[worker].kept == 0;

    sched_lose_kept(sched, worker, incarnation);
    sched_lose_checks(sched, worker, incarnation);
    sched_lose_wipes(sched, worker);
    if (sched->pool != NULL) {
        kvpool_lose_eraser(sched->pool, incarnation);
    }
    LIST_FOR_EACH(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->worker == worker && session->incarnation == incarnation) {
            if (!is_farewell && session->state != SESSION_CLOSING) {
                sched_blame(sched, now_us, session, was_alone);
            }
            lose_builds(sched, session);
        }
    }
    LIST_FOR_EACH_SAFE(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->worker == worker && session->incarnation == incarnation) {
            lose_session(sched, now_us, session);
        }
    }
    assert(sched->workers[worker].assigned == 0);
}
