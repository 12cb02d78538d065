/* SPDX-License-Identifier: Apache-2.0 */
/* Room for answers that grow, and who gives when there is none.
 *
 * A running request gets one more block when less than one block of room is left, so a worker does
 * not wait for us.  When the pool has none to give, even by eviction, a victim is stopped: of those
 * that run, the youngest of the lowest priority, but never the oldest of all.  It may be the
 * starving request itself.  Its blocks come back when its worker has let go, usually in the next
 * step; until then no other victim is chosen, so exactly as many are stopped as are needed.  The
 * oldest is never stopped and can get every block that others hold, and it was refused at the door
 * if the pool is too small for it alone: it finishes, then the next is the oldest. */
#include "daemon/sched_state.h"

#include <stdio.h>

static bool
needs_room(const struct sched *sched, const struct session *session)
{
    uint64_t capacity;
    uint32_t own_blocks;

    if (session->state != SESSION_RUNNING || session_is_warm(session)) {
        return false;
    }
    (void)kvpool_claim_blocks(session->claim, &own_blocks);
    capacity = ((uint64_t)session->turn_block_count + own_blocks) * sched->config.block_tokens;
    return capacity < (uint64_t)session->own_tokens + sched->config.block_tokens
           && capacity < session_own_tokens_max(session);
}

/* All the blocks it needs now in one message; false when the pool has none. */
static bool
grant(struct sched *sched, struct session *session)
{
    struct sched_action *action;
    const uint32_t *blocks;
    uint32_t before, after;
    bool is_fed = true;

    (void)kvpool_claim_blocks(session->claim, &before);
    while (is_fed && needs_room(sched, session)) {
        is_fed = kvpool_claim_grow(sched->pool, session->claim, 1) == ST_OK;
    }
    blocks = kvpool_claim_blocks(session->claim, &after);
    if (after > before) {
        action = sched_push(sched, SCHED_SEND_GRANT, session);
        action->worker = session->worker;
        action->incarnation = session->incarnation;
        action->blocks = blocks + before;
        action->block_count = after - before;
    }
    return is_fed;
}

/* Blocks are on their way back: somebody is letting go, or a fence will be lifted. */
static bool
is_relief_coming(const struct sched *sched)
{
    struct kvpool_stats stats;

    LIST_FOR_EACH(node, &sched->running)
    {
        const struct session *session = LIST_ENTRY(node, struct session, age_link);

        if (session->state != SESSION_RUNNING || session_is_warm(session)) {
            return true; /* a warm one lets go when its builds are sealed */
        }
    }
    kvpool_stats(sched->pool, &stats);
    return stats.blocks_quarantined > 0;
}

/* NULL: only the oldest runs. */
static struct session *
find_victim(const struct sched *sched)
{
    struct session *victim = NULL;
    bool is_oldest = true;

    LIST_FOR_EACH(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        /* By age, so among equals the last one seen is the youngest. */
        if (!is_oldest && !session->is_background
            && (victim == NULL || session->priority <= victim->priority)) {
            victim = session;
        }
        is_oldest = false;
    }
    return victim;
}

static void
close_alone(struct sched *sched, struct session *session, uint64_t now_us)
{
    char message[SESSION_MESSAGE_BYTES];
    struct kvpool_stats stats;

    kvpool_stats(sched->pool, &stats);
    (void)snprintf(message, sizeof(message),
                   "no block left for the answer: %u of the pool's %u are pinned",
                   stats.blocks_pinned, stats.block_count);
    sched_stop_request(sched, session);
    sched_close(sched, now_us, session, SCHED_END_FULL, NULL, message);
}

static void
relieve(struct sched *sched, uint64_t now_us)
{
    struct session *victim;

    if (sched_yield_background(sched, now_us) || sched_yield_kept(sched)
        || is_relief_coming(sched)) {
        return;
    }
    victim = find_victim(sched);
    if (victim != NULL) {
        sched_preempt(sched, victim);
        return;
    }
    /* It runs alone and fits an empty pool, so pins stand in its way; nobody promises their end. */
    close_alone(sched, LIST_ENTRY(sched->running.next, struct session, age_link), now_us);
}

void
sched_grow(struct sched *sched, uint64_t now_us)
{
    uint32_t starving = 0;

    if (sched->pool == NULL) {
        return;
    }
    LIST_FOR_EACH(node, &sched->running)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);

        /* The oldest first; once it went short, younger ones must not take what it waits for. */
        session->is_starving =
            needs_room(sched, session) && (starving > 0 || !grant(sched, session));
        starving += session->is_starving;
    }
    sched->has_news |= starving == 0 && sched->starving_count > 0;
    sched->starving_count = starving;
    if (starving > 0) {
        relieve(sched, now_us);
    }
}
