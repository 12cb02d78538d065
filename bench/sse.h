/* SPDX-License-Identifier: Apache-2.0 */
/* sse - a stream of server-sent events in an HTTP/1.1 response, read as its bytes arrive.
 *
 * Pure: bytes in, events out.  Takes chunked bodies and such that end with Content-Length or with
 * the connection.  Of an event only its data lines matter. */
#ifndef BENCH_SSE_H
#define BENCH_SSE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

#define SSE_LINE_MAX (1u << 20) /* of a header or an event */

/* The data of one event, NUL-terminated; borrowed for the call. */
typedef void (*sse_event_fn)(void *opaque, const char *data, size_t length);

struct sse {
    int status; /* of the response; 0: not known yet */
    bool is_chunked;
    bool is_done;       /* the response is whole */
    bool ends_at_close; /* no length was given */
    enum {
        SSE_STATUS_LINE,
        SSE_HEADER,
        SSE_BODY,
        SSE_CHUNK_SIZE,
        SSE_CHUNK_END,
        SSE_TRAILER,
    } state;
    size_t left; /* of the body or chunk */
    char *line;  /* what came of a line */
    size_t length, room;
    char *body; /* of an event stream: the line in hand; of any other answer: its beginning */
    size_t body_length, body_room;
    bool is_events;
    sse_event_fn on_event;
    void *opaque;
};

void sse_begin(struct sse *sse, sse_event_fn on_event, void *opaque);
void sse_deinit(struct sse *sse);

/* ST_INVALID: not HTTP/1.x, or a line beyond SSE_LINE_MAX; ST_NO_MEMORY. */
enum status sse_feed(struct sse *sse, const char *bytes, size_t length);

/* The connection was closed.  ST_INVALID if the response was not whole. */
enum status sse_close(struct sse *sse);

/* The body of an answer that is no event stream: what a server says when it refuses. */
const char *sse_body(const struct sse *sse);

#endif
