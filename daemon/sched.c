/* SPDX-License-Identifier: Apache-2.0 */
/* The events.  Each one notes what happened, then takes its turn: answers that run short get
 * blocks, the queue is looked at, finished warm-ups end.  What the turn decides is in sched_admit.c
 * (who comes in), sched_room.c (who gets and gives blocks) and sched_close.c (how things end).
 *
 * Actions are collected in one array.  An event can cause only so many: a session gets at most one
 * of each kind, and one StopBuild for each document.  Room for that is made when a session comes
 * in, where a refusal is still possible; so no decision is ever lost for want of memory. */
#include "daemon/sched.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/sched_state.h"

#define ACTIONS_PER_SESSION 6 /* chunk, end, stop, grant, assign, and one to spare */
/* Refusals, checks; probes, wipes, spills; erasures and their ends. */
#define ACTIONS_SPARE                                                                              \
    (16 + SCHED_WORKERS_MAX * (2 + SCHED_SPILLS_MAX) + SCHED_FORGETS_MAX + SCHED_ERASES_A_TURN)

static bool
session_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct session, by_id)->id == *(const uint64_t *)key;
}

static bool
build_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct build, by_id)->id == *(const uint64_t *)key;
}

static enum status
reserve_actions(struct sched *sched, size_t need)
{
    size_t capacity = sched->action_capacity * 2;
    struct sched_action *actions;

    if (need <= sched->action_capacity) {
        return ST_OK;
    }
    capacity = capacity < need ? need : capacity;
    actions = mem_realloc(sched->actions, capacity, sizeof(*actions));
    if (actions == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu actions", capacity);
    }
    sched->actions = actions;
    sched->action_capacity = capacity;
    return ST_OK;
}

enum status
sched_new(const struct sched_config *config, struct sched **sched_out)
{
    struct sched *sched = mem_zalloc(1, sizeof(*sched));

    if (sched == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a scheduler");
    }
    sched->config = *config;
    sched->wakeup_us = UINT64_MAX;
    sched->unread = UINT64_MAX;
    sched->turn = 1; /* 0: a session has none yet */
    list_init(&sched->queue);
    list_init(&sched->waiting);
    list_init(&sched->running);
    list_init(&sched->ended);
    list_init(&sched->blamed_by_age);
    list_init(&sched->pins);
    list_init(&sched->forgets);
    list_init(&sched->kept);
    list_init(&sched->held);
    list_init(&sched->uses_by_age);
    sched->action_need = ACTIONS_SPARE;
    if (htab_init(&sched->sessions, session_equal) != ST_OK
        || htab_init(&sched->builds, build_equal) != ST_OK || traffic_new(&sched->traffic) != ST_OK
        || htab_init(&sched->blamed, sched_blame_equal) != ST_OK
        || htab_init(&sched->shares, sched_share_equal) != ST_OK
        || htab_init(&sched->uses, sched_use_equal) != ST_OK
        || reserve_actions(sched, sched->action_need) != ST_OK) {
        sched_destroy(&sched);
        return ST_NO_MEMORY;
    }
    *sched_out = sched;
    return ST_OK;
}

/* The storage of sessions that ended in the event before. */
static void
free_ended(struct sched *sched)
{
    LIST_FOR_EACH_SAFE(node, &sched->ended)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        list_unlink(node);
        session_destroy(&session);
    }
}

void
sched_destroy(struct sched **sched_ref)
{
    struct sched *sched = *sched_ref;

    if (sched == NULL) {
        return;
    }
    sched->action_count = 0;
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (sched->workers[i].is_ready) {
            sched_worker_gone(sched, 0, i, sched->workers[i].incarnation);
            sched->action_count = 0; /* there is nobody left to act */
        }
    }
    while (!list_is_empty(&sched->waiting)) {
        struct session *session = LIST_ENTRY(sched->waiting.next, struct session, age_link);

        (void)sched_cancel(sched, 0, session->id, true);
        sched->action_count = 0;
    }
    assert(list_is_empty(&sched->running));
    free_ended(sched);
    sched_forget_shares(sched);
    sched_forget_uses(sched);
    htab_deinit(&sched->shares);
    htab_deinit(&sched->uses);
    sched_forget_pins(sched);
    sched_forget_checks(sched);
    sched_end_forgets(sched);
    sched_forget_blame(sched);
    htab_deinit(&sched->sessions);
    htab_deinit(&sched->builds);
    htab_deinit(&sched->blamed);
    kvpool_destroy(&sched->pool);
    traffic_destroy(&sched->traffic);
    mem_free(sched->actions);
    mem_free(sched);
    *sched_ref = NULL;
}

