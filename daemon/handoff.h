/* SPDX-License-Identifier: Apache-2.0 */
/* handoff - kvasird's side of the attach talk, and the keeper of the arenas' fds.
 *
 * The first worker makes the KV and the weights arena and hands their fds over; they are kept here
 * until handoff_destroy, and every later worker gets them.  One worker at a time makes arenas:
 * others wait in order of arrival until it has offered both or is gone.  Both are taken, or nothing
 * is. Peers are our own uid or root; what they send is checked and refused by name.
 *
 * One thread, never blocks.  A turn of the caller's loop: handoff_poll_fill, poll (until
 * handoff_wakeup_us), handoff_poll_done, then handoff_next until it is false. */
#ifndef DAEMON_HANDOFF_H
#define DAEMON_HANDOFF_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"

#define HANDOFF_CONNECTIONS_MAX 64 /* talks at once; the next ones wait in the backlog */
#define HANDOFF_POLL_MAX        (1 + 2 * HANDOFF_CONNECTIONS_MAX)
#define HANDOFF_GREETING_US     10000000u /* from connect to Attach */
#define HANDOFF_DEVICE_BYTES    32
#define HANDOFF_BACKEND_BYTES   16
#define HANDOFF_REASON_BYTES    512

struct handoff_config {
    const char *path;       /* the socket's, not there yet */
    const char *model_path; /* as the workers must open it */
    const char *worker_endpoint;
    uint8_t checkpoint[32];
    uint8_t checkpoint_identity[32]; /* zeros: unknown, and each worker hashes for itself */
    uint8_t tokenizer[32];
    uint32_t kv_type;   /* enum kv_type of kernels/kv_layout.h */
    uint32_t kv_layout; /* enum kv_layout_id */
    uint32_t block_tokens;
    uint32_t step_tokens;
    uint32_t heartbeat_ms;
    uint64_t kv_memory; /* bytes of KV that the first worker makes; 0: by kv_percent */
    bool is_deterministic;
    double kv_percent; /* of what is then free there; its worker says what it took */
    uint32_t step_timeout_ms;
    uint32_t orphan_timeout_ms; /* how long workers outlive us */
    uint64_t load_timeout_ms;   /* from the first AttachReply to Attached; 0: ten minutes */
};

enum handoff_event_kind {
    HANDOFF_ATTACHED,
    HANDOFF_REJOINED, /* `worker`, `incarnation`, `seqs_max` and `pidfd` count */
    HANDOFF_REFUSED,  /* we ended the talk; the worker was told the reason */
    HANDOFF_LOST,     /* the worker ended it; `reason` says where */
};

struct handoff_event {
    enum handoff_event_kind kind;
    pid_t pid;
    char device[HANDOFF_DEVICE_BYTES]; /* "" if it did not come to Attach */
    char backend[HANDOFF_BACKEND_BYTES];
    char reason[HANDOFF_REASON_BYTES]; /* of HANDOFF_REFUSED and HANDOFF_LOST */

    /* Of HANDOFF_ATTACHED: */
    uint32_t worker;      /* the lowest free number below SCHED_WORKERS_MAX */
    uint64_t incarnation; /* never 0, never twice, not even after a restart of kvasird */
    int pidfd;            /* readable when its process is gone; the receiver's to close */
    uint32_t seqs_max;    /* 1..SCHED_WORKER_SEQS_MAX */
    uint32_t block_count; /* the same for all workers */
    uint64_t block_bytes;
    bool maps_host; /* of HANDOFF_REJOINED: the host tier's memory too */
};

struct handoff;

/* Binds and listens, mode 0600.  The config's strings are copied.  ST_INVALID: a path too long for
 * a socket; ST_SYSTEM: also when the path exists (whoever holds the directory's lock removes a
 * stale one); ST_NO_MEMORY. */
enum status handoff_new(const struct handoff_config *config, struct handoff **handoff_out);

/* Ends all talks, closes all fds, so memory that no worker maps is gone; removes the socket. */
void handoff_destroy(struct handoff **handoff);

/* Writes as many items as handoff_poll_count says, at most HANDOFF_POLL_MAX. */
size_t handoff_poll_count(const struct handoff *handoff);
void handoff_poll_fill(const struct handoff *handoff, struct pollfd *items);

/* After poll: the same items, `count` of them; with nothing ready it still keeps the deadlines. */
void handoff_poll_done(struct handoff *handoff, const struct pollfd *items, size_t count,
                       uint64_t now_us);

/* The time of the next deadline; UINT64_MAX: none. */
uint64_t handoff_wakeup_us(const struct handoff *handoff);

/* Takes the next event; false if there is none.  Not between poll_fill and poll_done. */
bool handoff_next(struct handoff *handoff, struct handoff_event *event_out);

/* The process of an attached worker is gone: its number is free again. */
void handoff_worker_gone(struct handoff *handoff, uint32_t worker);

/* True once after the last process that mapped the arenas is gone, if their fds do not keep the
 * memory (ipc): what was in the pool is lost, and the next worker makes arenas anew.  To be asked
 * after handoff_worker_gone and before handoff_next. */
bool handoff_lost_arenas(struct handoff *handoff);

/* --- after a restart (handoff_rejoin.c) ------------------------------------------------------- */

struct arenas;

/* Memory of the host tier, which every worker that comes from now on maps; borrowed.  Unless it is
 * that of the earlier kvasird, a worker that has some of his mapped is not taken back: it would
 * keep all of it, and what was forgotten since. */
void handoff_use_host(struct handoff *handoff, int fd, uint64_t bytes, bool is_adopted);

/* The pool's name; before the first turn.  16 bytes. */
void handoff_name_pool(struct handoff *handoff, const uint8_t *id);

/* Keeps what an earlier kvasird kept, as if a worker had just offered it; the fds are taken over.
 * Before the first turn.  ST_INVALID: they are not what is said; the fds stay the caller's. */
enum status handoff_adopt(struct handoff *handoff, const struct arenas *arenas, const char *device);

/* A worker of the earlier kvasird lives: its number is taken, and it may come back under it. */
void handoff_expect(struct handoff *handoff, uint32_t worker, uint64_t incarnation, pid_t pid);

/* The device of the arenas; "" as long as there are none; borrowed. */
const char *handoff_device(const struct handoff *handoff);

/* What is kept; borrowed. */
const struct arenas *handoff_arenas(const struct handoff *handoff);

const uint8_t *handoff_pool_id(const struct handoff *handoff); /* borrowed */

/* What this kvasird calls itself to workers that come back; never 0. */
uint64_t handoff_life(const struct handoff *handoff);

/* Whether they would outlive their workers. */
bool handoff_keeps_arenas(const struct handoff *handoff);

/* The arenas that are kept, KV then weights; -1: not there yet.  Borrowed until handoff_destroy. */
void handoff_arena_fds(const struct handoff *handoff, int fds_out[2]);

/* What every worker of this pool must arrive at; borrowed. */
const uint8_t *handoff_pool_fingerprint(const struct handoff *handoff);

#endif
