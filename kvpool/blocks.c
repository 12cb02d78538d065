/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/blocks.h"

#include <assert.h>
#include <stddef.h>

#include "common/mem.h"
#include "kvpool/catalog.h"

enum status
blocks_init(struct blocks *blocks, uint32_t total, bool has_history)
{
    *blocks = (struct blocks){
        .total = total, .free_count = total, .untouched = total, .has_history = has_history};
    list_init(&blocks->quarantine);
    list_init(&blocks->erasing);
    blocks->free_ids = mem_zalloc(total, sizeof(blocks->free_ids[0]));
    if (has_history) {
        blocks->contents = mem_zalloc(total, sizeof(blocks->contents[0]));
        blocks->owners = mem_zalloc(total, sizeof(blocks->owners[0]));
        blocks->before = mem_zalloc(total, sizeof(blocks->before[0]));
    }
    if (blocks->free_ids == NULL
        || (has_history
            && (blocks->contents == NULL || blocks->owners == NULL || blocks->before == NULL))) {
        blocks_deinit(blocks);
        return ERR(ST_NO_MEMORY, "list of %u free blocks", total);
    }
    for (uint32_t i = 0; i < total; i++) {
        blocks->free_ids[i] = total - 1 - i; /* so that block 0 goes first */
    }
    return ST_OK;
}

static void
free_runs(struct list_node *runs)
{
    LIST_FOR_EACH_SAFE(node, runs)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);

        list_unlink(node);
        MEM_FREE(run);
    }
}

void
blocks_deinit(struct blocks *blocks)
{
    if (blocks->total == 0) {
        return;
    }
    blocks->total = 0;
    free_runs(&blocks->quarantine);
    free_runs(&blocks->erasing);
    MEM_FREE(blocks->free_ids);
    MEM_FREE(blocks->contents);
    MEM_FREE(blocks->owners);
    MEM_FREE(blocks->before);
}

static size_t
run_bytes(uint32_t capacity)
{
    return sizeof(struct block_run) + (size_t)capacity * sizeof(uint32_t);
}

enum status
block_run_new(uint32_t capacity, struct block_run **run_out)
{
    struct block_run *run = mem_zalloc(1, run_bytes(capacity));

    if (run == NULL) {
        return ERR(ST_NO_MEMORY, "list of %u blocks", capacity);
    }
    list_init(&run->link);
    run->capacity = capacity;
    *run_out = run;
    return ST_OK;
}

enum status
block_run_reserve(struct block_run **run, uint32_t capacity)
{
    struct block_run *moved;

    if (capacity <= (*run)->capacity) {
        return ST_OK;
    }
    moved = mem_realloc(*run, 1, run_bytes(capacity));
    if (moved == NULL) {
        return ERR(ST_NO_MEMORY, "list of %u blocks", capacity);
    }
    list_init(&moved->link); /* it pointed at itself, where it no longer is */
    moved->capacity = capacity;
    *run = moved;
    return ST_OK;
}

/* Two documents at once: either if they are one, or if there is only one. */
static uint64_t
join(uint64_t a, uint64_t b)
{
    return a == 0 || a == b ? b : b == 0 ? a : BLOCKS_ANY;
}

static void
hold(struct blocks *blocks, uint32_t id, uint64_t owner, uint64_t before)
{
    blocks->owners[id] = owner;
    blocks->before[id] = before;
    if (blocks->catalog != NULL) {
        catalog_set_held(blocks->catalog, id, join(owner, before));
    }
}

void
blocks_take(struct blocks *blocks, struct block_run *run, uint32_t count, uint64_t owner)
{
    assert(count <= blocks->free_count);
    assert(count <= run->capacity - run->count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = blocks->free_ids[--blocks->free_count];

        if (blocks->has_history) {
            blocks->contents[id] = 0;
            hold(blocks, id, owner, join(blocks->before[id], blocks->owners[id]));
        }
        run->ids[run->count++] = id;
    }
    if (blocks->free_count < blocks->untouched) {
        blocks->untouched = blocks->free_count;
    }
}

