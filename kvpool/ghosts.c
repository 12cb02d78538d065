/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/ghosts.h"

#include <assert.h>
#include <string.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/mem.h"

struct ghost {
    struct htab_node node;
    struct list_node link; /* in `oldest_first` or `unused` */
    struct dockey key;
    int reason;
};

struct ghosts {
    struct htab index; /* of ghost.node */
    struct list_node oldest_first;
    struct list_node unused;
    struct ghost *storage; /* [capacity] */
};

static bool
ghost_equal(const struct htab_node *node, const void *key)
{
    return memcmp(&HTAB_ENTRY(node, const struct ghost, node)->key, key, DOCKEY_BYTES) == 0;
}

/* Brings the hash table to its final size, which it keeps: later inserts need no memory. */
static enum status
grow_index(struct ghosts *ghosts, uint32_t capacity)
{
    enum status st = ST_OK;
    uint32_t count = 0;

    while (count < capacity && st == ST_OK) {
        st = htab_insert(&ghosts->index, count, &ghosts->storage[count].node);
        count += st == ST_OK;
    }
    while (count > 0) {
        htab_remove(&ghosts->index, &ghosts->storage[--count].node);
    }
    return st;
}

enum status
ghosts_new(uint32_t capacity, struct ghosts **ghosts_out)
{
    struct ghosts *ghosts = mem_zalloc(1, sizeof(*ghosts));

    assert(capacity > 0);
    if (ghosts == NULL) {
        goto fail;
    }
    ghosts->storage = mem_zalloc(capacity, sizeof(ghosts->storage[0]));
    if (ghosts->storage == NULL || htab_init(&ghosts->index, ghost_equal) != ST_OK
        || grow_index(ghosts, capacity) != ST_OK) {
        goto fail;
    }
    list_init(&ghosts->oldest_first);
    list_init(&ghosts->unused);
    for (uint32_t i = 0; i < capacity; i++) {
        list_push_back(&ghosts->unused, &ghosts->storage[i].link);
    }
    *ghosts_out = ghosts;
    return ST_OK;

fail:
    ghosts_destroy(&ghosts);
    return ERR(ST_NO_MEMORY, "memory of %u forgotten documents", capacity);
}

void
ghosts_destroy(struct ghosts **ghosts)
{
    if (*ghosts == NULL) {
        return;
    }
    htab_deinit(&(*ghosts)->index);
    mem_free((*ghosts)->storage);
    MEM_FREE(*ghosts);
}

static void
forget(struct ghosts *ghosts, struct ghost *ghost)
{
    htab_remove(&ghosts->index, &ghost->node);
    list_unlink(&ghost->link);
    list_push_front(&ghosts->unused, &ghost->link);
}

static struct ghost *
find(const struct ghosts *ghosts, const struct dockey *key)
{
    struct htab_node *node = htab_find(&ghosts->index, dockey_hash(key), key);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct ghost, node);
}

void
ghosts_add(struct ghosts *ghosts, const struct dockey *key, int reason)
{
    struct ghost *ghost;
    enum status st;

    assert(find(ghosts, key) == NULL);
    if (list_is_empty(&ghosts->unused)) {
        forget(ghosts, LIST_ENTRY(ghosts->oldest_first.next, struct ghost, link));
    }
    ghost = LIST_ENTRY(ghosts->unused.next, struct ghost, link);
    ghost->key = *key;
    ghost->reason = reason;
    st = htab_insert(&ghosts->index, dockey_hash(key), &ghost->node);
    assert(st == ST_OK);
    list_unlink(&ghost->link);
    list_push_back(&ghosts->oldest_first, &ghost->link);
}

int
ghosts_take(struct ghosts *ghosts, const struct dockey *key, int absent)
{
    struct ghost *ghost = find(ghosts, key);

    if (ghost == NULL) {
        return absent;
    }
    forget(ghosts, ghost);
    return ghost->reason;
}

int
ghosts_find(const struct ghosts *ghosts, const struct dockey *key, int absent)
{
    const struct ghost *ghost = find(ghosts, key);

    return ghost == NULL ? absent : ghost->reason;
}

int
ghosts_pop(struct ghosts *ghosts)
{
    struct ghost *oldest = LIST_ENTRY(ghosts->oldest_first.next, struct ghost, link);

    assert(!list_is_empty(&ghosts->oldest_first));
    forget(ghosts, oldest);
    return oldest->reason;
}

uint32_t
ghosts_count(const struct ghosts *ghosts)
{
    return (uint32_t)ghosts->index.count;
}
