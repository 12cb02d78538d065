/* SPDX-License-Identifier: Apache-2.0 */
/* What kvasird's messages do to the sequences: they come in, wait for each other, and go. */
#include "worker/engine.h"

#include <inttypes.h>

#include "common/log.h"
#include "worker/engine_state.h"

/* Keeps the list in order of arrival; a build goes before requests of its own age. */
static void
link_in_order(struct engine *engine, struct sequence *seq)
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
    link_in_order(engine, seq);
    engine_count_room(engine, seq, true);
    engine->is_next_ready = false; /* it shall be in the next step */
    return ST_OK;
}

static enum status
admit_build(struct engine *engine, const Kvasir__V1__Build *build, uint64_t order)
{
    struct sequence *seq = NULL;

    if (build->build == 0 || engine_find(&engine->builds, build->build) != NULL) {
        return ERR(ST_INVALID, "build %" PRIu64 " is open already, or no id", build->build);
    }
    TRY(sequence_new_build(build, order, &engine->limits, &seq));
    enum status st = admit(engine, seq);

    if (st != ST_OK) {
        sequence_destroy(&seq);
    }
    return st;
}

/* Builds that a request waits for become as old as it is; those sealed meanwhile are readable. */
static enum status
join_builds(struct engine *engine, struct sequence *seq)
{
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        struct sequence_segment *seg = &seq->segs[i];

        if (seg->build == 0) {
            continue;
        }
        struct sequence *build = engine_find(&engine->builds, seg->build);

        if (build == NULL && !was_sealed(engine, seg->build)) {
            return ERR(ST_INVALID, "segment %u waits for build %" PRIu64 ": there is none", i,
                       seg->build);
        }
        if (build == NULL) {
            seg->build = 0;
        } else if (build->n_ids != seg->n_tokens) {
            return ERR(ST_INVALID, "segment %u of %u tokens: build %" PRIu64 " makes %u", i,
                       seg->n_tokens, seg->build, build->n_ids);
        } else if (build->order > seq->order) {
            build->order = seq->order;
            list_unlink(&build->link);
            link_in_order(engine, build);
        }
    }
    return ST_OK;
}

static enum status
admit_request(struct engine *engine, const Kvasir__V1__Assign *assign)
{
    struct sequence *seq = NULL;

    if (engine->requests.count >= engine->config.seqs_max) {
        return ERR(ST_INVALID, "over credit: %u requests run", engine->config.seqs_max);
    }
    TRY(sequence_new_request(assign, &engine->limits, engine->config.tokenizer, &seq));
    enum status st = join_builds(engine, seq);

    if (st == ST_OK) {
        st = admit(engine, seq);
    }
    if (st != ST_OK) {
        sequence_destroy(&seq);
    }
    return st;
}

static void
drop_build(struct engine *engine, uint64_t build)
{
    struct sequence *seq = engine_find(&engine->builds, build);

    report_dropped(&engine->report, build);
    if (seq == NULL) {
        return;
    }
    engine_retire(engine, seq);
    LIST_FOR_EACH_SAFE(n, &engine->order)
    {
        struct sequence *reader = LIST_ENTRY(n, struct sequence, link);

        for (uint32_t i = 0; i < reader->n_segs; i++) {
            if (reader->segs[i].build == build) {
                engine_fail(engine, reader->id, "a document that it waits for was given up");
                engine_retire(engine, reader);
                break;
            }
        }
    }
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
    for (; st == ST_OK && n < assign->n_builds; n++) {
        st = admit_build(engine, assign->builds[n], assign->arrival_order);
    }
    size_t admitted = st == ST_OK ? n : n - 1;

    if (st == ST_OK && assign->has_request) {
        st = admit_request(engine, assign);
    }
    if (st == ST_OK) {
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

enum status
engine_apply(struct engine *engine, const Kvasir__V1__DaemonMessage *message)
{
    bool is_assign = message->body_case == KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN;

    engine_forget_last_step(engine);
    /* A line about every sequence that is open now or may be after this message. */
    TRY(report_reserve(&engine->report,
                       engine_open(engine) + 1 + (is_assign ? message->assign->n_builds : 0)));
    switch (message->body_case) {
    case KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN: return apply_assign(engine, message->assign);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_GRANT: return apply_grant(engine, message->grant);
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP: apply_stop(engine, message->stop->request); break;
    case KVASIR__V1__DAEMON_MESSAGE__BODY_STOP_BUILD:
        drop_build(engine, message->stop_build->build);
        break;
    default: break;
    }
    return ST_OK;
}
