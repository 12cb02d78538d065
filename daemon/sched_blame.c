/* SPDX-License-Identifier: Apache-2.0 */
/* Who is to blame when a worker dies at its work, and what becomes of that.
 *
 * A worker dies with everything that it runs, and most of that is innocent.  So nothing fails for
 * the company it was in.  Whoever was there is a suspect: he goes on elsewhere, alone on a worker,
 * until he has passed the point at which the other one died; then he is like everybody else again.
 * His worker also gets his documents one at a time.  A death in that state has
 * one possible cause: the document that was being encoded, or, with all of them sealed, the
 * request.
 *
 * Each such death is a strike; one that has two is guilty.  A guilty request fails.  A guilty
 * document is quarantined: requests that would encode it are refused with the reason, at the door,
 * for as long as SCHED_QUARANTINE_US.  A death in company costs no strike, and one that comes after
 * progress costs only the first; so workers that are killed from outside, one after the other, fail
 * nobody who gets on in between.
 *
 * Workers may also die of something that they share: the device, its MPS server, a machine without
 * memory.  Then a suspect must not go from one dead worker to the next and be guilty of both.  So
 * at a death all others are asked whether they work (a probe), and a suspect goes only to one that
 * has said so since, or has come since.  Those that never do died in the same event.
 *
 * Suspected documents stay suspects over requests: the next one that has to encode one of them runs
 * alone from the start.  The table is bounded; the oldest suspicion goes first. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

#define SHOWN_BYTES 8 /* of a key, in messages */

struct blamed {
    struct htab_node node; /* in sched->blamed, by key */
    struct list_node link; /* in sched->blamed_by_age, the oldest first */
    struct sched_blamed info;
};

bool
sched_blame_equal(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct blamed, node)->info.key, key, DOCKEY_BYTES) == 0;
}

static struct blamed *
find(const struct sched *sched, const struct dockey *key)
{
    struct htab_node *node = htab_find(&sched->blamed, dockey_hash(key), key);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct blamed, node);
}

static void
forget(struct sched *sched, struct blamed *blamed)
{
    sched->quarantined_count -= blamed->info.is_quarantined;
    htab_remove(&sched->blamed, &blamed->node);
    list_unlink(&blamed->link);
    mem_free(blamed);
}

void
sched_acquit(struct sched *sched, const struct dockey *key)
{
    struct blamed *blamed = find(sched, key);

    if (blamed != NULL) {
        forget(sched, blamed);
    }
}

void
sched_forget_blame(struct sched *sched)
{
    while (!list_is_empty(&sched->blamed_by_age)) {
        forget(sched, LIST_ENTRY(sched->blamed_by_age.next, struct blamed, link));
    }
}

/* The record of a document, made if need be; NULL without memory: then it is no suspect. */
static struct blamed *
suspect(struct sched *sched, const struct dockey *key)
{
    struct blamed *blamed = find(sched, key);

    if (blamed != NULL) {
        return blamed;
    }
    if (sched->blamed.count >= SCHED_BLAMED_MAX) {
        forget(sched, LIST_ENTRY(sched->blamed_by_age.next, struct blamed, link));
    }
    blamed = mem_zalloc(1, sizeof(*blamed));
    if (blamed == NULL || htab_insert(&sched->blamed, dockey_hash(key), &blamed->node) != ST_OK) {
        mem_free(blamed);
        return NULL;
    }
    blamed->info.key = *key;
    list_push_back(&sched->blamed_by_age, &blamed->link);
    return blamed;
}

static void
convict(struct sched *sched, uint64_t now_us, const struct build *build)
{
    struct blamed *blamed = suspect(sched, kvpool_doc_key(build->doc));

    if (blamed == NULL || ++blamed->info.strikes < SCHED_STRIKES_MAX) {
        return;
    }
    blamed->info.is_quarantined = true;
    blamed->info.n_tokens = kvpool_doc_tokens(build->doc);
    blamed->info.until_us = now_us + SCHED_QUARANTINE_US;
    (void)snprintf(blamed->info.reason, sizeof(blamed->info.reason),
                   "encoding it alone ended %u workers, the last one was worker %u",
                   blamed->info.strikes, build->worker);
    sched->quarantined_count++;
    sched->counters.docs_quarantined++;
}

/* --- at a death ------------------------------------------------------------------------------- */

/* The one whose work ended its worker, if it had no company: a build, or with none left the request
 * itself.  Called before its builds are gone. */
