/* SPDX-License-Identifier: Apache-2.0 */
/* calls - the open calls of clients: who waits for an answer, and under which name it knows the
 * call.
 *
 * A call's id is the daemon's name for it, and the request's in the scheduler; the client's own id
 * is unique among its open calls only.  A call is open from its header to its last reply. */
#ifndef DAEMON_CALLS_H
#define DAEMON_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/htab.h"
#include "common/status.h"
#include "daemon/router.h"
#include "daemon/tenant.h"
#include "proto/methods.h"

#define CALLS_MAX           16384 /* open at once, of all clients */
#define CALLS_RETRY_KEY_MAX 64

/* Points on the way to the first token (trace.h); 0: not passed. */
struct call_trace {
    uint64_t read_us, assigned_us, heard_us, begun_us, ended_us, returned_us, sent_us;
};

struct call {
    uint64_t id;
    struct htab_node by_id, by_name;
    struct address address;
    uint64_t client_id; /* RequestHeader.request_id */
    enum method_id method;
    uint64_t arrival_us, deadline_us;
    struct call_trace trace;
    uint64_t last_token_us;   /* when its last token was sent; 0: none yet */
    uint32_t seq;             /* replies sent */
    bool is_scheduled;        /* the scheduler has it; before, ingest */
    uint32_t texts_forgotten; /* of Forget */
    bool is_lost;             /* its client is gone: to be cancelled */
    bool is_in_hand;          /* by whoever works for it now, so not before he is done */
    struct htab_node by_key;
    uint8_t retry_key[CALLS_RETRY_KEY_MAX]; /* RequestHeader.retry_key */
    uint8_t retry_key_length;               /* 0: none */
    char tenant[TENANT_NAME_MAX];           /* "": of nobody, its salt is as it says */
};

struct calls;

enum status calls_new(struct calls **calls_out);
void calls_destroy(struct calls **calls);

/* Opens a call.  ST_INVALID: the client has an open one of this id; ST_NO_MEMORY: CALLS_MAX. */
enum status calls_open(struct calls *calls, const struct address *address, uint64_t client_id,
                       struct call **call_out);

/* Names the call by its retry key, which outlives connections, within its tenant.  An open one of
 * that name is an earlier attempt, and is marked as lost: one call has one answer.  ST_INVALID: too
 * long; ST_NO_MEMORY. */
enum status calls_set_retry_key(struct calls *calls, struct call *call, const void *key,
                                size_t length);

/* Closes it and frees it. */
void calls_close(struct calls *calls, struct call *call);

struct call *calls_find(const struct calls *calls, uint64_t id);
struct call *calls_find_of(const struct calls *calls, const struct address *address,
                           uint64_t client_id);

/* Marks every call of a connection, or of a client's address, as lost; returns how many. */
uint32_t calls_lose_connection(struct calls *calls, enum router_socket socket, int connection);
uint32_t calls_lose_client(struct calls *calls, const struct address *address);

/* Any call that is marked and in nobody's hand, or NULL. */
struct call *calls_next_lost(const struct calls *calls);

/* Any open call, or NULL: to end them all. */
struct call *calls_any(const struct calls *calls);

uint32_t calls_count(const struct calls *calls);

#endif
