/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes in next, and where it runs.
 *
 * The queue is by priority, then by turn: that of tenants is fair (sched_share.c), within one it is
 * first come, first served.  A request that does not fit yet may be passed by a smaller or luckier
 * one, and a low priority by a higher one; but each waiting request counts who passed it out of
 * turn.  As those with an earlier turn are passed whenever later ones are, the first one has the
 * highest count; at SCHED_PASSES_MAX nobody comes in before it.  Then running requests end, blocks
 * come back, builds seal: it gets in.  So nothing starves, at the price of an emptier machine for a
 * moment.
 *
 * The worker: documents that are being built bind a request to their worker, which orders the build
 * before the reader.  Built on two workers, or on one without credit: the request waits until they
 * are sealed, without holding anything.  Otherwise the least loaded worker with credit; among
 * equals the one that runs requests over the same documents (sched_sharing.c). */
#include "daemon/sched_state.h"

#include <assert.h>
#include <stdio.h>

#include "common/mem.h"

enum verdict {
    ADMITTED,
    BLOCKED,   /* not now; another one may fit */
    EXPECTED,  /* not now; a worker may come back with it, or is about to show that it works */
    NO_CREDIT, /* no worker takes anything */
    REFUSED,   /* never: it has been closed */
};

bool
sched_never_fits(const struct sched *sched, struct session *session)
{
    if (sched->pool == NULL) {
        return false;
    }
    sched_list_sources(sched, session, true);
    return kvpool_fits(sched->pool, session->wants, session->want_count,
                       session_own_tokens_max(session))
           == ST_INVALID;
}

static bool
comes_before(const struct session *a, const struct session *b)
{
    return a->priority != b->priority ? a->priority > b->priority : sched_is_turn_before(a, b);
}

/* The node that the session goes before.  From both ends at once: one goes last as a rule, and next
 * when its tenant was quiet. */
static struct list_node *
find_queue_place(struct sched *sched, const struct session *session)
{
    struct list_node *front = sched->queue.next, *back = &sched->queue;

    while (front != back) {
        if (comes_before(session, LIST_ENTRY(front, struct session, queue_link))) {
            return front;
        }
        if (!comes_before(session, LIST_ENTRY(back->prev, struct session, queue_link))) {
            return back;
        }
        front = front->next;
        back = front == back ? back : back->prev;
    }
    return back;
}

static struct list_node *
find_turn_place(struct sched *sched, const struct session *session)
{
    struct list_node *front = sched->waiting.next, *back = &sched->waiting;

    while (front != back) {
        if (sched_is_turn_before(session, LIST_ENTRY(front, struct session, age_link))) {
            return front;
        }
        if (!sched_is_turn_before(session, LIST_ENTRY(back->prev, struct session, age_link))) {
            return back;
        }
        front = front->next;
        back = front == back ? back : back->prev;
    }
    return back;
}

/* Who comes in between keeps the rule that the first has been passed most often. */
static void
inherit_passes(struct session *session, const struct list_node *next)
{
    uint32_t passed = LIST_ENTRY(next, struct session, age_link)->passed;

    session->passed = session->passed > passed ? session->passed : passed;
}

void
sched_enqueue(struct sched *sched, struct session *session)
{
    struct list_node *at;

    sched_take_place(sched, session);
    list_insert_before(find_queue_place(sched, session), &session->queue_link);
    at = find_turn_place(sched, session);
    list_insert_before(at, &session->age_link);
    if (at != &sched->waiting) {
        inherit_passes(session, at);
    }
    sched->waiting_count++;
    sched->has_news = true;
}

bool
sched_move_up(struct sched *sched, struct session *session)
{
    struct list_node *at = &session->queue_link;
    bool has_moved;

    while (at->prev != &sched->queue
           && comes_before(session, LIST_ENTRY(at->prev, struct session, queue_link))) {
        at = at->prev;
    }
    has_moved = at != &session->queue_link;
    if (has_moved) {
        list_unlink(&session->queue_link);
        list_insert_before(at, &session->queue_link);
    }
    at = &session->age_link;
    while (at->prev != &sched->waiting
           && sched_is_turn_before(session, LIST_ENTRY(at->prev, struct session, age_link))) {
        at = at->prev;
    }
    if (at != &session->age_link) {
        list_unlink(&session->age_link);
        list_insert_before(at, &session->age_link);
        inherit_passes(session, at);
    }
    return has_moved;
}

/* The pool keeps what the next in line need.  It is a hint: if there is no memory for it, or one
 * that was next in line is passed by others, nothing is wrong. */
