/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that workers have kept over a restart of kvasird.
 *
 * What a worker that is back says of one is checked against the pool: its documents are still the
 * ones that it reads, whole and in the same blocks, and its own blocks were lent to it.  Then its
 * claim is made anew, and the request waits, without a session, for its client.  The client's retry
 * has the same name, so its session gets the claim and goes on at that worker, with no queue and no
 * credit asked: it was admitted once.  Nobody comes within the time: it is stopped.
 *
 * A whole answer holds no blocks.  One that is not, and that nobody has come for yet, gives its
 * blocks back as soon as an answer lacks some (sched_yield_kept).
 *
 * A document that is forgotten meanwhile may be one that it reads: the Forget waits for it as for
 * any reader, and for the session that takes it up, whenever that comes.  One that names no
 * document may have any among its own ids (reuse `none`).
 *
 * What does not check out is stopped as well; its own blocks stay claimed until the worker has let
 * go.  A retry that is faster than its worker waits for it a while (sched_is_expected). */
#include "daemon/sched_state.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"

struct kept {
    struct list_node link; /* in sched->kept */
    uint64_t number;       /* the worker's for it */
    uint8_t name[SESSION_NAME_BYTES];
    uint32_t worker;
    uint64_t incarnation;
    uint64_t until_us;
    uint32_t query_tokens, answer_tokens;
    bool is_done;
    bool is_stopping;
    struct kvpool_claim *claim;
    uint32_t want_count;
    struct kvpool_want wants[]; /* [want_count] */
};

/* --- coming in -------------------------------------------------------------------------------- */

static bool
is_unchanged(const struct sched *sched, const struct sched_kept_segment *segment)
{
    const struct kvpool_doc *doc = kvpool_find(sched->pool, &segment->key);
    const uint32_t *blocks;
    uint32_t count;

    if (segment->n_tokens == 0) {
        return true;
    }
    if (doc == NULL || !kvpool_doc_is_ready(doc) || kvpool_doc_tokens(doc) != segment->n_tokens
        || kvpool_doc_generation(doc) != segment->generation) {
        return false;
    }
    blocks = kvpool_doc_blocks(doc, &count);
    return count == segment->block_count
           && memcmp(blocks, segment->blocks, count * sizeof(blocks[0])) == 0;
}

/* Of which document each is, as far as that is known. */
static void
note_sources(const struct sched *sched, struct kept *kept)
{
    for (uint32_t i = 0; i < kept->want_count; i++) {
        const struct kvpool_doc *doc = kvpool_find(sched->pool, &kept->wants[i].key);

        kept->wants[i].source = doc == NULL ? 0 : kvpool_doc_owner(doc);
    }
}

bool
sched_kept_may_read(const struct kept *kept, const struct dockey *key)
{
    bool may = kept->want_count == 0;

    for (uint32_t i = 0; i < kept->want_count; i++) {
        may |= kept->wants[i].source == dockey_hash(key) || kept->wants[i].source == KVPOOL_ANY;
    }
    return may;
}

static bool
are_unchanged(const struct sched *sched, const struct sched_kept *from)
{
    for (uint32_t i = 0; i < from->segment_count; i++) {
        if (!is_unchanged(sched, &from->segments[i])) {
            return false;
        }
    }
    return true;
}

static struct kept *
new_kept(const struct sched_kept *from, uint32_t worker, uint64_t incarnation, uint64_t until_us)
{
    struct kept *kept =
        mem_zalloc(1, sizeof(*kept) + from->segment_count * sizeof(struct kvpool_want));

    if (kept == NULL) {
        return NULL;
    }
    list_init(&kept->link);
    kept->number = from->kept;
    memcpy(kept->name, from->name, sizeof(kept->name));
    kept->worker = worker;
    kept->incarnation = incarnation;
    kept->until_us = until_us;
    kept->query_tokens = from->query_tokens;
    kept->answer_tokens = from->answer_tokens;
    kept->is_done = from->is_done;
    kept->want_count = from->segment_count;
    for (uint32_t i = 0; i < from->segment_count; i++) {
        kept->wants[i].key = from->segments[i].key;
        kept->wants[i].n_tokens = from->segments[i].n_tokens;
    }
    return kept;
}

static void
stop(struct sched *sched, struct kept *kept)
{
    struct sched_action *action = sched_push(sched, SCHED_SEND_STOP, NULL);

    action->worker = kept->worker;
    action->incarnation = kept->incarnation;
    action->kept = kept->number;
    kept->is_stopping = true;
    sched->counters.requests_orphaned++;
}

static void
add(struct sched *sched, struct kept *kept)
{
    list_push_back(&sched->kept, &kept->link);
    sched->workers[kept->worker].kept += !kept->is_done;
    sched_note_kept(sched, kept);
}

