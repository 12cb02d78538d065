/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/datagram.h"
#include "kvpool/arena.h"
#include "kvpool/kvpool.h"

/* Nobody can shorten it under who has it mapped. */
static enum status
make_memfd(const char *label, uint64_t bytes, int *fd_out)
{
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0
        || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        int error = errno;

        fd_close(&fd);
        return ERR(ST_SYSTEM, "%s of %" PRIu64 " bytes: %s", label, bytes, strerror(error));
    }
    *fd_out = fd;
    return ST_OK;
}

enum status
host_memory_make(uint64_t bytes, struct host_memory *host_out)
{
    struct host_memory host = HOST_MEMORY_NONE;
    uint64_t available = arena_shm_available();

    if (bytes > available) {
        return ERR(ST_NO_MEMORY,
                   "--host-memory of %" PRIu64 " bytes: the machine has %" PRIu64 " free", bytes,
                   available);
    }
    if (bytes > 0) {
        TRY(make_memfd("kvasir-host", bytes, &host.fd));
    }
    host.bytes = bytes;
    *host_out = host;
    return ST_OK;
}

static uint32_t
count_places(uint64_t bytes, const struct catalog_pool *pool)
{
    uint64_t places = bytes / pool->block_bytes;

    return places > KVPOOL_BLOCKS_MAX ? KVPOOL_BLOCKS_MAX : (uint32_t)places;
}

static enum status
map_index(struct host_memory *host)
{
    host->index =
        mmap(NULL, host->index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, host->index_fd, 0);
    if (host->index == MAP_FAILED) {
        host->index = NULL;
        return ERR(ST_SYSTEM, "mmap of the host tier's catalog of %zu bytes: %s", host->index_bytes,
                   strerror(errno));
    }
    return ST_OK;
}

enum status
host_memory_index(struct host_memory *host, const struct catalog_pool *pool)
{
    struct catalog_pool index = *pool;
    int error;

    index.block_count = count_places(host->bytes, pool);
    if (index.block_count == 0) {
        return ERR(ST_INVALID, "--host-memory of %" PRIu64 " bytes: a block has %" PRIu64,
                   host->bytes, pool->block_bytes);
    }
    host->index_bytes = catalog_bytes(&index);
    TRY(make_memfd("kvasir-host-catalog", host->index_bytes, &host->index_fd));
    /* Its pages are taken now: later the lack of one would be SIGBUS. */
    error = posix_fallocate(host->index_fd, 0, (off_t)host->index_bytes);
    if (error != 0) {
        return ERR(ST_NO_MEMORY, "a catalog of %zu bytes: %s", host->index_bytes, strerror(error));
    }
    TRY(map_index(host));
    TRY(catalog_format(host->index, &index, &host->catalog));
    host->places = index.block_count;
    return ST_OK;
}

static enum status
check_fd(int fd, uint64_t bytes, const char *what)
{
    struct stat info;
    int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0) {
        return ERR(ST_INVALID, "the %s of the host tier was not kept", what);
    }
    if ((uint64_t)info.st_size != bytes) {
        return ERR(ST_INVALID, "the %s of the host tier has %lld bytes, not %" PRIu64, what,
                   (long long)info.st_size, bytes);
    }
    return ST_OK;
}

/* Of the same pool, and as many places as there would be now. */
static enum status
check_index(const struct host_memory *host, const struct catalog_pool *pool)
{
    const struct catalog_pool *found = catalog_pool(host->catalog);

    if (memcmp(found->id, pool->id, sizeof(found->id)) != 0
        || memcmp(found->fingerprint, pool->fingerprint, sizeof(found->fingerprint)) != 0
        || found->block_bytes != pool->block_bytes || found->block_tokens != pool->block_tokens
        || found->block_count != host->places) {
        return ERR(ST_INVALID, "the host tier is of another pool");
    }
    return ST_OK;
}

static enum status
adopt(struct host_memory *host, const struct catalog_pool *pool)
{
    struct catalog_pool index = *pool;

    index.block_count = host->places = count_places(host->bytes, pool);
    host->index_bytes = catalog_bytes(&index);
    TRY(check_fd(host->fd, host->bytes, "memory"));
    TRY(check_fd(host->index_fd, host->index_bytes, "catalog"));
    TRY(map_index(host));
    TRY(catalog_open(host->index, host->index_bytes, &host->catalog));
    return check_index(host, pool);
}

enum status
host_memory_adopt(int fd, int index_fd, const struct catalog_pool *pool, uint64_t bytes,
                  struct host_memory *host_out)
{
    struct host_memory host = {.bytes = bytes, .fd = fd, .index_fd = index_fd};
    enum status st = adopt(&host, pool);

    if (st != ST_OK) {
        host_memory_close(&host);
        return st;
    }
    *host_out = host;
    return ST_OK;
}

static bool
holds_copy(const struct host_memory *host, uint32_t place)
{
    struct catalog_record record;

    return catalog_read(host->catalog, place, &record, NULL);
}

enum status
host_memory_erase_free(const struct host_memory *host)
{
    uint64_t block_bytes = host->catalog == NULL ? 0 : catalog_pool(host->catalog)->block_bytes;
    uint32_t end;

    for (uint32_t first = 0; first < host->places; first = end + 1) {
        for (end = first; end < host->places && !holds_copy(host, end);) {
            end++;
        }
        if (end > first
            && fallocate(host->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)(first * block_bytes), (off_t)((end - first) * block_bytes))
                   != 0) {
            return ERR(ST_SYSTEM, "fallocate of the host tier's places %u to %u: %s", first, end,
                       strerror(errno));
        }
    }
    return ST_OK;
}

void
host_memory_close(struct host_memory *host)
{
    catalog_close(&host->catalog);
    if (host->index != NULL) {
        (void)munmap(host->index, host->index_bytes);
    }
    fd_close(&host->fd);
    fd_close(&host->index_fd);
    *host = HOST_MEMORY_NONE;
}
