/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/corpus.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

#define SORT_AGAIN_US 1000000u

struct corpus {
    struct corpus_config config;
    struct htab names, numbers;
    struct list_node documents; /* corpus_document.link, by number */
    uint64_t next_number;
    uint32_t count;
    size_t bytes;                   /* of token ids */
    struct corpus_document **order; /* [order_count] by score, the best first */
    size_t order_count;             /* NULL where one was removed */
    size_t cursor;                  /* into it: what to look at next */
    bool is_stale;                  /* order lacks documents, or has old scores */
    uint64_t sorted_us;
};

const char *
corpus_state_name(enum corpus_state state)
{
    static const char *const names[CORPUS_STATES] = {
        [CORPUS_WAITING] = "waiting",
        [CORPUS_BUILDING] = "building",
        [CORPUS_RESIDENT] = "resident",
        [CORPUS_NO_ROOM] = "no_room",
    };

    assert(state < CORPUS_STATES);
    return names[state];
}

static bool
has_name(const struct htab_node *node, const void *name)
{
    return memcmp(HTAB_ENTRY(node, const struct corpus_document, by_name)->name.bytes,
                  ((const struct dockey *)name)->bytes, DOCKEY_BYTES)
           == 0;
}

static bool
has_number(const struct htab_node *node, const void *number)
{
    return HTAB_ENTRY(node, const struct corpus_document, by_number)->number
           == *(const uint64_t *)number;
}

enum status
corpus_new(const struct corpus_config *config, struct corpus **corpus_out)
{
    struct corpus *corpus = mem_zalloc(1, sizeof(*corpus));

    if (corpus == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a corpus");
    }
    corpus->config = *config;
    list_init(&corpus->documents);
    if (htab_init(&corpus->names, has_name) != ST_OK
        || htab_init(&corpus->numbers, has_number) != ST_OK) {
        corpus_destroy(&corpus);
        return ST_NO_MEMORY;
    }
    *corpus_out = corpus;
    return ST_OK;
}

static size_t
bytes_of(const struct tokens *tokens)
{
    return tokens_count(tokens) * sizeof(uint32_t);
}

static void
remove_document(struct corpus *corpus, struct corpus_document *document)
{
    htab_remove(&corpus->names, &document->by_name);
    htab_remove(&corpus->numbers, &document->by_number);
    list_unlink(&document->link);
    corpus->bytes -= bytes_of(document->tokens);
    corpus->count--;
    if (document->place < corpus->order_count) {
        corpus->order[document->place] = NULL;
    }
    tokens_release(&document->tokens);
    mem_free(document->id);
    mem_free(document);
}

void
corpus_destroy(struct corpus **corpus)
{
    if (*corpus == NULL) {
        return;
    }
    LIST_FOR_EACH_SAFE(node, &(*corpus)->documents)
    {
        remove_document(*corpus, LIST_ENTRY(node, struct corpus_document, link));
    }
    htab_deinit(&(*corpus)->names);
    htab_deinit(&(*corpus)->numbers);
    mem_free((*corpus)->order);
    MEM_FREE(*corpus);
}

/* --- what is known ---------------------------------------------------------------------------- */

static struct corpus_document *
find_name(const struct corpus *corpus, const struct dockey *name)
{
    struct htab_node *node = htab_find(&corpus->names, dockey_hash(name), name);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct corpus_document, by_name);
}

static bool
is_same(const struct dockey *a, const struct dockey *b)
{
    return memcmp(a->bytes, b->bytes, DOCKEY_BYTES) == 0;
}

static bool
is_used(const struct corpus *corpus, const struct dockey *key)
{
    LIST_FOR_EACH(node, &corpus->documents)
    {
        if (is_same(&LIST_ENTRY(node, struct corpus_document, link)->key, key)) {
            return true;
        }
    }
    return false;
}

static enum status
check_room(const struct corpus *corpus, size_t more, bool is_new)
{
    if (is_new && corpus->count >= CORPUS_DOCUMENTS_MAX) {
        return ERR(ST_NO_MEMORY, "the corpus has %u documents: the limit is %u", corpus->count,
                   CORPUS_DOCUMENTS_MAX);
    }
    if (more > corpus->config.bytes_max - corpus->bytes) {
        return ERR(ST_NO_MEMORY,
                   "%zu bytes of ids beside the %zu of the corpus: --corpus-memory allows %zu",
                   more, corpus->bytes, corpus->config.bytes_max);
    }
    return ST_OK;
}

static enum status
add_document(struct corpus *corpus, const struct corpus_put *put,
             struct corpus_document **document_out)
{
    struct corpus_document *document = mem_zalloc(1, sizeof(*document));

