/* SPDX-License-Identifier: Apache-2.0 */
/* Documents are read again, now and then, and what is not what it should be is never read for an
 * answer again.
 *
 * One document at a time, by a worker that has nothing else to do, so that all of them have had
 * their turn about once in scrub_interval; those of an earlier kvasird at once.  A check holds no
 * reference: the document may go meanwhile, or be built again, and then its answer says nothing
 * (kvpool_doc_generation).  A document that is damaged leaves the pool.  Who was reading it and has
 * said nothing yet begins again; who has said something ends with an error, since nobody knows what
 * of it was wrong. */
#include "daemon/sched_state.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"

/* --- sums ------------------------------------------------------------------------------------- */

void
sched_take_sealed(struct sched *sched, uint32_t worker, const struct sched_step *step)
{
    size_t at = 0; /* sums taken; SIZE_MAX: it is not known any more whose the next ones are */

    for (size_t i = 0; i < step->sealed_count; i++) {
        struct build *build = sched_find_build(sched, step->sealed[i]);
        uint32_t first, count;

        if (build == NULL || build->worker != worker) {
            at = SIZE_MAX;
            continue;
        }
        (void)kvpool_doc_blocks(build->doc, &count);
        first = build->start / sched->config.block_tokens;
        count -= first;
        if (at != SIZE_MAX && count <= step->sum_count - at) {
            kvpool_doc_set_contents(sched->pool, build->doc, first, step->sums + at, count);
            at += count;
        } else {
            at = SIZE_MAX;
        }
        sched_seal_build(sched, build);
    }
}

/* --- damage ----------------------------------------------------------------------------------- */

/* It, a copy of it, or a turn over it. */
static bool
reads(const struct session *session, const struct dockey *key)
{
    for (uint32_t i = 0; i < session->want_count; i++) {
        const struct kvpool_doc *doc = session->wants[i].doc;

        if (doc != NULL && kvpool_doc_stems_from(doc, key)) {
            return true;
        }
    }
    return false;
}

static void
stop_reader(struct sched *sched, uint64_t now_us, struct session *session)
{
    if (session->sent_count == 0 && !session_is_warm(session)) {
        sched->counters.readers_restarted++;
        sched_preempt(sched, session);
        return;
    }
    sched->counters.readers_failed += !session->is_background;
    sched_stop_request(sched, session);
    sched_close(sched, now_us, session, SCHED_END_DAMAGED, NULL,
                "memory of a document was found damaged while it was read: ask again");
    sched_settle(sched, session);
}

void
sched_drop_damaged(struct sched *sched, uint64_t now_us, struct kvpool_doc *doc, uint32_t worker,
                   uint32_t blocks)
{
    struct dockey key = *kvpool_doc_key(doc);
    struct sched_action *action = sched_push(sched, SCHED_TELL_DAMAGED, NULL);

    action->worker = worker;
    action->damage = (struct sched_damage){.key = key,
                                           .n_tokens = kvpool_doc_tokens(doc),
                                           .origin = kvpool_doc_origin(doc),
                                           .blocks = blocks};
    sched->counters.docs_damaged++;
    sched->counters.blocks_damaged += blocks;
    LIST_FOR_EACH_SAFE(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->state == SESSION_RUNNING && reads(session, &key)) {
            action->damage.readers++;
            stop_reader(sched, now_us, session);
        }
    }
    sched_drop_kept(sched, &key);
    (void)kvpool_drop_stemming(sched->pool, &key);
    sched->has_news = true;
}

/* --- checks ----------------------------------------------------------------------------------- */

static uint32_t
find_idle(const struct sched *sched)
{
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];

        if (worker->is_ready && !worker->is_draining && !worker->is_cordoned
            && worker->assigned == 0) {
            return i;
        }
    }
    return SESSION_WORKER_NONE;
}

static bool
reserve(struct check *check, uint32_t count)
{
    uint32_t *blocks;

    if (count <= check->capacity) {
        return true;
    }
    blocks = mem_realloc(check->blocks, count, sizeof(blocks[0]));
    if (blocks != NULL) {
        check->blocks = blocks;
        check->capacity = count;
    }
    return blocks != NULL;
}

