/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/memo.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/mem.h"

struct entry {
    struct identity {
        enum memo_kind kind;
        struct dockey name;
    } identity;
    struct dockey alias_of; /* its own name if it is none */
    struct htab_node by_name;
    struct list_node age; /* the least recently used first */
    struct tokens *tokens;
    size_t bytes;
};

struct memo {
    pthread_mutex_t lock; /* over everything below */
    struct htab names;
    struct list_node ages;
    size_t bytes_max;
    uint64_t secret; /* so that nobody can choose names that share a place in `names` */
    struct memo_stats stats;
};

static bool
name_equal(const struct htab_node *node, const void *key)
{
    const struct identity *have = &HTAB_ENTRY(node, const struct entry, by_name)->identity;
    const struct identity *wanted = (const struct identity *)key;

    return have->kind == wanted->kind
           && memcmp(have->name.bytes, wanted->name.bytes, DOCKEY_BYTES) == 0;
}

/* Over all of the name: sums of ids are as easy to make alike in a part as hashes of texts. */
static uint64_t
hash_of(const struct memo *memo, const struct dockey *name)
{
    uint64_t words[DOCKEY_BYTES / sizeof(uint64_t)], hash = memo->secret;

    memcpy(words, name->bytes, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        hash = htab_mix(hash ^ words[i]);
    }
    return hash;
}

enum status
memo_new(size_t bytes_max, struct memo **memo_out)
{
    struct memo *memo = mem_zalloc(1, sizeof(*memo));

    if (memo == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a memo");
    }
    if (getrandom(&memo->secret, sizeof(memo->secret), 0) != (ssize_t)sizeof(memo->secret)) {
        mem_free(memo);
        return ERR(ST_SYSTEM, "getrandom: %s", strerror(errno));
    }
    if (htab_init(&memo->names, name_equal) != ST_OK) {
        mem_free(memo);
        return ST_NO_MEMORY;
    }
    (void)pthread_mutex_init(&memo->lock, NULL);
    list_init(&memo->ages);
    memo->bytes_max = bytes_max;
    *memo_out = memo;
    return ST_OK;
}

static void
drop(struct memo *memo, struct entry *entry)
{
    htab_remove(&memo->names, &entry->by_name);
    list_unlink(&entry->age);
    memo->stats.bytes -= entry->bytes;
    memo->stats.entries--;
    tokens_release(&entry->tokens);
    mem_free(entry);
}

void
memo_destroy(struct memo **memo)
{
    if (*memo == NULL) {
        return;
    }
    LIST_FOR_EACH_SAFE(node, &(*memo)->ages)
    {
        drop(*memo, LIST_ENTRY(node, struct entry, age));
    }
    htab_deinit(&(*memo)->names);
    (void)pthread_mutex_destroy(&(*memo)->lock);
    MEM_FREE(*memo);
}

/* The caller holds the lock. */
static struct entry *
find_and_touch(struct memo *memo, enum memo_kind kind, const struct dockey *name)
{
    struct identity wanted = {kind, *name};
    struct htab_node *node = htab_find(&memo->names, hash_of(memo, name), &wanted);
    struct entry *entry;

    if (node == NULL) {
        return NULL;
    }
    entry = HTAB_ENTRY(node, struct entry, by_name);
    list_unlink(&entry->age);
    list_push_back(&memo->ages, &entry->age);
    return entry;
}

struct tokens *
memo_find(struct memo *memo, enum memo_kind kind, const struct dockey *name)
{
    struct tokens *tokens = NULL;
    struct entry *entry;

    (void)pthread_mutex_lock(&memo->lock);
    entry = find_and_touch(memo, kind, name);
    if (entry != NULL) {
        tokens = tokens_acquire(entry->tokens);
        memo->stats.hits++;
    } else {
        memo->stats.misses++;
    }
    (void)pthread_mutex_unlock(&memo->lock);
    return tokens;
}

