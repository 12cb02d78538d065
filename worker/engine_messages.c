/* SPDX-License-Identifier: Apache-2.0 */
/* What kvasird's messages do to the sequences: they come in, wait for each other, and go. */
#include "worker/engine.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/log.h"
#include "worker/engine_state.h"

void
engine_link_in_order(struct engine *engine, struct sequence *seq)
{
    struct list_node *at = engine->order.prev;

    for (; at != &engine->order; at = at->prev) {
        const struct sequence *other = LIST_ENTRY(at, struct sequence, link);

        if (other->order < seq->order
            || (other->order == seq->order && (other->is_build || !seq->is_build))) {
            break;
        }
    }
    list_insert_before(at->next, &seq->link);
}

static bool
was_sealed(const struct engine *engine, uint64_t build)
{
    for (uint32_t i = 0; i < ENGINE_SEALED_MAX; i++) {
        if (engine->sealed_before[i] == build) {
            return true;
        }
    }
    return false;
}

/* Puts a sequence into its table and the list. */
static enum status
admit(struct engine *engine, struct sequence *seq)
{
    struct htab *tab = seq->is_build ? &engine->builds : &engine->requests;

    TRY(htab_insert(tab, htab_mix(seq->id), &seq->node));
    engine_link_in_order(engine, seq);
    engine_count_room(engine, seq, true);
    engine->is_next_ready = false; /* it shall be in the next step */
    return ST_OK;
}

/* What a sequence waits for becomes as old as it is, and is no longer in the background unless it
 * is itself; what was sealed meanwhile is readable: *build is 0 then. */
static enum status
join_build(struct engine *engine, const struct sequence *seq, const char *what, uint32_t n_tokens,
           uint64_t *build)
{
    struct sequence *found = *build == 0 ? NULL : engine_find(&engine->builds, *build);

    if (*build == 0) {
        return ST_OK;
    }
    if (found == NULL && !was_sealed(engine, *build)) {
        return ERR(ST_INVALID, "%s waits for build %" PRIu64 ": there is none", what, *build);
    }
    if (found == NULL) {
        *build = 0;
        return ST_OK;
    }
    if (found->n_ids != n_tokens) {
        return ERR(ST_INVALID, "%s of %u tokens: build %" PRIu64 " makes %u", what, n_tokens,
                   *build, found->n_ids);
    }
    found->is_background = found->is_background && seq->is_background;
    if (found->order > seq->order) {
        found->order = seq->order;
        list_unlink(&found->link);
        engine_link_in_order(engine, found);
    }
    return ST_OK;
}

static enum status
join_builds(struct engine *engine, struct sequence *seq)
{
    char what[32];

    for (uint32_t i = 0; i < seq->n_segs; i++) {
        (void)snprintf(what, sizeof(what), "segment %u", i);
        TRY(join_build(engine, seq, what, seq->segs[i].n_tokens, &seq->segs[i].build));
    }
    return join_build(engine, seq, "copy", seq->n_ids, &seq->source_build);
}

static enum status
join_and_admit(struct engine *engine, struct sequence *seq)
{
    enum status st = join_builds(engine, seq);

    if (st == ST_OK) {
        st = admit(engine, seq);
    }
    if (st != ST_OK) {
        sequence_destroy(&seq);
    }
    return st;
}

static enum status
admit_build(struct engine *engine, const Kvasir__V1__Build *build, const Kvasir__V1__Assign *assign)
{
    struct sequence *seq = NULL;

    if (build->build == 0 || engine_find(&engine->builds, build->build) != NULL) {
        return ERR(ST_INVALID, "build %" PRIu64 " is open already, or no id", build->build);
    }
    TRY(sequence_new_build(build, assign, &engine->limits, &seq));
    return join_and_admit(engine, seq);
}

/* Sorting the vocabulary takes some milliseconds; most workers never need it. */
static enum status
require_vocabulary(struct engine *engine)
{
    if (engine->vocabulary == NULL) {
        TRY(grammar_vocabulary_new(engine->config.tokenizer, &engine->vocabulary));
        engine->limits.vocabulary = engine->vocabulary;
    }
    return ST_OK;
}

