/* SPDX-License-Identifier: Apache-2.0 */
/* Forgetting a document for good (Documents.Forget).
 *
 * At once it leaves the index in all its forms, so nobody finds it any more.  The requests that
 * cite it, the readers, go on to their end, whether they run or wait for a turn, or are still being
 * tokenised; with `abort` they are stopped.  Its blocks come back, and a worker overwrites them
 * before they are free (kvpool_erase.c).  A reader that waited, or was preempted, has to build it
 * again from the text that it came with; so when the last one has ended, what they have left goes
 * too (sweep).  Blocks that others have taken by then are wiped by their workers when they are told
 * of them: an Erase of nothing that comes after that is answered when they are (ask_wiped).  When
 * nothing is left, whoever asked is told what was erased: from then on only
 * requests that came after the Forget, and brought the text again, can have put any of it anywhere.
 *
 * What is being forgotten is noted in the pool's catalog, so that the next kvasird goes on with it,
 * though there is nobody any more to be told.
 *
 * Without a worker all that waits; if the one who was asked is lost, his process must be gone
 * before another is asked. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "kvpool/tier.h"

#define ERASURE_BIT                                                                                \
    (UINT64_C(1) << 63) /* no incarnation has it: erasures are fences of a tier too */

static_assert(SCHED_FORGETS_MAX <= CATALOG_FORGETS_MAX && CATALOG_FORGETS_MAX <= 64,
              "each has its place, and a bit");

struct forget {
    struct list_node link; /* in sched->forgets */
    uint64_t id;           /* whom to tell; 0: nobody */
    uint64_t erasure;
    uint32_t slot;     /* in the catalog */
    uint64_t since_us; /* 0: an earlier kvasird's */
    uint64_t order;    /* sessions up to it may be readers, and those of a lower id */
    uint32_t readers;  /* of them, those that have not ended; they may build it again, */
    bool is_rebuilt;   /* and have */
    bool is_swept;
    bool is_asked;    /* the workers, whether what they have been told of is wiped: */
    uint64_t wipe;    /* by this message */
    uint64_t unwiped; /* a bit for each that has not answered */
    bool is_aborting;
    struct dockey key;
    struct sched_forgotten told;
};

static bool
names(const struct session *session, const struct dockey *key)
{
    for (size_t i = 0; i < session->prompt.document_count; i++) {
        if (memcmp(session->prompt.documents[i].key.bytes, key->bytes, DOCKEY_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

static bool
cites(const struct session *session, const struct dockey *key)
{
    if (names(session, key)) {
        return true;
    }
    for (uint32_t i = 0; i < session->want_count; i++) { /* earlier turns over it */
        if (session->wants[i].doc != NULL && kvpool_doc_stems_from(session->wants[i].doc, key)) {
            return true;
        }
    }
    return false;
}

static void
end_reader(struct sched *sched, uint64_t now_us, struct session *session)
{
    if (session->state == SESSION_RUNNING) {
        sched_stop_request(sched, session);
    }
    sched_close(sched, now_us, session, SCHED_END_CANCELLED, NULL, SCHED_FORGOTTEN_TEXT);
    if (session->state == SESSION_CLOSING) {
        sched_settle(sched, session);
    }
}

static uint32_t
count_readers(const struct list_node *sessions, const struct dockey *key)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, sessions)
    {
        count += names(LIST_ENTRY(node, const struct session, age_link), key);
    }
    return count;
}

/* Before the document leaves: who cites it. */
static void
see_readers(struct sched *sched, uint64_t now_us, struct forget *forget)
{
    bool abort = forget->is_aborting;

    LIST_FOR_EACH_SAFE(node, &sched->waiting)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (!cites(session, &forget->key)) {
            continue;
        }
        if (abort) {
            forget->told.readers_aborted++;
            end_reader(sched, now_us, session);
        } else {
            forget->told.readers_waited++;
        }
    }
    LIST_FOR_EACH_SAFE(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->state == SESSION_CLOSING || !cites(session, &forget->key)) {
            continue;
        }
        if (abort || session->is_background) {
            forget->told.readers_aborted += !session->is_background;
            end_reader(sched, now_us, session);
        } else {
            forget->told.readers_waited++;
        }
    }
    if (abort) {
        forget->told.readers_aborted += sched_abort_kept(sched, &forget->key);
    } else {
        forget->told.readers_waited += sched_count_kept(sched, &forget->key);
    }
    forget->order = sched->next_order;
    forget->readers = count_readers(&sched->waiting, &forget->key)
                      + count_readers(&sched->running, &forget->key)
                      + sched_count_kept(sched, &forget->key);
}

/* It came before the Forget; also if that was to an earlier kvasird: as far as anybody knows, of a
 * retry. */
