/* SPDX-License-Identifier: Apache-2.0 */
/* zipf_memory - what the zipf policy remembers of a document, here or evicted.
 *
 * Remembering documents that are gone is worth more than all the rest of the policy: without it a
 * document that was evicted starts again as one that nobody ever asked for.  So a record outlives
 * its document.  All room is made at the start; records are taken from it in order and then
 * recycled, so a large memory costs nothing until it is used.  48 bytes a record with its bucket;
 * the heap of those that are here (16 bytes for a quarter of them) makes it 52.
 *
 * A record is found by the first eight bytes of the key.  Two documents that share them (once in
 * 2^64 pairs) would share a popularity, never a block.  Private to the policy. */
#ifndef KVPOOL_ZIPF_MEMORY_H
#define KVPOOL_ZIPF_MEMORY_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/dockey.h"

/* The two counters decay; both are valid at request `last`. */
struct zipf_record {
    uint64_t key;
    uint32_t next;      /* in its bucket, or among the unused; 0: the end */
    uint32_t last;      /* request of the last reference; modulo 2^32 */
    float count_fast;   /* references, half-life ZIPF_HALF_FAST requests */
    float count_slow;   /* references, half-life ZIPF_HALF_SLOW requests; 0: never referenced */
    float gap_events;   /* references and the requests between them, */
    float gap_requests; /* each forgotten with every reference */
    uint32_t sample;    /* number + 1 of its outstanding sample; 0: none */
    uint16_t density;   /* log2 of recompute cost per block, in 1/ZIPF_DENSITY_ONE */
    uint8_t priority;   /* the operator's; ZIPF_UNUSED: the record is nobody's */
    uint8_t here;       /* documents in the pool with this key: 1, or 0 for a ghost.  More only if
                            keys collide; ZIPF_HERE_MAX sticks */
};

#define ZIPF_UNUSED   UINT8_MAX
#define ZIPF_HERE_MAX UINT8_MAX

#define ZIPF_DENSITY_ONE 4096.0f

static_assert(sizeof(struct zipf_record) == 40, "the memory of a million documents counts");

struct zipf_memory {
    struct zipf_record *records; /* [1 + capacity]; number 0 is nobody */
    uint32_t *buckets;           /* [bucket_mask + 1] first record of each */
    uint32_t bucket_mask;
    uint32_t capacity;
    uint32_t taken;  /* records 1..taken have been used */
    uint32_t unused; /* first of the chain of those given back */
    uint32_t here;   /* records that are no ghosts */
};

/* ST_NO_MEMORY. */
enum status zipf_memory_init(struct zipf_memory *memory, uint32_t capacity);
void zipf_memory_deinit(struct zipf_memory *memory);

/* The record of a key, or 0. */
uint32_t zipf_memory_find(const struct zipf_memory *memory, uint64_t key);

static inline bool
zipf_memory_is_full(const struct zipf_memory *memory)
{
    return memory->unused == 0 && memory->taken == memory->capacity;
}

/* A record for a key that has none; the memory is not full. */
uint32_t zipf_memory_add(struct zipf_memory *memory, uint64_t key);

/* Forgets a ghost. */
void zipf_memory_drop(struct zipf_memory *memory, uint32_t slot);

/* A document of this record comes to the pool, or leaves. */
void zipf_memory_come(struct zipf_memory *memory, uint32_t slot);
void zipf_memory_leave(struct zipf_memory *memory, uint32_t slot);

/* Whether the record is in use; slot in 1..taken. */
static inline bool
zipf_memory_is_used(const struct zipf_memory *memory, uint32_t slot)
{
    return memory->records[slot].priority != ZIPF_UNUSED;
}

#endif
