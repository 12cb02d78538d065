/* SPDX-License-Identifier: Apache-2.0 */
#include "common/htab.h"

#include <assert.h>

#include "common/mem.h"

#define HTAB_BUCKETS_MIN 16

enum status
htab_init(struct htab *tab, htab_equal_fn equal)
{
    struct htab_node **buckets = mem_zalloc(HTAB_BUCKETS_MIN, sizeof(*buckets));

    if (buckets == NULL) {
        return ERR(ST_NO_MEMORY, "hash table of %d buckets", HTAB_BUCKETS_MIN);
    }
    *tab = (struct htab){
        .buckets = buckets,
        .bucket_count = HTAB_BUCKETS_MIN,
        .equal = equal,
    };
    return ST_OK;
}

void
htab_deinit(struct htab *tab)
{
    MEM_FREE(tab->buckets);
    tab->bucket_count = 0;
    tab->count = 0;
}

struct htab_node *
htab_find(const struct htab *tab, uint64_t hash, const void *key)
{
    struct htab_node *node = tab->buckets[hash & (tab->bucket_count - 1)];

    while (node != NULL && !(node->hash == hash && tab->equal(node, key))) {
        node = node->next;
    }
    return node;
}

static enum status
grow(struct htab *tab)
{
    size_t bucket_count = tab->bucket_count * 2;
    struct htab_node **buckets = mem_zalloc(bucket_count, sizeof(*buckets));

    if (buckets == NULL) {
        return ERR(ST_NO_MEMORY, "hash table of %zu buckets", bucket_count);
    }
    for (size_t i = 0; i < tab->bucket_count; i++) {
        struct htab_node *node = tab->buckets[i];

        while (node != NULL) {
            struct htab_node *next = node->next;
            struct htab_node **slot = &buckets[node->hash & (bucket_count - 1)];

            node->next = *slot;
            *slot = node;
            node = next;
        }
    }
    mem_free(tab->buckets);
    tab->buckets = buckets;
    tab->bucket_count = bucket_count;
    return ST_OK;
}

enum status
htab_insert(struct htab *tab, uint64_t hash, struct htab_node *node)
{
    struct htab_node **slot;

    if (tab->count >= tab->bucket_count) {
        TRY(grow(tab));
    }
    slot = &tab->buckets[hash & (tab->bucket_count - 1)];
    node->hash = hash;
    node->next = *slot;
    *slot = node;
    tab->count++;
    return ST_OK;
}

void
htab_remove(struct htab *tab, struct htab_node *node)
{
    struct htab_node **slot = &tab->buckets[node->hash & (tab->bucket_count - 1)];

    while (*slot != node) {
        assert(*slot != NULL);
        slot = &(*slot)->next;
    }
    *slot = node->next;
    node->next = NULL;
    tab->count--;
}

struct htab_node *
htab_next(const struct htab *tab, const struct htab_node *node)
{
    size_t i = 0;

    if (node != NULL) {
        if (node->next != NULL) {
            return node->next;
        }
        i = (node->hash & (tab->bucket_count - 1)) + 1;
    }
    while (i < tab->bucket_count && tab->buckets[i] == NULL) {
        i++;
    }
    return i < tab->bucket_count ? tab->buckets[i] : NULL;
}

uint64_t
htab_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