static void
look_ahead(struct sched *sched)
{
    uint32_t seen = 0;

    LIST_FOR_EACH(node, &sched->queue)
    {
        struct session *session = LIST_ENTRY(node, struct session, queue_link);

        if (seen++ == SCHED_AHEAD_MAX) {
            return;
        }
        if (!session->is_awaited) {
            session->is_awaited =
                kvpool_await(sched->pool, session->wants, session->segment_count) == ST_OK;
        }
    }
}

void
sched_unawait(struct sched *sched, struct session *session)
{
    if (session->is_awaited) {
        session->is_awaited = false;
        kvpool_unawait(sched->pool, session->wants, session->segment_count);
    }
}

bool
sched_has_credit(const struct worker *worker)
{
    return worker->is_ready && !worker->is_draining && worker->alone == NULL && !worker->is_cordoned
           && worker->assigned + worker->kept - worker->background < worker->seqs_max;
}

/* Positive: `a` uses a larger share of its credit than `b`. */
static int
compare_load(const struct worker *a, const struct worker *b)
{
    uint64_t load_a = ((uint64_t)a->assigned + a->kept) * b->seqs_max;
    uint64_t load_b = ((uint64_t)b->assigned + b->kept) * a->seqs_max;

    return load_a < load_b ? -1 : load_a > load_b;
}

/* The worker with the smallest share of its credit in use; among equals the one that runs most of
 * the request's documents, then the one that waited longest. */
static uint32_t
least_loaded(const struct sched *sched, const struct session *session)
{
    uint32_t best = SESSION_WORKER_NONE;
    uint64_t best_shared = 0;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];

        if (!sched_has_credit(worker)) {
            continue;
        }
        int order = best == SESSION_WORKER_NONE ? -1 : compare_load(worker, &sched->workers[best]);

        if (order > 0) {
            continue;
        }
        uint64_t shared = sched_shared_tokens(sched, session, i);

        if (order == 0
            && (shared < best_shared
                || (shared == best_shared
                    && worker->last_assigned >= sched->workers[best].last_assigned))) {
            continue;
        }
        best = i;
        best_shared = shared;
    }
    return best;
}

struct build *
sched_find_build(const struct sched *sched, uint64_t id)
{
    struct htab_node *node = htab_find(&sched->builds, htab_mix(id), &id);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct build, by_id);
}

static bool
has_survived(const struct sched *sched, const struct worker *worker)
{
    return worker->survived == sched->losses;
}

static bool
is_better_alone(const struct sched *sched, const struct worker *a, const struct worker *b)
{
    return has_survived(sched, a) != has_survived(sched, b) ? has_survived(sched, a)
                                                            : a->assigned < b->assigned;
}

/* A worker with nothing on it that has survived the last loss, for a suspect.  If there is none,
 * the one with the least gets nothing new until it is free; the others go on. */
static enum verdict
choose_alone(struct sched *sched, uint32_t *worker_out)
{
    uint32_t best = SESSION_WORKER_NONE;
    bool has_cordon = false;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];

        has_cordon |= worker->is_cordoned;
        if (worker->is_ready && !worker->is_draining && worker->alone == NULL
            && (best == SESSION_WORKER_NONE
                || is_better_alone(sched, worker, &sched->workers[best]))) {
            best = i;
        }
    }
    if (best != SESSION_WORKER_NONE && sched->workers[best].assigned == 0
        && sched->workers[best].kept == 0 && has_survived(sched, &sched->workers[best])) {
        *worker_out = best;
        return ADMITTED;
    }
    if (best == SESSION_WORKER_NONE) {
        return NO_CREDIT;
    }
    if (!has_survived(sched, &sched->workers[best])) {
        return EXPECTED;
    }
    sched->workers[best].is_cordoned |= !has_cordon;
    return BLOCKED;
}

static enum verdict
choose_worker(struct sched *sched, const struct session *session, uint32_t *worker_out)
{
    uint32_t bound = SESSION_WORKER_NONE;

    for (uint32_t i = 0; i < session->want_count; i++) {
        const struct kvpool_doc *doc = kvpool_find(sched->pool, &session->wants[i].key);

        if (doc == NULL || kvpool_doc_builder(doc) == 0) {
            continue;
        }
        const struct build *build = sched_find_build(sched, kvpool_doc_generation(doc));

        assert(build != NULL);
        if (build->is_dropping || (bound != SESSION_WORKER_NONE && bound != build->worker)) {
            return BLOCKED;
        }
        bound = build->worker;
    }
    if (sched_is_suspicious(sched, session)) {
        return bound == SESSION_WORKER_NONE ? choose_alone(sched, worker_out) : BLOCKED;
    }
    if (bound == SESSION_WORKER_NONE) {
        *worker_out = least_loaded(sched, session);
        return *worker_out == SESSION_WORKER_NONE ? NO_CREDIT : ADMITTED;
    }
    *worker_out = bound;
    return sched_has_credit(&sched->workers[bound]) ? ADMITTED : BLOCKED;
}