/* When the next one is due: so many blocks are their share of the interval. */
static uint64_t
pause_after(const struct sched *sched, const struct kvpool_doc *doc, uint32_t blocks)
{
    struct kvpool_stats stats;

    kvpool_stats(sched->pool, &stats);
    return kvpool_doc_is_adopted(doc) || stats.blocks_docs == 0
               ? 0
               : sched->config.scrub_interval_us / stats.blocks_docs * blocks;
}

static bool
send_check(struct sched *sched, uint32_t worker, const struct kvpool_doc *doc,
           const struct kvpool_doc *twin)
{
    struct check *check = &sched->check;
    uint32_t count;
    const uint32_t *blocks = kvpool_doc_blocks(doc, &count);
    struct sched_action *action;

    if (!reserve(check, count)) {
        return false; /* some other time */
    }
    memcpy(check->blocks, blocks, count * sizeof(blocks[0]));
    check->count = count;
    check->id = ++sched->check_id;
    check->worker = worker;
    check->incarnation = sched->workers[worker].incarnation;
    check->key = *kvpool_doc_key(doc);
    check->generation = kvpool_doc_generation(doc);
    check->is_comparison = twin != NULL;
    action = sched_push(sched, SCHED_SEND_CHECK, NULL);
    action->worker = worker;
    action->incarnation = check->incarnation;
    action->build = check->id;
    action->blocks = check->blocks;
    action->block_count = count;
    action->twins = twin == NULL ? NULL : kvpool_doc_blocks(twin, &count);
    action->n_tokens = twin == NULL ? 0 : kvpool_doc_tokens(doc);
    return true;
}

bool
sched_compare(struct sched *sched, const struct kvpool_doc *a, const struct kvpool_doc *b)
{
    uint32_t worker = find_idle(sched);

    return sched->check.id == 0 && worker != SESSION_WORKER_NONE && send_check(sched, worker, a, b);
}

void
sched_scrub(struct sched *sched, uint64_t now_us)
{
    uint32_t worker;
    struct kvpool_doc *doc;

    if (sched->config.scrub_interval_us == 0 || sched->pool == NULL || sched->check.id != 0) {
        return;
    }
    if (now_us < sched->check_due_us) {
        if (sched->check_due_us < sched->wakeup_us) {
            sched->wakeup_us = sched->check_due_us;
        }
        return;
    }
    worker = find_idle(sched);
    doc = worker == SESSION_WORKER_NONE ? NULL : kvpool_next_to_check(sched->pool);
    if (doc != NULL) {
        uint32_t count;

        (void)kvpool_doc_blocks(doc, &count);
        sched->check_due_us = now_us + pause_after(sched, doc, count);
        (void)send_check(sched, worker, doc, NULL);
    }
}

void
sched_set_scrub_interval(struct sched *sched, uint64_t interval_us)
{
    sched->config.scrub_interval_us = interval_us;
    sched->check_due_us = 0;
    sched->wakeup_us = 0; /* the next tick looks */
}

void
sched_take_checked(struct sched *sched, uint64_t now_us, const struct sched_checked *checked)
{
    struct check *check = &sched->check;
    struct kvpool_doc *doc;
    uint32_t damaged;

    if (check->id == 0 || checked->check != check->id || checked->sum_count != check->count) {
        return;
    }
    check->id = 0;
    if (check->is_comparison) {
        sched_take_compared(sched, now_us, check->worker, checked);
        return;
    }
    doc = kvpool_find(sched->pool, &check->key);
    if (doc == NULL || kvpool_doc_builder(doc) != 0
        || kvpool_doc_generation(doc) != check->generation
        || !kvpool_doc_compare(sched->pool, doc, check->blocks, checked->sums, check->count,
                               &damaged)) {
        sched->counters.checks_void++;
        return;
    }
    sched->counters.docs_checked++;
    sched->counters.blocks_checked += check->count;
    if (damaged > 0) {
        sched_drop_damaged(sched, now_us, doc, check->worker, damaged);
    }
}

void
sched_lose_checks(struct sched *sched, uint32_t worker, uint64_t incarnation)
{
    if (sched->check.id != 0 && sched->check.worker == worker
        && sched->check.incarnation == incarnation) {
        sched->check.id = 0;
        if (sched->check.is_comparison) {
            sched_lose_comparison(sched);
        }
    }
}

void
sched_forget_checks(struct sched *sched)
{
    sched_forget_samples(sched);
    MEM_FREE(sched->check.blocks);
    sched->check = (struct check){0};
}
