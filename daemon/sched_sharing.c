/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that cite the same documents decode faster together: a worker reads a document once a
 * step for all of its requests (kernels/decode_plan.h).  So where the scheduler has a choice among
 * equals it keeps them together:
 *   - the worker: of those with the same share of their credit in use, the one whose running
 *     requests hold most of the request's documents;
 *   - the order: when there is less credit than there are requests in line, one of the first
 *     SCHED_SHARING_AHEAD of the same priority that shares more than the first with what runs may
 *     pass it.  That is a pass as any other: counted, and over at SCHED_PASSES_MAX.
 * Looks are bounded: beyond the first SCHED_SHARING_DOCUMENTS of a request nothing is compared. */
#include "daemon/sched_state.h"

#define SCHED_SHARING_AHEAD     8
#define SCHED_SHARING_DOCUMENTS 16

static uint32_t
looked_at(const struct session *session)
{
    return session->segment_count < SCHED_SHARING_DOCUMENTS ? session->segment_count
                                                            : SCHED_SHARING_DOCUMENTS;
}

static bool
holds(const struct session *session, const struct kvpool_doc *doc)
{
    for (uint32_t i = 0; i < looked_at(session); i++) {
        if (session->wants[i].doc == doc) {
            return true;
        }
    }
    return false;
}

uint64_t
sched_shared_tokens(const struct sched *sched, const struct session *session, uint32_t worker)
{
    uint64_t tokens = 0;

    for (uint32_t i = 0; i < looked_at(session); i++) {
        const struct kvpool_doc *doc = kvpool_find(sched->pool, &session->wants[i].key);
        bool is_held = false;

        if (doc == NULL) {
            continue;
        }
        LIST_FOR_EACH(node, &sched->running)
        {
            const struct session *other = LIST_ENTRY(node, struct session, age_link);

            if (other->worker == worker && holds(other, doc)) {
                is_held = true;
                break;
            }
        }
        tokens += is_held ? session->wants[i].n_tokens : 0;
    }
    return tokens;
}

/* The most that it would share on a worker that takes requests. */
static uint64_t
best_share(const struct sched *sched, const struct session *session)
{
    uint64_t best = 0;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        if (sched_has_credit(&sched->workers[i])) {
            uint64_t tokens = sched_shared_tokens(sched, session, i);

            best = tokens > best ? tokens : best;
        }
    }
    return best;
}

static bool
is_credit_scarce(const struct sched *sched)
{
    uint64_t credit = 0;

    for (uint32_t i = 0; i < SCHED_WORKERS_MAX; i++) {
        const struct worker *worker = &sched->workers[i];

        if (sched_has_credit(worker)) {
            credit += worker->seqs_max - (worker->assigned - worker->background);
        }
    }
    return credit > 0 && credit < sched->waiting_count;
}

struct session *
sched_sharing_first(const struct sched *sched)
{
    const struct session *head;
    struct session *found = NULL;
    uint64_t best;
    uint32_t seen = 0;

    if (list_is_empty(&sched->queue) || sched->running_count == 0 || !is_credit_scarce(sched)) {
        return NULL;
    }
    head = LIST_ENTRY(sched->queue.next, struct session, queue_link);
    best = best_share(sched, head);
    LIST_FOR_EACH(node, &sched->queue)
    {
        struct session *session = LIST_ENTRY(node, struct session, queue_link);

        if (seen++ == SCHED_SHARING_AHEAD || session->priority != head->priority) {
            break;
        }
        uint64_t tokens = session->is_suspect ? 0 : best_share(sched, session);

        if (tokens > best) {
            best = tokens;
            found = session;
        }
    }
    return found;
}
