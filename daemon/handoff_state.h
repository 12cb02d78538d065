/* SPDX-License-Identifier: Apache-2.0 */
/* handoff_state - what handoff.c (workers that come) and handoff_rejoin.c (workers that come back)
 * share; nobody else includes this. */
#ifndef DAEMON_HANDOFF_STATE_H
#define DAEMON_HANDOFF_STATE_H

#include "daemon/datagram.h"
#include "daemon/handoff.h"
#include "daemon/offer.h"
#include "daemon/sched.h"
#include "kvpool/catalog.h"
#include "proto/wire.h"

#include "kvasir/v1/worker.pb-c.h"

enum talk_state {
    TALK_GREETING,
    TALK_QUEUED,
    TALK_LOADING,
    TALK_ENDED,
};

struct connection {
    enum talk_state state;
    bool is_creator;      /* LOADING, and makes the arenas */
    bool has_number;      /* event.worker is reserved */
    int socket;           /* -1 once ENDED */
    uint64_t deadline_us; /* UINT64_MAX: none */
    struct handoff_event event;
};

/* A worker of an earlier kvasird that may come back. */
struct expected {
    uint64_t incarnation; /* 0: none */
    pid_t pid;
};

struct handoff {
    struct handoff_config config; /* without its strings */
    char *path;
    char *model_path;
    char *worker_endpoint;
    uint8_t pool_fingerprint[32];

    int listener;
    bool is_bound; /* the socket's file is ours to remove */
    uint64_t accept_after_us;
    struct connection connections[HANDOFF_CONNECTIONS_MAX];
    size_t connection_count;

    struct arenas arenas;
    bool is_host_adopted;              /* workers that come back have it mapped */
    int host_fd;                       /* of the host tier; borrowed */
    uint64_t host_bytes;               /* 0: there is none */
    char device[HANDOFF_DEVICE_BYTES]; /* where the arenas are */
    bool has_lost_arenas;              /* and the caller has not heard of it */

    uint8_t pool_id[CATALOG_POOL_ID_BYTES];
    struct expected expected[SCHED_WORKERS_MAX];
    bool is_taken[SCHED_WORKERS_MAX];
    uint64_t incarnation_next;
    uint64_t life;

    struct wire_arena *messages;
    struct datagram datagram; /* the one being read */
};

/* handoff.c */
void handoff_end_talk(struct connection *c, enum handoff_event_kind kind);

/* handoff_rejoin.c: an Attach with a pool's id. */
enum status handoff_take_back(struct handoff *h, struct connection *c,
                              const Kvasir__V1__Attach *attach);

#endif