enum status
sched_reserve_actions(struct sched *sched, size_t count)
{
    TRY(reserve_actions(sched, sched->action_need + count));
    sched->action_need += count;
    return ST_OK;
}

struct sched_action *
sched_push(struct sched *sched, enum sched_action_kind kind, const struct session *session)
{
    struct sched_action *action = &sched->actions[sched->action_count];

    assert(sched->action_count < sched->action_capacity);
    sched->action_count++;
    *action = (struct sched_action){
        .kind = kind,
        .session = session,
        .request = session == NULL ? 0 : session->id,
        .worker = SESSION_WORKER_NONE,
        .message = "",
    };
    return action;
}

const struct sched_action *
sched_take_actions(struct sched *sched, size_t *count_out)
{
    *count_out = sched->action_count;
    sched->action_count = 0;
    return sched->actions;
}

static size_t
actions_of(const struct session *session)
{
    return ACTIONS_PER_SESSION + session->wants_max;
}

void
sched_bury(struct sched *sched, struct session *session)
{
    htab_remove(&sched->sessions, &session->by_id);
    sched_note_reader_end(sched, session);
    sched_leave_share(session);
    sched->action_need -= actions_of(session);
    list_push_back(&sched->ended, &session->age_link);
}

static struct session *
find_session(const struct sched *sched, uint64_t id)
{
    struct htab_node *node = htab_find(&sched->sessions, htab_mix(id), &id);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct session, by_id);
}

bool
sched_has_session(const struct sched *sched, uint64_t id)
{
    return find_session(sched, id) != NULL;
}

void
sched_begin(struct sched *sched)
{
    assert(sched->action_count == 0); /* or a decision would be lost */
    free_ended(sched);
    sched->event++;
}

static bool
is_built(const struct session *session)
{
    for (uint32_t i = 0; i < session->want_count; i++) {
        if (session->wants[i].doc != NULL && !kvpool_doc_is_ready(session->wants[i].doc)) {
            return false;
        }
    }
    return true;
}

static void
finish_warm(struct sched *sched, uint64_t now_us)
{
    LIST_FOR_EACH_SAFE(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (sched->warm_count == 0) {
            return;
        }
        if (session->state == SESSION_RUNNING && session_is_warm(session) && is_built(session)) {
            sched_close(sched, now_us, session, SCHED_END_OK, NULL, "");
            sched_settle(sched, session);
        }
    }
}

void
sched_take_turn(struct sched *sched, uint64_t now_us)
{
    if (sched->pool != NULL) {
        kvpool_set_now(sched->pool, now_us);
    }
    sched_grow(sched, now_us);
    do {
        sched_admit(sched, now_us);
        finish_warm(sched, now_us);
    } while (sched->has_news && sched->starving_count == 0 && sched->pool != NULL);
    sched_spill(sched);
    sched_erase(sched, now_us);
    sched_verify(sched, now_us);
    sched_scrub(sched, now_us);
    if (sched->config.check_pool && sched->pool != NULL) {
        kvpool_check(sched->pool);
    }
}

/* --- requests --------------------------------------------------------------------------------- */

static void
refuse(struct sched *sched, uint64_t id, enum sched_end end)
{
    struct sched_action *action = sched_push(sched, SCHED_REPLY_END, NULL);

    action->request = id;
    action->end = end;
    action->message = sched->message;
    if (end == SCHED_END_NO_MEMORY) {
        sched->counters.requests_failed++;
    } else {
        sched->counters.requests_refused++;
    }
}

/* A default max_tokens bends to the context, a named one must fit. */
static bool
fits_context(struct sched *sched, struct prompt *prompt)
{
    uint64_t tokens =
        prompt->query == NULL ? 0 : tokens_count(prompt->query) - prompt->query_documents;
    uint64_t left;

    for (size_t i = 0; i < prompt->document_count; i++) {
        tokens += tokens_count(prompt->documents[i].tokens);
    }
    if (sched->config.context_max == 0 || prompt->query == NULL) {
        return true;
    }
    left = tokens < sched->config.context_max ? sched->config.context_max - tokens : 0;
    if (left > 0 && !prompt->sampling.has_max_tokens && prompt->sampling.max_tokens > left) {
        prompt->sampling.max_tokens = (uint32_t)left;
    }
    if (left > 0 && prompt->sampling.max_tokens <= left) {
        return true;
    }
    (void)snprintf(sched->message, sizeof(sched->message),
                   "prompt of %llu tokens and max_tokens %u: the model's context has %u",
                   (unsigned long long)tokens, prompt->sampling.max_tokens,
                   sched->config.context_max);
    return false;
}

