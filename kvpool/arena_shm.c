/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of a machine without a GPU: a memfd.
 *
 * Sealed against shrinking and growing when it is made, because a mapping of a file that somebody
 * shortens dies with SIGBUS.  An import checks that seal, so it need not trust who sent the fd.
 * Pages come when they are first touched; the size is compared with what the machine has when it is
 * made. */
#include "kvpool/arena_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t
arena_shm_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = UINT64_MAX / 1024;

    if (file == NULL) {
        return UINT64_MAX;
    }
    while (fgets(line, sizeof(line), file) != NULL
           && sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) != 1) {
    }
    (void)fclose(file);
    return kib * 1024;
}

static enum status
map(struct arena *arena, bool is_writable)
{
    int access = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *base = mmap(NULL, arena->bytes, access, MAP_SHARED, arena->fd, 0);

    if (base == MAP_FAILED) {
        if (errno == ENOMEM) {
            return ERR(ST_NO_MEMORY, "arena of %zu bytes: no address space", arena->bytes);
        }
        if (errno == EPERM) {
            return ERR(ST_INVALID, "arena of %zu bytes: sealed against writing", arena->bytes);
        }
        return ERR(ST_SYSTEM, "mmap of %zu bytes: %s", arena->bytes, strerror(errno));
    }
    arena->base = base;
    return ST_OK;
}

static void
unmap(struct arena *arena)
{
    (void)munmap(arena->base, arena->bytes);
}

static enum status
seal_readonly(struct arena *arena)
{
    if (mprotect(arena->base, arena->bytes, PROT_READ) != 0) {
        return ERR(ST_SYSTEM, "arena of %zu bytes: mprotect: %s", arena->bytes, strerror(errno));
    }
    /* Not F_SEAL_WRITE: kernels before 6.7 then refuse a shared mapping, also a read-only one. */
    if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
        return ERR(ST_SYSTEM, "arena of %zu bytes: F_SEAL_FUTURE_WRITE: %s", arena->bytes,
                   strerror(errno));
    }
    return ST_OK;
}

static const struct arena_impl shm_impl = {
    .name = "shm", .unmap = unmap, .seal_readonly = seal_readonly};

static enum status
open_memfd(struct arena *arena, const char *label)
{
    arena->fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0) {
        return ERR(ST_SYSTEM, "memfd_create %s: %s", label, strerror(errno));
    }
    if (ftruncate(arena->fd, (off_t)arena->bytes) != 0) {
        return ERR(errno == ENOSPC || errno == EFBIG ? ST_NO_MEMORY : ST_SYSTEM,
                   "arena %s of %zu bytes: %s", label, arena->bytes, strerror(errno));
    }
    if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return ERR(ST_SYSTEM, "arena %s: F_ADD_SEALS: %s", label, strerror(errno));
    }
    return ST_OK;
}

static enum status
shm_create(const char *label, size_t bytes, struct arena **arena_out)
{
    uint64_t available = arena_shm_available();
    struct arena *arena;
    enum status st;

    if (bytes == 0 || bytes > PTRDIFF_MAX) {
        return ERR(ST_INVALID, "arena %s of %zu bytes", label, bytes);
    }
    if (bytes > available) {
        return ERR(ST_NO_MEMORY, "arena %s of %zu bytes: the machine has %" PRIu64 " bytes free",
                   label, bytes, available);
    }
    TRY(arena_record(&shm_impl, bytes, -1, &arena));
    st = open_memfd(arena, label);
    if (st == ST_OK) {
        st = map(arena, true);
    }
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

/* What a foreign fd must be, so that no later access through a mapping of it can fault. */
static enum status
check_foreign(int fd, size_t bytes)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &info) != 0) {
        return ERR(ST_SYSTEM, "arena fd %d: %s", fd, strerror(errno));
    }
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return ERR(ST_INVALID, "arena fd %d: not memory sealed against shrinking", fd);
    }
    if (bytes == 0 || info.st_size < 0 || (uint64_t)info.st_size < bytes) {
        return ERR(ST_INVALID, "arena fd %d: %lld bytes, %zu expected", fd, (long long)info.st_size,
                   bytes);
    }
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return ERR(ST_SYSTEM, "arena fd %d: FD_CLOEXEC: %s", fd, strerror(errno));
    }
    return ST_OK;
}

static enum status
shm_import(int fd, size_t bytes, bool is_writable, struct arena **arena_out)
{
    struct arena *arena;
    enum status st;

    TRY(arena_record(&shm_impl, bytes, fd, &arena));
    st = check_foreign(fd, bytes);
    if (st == ST_OK) {
        st = map(arena, is_writable);
    }
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

const struct arena_ops arena_shm = {
    .name = "shm",
    .create = shm_create,
    .import = shm_import,
};
