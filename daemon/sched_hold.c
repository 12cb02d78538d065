/* SPDX-License-Identifier: Apache-2.0 */
/* isolation=constant-time: what a tenant can tell from the time of its first answer over a document
 * of a shared corpus.
 *
 * A document that is there answers sooner than one that has to be encoded, so the first use would
 * tell whether another tenant has used it.  So at the first use both take as long: the request is
 * admitted, what is missing is built, but the request itself goes to its worker only when the
 * predicted time of building all of those documents is over.  Nor do usage, Trace and Probe tell
 * then what was found.
 *
 * The prediction is the mean time a token that builds took, and HOLD_DEVIATIONS mean deviations
 * more, so that a build is rarely slower; before the first few it is HOLD_UNKNOWN_US a token.
 *
 * Callers without a tenant come by a local socket and are not held.
 *
 * A use is known by tenant, document and the build that made it: a document that went and came back
 * may have been brought back by others.  The table is bounded, the oldest use is forgotten first:
 * that costs its tenant one more wait. */
#include "daemon/sched_state.h"

#include <string.h>

#include "common/mem.h"

#define HOLD_DEVIATIONS 4
#define HOLD_UNKNOWN_US 1000
#define HOLD_BUILDS_MIN 8
#define HOLD_WEIGHT     16 /* builds over which means forget */

struct use_name {
    uint64_t tenant; /* a hash */
    struct dockey document;
};

struct use {
    struct htab_node node; /* in sched->uses */
    struct list_node link; /* in sched->uses_by_age */
    struct use_name name;
    uint64_t generation;
};

bool
sched_use_equal(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct use, node)->name, key, sizeof(struct use_name))
           == 0;
}

static uint64_t
hash_of(const struct use_name *name)
{
    return htab_mix(name->tenant ^ dockey_hash(&name->document));
}

static struct use *
find_use(const struct sched *sched, const struct use_name *name)
{
    struct htab_node *node = htab_find(&sched->uses, hash_of(name), name);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct use, node);
}

static void
forget_use(struct sched *sched, struct use *use)
{
    htab_remove(&sched->uses, &use->node);
    list_unlink(&use->link);
    mem_free(use);
}

void
sched_forget_uses(struct sched *sched)
{
    while (!list_is_empty(&sched->uses_by_age)) {
        forget_use(sched, LIST_ENTRY(sched->uses_by_age.next, struct use, link));
    }
}

static void
note_use(struct sched *sched, const struct use_name *name, uint64_t generation)
{
    struct use *use = find_use(sched, name);

    if (use == NULL) {
        if (sched->uses.count >= SCHED_USES_MAX) {
            forget_use(sched, LIST_ENTRY(sched->uses_by_age.next, struct use, link));
        }
        use = mem_zalloc(1, sizeof(*use));
        if (use == NULL || htab_insert(&sched->uses, hash_of(name), &use->node) != ST_OK) {
            mem_free(use);
            return; /* it waits once more */
        }
        use->name = *name;
        list_push_back(&sched->uses_by_age, &use->link);
    }
    use->generation = generation;
}

bool
sched_has_used(const struct sched *sched, const char *tenant, const struct dockey *document)
{
    struct use_name name = {sched_tenant_hash(tenant), *document};
    const struct use *use = find_use(sched, &name);
    const struct kvpool_doc *doc = sched->pool == NULL ? NULL : kvpool_find(sched->pool, document);

    return !sched->config.is_constant_time || tenant == NULL || tenant[0] == '\0'
           || (use != NULL && doc != NULL && use->generation == kvpool_doc_generation(doc));
}

/* --- how long --------------------------------------------------------------------------------- */

void
sched_note_build(struct sched *sched, const struct session *session, uint64_t now_us)
{
    struct build_pace *pace = &sched->build_pace;
    double us;

    if (session->losses > 0 || session->preemptions > 0 || session->is_background
        || session->tokens_built == 0 || now_us <= session->admitted_us) {
        return;
    }
    us = (double)(now_us - session->admitted_us) / session->tokens_built;
    pace->builds++;
    if (pace->builds == 1) {
        pace->mean_us = us;
        return;
    }
    double miss = us > pace->mean_us ? us - pace->mean_us : pace->mean_us - us;

    pace->mean_us += (us - pace->mean_us) / HOLD_WEIGHT;
    pace->deviation_us += (miss - pace->deviation_us) / HOLD_WEIGHT;
}