void
sched_blame(struct sched *sched, uint64_t now_us, struct session *session, bool was_alone)
{
    const struct build *first =
        list_is_empty(&session->owned_builds)
            ? NULL
            : LIST_ENTRY(session->owned_builds.next, struct build, owner_link);
    bool is_only = first != NULL && first->owner_link.next == &session->owned_builds;
    bool has_got_on = session->losses == 0 || session->sent_count > session->loss_point;

    if (was_alone && first == NULL) {
        session->strikes = has_got_on ? 1 : session->strikes + 1;
    } else if (was_alone && (session->is_alone || is_only)) {
        convict(sched, now_us, first);
    }
    LIST_FOR_EACH(node, &session->owned_builds)
    {
        (void)suspect(sched, kvpool_doc_key(LIST_ENTRY(node, struct build, owner_link)->doc));
    }
    session->losses++;
    session->loss_point = session->sent_count;
    session->is_suspect = true;
}

/* A worker that is lost before it has shown to have survived the last loss belongs to that one. */
void
sched_note_loss(struct sched *sched, uint32_t worker)
{
    if (sched->workers[worker].survived < sched->losses) {
        return;
    }
    sched->losses++;
    sched->counters.loss_events++;
    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (i != worker && sched->workers[i].is_ready) {
            struct sched_action *action = sched_push(sched, SCHED_SEND_PROBE, NULL);

            action->worker = i;
            action->incarnation = sched->workers[i].incarnation;
            action->build = sched->losses;
        }
    }
}

void
sched_take_probed(struct sched *sched, uint32_t worker, uint64_t probed)
{
    struct worker *w = &sched->workers[worker];

    if (probed > w->survived && probed <= sched->losses) {
        w->survived = probed;
        sched->has_news = true;
    }
}

/* --- before and after ------------------------------------------------------------------------- */

/* A document in quarantine that the request cites, or NULL. */
static const struct sched_blamed *
find_quarantined(struct sched *sched, uint64_t now_us, const struct session *session)
{
    for (uint32_t i = 0; sched->quarantined_count > 0 && i < session->want_count; i++) {
        struct blamed *blamed = find(sched, &session->wants[i].key);

        if (blamed == NULL || !blamed->info.is_quarantined) {
            continue;
        }
        if (now_us < blamed->info.until_us) {
            return &blamed->info;
        }
        forget(sched, blamed); /* its time is over: it may try again, on another strike or two */
    }
    return NULL;
}

bool
sched_refuse_quarantined(struct sched *sched, struct session *session, uint64_t now_us)
{
    const struct sched_blamed *blamed = find_quarantined(sched, now_us, session);
    char message[SESSION_MESSAGE_BYTES];
    char key[2 * SHOWN_BYTES + 1];

    if (blamed == NULL) {
        return false;
    }
    dockey_hex(&blamed->key, SHOWN_BYTES, key);
    (void)snprintf(message, sizeof(message), "document %s of %u tokens is in quarantine: %s", key,
                   blamed->n_tokens, blamed->reason);
    sched_close(sched, now_us, session, SCHED_END_QUARANTINED, NULL, message);
    return true;
}

bool
sched_is_suspicious(const struct sched *sched, const struct session *session)
{
    for (uint32_t i = 0; sched->blamed.count > 0 && i < session->want_count; i++) {
        const struct kvpool_doc *doc =
            sched->pool == NULL ? NULL : kvpool_find(sched->pool, &session->wants[i].key);

        if ((doc == NULL || !kvpool_doc_is_ready(doc))
            && find(sched, &session->wants[i].key) != NULL) {
            return true;
        }
    }
    return session->is_suspect;
}

void
sched_begin_alone(struct sched *sched, struct session *session)
{
    struct worker *worker = &sched->workers[session->worker];

    assert(worker->assigned == 0 && worker->alone == NULL);
    worker->alone = session;
    session->is_alone = true;
}

void
sched_end_alone(struct sched *sched, struct session *session)
{
    if (session->is_alone) {
        assert(sched->workers[session->worker].alone == session);
        sched->workers[session->worker].alone = NULL;
        session->is_alone = false;
        sched->has_news = true;
    }
}

/* It has come further than it was when its worker died.  Who has lost that many does not get
 * company again. */
void
sched_note_progress(struct sched *sched, struct session *session)
{
    if (session->is_alone && session->sent_count > session->loss_point
        && session->losses < SCHED_LOSSES_ALONE) {
        session->is_suspect = false;
        sched_end_alone(sched, session);
    }
}

/* --- looking ---------------------------------------------------------------------------------- */

const struct sched_blamed *
sched_next_quarantined(const struct sched *sched, const struct sched_blamed *cursor)
{
    const struct list_node *node = &sched->blamed_by_age;

    if (cursor != NULL) {
        node = &LIST_ENTRY(cursor, const struct blamed, info)->link;
    }
    for (node = node->next; node != &sched->blamed_by_age; node = node->next) {
        const struct blamed *blamed = LIST_ENTRY(node, const struct blamed, link);

        if (blamed->info.is_quarantined) {
            return &blamed->info;
        }
    }
    return NULL;
}
