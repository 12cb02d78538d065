/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/attach_world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <check.h>

static char cpu[] = "cpu"; /* protobuf-c takes no const strings */
static char shm[] = "shm";

size_t
open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

void
world_open(struct world *w)
{
    *w = (struct world){.now_us = 1000000, .fds_before = open_fds()};
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/kvasir-handoff-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(w->dir));
    (void)snprintf(w->path, sizeof(w->path), "%s/attach.sock", w->dir);
    struct handoff_config config = {
        .path = w->path,
        .model_path = "/models/m.gguf",
        .worker_endpoint = "ipc:///run/kvasir/worker.sock",
        .checkpoint = {1, 2, 3},
        .tokenizer = {4, 5, 6},
        .kv_type = 1,
        .kv_layout = 1,
        .block_tokens = 32,
        .step_tokens = WORLD_STEP_TOKENS,
        .heartbeat_ms = WORLD_HEARTBEAT_MS,
        .is_deterministic = true,
        .kv_memory = WORLD_KV_MEMORY,
        .load_timeout_ms = WORLD_LOAD_MS,
    };

    ck_assert_msg(handoff_new(&config, &w->handoff) == ST_OK, "%s", status_detail());
    ck_assert_int_eq(wire_arena_new(&w->messages), ST_OK);
}

void
world_close(struct world *w)
{
    handoff_destroy(&w->handoff);
    ck_assert_ptr_null(w->handoff);
    wire_arena_destroy(&w->messages);
    ck_assert_int_eq(rmdir(w->dir), 0); /* the socket's file is gone */
    ck_assert_uint_eq(open_fds(), w->fds_before);
}

void
world_turn(struct world *w)
{
    struct pollfd items[HANDOFF_POLL_MAX];
    int ready;

    do {
        size_t count = handoff_poll_count(w->handoff);

        ck_assert_uint_le(count, HANDOFF_POLL_MAX);
        handoff_poll_fill(w->handoff, items);
        ready = poll(items, count, 0);
        ck_assert_int_ge(ready, 0);
        handoff_poll_done(w->handoff, items, count, w->now_us);
    } while (ready > 0);
}

struct handoff_event
world_next(struct world *w, enum handoff_event_kind kind)
{
    struct handoff_event event;

    ck_assert(handoff_next(w->handoff, &event));
    ck_assert_msg(event.kind == kind, "event %d instead of %d: %s", (int)event.kind, (int)kind,
                  event.reason);
    return event;
}

void
world_expect_nothing(struct world *w)
{
    struct handoff_event event;
    bool has_come = handoff_next(w->handoff, &event);

    ck_assert_msg(!has_come, "an event: %s", has_come ? event.reason : "");
}

/* --- fake workers ----------------------------------------------------------------------------- */

int
fake_connect(const struct world *w)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", w->path);
    ck_assert_msg(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0, "connect: %s",
                  strerror(errno));
    return fd;
}

void
fake_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * WORLD_FDS_MAX)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * fd_count);
    }
    ck_assert_msg(sendmsg(socket, &header, MSG_NOSIGNAL) >= 0, "sendmsg: %s", strerror(errno));
}

void
fake_say(int socket, const ProtobufCMessage *message, const int *fds, size_t fd_count)
{
    size_t length = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(length + 1);

    ck_assert_ptr_nonnull(bytes);
    (void)protobuf_c_message_pack(message, bytes);
    fake_send(socket, bytes, length, fds, fd_count);
    free(bytes);
}

Kvasir__V1__Attach
fake_attach(void)
{
    Kvasir__V1__Attach attach = KVASIR__V1__ATTACH__INIT;

    attach.has_version = attach.has_seqs_max = true;
    attach.version = WIRE_VERSION;
    attach.seqs_max = 8;
    attach.device = cpu;
    attach.backend = cpu;
    return attach;
}