static uint64_t
predict_us(const struct sched *sched, uint64_t tokens)
{
    const struct build_pace *pace = &sched->build_pace;

    return pace->builds < HOLD_BUILDS_MIN
               ? tokens * HOLD_UNKNOWN_US
               : (uint64_t)((double)tokens
                            * (pace->mean_us + HOLD_DEVIATIONS * pace->deviation_us));
}

/* --- holding ---------------------------------------------------------------------------------- */

/* Itself, or what is read in its place: a copy of it, or it behind others. */
static bool
has_used(const struct sched *sched, const struct session *session, uint32_t document)
{
    const char *tenant = sched_share_name(session->share);

    return sched_has_used(sched, tenant, &session->prompt.documents[document].key)
           || (document < session->segment_count
               && sched_has_used(sched, tenant, &session->wants[document].key));
}

void
sched_hold(struct sched *sched, struct session *session, uint64_t now_us)
{
    uint64_t tokens = 0;

    if (!sched->config.is_constant_time || session->share == NULL || session_is_warm(session)
        || session->is_regained) {
        return;
    }
    for (uint32_t i = 0; session->hold_until_us == 0 && i < session->prompt.document_count; i++) {
        const struct prompt_document *document = &session->prompt.documents[i];

        if (document->is_shared && !has_used(sched, session, i)) {
            struct session_document *found = &session->documents[i];

            tokens += tokens_count(document->tokens);
            session->tokens_hidden += found->tokens_ready;
            *found = (struct session_document){.reason = KVPOOL_MISS_COLD};
        }
    }
    if (tokens > 0) {
        session->hold_until_us = now_us + predict_us(sched, tokens);
        sched->counters.requests_held++;
    }
    if (session->hold_until_us > now_us) {
        session->is_held = true;
        list_push_back(&sched->held, &session->hold_link);
        if (session->hold_until_us < sched->wakeup_us) {
            sched->wakeup_us = session->hold_until_us;
        }
    }
}

void
sched_end_hold(struct session *session)
{
    if (session->is_held) {
        session->is_held = false;
        list_unlink(&session->hold_link);
    }
}

uint64_t
sched_end_holds(struct sched *sched, uint64_t now_us)
{
    uint64_t next_us = UINT64_MAX;

    LIST_FOR_EACH_SAFE(node, &sched->held)
    {
        struct session *session = LIST_ENTRY(node, struct session, hold_link);

        if (session->hold_until_us > now_us) {
            next_us = session->hold_until_us < next_us ? session->hold_until_us : next_us;
        } else if (session->state != SESSION_RUNNING) {
            sched_end_hold(session); /* it never goes */
        } else if (list_is_empty(&session->owned_builds)) {
            sched_end_hold(session);
            sched_push_assign(sched, session);
        } /* else with the last seal */
    }
    return next_us;
}

static bool
is_of(const struct kvpool_want *want, const struct dockey *key)
{
    return memcmp(&want->key, key, sizeof(*key)) == 0;
}

/* Only of what it has read, or copied from: else a request that encodes all by itself would make
 * the next one tell what others have left here. */
void
sched_note_uses(struct sched *sched, const struct session *session)
{
    if (!sched->config.is_constant_time || session->share == NULL) {
        return;
    }
    struct use_name name = {.tenant = sched_tenant_hash(sched_share_name(session->share))};

    for (uint32_t i = 0; i < session->prompt.document_count; i++) {
        const struct prompt_document *document = &session->prompt.documents[i];

        for (uint32_t k = 0; document->is_shared && k < session->want_count; k++) {
            const struct kvpool_want *want = &session->wants[k];

            if (want->doc != NULL && (k == i || is_of(want, &document->key))) {
                name.document = want->key;
                note_use(sched, &name, kvpool_doc_generation(want->doc));
            }
        }
    }
}
