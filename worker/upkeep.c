/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/upkeep.h"

#include <string.h>

#include "common/mem.h"

struct upkeep_check {
    struct list_node link;
    Kvasir__V1__Checked answer;
    uint32_t *blocks, *twins; /* [n]; twins: NULL, or what to compare with */
    uint64_t *sums;           /* [n] */
    uint32_t n, done;
    uint32_t n_tokens;
};

enum status
upkeep_init(struct upkeep *upkeep, const struct ops *ops, struct kv_layout layout,
            bool is_poisoning)
{
    void *memory;

    upkeep->ops = ops;
    upkeep->layout = layout;
    upkeep->block_bytes = kv_layout_block_bytes(&layout);
    upkeep->is_poisoning = is_poisoning;
    upkeep->piece_blocks = UPKEEP_PIECE_BYTES / (uint32_t)upkeep->block_bytes;
    upkeep->piece_blocks += upkeep->piece_blocks == 0;
    list_init(&upkeep->checks);
    sums_init(&upkeep->sums, ops, upkeep->block_bytes);
    TRY(sums_reserve(&upkeep->sums, upkeep->piece_blocks));
    size_t list_bytes = upkeep->piece_blocks * sizeof(uint32_t);
    size_t diff_bytes = upkeep->piece_blocks * sizeof(struct kv_difference);

    TRY(ops->alloc_host(ops, 3 * list_bytes, &memory));
    upkeep->lists = memory;
    TRY(ops->alloc_host(ops, diff_bytes, &memory));
    upkeep->diff = memory;
    return ops->alloc(ops, diff_bytes + 3 * list_bytes, &upkeep->device);
}

void
upkeep_place_kv(struct upkeep *upkeep, void *kv, uint32_t block_count)
{
    upkeep->kv = kv;
    upkeep->block_count = block_count;
}

static void
free_check(struct upkeep_check **check)
{
    if (*check != NULL) {
        mem_free((*check)->blocks);
        mem_free((*check)->twins);
        mem_free((*check)->sums);
        MEM_FREE(*check);
    }
}

void
upkeep_reset(struct upkeep *upkeep)
{
    LIST_FOR_EACH_SAFE(node, &upkeep->checks)
    {
        struct upkeep_check *check = LIST_ENTRY(node, struct upkeep_check, link);

        list_unlink(node);
        free_check(&check);
    }
    upkeep->check_count = 0;
}

void
upkeep_deinit(struct upkeep *upkeep)
{
    if (upkeep->ops == NULL) {
        return;
    }
    upkeep_reset(upkeep);
    free_check(&upkeep->told);
    upkeep->ops->release_host(upkeep->ops, upkeep->lists);
    upkeep->ops->release_host(upkeep->ops, upkeep->diff);
    upkeep->ops->release(upkeep->ops, upkeep->device);
    sums_deinit(&upkeep->sums);
    *upkeep = (struct upkeep){0};
}

/* --- checks ----------------------------------------------------------------------------------- */

static enum status
check_blocks(const struct upkeep *upkeep, const char *what, const uint32_t *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (blocks[i] >= upkeep->block_count) {
            return ERR(ST_INVALID, "%s: block id %u, the arena has %u", what, blocks[i],
                       upkeep->block_count);
        }
    }
    return ST_OK;
}

static uint32_t *
copy_ids(const uint32_t *ids, size_t count)
{
    uint32_t *copy = mem_zalloc(count, sizeof(copy[0]));

    if (copy != NULL) {
        memcpy(copy, ids, count * sizeof(copy[0]));
    }
    return copy;
}

static enum status
new_check(const Kvasir__V1__Check *wire, struct upkeep_check **check_out)
{
    struct upkeep_check *check = mem_zalloc(1, sizeof(*check));
    size_t n = wire->n_block_ids;

    if (check == NULL) {
        return ERR(ST_NO_MEMORY, "a check");
    }
    check->n = (uint32_t)n;
    check->n_tokens = wire->n_tokens;
    check->blocks = copy_ids(wire->block_ids, n);
    check->sums = mem_zalloc(n, sizeof(check->sums[0]));
    check->twins = wire->n_twin_block_ids > 0 ? copy_ids(wire->twin_block_ids, n) : NULL;
    if (check->blocks == NULL || check->sums == NULL
        || (wire->n_twin_block_ids > 0 && check->twins == NULL)) {
        free_check(&check);
        return ERR(ST_NO_MEMORY, "a check of %zu blocks", n);
    }
    kvasir__v1__checked__init(&check->answer);
    check->answer.has_check = true;
    check->answer.check = wire->check;
    check->answer.has_differing = check->answer.has_relative = check->twins != NULL;
    *check_out = check;
    return ST_OK;
}

enum status
upkeep_check(struct upkeep *upkeep, const Kvasir__V1__Check *wire)
{
    struct upkeep_check *check = NULL;
    size_t twins = wire->n_twin_block_ids;

    if (wire->n_block_ids == 0 || (twins > 0 && twins != wire->n_block_ids)
        || wire->n_tokens > (uint64_t)wire->n_block_ids * upkeep->layout.P) {
        return ERR(ST_INVALID, "check of %zu blocks, %zu twins, %u tokens", wire->n_block_ids,
                   twins, wire->n_tokens);
    }
    if (upkeep->check_count >= UPKEEP_CHECKS_MAX) {
        return ERR(ST_INVALID, "%u checks are open", upkeep->check_count);
    }
    TRY(check_blocks(upkeep, "check", wire->block_ids, wire->n_block_ids));
    TRY(check_blocks(upkeep, "check", wire->twin_block_ids, twins));
    TRY(new_check(wire, &check));
    list_push_back(&upkeep->checks, &check->link);
    upkeep->check_count++;
    return ST_OK;
}