/* Reasons to refuse before anything is allocated; the message is written. */
static bool
is_welcome(struct sched *sched, uint64_t now_us, struct sched_submit *submit,
           enum sched_end *end_out)
{
    if (sched->is_draining) {
        *end_out = SCHED_END_DRAINING;
        (void)snprintf(sched->message, sizeof(sched->message), "the daemon is draining");
        return false;
    }
    size_t documents_max =
        submit->prompt.reuse == REUSE_REENCODE ? SCHED_DOCUMENTS_MAX / 2 : SCHED_DOCUMENTS_MAX;

    if (submit->prompt.document_count > documents_max) {
        *end_out = SCHED_END_NEVER_FITS;
        (void)snprintf(sched->message, sizeof(sched->message), "%zu documents: the limit is %zu",
                       submit->prompt.document_count, documents_max);
        return false;
    }
    if (!fits_context(sched, &submit->prompt)) {
        *end_out = SCHED_END_NEVER_FITS;
        return false;
    }
    /* Last: somebody may lose his place for it. */
    if (sched->waiting_count >= sched->config.waiting_max
        && !sched_give_place(sched, now_us, submit->tenant, submit->weight)) {
        *end_out = SCHED_END_FULL;
        (void)snprintf(sched->message, sizeof(sched->message),
                       "%u requests are waiting: the limit is %u", sched->waiting_count,
                       sched->config.waiting_max);
        return false;
    }
    return true;
}

enum status
sched_take_in(struct sched *sched, struct sched_submit *submit, struct session **session_out)
{
    struct session *session;
    enum status st;

    assert(submit->id != 0 && find_session(sched, submit->id) == NULL);
    TRY(session_new(submit->id, &submit->prompt, &session));
    st = reserve_actions(sched, sched->action_need + actions_of(session));
    if (st == ST_OK) {
        st = htab_insert(&sched->sessions, htab_mix(session->id), &session->by_id);
    }
    if (st != ST_OK) {
        session_destroy(&session);
        return st;
    }
    sched->action_need += actions_of(session);
    session->arrival_us = submit->arrival_us;
    session->deadline_us = submit->deadline_us;
    session->priority = submit->priority;
    session->has_name = submit->has_name;
    session->is_retry = submit->is_retry;
    memcpy(session->name, submit->name, sizeof(session->name));
    session->order = ++sched->next_order;
    sched->counters.requests_resumed += session->sent_count > 0;
    sched_note_reader(sched, session);
    *session_out = session;
    return ST_OK;
}

void
sched_submit(struct sched *sched, uint64_t now_us, struct sched_submit *submit)
{
    struct session *session;
    enum sched_end end;
    enum status st;

    sched_begin(sched);
    sched->counters.requests_submitted++;
    if (!is_welcome(sched, now_us, submit, &end)) {
        refuse(sched, submit->id, end);
        prompt_deinit(&submit->prompt);
        return;
    }
    st = sched_take_in(sched, submit, &session);
    if (st == ST_OK
        && (st = sched_join_share(sched, session, submit->tenant, submit->weight)) != ST_OK) {
        sched_bury(sched, session);
    }
    if (st != ST_OK) {
        (void)snprintf(sched->message, sizeof(sched->message), "%s", status_detail());
        refuse(sched, submit->id, st == ST_INVALID ? SCHED_END_NEVER_FITS : SCHED_END_NO_MEMORY);
        return;
    }
    sched_enqueue(sched, session);
    if (session->deadline_us < sched->wakeup_us) {
        sched->wakeup_us = session->deadline_us;
    }
    if (sched_never_fits(sched, session)) {
        sched_close(sched, now_us, session, SCHED_END_NEVER_FITS, NULL, status_detail());
    } else if (sched_is_reader_aborted(sched, session)) {
        sched_close(sched, now_us, session, SCHED_END_CANCELLED, NULL, SCHED_FORGOTTEN_TEXT);
    } else if (!sched_go_on(sched, now_us, session)) {
        (void)sched_refuse_quarantined(sched, session, now_us);
    }
    sched_take_turn(sched, now_us);
}

/* Whatever state it is in, its client has its end after this. */
static void
end_session(struct sched *sched, uint64_t now_us, struct session *session, enum sched_end end,
            const char *message)
{
    if (session->state == SESSION_RUNNING) {
        sched_stop_request(sched, session);
    }
    sched_close(sched, now_us, session, end, NULL, message);
    if (session->state == SESSION_CLOSING) {
        sched_settle(sched, session);
    }
}

