/* SPDX-License-Identifier: Apache-2.0 */
/* Words are short, so most are done by plain search in arrays on the stack.  A long one (a base64
 * blob, a run of spaces, text without any) goes through a heap of candidate pairs over a doubly
 * linked list; a candidate whose symbols have changed since it was pushed is dropped when it
 * comes up. */
#include "model/tokenizer_merge.h"

#include <string.h>

#include "common/mem.h"

/* Words of text are shorter; from here on the heap is no loss. */
#define SHORT_SYMBOLS_MAX 40

#define GONE UINT32_MAX

enum status
grow_reserve(struct grow *grow, size_t count, size_t size)
{
    size_t bytes = count * size;

    if (bytes <= grow->bytes) {
        return ST_OK;
    }
    bytes = bytes < 2 * grow->bytes ? 2 * grow->bytes : bytes;
    void *items = mem_realloc(grow->items, bytes, 1);
    if (items == NULL) {
        return ERR(ST_NO_MEMORY, "%zu bytes to tokenise with", bytes);
    }
    grow->items = items;
    grow->bytes = bytes;
    return ST_OK;
}

void
grow_deinit(struct grow *grow)
{
    MEM_FREE(grow->items);
    grow->bytes = 0;
}

void
merger_deinit(struct merger *merger)
{
    grow_deinit(&merger->links);
    grow_deinit(&merger->heap);
}

static size_t
merge_short(const struct pair_index *pairs, uint32_t *symbols, size_t count)
{
    static const struct pair_entry none = {.rank = UINT32_MAX};
    uint32_t ranks[SHORT_SYMBOLS_MAX], merged[SHORT_SYMBOLS_MAX];
    size_t changed[2] = {0, count - 1}; /* pairs to look up: [first, last) */

    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;

        for (size_t i = changed[0]; i < changed[1]; i++) {
            const struct pair_entry *entry = pair_index_find(pairs, symbols[i], symbols[i + 1]);

            entry = entry == NULL ? &none : entry;
            ranks[i] = entry->rank;
            merged[i] = entry->merged;
        }
        for (size_t i = 0; i + 1 < count; i++) {
            /* cppcheck-suppress uninitvar ; the first round has filled all of it */
            if (ranks[i] < best) {
                best = ranks[i];
                at = i;
            }
        }
        if (best == UINT32_MAX) {
            return count;
        }
        size_t after = count - at - 2; /* symbols right of the two */
        symbols[at] = merged[at];
        memmove(&symbols[at + 1], &symbols[at + 2], after * sizeof(symbols[0]));
        memmove(&ranks[at], &ranks[at + 1], after * sizeof(ranks[0]));
        memmove(&merged[at], &merged[at + 1], after * sizeof(merged[0]));
        count--;
        changed[0] = at > 0 ? at - 1 : 0;
        changed[1] = at + 1 < count ? at + 1 : at;
    }
}

struct link {
    uint32_t previous, next; /* GONE at the ends */
};

struct candidate {
    uint32_t rank, at; /* ordered by these */
    uint32_t left, right;
};

struct heap {
    struct candidate *items;
    size_t count;
};

static bool
comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void
heap_push(struct heap *heap, struct candidate item)
{
    size_t at = heap->count++;

    while (at > 0 && comes_before(&item, &heap->items[(at - 1) / 2])) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = item;
}

static struct candidate
heap_pop(struct heap *heap)
{
    struct candidate top = heap->items[0];
    struct candidate last = heap->items[--heap->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child + 1 < heap->count && comes_before(&heap->items[child + 1], &heap->items[child])) {
            child++;
        }
        if (child >= heap->count || !comes_before(&heap->items[child], &last)) {
            break;
        }
        heap->items[at] = heap->items[child];
        at = child;
    }
    heap->items[at] = last;
    return top;
}

/* Pushes the pair that starts at `left`, if it merges. */
static void
consider(struct heap *heap, const struct pair_index *pairs, const uint32_t *symbols, uint32_t left,
         uint32_t right)
{
    if (left == GONE || right == GONE) {
        return;
    }
    const struct pair_entry *entry = pair_index_find(pairs, symbols[left], symbols[right]);
    if (entry != NULL) {
        heap_push(heap, (struct candidate){entry->rank, left, symbols[left], symbols[right]});
    }
}

static enum status
merge_long(struct merger *merger, const struct pair_index *pairs, uint32_t *symbols, size_t *count)
{
    uint32_t n = (uint32_t)*count;

    TRY(grow_reserve(&merger->links, n, sizeof(struct link)));
    /* n - 1 pairs at first; each merge takes one away and adds at most two. */
    TRY(grow_reserve(&merger->heap, 2 * (size_t)n, sizeof(struct candidate)));
    struct link *links = merger->links.items;
    struct heap heap = {.items = merger->heap.items};

    for (uint32_t i = 0; i < n; i++) {
        links[i] = (struct link){i == 0 ? GONE : i - 1, i + 1 == n ? GONE : i + 1};
        consider(&heap, pairs, symbols, i, links[i].next);
    }
    while (heap.count > 0) {
        struct candidate best = heap_pop(&heap);
        uint32_t right = links[best.at].next;

        if (symbols[best.at] != best.left || right == GONE || symbols[right] != best.right) {
            continue;
        }
        symbols[best.at] = pair_index_find(pairs, best.left, best.right)->merged;
        symbols[right] = GONE;
        links[best.at].next = links[right].next;
        if (links[right].next != GONE) {
            links[links[right].next].previous = best.at;
        }
        consider(&heap, pairs, symbols, links[best.at].previous, best.at);
        consider(&heap, pairs, symbols, best.at, links[best.at].next);
    }
    *count = 0;
    for (uint32_t i = 0; i != GONE; i = links[i].next) {
        symbols[(*count)++] = symbols[i];
    }
    return ST_OK;
}

enum status
merge_symbols(struct merger *merger, const struct pair_index *pairs, uint32_t *symbols,
              size_t *count)
{
    if (*count < 2) {
        return ST_OK;
    }
    if (*count > SHORT_SYMBOLS_MAX) {
        return merge_long(merger, pairs, symbols, count);
    }
    *count = merge_short(pairs, symbols, *count);
    return ST_OK;
}
