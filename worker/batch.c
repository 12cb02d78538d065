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

/* Whether it can run without any build of this step. */
static bool
is_free(const struct batch_item *items, const struct batch_item *item)
{
    for (uint32_t i = 0; i < item->n_deps; i++) {
        if (items[item->deps[i]].rows_left > 0) {
            return false;
        }
    }
    return !item->is_background;
}

static uint32_t
wanted(const struct batch_item *item)
{
    return min_u32(item->rows_left, item->slots_left);
}

/* Gives an item that has none yet, or some, what is left for it: at most `rows_max` rows. */
static void
give(struct batch_item *item, uint32_t rows_max, struct batch_limits *left)
{
    uint64_t rows = min_u32(min_u32(left->rows, rows_max), wanted(item) - item->rows);
    bool is_new = item->rows == 0;

    if (is_new && item->n_segs > left->segs) {
        return;
    }
    if (item->n_segs > 0 && rows > left->pairs / item->n_segs) {
        rows = left->pairs / item->n_segs;
    }
    if (rows == 1 && is_new) {
        if (left->singles == 0 || item->n_segs > left->single_segs) {
            return;
        }
        left->singles--;
        left->single_segs -= item->n_segs;
    } else if (rows > 0 && item->rows == 1) { /* no longer */
        left->singles++;
        left->single_segs += item->n_segs;
    }
    item->rows += (uint32_t)rows;
    left->rows -= (uint32_t)rows;
    left->pairs -= rows * item->n_segs;
    left->segs -= is_new && rows > 0 ? item->n_segs : 0;
}

/* Its last row can run: to a device that is a decode. */
static bool
is_last_row(const struct batch_item *items, const struct batch_item *item)
{
    return item->rows_left == 1 && is_free(items, item);
}

/* Whether a device cannot take all that are of one row: then the last rows of prompts and builds
 * take turns with the decodes, or they would never find room. */
static bool
is_crowded(const struct batch_item *items, uint32_t count, const struct batch_limits *left)
{
    uint64_t singles = 0;
    uint64_t segs = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (wanted(&items[i]) > 0 && (items[i].is_decoding || is_last_row(items, &items[i]))) {
            singles++;
            segs += items[i].n_segs;
        }
    }
    return singles > left->singles || segs > left->single_segs;
}

static void
give_turns(struct batch_item *items, uint32_t count, struct batch_limits *left, uint32_t *turn)
{
    bool has_last_rows = is_crowded(items, count, left);
    uint32_t first = *turn;
    bool is_left_out = false;

    *turn = 0;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = first + n < count ? first + n : first + n - count;
        struct batch_item *item = &items[i];

        if (wanted(item) == 0
            || !(item->is_decoding || (has_last_rows && is_last_row(items, item)))) {
            continue;
        }
        give(item, UINT32_MAX, left);
        if (item->rows == 0 && !is_left_out) {
            is_left_out = true;
            *turn = i;
        }
    }
}

static void
give_hot(struct batch_item *items, uint32_t count, struct batch_limits *left)
{
    uint32_t half = left->rows / 2;

    for (uint32_t i = 0; i < count && half > 0; i++) {
        if (!items[i].is_decoding && items[i].is_prompt && is_free(items, &items[i])) {
            give(&items[i], half, left);
            half -= min_u32(half, items[i].rows);
        }
    }
}

static void
give_in_order(struct batch_item *items, uint32_t count, struct batch_limits *left)
{
    for (uint32_t i = 0; i < count && left->rows > 0; i++) {
        if (!items[i].is_decoding && !items[i].is_background && deps_complete(items, i)) {
            give(&items[i], UINT32_MAX, left);
        }
    }
}

static void
give_background(struct batch_item *items, uint32_t count, struct batch_limits *left)
{
    for (uint32_t i = 0; i < count && left->rows > 0; i++) {
        if (items[i].is_background && deps_complete(items, i)) {
            give(&items[i], UINT32_MAX, left);
        }
    }
}

uint32_t
batch_pick(struct batch_item *items, uint32_t count, struct batch_limits limits, uint32_t *turn)
{
    struct batch_limits left = limits;

    if (limits.singles == 0) {
        left.singles = UINT32_MAX;
        left.single_segs = UINT64_MAX;
    }
    for (uint32_t i = 0; i < count; i++) {
        items[i].rows = 0;
    }
    give_turns(items, count, &left, turn);
    uint32_t picked = limits.rows - left.rows;

    if (picked > 0 && limits.rows_beside > 0) {
        left.rows = min_u32(left.rows, limits.rows_beside);
    }
    uint32_t rows_others = left.rows;

    give_hot(items, count, &left);
    give_in_order(items, count, &left);
    picked += rows_others - left.rows;
    if (picked == 0) {
        give_background(items, count, &left);
        picked = rows_others - left.rows;
    }
    return picked;
}