bool
sched_cancel(struct sched *sched, uint64_t now_us, uint64_t id, bool is_client_gone)
{
    struct session *session;
    bool is_open;

    sched_begin(sched);
    session = find_session(sched, id);
    is_open = session != NULL && session->state != SESSION_CLOSING;
    if (is_open) {
        end_session(sched, now_us, session, SCHED_END_CANCELLED,
                    is_client_gone ? "the client is gone" : "cancelled");
        sched->counters.clients_gone += is_client_gone;
        sched_take_turn(sched, now_us);
    }
    return is_open;
}

static const char *
why_late(const struct sched *sched, const struct session *session)
{
    if (session->state != SESSION_WAITING) {
        return "deadline passed";
    }
    return sched_gauges(sched).workers_ready > 0
               ? "deadline passed in the queue"
               : "deadline passed in the queue: no worker is ready";
}

static void
expire(struct sched *sched, uint64_t now_us, struct list_node *list)
{
    LIST_FOR_EACH_SAFE(node, list)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->state == SESSION_CLOSING) {
            continue;
        }
        if (session->deadline_us <= now_us) {
            end_session(sched, now_us, session, SCHED_END_DEADLINE, why_late(sched, session));
        } else if (session->deadline_us < sched->wakeup_us) {
            sched->wakeup_us = session->deadline_us;
        }
    }
}

void
sched_tick(struct sched *sched, uint64_t now_us)
{
    sched_begin(sched);
    if (now_us < sched->wakeup_us) {
        return;
    }
    sched->wakeup_us = sched_end_pins(sched, now_us);
    uint64_t kept_us = sched_end_kept(sched, now_us);
    uint64_t held_us = sched_end_holds(sched, now_us);

    sched->wakeup_us = kept_us < sched->wakeup_us ? kept_us : sched->wakeup_us;
    sched->wakeup_us = held_us < sched->wakeup_us ? held_us : sched->wakeup_us;
    expire(sched, now_us, &sched->waiting);
    expire(sched, now_us, &sched->running);
    sched_take_turn(sched, now_us);
}

uint64_t
sched_wakeup_us(const struct sched *sched)
{
    return sched->wakeup_us;
}

/* --- workers ---------------------------------------------------------------------------------- */

/* First token: now its attention has read the documents, so now they count as read. */
static void
count_reads(struct sched *sched, struct session *session, const struct sched_result *result)
{
    struct worker *worker = &sched->workers[session->worker];

    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct kvpool_doc *doc = session->wants[i].doc;
        bool is_foreign = doc != NULL && kvpool_doc_origin(doc) != session->worker;

        worker->info.docs_read += doc != NULL;
        worker->info.docs_read_foreign += is_foreign;
        sched->counters.docs_read += doc != NULL;
        sched->counters.docs_read_foreign += is_foreign;
    }
    sched_sample_reuse(sched, session);
    session->tokens_read = result->tokens_read;
    session->turn_tokens_read = result->own_reused;
    if (session->prompt.reuse == REUSE_NONE) {
        sched->counters.tokens_built += session->doc_tokens;
    }
}

/* Of those that nothing came between: a request that moved or was preempted says little. */
static void
note_ttft(struct sched *sched, const struct session *session)
{
    uint64_t missed = 0;

    if (session->losses > 0 || session->preemptions > 0 || session->is_regained
        || session->hold_until_us != 0) {
        return;
    }
    for (uint32_t i = 0; i < session->segment_count; i++) {
        missed += session->wants[i].n_tokens - session->documents[i].tokens_ready;
    }
    missed -= session->tokens_loaded < missed ? session->tokens_loaded : missed;
    ttft_add(&sched->ttft, missed, session->first_token_us - session->admitted_us);
}

static void
take_tokens(struct sched *sched, uint64_t now_us, struct session *session,
            const struct sched_result *result)
{
    if (session->first_token_us == 0) {
        session->first_token_us = now_us;
        count_reads(sched, session, result);
        sched_note_uses(sched, session);
        note_ttft(sched, session);
    }
    for (size_t i = 0; i < result->id_count; i++) {
        session->sent_ids[session->sent_count++] = result->ids[i];
    }
    session->sent_text_bytes += result->text_bytes;
    sched->counters.completion_tokens += result->id_count;
    sched->workers[session->worker].info.tokens_decoded += result->id_count;
    sched_note_progress(sched, session);
}

