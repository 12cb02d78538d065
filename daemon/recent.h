/* SPDX-License-Identifier: Apache-2.0 */
/* recent - the last requests that ended, for operators who ask what became of one. */
#ifndef DAEMON_RECENT_H
#define DAEMON_RECENT_H

#include "daemon/calls.h"
#include "daemon/sched.h"

#define RECENT_REQUESTS_MAX  256
#define RECENT_DOCUMENTS_MAX 256 /* of one request; of the others nothing is kept */
#define RECENT_MESSAGE_BYTES 128

struct recent_document {
    struct dockey key;
    uint32_t tokens, tokens_reused;
    enum kvpool_miss reason;
    bool is_copied;
    char *name; /* the client's, owned; NULL: none */
};

struct recent_request {
    uint64_t id;
    enum sched_end end;
    char message[RECENT_MESSAGE_BYTES];
    uint64_t arrival_us, ended_us;
    struct call_trace trace;
    struct session_usage usage;
    enum reuse_mode reuse;
    bool is_admitted; /* the pool was looked into: only then the documents say what was found */
    struct recent_document *documents; /* [document_count], owned; none without memory */
    uint32_t document_count;
};

struct recent {
    struct recent_request requests[RECENT_REQUESTS_MAX]; /* a ring */
    uint64_t count;                                      /* that there ever were */
};

void recent_deinit(struct recent *recent);

/* Notes a request that ends: `action` is its SCHED_REPLY_END, and has a session. */
void recent_note(struct recent *recent, const struct call *call, const struct sched_action *action,
                 uint64_t now_us);

/* NULL: it is not, or not any more, among them. */
const struct recent_request *recent_find(const struct recent *recent, uint64_t id);

/* The last one that ended; NULL: there was none. */
const struct recent_request *recent_last(const struct recent *recent);

#endif