static void
forget_builds(struct sched *sched, struct session *session)
{
    LIST_FOR_EACH_SAFE(node, &session->owned_builds)
    {
        struct build *build = LIST_ENTRY(node, struct build, owner_link);

        list_unlink(node);
        htab_remove(&sched->builds, &build->by_id);
        sched_end_load(sched, build);
        kvpool_doc_abandon(sched->pool, build->doc, 0);
        mem_free(build);
    }
}

static enum status
add_build(struct sched *sched, struct session *session, uint32_t worker, uint32_t index)
{
    const struct kvpool_want *want = &session->wants[index];
    uint64_t id = kvpool_doc_generation(want->doc);
    struct build *build = mem_zalloc(1, sizeof(*build));

    if (build == NULL || htab_insert(&sched->builds, htab_mix(id), &build->by_id) != ST_OK) {
        mem_free(build);
        /* Not in the table, so forget_builds will not see it. */
        kvpool_doc_abandon(sched->pool, want->doc, 0);
        return ERR(ST_NO_MEMORY, "no memory for a build");
    }
    build->id = id;
    build->owner = session;
    build->doc = want->doc;
    build->worker = worker;
    build->start = want->tokens_ready;
    build->is_copy =
        index < session->segment_count && session->sources[index] != SESSION_SOURCE_NONE;
    list_push_back(&session->owned_builds, &build->owner_link);
    sched_begin_load(sched, build);
    return ST_OK;
}

/* One record for each distinct document that this claim builds; sources before their copies. */
static enum status
add_builds(struct sched *sched, struct session *session, uint32_t worker)
{
    for (uint32_t n = 0; n < session->want_count; n++) {
        uint32_t i = (session->segment_count + n) % session->want_count;
        const struct kvpool_want *want = &session->wants[i];

        if (want->must_build && sched_find_build(sched, kvpool_doc_generation(want->doc)) == NULL) {
            TRY(add_build(sched, session, worker, i));
        }
    }
    return ST_OK;
}

/* After a failure in the middle: what has no record yet leaves the index too. */
static void
abandon_rest(struct sched *sched, struct session *session)
{
    forget_builds(sched, session);
    for (uint32_t i = 0; i < session->want_count; i++) {
        const struct kvpool_want *want = &session->wants[i];

        if (want->must_build && kvpool_find(sched->pool, &want->key) == want->doc) {
            kvpool_doc_abandon(sched->pool, want->doc, 0);
        }
    }
    kvpool_claim_release(sched->pool, &session->claim, 0);
}

void
sched_push_assign(struct sched *sched, struct session *session)
{
    bool has_builds = !list_is_empty(&session->owned_builds);
    struct sched_action *action;

    if ((session_is_warm(session) || session->is_held) && !has_builds) {
        return; /* others build all of it, or it is there */
    }
    action = sched_push(sched, SCHED_SEND_ASSIGN, session);
    action->is_builds_only =
        session_is_warm(session) || session->is_held || (session->is_alone && has_builds);
    session->is_sent = !action->is_builds_only;
    sched_describe_segments(session);
    action->build_count = sched_describe_builds(sched, session);
    action->worker = session->worker;
    action->incarnation = session->incarnation;
    action->blocks = kvpool_claim_blocks(session->claim, &action->block_count);
    action->kept = session->kept;
    session->kept = 0;
}

/* Whoever waits and whose turn is before that of `session` has been passed. */
static void
count_passes(struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->waiting)
    {
        struct session *other = LIST_ENTRY(node, struct session, age_link);

        if (!sched_is_turn_before(other, session)) {
            return;
        }
        other->passed++;
        sched->counters.requests_passed++;
    }
}

/* What forecasts rest on: the documents as clients cite them, whatever is kept of them here. */
static void
note_traffic(struct sched *sched, const struct session *session)
{
    struct kvpool_stats stats;

    if (session_is_warm(session)) {
        return;
    }
    kvpool_stats(sched->pool, &stats);
    traffic_request(sched->traffic, sched->running_count, stats.blocks_own);
    for (uint32_t i = 0; i < session->segment_count; i++) {
        bool has_source = session->sources[i] != SESSION_SOURCE_NONE;

        traffic_document(sched->traffic, &session->wants[has_source ? session->sources[i] : i]);
    }
}

