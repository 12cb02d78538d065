/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/attach_talk.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/notify.h"

#define DATAGRAM_BYTES_MAX (64u << 10)
#define PATIENCE_MS        5000

void
talk_tell_supervisor(const char *lines)
{
    (void)notify_send(lines);
}

/* --- datagrams with file descriptors ------------------------------------------------- */

void
talk_close_fds(int fds[TALK_FDS_MAX])
{
    for (size_t i = 0; i < TALK_FDS_MAX; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
            fds[i] = -1;
        }
    }
}

enum status
talk_send(int socket, const ProtobufCMessage *message, const int *fds, size_t n_fds)
{
    struct wire_buffer buffer = {0};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * TALK_FDS_MAX)];
    } control = {0};

    TRY(wire_pack(&buffer, message));
    struct iovec iov = {.iov_base = buffer.bytes, .iov_len = buffer.length};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);

        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
    }
    ssize_t sent;

    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    int error = errno;

    wire_buffer_deinit(&buffer);
    return sent >= 0 ? ST_OK : ERR(ST_UNAVAILABLE, "attach socket: %s", strerror(error));
}

/* Takes the fds of a datagram; what is too many is closed. */
static size_t
take_fds(struct msghdr *header, int fds[TALK_FDS_MAX])
{
    size_t n = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (n < TALK_FDS_MAX) {
                fds[n++] = fd;
            } else {
                (void)close(fd);
            }
        }
    }
    return n;
}

/* Waits as long as kvasird is there, since another worker may be creating an arena first; or until
 * a time, for which nobody else is asked to be patient. */
static enum status
wait_readable(int socket, int stop_fd, uint64_t until_us)
{
    struct pollfd items[] = {{.fd = socket, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};

    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_ms = until_us > now_us ? (until_us - now_us + 999) / 1000 : 0;
        int n = poll(items, 2, left_ms < PATIENCE_MS ? (int)left_ms : PATIENCE_MS);

        if (n < 0 && errno != EINTR) {
            return ERR(ST_SYSTEM, "poll: %s", strerror(errno));
        }
        if (n > 0 && items[1].revents != 0) {
            return ERR(ST_UNAVAILABLE, "told to stop while attaching");
        }
        if (n > 0 && items[0].revents != 0) {
            return ST_OK;
        }
        if (n == 0 && left_ms <= PATIENCE_MS) {
            return ERR(ST_UNAVAILABLE, "kvasird does not answer on the attach socket");
        }
        if (n == 0) {
            talk_tell_supervisor(TALK_EXTEND_TIMEOUT "\nSTATUS=waiting for another worker");
        }
    }
}

enum status
talk_receive(struct attachment *a, int stop_fd, uint64_t until_us, int fds[TALK_FDS_MAX],
             const Kvasir__V1__AttachReply **reply_out)
{
    static uint8_t bytes[DATAGRAM_BYTES_MAX]; /* one attach a process */
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 4)];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    const ProtobufCMessage *message = NULL;
    ssize_t n;

    TRY(wait_readable(a->socket, stop_fd, until_us));
    do {
        n = recvmsg(a->socket, &header, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        return ERR(ST_UNAVAILABLE, "kvasird closed the attach socket%s%s", n < 0 ? ": " : "",
                   n < 0 ? strerror(errno) : "");
    }
    (void)take_fds(&header, fds);
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        return ERR(ST_INVALID, "attach reply of more than %u bytes or too many fds",
                   DATAGRAM_BYTES_MAX);
    }
    wire_arena_reset(a->replies);
    TRY(wire_unpack(a->replies, &kvasir__v1__attach_reply__descriptor, bytes, (size_t)n,
                    DATAGRAM_BYTES_MAX, &message));
    *reply_out = (const Kvasir__V1__AttachReply *)message;
    if ((*reply_out)->is_refused) {
        return ERR(ST_INVALID, "kvasird refuses this worker: %s",
                   (*reply_out)->reason != NULL ? (*reply_out)->reason : "no reason given");
    }
    return ST_OK;
}

enum status
talk_connect(const char *runtime_dir, int *socket_out)
{
    char dir[ENDPOINT_PATH_MAX];
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    TRY(endpoint_dir(runtime_dir, dir));
    TRY(endpoint_path(dir, ENDPOINT_ATTACH, addr.sun_path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return ERR(ST_SYSTEM, "attach socket: %s", strerror(errno));
    }
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
        int error = errno;

        (void)close(fd);
        return ERR(ST_UNAVAILABLE, "no kvasird at %s: %s", addr.sun_path, strerror(error));
    }
    *socket_out = fd;
    return ST_OK;
}

int
talk_daemon_pidfd(int socket)
{
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}
