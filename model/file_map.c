/* SPDX-License-Identifier: Apache-2.0 */
#include "model/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "common/mem.h"

#define THREADS_MAX 8

static int64_t
nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static struct file_identity
identify(const struct stat *info)
{
    return (struct file_identity){.device = info->st_dev,
                                  .inode = info->st_ino,
                                  .length = (uint64_t)info->st_size,
                                  .written_ns = nanoseconds(&info->st_mtim),
                                  .changed_ns = nanoseconds(&info->st_ctim)};
}

enum status
file_map_open(const char *path, struct file_map *map_out)
{
    enum status st = ST_OK;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: cannot open: %s", path,
                   strerror(errno));
    }
    if (fstat(fd, &info) != 0) {
        st = ERR(ST_SYSTEM, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = ERR(ST_INVALID, "%s: offset 0: not a regular file", path);
    } else if (info.st_size == 0) {
        st = ERR(ST_INVALID, "%s: offset 0: the file is empty", path);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);

        if (map == MAP_FAILED) {
            st = ERR(ST_SYSTEM, "%s: cannot map: %s", path, strerror(errno));
        } else {
            *map_out = (struct file_map){map, (size_t)info.st_size, identify(&info)};
        }
    }
    (void)close(fd);
    return st;
}

void
file_map_close(struct file_map *map)
{
    if (map->bytes != NULL) {
        (void)munmap((void *)(uintptr_t)map->bytes, map->length);
    }
    *map = (struct file_map){0};
}

/* -- Digest -------------------------------------------------------------------------------- */

static bool
digest_bytes(const void *bytes, size_t length, uint8_t digest_out[32])
{
    return EVP_Digest(bytes, length, digest_out, NULL, EVP_sha256(), NULL) == 1;
}

/* The leaves of a long file; threads take one after the other. */
struct leaves {
    const uint8_t *bytes;
    size_t length, count;
    uint8_t (*digests)[32]; /* [count] */
    atomic_size_t next;
    atomic_bool has_failed;
};

static void *
digest_leaves(void *arg)
{
    struct leaves *leaves = arg;
    size_t i;

    while ((i = atomic_fetch_add(&leaves->next, 1)) < leaves->count) {
        size_t at = i * FILE_MAP_LEAF;
        size_t left = leaves->length - at;

        if (!digest_bytes(leaves->bytes + at, left < FILE_MAP_LEAF ? left : FILE_MAP_LEAF,
                          leaves->digests[i])) {
            atomic_store(&leaves->has_failed, true);
        }
    }
    return NULL;
}

/* The caller is one of the threads, so it goes on with as many as there are. */
static void
share_leaves(struct leaves *leaves)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[THREADS_MAX];
    size_t count = 0;

    while (count + 1 < leaves->count && count + 1 < THREADS_MAX && (long)count + 1 < cores
           && pthread_create(&threads[count], NULL, digest_leaves, leaves) == 0) {
        count++;
    }
    (void)digest_leaves(leaves);
    while (count > 0) {
        (void)pthread_join(threads[--count], NULL);
    }
}

static bool
digest_tree(const uint8_t *bytes, size_t length, uint8_t digest_out[32])
{
    struct leaves leaves = {
        .bytes = bytes, .length = length, .count = (length - 1) / FILE_MAP_LEAF + 1};
    uint64_t total = length;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool is_fine;

    leaves.digests = mem_zalloc(leaves.count, sizeof(leaves.digests[0]));
    is_fine = leaves.digests != NULL && md != NULL;
    if (is_fine) {
        share_leaves(&leaves);
        is_fine =
            !atomic_load(&leaves.has_failed) && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
            && EVP_DigestUpdate(md, &total, sizeof(total)) == 1
            && EVP_DigestUpdate(md, leaves.digests, leaves.count * sizeof(leaves.digests[0])) == 1
            && EVP_DigestFinal_ex(md, digest_out, NULL) == 1;
    }
    EVP_MD_CTX_free(md);
    mem_free(leaves.digests);
    return is_fine;
}

enum status
file_map_digest(const char *path, const void *bytes, size_t length, uint8_t digest_out[32])
{
    bool is_fine = length <= FILE_MAP_LEAF ? digest_bytes(bytes, length, digest_out)
                                           : digest_tree(bytes, length, digest_out);

    return is_fine ? ST_OK : ERR(ST_SYSTEM, "%s: SHA-256 failed", path);
}
