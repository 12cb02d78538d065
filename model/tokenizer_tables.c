/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_tables.h"

#include <assert.h>
#include <string.h>

#include "common/htab.h"
#include "common/mem.h"

uint64_t
text_hash(const char *text, size_t length)
{
    uint64_t hash = length * 0x9E3779B97F4A7C15u;

    while (length > 0) {
        uint64_t word = 0;
        size_t bytes = length < sizeof(word) ? length : sizeof(word);

        memcpy(&word, text, bytes);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
        text += bytes;
        length -= bytes;
    }
    return hash;
}

/* A power of two with at least half of its slots free. */
static uint32_t
slot_count(size_t count)
{
    uint32_t slots = 16;

    assert(count < UINT32_MAX / 4);
    while (slots < 2 * count) {
        slots *= 2;
    }
    return slots;
}

enum status
text_index_init(struct text_index *index, size_t count)
{
    index->mask = slot_count(count) - 1;
    index->slots = mem_zalloc((size_t)index->mask + 1, sizeof(index->slots[0]));
    return index->slots != NULL ? ST_OK : ERR(ST_NO_MEMORY, "index of %zu tokens", count);
}

void
text_index_deinit(struct text_index *index)
{
    MEM_FREE(index->slots);
}

uint32_t
text_index_find(const struct text_index *index, const struct texts *texts, const char *text,
                size_t length)
{
    for (uint64_t at = text_hash(text, length);; at++) {
        uint32_t slot = index->slots[at & index->mask];
        size_t known_length;

        if (slot == 0) {
            return UINT32_MAX;
        }
        const char *known = texts_at(texts, slot - 1, &known_length);
        if (known_length == length && memcmp(known, text, length) == 0) {
            return slot - 1;
        }
    }
}

void
text_index_add(struct text_index *index, const struct texts *texts, uint32_t id)
{
    size_t length;
    const char *text = texts_at(texts, id, &length);
    uint64_t at = text_hash(text, length);

    while (index->slots[at & index->mask] != 0) {
        at++;
    }
    index->slots[at & index->mask] = id + 1;
}

enum status
pair_index_init(struct pair_index *index, size_t count)
{
    index->mask = slot_count(count) - 1;
    index->slots = mem_zalloc((size_t)index->mask + 1, sizeof(index->slots[0]));
    if (index->slots == NULL) {
        return ERR(ST_NO_MEMORY, "index of %zu merges", count);
    }
    for (size_t i = 0; i <= index->mask; i++) {
        index->slots[i].key = UINT64_MAX;
    }
    return ST_OK;
}

void
pair_index_deinit(struct pair_index *index)
{
    MEM_FREE(index->slots);
}

/* The slot that holds the pair, or the free one where it belongs. */
static struct pair_entry *
find_slot(const struct pair_index *index, uint64_t key)
{
    uint64_t at = htab_mix(key);

    while (index->slots[at & index->mask].key != key
           && index->slots[at & index->mask].key != UINT64_MAX) {
        at++;
    }
    return &index->slots[at & index->mask];
}

const struct pair_entry *
pair_index_find(const struct pair_index *index, uint32_t left, uint32_t right)
{
    const struct pair_entry *entry = find_slot(index, (uint64_t)left << 32 | right);

    return entry->key == UINT64_MAX ? NULL : entry;
}

void
pair_index_add(struct pair_index *index, uint32_t left, uint32_t right, uint32_t rank,
               uint32_t merged)
{
    uint64_t key = (uint64_t)left << 32 | right;
    struct pair_entry *entry = find_slot(index, key);

    if (entry->key == UINT64_MAX) {
        *entry = (struct pair_entry){.key = key, .rank = rank, .merged = merged};
    }
}

enum status
special_index_init(struct special_index *index, size_t bytes)
{
    index->nodes = mem_zalloc(bytes + 1, sizeof(index->nodes[0]));
    if (index->nodes == NULL) {
        return ERR(ST_NO_MEMORY, "index of special tokens");
    }
    index->room = (uint32_t)bytes + 1;
    index->count = 1;
    index->nodes[0].id = UINT32_MAX;
    return ST_OK;
}

void
special_index_deinit(struct special_index *index)
{
    MEM_FREE(index->nodes);
}

/* The child for a byte; 0 if there is none. */
static uint32_t
find_child(const struct special_index *index, uint32_t node, uint8_t byte)
{
    uint32_t child = index->nodes[node].first_child;

    while (child != 0 && index->nodes[child].byte != byte) {
        child = index->nodes[child].next_sibling;
    }
    return child;
}

bool
special_index_add(struct special_index *index, const char *text, size_t length, uint32_t id,
                  bool is_control)
{
    uint32_t node = 0;

    assert(length > 0);
    for (size_t i = 0; i < length; i++) {
        uint32_t child = find_child(index, node, (uint8_t)text[i]);

        if (child == 0) {
            assert(index->count < index->room);
            child = index->count++;
            index->nodes[child] = (struct special_node){
                .next_sibling = index->nodes[node].first_child,
                .id = UINT32_MAX,
                .byte = (uint8_t)text[i],
            };
            index->nodes[node].first_child = child;
        }
        node = child;
    }
    if (index->nodes[node].id != UINT32_MAX) {
        return false;
    }
    index->nodes[node].id = id;
    index->nodes[node].is_control = is_control;
    index->starts[true][(uint8_t)text[0]] = true;
    index->starts[false][(uint8_t)text[0]] |= !is_control;
    return true;
}

uint32_t
special_index_find(const struct special_index *index, bool with_control, const char *text,
                   size_t length, size_t from, size_t *at_out, size_t *length_out)
{
    for (size_t at = from; at < length; at++) {
        uint32_t found = UINT32_MAX;
        uint32_t node = 0;

        if (!index->starts[with_control][(uint8_t)text[at]]) {
            continue;
        }
        for (size_t i = at; i < length; i++) {
            node = find_child(index, node, (uint8_t)text[i]);
            if (node == 0) {
                break;
            }
            const struct special_node *end = &index->nodes[node];
            if (end->id != UINT32_MAX && (with_control || !end->is_control)) {
                found = end->id;
                *at_out = at;
                *length_out = i + 1 - at;
            }
        }
        if (found != UINT32_MAX) {
            return found;
        }
    }
    return UINT32_MAX;
}
