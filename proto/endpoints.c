/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/endpoints.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == ENDPOINT_PATH_MAX,
              "a socket's path must fit its address");

enum status
endpoint_path(const char *dir, const char *name, char path_out[ENDPOINT_PATH_MAX])
{
    char path[ENDPOINT_PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", dir, name);

    if (length < 0 || (size_t)length >= sizeof(path)) {
        return ERR(ST_INVALID, "socket path %s/%s: longer than %d bytes", dir, name,
                   ENDPOINT_PATH_MAX - 1);
    }
    (void)snprintf(path_out, ENDPOINT_PATH_MAX, "%s", path);
    return ST_OK;
}

enum status
endpoint_url(const char *dir, const char *name, char url_out[ENDPOINT_URL_MAX])
{
    char path[ENDPOINT_PATH_MAX];

    TRY(endpoint_path(dir, name, path));
    (void)snprintf(url_out, ENDPOINT_URL_MAX, "ipc://%s", path);
    return ST_OK;
}

enum status
endpoint_dir(const char *option, char dir_out[ENDPOINT_PATH_MAX])
{
    const char *dir = option != NULL ? option : getenv(ENDPOINT_DIR_ENV);
    const char *suffix = "";
    char path[ENDPOINT_PATH_MAX];

    if (dir == NULL && access(ENDPOINT_DIR_DEFAULT, F_OK) == 0) {
        dir = ENDPOINT_DIR_DEFAULT;
    }
    if (dir == NULL) {
        dir = getenv("XDG_RUNTIME_DIR");
        suffix = "/kvasir";
    }
    if (dir == NULL || dir[0] == '\0') {
        return ERR(ST_NOT_FOUND, "no runtime directory: neither --runtime-dir, $" ENDPOINT_DIR_ENV
                                 ", " ENDPOINT_DIR_DEFAULT " nor $XDG_RUNTIME_DIR");
    }
    int length = snprintf(path, sizeof(path), "%s%s", dir, suffix);

    if (length < 0 || (size_t)length >= sizeof(path)) {
        return ERR(ST_INVALID, "runtime directory %s%s: longer than %d bytes", dir, suffix,
                   ENDPOINT_PATH_MAX - 1);
    }
    (void)snprintf(dir_out, ENDPOINT_PATH_MAX, "%s", path);
    return ST_OK;
}
