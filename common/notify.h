/* SPDX-License-Identifier: Apache-2.0 */
/* notify - systemd's readiness protocol, without libsystemd.
 *
 * Lines like "READY=1" or "STATUS=loading 43 %" go to the datagram socket that NOTIFY_SOCKET names.
 * Without that variable every call is a silent success. */
#ifndef COMMON_NOTIFY_H
#define COMMON_NOTIFY_H

#include "common/status.h"

/* Sends "LINE" (several lines may be joined by '\n').  ST_SYSTEM if the socket refuses. */
enum status notify_send(const char *lines);

#endif
