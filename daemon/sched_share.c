/* SPDX-License-Identifier: Apache-2.0 */
/* Fair share: whose turn it is among tenants.
 *
 * Start-time fair queueing.  Virtual time is the turn of whoever came in last, but never behind one
 * that still waits: else who comes in out of turn would put everyone new behind those he has
 * passed.  A request's turn is virtual time or the end of its tenant's request before it, whichever
 * is later; it ends its cost over the tenant's weight after that.  Cost is the tokens that it may
 * make the machine compute: what of its documents is not resident, its query, its answer.  So of
 * tenants that all have requests waiting each gets work in proportion to its weight, one that was
 * quiet comes in next, and quiet times are not saved up.  A request that leaves before it has come
 * in costs nothing: later turns of its tenant move up by what it would have cost.  With one tenant
 * turns are the order of arrival.
 *
 * The queue is by priority, then turn; `waiting` is by turn alone, and who was passed is counted
 * along it: a request that comes in before its turn, because another one did not fit or for its
 * priority, has passed those with an earlier turn.  A tenant whose turn it is has passed nobody.
 *
 * When the queue is full, a tenant with fewer waiting than another one gets the place of that one's
 * last request: a flood refuses its own. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <string.h>

#include "common/checksum.h"
#include "common/mem.h"
#include "daemon/tenant.h"

#define TURN_SCALE (UINT64_C(1) << 10) /* of a token at weight 1 */

struct share {
    struct htab_node node; /* in sched->shares, by name */
    char name[TENANT_NAME_MAX];
    uint32_t weight;
    uint32_t open;    /* sessions */
    uint32_t waiting; /* of them */
    uint64_t end;     /* of its last request's turn */
};

uint64_t
sched_tenant_hash(const char *tenant)
{
    return checksum64(0, tenant == NULL ? "" : tenant, tenant == NULL ? 0 : strlen(tenant));
}

const char *
sched_share_name(const struct share *share)
{
    return share->name;
}

bool
sched_share_equal(const struct htab_node *node, const void *key)
{
    return strcmp(HTAB_ENTRY(node, const struct share, node)->name, key) == 0;
}

/* Those without requests say nothing that virtual time does not say, but for a debt. */
static void
forget_quiet(struct sched *sched)
{
    struct htab_node *next;

    for (struct htab_node *node = htab_next(&sched->shares, NULL); node != NULL; node = next) {
        struct share *share = HTAB_ENTRY(node, struct share, node);

        next = htab_next(&sched->shares, node);
        if (share->open == 0) {
            htab_remove(&sched->shares, node);
            mem_free(share);
        }
    }
}

void
sched_forget_shares(struct sched *sched)
{
    if (sched->shares.bucket_count > 0) {
        forget_quiet(sched);
    }
    assert(sched->shares.count == 0);
}

enum status
sched_join_share(struct sched *sched, struct session *session, const char *tenant, uint32_t weight)
{
    const char *name = tenant == NULL ? "" : tenant;
    uint64_t hash = sched_tenant_hash(name);
    struct htab_node *node = htab_find(&sched->shares, hash, name);
    struct share *share = node == NULL ? NULL : HTAB_ENTRY(node, struct share, node);

    if (share == NULL) {
        if (sched->shares.count >= SCHED_SHARES_MAX) {
            forget_quiet(sched);
        }
        share = mem_zalloc(1, sizeof(*share));
        if (share == NULL || htab_insert(&sched->shares, hash, &share->node) != ST_OK) {
            mem_free(share);
            return ERR(ST_NO_MEMORY, "no memory for a tenant's share");
        }
        memcpy(share->name, name, strnlen(name, sizeof(share->name) - 1));
    }
    share->weight = weight == 0 ? 1 : weight; /* of its last request: it may be told anew */
    share->open++;
    session->share = share;
    return ST_OK;
}

void
sched_leave_share(struct session *session)
{
    if (session->share != NULL) {
        assert(session->share->open > 0);
        session->share->open--;
        session->share = NULL;
    }
}

/* Tokens that it may make the machine compute. */
static uint64_t
cost_of(const struct sched *sched, const struct session *session)
{
    uint64_t tokens = session_own_tokens_max(session);

    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct kvpool_want *want = &session->wants[i];
        const struct kvpool_doc *doc =
            sched->pool == NULL ? NULL : kvpool_find(sched->pool, &want->key);

        tokens += doc == NULL ? want->n_tokens : want->n_tokens - kvpool_doc_tokens_ready(doc);
    }
    return tokens > 0 ? tokens : 1;
}

