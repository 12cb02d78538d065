/* SPDX-License-Identifier: Apache-2.0 */
/* traffic - the last requests' documents, and what they say.
 *
 * A ring of references, 16 bytes each, written by the pool's thread as requests are admitted.  A
 * copy of it (one memcpy) goes to whoever wants to think about it, in another thread: numbered
 * anew it is a trace for kvpool/replay.  Keys are cut to eight bytes; two documents that share them
 * would look like one, once in 2^64 pairs. */
#ifndef KVPOOL_TRAFFIC_H
#define KVPOOL_TRAFFIC_H

#include "kvpool/kvpool.h"
#include "kvpool/replay.h"

#define TRAFFIC_REFERENCES    (1u << 17) /* 2 MiB: 13107 requests of ten documents */
#define TRAFFIC_DOCUMENTS_MAX 20000 /* that a trace tells apart: some 500 bytes each to replay it */
#define TRAFFIC_REUSE_LEVELS  24    /* 0, 1, 2..3, 4..7, ... requests */

struct traffic;

/* ST_NO_MEMORY. */
enum status traffic_new(struct traffic **traffic_out);
void traffic_destroy(struct traffic **traffic);

/* A request was admitted while `in_flight` requests, itself included, held blocks, `own_blocks` of
 * which were no document's.  Its documents follow. */
void traffic_request(struct traffic *traffic, uint32_t in_flight, uint32_t own_blocks);

/* One of its documents; the want as kvpool_claim left it. */
void traffic_document(struct traffic *traffic, const struct kvpool_want *want);

/* Requests with documents since the start. */
uint64_t traffic_requests(const struct traffic *traffic);

struct traffic_reference {
    uint64_t key;
    uint32_t tokens;
    uint32_t ready : 31;   /* tokens found */
    uint32_t is_first : 1; /* of its request */
};

/* The ring's contents, oldest first. */
struct traffic_window {
    struct traffic_reference *references; /* owned */
    uint32_t count;
    double in_flight, own_blocks; /* averages of late */
};

/* ST_NO_MEMORY. */
enum status traffic_copy(const struct traffic *traffic, struct traffic_window *window_out);
void traffic_window_deinit(struct traffic_window *window);

/* Whole requests of a window as a trace, a document once a request. */
struct traffic_trace {
    struct replay_trace trace;
    uint32_t *ready; /* [references of the trace] tokens found */
};

/* The last requests of the window that cite TRAFFIC_DOCUMENTS_MAX documents or fewer.
 * ST_NO_MEMORY. */
enum status traffic_number(const struct traffic_window *window, struct traffic_trace *trace_out);
void traffic_trace_deinit(struct traffic_trace *trace);

/* Share of the tokens of requests [from, to) that were found. */
double traffic_hit_ratio(const struct traffic_trace *trace, uint32_t from, uint32_t to);

/* The Zipf exponent of the documents' popularities; 0 if there are too few to tell.  A maximum
 * likelihood fit of a Pareto law, cut off on both sides: below, counts are mostly chance; above, a
 * request holds a document once, so the most popular ones are counted short.  Within 0.1 for 0.6 to
 * 1.5; meaningless under loops, which are a second kind of traffic. */
double traffic_alpha(const struct replay_trace *trace);

/* How many references came 0, 1, 2..3, 4..7, ... requests after the one before. */
void traffic_reuse(const struct replay_trace *trace, uint64_t counts[TRAFFIC_REUSE_LEVELS]);

#endif
