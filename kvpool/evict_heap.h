/* SPDX-License-Identifier: Apache-2.0 */
/* evict_heap - evictable documents by score, the lowest on top; each knows its place.
 *
 * Score and slot stand beside the pointer, so that sifting compares neighbours in one array, and
 * who scores an entry anew finds its record, without touching the document.  Uses evict_doc.place:
 * 0 = not in the heap. */
#ifndef KVPOOL_EVICT_HEAP_H
#define KVPOOL_EVICT_HEAP_H

#include "kvpool/evict.h"

struct evict_heap_entry {
    struct evict_doc *doc;
    float score;
    uint32_t slot; /* the document's */
};

struct evict_heap {
    struct evict_heap_entry *entries; /* [capacity] */
    uint32_t count, capacity;
};

/* Room for `capacity` documents, made now.  ST_NO_MEMORY. */
enum status evict_heap_init(struct evict_heap *heap, uint32_t capacity);
void evict_heap_deinit(struct evict_heap *heap);

/* Adds a document that is not in the heap. */
void evict_heap_push(struct evict_heap *heap, struct evict_doc *doc, float score);

/* Takes it out; fine if it is not in. */
void evict_heap_remove(struct evict_heap *heap, struct evict_doc *doc);

/* Gives entry `index` another score.  The entry moves. */
void evict_heap_rescore(struct evict_heap *heap, uint32_t index, float score);

/* Writes up to `max` documents of the lowest scores, the lowest first; returns how many. */
uint32_t evict_heap_lowest(const struct evict_heap *heap, struct evict_doc **docs_out,
                           uint32_t max);

/* Makes it a heap again after the caller has changed scores in `entries`. */
void evict_heap_restore(struct evict_heap *heap);

#endif