static enum status
admit_request(struct engine *engine, const Kvasir__V1__Assign *assign)
{
    struct sequence *seq = NULL;

    if (engine->requests.count + engine->n_kept_running >= engine->config.seqs_max) {
        return ERR(ST_INVALID, "over credit: %u requests run", engine->config.seqs_max);
    }
    if (assign->sampling != NULL && assign->sampling->json_schema != NULL) {
        TRY(require_vocabulary(engine));
    }
    TRY(sequence_new_request(assign, &engine->limits, engine->config.tokenizer, &seq));
    return join_and_admit(engine, seq);
}

static bool
waits_for(const struct sequence *seq, uint64_t build)
{
    bool waits = seq->source_build == build;

    for (uint32_t i = 0; i < seq->n_segs && !waits; i++) {
        waits = seq->segs[i].build == build;
    }
    return waits;
}

static struct sequence *
find_waiting(const struct engine *engine, uint64_t build)
{
    LIST_FOR_EACH(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (waits_for(seq, build)) {
            return seq;
        }
    }
    return NULL;
}

/* A build goes, and with it all that waits for it: requests fail, builds are dropped in turn.  Each
 * round takes one sequence out; `build` 0 is nobody's. */
static void
drop_build(struct engine *engine, uint64_t build)
{
    struct sequence *seq = engine_find(&engine->builds, build);
    struct sequence *waiting;

    report_dropped(&engine->report, build);
    if (seq == NULL) {
        return;
    }
    engine_retire(engine, seq);
    while ((waiting = find_waiting(engine, build)) != NULL) {
        if (waiting->is_build) {
            drop_build(engine, waiting->id);
        } else {
            engine_fail(engine, waiting->id, "a document that it waits for was given up");
            engine_retire(engine, waiting);
        }
    }
}

/* What is to be written for the first time. */
static enum status
wipe_assigned(struct engine *engine, const Kvasir__V1__Assign *assign)
{
    uint32_t P = engine->limits.block_tokens;

    for (size_t i = 0; i < assign->n_builds; i++) {
        const Kvasir__V1__Build *build = assign->builds[i];
        uint32_t first = build->start / P + (build->start % P != 0); /* what is begun stays */

        TRY(upkeep_wipe(&engine->upkeep, build->block_ids + first, build->n_block_ids - first));
    }
    uint32_t cached = assign->own_cached / P;

    return assign->has_request ? upkeep_wipe(&engine->upkeep, assign->own_block_ids + cached,
                                             assign->n_own_block_ids - cached)
                               : ST_OK;
}

/* All or nothing: when any part is bad, the whole Assign is refused. */
static enum status
apply_assign(struct engine *engine, const Kvasir__V1__Assign *assign)
{
    enum status st = ST_OK;
    size_t n = 0;

    if (assign->has_request && engine_find(&engine->requests, assign->request) != NULL) {
        log_warn("assign_twice", "request=%" PRIu64 " ignoring=the_second", assign->request);
        return ST_OK;
    }
    if (assign->has_kept) {
        bool is_taken;

        TRY(engine_take_up(engine, assign, &is_taken));
        if (is_taken) {
            return ST_OK;
        }
    }
    for (; st == ST_OK && n < assign->n_builds; n++) {
        st = admit_build(engine, assign->builds[n], assign);
    }
    size_t admitted = st == ST_OK ? n : n - 1;

    if (st == ST_OK && assign->has_request) {
        st = admit_request(engine, assign);
    }
    if (st == ST_OK) {
        TRY(wipe_assigned(engine, assign));
        TRY(engine_begin_loads(engine, assign));
        return engine_make_room(engine);
    }
    if (assign->has_request) {
        engine_fail(engine, assign->request, status_detail());
    } else {
        log_warn("builds_refused", "builds=%zu reason=\"%s\"", assign->n_builds, status_detail());
    }
    for (size_t i = 0; i < assign->n_builds; i++) {
        if (i < admitted || engine_find(&engine->builds, assign->builds[i]->build) == NULL) {
            drop_build(engine, assign->builds[i]->build);
        }
    }
    return ST_OK;
}

