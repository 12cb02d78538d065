/* SPDX-License-Identifier: Apache-2.0 */
#include "common/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum status
notify_send(const char *lines)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t length;
    ssize_t sent;
    int fd;

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
    if (fd < 0) {
        return ERR(ST_SYSTEM, "notify socket: %s", strerror(errno));
    }
    sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&addr,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    (void)close(fd);
    if (sent < 0) {
        return ERR(ST_SYSTEM, "notify socket %s: %s", path, strerror(errno));
    }
    return ST_OK;
}
