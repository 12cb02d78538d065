/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum status
notify_send(const char *lines)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct timeval wait = {.tv_sec = NOTIFY_READY_WAIT_MS / 1000};
    bool is_ready = strncmp(lines, "READY=1", strlen("READY=1")) == 0;
    size_t length;
    int fd, error = 0;

    if (path == NULL) {
        return ST_OK;
    }
    length = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || length < 2 || length >= sizeof(addr.sun_path)) {
        return ERR(ST_INVALID, "NOTIFY_SOCKET is neither an absolute nor an abstract socket path");
    }
    memcpy(addr.sun_path, path, length);
    if (path[0] == '@') {
        addr.sun_path[0] = '\0'; /* the abstract namespace */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0) {
        error = errno;
    } else if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | (is_ready ? 0 : MSG_DONTWAIT),
                      (struct sockaddr *)&addr,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length))
               < 0) {
        error = errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (error == EAGAIN) {
        return ERR(ST_UNAVAILABLE, "notify socket %s: its reader is behind", path);
    }
    return error == 0 ? ST_OK : ERR(ST_SYSTEM, "notify socket %s: %s", path, strerror(error));
}
