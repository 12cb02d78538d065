/* SPDX-License-Identifier: Apache-2.0 */
/* arena - a piece of memory that lives as long as anybody holds its fd.
 *
 * The seam between the pool and the kind of memory: shm (memfd; a machine without a GPU), later vmm
 * (cuMemCreate) and ipc (cudaIpcMemHandle).  One process creates, hands the fd to kvasird, which
 * only holds it; every later worker imports it and maps it.  kvasird never maps. */
#ifndef KVPOOL_ARENA_H
#define KVPOOL_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct arena;

struct arena_ops {
    const char *name; /* "shm", "vmm", "ipc" */
    /* Makes `bytes` of zeroed memory.  ST_NO_MEMORY names the size and what is free. */
    enum status (*create)(const char *label, size_t bytes, struct arena **arena_out);
    /* Maps what another process made; owns `fd` from the call on, also on failure.  Checks that the
     * memory has at least `bytes` (a short or shrinkable file is refused: it would fault later). */
    enum status (*import)(int fd, size_t bytes, bool is_writable, struct arena **arena_out);
};

extern const struct arena_ops arena_shm;

/* What the machine can give without swapping (MemAvailable); UINT64_MAX if it does not say. */
uint64_t arena_shm_available(void);

/* CUDA builds only: memory of the calling thread's current device.  vmm's fd keeps the memory;
 * ipc's, for drivers that cannot export an fd, only names it while some process maps it: kvasird
 * drops the pool with the last of them. */
extern const struct arena_ops arena_vmm;
extern const struct arena_ops arena_ipc;

/* The mapping; NULL never.  Borrowed until arena_close. */
void *arena_base(const struct arena *arena);
size_t arena_bytes(const struct arena *arena);

/* The fd that keeps the memory alive; borrowed, never closed by the caller. */
int arena_fd(const struct arena *arena);

/* How it was made, "shm": what an importer must use. */
const char *arena_mechanism(const struct arena *arena);

/* No more writes through any new mapping (weights, once loaded).  ST_SYSTEM. */
enum status arena_seal_readonly(struct arena *arena);

/* Unmaps and closes this process's fd; the memory lives on while others hold it. */
void arena_close(struct arena **arena);

#endif
