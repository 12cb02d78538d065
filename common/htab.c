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
    MEM_FREE(tab->old);
    tab->bucket_count = 0;
    tab->count = 0;
}

/* An element is in its old bucket until that one is moved.  The two new ones that stand for it are
 * written then and not read before. */
static bool
is_in_old(const struct htab *tab, uint64_t hash)
{
    return tab->old != NULL && (hash & (tab->bucket_count / 2 - 1)) >= tab->moved;
}

static struct htab_node **
bucket_of(const struct htab *tab, uint64_t hash)
{
    return is_in_old(tab, hash) ? &tab->old[hash & (tab->bucket_count / 2 - 1)]
                                : &tab->buckets[hash & (tab->bucket_count - 1)];
}

struct htab_node *
htab_find(const struct htab *tab, uint64_t hash, const void *key)
{
    struct htab_node *node = *bucket_of(tab, hash);

    while (node != NULL && !(node->hash == hash && tab->equal(node, key))) {
        node = node->next;
    }
    return node;
}

static enum status
begin_to_grow(struct htab *tab)
{
    size_t bucket_count = tab->bucket_count * 2;
    struct htab_node **buckets = mem_realloc(NULL, bucket_count, sizeof(*buckets));

    assert(tab->old == NULL); /* all was moved by half of the inserts since */
    if (buckets == NULL) {
        return ERR(ST_NO_MEMORY, "hash table of %zu buckets", bucket_count);
    }
    tab->old = tab->buckets;
    tab->moved = 0;
    tab->buckets = buckets;
    tab->bucket_count = bucket_count;
    return ST_OK;
}

static void
move_bucket(struct htab *tab)
{
    struct htab_node *node = tab->old[tab->moved];

    tab->buckets[tab->moved] = NULL;
    tab->buckets[tab->moved + tab->bucket_count / 2] = NULL;
    while (node != NULL) {
        struct htab_node *next = node->next;
        struct htab_node **slot = &tab->buckets[node->hash & (tab->bucket_count - 1)];

        node->next = *slot;
        *slot = node;
        node = next;
    }
    if (++tab->moved == tab->bucket_count / 2) {
        MEM_FREE(tab->old);
    }
}

enum status
htab_insert(struct htab *tab, uint64_t hash, struct htab_node *node)
{
    struct htab_node **slot;

    if (tab->count >= tab->bucket_count) {
        TRY(begin_to_grow(tab));
    }
    for (int i = 0; i < HTAB_MOVES && tab->old != NULL; i++) {
        move_bucket(tab);
    }
    slot = bucket_of(tab, hash);
    node->hash = hash;
    node->next = *slot;
    *slot = node;
    tab->count++;
    return ST_OK;
}

void
htab_remove(struct htab *tab, struct htab_node *node)
{
    struct htab_node **slot = bucket_of(tab, node->hash);

    while (*slot != node) {
        assert(*slot != NULL);
        slot = &(*slot)->next;
    }
    *slot = node->next;
    node->next = NULL;
    tab->count--;
}

static struct htab_node *
first_in(struct htab_node *const *buckets, size_t from, size_t to)
{
    while (from < to && buckets[from] == NULL) {
        from++;
    }
    return from < to ? buckets[from] : NULL;
}

/* Old buckets, then the lower half of the new ones, then the upper; as far as they are in use. */
struct htab_node *
htab_next(const struct htab *tab, const struct htab_node *node)
{
    size_t half = tab->bucket_count / 2, moved = tab->old == NULL ? half : tab->moved;
    size_t old = moved, at = 0;
    struct htab_node *next = node == NULL ? NULL : node->next;

    if (node != NULL && next == NULL && is_in_old(tab, node->hash)) {
        old = (node->hash & (half - 1)) + 1;
    } else if (node != NULL) {
        old = half;
        at = (node->hash & (tab->bucket_count - 1)) + 1;
    }
    if (next == NULL && tab->old != NULL) {
        next = first_in(tab->old, old, half);
    }
    if (next == NULL) {
        next = first_in(tab->buckets, at, moved);
    }
    if (next == NULL) {
        next = first_in(tab->buckets, at > half ? at : half, half + moved);
    }
    return next;
}

uint64_t
htab_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
