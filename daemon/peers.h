/* SPDX-License-Identifier: Apache-2.0 */
/* peers - the workers as the daemon knows them: attached, ready, silent, gone.
 *
 *   expected --back on the attach socket--> returning --Step.reset_life--> ready
 *   attached --Ready--> ready --heartbeats missed, Bye--> silent
 *   any of them --pidfd: the process is gone--> free
 *
 * Only the pidfd says that a process is gone; silence moves its requests, its blocks stay fenced.
 * A silent worker that speaks again is told that it is fenced, and exits. */
#ifndef DAEMON_PEERS_H
#define DAEMON_PEERS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/router.h"
#include "daemon/sched.h"

#include "kvasir/v1/worker.pb-c.h"

enum peer_state {
    PEER_FREE,
    PEER_EXPECTED,  /* of an earlier kvasird; what it says is not for us */
    PEER_RETURNING, /* is back; says what it has let go of next */
    PEER_ATTACHED,  /* has its arenas; its Ready has not come */
    PEER_READY,
    PEER_SILENT, /* its requests are elsewhere; its process may still write */
};

struct peer_link {
    enum peer_state state;
    uint64_t incarnation;
    int pid;
    int pidfd;
    char device[32];
    struct address address; /* from its Ready on */
    uint64_t heard_us;      /* its last message */
    bool is_lost;           /* a message to it could not be sent */
    bool is_leaving;        /* it said Bye */
    bool is_drain_sent;
    uint32_t seqs_max; /* of one that is expected */
    bool maps_host;    /* likewise: the host tier's memory */
};

struct catalog_worker;

struct kvasird;
struct handoff_event;

const char *peers_state_name(enum peer_state state);

/* A worker has attached; the event's pidfd is taken over. */
void peers_attached(struct kvasird *d, const struct handoff_event *event);

/* A worker of an earlier kvasird lives; the pidfd is taken over. */
void peers_expect(struct kvasird *d, uint32_t worker, const struct catalog_worker *noted,
                  int pidfd);
/* It is back. */
void peers_rejoined(struct kvasird *d, const struct handoff_event *event);

/* It has said what it has kept: it takes requests from now on.  (peers_back.c) */
void peers_back(struct kvasird *d, uint32_t worker, const Kvasir__V1__Step *step);
/* Tells the scheduler how many have yet to come back. */
void peers_count_expected(struct kvasird *d);
/* One that the scheduler has not heard of must end. */
void peers_refuse(struct kvasird *d, uint32_t worker);

/* A message on the worker socket. */
void peers_message(struct kvasird *d, const struct message *message);

/* We were late by so much: a host that stood still (a virtual machine that was paused, a processor
 * that others had) has kept its workers from speaking, or us from hearing them. */
void peers_excuse(struct kvasird *d, uint64_t now_us, uint64_t late_us);

/* Heartbeats out, silence noticed.  To be called every heartbeat. */
void peers_beat(struct kvasird *d, uint64_t now_us);

/* The daemon stops and nothing runs any more: tells all workers to leave. */
void peers_farewell(struct kvasird *d);

/* The pidfds to wait for; then what has become of them. */
size_t peers_poll_fill(const struct kvasird *d, struct pollfd fds[SCHED_WORKERS_MAX]);
void peers_poll_done(struct kvasird *d, const struct pollfd *fds, size_t count);

/* Sends what is in d->payload to a worker; one that cannot be reached is marked lost. */
void peers_send(struct kvasird *d, uint32_t worker, uint64_t incarnation);

/* Gives up a worker that is marked lost; false if there is none. */
bool peers_lose_marked(struct kvasird *d);

/* Closes the pidfds. */
void peers_close(struct kvasird *d);

/* Drops the pool if its arenas went with the last worker. */
void peers_see_losses(struct kvasird *d);

#endif