    if (document == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a document of the corpus");
    }
    document->id = put->id == NULL ? NULL : mem_strdup(put->id);
    document->name = put->name;
    document->scope = put->scope;
    document->number = corpus->next_number + 1;
    document->place = SIZE_MAX;
    if ((put->id != NULL && document->id == NULL)
        || htab_insert(&corpus->names, dockey_hash(&put->name), &document->by_name) != ST_OK) {
        goto fail;
    }
    if (htab_insert(&corpus->numbers, htab_mix(document->number), &document->by_number) != ST_OK) {
        htab_remove(&corpus->names, &document->by_name);
        goto fail;
    }
    corpus->next_number++;
    list_push_back(&corpus->documents, &document->link);
    corpus->count++;
    *document_out = document;
    return ST_OK;

fail:
    mem_free(document->id);
    mem_free(document);
    return ERR(ST_NO_MEMORY, "no memory for a document of the corpus");
}

static double
score(const struct corpus *corpus, const struct corpus_document *document)
{
    double n = tokens_count(document->tokens), q = corpus->config.quadratic_tokens;
    uint32_t P = corpus->config.block_tokens;
    double blocks = (tokens_count(document->tokens) + P - 1) / P;

    return blocks == 0 ? 0 : document->weight * (n + (q > 0 ? n * n / (2 * q) : 0)) / blocks;
}

enum status
corpus_put(struct corpus *corpus, const struct corpus_put *put, struct corpus_result *result_out)
{
    struct corpus_document *document = find_name(corpus, &put->name);
    bool is_unchanged = document != NULL && is_same(&document->key, &put->key);
    struct corpus_result result = {.change = CORPUS_NEW};

    if (!is_unchanged) {
        TRY(check_room(corpus, bytes_of(put->tokens), document == NULL));
    }
    if (document == NULL) {
        TRY(add_document(corpus, put, &document));
    } else if (is_unchanged) {
        result.change = CORPUS_UNCHANGED;
        result.must_unpin = document->has_pin && !put->is_pinned;
    } else {
        result.change = CORPUS_CHANGED;
        result.old_key = document->key;
        result.had_pin = document->has_pin;
        corpus->bytes -= bytes_of(document->tokens);
        tokens_release(&document->tokens);
    }
    if (!is_unchanged) {
        document->tokens = tokens_acquire(put->tokens);
        corpus->bytes += bytes_of(put->tokens);
        document->key = put->key;
        document->has_pin = false;
        document->state = CORPUS_WAITING;
    }
    result.is_old_unused = result.change == CORPUS_CHANGED && !is_used(corpus, &result.old_key);
    (void)snprintf(document->version, sizeof(document->version), "%s", put->version);
    document->weight = put->weight;
    document->is_pinned = put->is_pinned;
    document->pin_ends_us = put->pin_ends_us;
    document->has_pin = document->has_pin && !result.must_unpin;
    document->score = score(corpus, document);
    corpus->is_stale = true;
    *result_out = result;
    return ST_OK;
}

uint32_t
corpus_forget(struct corpus *corpus, const struct dockey *key)
{
    uint32_t before = corpus->count;

    LIST_FOR_EACH_SAFE(node, &corpus->documents)
    {
        struct corpus_document *document = LIST_ENTRY(node, struct corpus_document, link);

        if (is_same(&document->key, key)) {
            remove_document(corpus, document);
        }
    }
    return before - corpus->count;
}

const struct corpus_document *
corpus_walk(const struct corpus *corpus, const struct corpus_document *cursor)
{
    const struct list_node *next = cursor == NULL ? corpus->documents.next : cursor->link.next;

    return next == &corpus->documents ? NULL : LIST_ENTRY(next, const struct corpus_document, link);
}

struct corpus_document *
corpus_find_number(struct corpus *corpus, uint64_t number)
{
    struct htab_node *node = htab_find(&corpus->numbers, htab_mix(number), &number);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct corpus_document, by_number);
}

/* --- what comes next -------------------------------------------------------------------------- */

/* Pinned ones first: they were promised. */
static int
by_score(const void *a, const void *b)
{
    const struct corpus_document *left = *(struct corpus_document *const *)a;
    const struct corpus_document *right = *(struct corpus_document *const *)b;

    if (left->is_pinned != right->is_pinned) {
        return left->is_pinned ? -1 : 1;
    }
    if (left->score != right->score) {
        return left->score > right->score ? -1 : 1;
    }
    return (left->number > right->number) - (left->number < right->number);
}

