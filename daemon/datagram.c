/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/datagram.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/wire.h"

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * DATAGRAM_FDS_MAX)];
};

void
fd_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void
datagram_close(struct datagram *d)
{
    for (size_t i = 0; i < DATAGRAM_FDS_MAX; i++) {
        fd_close(&d->fds[i]);
    }
}

/* The kernel drops what does not fit into the control buffer and says so; but how many fit depends
 * on its alignment, so what is too many is closed here as well.  Returns whether it was. */
static bool
take_fds(struct msghdr *header, struct datagram *d)
{
    bool is_over = false;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (d->fd_count < DATAGRAM_FDS_MAX) {
                d->fds[d->fd_count++] = fd;
            } else {
                (void)close(fd);
                is_over = true;
            }
        }
    }
    return is_over;
}

enum status
datagram_receive(int socket, struct datagram *d, bool *has_come_out)
{
    union control control;
    struct iovec iov = {.iov_base = d->bytes, .iov_len = sizeof(d->bytes)};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    d->length = d->fd_count = 0;
    for (size_t i = 0; i < DATAGRAM_FDS_MAX; i++) {
        d->fds[i] = -1;
    }
    *has_come_out = false;
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR
                   ? ST_OK
                   : ERR(ST_UNAVAILABLE, "attach socket: %s", strerror(errno));
    }
    bool is_over = take_fds(&header, d); /* also of an empty datagram, which looks like the end */

    if (n == 0) {
        datagram_close(d);
        return ERR(ST_UNAVAILABLE, "the connection was closed");
    }
    if (is_over || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        datagram_close(d);
        return ERR(ST_INVALID, "a datagram of more than %u bytes or %d file descriptors",
                   DATAGRAM_BYTES_MAX, DATAGRAM_FDS_MAX);
    }
    d->length = (size_t)n;
    *has_come_out = true;
    return ST_OK;
}

enum status
datagram_send(int socket, const ProtobufCMessage *message, const int *fds, size_t fd_count)
{
    struct wire_buffer buffer = {0};
    union control control = {0};

    assert(fd_count <= DATAGRAM_FDS_MAX);
    TRY(wire_pack(&buffer, message));
    struct iovec iov = {.iov_base = buffer.bytes, .iov_len = buffer.length};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&header);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
    }
    ssize_t sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = errno;

    wire_buffer_deinit(&buffer);
    return sent >= 0 ? ST_OK : ERR(ST_UNAVAILABLE, "attach socket: %s", strerror(error));
}
