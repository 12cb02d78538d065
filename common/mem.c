/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t allocations;
static atomic_uint_fast64_t fail_at; /* absolute allocation number, 0 = never */

/* Counts one allocation; returns 0 if this one has to fail. */
static int
count_allocation(void)
{
    uint64_t n = atomic_fetch_add(&allocations, 1) + 1;

    return n != atomic_load(&fail_at);
}

void *
mem_zalloc(size_t count, size_t size)
{
    if (!count_allocation()) {
        return NULL;
    }
    return calloc(count == 0 ? 1 : count, size == 0 ? 1 : size);
}

void *
mem_realloc(void *old, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes) || !count_allocation()) {
        return NULL;
    }
    return realloc(old, bytes == 0 ? 1 : bytes);
}

void *
mem_dup(const void *bytes, size_t size)
{
    void *copy = mem_zalloc(size, 1);

    if (copy != NULL && size > 0) {
        memcpy(copy, bytes, size);
    }
    return copy;
}

char *
mem_strdup(const char *text)
{
    return mem_dup(text, strlen(text) + 1);
}

void
mem_free(void *storage)
{
    free(storage);
}

void
mem_fail_at(uint64_t n)
{
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&allocations) + n);
}

uint64_t
mem_allocations(void)
{
    return atomic_load(&allocations);
}
