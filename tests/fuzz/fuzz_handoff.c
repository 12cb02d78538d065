/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of workers that come, over real sockets: whatever they say and whatever descriptors
 * they bring, kvasird lives, and when it closes no descriptor is left.
 *
 * An input is a list of steps: a byte that says what happens (the low two bits: a new worker says
 * it, the last one says it, the last one goes, time passes), with which descriptors (the next two:
 * how many; the next: whether they are sealed memory), a byte of length, and so many bytes. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/handoff.h"
#include "tests/fuzz/fuzz.h"

#define WORKERS_MAX  8
#define FDS_MAX      3
#define MEMORY_BYTES 65536
#define WAIT_US      5000000u /* that passes in one step */

struct world {
    char dir[64], path[96];
    struct handoff *handoff;
    uint64_t now_us;
    int sockets[WORKERS_MAX];
    size_t count;
};

static void
require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static size_t
open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;

    require(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

static void
open_world(struct world *w)
{
    struct handoff_config config = {
        .path = w->path,
        .model_path = "/m.gguf",
        .worker_endpoint = "ipc:///worker.sock",
        .kv_type = 1,
        .kv_layout = 1,
        .block_tokens = 32,
        .step_tokens = 512,
        .heartbeat_ms = 250,
        .kv_memory = MEMORY_BYTES,
        .load_timeout_ms = 60000,
    };

    *w = (struct world){.now_us = 1000000};
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/kvasir-fuzz-XXXXXX");
    require(mkdtemp(w->dir) != NULL);
    (void)snprintf(w->path, sizeof(w->path), "%s/attach.sock", w->dir);
    require(handoff_new(&config, &w->handoff) == ST_OK);
}

/* Turns of the loop until nothing is ready; what has happened is looked at as kvasird does. */
static void
turn(struct world *w)
{
    struct pollfd items[HANDOFF_POLL_MAX];
    struct handoff_event event;
    int ready;

    do {
        size_t count = handoff_poll_count(w->handoff);

        handoff_poll_fill(w->handoff, items);
        ready = poll(items, count, 0);
        handoff_poll_done(w->handoff, items, count, w->now_us);
        while (handoff_next(w->handoff, &event)) {
            if (event.kind == HANDOFF_ATTACHED || event.kind == HANDOFF_REJOINED) {
                require(event.incarnation != 0 && event.seqs_max > 0 && event.pidfd >= 0);
                (void)close(event.pidfd);
                handoff_worker_gone(w->handoff, event.worker);
                (void)handoff_lost_arenas(w->handoff);
            } else {
                require(event.reason[0] != '\0');
            }
        }
    } while (ready > 0);
}

static void
connect_worker(struct world *w)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (w->count == WORKERS_MAX) {
        (void)close(w->sockets[--w->count]);
    }
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", w->path);
    require(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    w->sockets[w->count++] = fd;
}

static int
make_memory(int is_sealed)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    require(fd >= 0 && ftruncate(fd, MEMORY_BYTES) == 0);
    require(!is_sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

static void
say(const struct world *w, uint8_t how, const uint8_t *bytes, size_t length)
{
    int count = how >> 2 & 3, fds[FDS_MAX];
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    for (int i = 0; i < count; i++) {
        fds[i] = make_memory(how >> 4 & 1);
    }
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
        memcpy(CMSG_DATA(rights), fds, sizeof(int) * (size_t)count);
    }
    (void)sendmsg(w->sockets[w->count - 1], &message, MSG_NOSIGNAL); /* it may have hung up */
    for (int i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
}

static void
step(struct world *w, uint8_t how, const uint8_t *bytes, size_t length)
{
    switch (how & 3) {
    case 0:
        connect_worker(w);
        turn(w);
        say(w, how, bytes, length);
        break;
    case 1:
        if (w->count > 0) {
            say(w, how, bytes, length);
        }
        break;
    case 2:
        if (w->count > 0) {
            (void)close(w->sockets[--w->count]);
        }
        break;
    default: w->now_us += WAIT_US; break;
    }
    turn(w);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct world w;
    size_t before = open_fds();

    open_world(&w);
    while (length >= 2) {
        size_t said = bytes[1] < length - 2 ? bytes[1] : length - 2;

        step(&w, bytes[0], bytes + 2, said);
        bytes += 2 + said;
        length -= 2 + said;
    }
    while (w.count > 0) {
        (void)close(w.sockets[--w.count]);
    }
    turn(&w);
    handoff_destroy(&w.handoff);
    require(rmdir(w.dir) == 0);
    require(open_fds() == before);
    return 0;
}
