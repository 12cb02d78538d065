/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/evict_queue.h"

#include <assert.h>

#define PAST_MAX (1u << 18) /* documents; about 20 MiB */

enum place {
    IN_QUEUE,
    TAKEN_OUT, /* in the shelter, or nowhere while it cannot go */
};

void
evict_queues_init(struct evict_queues *queues)
{
    for (size_t i = 0; i < sizeof(queues->queue) / sizeof(queues->queue[0]); i++) {
        queues->queue[i].blocks = 0;
        list_init(&queues->queue[i].oldest_first);
    }
    list_init(&queues->sheltered);
}

void
evict_queues_remove(struct evict_queues *queues, struct evict_doc *doc)
{
    list_unlink(&doc->link);
    if (doc->mark != 0) {
        queues->queue[doc->mark].blocks -= doc->n_blocks;
    }
    doc->mark = 0;
    doc->place = IN_QUEUE;
}

void
evict_queues_move(struct evict_queues *queues, struct evict_doc *doc, uint8_t number)
{
    evict_queues_remove(queues, doc);
    doc->mark = number;
    queues->queue[number].blocks += doc->n_blocks;
    list_push_back(&queues->queue[number].oldest_first, &doc->link);
}

void
evict_queues_update(struct evict_queues *queues, struct evict_doc *doc)
{
    if (doc->place != TAKEN_OUT) {
        return;
    }
    list_unlink(&doc->link);
    if (doc->is_evictable && doc->is_awaited) {
        list_push_back(&queues->sheltered, &doc->link);
    } else if (doc->is_evictable) {
        doc->place = IN_QUEUE;
        list_push_front(&queues->queue[doc->mark].oldest_first, &doc->link);
    }
}

struct evict_doc *
evict_queues_oldest(struct evict_queues *queues, uint8_t number)
{
    LIST_FOR_EACH_SAFE(node, &queues->queue[number].oldest_first)
    {
        struct evict_doc *doc = LIST_ENTRY(node, struct evict_doc, link);

        if (doc->is_evictable && !doc->is_awaited) {
            return doc;
        }
        doc->place = TAKEN_OUT;
        evict_queues_update(queues, doc);
    }
    return NULL;
}

/* Stops after as many again that cannot go: they are taken out when their turn comes. */
uint32_t
evict_queues_list(const struct evict_queues *queues, uint8_t number, struct evict_doc **docs_out,
                  uint32_t max)
{
    uint32_t count = 0, passed = 0;

    LIST_FOR_EACH(node, &queues->queue[number].oldest_first)
    {
        struct evict_doc *doc = LIST_ENTRY(node, struct evict_doc, link);

        if (count == max || passed > max) {
            break;
        }
        if (doc->is_evictable && !doc->is_awaited) {
            docs_out[count++] = doc;
        } else {
            passed++;
        }
    }
    return count;
}

struct evict_doc *
evict_queues_last_resort(struct evict_queues *queues)
{
    return list_is_empty(&queues->sheltered)
               ? NULL
               : LIST_ENTRY(queues->sheltered.next, struct evict_doc, link);
}

/* --- the past --------------------------------------------------------------------------------- */

enum status
evict_past_init(struct evict_past *past, uint32_t block_count)
{
    *past = (struct evict_past){.capacity = block_count < PAST_MAX ? block_count : PAST_MAX};
    return ghosts_new(past->capacity, &past->ghosts);
}

void
evict_past_deinit(struct evict_past *past)
{
    ghosts_destroy(&past->ghosts);
}

bool
evict_past_has(const struct evict_past *past, const struct evict_doc *doc)
{
    return ghosts_find(past->ghosts, &doc->key, 0) != 0;
}

bool
evict_past_take(struct evict_past *past, const struct evict_doc *doc)
{
    int blocks = ghosts_take(past->ghosts, &doc->key, 0);

    past->blocks -= (uint64_t)blocks;
    return blocks != 0;
}

void
evict_past_trim(struct evict_past *past, uint64_t blocks)
{
    while (past->blocks > blocks) {
        past->blocks -= (uint64_t)ghosts_pop(past->ghosts);
    }
}

void
evict_past_add(struct evict_past *past, const struct evict_doc *doc)
{
    assert(doc->n_blocks > 0);
    (void)evict_past_take(past, doc);
    if (ghosts_count(past->ghosts) == past->capacity) {
        past->blocks -= (uint64_t)ghosts_pop(past->ghosts);
    }
    ghosts_add(past->ghosts, &doc->key, (int)doc->n_blocks);
    past->blocks += doc->n_blocks;
}
