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

/* The older half is none from now on. */
static enum status
begin(struct learned_saving *saving, int fd, size_t max)
{
    struct head heads[2] = {read_head(fd, 0), read_head(fd, 1)}, none = {0};
    int older = heads[1].number < heads[0].number;

    *saving = (struct learned_saving){
        .bytes = mem_realloc(NULL, max, 1), /* not zeroed: pages come as they are written */
        .max = max,
        .half = older,
        .number = heads[1 - older].number + 1,
    };
    if (saving->bytes == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for what was learned");
    }
    return write_at(fd, &none, sizeof(none), place(older));
}

/* The body first: a head that is there speaks of a body that is. */
static enum status
write_some(struct learned_saving *saving, int fd)
{
    struct head head = {.number = saving->number, .bytes = saving->policy.size};
    size_t left = saving->policy.size - saving->written;
    size_t size = left < LEARNED_PART_BYTES ? left : LEARNED_PART_BYTES;

    TRY(write_at(fd, saving->bytes + saving->written, size,
                 place(saving->half) + (off_t)(sizeof(head) + saving->written)));
    saving->written += size;
    if (size < left) {
        return ST_OK;
    }
    learned_saving_deinit(saving);
    return write_at(fd, &head, sizeof(head), place(saving->half));
}

enum status
learned_save_some(struct learned_saving *saving, int fd, const struct kvpool *pool)
{
    size_t max = kvpool_policy_save_max(pool);
    enum status st = ST_OK;

    if (max == 0) {
        return ST_OK;
    }
    if (saving->bytes == NULL) {
        st = begin(saving, fd, max < LEARNED_BYTES_MAX ? max : LEARNED_BYTES_MAX);
    } else if (!saving->policy.is_done) {
        kvpool_policy_save(pool, &saving->policy, saving->bytes, saving->max, LEARNED_PART_RECORDS);
    } else {
        st = write_some(saving, fd);
    }
    if (st != ST_OK) {
        learned_saving_deinit(saving);
    }
    return st;
}

enum status
learned_save(struct learned_saving *saving, int fd, const struct kvpool *pool)
{
    do {
        TRY(learned_save_some(saving, fd, pool));
    } while (saving->bytes != NULL);
    return ST_OK;
}

void
learned_saving_deinit(struct learned_saving *saving)
{
    MEM_FREE(saving->bytes);
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