static void
destroy(struct sched *sched, struct kept *kept, uint64_t fence)
{
    list_unlink(&kept->link);
    sched_note_kept_end(sched, kept);
    sched->workers[kept->worker].kept -= !kept->is_done;
    sched->action_need--;
    if (kept->claim != NULL) {
        kvpool_claim_release(sched->pool, &kept->claim, fence);
    }
    sched->has_news = true;
    mem_free(kept);
}

/* A whole answer was read from documents that nobody has to hold any more. */
static enum status
claim(struct sched *sched, struct kept *kept)
{
    if (!kept->is_done) {
        return kvpool_claim(sched->pool, kept->wants, kept->want_count, 0, kept->number,
                            &kept->claim);
    }
    for (uint32_t i = 0; i < kept->want_count; i++) {
        kept->wants[i].tokens_ready = kept->wants[i].n_tokens;
        kept->wants[i].reason = KVPOOL_HIT;
    }
    return kvpool_claim(sched->pool, NULL, 0, 0, kept->number, &kept->claim);
}

/* One that the worker has; what of it is of no use is stopped. */
static enum status
take_in(struct sched *sched, const struct sched_kept *from, uint32_t worker, uint64_t incarnation,
        uint64_t until_us)
{
    bool is_good = from->segment_count <= SCHED_DOCUMENTS_MAX && are_unchanged(sched, from);
    struct kept *kept = new_kept(from, worker, incarnation, until_us);
    enum status st = ST_OK;

    if (kept == NULL || sched_reserve_actions(sched, 1) != ST_OK) {
        mem_free(kept);
        return ERR(ST_NO_MEMORY, "no memory for a request that was kept");
    }
    kept->want_count = is_good ? kept->want_count : 0;
    note_sources(sched, kept);
    add(sched, kept);
    st = claim(sched, kept);
    if (st == ST_OK) {
        st = kvpool_claim_regain(sched->pool, kept->claim, incarnation, from->blocks,
                                 from->block_count);
    }
    if (st != ST_OK) { /* its blocks are in quarantine, as they were */
        destroy(sched, kept, 0);
        return st;
    }
    if (!is_good || sched_is_kept_aborted(sched, kept)) {
        stop(sched, kept);
    }
    return ST_OK;
}

static void
rejoin_waiting(struct sched *sched, uint64_t now_us)
{
    LIST_FOR_EACH_SAFE(node, &sched->waiting)
    {
        (void)sched_go_on(sched, now_us, LIST_ENTRY(node, struct session, age_link));
    }
}

bool
sched_worker_back(struct sched *sched, uint64_t now_us, const struct sched_back *back)
{
    enum status st = ST_OK;

    sched_begin(sched);
    for (size_t i = 0; st == ST_OK && sched->pool != NULL && i < back->kept_count; i++) {
        st =
            take_in(sched, &back->kept[i], back->worker, back->incarnation, now_us + back->wait_us);
    }
    if (st != ST_OK) {
        sched_lose_kept(sched, back->worker, back->incarnation);
        sched->action_count = 0; /* Stops to one who is given up */
        return false;
    }
    if (sched->pool != NULL && kvpool_fence_lift(sched->pool, back->incarnation) > 0) {
        sched->has_news = true;
    }
    if (!list_is_empty(&sched->kept) && now_us + back->wait_us < sched->wakeup_us) {
        sched->wakeup_us = now_us + back->wait_us;
    }
    sched_make_ready(sched, back->worker, back->incarnation, back->seqs_max);
    rejoin_waiting(sched, now_us);
    sched_take_turn(sched, now_us);
    return true;
}

/* --- going on --------------------------------------------------------------------------------- */

static struct kept *
find(const struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (session->has_name && !kept->is_stopping
            && memcmp(kept->name, session->name, sizeof(kept->name)) == 0) {
            return kept;
        }
    }
    return NULL;
}

/* The retry is what the first attempt was; a client may say otherwise. */
static bool
is_same(const struct kept *kept, const struct session *session)
{
    bool is_same = kept->want_count == session->segment_count && !session_is_warm(session)
                   && kept->query_tokens == tokens_count(session->prompt.query)
                   && session->sent_count <= kept->answer_tokens
                   && kept->answer_tokens <= session->prompt.sampling.max_tokens;

    for (uint32_t i = 0; is_same && i < kept->want_count; i++) {
        is_same = kept->wants[i].n_tokens == session->wants[i].n_tokens
                  && memcmp(&kept->wants[i].key, &session->wants[i].key, DOCKEY_BYTES) == 0;
    }
    return is_same;
}

