/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mem.h"
#include "kvpool/arena.h"
#include "tests/support/check_main.h"

#define ARENA_BYTES ((size_t)3 * 65536 + 17)

union fd_message {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void
send_fd(int socket, int fd)
{
    union fd_message control = {0};
    struct iovec iov = {.iov_base = (char[]){'x'}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    ck_assert_int_eq(sendmsg(socket, &message, 0), 1);
}

static int
receive_fd(int socket)
{
    union fd_message control = {0};
    char byte;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    int fd;

    ck_assert_int_eq(recvmsg(socket, &message, 0), 1);
    ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&message));
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static struct arena *
create(void)
{
    struct arena *arena = NULL;

    ck_assert_int_eq(arena_shm.create("test", ARENA_BYTES, &arena), ST_OK);
    ck_assert_uint_eq(arena_bytes(arena), ARENA_BYTES);
    return arena;
}

/* Imports a copy of the fd. */
static enum status
import(int fd, size_t bytes, bool is_writable, struct arena **arena_out)
{
    int copy = dup(fd);
    enum status st = arena_shm.import(copy, bytes, is_writable, arena_out);

    if (st != ST_OK) { /* the fd is the import's, also when it fails */
        ck_assert_int_eq(fcntl(copy, F_GETFD), -1);
    }
    return st;
}

/* Whether the kernel, asked to put a byte there, finds the page writable: no signal needed. */
static bool
is_writable(void *address)
{
    int ends[2];
    ssize_t n;

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    n = read(ends[0], address, 1);
    ck_assert(n == 1 || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return n == 1;
}

static unsigned char
pattern(size_t i, unsigned char seed)
{
    return (unsigned char)(i * 31 + seed);
}

static void
write_pattern(struct arena *arena, unsigned char seed)
{
    for (size_t i = 0; i < arena_bytes(arena); i++) {
        ((unsigned char *)arena_base(arena))[i] = pattern(i, seed);
    }
}

static size_t
wrong_bytes(const struct arena *arena, unsigned char seed)
{
    size_t wrong = 0;

    for (size_t i = 0; i < arena_bytes(arena); i++) {
        wrong += ((const unsigned char *)arena_base(arena))[i] != pattern(i, seed);
    }
    return wrong;
}

/* Another process makes an arena, fills it, hands it over on the socket and waits to be killed. */
static pid_t
start_creator(int socket)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct arena *arena = create();

        write_pattern(arena, 1);
        send_fd(socket, arena_fd(arena));
        for (;;) {
            pause();
        }
    }
    return pid;
}

START_TEST(contents_outlive_the_process_that_made_them)
{
    struct arena *arena = NULL, *later = NULL;
    int sockets[2], held, status;
    pid_t creator;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    creator = start_creator(sockets[1]);
    held = receive_fd(sockets[0]); /* like kvasird: held, not mapped */
    ck_assert_int_eq(kill(creator, SIGKILL), 0);
    ck_assert_int_eq(waitpid(creator, &status, 0), creator);
    ck_assert(WIFSIGNALED(status));

    ck_assert_int_eq(import(held, ARENA_BYTES, true, &arena), ST_OK);
    ck_assert_uint_eq(wrong_bytes(arena, 1), 0);
    write_pattern(arena, 2);
    arena_close(&arena);
    ck_assert_ptr_null(arena);
    ck_assert_int_eq(import(held, ARENA_BYTES, false, &later), ST_OK);
    ck_assert_uint_eq(wrong_bytes(later, 2), 0);
    arena_close(&later);
    close(held);
    close(sockets[0]);
    close(sockets[1]);
}
END_TEST

