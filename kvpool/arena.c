/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/arena.h"

#include <unistd.h>

#include "common/mem.h"
#include "kvpool/arena_impl.h"

enum status
arena_record(const struct arena_impl *impl, size_t bytes, int fd, struct arena **arena_out)
{
    struct arena *arena = mem_zalloc(1, sizeof(*arena));

    if (arena == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return ERR(ST_NO_MEMORY, "arena record");
    }
    *arena = (struct arena){.impl = impl, .bytes = bytes, .mapped_bytes = bytes, .fd = fd};
    *arena_out = arena;
    return ST_OK;
}

void *
arena_base(const struct arena *arena)
{
    return arena->base;
}

size_t
arena_bytes(const struct arena *arena)
{
    return arena->bytes;
}

int
arena_fd(const struct arena *arena)
{
    return arena->fd;
}

const char *
arena_mechanism(const struct arena *arena)
{
    return arena->impl->name;
}

enum status
arena_seal_readonly(struct arena *arena)
{
    return arena->impl->seal_readonly(arena);
}

void
arena_close(struct arena **arena)
{
    if (*arena == NULL) {
        return;
    }
    if ((*arena)->base != NULL) {
        (*arena)->impl->unmap(*arena);
    }
    if ((*arena)->fd >= 0) {
        (void)close((*arena)->fd);
    }
    MEM_FREE(*arena);
}
