/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/evict_heap.h"

#include <assert.h>

#include "common/mem.h"

enum status
evict_heap_init(struct evict_heap *heap, uint32_t capacity)
{
    *heap = (struct evict_heap){
        .entries = mem_zalloc(capacity, sizeof(heap->entries[0])),
        .capacity = capacity,
    };
    return heap->entries == NULL ? ERR(ST_NO_MEMORY, "heap of %u documents", capacity) : ST_OK;
}

void
evict_heap_deinit(struct evict_heap *heap)
{
    MEM_FREE(heap->entries);
}

static void
put(struct evict_heap *heap, uint32_t index, struct evict_heap_entry entry)
{
    heap->entries[index] = entry;
    entry.doc->place = index + 1;
}

static void
sift_up(struct evict_heap *heap, uint32_t index, struct evict_heap_entry entry)
{
    while (index > 0 && heap->entries[(index - 1) / 2].score > entry.score) {
        put(heap, index, heap->entries[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    put(heap, index, entry);
}

static void
sift_down(struct evict_heap *heap, uint32_t index, struct evict_heap_entry entry)
{
    for (;;) {
        uint32_t child = 2 * index + 1;

        if (child + 1 < heap->count
            && heap->entries[child + 1].score < heap->entries[child].score) {
            child++;
        }
        if (child >= heap->count || heap->entries[child].score >= entry.score) {
            break;
        }
        put(heap, index, heap->entries[child]);
        index = child;
    }
    put(heap, index, entry);
}

/* `entry` takes the place at `index`, from where it belongs above or below. */
static void
settle(struct evict_heap *heap, uint32_t index, struct evict_heap_entry entry)
{
    if (index > 0 && heap->entries[(index - 1) / 2].score > entry.score) {
        sift_up(heap, index, entry);
    } else {
        sift_down(heap, index, entry);
    }
}

void
evict_heap_push(struct evict_heap *heap, struct evict_doc *doc, float score)
{
    assert(doc->place == 0 && heap->count < heap->capacity);
    sift_up(heap, heap->count++,
            (struct evict_heap_entry){.doc = doc, .score = score, .slot = doc->slot});
}

void
evict_heap_remove(struct evict_heap *heap, struct evict_doc *doc)
{
    uint32_t index = doc->place - 1;

    if (doc->place == 0) {
        return;
    }
    doc->place = 0;
    heap->count--;
    if (index < heap->count) {
        settle(heap, index, heap->entries[heap->count]);
    }
}

void
evict_heap_rescore(struct evict_heap *heap, uint32_t index, float score)
{
    struct evict_heap_entry entry = heap->entries[index];

    entry.score = score;
    settle(heap, index, entry);
}

void
evict_heap_restore(struct evict_heap *heap)
{
    for (uint32_t index = heap->count / 2; index-- > 0;) {
        sift_down(heap, index, heap->entries[index]);
    }
}

/* The next lowest is always among the children of those that were taken: as many as were taken, and
 * one more.  `docs_out` is few, so looking at all of them is cheaper than another heap. */
uint32_t
evict_heap_lowest(const struct evict_heap *heap, struct evict_doc **docs_out, uint32_t max)
{
    uint32_t edge[EVICT_LOWEST_MAX + 1]; /* indices whose parents were taken */
    uint32_t edge_count = heap->count > 0 ? 1 : 0, count = 0;

    assert(max <= EVICT_LOWEST_MAX);
    edge[0] = 0;
    while (count < max && edge_count > 0) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < edge_count; i++) {
            if (heap->entries[edge[i]].score < heap->entries[edge[best]].score) {
                best = i;
            }
        }
        uint32_t taken = edge[best], child = 2 * taken + 1;

        docs_out[count++] = heap->entries[taken].doc;
        edge[best] = edge[--edge_count];
        for (uint32_t i = 0; i < 2 && child + i < heap->count; i++) {
            edge[edge_count++] = child + i;
        }
    }
    return count;
}
