/* SPDX-License-Identifier: Apache-2.0 */
/* notify - systemd's protocols for services, without libsystemd: readiness, the fd store, the
 * watchdog.
 *
 * Lines like "READY=1" or "STATUS=loading 43 %" go to the datagram socket that NOTIFY_SOCKET names;
 * descriptors to keep over a restart go with them.  What was kept comes back at the next start as
 * descriptors 3, 4, ... with their names in LISTEN_FDNAMES.  kvasir-keeper speaks the other side
 * where there is no systemd.  Without NOTIFY_SOCKET every call that sends is a silent success. */
#ifndef COMMON_NOTIFY_H
#define COMMON_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define NOTIFY_READY_WAIT_MS 5000
#define NOTIFY_NAME_BYTES    64
#define NOTIFY_FDS_MAX       64

/* Sends "LINE" (several lines may be joined by '\n').  ST_SYSTEM if the socket refuses;
 * ST_UNAVAILABLE if its reader is behind and the queue full: nobody's loop stops for a status line.
 * Only what begins with READY=1 waits, for NOTIFY_READY_WAIT_MS. */
enum status notify_send(const char *lines);

/* Gives the supervisor a copy of `fd` to keep under `name` (shorter than NOTIFY_NAME_BYTES, without
 * ':'), as long as it takes; it may have no store, and nobody hears of that.  Waits as for READY:
 * a pool that is not kept is lost. */
enum status notify_store(const char *name, int fd);

/* Has it dropped again.  `may_wait` as for READY; not at a service's end, when all is dropped. */
enum status notify_unstore(const char *name, bool may_wait);

/* One that an earlier process of this service gave to be kept; close-on-exec, the receiver's. */
struct notify_fd {
    int fd;
    char name[NOTIFY_NAME_BYTES];
};

/* Takes what was passed to this process, at most NOTIFY_FDS_MAX; returns how many.  Once: the
 * environment no longer says so afterwards.  Not while other threads use the environment. */
size_t notify_take_fds(struct notify_fd fds[NOTIFY_FDS_MAX]);

/* Without "WATCHDOG=1" for so long this process is taken for hung; 0: nobody watches. */
uint64_t notify_watchdog_us(void);

#endif
