/* SPDX-License-Identifier: Apache-2.0 */
/* failpoint - places where a test may have a process die, in the middle of things.
 *
 *   KVASIR_FAILPOINTS="step_run=kill@3,build_run=kill:666"
 *
 * kills the process when it comes to step_run for the third time, and whenever it comes to
 * build_run with the value 666.  The actions: kill (SIGKILL), stop (SIGSTOP), hang (this
 * thread, for ever), wait (this thread, until the FIFO that KVASIR_FAILPOINT_FIFO names has been
 * opened for writing and closed), abort (SIGABRT), exit (status 1).  Without the variable a place
 * costs the look at one flag.
 *
 * The places are listed once, here; tests walk the list. */
#ifndef COMMON_FAILPOINT_H
#define COMMON_FAILPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* name, where; of kvasir-worker in the order of its life, then of kvasird. */
#define FAILPOINTS_WORKER(X)                                                                       \
    X(attach_connect, "connected to the attach socket, nothing said")                              \
    X(attach_say, "has said Attach")                                                               \
    X(attach_orders, "has its orders, and the fds of arenas that are there")                       \
    X(attach_model, "has opened the model")                                                        \
    X(attach_arenas, "has made or mapped the arenas")                                              \
    X(attach_offer, "has offered them")                                                            \
    X(attach_done, "is accepted")                                                                  \
    X(ready_say, "has said Ready")                                                                 \
    X(assign_take, "has taken a request in; value: its number")                                    \
    X(build_run, "is about to encode a part of a document; value: its first token id")             \
    X(step_run, "has planned a step")                                                              \
    X(step_done, "has run a step, nobody knows of it")                                             \
    X(step_post, "has packed the report of a step")                                                \
    X(step_send, "has sent the report of a step")                                                  \
    X(orphan, "has lost its kvasird")                                                              \
    X(rejoin_done, "is back with the next one")                                                    \
    X(detach_bye, "has said Bye")                                                                  \
    X(detach_unmap, "is about to unmap the arenas")

#define FAILPOINTS_DAEMON(X)                                                                       \
    X(offer_take, "has taken a worker's arenas, and not told it")                                  \
    X(offer_accept, "has told it")                                                                 \
    X(estate_kept, "has given an arena to be kept, and not the catalog")                           \
    X(catalog_kept, "has given the catalog to be kept")                                            \
    X(worker_noted, "has noted a worker in the catalog")                                           \
    X(message_read,                                                                                \
      "is about to read a client's message, in a tokeniser thread; value: its method")             \
    X(assign_send, "is about to send a request to a worker")                                       \
    X(seal_note, "has sealed a document in the catalog, and told nobody")                          \
    X(step_taken, "has taken a step's report in, and told nobody")                                 \
    X(reply_send, "has sent a reply")                                                              \
    X(adopt_pool, "has adopted a pool, and not opened its sockets")

#define FAILPOINTS(X)                                                                              \
    FAILPOINTS_WORKER(X)                                                                           \
    FAILPOINTS_DAEMON(X)

enum failpoint {
#define FAILPOINT_NUMBER(name, where) FAILPOINT_##name,
    FAILPOINTS(FAILPOINT_NUMBER)
#undef FAILPOINT_NUMBER
    FAILPOINT_COUNT,
};

/* Reads KVASIR_FAILPOINTS; once, before there are threads.  ST_INVALID names what is wrong. */
enum status failpoint_init(void);

extern bool failpoint_is_armed;
void failpoint_reach(enum failpoint point, uint64_t value);

#define FAILPOINT(name) FAILPOINT_VALUE(name, 0)
#define FAILPOINT_VALUE(name, value)                                                               \
    do {                                                                                           \
        if (failpoint_is_armed) {                                                                  \
            failpoint_reach(FAILPOINT_##name, (value));                                            \
        }                                                                                          \
    } while (0)

#endif