/* Without memory for the list nothing is encoded ahead of time; that is all. */
static void
sort(struct corpus *corpus, uint64_t now_us)
{
    struct corpus_document **order =
        mem_realloc(corpus->order, corpus->count + (size_t)1, sizeof(struct corpus_document *));
    size_t count = 0;

    if (order == NULL) {
        return;
    }
    LIST_FOR_EACH(node, &corpus->documents)
    {
        order[count++] = LIST_ENTRY(node, struct corpus_document, link);
    }
    qsort(order, count, sizeof(struct corpus_document *), by_score);
    for (size_t i = 0; i < count; i++) {
        order[i]->place = i;
    }
    corpus->order = order;
    corpus->order_count = count;
    corpus->cursor = 0;
    corpus->is_stale = false;
    corpus->sorted_us = now_us;
}

void
corpus_look_again(struct corpus *corpus)
{
    corpus->cursor = 0;
}

static uint32_t
tokens_resident(const struct kvpool *pool, const struct corpus_document *document)
{
    const struct kvpool_doc *doc = pool == NULL ? NULL : kvpool_find(pool, &document->key);

    return doc == NULL ? 0 : kvpool_doc_tokens_ready(doc);
}

/* Brings the record up to date with the pool: pins go with the document that had them. */
static bool
is_resident(const struct kvpool *pool, struct corpus_document *document, uint64_t now_us)
{
    const struct kvpool_doc *doc = kvpool_find(pool, &document->key);

    if (document->pin_ends_us != 0 && document->pin_ends_us <= now_us) {
        document->is_pinned = false;
    }
    document->has_pin = document->has_pin && doc != NULL && kvpool_doc_pins(doc) > 0;
    return tokens_count(document->tokens) == 0 || (doc != NULL && kvpool_doc_is_ready(doc));
}

static bool
has_room(const struct kvpool *pool, const struct corpus_document *document)
{
    const struct kvpool_doc *doc = kvpool_find(pool, &document->key);
    struct kvpool_stats stats;
    uint32_t resident = 0;

    if (doc != NULL) {
        (void)kvpool_doc_blocks(doc, &resident);
    }
    kvpool_stats(pool, &stats);
    return document->is_pinned
           || kvpool_blocks_for(pool, tokens_count(document->tokens)) - resident
                  <= stats.blocks_free;
}

struct corpus_document *
corpus_next(struct corpus *corpus, const struct kvpool *pool, uint64_t now_us, bool may_build,
            enum corpus_task *task_out)
{
    if (pool == NULL) {
        return NULL;
    }
    /* A corpus that is being registered is not sorted anew for each document. */
    if (corpus->is_stale
        && (corpus->cursor >= corpus->order_count || now_us >= corpus->sorted_us + SORT_AGAIN_US)) {
        sort(corpus, now_us);
    }
    for (; corpus->cursor < corpus->order_count; corpus->cursor++) {
        struct corpus_document *document = corpus->order[corpus->cursor];

        if (document == NULL || document->state == CORPUS_BUILDING) {
            continue;
        }
        if (is_resident(pool, document, now_us)) {
            document->state = CORPUS_RESIDENT;
            if (document->is_pinned && !document->has_pin && tokens_count(document->tokens) > 0) {
                corpus->cursor++;
                *task_out = CORPUS_PIN;
                return document;
            }
        } else if (!has_room(pool, document)) {
            document->state = CORPUS_NO_ROOM;
        } else if (!may_build) {
            document->state = CORPUS_WAITING;
            return NULL; /* the cursor stays: nothing worse goes first */
        } else {
            document->state = CORPUS_BUILDING;
            corpus->cursor++;
            *task_out = CORPUS_BUILD;
            return document;
        }
    }
    return NULL;
}

void
corpus_ended(struct corpus *corpus, uint64_t number, enum corpus_state state)
{
    struct corpus_document *document = corpus_find_number(corpus, number);

    if (document != NULL && document->state == CORPUS_BUILDING) {
        document->state = state;
    }
}

void
corpus_pinned(struct corpus_document *document, bool is_pinned)
{
    document->has_pin = is_pinned;
}

struct corpus_summary
corpus_summary(const struct corpus *corpus, const struct kvpool *pool)
{
    struct corpus_summary sum = {0};

    LIST_FOR_EACH(node, &corpus->documents)
    {
        const struct corpus_document *document = LIST_ENTRY(node, struct corpus_document, link);
        uint32_t tokens = tokens_count(document->tokens);
        uint32_t resident = tokens_resident(pool, document);
        bool is_whole = resident == tokens;
        bool is_waiting = !is_whole && document->state != CORPUS_NO_ROOM;

        sum.count++;
        sum.tokens += tokens;
        sum.tokens_resident += resident;
        sum.count_resident += is_whole;
        sum.count_waiting += is_waiting;
        sum.tokens_waiting += is_waiting ? tokens - resident : 0;
        sum.count_pinned += document->has_pin;
        sum.count_no_room += !is_whole && document->state == CORPUS_NO_ROOM;
    }
    return sum;
}
