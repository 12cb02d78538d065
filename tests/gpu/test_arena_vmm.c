/* SPDX-License-Identifier: Apache-2.0 */
/* The life of device arenas over processes, as kvasird and its workers live it.
 *
 * No Check here: every step is a process of its own (a CUDA context does not survive fork), started
 * again from this program.  The parent plays kvasird: it holds the fd and never touches CUDA.
 *
 *   1. a maker creates the arena, writes a pattern, sends the fd up and is killed;
 *   2. a reader imports the fd from the parent and finds the pattern; then another one, read-only;
 *   3. a chunk of another size is refused; after the parent has closed the fd the memory is back.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "kvpool/arena.h"

#define ARENA_BYTES ((size_t)3 << 30)
#define PATTERN     0x5au
#define SOCKET_FD   3

static int failures, expectations;

static void
expect(bool is_true, const char *what)
{
    printf("%s: %s\n", is_true ? "ok" : "NOT OK", what);
    failures += !is_true;
    expectations++;
}

static void
send_fd(int socket, int fd, size_t number)
{
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&number, sizeof(number)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    if (sendmsg(socket, &message, 0) < 0) {
        perror("sendmsg");
        exit(1);
    }
}

/* Returns the fd that came along, or -1; *number_out is the data. */
static int
receive_fd(int socket, size_t *number_out)
{
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {number_out, sizeof(*number_out)};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    int fd = -1;

    if (recvmsg(socket, &message, 0) <= 0) {
        *number_out = 0;
        return -1;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL) {
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    }
    return fd;
}

static size_t
free_memory(void)
{
    size_t free_bytes = 0, total = 0;

    (void)cudaMemGetInfo(&free_bytes, &total);
    return free_bytes;
}

/* --- children: argv[1] names the role; fd 3 is the socket to the parent ------------------------
 */

static int
play_maker(const struct arena_ops *ops)
{
    struct arena *arena;

    if (ops->create("test", ARENA_BYTES, &arena) != ST_OK) {
        printf("maker: %s\n", status_detail());
        return 1;
    }
    (void)cudaMemset(arena_base(arena), PATTERN, ARENA_BYTES);
    (void)cudaDeviceSynchronize();
    send_fd(SOCKET_FD, arena_fd(arena), ARENA_BYTES);
    (void)pause(); /* killed here, without cleaning up */
    return 1;
}

static bool
has_pattern(const struct arena *arena)
{
    uint8_t ends[2] = {0, 0};
    const char *base = arena_base(arena);

    (void)cudaMemcpy(&ends[0], base, 1, cudaMemcpyDeviceToHost);
    (void)cudaMemcpy(&ends[1], base + arena_bytes(arena) - 1, 1, cudaMemcpyDeviceToHost);
    return ends[0] == PATTERN && ends[1] == PATTERN;
}

static int
play_reader(bool is_writable)
{
    size_t bytes;
    int fd = receive_fd(SOCKET_FD, &bytes);
    struct arena *arena;
    bool is_right;

    if (arena_vmm.import(fd, bytes, is_writable, &arena) != ST_OK) {
        printf("reader: %s\n", status_detail());
        return 1;
    }
    is_right = has_pattern(arena);
    arena_close(&arena);
    return is_right ? 0 : 2;
}

/* Maps while the maker lives, says so, and reads once the parent has killed it. */
static int
play_witness(void)
{
    size_t bytes;
    int fd = receive_fd(SOCKET_FD, &bytes);
    struct arena *arena;

    if (arena_ipc.import(fd, bytes, true, &arena) != ST_OK) {
        printf("witness: %s\n", status_detail());
        send_fd(SOCKET_FD, -1, 0);
        return 1;
    }
    send_fd(SOCKET_FD, -1, 1);
    (void)receive_fd(SOCKET_FD, &bytes); /* "the maker is dead" */
    return has_pattern(arena) ? 0 : 2;
}

/* Comes when nobody maps the memory any more. */
static int
play_late(void)
{
    size_t bytes;
    int fd = receive_fd(SOCKET_FD, &bytes);
    struct arena *arena;

    return arena_ipc.import(fd, bytes, true, &arena) == ST_UNAVAILABLE ? 0 : 1;
}

/* On the second GPU: the memory stays on the first, read over the link between them. */
static int
play_peer(void)
{
    return cudaSetDevice(1) == cudaSuccess ? play_reader(true) : 3;
}

/* Asks for more than there is: refused, and the fd is closed all the same. */
static int
play_greedy(void)
{
    size_t bytes;
    int fd = receive_fd(SOCKET_FD, &bytes);
    struct arena *arena;

    return arena_vmm.import(fd, bytes + ((size_t)1 << 30), true, &arena) == ST_OK ? 1 : 0;
}

