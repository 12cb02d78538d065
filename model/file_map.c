/* SPDX-License-Identifier: Apache-2.0 */
#include "model/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

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
            *map_out = (struct file_map){map, (size_t)info.st_size};
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

enum status
file_map_digest(const char *path, const void *bytes, size_t length, uint8_t digest_out[32])
{
    if (EVP_Digest(bytes, length, digest_out, NULL, EVP_sha256(), NULL) != 1) {
        return ERR(ST_SYSTEM, "%s: SHA-256 failed", path);
    }
    return ST_OK;
}