static bool
is_reader(const struct forget *forget, const struct session *session)
{
    bool may_be_older = session->is_retry && forget->is_aborting && forget->since_us == 0;

    return (sched_arrival(session) <= forget->order || session->id < forget->id
            || session->is_regained || may_be_older)
           && names(session, &forget->key);
}

void
sched_note_reader(struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (is_reader(forget, session)) {
            forget->readers++;
            forget->told.readers_waited += !forget->is_aborting;
            forget->told.readers_aborted += forget->is_aborting;
            forget->told.is_unknown = false;
        }
    }
}

bool
sched_is_reader_aborted(const struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        const struct forget *forget = LIST_ENTRY(node, const struct forget, link);

        if (forget->is_aborting && is_reader(forget, session)) {
            return true;
        }
    }
    return false;
}

bool
sched_reads_forgotten(const struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        if (is_reader(LIST_ENTRY(node, const struct forget, link), session)) {
            return true;
        }
    }
    return false;
}

void
sched_note_rebuild(struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        forget->is_rebuilt |= is_reader(forget, session);
    }
}

void
sched_note_reader_end(struct sched *sched, const struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (is_reader(forget, session)) {
            assert(forget->readers > 0);
            forget->readers--;
        }
    }
}

void
sched_note_kept(struct sched *sched, const struct kept *kept)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (sched_kept_may_read(kept, &forget->key)) {
            forget->readers++;
            forget->is_swept = forget->is_asked = false;
        }
    }
}

bool
sched_is_kept_aborted(const struct sched *sched, const struct kept *kept)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        const struct forget *forget = LIST_ENTRY(node, const struct forget, link);

        if (forget->is_aborting && sched_kept_may_read(kept, &forget->key)) {
            return true;
        }
    }
    return false;
}

void
sched_note_kept_end(struct sched *sched, const struct kept *kept)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (sched_kept_may_read(kept, &forget->key)) {
            assert(forget->readers > 0);
            forget->readers--;
        }
    }
}

void
sched_note_regained(struct sched *sched, struct session *session)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        /* Who waited for his worker when the Forget came has been counted. */
        if (!is_reader(forget, session) && names(session, &forget->key)) {
            forget->readers++;
        }
    }
    session->is_regained = true;
}

static void
note(struct sched *sched, const struct forget *forget)
{
    if (sched->catalog != NULL) {
        catalog_set_forget(sched->catalog, forget->slot, &forget->key, forget->is_aborting);
    }
}

static void
end_forget(struct sched *sched, struct forget *forget)
{
    if (sched->catalog != NULL) {
        catalog_drop_forget(sched->catalog, forget->slot);
    }
    sched->forget_slots &= ~(UINT64_C(1) << forget->slot);
    list_unlink(&forget->link);
    mem_free(forget);
}

/* Noted before anything leaves the pool. */
static enum status
open_forget(struct sched *sched, uint64_t now_us, uint64_t id, const struct dockey *key, bool abort,
            struct forget **forget_out)
{
    struct forget *forget;

    if (sched->forget_count >= SCHED_FORGETS_MAX) {
        return ERR(ST_NO_MEMORY, "%u documents are being forgotten: the limit",
                   sched->forget_count);
    }
    forget = mem_zalloc(1, sizeof(*forget));
    if (forget == NULL) {
        return ERR(ST_NO_MEMORY, "no memory to forget a document");
    }
    forget->id = id;
    forget->key = *key;
    forget->is_aborting = abort;
    forget->since_us = now_us;
    forget->erasure = ++sched->erasures | ERASURE_BIT;
    list_init(&forget->link);
    while ((sched->forget_slots >> forget->slot & 1) != 0) {
        forget->slot++;
    }
    sched->forget_slots |= UINT64_C(1) << forget->slot;
    note(sched, forget);
    *forget_out = forget;
    return ST_OK;
}

static void
count(struct forget *forget, const struct kvpool_forgotten *found)
{
    forget->told.blocks += found->blocks;
    forget->told.documents += found->documents;
    forget->told.remnants += found->remnants;
    forget->told.host_blocks += found->host_blocks;
    forget->told.is_unknown &= found->blocks + found->host_blocks == 0;
}

