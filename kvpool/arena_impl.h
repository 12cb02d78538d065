/* SPDX-License-Identifier: Apache-2.0 */
/* arena_impl - what the kinds of arena share; only arena*.c includes it. */
#ifndef KVPOOL_ARENA_IMPL_H
#define KVPOOL_ARENA_IMPL_H

#include "kvpool/arena.h"

struct arena_impl {
    const char *name;                   /* as in arena_ops */
    void (*unmap)(struct arena *arena); /* undoes the mapping; base is not NULL */
    enum status (*seal_readonly)(struct arena *arena);
};

struct arena {
    const struct arena_impl *impl;
    void *base; /* NULL until mapped */
    size_t bytes;
    size_t mapped_bytes; /* bytes, rounded to what the memory comes in */
    int fd;              /* -1 until opened */
};

/* A record with nothing mapped and this fd (closed on failure).  ST_NO_MEMORY. */
enum status arena_record(const struct arena_impl *impl, size_t bytes, int fd,
                         struct arena **arena_out);

#endif
