/* SPDX-License-Identifier: Apache-2.0 */
/* Least recently used: a document is as old as the last moment at which somebody needed it.
 *
 * The lists hold only what may be evicted, oldest first.  A document joins at the young end when
 * its last reference or pin goes, and leaves when it is claimed or pinned.  So every call takes
 * constant time, also beside thousands of pinned documents, and `used` has nothing left to do: a
 * document that is cited is referenced, and so in no list.  What a waiting request needs is in a
 * list of its own, which is looked at last. */
#include "kvpool/evict.h"

#include "common/mem.h"

struct evict_policy {
    struct list_node oldest_first; /* of evict_doc.link */
    struct list_node awaited;
};

static enum status
lru_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    struct evict_policy *policy = mem_zalloc(1, sizeof(*policy));

    (void)config;
    if (policy == NULL) {
        return ERR(ST_NO_MEMORY, "eviction policy lru");
    }
    list_init(&policy->oldest_first);
    list_init(&policy->awaited);
    *policy_out = policy;
    return ST_OK;
}

static void
lru_destroy(struct evict_policy **policy)
{
    MEM_FREE(*policy);
}

static void
lru_tick(struct evict_policy *policy)
{
    (void)policy;
}

static void
lru_ignore(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    (void)doc;
}

static void
lru_place(struct evict_policy *policy, struct evict_doc *doc)
{
    list_unlink(&doc->link);
    if (doc->is_evictable) {
        list_push_back(doc->is_awaited ? &policy->awaited : &policy->oldest_first, &doc->link);
    }
}

static void
lru_forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    (void)policy;
    (void)end;
    list_unlink(&doc->link);
}

static struct evict_doc *
lru_victim(struct evict_policy *policy)
{
    struct list_node *list =
        list_is_empty(&policy->oldest_first) ? &policy->awaited : &policy->oldest_first;

    return list_is_empty(list) ? NULL : LIST_ENTRY(list->next, struct evict_doc, link);
}

static uint32_t
lru_coldest(const struct evict_policy *policy, struct evict_doc **docs_out, uint32_t max)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &policy->oldest_first)
    {
        if (count == max) {
            break;
        }
        docs_out[count++] = LIST_ENTRY(node, struct evict_doc, link);
    }
    return count;
}

const struct evict_policy_ops evict_lru = {
    .name = "lru",
    .create = lru_create,
    .destroy = lru_destroy,
    .tick = lru_tick,
    .used = lru_ignore,
    .admitted = lru_ignore,
    .evictable = lru_place,
    .awaited = lru_place,
    .forgotten = lru_forgotten,
    .victim = lru_victim,
    .coldest = lru_coldest,
};
