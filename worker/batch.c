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

/* Gives an item what is left for it. */
static void
give(struct batch_item *item, struct batch_limits *left)
{
    uint64_t rows = min_u32(left->rows, min_u32(item->rows_left, item->slots_left));

    if (item->n_segs > left->segs) {
        return;
    }
    if (item->n_segs > 0 && rows > left->pairs / item->n_segs) {
        rows = left->pairs / item->n_segs;
    }
    item->rows = (uint32_t)rows;
    left->rows -= item->rows;
    left->pairs -= rows * item->n_segs;
    left->segs -= rows > 0 ? item->n_segs : 0;
}

uint32_t
batch_pick(struct batch_item *items, uint32_t count, struct batch_limits limits)
{
    struct batch_limits left = limits;

    for (uint32_t i = 0; i < count; i++) {
        items[i].rows = 0;
        if (items[i].is_decoding) {
            give(&items[i], &left);
        }
    }
    for (uint32_t i = 0; i < count && left.rows > 0; i++) {
        if (!items[i].is_decoding && !items[i].is_background && deps_complete(items, i)) {
            give(&items[i], &left);
        }
    }
    bool is_idle = left.rows == limits.rows;

    for (uint32_t i = 0; i < count && is_idle && left.rows > 0; i++) {
        if (items[i].is_background && deps_complete(items, i)) {
            give(&items[i], &left);
        }
    }
    return limits.rows - left.rows;
}
