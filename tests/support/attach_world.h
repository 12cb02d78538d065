/* SPDX-License-Identifier: Apache-2.0 */
/* attach_world - kvasird's attach socket in a directory of its own, and fake workers that talk to
 * it from the same process.  The clock is a number.  Everything checks itself with Check's
 * assertions. */
#ifndef TESTS_SUPPORT_ATTACH_WORLD_H
#define TESTS_SUPPORT_ATTACH_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/handoff.h"
#include "proto/wire.h"

#include "kvasir/v1/worker.pb-c.h"

#define WORLD_KV_MEMORY     (1u << 20)
#define WORLD_BLOCK_BYTES   4096u
#define WORLD_BLOCK_COUNT   (WORLD_KV_MEMORY / WORLD_BLOCK_BYTES)
#define WORLD_WEIGHTS_BYTES 12288u
#define WORLD_STEP_TOKENS   512u
#define WORLD_HEARTBEAT_MS  250u
#define WORLD_LOAD_MS       60000u
#define WORLD_FDS_MAX       250 /* of one datagram; the kernel takes 253 */

struct world {
    char dir[64];
    char path[96];
    uint64_t now_us;
    struct handoff *handoff;
    struct wire_arena *messages; /* of the fake workers */
    size_t fds_before;           /* open when the world was made, without it */
};

void world_open(struct world *world);

/* Ends it all; no fd may be left over. */
void world_close(struct world *world);

/* Turns of the loop until nothing is ready. */
void world_turn(struct world *world);

struct handoff_event world_next(struct world *world, enum handoff_event_kind kind);
void world_expect_nothing(struct world *world);

/* Open fds of this process. */
size_t open_fds(void);

/* --- fake workers: their sockets ------------------------------------------------------------ */

int fake_connect(const struct world *world);
void fake_send(int socket, const void *bytes, size_t length, const int *fds, size_t fd_count);
void fake_say(int socket, const ProtobufCMessage *message, const int *fds, size_t fd_count);

/* An Attach that is right for "cpu"; borrowed strings, so every field may be changed. */
Kvasir__V1__Attach fake_attach(void);

/* Connects, says Attach and lets kvasird hear it. */
int fake_arrive(struct world *world, const char *device);

struct reply {
    const Kvasir__V1__AttachReply *message; /* NULL: none has come; borrowed until the next */
    bool is_closed;                         /* none, and none will come */
    int fds[2];                             /* -1: none; the test's */
    size_t fd_count;
};

struct reply fake_hear(struct world *world, int socket);

/* --- what they offer ---------------------------------------------------------------------------
 */

struct offer {
    Kvasir__V1__Attached message;
    Kvasir__V1__ArenaInfo infos[3];
    Kvasir__V1__ArenaInfo *list[3];
    int fds[WORLD_FDS_MAX];
    size_t fd_count;
    uint8_t fingerprint[32];
};

int memory_new(uint64_t bytes, bool is_sealed);

/* What a first worker offers when all is well; offer_close closes its fds. */
void offer_open(const struct world *world, struct offer *offer);
void offer_close(struct offer *offer);

/* The same without arenas: of a worker that mapped them. */
void offer_open_empty(const struct world *world, struct offer *offer);

/* Says it, and lets kvasird hear it. */
void fake_offer(struct world *world, int socket, const struct offer *offer);

/* A whole attach: of a first worker, which makes the arenas, or a later one.  Closes the socket. */
struct handoff_event attach_whole(struct world *world);

#endif
