/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sums.h"

#include <assert.h>
#include <string.h>

void
sums_init(struct sums *sums, const struct ops *ops, size_t block_bytes)
{
    sums->ops = ops;
    sums->block_bytes = block_bytes;
}

static void
free_lists(struct sums *sums)
{
    sums->ops->release_host(sums->ops, sums->blocks);
    sums->ops->release_host(sums->ops, sums->values);
    sums->ops->release(sums->ops, sums->device);
    sums->blocks = NULL;
    sums->values = NULL;
    sums->device = NULL;
    sums->max = 0;
}

void
sums_deinit(struct sums *sums)
{
    if (sums->ops != NULL) {
        free_lists(sums);
    }
    *sums = (struct sums){0};
}

enum status
sums_reserve(struct sums *sums, size_t blocks)
{
    const struct ops *ops = sums->ops;
    void *memory;

    if (blocks <= sums->max) {
        return ST_OK;
    }
    assert(sums->n == 0 && blocks <= UINT32_MAX);
    free_lists(sums);
    TRY(ops->alloc_host(ops, blocks * sizeof(uint32_t), &memory));
    sums->blocks = memory;
    TRY(ops->alloc_host(ops, blocks * sizeof(uint64_t), &memory));
    sums->values = memory;
    TRY(ops->alloc(ops, blocks * (sizeof(uint64_t) + sizeof(uint32_t)), &memory));
    sums->device = memory;
    sums->max = (uint32_t)blocks;
    return ST_OK;
}

void
sums_clear(struct sums *sums)
{
    sums->n = 0;
}

void
sums_add(struct sums *sums, const uint32_t *blocks, uint32_t count)
{
    assert(count <= sums->max - sums->n);
    if (count > 0) {
        memcpy(sums->blocks + sums->n, blocks, count * sizeof(blocks[0]));
        sums->n += count;
    }
}

enum status
sums_run(struct sums *sums, const void *kv, uint32_t block_count)
{
    const struct ops *ops = sums->ops;
    uint64_t *values = sums->device;
    uint32_t *blocks = (void *)((char *)sums->device + sums->max * sizeof(uint64_t));

    if (sums->n == 0) {
        return ST_OK;
    }
    TRY(ops->upload(ops, blocks, sums->blocks, sums->n * sizeof(blocks[0])));
    TRY(ops->kv_checksum(ops, (struct kv_checksum_args){.kv = kv,
                                                        .block_bytes = sums->block_bytes,
                                                        .n_blocks = block_count,
                                                        .blocks = blocks,
                                                        .sums = values,
                                                        .N = sums->n}));
    return ops->download(ops, sums->values, values, sums->n * sizeof(values[0]));
}
