/* SPDX-License-Identifier: Apache-2.0 */
/* host_memory - kvasird's side of the host tier: the memfd that holds its blocks, which workers map
 * and kvasird does not, and a second one with the catalog of what is in which place.
 *
 * Both outlive kvasird as the pool's do (estate.h). */
#ifndef DAEMON_HOST_MEMORY_H
#define DAEMON_HOST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/catalog.h"

struct host_memory {
    uint64_t bytes; /* 0: there is no host tier; then nothing else counts */
    int fd;
    int index_fd;    /* -1 until the size of a block is known */
    uint32_t places; /* likewise 0 */
    void *index;
    size_t index_bytes;
    struct catalog *catalog;
};

#define HOST_MEMORY_NONE                                                                           \
    (struct host_memory)                                                                           \
    {                                                                                              \
        .fd = -1, .index_fd = -1                                                                   \
    }

/* Memory for the blocks; 0 bytes: none.  ST_NO_MEMORY: the machine does not have so much free. */
enum status host_memory_make(uint64_t bytes, struct host_memory *host_out);

/* The first worker has told what a block is: makes the catalog.  ST_INVALID: not one fits. */
enum status host_memory_index(struct host_memory *host, const struct catalog_pool *pool);

/* Takes over what an earlier kvasird left of this pool; owns the fds, also on failure.  ST_INVALID:
 * it is something else, or not of `bytes`. */
enum status host_memory_adopt(int fd, int index_fd, const struct catalog_pool *pool, uint64_t bytes,
                              struct host_memory *host_out);

/* Gives back the pages of places that hold no copy: what is read there afterwards is zeros.  Only
 * while no process has the memory mapped: a device may have fixed pages of it. */
enum status host_memory_erase_free(const struct host_memory *host);

void host_memory_close(struct host_memory *host);

#endif