/* The caller holds the lock. */
static enum status
add(struct memo *memo, const struct identity *identity, const struct dockey *alias_of,
    struct tokens *tokens, size_t bytes)
{
    struct entry *entry = mem_zalloc(1, sizeof(*entry));

    if (entry == NULL
        || htab_insert(&memo->names, hash_of(memo, &identity->name), &entry->by_name) != ST_OK) {
        mem_free(entry);
        return ERR(ST_NO_MEMORY, "no memory for a memo's entry");
    }
    entry->identity = *identity;
    entry->alias_of = *alias_of;
    entry->tokens = tokens_acquire(tokens);
    entry->bytes = bytes;
    list_push_back(&memo->ages, &entry->age);
    memo->stats.bytes += bytes;
    memo->stats.entries++;
    return ST_OK;
}

enum status
memo_put(struct memo *memo, enum memo_kind kind, const struct dockey *name, struct tokens *tokens)
{
    return memo_put_alias(memo, kind, name, name, tokens);
}

enum status
memo_put_alias(struct memo *memo, enum memo_kind kind, const struct dockey *alias,
               const struct dockey *name, struct tokens *tokens)
{
    struct identity identity = {kind, *alias};
    size_t bytes = sizeof(struct entry) + tokens_count(tokens) * sizeof(uint32_t);
    enum status st = ST_OK;

    if (bytes > memo->bytes_max) {
        return ERR(ST_NO_MEMORY, "%u token ids: %zu bytes are kept at most", tokens_count(tokens),
                   memo->bytes_max);
    }
    (void)pthread_mutex_lock(&memo->lock);
    if (find_and_touch(memo, kind, alias) == NULL) {
        while (memo->stats.bytes + bytes > memo->bytes_max) {
            drop(memo, LIST_ENTRY(memo->ages.next, struct entry, age));
            memo->stats.evicted++;
        }
        st = add(memo, &identity, name, tokens, bytes);
    }
    (void)pthread_mutex_unlock(&memo->lock);
    return st;
}

bool
memo_forget(struct memo *memo, enum memo_kind kind, const struct dockey *name)
{
    struct entry *entry;

    (void)pthread_mutex_lock(&memo->lock);
    entry = find_and_touch(memo, kind, name);
    if (entry != NULL) {
        drop(memo, entry);
    }
    (void)pthread_mutex_unlock(&memo->lock);
    return entry != NULL;
}

uint32_t
memo_forget_aliases(struct memo *memo, enum memo_kind kind, const struct dockey *name)
{
    uint32_t count = 0;

    (void)pthread_mutex_lock(&memo->lock);
    LIST_FOR_EACH_SAFE(node, &memo->ages)
    {
        struct entry *entry = LIST_ENTRY(node, struct entry, age);

        if (entry->identity.kind == kind
            && memcmp(entry->alias_of.bytes, name->bytes, DOCKEY_BYTES) == 0) {
            drop(memo, entry);
            count++;
        }
    }
    (void)pthread_mutex_unlock(&memo->lock);
    return count;
}

uint32_t
memo_forget_ids(struct memo *memo, const struct tokens *tokens)
{
    size_t bytes = tokens_count(tokens) * sizeof(uint32_t);
    uint32_t count = 0;

    (void)pthread_mutex_lock(&memo->lock);
    LIST_FOR_EACH_SAFE(node, &memo->ages)
    {
        struct entry *entry = LIST_ENTRY(node, struct entry, age);

        if (tokens_count(entry->tokens) == tokens_count(tokens)
            && memcmp(tokens_ids(entry->tokens), tokens_ids(tokens), bytes) == 0) {
            drop(memo, entry);
            count++;
        }
    }
    (void)pthread_mutex_unlock(&memo->lock);
    return count;
}

struct memo_stats
memo_stats(struct memo *memo)
{
    struct memo_stats stats;

    (void)pthread_mutex_lock(&memo->lock);
    stats = memo->stats;
    (void)pthread_mutex_unlock(&memo->lock);
    return stats;
}