void
blocks_own(struct blocks *blocks, const struct block_run *run, uint32_t from, uint64_t owner)
{
    for (uint32_t i = from; blocks->has_history && i < run->count; i++) {
        hold(blocks, run->ids[i], owner, blocks->before[run->ids[i]]);
    }
}

void
blocks_settle(struct blocks *blocks, struct block_run *run)
{
    for (uint32_t i = 0; blocks->has_history && i < run->count; i++) {
        hold(blocks, run->ids[i], blocks->owners[run->ids[i]], 0);
    }
    run->taint = 0;
}

void
blocks_adopt(struct blocks *blocks, uint32_t id, uint64_t owner)
{
    uint64_t held = catalog_held(blocks->catalog, id);

    blocks->untouched = 0;
    blocks->owners[id] = owner != 0 ? owner : held;
    blocks->before[id] = owner != 0 && held != owner ? held : 0;
}

void
blocks_give_back(struct blocks *blocks, struct block_run *run, uint32_t count)
{
    assert(count <= run->count);
    assert(count <= blocks->total - blocks->free_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = run->ids[--run->count];

        if (blocks->catalog != NULL) {
            catalog_clear(blocks->catalog, id);
        }
        blocks->free_ids[blocks->free_count++] = id;
    }
}

void
blocks_end_run(struct blocks *blocks, struct block_run **run)
{
    struct block_run *ending = *run;

    *run = NULL;
    if (ending == NULL) {
        return;
    }
    if (ending->erasure == 0) {
        ending->erasure = ending->taint;
    }
    if (ending->fence != 0 && ending->count > 0) {
        blocks->quarantined += ending->count;
        list_push_back(&blocks->quarantine, &ending->link);
        return;
    }
    if (ending->erasure != 0 && ending->count > 0) {
        blocks->quarantined += ending->count;
        list_push_back(&blocks->erasing, &ending->link);
        return;
    }
    blocks_give_back(blocks, ending, ending->count);
    MEM_FREE(ending);
}

/* A run of the quarantine that is one of the wanted blocks. */
static bool
is_wanted_run(const struct block_run *run, uint64_t fence, const bool *is_wanted)
{
    return run->fence == fence && run->count == 1 && is_wanted[run->ids[0]];
}

bool
blocks_regain(struct blocks *blocks, uint64_t fence, const uint32_t *ids, uint32_t count,
              struct block_run *run, bool *is_wanted)
{
    uint32_t found = 0;

    assert(count <= run->capacity - run->count);
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= blocks->total || is_wanted[ids[i]]) {
            return false;
        }
        is_wanted[ids[i]] = true;
    }
    LIST_FOR_EACH(node, &blocks->quarantine)
    {
        found += is_wanted_run(LIST_ENTRY(node, struct block_run, link), fence, is_wanted);
    }
    if (found != count) {
        return false;
    }
    LIST_FOR_EACH_SAFE(node, &blocks->quarantine)
    {
        struct block_run *single = LIST_ENTRY(node, struct block_run, link);

        if (is_wanted_run(single, fence, is_wanted)) {
            run->erasure = single->erasure != 0 ? single->erasure : run->erasure;
            list_unlink(node);
            mem_free(single);
        }
    }
    blocks->quarantined -= count;
    for (uint32_t i = 0; i < count; i++) {
        run->ids[run->count++] = ids[i];
    }
    return true;
}

uint32_t
blocks_lift(struct blocks *blocks, uint64_t fence)
{
    uint32_t lifted = 0;

    LIST_FOR_EACH_SAFE(node, &blocks->quarantine)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);

        if (run->fence == fence && run->erasure != 0) {
            run->fence = 0;
            list_unlink(node);
            list_push_back(&blocks->erasing, node);
        } else if (run->fence == fence) {
            list_unlink(node);
            lifted += run->count;
            blocks_give_back(blocks, run, run->count);
            MEM_FREE(run);
        }
    }
    blocks->quarantined -= lifted;
    return lifted;
}

/* --- erasure ---------------------------------------------------------------------------------- */

static bool
held(const struct blocks *blocks, uint32_t id, uint64_t owner)
{
    return blocks->owners[id] == owner || blocks->owners[id] == BLOCKS_ANY
           || blocks->before[id] == owner || blocks->before[id] == BLOCKS_ANY;
}

