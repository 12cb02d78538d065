/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/zipf_memory.h"

#include "common/mem.h"
#include "kvpool/evict.h"

enum status
zipf_memory_init(struct zipf_memory *memory, uint32_t capacity)
{
    uint32_t buckets = 1;

    while (buckets < capacity) {
        buckets *= 2;
    }
    *memory = (struct zipf_memory){
        .records = mem_zalloc((size_t)capacity + 1, sizeof(memory->records[0])),
        .buckets = mem_zalloc(buckets, sizeof(memory->buckets[0])),
        .bucket_mask = buckets - 1,
        .capacity = capacity,
    };
    if (memory->records == NULL || memory->buckets == NULL) {
        zipf_memory_deinit(memory);
        return ERR(ST_NO_MEMORY, "memory of %u documents", capacity);
    }
    return ST_OK;
}

void
zipf_memory_deinit(struct zipf_memory *memory)
{
    MEM_FREE(memory->records);
    MEM_FREE(memory->buckets);
}

uint32_t
zipf_memory_find(const struct zipf_memory *memory, uint64_t key)
{
    uint32_t slot = memory->buckets[key & memory->bucket_mask];

    while (slot != 0 && memory->records[slot].key != key) {
        slot = memory->records[slot].next;
    }
    return slot;
}

uint32_t
zipf_memory_add(struct zipf_memory *memory, uint64_t key)
{
    uint32_t *bucket = &memory->buckets[key & memory->bucket_mask];
    uint32_t slot = memory->unused;

    if (slot != 0) {
        memory->unused = memory->records[slot].next;
    } else {
        assert(memory->taken < memory->capacity);
        slot = ++memory->taken;
    }
    memory->records[slot] = (struct zipf_record){
        .key = key,
        .next = *bucket,
        .priority = EVICT_PRIORITY_DEFAULT,
    };
    *bucket = slot;
    return slot;
}

void
zipf_memory_drop(struct zipf_memory *memory, uint32_t slot)
{
    struct zipf_record *record = &memory->records[slot];
    uint32_t *at = &memory->buckets[record->key & memory->bucket_mask];

    assert(record->here == 0);
    while (*at != slot) {
        at = &memory->records[*at].next;
    }
    *at = record->next;
    *record = (struct zipf_record){.next = memory->unused, .priority = ZIPF_UNUSED};
    memory->unused = slot;
}

void
zipf_memory_come(struct zipf_memory *memory, uint32_t slot)
{
    uint8_t *here = &memory->records[slot].here;

    memory->here += *here == 0;
    *here += *here < ZIPF_HERE_MAX;
}

void
zipf_memory_leave(struct zipf_memory *memory, uint32_t slot)
{
    uint8_t *here = &memory->records[slot].here;

    assert(*here > 0);
    *here -= *here < ZIPF_HERE_MAX;
    memory->here -= *here == 0;
}
