/* SPDX-License-Identifier: Apache-2.0 */
/* mem - checked allocation with failure injection.
 *
 * All return NULL on failure or overflow; callers turn that into ST_NO_MEMORY.  Free with
 * mem_free.  Tests fail the n-th allocation of the process to walk every error path. */
#ifndef COMMON_MEM_H
#define COMMON_MEM_H

#include <stddef.h>
#include <stdint.h>

/* `count` zeroed elements of `size` bytes; a count of 0 gives a valid pointer. */
void *mem_zalloc(size_t count, size_t size);

/* Like realloc for `count` elements of `size` bytes; on failure the old storage stays valid. */
void *mem_realloc(void *old, size_t count, size_t size);

char *mem_strdup(const char *text);
void *mem_dup(const void *bytes, size_t size);

/* NULL is fine. */
void mem_free(void *storage);

/* Frees *pp and sets it to NULL in one step. */
#define MEM_FREE(p)                                                                                \
    do {                                                                                           \
        mem_free(p);                                                                               \
        (p) = NULL;                                                                                \
    } while (0)

/* Test switch: the allocation number `n` from now on (1 = the next) fails; 0 switches it off. */
void mem_fail_at(uint64_t n);

/* Allocations made so far by this process through this module; for "allocates nothing" tests. */
uint64_t mem_allocations(void);

#endif
