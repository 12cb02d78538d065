/* SPDX-License-Identifier: Apache-2.0 */
/* endpoints - where the processes of one host meet: the sockets of a runtime directory. */
#ifndef PROTO_ENDPOINTS_H
#define PROTO_ENDPOINTS_H

#include <stddef.h>

#include "common/status.h"

#define ENDPOINT_CLIENT "client.sock" /* ZeroMQ ROUTER: clients; all services but Admin */
#define ENDPOINT_ADMIN  "admin.sock"  /* ZeroMQ ROUTER: operators; all services */
#define ENDPOINT_WORKER "worker.sock" /* ZeroMQ ROUTER: workers */
#define ENDPOINT_ATTACH "attach.sock" /* AF_UNIX SOCK_SEQPACKET: workers attach here, fds travel */

#define ENDPOINT_DIR_ENV     "KVASIR_RUNTIME_DIR"
#define ENDPOINT_DIR_DEFAULT "/run/kvasir"
#define ENDPOINT_PATH_MAX    108 /* of sockaddr_un.sun_path, with the NUL */
#define ENDPOINT_URL_MAX     (ENDPOINT_PATH_MAX + 6)

/* Finds the runtime directory: `option` if not NULL, else $KVASIR_RUNTIME_DIR, else /run/kvasir if
 * that is there, else $XDG_RUNTIME_DIR/kvasir.  ST_INVALID: too long for its sockets' paths;
 * ST_NOT_FOUND: none. */
enum status endpoint_dir(const char *option, char dir_out[ENDPOINT_PATH_MAX]);

/* DIR/NAME, and the same as "ipc://DIR/NAME".  ST_INVALID: too long for a socket's path. */
enum status endpoint_path(const char *dir, const char *name, char path_out[ENDPOINT_PATH_MAX]);
enum status endpoint_url(const char *dir, const char *name, char url_out[ENDPOINT_URL_MAX]);

#endif