START_TEST(two_processes_see_each_others_writes)
{
    struct arena *arena = create();
    int status;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct arena *mine = NULL;
        bool is_good = import(arena_fd(arena), ARENA_BYTES, true, &mine) == ST_OK;

        if (is_good) {
            write_pattern(mine, 3);
        }
        arena_close(&mine);
        _exit(is_good ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_uint_eq(wrong_bytes(arena, 3), 0);
    arena_close(&arena);
}
END_TEST

START_TEST(an_arena_starts_zeroed_and_can_neither_shrink_nor_grow)
{
    struct arena *arena = create();
    size_t nonzero = 0;

    for (size_t i = 0; i < ARENA_BYTES; i++) {
        nonzero += ((const unsigned char *)arena_base(arena))[i] != 0;
    }
    ck_assert_uint_eq(nonzero, 0);
    ck_assert_int_eq(ftruncate(arena_fd(arena), 4096), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(arena_fd(arena), 1 << 20), -1);
    ck_assert_int_eq(errno, EPERM);
    arena_close(&arena);
}
END_TEST

START_TEST(memory_that_could_shrink_is_refused)
{
    struct arena *arena = NULL;
    int memfd = memfd_create("shrinkable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int ends[2];

    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(ftruncate(memfd, ARENA_BYTES), 0);
    ck_assert_int_eq(import(memfd, ARENA_BYTES, true, &arena), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "not memory sealed against shrinking"));
    ck_assert_int_eq(import(file, 1, false, &arena), ST_INVALID);
    ck_assert_int_eq(import(ends[0], 1, false, &arena), ST_INVALID);
    ck_assert_int_ne(arena_shm.import(-1, 1, false, &arena), ST_OK);
    ck_assert_ptr_null(arena);
    close(memfd);
    close(file);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(an_arena_smaller_than_asked_for_is_refused)
{
    struct arena *arena = create(), *part = NULL;

    ck_assert_int_eq(import(arena_fd(arena), ARENA_BYTES + 1, true, &part), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "196625 bytes, 196626 expected"));
    ck_assert_int_eq(import(arena_fd(arena), 0, true, &part), ST_INVALID);
    ck_assert_int_eq(import(arena_fd(arena), 4096, true, &part), ST_OK);
    ck_assert_uint_eq(arena_bytes(part), 4096);
    arena_close(&part);
    arena_close(&arena);
}
END_TEST

START_TEST(a_read_only_import_cannot_be_written)
{
    struct arena *arena = create(), *reader = NULL;

    ck_assert_int_eq(import(arena_fd(arena), ARENA_BYTES, false, &reader), ST_OK);
    ck_assert(!is_writable(arena_base(reader)));
    ck_assert(is_writable(arena_base(arena)));
    arena_close(&reader);
    arena_close(&arena);
}
END_TEST

START_TEST(a_sealed_arena_can_be_read_but_never_written_again)
{
    struct arena *arena = create(), *other = NULL;

    write_pattern(arena, 4);
    ck_assert_int_eq(arena_seal_readonly(arena), ST_OK);
    ck_assert(!is_writable(arena_base(arena)));
    ck_assert_int_eq(write(arena_fd(arena), "x", 1), -1);
    ck_assert_int_eq(import(arena_fd(arena), ARENA_BYTES, true, &other), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "sealed against writing"));
    ck_assert_int_eq(import(arena_fd(arena), ARENA_BYTES, false, &other), ST_OK);
    ck_assert_uint_eq(wrong_bytes(other, 4), 0);
    arena_close(&other);
    arena_close(&arena);
}
END_TEST

START_TEST(a_size_that_cannot_be_is_refused)
{
    struct arena *arena = NULL;

    ck_assert_int_eq(arena_shm.create("test", 0, &arena), ST_INVALID);
    ck_assert_int_eq(arena_shm.create("test", SIZE_MAX, &arena), ST_INVALID);
    ck_assert_int_eq(arena_shm.create("test", (size_t)1 << 60, &arena), ST_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(status_detail(), "1152921504606846976 bytes"));
    ck_assert_ptr_null(arena);
}
END_TEST

START_TEST(without_memory_for_the_record_nothing_leaks)
{
    struct arena *arena = create(), *other = NULL;

    mem_fail_at(1);
    ck_assert_int_eq(arena_shm.create("test", ARENA_BYTES, &other), ST_NO_MEMORY);
    mem_fail_at(1);
    ck_assert_int_eq(import(arena_fd(arena), ARENA_BYTES, true, &other), ST_NO_MEMORY);
    mem_fail_at(0);
    arena_close(&arena);
    arena_close(&arena);
}
END_TEST

CHECK_MAIN("arena", contents_outlive_the_process_that_made_them,
           two_processes_see_each_others_writes,
           an_arena_starts_zeroed_and_can_neither_shrink_nor_grow,
           memory_that_could_shrink_is_refused, an_arena_smaller_than_asked_for_is_refused,
           a_read_only_import_cannot_be_written, a_sealed_arena_can_be_read_but_never_written_again,
           a_size_that_cannot_be_is_refused, without_memory_for_the_record_nothing_leaks)
