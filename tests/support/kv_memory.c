/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kv_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>

static int
open_arena(pid_t pid)
{
    char folder[64], path[512], target[512];
    DIR *dir;
    int fd = -1;

    (void)snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
    dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL && fd < 0; entry = readdir(dir)) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t length = readlink(path, target, sizeof(target) - 1);

        target[length < 0 ? 0 : length] = '\0';
        if (strncmp(target, "/memfd:kvasir-kv", strlen("/memfd:kvasir-kv")) == 0) {
            fd = open(path, O_RDWR | O_CLOEXEC);
        }
    }
    (void)closedir(dir);
    ck_assert_msg(fd >= 0, "process %d has no KV arena", (int)pid);
    return fd;
}

void
kv_memory_map(struct kv_memory *memory_out, pid_t pid, uint64_t block_count)
{
    int fd = open_arena(pid);
    struct stat status;
    void *bytes;

    ck_assert_int_eq(fstat(fd, &status), 0);
    bytes = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(bytes, MAP_FAILED);
    ck_assert_int_eq(close(fd), 0);
    *memory_out = (struct kv_memory){.bytes = bytes,
                                     .length = (size_t)status.st_size,
                                     .block_bytes = (size_t)status.st_size / block_count,
                                     .block_count = (uint32_t)block_count};
}

void
kv_memory_unmap(struct kv_memory *memory)
{
    ck_assert_int_eq(munmap(memory->bytes, memory->length), 0);
    *memory = (struct kv_memory){0};
}

bool
kv_memory_is_written(const struct kv_memory *memory, uint32_t block)
{
    const unsigned char *at = memory->bytes + block * memory->block_bytes;

    for (size_t i = 0; i < memory->block_bytes; i++) {
        if (at[i] != 0 && at[i] != 0xff) {
            return true;
        }
    }
    return false;
}

uint32_t
kv_memory_written(const struct kv_memory *memory)
{
    uint32_t written = 0;

    for (uint32_t block = 0; block < memory->block_count; block++) {
        written += kv_memory_is_written(memory, block);
    }
    return written;
}

void
kv_memory_flip(const struct kv_memory *memory, uint32_t block)
{
    memory->bytes[block * memory->block_bytes] ^= 1;
}
