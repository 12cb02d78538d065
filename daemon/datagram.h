/* SPDX-License-Identifier: Apache-2.0 */
/* datagram - messages of a SOCK_SEQPACKET socket, with file descriptors.  Never blocks. */
#ifndef DAEMON_DATAGRAM_H
#define DAEMON_DATAGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/status.h"

#define DATAGRAM_BYTES_MAX (64u << 10)
#define DATAGRAM_FDS_MAX   3

struct datagram {
    size_t length;
    size_t fd_count;
    int fds[DATAGRAM_FDS_MAX]; /* -1: none, or taken out */
    uint8_t bytes[DATAGRAM_BYTES_MAX];
};

/* Reads one; *has_come_out is false if there is none after all.  The fds are the caller's: those he
 * leaves in are closed by datagram_close.  ST_INVALID: over a limit (nothing is kept, no fd
 * either); ST_UNAVAILABLE: the other side is gone. */
enum status datagram_receive(int socket, struct datagram *datagram, bool *has_come_out);

/* Closes the fds that are still in it. */
void datagram_close(struct datagram *datagram);

/* Packs and sends; the fds stay the caller's.  ST_UNAVAILABLE: the other side is gone or does not
 * read; ST_NO_MEMORY. */
enum status datagram_send(int socket, const ProtobufCMessage *message, const int *fds,
                          size_t fd_count);

/* Closes *fd unless it is -1, and makes it -1. */
void fd_close(int *fd);

#endif