enum status
sched_forget(struct sched *sched, uint64_t now_us, uint64_t id, const struct dockey *key,
             bool abort)
{
    struct kvpool_forgotten found = {0};
    struct forget *forget = NULL;
    enum status st;

    sched_begin(sched);
    if (sched->pool == NULL) {
        return ERR(ST_UNAVAILABLE, "no pool yet: no worker has attached");
    }
    sched_acquit(sched, key); /* its quarantine ends with it */
    TRY(open_forget(sched, now_us, id, key, abort, &forget));
    see_readers(sched, now_us, forget);
    st = kvpool_erase(sched->pool, key, forget->erasure, &found);
    if (st == ST_NOT_FOUND && (forget->readers > 0 || kvpool_is_erasing(sched->pool, key))) {
        st = ST_OK; /* they would bring it; or another Forget has it, and is not done */
    } else if (st == ST_NOT_FOUND
               && (sched->unread < id || kvpool_has_tainted(sched->pool, forget->erasure))) {
        /* Unless one of those that are being read brings it; or there is something of it in blocks
         * that others have taken. */
        forget->told.is_unknown = true;
        st = ST_OK;
    }
    if (st != ST_OK) {
        bool had_readers = forget->told.readers_aborted > 0;

        end_forget(sched, forget);
        sched_take_turn(sched, now_us);
        return had_readers && st == ST_NOT_FOUND ? ST_OK : st;
    }
    count(forget, &found);
    sched_forget_pin_ends(sched, key);
    list_push_back(&sched->forgets, &forget->link);
    sched->forget_count++;
    sched->has_news = true;
    sched_take_turn(sched, now_us);
    return ST_OK;
}

void
sched_note_forgets(struct sched *sched)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        note(sched, LIST_ENTRY(node, const struct forget, link));
    }
}

void
sched_resume_forgets(struct sched *sched)
{
    struct kvpool_forgotten found;
    struct forget *forget = NULL;
    struct dockey key;
    bool abort;

    for (uint32_t slot = 0; slot < CATALOG_FORGETS_MAX; slot++) {
        if (!catalog_get_forget(sched->catalog, slot, &key, &abort)) {
            continue;
        }
        if (open_forget(sched, 0, 0, &key, abort, &forget) != ST_OK) {
            return; /* the one after this will */
        }
        if (forget->slot != slot) {
            catalog_drop_forget(sched->catalog, slot);
        }
        if (kvpool_erase(sched->pool, &key, forget->erasure, &found) == ST_OK) {
            count(forget, &found);
        } else {
            forget->is_rebuilt = true; /* for want of memory, perhaps: the sweep tries again */
        }
        list_push_back(&sched->forgets, &forget->link);
        sched->forget_count++;
    }
}

bool
sched_is_forgetting(const struct sched *sched, uint64_t id)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        if (LIST_ENTRY(node, const struct forget, link)->id == id) {
            return true;
        }
    }
    return false;
}

uint64_t
sched_forgotten_after(const struct sched *sched, uint64_t id, const struct dockey *key)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        const struct forget *forget = LIST_ENTRY(node, const struct forget, link);

        if (id < forget->id && memcmp(&forget->key, key, sizeof(*key)) == 0) {
            return forget->id;
        }
    }
    return 0;
}

/* --- erasing ---------------------------------------------------------------------------------- */

/* It goes before the next step, so who has least to do answers first. */
static uint32_t
find_eraser(const struct sched *sched)
{
    uint32_t best = SESSION_WORKER_NONE;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (sched->workers[i].is_ready
            && (best == SESSION_WORKER_NONE
                || sched->workers[i].assigned < sched->workers[best].assigned)) {
            best = i;
        }
    }
    return best;
}

static void
send_erasures(struct sched *sched)
{
    uint32_t worker = find_eraser(sched);

    for (int i = 0; i < SCHED_ERASES_A_TURN && worker != SESSION_WORKER_NONE; i++) {
        uint64_t incarnation = sched->workers[worker].incarnation;
        uint32_t count;
        const uint32_t *blocks =
            kvpool_next_erasure(sched->pool, sched->erases + 1, incarnation, &count);
        struct sched_action *action;

        bool is_of_tier = blocks == NULL && sched->workers[worker].has_tier;

        if (is_of_tier) {
            blocks = kvpool_next_tier_erasure(sched->pool, sched->erases + 1, incarnation, &count);
        }
        if (blocks == NULL) {
            return;
        }
        action = sched_push(sched, SCHED_SEND_ERASE, NULL);
        action->worker = worker;
        action->incarnation = incarnation;
        action->build = ++sched->erases;
        *(is_of_tier ? &action->places : &action->blocks) = blocks;
        action->block_count = count;
    }
}

static void
tell(struct sched *sched, uint64_t now_us, struct forget *forget)
{
    struct sched_action *action = sched_push(sched, SCHED_REPLY_FORGOTTEN, NULL);

    forget->told.elapsed_us = forget->since_us == 0 ? 0 : now_us - forget->since_us;
    action->request = forget->id;
    action->forgotten = forget->told;
    action->forgotten.key = forget->key;
    sched->counters.docs_forgotten += forget->told.documents;
    sched->forget_count--;
    end_forget(sched, forget);
}