static enum status
apply_grant(struct engine *engine, const Kvasir__V1__Grant *grant)
{
    struct sequence *seq = engine_find(&engine->requests, grant->request);

    if (seq == NULL) {
        return ST_OK; /* it has ended while the Grant was under way */
    }
    engine_count_room(engine, seq, false);
    enum status st = sequence_grant(seq, grant->block_ids, grant->n_block_ids, &engine->limits);

    engine_count_room(engine, seq, true);
    if (engine_rows_ahead(engine, seq) == 0) {
        engine->is_next_ready = false; /* it may have waited for these */
    }
    if (st != ST_OK) {
        engine_fail(engine, seq->id, status_detail());
        engine_retire(engine, seq);
        return ST_OK;
    }
    TRY(upkeep_wipe(&engine->upkeep, grant->block_ids, grant->n_block_ids));
    return engine_make_room(engine);
}

static void
apply_stop(struct engine *engine, uint64_t request)
{
    struct sequence *seq = engine_find(&engine->requests, request);

    report_released(&engine->report, request);
    if (seq != NULL) {
        engine_retire(engine, seq);
    }
}

/* What was collected for the earlier kvasird is said to nobody; what is let go of has no line. */
static enum status
apply_reset(struct engine *engine, uint64_t life)
{
    upkeep_reset(&engine->upkeep);
    engine_stop_spills(engine);
    report_was_reset(&engine->report, life);
    return engine_keep_all(engine);
}

/* kvasird takes no answer for "not checked": it asks again some day. */
static enum status
apply_check(struct engine *engine, const Kvasir__V1__Check *check)
{
    enum status st = upkeep_check(&engine->upkeep, check);

    if (st == ST_INVALID) {
        log_warn("check_refused", "check=%" PRIu64 " reason=\"%s\"", check->check, status_detail());
        return ST_OK;
    }
    return st;
}

/* Only what was overwritten is said to be: one that is refused stays open in kvasird. */
static enum status
apply_erase(struct engine *engine, const Kvasir__V1__Erase *erase)
{
    bool is_of_host = erase->n_host_block_ids > 0;
    enum status st = upkeep_erase(&engine->upkeep, erase->block_ids, erase->n_block_ids);

    if (st == ST_OK && is_of_host) {
        st = engine_erase_host(engine, erase); /* answered when the mover has done it */
    } else if (st == ST_OK) {
        report_erased(&engine->report, erase->erase);
    }
    if (st == ST_INVALID) {
        log_error("erase_refused", "erase=%" PRIu64 " reason=\"%s\"", erase->erase,
                  status_detail());
        return ST_OK;
    }
    return st;
}

/* The step that answers waits for what is enqueued here. */
static enum status
apply_probe(struct engine *engine, uint64_t probe)
{
    TRY(upkeep_probe(&engine->upkeep));
    report_probed(&engine->report, probe);
    return ST_OK;
}

enum status
engine_apply(struct engine *engine, const Kvasir__V1__DaemonMessage *message)
{
    bool is_assign = message->body_case == KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN;

    engine_forget_last_step(engine);
    /* A line about every sequence that is open now or may be after this message. */
    TRY(report_reserve(&engine->report, engine_open(engine) + engine->n_spills + 1
                                            + (is_assign ? message->assign->n_builds : 0)));
    switch (message->body_case) {
    case KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN: return apply_assign(engine, message->assign);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT: return apply_grant(engine, message->grant);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP:
        if (message->stop->has_kept) {
            engine_drop_kept(engine, message->stop->kept);
        } else {
            apply_stop(engine, message->stop->request);
        }
        break;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD:
        drop_build(engine, message->stop_build->build);
        break;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_CHECK: return apply_check(engine, message->check);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE: return apply_erase(engine, message->erase);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_PROBE: return apply_probe(engine, message->probe->probe);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_SPILL: engine_apply_spill(engine, message->spill); break;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_RESET: return apply_reset(engine, message->reset->life);
    default: break;
    }
    return ST_OK;
}
