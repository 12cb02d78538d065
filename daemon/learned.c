/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/learned.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/mem.h"

#define HALF_BYTES (sizeof(struct head) + LEARNED_BYTES_MAX)

struct head {
    uint64_t number; /* of the save, from 1; 0: never written */
    uint64_t bytes;
};

enum status
learned_make(int *fd_out)
{
    int fd = memfd_create("kvasir-learned", MFD_CLOEXEC);

    if (fd < 0) {
        return ERR(ST_SYSTEM, "memfd_create kvasir-learned: %s", strerror(errno));
    }
    *fd_out = fd;
    return ST_OK;
}

static off_t
place(int half)
{
    return (off_t)half * (off_t)HALF_BYTES;
}

/* Whether all of it is there. */
static bool
read_at(int fd, void *bytes, size_t size, off_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pread(fd, (char *)bytes + done, size - done, at + (off_t)done);

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static enum status
write_at(int fd, const void *bytes, size_t size, off_t at)
{
    size_t done = 0;

    while (done < size) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, at + (off_t)done);

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return ERR(ST_SYSTEM, "what was learned: %s", strerror(errno));
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return ST_OK;
}

static struct head
read_head(int fd, int half)
{
    struct head head = {0};

    if (!read_at(fd, &head, sizeof(head), place(half)) || head.bytes > LEARNED_BYTES_MAX) {
        head.number = 0;
    }
    return head;
}

/* The body first: a head that is there speaks of a body that is. */
static enum status
save_half(int fd, int half, uint64_t number, const void *bytes, size_t size)
{
    struct head none = {0}, head = {.number = number, .bytes = size};

    TRY(write_at(fd, &none, sizeof(none), place(half)));
    TRY(write_at(fd, bytes, size, place(half) + (off_t)sizeof(head)));
    return write_at(fd, &head, sizeof(head), place(half));
}

enum status
learned_save(int fd, const struct kvpool *pool)
{
    struct head heads[2] = {read_head(fd, 0), read_head(fd, 1)};
    int older = heads[1].number < heads[0].number;
    size_t size = kvpool_policy_save(pool, NULL, 0);
    enum status st;
    void *bytes;

    if (size == 0) {
        return ST_OK;
    }
    size = size < LEARNED_BYTES_MAX ? size : LEARNED_BYTES_MAX;
    bytes = mem_zalloc(size, 1);
    if (bytes == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for what was learned");
    }
    size = kvpool_policy_save(pool, bytes, size);
    st = save_half(fd, older, heads[1 - older].number + 1, bytes, size);
    mem_free(bytes);
    return st;
}

static enum status
restore_half(int fd, int half, const struct head *head, struct kvpool *pool)
{
    void *bytes = mem_zalloc(head->bytes, 1);
    enum status st;

    if (bytes == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for what was learned");
    }
    st = read_at(fd, bytes, head->bytes, place(half) + (off_t)sizeof(*head))
             ? kvpool_policy_restore(pool, bytes, head->bytes)
             : ERR(ST_INVALID, "what was learned is cut short");
    mem_free(bytes);
    return st;
}

enum status
learned_restore(int fd, struct kvpool *pool)
{
    struct head heads[2] = {read_head(fd, 0), read_head(fd, 1)};
    int first = heads[1].number > heads[0].number;
    enum status st = ERR(ST_NOT_FOUND, "nothing was learned");

    for (int i = 0; i < 2 && st != ST_OK; i++) {
        int half = i == 0 ? first : 1 - first;

        if (heads[half].number > 0) {
            st = restore_half(fd, half, &heads[half], pool);
        }
    }
    return st;
}
