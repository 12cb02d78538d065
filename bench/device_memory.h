/* SPDX-License-Identifier: Apache-2.0 */
/* device_memory - what benches of operations put on a device; it stays until the bench ends. */
#ifndef BENCH_DEVICE_MEMORY_H
#define BENCH_DEVICE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bench/wall_clock.h"
#include "kernels/ops.h"

/* `host` NULL: whatever was there. */
static inline void *
device(struct ops *ops, const void *host, size_t bytes)
{
    void *memory;

    MUST(ops->alloc(ops, bytes, &memory));
    if (host != NULL) {
        MUST(ops->upload(ops, memory, host, bytes));
    }
    MUST(ops->finish(ops));
    return memory;
}

/* The nearer one towards zero. */
static inline uint16_t
to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* In [-2, 2): zeros would make the tensor cores faster than they are.  Repeats after 4 Mi. */
static inline void *
random_bf16(struct ops *ops, size_t count)
{
    const size_t piece = (size_t)1 << 22;
    uint16_t *host = malloc(piece * sizeof(host[0]));
    char *memory = device(ops, NULL, count * sizeof(host[0]));
    uint32_t x = 1;

    for (size_t i = 0; i < piece; i++) {
        host[i] = to_bf16((float)((int)((x = x * 1664525u + 1013904223u) >> 24) - 128) / 64.0f);
    }
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;

        MUST(ops->upload(ops, memory + at * sizeof(host[0]), host, n * sizeof(host[0])));
    }
    MUST(ops->finish(ops));
    free(host);
    return memory;
}

#endif
