/* SPDX-License-Identifier: Apache-2.0 */
/* A catalog that an insane kvasird might have left: sealed records of any contents in any order,
 * lent blocks, flipped bytes.  What the next one adopts must be a whole pool, and the bytes
 * themselves, taken for a catalog, must be refused or read without harm. */
#include <stdlib.h>
#include <string.h>

#include "kvpool/catalog.h"
#include "kvpool/kvpool.h"
#include "tests/fuzz/fuzz.h"

#define BLOCKS       24
#define BLOCK_TOKENS 4
#define STEP_BYTES   8
#define PAGE         4096
#define RAW_BYTES    (64u << 10)

static void
require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static bool
may_write(void *arg, uint64_t incarnation)
{
    (void)arg;
    return incarnation % 2 == 1;
}

/* One step of the writer: op, block, key, index, tokens (two bytes), pins, generation. */
static void
take_step(struct catalog *catalog, uint8_t *memory, size_t bytes, const uint8_t s[STEP_BYTES])
{
    uint32_t block = s[1] % BLOCKS;
    struct catalog_record record = {.key = {.bytes = {s[2] % 8}},
                                    .generation = s[7],
                                    .index = s[3] % 32,
                                    .n_tokens = s[4] + 256u * (s[5] % 4 == 0 ? s[5] : 0),
                                    .pins = s[6] % 3};
    size_t at;

    switch (s[0] % 6) {
    case 0: catalog_lend(catalog, block, s[6]); break;
    case 1: catalog_clear(catalog, block); break;
    case 2:
        at = (s[1] * 65536u + s[2] * 256u + s[3]) % bytes;
        memory[at] ^= (uint8_t)(1u << s[4] % 8);
        break;
    default: catalog_write(catalog, block, &record, NULL); catalog_seal(catalog, block, s[6], s[7]);
    }
}

static void
adopt(uint8_t *memory, size_t bytes)
{
    struct kvpool_config config = {.block_count = BLOCKS,
                                   .block_tokens = BLOCK_TOKENS,
                                   .policy = &evict_lru,
                                   .pin_share_max = 0.5};
    struct kvpool_adopted adopted;
    struct catalog *catalog = NULL;
    struct kvpool *pool = NULL;

    if (catalog_open(memory, bytes, &catalog) != ST_OK) {
        return;
    }
    config.catalog = catalog;
    require(kvpool_new(&config, &pool) == ST_OK);
    require(kvpool_adopt(pool, may_write, NULL, &adopted) == ST_OK);
    kvpool_check(pool);
    (void)kvpool_evict(pool, BLOCKS);
    for (uint64_t fence = 1; fence < 256; fence += 2) {
        (void)kvpool_fence_lift(pool, fence);
    }
    kvpool_check(pool);
    kvpool_destroy(&pool);
    catalog_close(&catalog);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static _Alignas(PAGE) uint8_t raw[RAW_BYTES];
    const struct catalog_pool pool = {
        .id = "fuzz", .block_count = BLOCKS, .block_tokens = BLOCK_TOKENS};
    static uint8_t *memory;
    size_t whole = catalog_bytes(&pool);
    struct catalog *catalog = NULL;

    if (memory == NULL) {
        memory = aligned_alloc(PAGE, (whole + PAGE - 1) / PAGE * PAGE);
        require(memory != NULL);
        memset(memory, 0, whole);
    }
    memset(memory, 0, whole);
    require(catalog_format(memory, &pool, &catalog) == ST_OK);
    for (size_t at = 0; at + STEP_BYTES <= length; at += STEP_BYTES) {
        take_step(catalog, memory, whole, bytes + at);
    }
    catalog_close(&catalog);
    adopt(memory, whole);

    memset(raw, 0, sizeof(raw));
    memcpy(raw, bytes, length < sizeof(raw) ? length : sizeof(raw));
    require(catalog_open(raw, length < sizeof(raw) ? length : sizeof(raw), &catalog) != ST_OK);
    return 0;
}
