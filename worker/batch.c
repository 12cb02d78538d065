/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/batch.h"

static uint32_t
min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static bool
deps_complete(const struct batch_item *items, uint32_t index)
{
    const struct batch_item *item = &items[index];

    for (uint32_t i = 0; i < item->n_deps; i++) {
        uint32_t dep = item->deps[i];

        if (dep >= index || items[dep].rows < items[dep].rows_left) {
            return false;
        }
    }
    return true;
}

uint32_t
batch_pick(struct batch_item *items, uint32_t count, uint32_t step_tokens)
{
    uint32_t budget = step_tokens;

    for (uint32_t i = 0; i < count; i++) {
        struct batch_item *item = &items[i];

        item->rows = 0;
        if (item->is_decoding) {
            item->rows = min_u32(budget, min_u32(item->rows_left, item->slots_left));
            budget -= item->rows;
        }
    }
    for (uint32_t i = 0; i < count && budget > 0; i++) {
        struct batch_item *item = &items[i];

        if (!item->is_decoding && deps_complete(items, i)) {
            item->rows = min_u32(budget, min_u32(item->rows_left, item->slots_left));
            budget -= item->rows;
        }
    }
    return step_tokens - budget;
}
