/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/copier.h"

#include <string.h>

#include "common/mem.h"
#include "kernels/kv_checksum.h"

struct copier {
    struct copier_config config;
};

static enum status
create(const struct copier_config *config, struct copier **copier_out)
{
    struct copier *copier = mem_zalloc(1, sizeof(*copier));

    if (copier == NULL) {
        return ERR(ST_NO_MEMORY, "a copier");
    }
    copier->config = *config;
    *copier_out = copier;
    return ST_OK;
}

static void
destroy(struct copier **copier)
{
    MEM_FREE(*copier);
}

static char *
block_at(const struct copier *copier, uint32_t block)
{
    return (char *)copier->config.kv + block * copier->config.block_bytes;
}

static char *
place_at(const struct copier *copier, uint32_t place)
{
    return (char *)copier->config.host + place * copier->config.block_bytes;
}

static enum status
spill(struct copier *copier, struct copier_batch batch)
{
    for (uint32_t i = 0; i < batch.n; i++) {
        const char *block = block_at(copier, batch.blocks[i]);

        if (batch.sums != NULL) {
            batch.sums[i] = kv_checksum_block(block, copier->config.block_bytes);
        }
        memcpy(place_at(copier, batch.places[i]), block, copier->config.block_bytes);
    }
    return ST_OK;
}

static enum status
load(struct copier *copier, struct copier_batch batch)
{
    for (uint32_t i = 0; i < batch.n; i++) {
        char *block = block_at(copier, batch.blocks[i]);

        memcpy(block, place_at(copier, batch.places[i]), copier->config.block_bytes);
        batch.sums[i] = kv_checksum_block(block, copier->config.block_bytes);
    }
    return ST_OK;
}

static bool
prepare(struct copier *copier)
{
    (void)copier;
    return false;
}

const struct copier_ops copier_cpu = {
    .create = create,
    .destroy = destroy,
    .spill = spill,
    .load = load,
    .prepare = prepare,
};