enum status
blocks_take_remnants(struct blocks *blocks, uint64_t owner, uint64_t erasure, uint32_t *count_out)
{
    struct block_run *run = NULL;
    uint32_t count = 0, kept = blocks->untouched;

    for (uint32_t i = kept; i < blocks->free_count; i++) {
        count += held(blocks, blocks->free_ids[i], owner);
    }
    *count_out = count;
    if (count == 0) {
        return ST_OK;
    }
    TRY(block_run_new(count, &run));
    for (uint32_t i = kept; i < blocks->free_count; i++) {
        uint32_t id = blocks->free_ids[i];

        if (held(blocks, id, owner)) {
            run->ids[run->count++] = id;
        } else {
            blocks->free_ids[kept++] = id;
        }
    }
    blocks->free_count = kept;
    run->erasure = erasure;
    blocks_end_run(blocks, &run);
    return ST_OK;
}

static bool
holds(const struct blocks *blocks, const struct block_run *run, uint64_t owner)
{
    for (uint32_t i = 0; i < run->count; i++) {
        if (held(blocks, run->ids[i], owner)) {
            return true;
        }
    }
    return false;
}

uint32_t
blocks_mark_fenced(struct blocks *blocks, uint64_t owner, uint64_t erasure)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &blocks->quarantine)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);

        if (run->erasure == 0 && holds(blocks, run, owner)) {
            run->erasure = erasure;
            count += run->count;
        }
    }
    return count;
}

const struct block_run *
blocks_next_erasure(struct blocks *blocks, uint64_t erase, uint64_t eraser)
{
    assert(erase != 0 && eraser != 0);
    LIST_FOR_EACH(node, &blocks->erasing)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);

        if (run->eraser != 0) {
            continue;
        }
        run->erase = erase;
        run->eraser = eraser;
        for (uint32_t i = 0; blocks->catalog != NULL && i < run->count; i++) {
            catalog_lend(blocks->catalog, run->ids[i], eraser);
        }
        return run;
    }
    return NULL;
}

uint32_t
blocks_erased(struct blocks *blocks, uint64_t erase)
{
    LIST_FOR_EACH_SAFE(node, &blocks->erasing)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);
        uint32_t count = run->count;

        if (run->eraser == 0 || run->erase != erase) {
            continue;
        }
        for (uint32_t i = 0; i < count; i++) {
            hold(blocks, run->ids[i], 0, 0);
            if (blocks->catalog != NULL) {
                catalog_erase(blocks->catalog, run->ids[i]);
            }
        }
        list_unlink(node);
        blocks->quarantined -= count;
        blocks_give_back(blocks, run, count);
        MEM_FREE(run);
        return count;
    }
    return 0;
}

void
blocks_lose_eraser(struct blocks *blocks, uint64_t eraser)
{
    LIST_FOR_EACH_SAFE(node, &blocks->erasing)
    {
        struct block_run *run = LIST_ENTRY(node, struct block_run, link);

        if (run->eraser == eraser) {
            run->eraser = 0;
            run->fence = eraser; /* it may be writing them at this moment */
            list_unlink(node);
            list_push_back(&blocks->quarantine, node);
        }
    }
}

static bool
is_any_erasing(const struct blocks *blocks, const struct list_node *runs, uint64_t owner)
{
    LIST_FOR_EACH(node, runs)
    {
        const struct block_run *run = LIST_ENTRY(node, const struct block_run, link);

        if (run->erasure != 0 && holds(blocks, run, owner)) {
            return true;
        }
    }
    return false;
}

bool
blocks_are_erasing(const struct blocks *blocks, uint64_t owner)
{
    return is_any_erasing(blocks, &blocks->erasing, owner)
           || is_any_erasing(blocks, &blocks->quarantine, owner);
}

void
blocks_taint(const struct blocks *blocks, struct block_run *run, uint64_t owner, uint64_t erasure)
{
    for (uint32_t i = 0; i < run->count; i++) {
        uint64_t before = blocks->before[run->ids[i]];

        if (before == owner || before == BLOCKS_ANY) {
            run->taint = erasure;
        }
    }
}
