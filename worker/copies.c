/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/copies.h"

#include <assert.h>
#include <string.h>

enum status
copies_init(struct copies *copies, const struct ops *ops, struct kv_layout layout,
            const double *inv_freq)
{
    size_t bytes = layout.D / 2 * sizeof(double);
    void *memory;

    copies->ops = ops;
    copies->layout = layout;
    TRY(ops->alloc(ops, bytes, &memory));
    copies->inv_freq = memory;
    TRY(ops->upload(ops, copies->inv_freq, inv_freq, bytes));
    return ops->finish(ops);
}

static void
free_lists(struct copies *copies)
{
    const struct ops *ops = copies->ops;

    ops->release_host(ops, copies->from);
    ops->release_host(ops, copies->to);
    ops->release_host(ops, copies->turn);
    ops->release(ops, copies->lists);
    copies->from = copies->to = copies->turn = copies->lists = NULL;
    copies->blocks_max = 0;
}

void
copies_deinit(struct copies *copies)
{
    if (copies->ops != NULL) {
        free_lists(copies);
        copies->ops->release(copies->ops, copies->inv_freq);
    }
    *copies = (struct copies){0};
}

static enum status
allocate_list(const struct ops *ops, size_t blocks, uint32_t **list_out)
{
    void *memory;

    TRY(ops->alloc_host(ops, blocks * sizeof(uint32_t), &memory));
    *list_out = memory;
    return ST_OK;
}

enum status
copies_reserve(struct copies *copies, size_t blocks)
{
    const struct ops *ops = copies->ops;
    void *memory;

    if (blocks <= copies->blocks_max) {
        return ST_OK;
    }
    assert(copies->n == 0 && blocks <= UINT32_MAX);
    free_lists(copies);
    TRY(allocate_list(ops, blocks, &copies->from));
    TRY(allocate_list(ops, blocks, &copies->to));
    TRY(allocate_list(ops, blocks, &copies->turn));
    TRY(ops->alloc(ops, 3 * blocks * sizeof(uint32_t), &memory));
    copies->lists = memory;
    copies->blocks_max = (uint32_t)blocks;
    return ST_OK;
}

void
copies_add(struct copies *copies, const uint32_t *from, const uint32_t *to, uint32_t count,
           uint32_t turn)
{
    assert(count <= copies->blocks_max - copies->n);
    for (uint32_t i = 0; i < count; i++) {
        copies->from[copies->n] = from[i];
        copies->to[copies->n] = to[i];
        copies->turn[copies->n++] = turn;
    }
}

enum status
copies_run(struct copies *copies, void *kv, uint32_t block_count)
{
    const struct ops *ops = copies->ops;
    uint32_t n = copies->n;
    size_t bytes = n * sizeof(uint32_t);

    if (n == 0) {
        return ST_OK;
    }
    copies->n = 0;
    TRY(ops->upload(ops, copies->lists, copies->from, bytes));
    TRY(ops->upload(ops, copies->lists + n, copies->to, bytes));
    TRY(ops->upload(ops, copies->lists + 2 * n, copies->turn, bytes));
    return ops->rope_copy(ops, (struct rope_copy_args){.kv = kv,
                                                       .layout = copies->layout,
                                                       .n_blocks = block_count,
                                                       .from = copies->lists,
                                                       .to = copies->lists + n,
                                                       .turn = copies->lists + 2 * (size_t)n,
                                                       .inv_freq = copies->inv_freq,
                                                       .N = n});
}