bool
sched_go_on(struct sched *sched, uint64_t now_us, struct session *session)
{
    struct kept *kept = list_is_empty(&sched->kept) ? NULL : find(sched, session);

    if (kept == NULL) {
        return false;
    }
    if (!is_same(kept, session) || !sched->workers[kept->worker].is_ready) {
        stop(sched, kept);
        return false;
    }
    for (uint32_t i = 0; i < kept->want_count; i++) {
        struct kvpool_want *want = &session->wants[i];

        want->doc = kept->wants[i].doc;
        want->tokens_ready = kept->wants[i].tokens_ready;
        want->must_build = kept->wants[i].must_build;
        want->reason = kept->wants[i].reason;
    }
    session->want_count = kept->want_count;
    session->claim = kept->claim;
    session->kept = kept->number;
    sched_note_regained(sched, session);
    sched->counters.requests_regained++;
    sched->counters.tokens_regained += kept->answer_tokens - session->sent_count;
    kept->claim = NULL;
    uint32_t worker = kept->worker;

    destroy(sched, kept, 0);
    sched_start(sched, session, worker, now_us);
    return true;
}

bool
sched_is_expected(const struct sched *sched, const struct session *session, uint64_t now_us)
{
    return session->is_retry && session->losses == 0 && sched->expected > 0
           && now_us < sched->expected_until_us;
}

void
sched_expect(struct sched *sched, uint32_t workers, uint64_t until_us)
{
    sched->has_news |= workers < sched->expected;
    sched->expected = workers;
    sched->expected_until_us = until_us;
    if (workers > 0 && until_us < sched->wakeup_us) {
        sched->wakeup_us = until_us;
    }
}

/* --- ends ------------------------------------------------------------------------------------- */

void
sched_take_kept_released(struct sched *sched, uint32_t worker, uint64_t number)
{
    LIST_FOR_EACH_SAFE(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (kept->worker == worker && kept->number == number) {
            destroy(sched, kept, 0);
        }
    }
}

void
sched_lose_kept(struct sched *sched, uint32_t worker, uint64_t incarnation)
{
    LIST_FOR_EACH_SAFE(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (kept->worker == worker && kept->incarnation == incarnation) {
            destroy(sched, kept, incarnation);
        }
    }
}

uint64_t
sched_end_kept(struct sched *sched, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;

    if (sched->expected > 0 && now_us < sched->expected_until_us) {
        next_us = sched->expected_until_us;
    } else if (sched->expected > 0) {
        sched->expected = 0;
        sched->has_news = true;
    }
    LIST_FOR_EACH(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (!kept->is_stopping && kept->until_us <= now_us) {
            stop(sched, kept);
        } else if (!kept->is_stopping && kept->until_us < next_us) {
            next_us = kept->until_us;
        }
    }
    return next_us;
}

bool
sched_yield_kept(struct sched *sched)
{
    bool any = false;

    LIST_FOR_EACH(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (!kept->is_done && !kept->is_stopping) {
            stop(sched, kept);
        }
        any |= !kept->is_done;
    }
    return any;
}

static bool
cites(const struct kept *kept, const struct dockey *key)
{
    for (uint32_t i = 0; key != NULL && i < kept->want_count; i++) {
        if (memcmp(&kept->wants[i].key, key, DOCKEY_BYTES) == 0
            || kept->wants[i].source == dockey_hash(key) || kept->wants[i].source == KVPOOL_ANY) {
            return true;
        }
    }
    return key == NULL;
}

void
sched_drop_kept(struct sched *sched, const struct dockey *key)
{
    LIST_FOR_EACH(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (!kept->is_stopping && cites(kept, key)) {
            stop(sched, kept);
        }
    }
}

uint64_t
sched_tainted_kept(const struct sched *sched)
{
    uint64_t workers = 0;

    LIST_FOR_EACH(node, &sched->kept)
    {
        const struct kept *kept = LIST_ENTRY(node, const struct kept, link);

        if (kvpool_claim_is_tainted(kept->claim, true)) {
            workers |= UINT64_C(1) << kept->worker;
        }
    }
    return workers;
}

uint32_t
sched_count_kept(const struct sched *sched, const struct dockey *key)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &sched->kept)
    {
        count += sched_kept_may_read(LIST_ENTRY(node, const struct kept, link), key);
    }
    return count;
}

uint32_t
sched_abort_kept(struct sched *sched, const struct dockey *key)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &sched->kept)
    {
        struct kept *kept = LIST_ENTRY(node, struct kept, link);

        if (!kept->is_stopping && sched_kept_may_read(kept, key)) {
            stop(sched, kept);
            count++;
        }
    }
    return count;
}