static void
take_result(struct sched *sched, uint64_t now_us, struct session *session,
            const struct sched_result *result)
{
    uint32_t left = session->prompt.sampling.max_tokens - session->sent_count;

    if (result->error != NULL || result->id_count > left) {
        sched_close_by_worker(sched, now_us, session, SCHED_END_FAILED, NULL,
                              result->error != NULL ? result->error
                                                    : "the worker went on too long");
        return;
    }
    if (result->own_tokens > session->own_tokens) {
        session->own_tokens = result->own_tokens;
    }
    if (result->id_count > 0) {
        take_tokens(sched, now_us, session, result);
    }
    if (result->finish != SCHED_FINISH_NONE) {
        sched_close_by_worker(sched, now_us, session, SCHED_END_OK, result, "");
    } else if (result->id_count > 0 || result->text_bytes > 0) {
        sched_push(sched, SCHED_REPLY_CHUNK, session)->result = result;
    }
}

/* The worker's own request, or NULL: one that it has given back, or never had. */
static struct session *
find_running(struct sched *sched, uint32_t worker, uint64_t id)
{
    struct session *session = find_session(sched, id);

    return session != NULL && session->state != SESSION_WAITING && session->worker == worker
               ? session
               : NULL;
}

static void
take_results(struct sched *sched, uint64_t now_us, uint32_t worker, const struct sched_step *step)
{
    for (size_t i = 0; i < step->result_count; i++) {
        struct session *session = find_running(sched, worker, step->results[i].request);

        if (session == NULL || session->result_event == sched->event || session_is_warm(session)) {
            sched->counters.messages_odd++;
            continue;
        }
        session->result_event = sched->event;
        if (session->state != SESSION_CLOSING) { /* nobody wants the rest of a closed one */
            take_result(sched, now_us, session, &step->results[i]);
        }
    }
}

static void
take_released(struct sched *sched, uint64_t now_us, uint32_t worker, const struct sched_step *step)
{
    for (size_t i = 0; i < step->released_count; i++) {
        struct session *session = find_running(sched, worker, step->released[i]);

        if (session == NULL || session_is_warm(session)) {
            continue; /* the answer to a Stop that crossed the end */
        }
        if (session->state == SESSION_RUNNING) {
            sched_close_by_worker(sched, now_us, session, SCHED_END_FAILED, NULL,
                                  "the worker let go of it without an end");
        }
        session->is_released = true;
        sched_settle(sched, session);
    }
}

bool
sched_worker_step(struct sched *sched, uint64_t now_us, uint32_t worker, uint64_t incarnation,
                  const struct sched_step *step)
{
    struct worker *w = &sched->workers[worker];
    struct build *build;

    assert(worker < SCHED_WORKERS_MAX);
    sched_begin(sched);
    if (sched->pool != NULL) {
        kvpool_set_now(sched->pool, now_us); /* of what is sealed below */
    }
    if (!w->is_ready || w->incarnation != incarnation) {
        sched->counters.messages_late++;
        return true;
    }
    if (!sched_is_next_step(sched, w, step->step)) {
        return w->is_ready && step->step <= w->info.steps;
    }
    w->info.steps = step->step;
    sched->counters.steps++;
    if (step->stop_steps > sched->counters.stop_steps_max) {
        sched->counters.stop_steps_max = step->stop_steps;
    }
    if (sched->pool != NULL) {
        sched_take_loaded(sched, worker, step);
        sched_take_spilled(sched, worker, step);
    }
    sched->now_us = now_us;
    sched_take_sealed(sched, worker, step);
    if (!list_is_empty(&sched->held)) {
        (void)sched_end_holds(sched, now_us); /* for the last seal of one whose time is over */
    }
    take_results(sched, now_us, worker, step);
    take_released(sched, now_us, worker, step);
    for (size_t i = 0; i < step->dropped_count; i++) {
        build = sched_find_build(sched, step->dropped[i]);
        if (build != NULL && build->worker == worker) {
            sched_drop_build(sched, build); /* asked for, or refused by the worker */
        }
    }
    for (size_t i = 0; i < step->kept_released_count; i++) {
        sched_take_kept_released(sched, worker, step->kept_released[i]);
    }
    w->info.rows = step->rows_total;
    sched_take_erased(sched, worker, step);
    sched_take_probed(sched, worker, step->probed);
    for (size_t i = 0; i < step->checked_count; i++) {
        sched_take_checked(sched, now_us, &step->checked[i]);
    }
    sched_take_turn(sched, now_us);
    return true;
}

void
sched_drain(struct sched *sched, bool is_draining)
{
    sched->is_draining = is_draining;
}
