/* SPDX-License-Identifier: Apache-2.0 */
/* What the policy is told beside what happens: which documents waiting requests cite, what an
 * operator cares for, what it had learned in an earlier life.
 *
 * The documents of waiting requests are counted by key, because most of them are not here when
 * their request comes: another one may bring them in meanwhile. */
#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kvpool/pool_state.h"

enum status
kvpool_create_policy(struct kvpool *pool)
{
    struct evict_config config = {
        .block_count = pool->config.block_count,
        .block_tokens = pool->config.block_tokens,
        .seed = pool->config.seed,
        .quadratic_tokens = pool->config.quadratic_tokens,
    };

    return pool->config.policy->create(&config, &pool->policy);
}

struct awaited {
    struct htab_node node;
    struct dockey key;
    uint32_t count; /* wants of waiting requests */
};

bool
awaited_equal(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct awaited, node)->key, key, DOCKEY_BYTES) == 0;
}

static struct awaited *
find(const struct kvpool *pool, const struct dockey *key)
{
    struct htab_node *node = htab_find(&pool->awaited, dockey_hash(key), key);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct awaited, node);
}

bool
await_is_awaited(const struct kvpool *pool, const struct dockey *key)
{
    return pool->awaited.count > 0 && find(pool, key) != NULL;
}

static void
drop(struct kvpool *pool, struct awaited *awaited)
{
    htab_remove(&pool->awaited, &awaited->node);
    mem_free(awaited);
}

void
await_deinit(struct kvpool *pool)
{
    struct htab_node *node;

    while (pool->awaited.count > 0 && (node = htab_next(&pool->awaited, NULL)) != NULL) {
        drop(pool, HTAB_ENTRY(node, struct awaited, node));
    }
    htab_deinit(&pool->awaited);
}

/* Brings documents and policy up to date, after all counts are right. */
static void
tell(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        struct kvpool_doc *doc = kvpool_find(pool, &wants[i].key);
        bool is_awaited = find(pool, &wants[i].key) != NULL;

        if (doc != NULL && doc->policy.is_awaited != is_awaited) {
            doc->policy.is_awaited = is_awaited;
            pool->config.policy->awaited(pool->policy, &doc->policy);
        }
    }
}

static enum status
await_one(struct kvpool *pool, const struct dockey *key)
{
    struct awaited *awaited = find(pool, key);

    if (awaited == NULL) {
        awaited = mem_zalloc(1, sizeof(*awaited));
        if (awaited == NULL
            || htab_insert(&pool->awaited, dockey_hash(key), &awaited->node) != ST_OK) {
            mem_free(awaited);
            return ERR(ST_NO_MEMORY, "record of an awaited document");
        }
        awaited->key = *key;
    }
    awaited->count++;
    return ST_OK;
}

static void
unawait_some(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        struct awaited *awaited = find(pool, &wants[i].key);

        assert(awaited != NULL);
        if (--awaited->count == 0) {
            drop(pool, awaited);
        }
    }
}

enum status
kvpool_await(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count)
{
    for (size_t i = 0; i < want_count; i++) {
        if (await_one(pool, &wants[i].key) != ST_OK) {
            unawait_some(pool, wants, i);
            return ST_NO_MEMORY;
        }
    }
    tell(pool, wants, want_count);
    return ST_OK;
}

void
kvpool_unawait(struct kvpool *pool, const struct kvpool_want *wants, size_t want_count)
{
    unawait_some(pool, wants, want_count);
    tell(pool, wants, want_count);
}

enum status
kvpool_prioritize(struct kvpool *pool, const struct dockey *key, uint32_t priority)
{
    struct kvpool_doc *doc = kvpool_find(pool, key);

    if (priority > EVICT_PRIORITY_MAX) {
        return ERR(ST_INVALID, "priority %u: it must be at most %d", priority, EVICT_PRIORITY_MAX);
    }
    if (pool->config.policy->prioritized == NULL) {
        return ERR(ST_UNAVAILABLE, "eviction policy %s knows no priorities",
                   pool->config.policy->name);
    }
    pool->config.policy->prioritized(pool->policy, key, doc == NULL ? NULL : &doc->policy,
                                     (uint8_t)priority);
    return ST_OK;
}

size_t
kvpool_policy_save_max(const struct kvpool *pool)
{
    return pool->config.policy->save == NULL ? 0 : pool->config.policy->save_max(pool->policy);
}

void
kvpool_policy_save(const struct kvpool *pool, struct evict_saving *saving, void *bytes, size_t max,
                   uint32_t records)
{
    if (pool->config.policy->save == NULL) {
        saving->is_done = true;
        return;
    }
    pool->config.policy->save(pool->policy, saving, bytes, max, records);
}

enum status
kvpool_policy_restore(struct kvpool *pool, const void *bytes, size_t size)
{
    const struct evict_policy_ops *ops = pool->config.policy;

    return ops->restore == NULL
               ? ERR(ST_INVALID, "eviction policy %s keeps nothing over a restart", ops->name)
               : ops->restore(pool->policy, bytes, size);
}

const struct evict_policy *
kvpool_policy(const struct kvpool *pool)
{
    return pool->policy;
}