void
sched_take_place(struct sched *sched, struct session *session)
{
    struct share *share = session->share;

    if (session->turn == 0 && share != NULL) { /* who comes back keeps it */
        session->turn = share->end > sched->turn ? share->end : sched->turn;
        session->turn_cost = cost_of(sched, session) * TURN_SCALE / share->weight;
        share->end = session->turn + session->turn_cost;
    }
    if (share != NULL) {
        share->waiting++;
    }
}

/* The session comes in; it is still among those that wait. */
static void
advance_turn(struct sched *sched, const struct session *session)
{
    struct list_node *first = sched->waiting.next;
    uint64_t turn = session->turn;

    if (first == &session->age_link) {
        first = first->next;
    }
    if (first != &sched->waiting && LIST_ENTRY(first, struct session, age_link)->turn < turn) {
        turn = LIST_ENTRY(first, struct session, age_link)->turn;
    }
    if (turn > sched->turn) {
        sched->turn = turn;
    }
}

/* It never came in, so its tenant's later requests, and those to come, are as if it had not been.
 * The lists keep their order for now: who closes requests may be walking along them. */
static void
give_back(struct sched *sched, const struct session *session)
{
    struct share *share = session->share;
    uint64_t cost = session->turn_cost;

    share->end -= cost < share->end ? cost : share->end;
    if (share->waiting == 0) {
        return;
    }
    LIST_FOR_EACH(node, &sched->waiting)
    {
        struct session *other = LIST_ENTRY(node, struct session, age_link);

        if (other->share == share && other->turn_cost > 0 && other->order > session->order) {
            other->turn_pull += cost;
            sched->has_pulls = true;
        }
    }
}

void
sched_leave_place(struct sched *sched, struct session *session, bool has_come_in)
{
    if (session->share != NULL) {
        assert(session->share->waiting > 0);
        session->share->waiting--;
        if (has_come_in) {
            advance_turn(sched, session);
        } else if (session->turn_cost > 0) {
            give_back(sched, session);
        }
        session->turn_cost = 0;
    }
}

bool
sched_pull_turns(struct sched *sched)
{
    bool has_moved = false;

    if (!sched->has_pulls) {
        return false;
    }
    sched->has_pulls = false;
    LIST_FOR_EACH_SAFE(node, &sched->waiting)
    {
        struct session *session = LIST_ENTRY(node, struct session, age_link);
        uint64_t room = session->turn > sched->turn ? session->turn - sched->turn : 0;

        if (session->turn_pull > 0) {
            session->turn -= session->turn_pull < room ? session->turn_pull : room;
            session->turn_pull = 0;
            has_moved |= sched_move_up(sched, session);
        }
    }
    return has_moved;
}

bool
sched_is_turn_before(const struct session *a, const struct session *b)
{
    return a->turn != b->turn ? a->turn < b->turn : a->order < b->order;
}

/* --- a full queue ----------------------------------------------------------------------------- */

/* The tenant with the most waiting for its weight. */
static struct share *
longest(const struct sched *sched)
{
    struct share *found = NULL;

    for (struct htab_node *node = htab_next(&sched->shares, NULL); node != NULL;
         node = htab_next(&sched->shares, node)) {
        struct share *share = HTAB_ENTRY(node, struct share, node);

        if (found == NULL
            || (uint64_t)share->waiting * found->weight
                   > (uint64_t)found->waiting * share->weight) {
            found = share;
        }
    }
    return found;
}

static struct session *
last_of(const struct sched *sched, const struct share *share)
{
    for (struct list_node *node = sched->queue.prev; node != &sched->queue; node = node->prev) {
        struct session *session = LIST_ENTRY(node, struct session, queue_link);

        if (session->share == share && session->losses == 0 && session->preemptions == 0) {
            return session;
        }
    }
    return NULL;
}

bool
sched_give_place(struct sched *sched, uint64_t now_us, const char *tenant, uint32_t weight)
{
    const char *name = tenant == NULL ? "" : tenant;
    struct htab_node *node = htab_find(&sched->shares, sched_tenant_hash(name), name);
    uint64_t waiting = node == NULL ? 0 : HTAB_ENTRY(node, struct share, node)->waiting;
    struct share *most = longest(sched);
    struct session *last;

    if (most == NULL
        || (waiting + 1) * most->weight >= (uint64_t)most->waiting * (weight == 0 ? 1 : weight)) {
        return false;
    }
    last = last_of(sched, most);
    if (last == NULL) {
        return false;
    }
    sched->counters.requests_displaced++;
    sched_close(sched, now_us, last, SCHED_END_FULL, NULL,
                "the queue is full, and another tenant has fewer requests in it");
    return true;
}