/* Says how much memory is free, and ends with the number of GPUs. */
static int
play_counter(void)
{
    int count = 0;

    (void)cudaFree(NULL);
    (void)cudaGetDeviceCount(&count);
    send_fd(SOCKET_FD, -1, free_memory());
    return count;
}

static int
play(const char *role)
{
    if (strcmp(role, "maker") == 0) {
        return play_maker(&arena_vmm);
    }
    if (strcmp(role, "ipc-maker") == 0) {
        return play_maker(&arena_ipc);
    }
    if (strcmp(role, "peer") == 0) {
        return play_peer();
    }
    if (strcmp(role, "witness") == 0) {
        return play_witness();
    }
    if (strcmp(role, "late") == 0) {
        return play_late();
    }
    if (strcmp(role, "greedy") == 0) {
        return play_greedy();
    }
    if (strcmp(role, "counter") == 0) {
        return play_counter();
    }
    return play_reader(strcmp(role, "writer") == 0);
}

/* --- the parent --------------------------------------------------------------------------------
 */

static pid_t
start(const char *program, const char *role, int *socket_out)
{
    int sockets[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) {
        perror("socketpair");
        exit(1);
    }
    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        (void)dup2(sockets[1], SOCKET_FD);
        if (sockets[0] != SOCKET_FD) {
            (void)close(sockets[0]);
        }
        execl(program, program, role, (char *)NULL);
        _exit(127);
    }
    (void)close(sockets[1]);
    *socket_out = sockets[0];
    return pid;
}

static int
finish(pid_t pid, int socket)
{
    int state = -1;

    (void)waitpid(pid, &state, 0);
    (void)close(socket);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static size_t
count_free(const char *program, int *device_count_out)
{
    size_t bytes;
    int socket;
    pid_t pid = start(program, "counter", &socket);

    (void)receive_fd(socket, &bytes);
    *device_count_out = finish(pid, socket);
    return bytes;
}

static int
give_to(const char *program, const char *role, int fd)
{
    int socket;
    pid_t pid = start(program, role, &socket);

    send_fd(socket, fd, ARENA_BYTES);
    return finish(pid, socket);
}

static void
test_ipc(const char *program, size_t before)
{
    int maker_socket, witness_socket, fd, device_count;
    size_t number;
    pid_t maker = start(program, "ipc-maker", &maker_socket);
    pid_t witness;

    fd = receive_fd(maker_socket, &number);
    expect(fd >= 0 && number == ARENA_BYTES, "ipc: a maker hands over the name of its arena");
    witness = start(program, "witness", &witness_socket);
    send_fd(witness_socket, fd, ARENA_BYTES);
    (void)receive_fd(witness_socket, &number);
    expect(number == 1, "ipc: a second process maps it while the maker lives");
    (void)kill(maker, 9);
    (void)finish(maker, maker_socket);
    send_fd(witness_socket, -1, 1);
    expect(finish(witness, witness_socket) == 0, "ipc: and reads it after the maker's SIGKILL");
    expect(give_to(program, "late", fd) == 0, "ipc: memory that nobody maps cannot be mapped");
    (void)close(fd);
    expect(count_free(program, &device_count) + ((size_t)64 << 20) >= before,
           "ipc: the memory is back");
}

int
main(int argc, char **argv)
{
    const char *program = "/proc/self/exe";
    size_t before, bytes;
    int socket, fd, device_count;
    pid_t maker;

    if (argc > 1) {
        return play(argv[1]);
    }
    before = count_free(program, &device_count);
    if (before == 0 && getenv("REQUIRE_GPU") == NULL) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    maker = start(program, "maker", &socket);
    fd = receive_fd(socket, &bytes);
    expect(fd >= 0 && bytes == ARENA_BYTES, "a maker hands over the fd of its arena");
    (void)kill(maker, 9);
    (void)finish(maker, socket);
    expect(give_to(program, "writer", fd) == 0, "contents survive the maker's death by SIGKILL");
    expect(give_to(program, "reader", fd) == 0, "a second process maps it read-only");
    if (device_count > 1) {
        expect(give_to(program, "peer", fd) == 0, "a process on another GPU maps it and reads it");
    }
    expect(give_to(program, "greedy", fd) == 0, "a mapping beyond the memory is refused");
    expect(count_free(program, &device_count) + ARENA_BYTES <= before + ((size_t)64 << 20),
           "the fd alone keeps the memory");
    (void)close(fd);
    expect(count_free(program, &device_count) + ((size_t)64 << 20) >= before,
           "closing the last fd gives it back");
    test_ipc(program, before);
    printf("%d passed, %d failed\n", expectations - failures, failures);
    return failures == 0 ? 0 : 1;
}
