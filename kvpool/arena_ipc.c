/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of a GPU whose driver cannot export memory as an fd: cudaMalloc and a cudaIpcMemHandle.
 *
 * The handle travels in a small sealed memfd, so kvasird and the workers pass it on as they pass
 * any arena's fd.  Weaker than arena_vmm: the fd names the memory but does not keep it.  It lives
 * while some process maps it, so a pool outlives any one worker but not the last one, and an import
 * after that fails (kvasird drops pool and arenas together then, daemon/handoff.h).  The handle
 * names the base of an allocation: always the arena's own, offset 0.
 */
#include "kvpool/arena_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_runtime.h>

#define CARD_MAGIC 0x3163706968766b00u /* "\0kvhipc1", little-endian */
#define CARD_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* What the memfd holds; written by the maker, read by importers. */
struct card {
    uint64_t magic;
    uint64_t bytes;
    cudaIpcMemHandle_t handle;
};

static_assert(sizeof(struct card) == 16 + CUDA_IPC_HANDLE_SIZE, "read by other processes");

static void
unmap_import(struct arena *arena)
{
    (void)cudaIpcCloseMemHandle(arena->base);
}

static void
unmap_own(struct arena *arena)
{
    (void)cudaFree(arena->base);
}

/* CUDA's legacy handles have no read-only mapping; workers of one pool share a user. */
static enum status
seal_readonly(struct arena *arena)
{
    (void)arena;
    return ST_OK;
}

static const struct arena_impl import_impl = {
    .name = "ipc", .unmap = unmap_import, .seal_readonly = seal_readonly};
static const struct arena_impl own_impl = {
    .name = "ipc", .unmap = unmap_own, .seal_readonly = seal_readonly};

static enum status
write_card(struct arena *arena, const char *label)
{
    struct card card = {.magic = CARD_MAGIC, .bytes = arena->bytes};

    if (cudaIpcGetMemHandle(&card.handle, arena->base) != cudaSuccess) {
        return ERR(ST_UNAVAILABLE, "arena %s: this device shares no memory between processes: %s",
                   label, cudaGetErrorString(cudaGetLastError()));
    }
    arena->fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0 || write(arena->fd, &card, sizeof(card)) != sizeof(card)
        || fcntl(arena->fd, F_ADD_SEALS, CARD_SEALS) != 0) {
        return ERR(ST_SYSTEM, "arena %s: a memfd for its handle: %s", label, strerror(errno));
    }
    return ST_OK;
}

static enum status
ipc_create(const char *label, size_t bytes, struct arena **arena_out)
{
    struct arena *arena;
    enum status st;

    if (bytes == 0 || bytes > PTRDIFF_MAX) {
        return ERR(ST_INVALID, "arena %s of %zu bytes", label, bytes);
    }
    TRY(arena_record(&own_impl, bytes, -1, &arena));
    if (cudaMalloc(&arena->base, bytes) != cudaSuccess) {
        arena->base = NULL;
        st = ERR(ST_NO_MEMORY, "arena %s of %zu bytes: %s", label, bytes,
                 cudaGetErrorString(cudaGetLastError()));
    } else if (cudaMemset(arena->base, 0, bytes) != cudaSuccess
               || cudaDeviceSynchronize() != cudaSuccess) {
        st = ERR(ST_DEVICE, "clearing arena %s: %s", label, cudaGetErrorString(cudaGetLastError()));
    } else {
        st = write_card(arena, label);
    }
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

static enum status
open_card(struct arena *arena)
{
    struct card card;

    if (pread(arena->fd, &card, sizeof(card), 0) != sizeof(card) || card.magic != CARD_MAGIC) {
        return ERR(ST_INVALID, "arena fd %d: holds no handle of device memory", arena->fd);
    }
    if (card.bytes < arena->bytes) {
        return ERR(ST_INVALID, "arena fd %d: %llu bytes, %zu expected", arena->fd,
                   (unsigned long long)card.bytes, arena->bytes);
    }
    if (cudaIpcOpenMemHandle(&arena->base, card.handle, cudaIpcMemLazyEnablePeerAccess)
        != cudaSuccess) {
        arena->base = NULL;
        return ERR(ST_UNAVAILABLE, "arena fd %d: device memory that no process maps any more? %s",
                   arena->fd, cudaGetErrorString(cudaGetLastError()));
    }
    return ST_OK;
}

static enum status
ipc_import(int fd, size_t bytes, bool is_writable, struct arena **arena_out)
{
    struct arena *arena;
    enum status st;

    (void)is_writable; /* see seal_readonly */
    TRY(arena_record(&import_impl, bytes, fd, &arena));
    st = bytes == 0 ? ERR(ST_INVALID, "arena fd %d of 0 bytes", fd) : open_card(arena);
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

const struct arena_ops arena_ipc = {
    .name = "ipc",
    .create = ipc_create,
    .import = ipc_import,
};
