/* SPDX-License-Identifier: Apache-2.0 */
/* kv_memory - the KV arena of a running worker, seen from a test, to damage it or to look into it.
 *
 * Of the CPU's arenas only, which are memfds.  Functions fail the test instead of returning errors.
 */
#ifndef TESTS_SUPPORT_KV_MEMORY_H
#define TESTS_SUPPORT_KV_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct kv_memory {
    unsigned char *bytes;
    size_t length;
    size_t block_bytes;
    uint32_t block_count;
};

/* Maps the arena of the process, which has `block_count` blocks. */
void kv_memory_map(struct kv_memory *memory_out, pid_t pid, uint64_t block_count);
void kv_memory_unmap(struct kv_memory *memory);

/* Whether a block holds anything: not zeros, and not only poison. */
bool kv_memory_is_written(const struct kv_memory *memory, uint32_t block);

/* Blocks that hold anything. */
uint32_t kv_memory_written(const struct kv_memory *memory);

/* Flips the lowest bit of a block's first element: too small to be seen in any answer. */
void kv_memory_flip(const struct kv_memory *memory, uint32_t block);

#endif
