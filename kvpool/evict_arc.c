/* SPDX-License-Identifier: Apache-2.0 */
/* ARC (Megiddo and Modha, FAST 2003): recency against frequency, balanced by what each would have
 * kept.
 *
 * RECENT holds documents seen once, FREQUENT those seen again, each oldest first; for each there is
 * a memory of what it lost.  A miss that is remembered as lost by RECENT says that RECENT is too
 * small, one lost by FREQUENT the opposite; the target moves accordingly.  Sizes are in blocks of
 * whole documents. */
#include "kvpool/evict_queue.h"

#include "common/mem.h"

enum queue {
    RECENT = 1,
    FREQUENT = 2,
};

struct evict_policy {
    struct evict_queues queues;
    struct evict_past lost[3]; /* by RECENT, by FREQUENT */
    uint64_t block_count;
    double target; /* blocks of RECENT */
};

static void
arc_destroy(struct evict_policy **policy)
{
    if (*policy == NULL) {
        return;
    }
    evict_past_deinit(&(*policy)->lost[RECENT]);
    evict_past_deinit(&(*policy)->lost[FREQUENT]);
    MEM_FREE(*policy);
}

static enum status
arc_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    struct evict_policy *policy = mem_zalloc(1, sizeof(*policy));

    if (policy == NULL || evict_past_init(&policy->lost[RECENT], config->block_count) != ST_OK
        || evict_past_init(&policy->lost[FREQUENT], config->block_count) != ST_OK) {
        arc_destroy(&policy);
        return ERR(ST_NO_MEMORY, "eviction policy arc");
    }
    policy->block_count = config->block_count;
    evict_queues_init(&policy->queues);
    *policy_out = policy;
    return ST_OK;
}

static void
arc_tick(struct evict_policy *policy)
{
    (void)policy;
}

/* How much a miss that `mine` remembers is worth: more if the other list remembers more. */
static double
step(const struct evict_past *mine, const struct evict_past *other, const struct evict_doc *doc)
{
    double ratio = (double)other->blocks / (double)mine->blocks;

    return (ratio < 1 ? 1 : ratio) * doc->n_blocks;
}

static void
arc_used(struct evict_policy *policy, struct evict_doc *doc)
{
    const struct evict_past *recent = &policy->lost[RECENT], *frequent = &policy->lost[FREQUENT];

    if (doc->mark != 0) {
        evict_queues_move(&policy->queues, doc, FREQUENT);
    } else if (evict_past_has(recent, doc)) {
        policy->target += step(recent, frequent, doc);
        if (policy->target > (double)policy->block_count) {
            policy->target = (double)policy->block_count;
        }
    } else if (evict_past_has(frequent, doc)) {
        policy->target -= step(frequent, recent, doc);
        if (policy->target < 0) {
            policy->target = 0;
        }
    }
}

static uint64_t
at_most(uint64_t all, uint64_t taken)
{
    return all > taken ? all - taken : 0;
}

static void
arc_admitted(struct evict_policy *policy, struct evict_doc *doc)
{
    struct evict_queues *queues = &policy->queues;
    bool was_recent = evict_past_take(&policy->lost[RECENT], doc);
    bool was_frequent = evict_past_take(&policy->lost[FREQUENT], doc);

    evict_queues_move(queues, doc, was_recent || was_frequent ? FREQUENT : RECENT);
    evict_past_trim(&policy->lost[RECENT],
                    at_most(policy->block_count, queues->queue[RECENT].blocks));
    evict_past_trim(&policy->lost[FREQUENT],
                    at_most(2 * policy->block_count, queues->queue[RECENT].blocks
                                                         + queues->queue[FREQUENT].blocks
                                                         + policy->lost[RECENT].blocks));
}

static void
arc_update(struct evict_policy *policy, struct evict_doc *doc)
{
    evict_queues_update(&policy->queues, doc);
}

static void
arc_forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    if (end == EVICT_END_EVICTED && doc->mark != 0) {
        evict_past_add(&policy->lost[doc->mark], doc);
    }
    evict_queues_remove(&policy->queues, doc);
}

static struct evict_doc *
arc_victim(struct evict_policy *policy)
{
    struct evict_queues *queues = &policy->queues;
    struct evict_doc *doc = NULL;

    if ((double)queues->queue[RECENT].blocks > policy->target) {
        doc = evict_queues_oldest(queues, RECENT);
    }
    if (doc == NULL) {
        doc = evict_queues_oldest(queues, FREQUENT);
    }
    if (doc == NULL) {
        doc = evict_queues_oldest(queues, RECENT);
    }
    return doc != NULL ? doc : evict_queues_last_resort(queues);
}

static uint32_t
arc_coldest(const struct evict_policy *policy, struct evict_doc **docs_out, uint32_t max)
{
    bool is_recent_first = (double)policy->queues.queue[RECENT].blocks > policy->target;
    uint32_t count =
        evict_queues_list(&policy->queues, is_recent_first ? RECENT : FREQUENT, docs_out, max);

    return count
           + evict_queues_list(&policy->queues, is_recent_first ? FREQUENT : RECENT,
                               docs_out + count, max - count);
}

const struct evict_policy_ops evict_arc = {
    .name = "arc",
    .create = arc_create,
    .destroy = arc_destroy,
    .tick = arc_tick,
    .used = arc_used,
    .admitted = arc_admitted,
    .evictable = arc_update,
    .awaited = arc_update,
    .forgotten = arc_forgotten,
    .victim = arc_victim,
    .coldest = arc_coldest,
};
