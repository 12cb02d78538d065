/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/small_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <check.h>

#define SIZE       "size=48m,nr_inodes=200,mode=0700"
#define FILES_MAX  256
#define PIECE      (1u << 16)
#define PATH_BYTES 128

static char folder[PATH_BYTES];
static int log_fd = -1, stderr_fd = -1;
static unsigned filler_count;

static bool
write_map(const char *path, unsigned id)
{
    FILE *file = fopen(path, "we");
    bool is_written = file != NULL && fprintf(file, "%u %u 1", id, id) > 0;

    return file != NULL && fclose(file) == 0 && is_written;
}

/* As root, or in a namespace where we may do as root does. */
static bool
own_mounts(void)
{
    unsigned user = (unsigned)geteuid(), group = (unsigned)getegid();
    FILE *file;

    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            return false;
        }
        file = fopen("/proc/self/setgroups", "we"); /* or the groups' map is not ours to write */
        if (file != NULL) {
            (void)fputs("deny", file);
            (void)fclose(file);
        }
        if (!write_map("/proc/self/uid_map", user) || !write_map("/proc/self/gid_map", group)) {
            return false;
        }
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

bool
small_disk_mount(void)
{
    const char *tmp = getenv("TMPDIR");
    char path[PATH_BYTES + 8];

    (void)snprintf(folder, sizeof(folder), "%s/kvasir-disk.XXXXXX",
                   tmp == NULL || strlen(tmp) > PATH_BYTES / 2 ? "/tmp" : tmp);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    if (!own_mounts() || mount("kvasir-disk", folder, "tmpfs", 0, SIZE) != 0) {
        printf("SKIPPED: a full disk; a small one cannot be mounted here: %s\n", strerror(errno));
        (void)rmdir(folder);
        return false;
    }
    ck_assert_int_eq(setenv("TMPDIR", folder, 1), 0);
    (void)snprintf(path, sizeof(path), "%s/log", folder);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    ck_assert(log_fd >= 0 && stderr_fd >= 0);
    ck_assert_int_ge(dup2(log_fd, STDERR_FILENO), 0);
    return true;
}

static int
make_filler(void)
{
    char path[PATH_BYTES + 32];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/filler-%u", folder, filler_count);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    filler_count += fd >= 0;
    return fd;
}

void
small_disk_fill(void)
{
    static const char bytes[PIECE];
    int fd = make_filler();
    ssize_t written = 0;

    ck_assert_int_ge(fd, 0);
    for (size_t piece = PIECE; piece > 0; piece /= 2) { /* to the last byte */
        do {
            written = write(fd, bytes, piece);
        } while (written > 0);
        ck_assert_int_eq(errno, ENOSPC);
    }
    while (fd >= 0) {
        (void)close(fd);
        ck_assert_uint_lt(filler_count, FILES_MAX);
        fd = make_filler();
    }
    ck_assert_int_eq(errno, ENOSPC);
}

void
small_disk_free(void)
{
    while (filler_count > 0) {
        char path[PATH_BYTES + 32];

        (void)snprintf(path, sizeof(path), "%s/filler-%u", folder, --filler_count);
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(ftruncate(log_fd, 0), 0);
}

void
small_disk_end(void)
{
    (void)fflush(stderr);
    ck_assert_int_ge(dup2(stderr_fd, STDERR_FILENO), 0);
    (void)close(stderr_fd);
    (void)close(log_fd);
    ck_assert_int_eq(umount2(folder, MNT_DETACH), 0);
    ck_assert_int_eq(rmdir(folder), 0);
}