/* What the readers have left: what they have built again, their own blocks, and blocks that were
 * taken by somebody when it began.  Without memory for the list of it the next event tries again.
 */
static void
sweep(struct sched *sched, struct forget *forget)
{
    struct kvpool_forgotten found = {0};
    enum status st;

    st = (forget->is_rebuilt ? kvpool_erase : kvpool_erase_remnants)(sched->pool, &forget->key,
                                                                     forget->erasure, &found);
    forget->is_swept = st != ST_NO_MEMORY;
    if (st == ST_OK) {
        count(forget, &found);
    }
}

/* Its worker has not been told of all that it has taken: the request follows its documents, and of
 * one that runs alone those follow one another. */
static bool
is_unsent(const struct session *session)
{
    bool sends_builds = session->is_alone && !list_is_empty(&session->owned_builds);

    return (!session->is_sent && kvpool_claim_is_tainted(session->claim, false))
           || (sends_builds && kvpool_claim_is_tainted(session->claim, true));
}

static bool
has_unsent(const struct sched *sched)
{
    LIST_FOR_EACH(node, &sched->running)
    {
        if (is_unsent(LIST_ENTRY(node, const struct session, age_link))) {
            return true;
        }
    }
    return false;
}

/* True if there is somebody to wait for. */
static bool
ask_wiped(struct sched *sched, struct forget *forget)
{
    LIST_FOR_EACH(node, &sched->running)
    {
        const struct session *session = LIST_ENTRY(node, const struct session, age_link);

        if (kvpool_claim_is_tainted(session->claim, true)) {
            forget->unwiped |= UINT64_C(1) << session->worker;
        }
    }
    forget->unwiped |= sched_tainted_kept(sched);
    forget->is_asked = true;
    forget->wipe = ++sched->erases;
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if ((forget->unwiped >> i & 1) != 0) {
            struct sched_action *action = sched_push(sched, SCHED_SEND_ERASE, NULL);

            action->worker = i;
            action->incarnation = sched->workers[i].incarnation;
            action->build = forget->wipe;
        }
    }
    return forget->unwiped != 0;
}

/* One a turn: there is room for so many messages. */
static void
ask_next_wiped(struct sched *sched)
{
    bool has_asked = false;

    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (!has_asked && forget->is_swept && !forget->is_asked && !has_unsent(sched)) {
            has_asked = ask_wiped(sched, forget);
        }
    }
}

/* What it was told of is fenced now, to be overwritten when its process is gone. */
void
sched_lose_wipes(struct sched *sched, uint32_t worker)
{
    LIST_FOR_EACH(node, &sched->forgets)
    {
        LIST_ENTRY(node, struct forget, link)->unwiped &= ~(UINT64_C(1) << worker);
    }
}

void
sched_erase(struct sched *sched, uint64_t now_us)
{
    if (sched->pool == NULL || sched->erasures == 0) {
        return;
    }
    LIST_FOR_EACH(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (!forget->is_swept && forget->readers == 0 && sched->unread > forget->id
            && !kvpool_is_erasing(sched->pool, &forget->key)) {
            sweep(sched, forget);
        }
    }
    send_erasures(sched);
    ask_next_wiped(sched);
    LIST_FOR_EACH_SAFE(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        if (forget->is_asked && forget->unwiped == 0
            && !kvpool_is_erasing(sched->pool, &forget->key)) {
            tell(sched, now_us, forget);
        }
    }
}

void
sched_read_until(struct sched *sched, uint64_t now_us, uint64_t oldest)
{
    sched_begin(sched);
    sched->unread = oldest;
    if (sched->forget_count > 0) {
        sched_take_turn(sched, now_us);
    }
}

void
sched_take_erased(struct sched *sched, uint32_t worker, const struct sched_step *step)
{
    for (size_t i = 0; i < step->erased_count; i++) {
        LIST_FOR_EACH(node, &sched->forgets)
        {
            struct forget *forget = LIST_ENTRY(node, struct forget, link);

            if (forget->is_asked && forget->wipe == step->erased[i]) {
                forget->unwiped &= ~(UINT64_C(1) << worker);
            }
        }
        uint32_t count = kvpool_erased(sched->pool, step->erased[i]);

        sched->counters.blocks_erased += count;
        sched->has_news |= count > 0;
    }
}

/* What was to be erased is gone with the arena. */
void
sched_end_forgets(struct sched *sched)
{
    LIST_FOR_EACH_SAFE(node, &sched->forgets)
    {
        struct forget *forget = LIST_ENTRY(node, struct forget, link);

        list_unlink(node);
        mem_free(forget);
    }
    sched->forget_count = 0;
    sched->forget_slots = 0;
}
