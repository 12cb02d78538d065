/* SPDX-License-Identifier: Apache-2.0 */
/* mailbox - two bounded queues between the link thread (zmq) and the engine thread (steps).
 *
 * In: parsed messages, each in an arena of its own, so that nothing is copied twice.  Out: packed
 * messages.  The link never blocks here: full is an answer.  The engine waits for work and
 * for room. An eventfd wakes the link. */
#ifndef WORKER_MAILBOX_H
#define WORKER_MAILBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "proto/wire.h"

#include "kvasir/v1/worker.pb-c.h"

#define MAILBOX_IN_MAX  256 /* messages; more wait in the socket */
#define MAILBOX_OUT_MAX 64  /* steps whose reports have not been sent */

struct mailbox;

/* What the link says of the engine in heartbeats. */
struct mailbox_state {
    uint64_t steps;
    uint32_t open; /* requests and builds */
    bool is_stepping;
    bool is_idle;  /* nothing open, no message waiting */
    bool is_ended; /* the engine thread is over, with: */
    enum status status;
    char detail[256];
};

enum status mailbox_new(struct mailbox **mailbox_out);
void mailbox_destroy(struct mailbox **mailbox); /* both threads are done with it */

/* --- link ---------------------------------------------------------------------------- */

/* Readable when there is something to send or the engine's state has changed. */
int mailbox_fd(const struct mailbox *mailbox);
void mailbox_clear_fd(struct mailbox *mailbox);

/* The arena to parse the next message into, or NULL while the queue is full. */
struct wire_arena *mailbox_next_arena(struct mailbox *mailbox);
/* Hands over what was parsed into it. */
void mailbox_deliver(struct mailbox *mailbox, const Kvasir__V1__DaemonMessage *message);

/* The oldest packed message, or NULL; sent and done with: mailbox_sent. */
const struct wire_buffer *mailbox_outgoing(struct mailbox *mailbox);
void mailbox_sent(struct mailbox *mailbox);

struct mailbox_state mailbox_state(struct mailbox *mailbox);

/* Ends the engine thread after its present step. */
void mailbox_close(struct mailbox *mailbox);

/* --- engine -------------------------------------------------------------------------- */

/* Looks out for a message without sleeping; back when one is there, or after so long, or once the
 * mailbox is closed. */
void mailbox_spin(struct mailbox *mailbox, uint64_t busy_us);

/* The oldest message; NULL if there is none, or, with may_wait, once the mailbox is closed or
 * somebody has nudged.  Done with, it is given back; what returns is how many steps there had been
 * when it came. */
const Kvasir__V1__DaemonMessage *mailbox_take(struct mailbox *mailbox, bool may_wait);
uint64_t mailbox_taken(struct mailbox *mailbox);

bool mailbox_is_closed(struct mailbox *mailbox);

/* Ends the present or the next wait for a message; from any thread. */
void mailbox_nudge(struct mailbox *mailbox);

/* A buffer to pack into, once there is room; NULL when closed.  mailbox_post queues it. */
struct wire_buffer *mailbox_buffer(struct mailbox *mailbox);
void mailbox_post(struct mailbox *mailbox);

void mailbox_set_state(struct mailbox *mailbox, uint64_t steps, uint32_t open, bool is_stepping);

/* The last call of the engine thread: why it is over. */
void mailbox_end(struct mailbox *mailbox, enum status status, const char *detail);

#endif
