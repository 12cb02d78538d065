/* SPDX-License-Identifier: Apache-2.0 */
/* notify - systemd's readiness protocol, without libsystemd.
 *
 * Lines like "READY=1" or "STATUS=loading 43 %" go to the datagram socket that NOTIFY_SOCKET names.
 * Without that variable every call is a silent success. */
#ifndef COMMON_NOTIFY_H
#define COMMON_NOTIFY_H

#include "common/status.h"

#define NOTIFY_READY_WAIT_MS 5000

/* Sends "LINE" (several lines may be joined by '\n').  ST_SYSTEM if the socket refuses;
 * ST_UNAVAILABLE if its reader is behind and the queue full: nobody's loop stops for a status line.
 * Only what begins with READY=1 waits, for NOTIFY_READY_WAIT_MS. */
enum status notify_send(const char *lines);

#endif
