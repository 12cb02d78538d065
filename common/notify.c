/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTEN_FDS_START 3 /* SD_LISTEN_FDS_START of sd-daemon.h */

static enum status
find_socket(struct sockaddr_un *addr, socklen_t *length_out)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = strlen(path);

    if ((path[0] != '/' && path[0] != '@') || length < 2 || length >= sizeof(addr->sun_path)) {
        return ERR(ST_INVALID, "NOTIFY_SOCKET is neither an absolute nor an abstract socket path");
    }
    *addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(addr->sun_path, path, length);
    if (path[0] == '@') {
        addr->sun_path[0] = '\0'; /* the abstract namespace */
    }
    *length_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return ST_OK;
}

/* Returns 0 or errno.  `passed` is -1 for none. */
static int
send_datagram(int fd, struct sockaddr_un *addr, socklen_t addr_length, const char *lines,
              int passed, int flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)lines, .iov_len = strlen(lines)};
    struct msghdr message = {
        .msg_name = addr, .msg_namelen = addr_length, .msg_iov = &iov, .msg_iovlen = 1};
    struct timeval wait = {.tv_sec = NOTIFY_READY_WAIT_MS / 1000};

    if (passed >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);

        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &passed, sizeof(passed));
    }
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0
        || sendmsg(fd, &message, MSG_NOSIGNAL | flags) < 0) {
        return errno;
    }
    return 0;
}

static enum status
send_lines(const char *lines, int passed, bool may_wait)
{
    struct sockaddr_un addr;
    socklen_t addr_length = 0;
    int fd, error;

    if (getenv("NOTIFY_SOCKET") == NULL) {
        return ST_OK;
    }
    TRY(find_socket(&addr, &addr_length));
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        error = errno;
    } else {
        error = send_datagram(fd, &addr, addr_length, lines, passed, may_wait ? 0 : MSG_DONTWAIT);
        (void)close(fd);
    }
    if (error == EAGAIN) {
        return ERR(ST_UNAVAILABLE, "notify socket %s: its reader is behind",
                   getenv("NOTIFY_SOCKET"));
    }
    return error == 0
               ? ST_OK
               : ERR(ST_SYSTEM, "notify socket %s: %s", getenv("NOTIFY_SOCKET"), strerror(error));
}

enum status
notify_send(const char *lines)
{
    return send_lines(lines, -1, strncmp(lines, "READY=1", strlen("READY=1")) == 0);
}

/* --- the fd store ----------------------------------------------------------------------------- */

enum status
notify_store(const char *name, int fd)
{
    char lines[NOTIFY_NAME_BYTES + 32];

    /* FDPOLL=0: a device's fd that becomes readable is not at its end. */
    (void)snprintf(lines, sizeof(lines), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
    return send_lines(lines, fd, true);
}

enum status
notify_unstore(const char *name, bool may_wait)
{
    char lines[NOTIFY_NAME_BYTES + 32];

    (void)snprintf(lines, sizeof(lines), "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return send_lines(lines, -1, may_wait);
}

/* A number of the environment, or 0; that of another process's pid says nothing to us. */
static unsigned long
env_number(const char *name)
{
    const char *text = getenv(name);

    return text == NULL || text[0] < '0' || text[0] > '9' ? 0 : strtoul(text, NULL, 10);
}

size_t
notify_take_fds(struct notify_fd fds[NOTIFY_FDS_MAX])
{
    unsigned long passed = env_number("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    size_t count = 0;

    if (env_number("LISTEN_PID") != (unsigned long)getpid()) {
        passed = 0;
    }
    for (unsigned long i = 0; i < passed && i < NOTIFY_FDS_MAX; i++) {
        size_t length = names == NULL ? 0 : strcspn(names, ":");
        struct notify_fd *fd = &fds[count];

        fd->fd = LISTEN_FDS_START + (int)i;
        (void)snprintf(fd->name, sizeof(fd->name), "%.*s", (int)length, names == NULL ? "" : names);
        names = names == NULL || names[length] == '\0' ? NULL : names + length + 1;
        if (fcntl(fd->fd, F_SETFD, FD_CLOEXEC) == 0) { /* or there is no such descriptor */
            count++;
        }
    }
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return count;
}

/* --- the watchdog ----------------------------------------------------------------------------- */

uint64_t
notify_watchdog_us(void)
{
    unsigned long pid = env_number("WATCHDOG_PID");

    return pid != 0 && pid != (unsigned long)getpid() ? 0 : env_number("WATCHDOG_USEC");
}