/* The twins of a piece, against its blocks. */
static enum status
enqueue_comparison(struct upkeep *upkeep, const struct upkeep_check *check, uint32_t count)
{
    const struct ops *ops = upkeep->ops;
    uint32_t P = upkeep->layout.P;
    uint32_t *a = upkeep->lists, *b = a + count, *tokens = b + count;
    char *device = upkeep->device;
    size_t diff_bytes = count * sizeof(struct kv_difference);
    size_t list_bytes = count * sizeof(uint32_t);

    for (uint32_t i = 0; i < count; i++) {
        uint64_t first = (uint64_t)(check->done + i) * P;
        uint64_t left = first < check->n_tokens ? check->n_tokens - first : 0;

        a[i] = check->blocks[check->done + i];
        b[i] = check->twins[check->done + i];
        tokens[i] = left < P ? (uint32_t)left : P;
    }
    TRY(ops->upload(ops, device + diff_bytes, upkeep->lists, 3 * list_bytes));
    TRY(ops->kv_compare(ops, (struct kv_compare_args){
                                 .kv = upkeep->kv,
                                 .layout = upkeep->layout,
                                 .n_blocks = upkeep->block_count,
                                 .a = (const void *)(device + diff_bytes),
                                 .b = (const void *)(device + diff_bytes + list_bytes),
                                 .tokens = (const void *)(device + diff_bytes + 2 * list_bytes),
                                 .diff = (void *)device,
                                 .N = count}));
    return ops->download(ops, upkeep->diff, device, diff_bytes);
}

static void
take_piece(const struct upkeep *upkeep, struct upkeep_check *check, uint32_t count)
{
    memcpy(check->sums + check->done, upkeep->sums.values, count * sizeof(check->sums[0]));
    for (uint32_t i = 0; check->twins != NULL && i < count; i++) {
        check->answer.differing += upkeep->diff[i].elements;
        if (upkeep->diff[i].relative > check->answer.relative) {
            check->answer.relative = upkeep->diff[i].relative;
        }
    }
    check->done += count;
}

enum status
upkeep_run(struct upkeep *upkeep, Kvasir__V1__Checked **checked_out)
{
    struct upkeep_check *check;

    *checked_out = NULL;
    free_check(&upkeep->told);
    if (upkeep->check_count == 0) {
        return ST_OK;
    }
    check = LIST_ENTRY(upkeep->checks.next, struct upkeep_check, link);
    uint32_t left = check->n - check->done;
    uint32_t count = left < upkeep->piece_blocks ? left : upkeep->piece_blocks;

    sums_clear(&upkeep->sums);
    sums_add(&upkeep->sums, check->blocks + check->done, count);
    TRY(sums_run(&upkeep->sums, upkeep->kv, upkeep->block_count));
    if (check->twins != NULL) {
        TRY(enqueue_comparison(upkeep, check, count));
    }
    TRY(upkeep->ops->finish(upkeep->ops));
    take_piece(upkeep, check, count);
    if (check->done == check->n) {
        list_unlink(&check->link);
        upkeep->check_count--;
        check->answer.n_sums = check->n;
        check->answer.sums = check->sums;
        upkeep->told = check;
        *checked_out = &check->answer;
    }
    return ST_OK;
}

/* --- filling ---------------------------------------------------------------------------------- */

static enum status
fill(struct upkeep *upkeep, const uint32_t *blocks, size_t count, int byte)
{
    size_t run;

    /* Neighbours at once: a fill of 4 MiB alone reaches a quarter of a GPU's rate. */
    for (size_t i = 0; i < count; i += run) {
        for (run = 1; i + run < count && blocks[i + run] == blocks[i] + run;) {
            run++;
        }
        TRY(upkeep->ops->fill(upkeep->ops, (char *)upkeep->kv + blocks[i] * upkeep->block_bytes,
                              byte, run * upkeep->block_bytes));
    }
    return ST_OK;
}

enum status
upkeep_erase(struct upkeep *upkeep, const uint32_t *blocks, size_t count)
{
    TRY(check_blocks(upkeep, "erase", blocks, count));
    upkeep->has_enqueued |= count > 0;
    return fill(upkeep, blocks, count, 0);
}

enum status
upkeep_probe(struct upkeep *upkeep)
{
    upkeep->has_enqueued = true;
    return upkeep->ops->fill(upkeep->ops, upkeep->device, 0, sizeof(*upkeep->diff));
}

/* All bits set is a NaN of every type we have. */
enum status
upkeep_wipe(struct upkeep *upkeep, const uint32_t *blocks, size_t count)
{
    upkeep->has_enqueued |= count > 0;
    return fill(upkeep, blocks, count, upkeep->is_poisoning ? 0xff : 0);
}
