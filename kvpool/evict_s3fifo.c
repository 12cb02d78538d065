/* SPDX-License-Identifier: Apache-2.0 */
/* S3-FIFO (Yang et al., SOSP 2023): three first-in-first-out queues.
 *
 * A new document enters the small queue, a tenth of the pool.  If it is asked for twice before it
 * reaches the old end it moves to the main queue, else it goes and its name is remembered in the
 * ghost queue; whoever comes back while its name is there enters the main queue directly.  In the
 * main queue a document that was asked for since its last turn gets another turn.  Sizes are in
 * blocks of whole documents. */
#include "kvpool/evict_queue.h"

#include "common/mem.h"

#define SMALL_SHARE      10  /* one part in ten */
#define PAST_SHARE       0.9 /* of the pool: as much as the main queue holds */
#define REFERENCES_MAX   3
#define REFERENCES_TO_GO 1 /* more lead from the small to the main queue */

enum queue {
    SMALL = 1,
    MAIN = 2,
};

struct evict_policy {
    struct evict_queues queues;
    struct evict_past past;
    uint32_t block_count;
};

static void
s3fifo_destroy(struct evict_policy **policy)
{
    if (*policy == NULL) {
        return;
    }
    evict_past_deinit(&(*policy)->past);
    MEM_FREE(*policy);
}

static enum status
s3fifo_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    struct evict_policy *policy = mem_zalloc(1, sizeof(*policy));

    if (policy == NULL || evict_past_init(&policy->past, config->block_count) != ST_OK) {
        s3fifo_destroy(&policy);
        return ERR(ST_NO_MEMORY, "eviction policy s3fifo");
    }
    policy->block_count = config->block_count;
    evict_queues_init(&policy->queues);
    *policy_out = policy;
    return ST_OK;
}

static void
s3fifo_tick(struct evict_policy *policy)
{
    (void)policy;
}

/* evict_doc.slot counts references since the last turn. */
static void
s3fifo_used(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    if (doc->blocks_resident > 0 && doc->slot < REFERENCES_MAX) {
        doc->slot++;
    }
}

static void
s3fifo_admitted(struct evict_policy *policy, struct evict_doc *doc)
{
    doc->slot = 0;
    evict_queues_move(&policy->queues, doc, evict_past_take(&policy->past, doc) ? MAIN : SMALL);
}

static void
s3fifo_update(struct evict_policy *policy, struct evict_doc *doc)
{
    evict_queues_update(&policy->queues, doc);
}

static void
s3fifo_forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    if (end == EVICT_END_EVICTED && doc->mark == SMALL) {
        evict_past_add(&policy->past, doc);
        evict_past_trim(&policy->past, (uint64_t)(PAST_SHARE * policy->block_count));
    }
    evict_queues_remove(&policy->queues, doc);
}

/* The oldest of the small queue that was not asked for; the others move on. */
static struct evict_doc *
small_victim(struct evict_policy *policy)
{
    struct evict_doc *doc;

    while ((doc = evict_queues_oldest(&policy->queues, SMALL)) != NULL
           && doc->slot > REFERENCES_TO_GO) {
        doc->slot = 0;
        evict_queues_move(&policy->queues, doc, MAIN);
    }
    return doc;
}

/* The oldest of the main queue that has used up its turns. */
static struct evict_doc *
main_victim(struct evict_policy *policy)
{
    struct evict_doc *doc;

    while ((doc = evict_queues_oldest(&policy->queues, MAIN)) != NULL && doc->slot > 0) {
        doc->slot--;
        evict_queues_move(&policy->queues, doc, MAIN);
    }
    return doc;
}

static struct evict_doc *
s3fifo_victim(struct evict_policy *policy)
{
    struct evict_doc *doc = NULL;

    if (policy->queues.queue[SMALL].blocks > policy->block_count / SMALL_SHARE) {
        doc = small_victim(policy);
    }
    if (doc == NULL) {
        doc = main_victim(policy);
    }
    if (doc == NULL) {
        doc = small_victim(policy);
    }
    if (doc == NULL) {
        doc = main_victim(policy); /* all of the small queue moved on */
    }
    return doc != NULL ? doc : evict_queues_last_resort(&policy->queues);
}

/* The small queue gives until it is small enough, then the main one does. */
static uint32_t
s3fifo_coldest(const struct evict_policy *policy, struct evict_doc **docs_out, uint32_t max)
{
    bool is_small_first = policy->queues.queue[SMALL].blocks > policy->block_count / SMALL_SHARE;
    uint32_t count =
        evict_queues_list(&policy->queues, is_small_first ? SMALL : MAIN, docs_out, max);

    return count
           + evict_queues_list(&policy->queues, is_small_first ? MAIN : SMALL, docs_out + count,
                               max - count);
}

const struct evict_policy_ops evict_s3fifo = {
    .name = "s3fifo",
    .create = s3fifo_create,
    .destroy = s3fifo_destroy,
    .tick = s3fifo_tick,
    .used = s3fifo_used,
    .admitted = s3fifo_admitted,
    .evictable = s3fifo_update,
    .awaited = s3fifo_update,
    .forgotten = s3fifo_forgotten,
    .victim = s3fifo_victim,
    .coldest = s3fifo_coldest,
};