static void
note_first_admission(struct sched *sched, struct session *session, uint64_t now_us)
{
    if (session->admitted_us != 0) {
        return;
    }
    session->admitted_us = now_us;
    for (uint32_t i = 0; i < session->segment_count; i++) {
        bool has_source = session->sources[i] != SESSION_SOURCE_NONE;
        const struct kvpool_want *want = &session->wants[has_source ? session->sources[i] : i];

        session->documents[i] = (struct session_document){
            .tokens_ready = want->tokens_ready,
            .reason = want->reason,
            .is_copied = has_source && want->reason == KVPOOL_HIT,
        };
    }
    note_traffic(sched, session);
    sched->counters.prompt_tokens +=
        session_usage(session, sched->config.block_tokens, now_us).prompt_tokens;
}

void
sched_start(struct sched *sched, struct session *session, uint32_t worker, uint64_t now_us)
{
    struct list_node *at = &sched->running;

    sched_unawait(sched, session);
    sched_leave_place(sched, session, true);
    list_unlink(&session->queue_link);
    list_unlink(&session->age_link);
    sched->waiting_count--;
    while (at->prev != &sched->running
           && session->order < LIST_ENTRY(at->prev, struct session, age_link)->order) {
        at = at->prev;
    }
    list_insert_before(at, &session->age_link);
    sched->running_count++;
    sched->warm_count += session_is_warm(session);
    sched->background_count += session->is_background;
    sched->workers[worker].background += session->is_background;
    session_move(session, SESSION_ADMIT);
    session->worker = worker;
    session->incarnation = sched->workers[worker].incarnation;
    session->own_tokens = 0;
    session->is_released = session_is_warm(session); /* the worker knows only its builds */
    session->is_sent = false;
    session->drops_pending = 0;
    session->passed = 0;
    kvpool_lend(sched->pool, session->claim, session->id, session->incarnation);
    if (session->is_suspect) {
        sched_begin_alone(sched, session);
    }
    sched->workers[worker].assigned++;
    sched->workers[worker].last_assigned = ++sched->next_turn;
    note_first_admission(sched, session, now_us);
    sched_hold(sched, session, now_us);
    sched_push_assign(sched, session);
}

/* Blocks of its own that a request needs now: query, what it has said, a first part of what it
 * will. */
static uint32_t
own_blocks_now(const struct sched *sched, const struct session *session)
{
    uint32_t left;

    if (session_is_warm(session)) {
        return 0;
    }
    left = session->prompt.sampling.max_tokens - session->sent_count;
    if (left > sched->config.reserve_tokens) {
        left = sched->config.reserve_tokens;
    }
    return kvpool_blocks_for(sched->pool, (uint64_t)tokens_count(session->prompt.query)
                                              + session->sent_count + left)
           - session->turn_block_count;
}

/* An answer has something of its documents: of one, or, for the pool, of any. */
static void
name_own_blocks(struct sched *sched, const struct session *session)
{
    const struct prompt *prompt = &session->prompt;
    uint64_t documents[2] = {0};
    size_t count = 0;

    for (size_t i = 0; i < prompt->document_count && count < 2; i++) {
        uint64_t document = dockey_hash(&prompt->documents[i].key);

        if (count == 0 || documents[0] != document) {
            documents[count++] = document;
        }
    }
    kvpool_claim_own(sched->pool, session->claim, documents, count);
}

