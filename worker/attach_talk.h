/* SPDX-License-Identifier: Apache-2.0 */
/* attach_talk - datagrams with file descriptors on kvasird's attach socket, from a worker's side.
 * Blocks; a talk at a time. */
#ifndef WORKER_ATTACH_TALK_H
#define WORKER_ATTACH_TALK_H

#include "worker/attach.h"

#include "kvasir/v1/worker.pb-c.h"

#define TALK_FDS_MAX 3 /* KV, weights, the host tier's memory */
#define TALK_FDS_NONE                                                                              \
    {                                                                                              \
        -1, -1, -1                                                                                 \
    }
/* While loading or waiting we renew systemd's patience; three missed renewals are a hang. */
#define TALK_EXTEND_TIMEOUT "EXTEND_TIMEOUT_USEC=15000000"

/* Only a courtesy: what we do goes on without it. */
void talk_tell_supervisor(const char *lines);

/* ST_UNAVAILABLE: nobody listens. */
enum status talk_connect(const char *runtime_dir, int *socket_out);

/* The end of kvasird's process, however it ends, becomes readable.  -1 where pids are not visible
 * (another pid namespace): its silence must do. */
int talk_daemon_pidfd(int socket);

enum status talk_send(int socket, const ProtobufCMessage *message, const int *fds, size_t n_fds);

/* The next reply on a->socket, borrowed until the one after it, with its fds (the caller's).
 * ST_INVALID: it is a refusal, or none; ST_UNAVAILABLE: kvasird went away, or stop_fd, or it is
 * `until_us`, a time of clock_now_us (UINT64_MAX: no limit). */
enum status talk_receive(struct attachment *attachment, int stop_fd, uint64_t until_us,
                         int fds[TALK_FDS_MAX], const Kvasir__V1__AttachReply **reply_out);

/* Closes those that are not -1, and makes them -1. */
void talk_close_fds(int fds[TALK_FDS_MAX]);

#endif