int
fake_arrive(struct world *w, const char *device)
{
    Kvasir__V1__Attach attach = fake_attach();
    char text[64];
    int fd = fake_connect(w);

    (void)snprintf(text, sizeof(text), "%s", device);
    attach.device = text;
    fake_say(fd, &attach.base, NULL, 0);
    world_turn(w);
    return fd;
}

struct reply
fake_hear(struct world *w, int socket)
{
    static uint8_t bytes[64 << 10];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 2)];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct reply reply = {.fds = {-1, -1}};
    const ProtobufCMessage *message;
    ssize_t n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n <= 0) {
        reply.is_closed = n == 0 || errno != EAGAIN;
        return reply;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&header);

    ck_assert_int_eq(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC), 0);
    if (c != NULL) {
        reply.fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(reply.fds, CMSG_DATA(c), reply.fd_count * sizeof(int));
    }
    wire_arena_reset(w->messages);
    ck_assert_int_eq(wire_unpack(w->messages, &kvasir__v1__attach_reply__descriptor, bytes,
                                 (size_t)n, sizeof(bytes), &message),
                     ST_OK);
    reply.message = (const Kvasir__V1__AttachReply *)message;
    return reply;
}

/* --- offers ----------------------------------------------------------------------------------- */

int
memory_new(uint64_t bytes, bool is_sealed)
{
    int fd = memfd_create("kvasir-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    if (is_sealed) {
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    }
    return fd;
}

void
offer_open_empty(const struct world *w, struct offer *offer)
{
    *offer = (struct offer){.message = KVASIR__V1__ATTACHED__INIT};
    memcpy(offer->fingerprint, handoff_pool_fingerprint(w->handoff), sizeof(offer->fingerprint));
    offer->message.arenas = offer->list;
    offer->message.has_block_bytes = offer->message.has_block_count = true;
    offer->message.block_bytes = WORLD_BLOCK_BYTES;
    offer->message.block_count = WORLD_BLOCK_COUNT;
    offer->message.has_pool_fingerprint = true;
    offer->message.pool_fingerprint = (ProtobufCBinaryData){32, offer->fingerprint};
    for (size_t i = 0; i < 3; i++) {
        Kvasir__V1__ArenaInfo *info = offer->list[i] = &offer->infos[i];

        kvasir__v1__arena_info__init(info);
        info->has_kind = info->has_bytes = info->has_is_present = info->is_present = true;
        info->kind =
            i == 0 ? KVASIR__V1__ARENA_KIND__ARENA_KV : KVASIR__V1__ARENA_KIND__ARENA_WEIGHTS;
        info->bytes = i == 0 ? WORLD_KV_MEMORY : WORLD_WEIGHTS_BYTES;
        info->mechanism = shm;
    }
}

void
offer_open(const struct world *w, struct offer *offer)
{
    offer_open_empty(w, offer);
    offer->message.n_arenas = 2;
    offer->fds[0] = memory_new(WORLD_KV_MEMORY, true);
    offer->fds[1] = memory_new(WORLD_WEIGHTS_BYTES, true);
    offer->fd_count = 2;
}

void
offer_close(struct offer *offer)
{
    for (size_t i = 0; i < offer->fd_count; i++) {
        (void)close(offer->fds[i]);
    }
    offer->fd_count = 0;
}

void
fake_offer(struct world *w, int socket, const struct offer *offer)
{
    fake_say(socket, &offer->message.base, offer->fds, offer->fd_count);
    world_turn(w);
}

struct handoff_event
attach_whole(struct world *w)
{
    struct offer offer;
    int fd = fake_arrive(w, "cpu");
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_nonnull(reply.message);
    if (reply.fd_count == 0) {
        offer_open(w, &offer);
    } else {
        offer_open_empty(w, &offer);
        (void)close(reply.fds[0]);
        (void)close(reply.fds[1]);
    }
    fake_offer(w, fd, &offer);
    offer_close(&offer);
    reply = fake_hear(w, fd);
    ck_assert_ptr_nonnull(reply.message);
    ck_assert(!reply.message->is_refused);
    (void)close(fd);
    world_turn(w);
    return world_next(w, HANDOFF_ATTACHED);
}