static enum verdict
try_admit(struct sched *sched, struct session *session, uint64_t now_us)
{
    uint32_t worker = SESSION_WORKER_NONE;
    enum verdict verdict;
    enum status st;

    if (sched_refuse_quarantined(sched, session, now_us)) {
        return REFUSED;
    }
    if (sched_is_expected(sched, session, now_us)) {
        return EXPECTED;
    }
    if (sched_is_hopeless(sched, session, now_us)) {
        sched->counters.requests_hopeless++;
        sched_close(sched, now_us, session, SCHED_END_DEADLINE, NULL,
                    "too little time is left for an answer");
        return REFUSED;
    }
    if (sched_never_fits(sched, session)) {
        sched_close(sched, now_us, session, SCHED_END_NEVER_FITS, NULL, status_detail());
        return REFUSED;
    }
    sched_list_sources(sched, session, false);
    verdict = choose_worker(sched, session, &worker);
    if (verdict != ADMITTED) {
        return verdict;
    }
    session->is_suspect =
        sched_is_suspicious(sched, session); /* the claim makes its builds known */
    sched_find_turns(sched, session);
    st = kvpool_claim(sched->pool, session->wants, session->want_count,
                      own_blocks_now(sched, session), session->id, &session->claim);
    if (st == ST_NO_MEMORY) {
        if (!session->is_background) {
            (void)sched_yield_background(sched, now_us);
        }
        return BLOCKED;
    }
    if (st != ST_OK) {
        sched_close(sched, now_us, session, SCHED_END_FAILED, NULL, status_detail());
        return REFUSED;
    }
    name_own_blocks(sched, session);
    if (add_builds(sched, session, worker) != ST_OK) {
        abandon_rest(sched, session);
        return BLOCKED;
    }
    if (!list_is_empty(&session->owned_builds)) {
        sched_note_rebuild(sched, session);
    }
    count_passes(sched, session);
    sched_start(sched, session, worker, now_us);
    return ADMITTED;
}

bool
sched_try_admit(struct sched *sched, struct session *session, uint64_t now_us)
{
    return try_admit(sched, session, now_us) == ADMITTED;
}

/* Nothing is on its way back and the first in line still does not fit: only an unpin would help. */
static bool
is_stuck(const struct sched *sched)
{
    struct kvpool_stats stats;

    kvpool_stats(sched->pool, &stats);
    return sched->running_count == 0 && list_is_empty(&sched->kept)
           && stats.blocks_quarantined == 0;
}

/* The last refusal of the pool says what is missing. */
static void
close_stuck(struct sched *sched, struct session *session, uint64_t now_us)
{
    char message[SESSION_MESSAGE_BYTES];
    struct kvpool_stats stats;

    kvpool_stats(sched->pool, &stats);
    (void)snprintf(message, sizeof(message), "%s; %u of the pool's %u blocks are pinned",
                   status_detail(), stats.blocks_pinned, stats.block_count);
    sched_close(sched, now_us, session, SCHED_END_FULL, NULL, message);
}

static struct session *
overdue(const struct sched *sched)
{
    struct session *first;

    if (list_is_empty(&sched->waiting)) {
        return NULL;
    }
    first = LIST_ENTRY(sched->waiting.next, struct session, age_link);
    return first->passed >= SCHED_PASSES_MAX ? first : NULL;
}

/* The next one to try: the overdue one and nobody else, or who follows `after` in the queue. */
static struct session *
next_candidate(const struct sched *sched, const struct list_node *after)
{
    struct session *first = overdue(sched);

    if (first != NULL) {
        return after == &sched->queue ? first : NULL;
    }
    return after->next == &sched->queue ? NULL
                                        : LIST_ENTRY(after->next, struct session, queue_link);
}

/* Each look at the queue decides anew whom it keeps a worker free for. */
static void
lift_cordon(struct sched *sched)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        sched->workers[i].is_cordoned = false;
    }
}

void
sched_admit(struct sched *sched, uint64_t now_us)
{
    const struct list_node *after = &sched->queue; /* everybody up to it is blocked */
    struct session *session;
    uint32_t blocked = 0;

    /* While an answer starves there is nothing to claim, and what comes free is its. */
    if (!sched->has_news || sched->pool == NULL || sched->starving_count > 0) {
        return;
    }
    sched->has_news = false;
    lift_cordon(sched);
    (void)sched_pull_turns(sched);
    look_ahead(sched);
    while (blocked < SCHED_TRIES_MAX) {
        if (sched_pull_turns(sched)) { /* after one was refused */
            after = &sched->queue;
        }
        if ((session = next_candidate(sched, after)) == NULL) {
            return;
        }
        struct session *sharing = overdue(sched) == NULL ? sched_sharing_first(sched) : NULL;

        if (sharing != NULL && blocked == 0) {
            enum verdict verdict = try_admit(sched, sharing, now_us);

            if (verdict == NO_CREDIT) {
                return;
            }
            if (verdict != BLOCKED && verdict != EXPECTED) {
                continue;
            }
        }
        switch (try_admit(sched, session, now_us)) {
        case ADMITTED:
        case REFUSED: break;
        case NO_CREDIT: return;
        case EXPECTED: after = &session->queue_link; break;
        case BLOCKED:
            if (is_stuck(sched)) {
                close_stuck(sched, session, now_us);
                break;
            }
            after = &session->queue_link;
            blocked++;
            break;
        }
    }
}
