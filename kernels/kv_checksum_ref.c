/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_checksum.h"

#include <assert.h>

#include "kernels/rows.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

static uint64_t
mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t
kv_checksum_block(const void *block, size_t block_bytes)
{
    const uint64_t *words = block;
    uint64_t sum = 0;

    assert((uintptr_t)block % sizeof(uint64_t) == 0 && block_bytes % sizeof(uint64_t) == 0);
    for (size_t i = 0; i < block_bytes / sizeof(uint64_t); i++) {
        sum += mix(words[i] ^ (i + 1) * GOLDEN);
    }
    return sum;
}

enum status
kv_checksum_rows(const struct kv_checksum_args *args, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        if (args->blocks[i] >= args->n_blocks) {
            return ERR(ST_INVALID, "checksum %u: block id %u, the arena has %u", i, args->blocks[i],
                       args->n_blocks);
        }
        args->sums[i] = kv_checksum_block(
            (const char *)args->kv + args->blocks[i] * args->block_bytes, args->block_bytes);
    }
    return ST_OK;
}

enum status
kv_checksum_ref(struct kv_checksum_args args)
{
    return kv_checksum_rows(&args, 0, args.N);
}
