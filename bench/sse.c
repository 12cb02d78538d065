/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/mem.h"

#define DATA_PREFIX "data:"

void
sse_begin(struct sse *sse, sse_event_fn on_event, void *opaque)
{
    *sse = (struct sse){.on_event = on_event, .opaque = opaque};
}

void
sse_deinit(struct sse *sse)
{
    mem_free(sse->line);
    mem_free(sse->body);
    *sse = (struct sse){0};
}

/* Appends and keeps a NUL behind it. */
static enum status
append(char **text, size_t *length, size_t *room, const char *bytes, size_t count)
{
    if (*length + count + 1 > *room) {
        size_t wanted = 2 * (*length + count + 1);

        if (wanted > SSE_LINE_MAX) {
            return ERR(ST_INVALID, "a line of more than %u bytes in the answer", SSE_LINE_MAX / 2);
        }
        void *grown = mem_realloc(*text, wanted, 1);

        if (grown == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for an answer");
        }
        *text = grown;
        *room = wanted;
    }
    memcpy(*text + *length, bytes, count);
    *length += count;
    (*text)[*length] = '\0';
    return ST_OK;
}

const char *
sse_body(const struct sse *sse)
{
    return sse->body == NULL ? "" : sse->body;
}

/* A whole line of the body. */
static void
take_event_line(struct sse *sse)
{
    size_t length = sse->body_length;
    const char *line = sse->body;

    sse->body_length = 0;
    if (length > 0 && line[length - 1] == '\r') {
        sse->body[--length] = '\0';
    }
    if (length >= strlen(DATA_PREFIX) && memcmp(line, DATA_PREFIX, strlen(DATA_PREFIX)) == 0) {
        line += strlen(DATA_PREFIX);
        length -= strlen(DATA_PREFIX);
        if (length > 0 && *line == ' ') {
            line++;
            length--;
        }
        sse->on_event(sse->opaque, line, length);
    }
}

static enum status
take_body(struct sse *sse, const char *bytes, size_t length)
{
    if (!sse->is_events) {
        size_t left = SSE_LINE_MAX / 4 - sse->body_length;

        return append(&sse->body, &sse->body_length, &sse->body_room, bytes,
                      length < left ? length : left);
    }
    while (length > 0) {
        const char *end = memchr(bytes, '\n', length);
        size_t n = end == NULL ? length : (size_t)(end - bytes);

        TRY(append(&sse->body, &sse->body_length, &sse->body_room, bytes, n));
        if (end != NULL) {
            take_event_line(sse);
            n++;
        }
        bytes += n;
        length -= n;
    }
    return ST_OK;
}

static enum status
take_status_line(struct sse *sse)
{
    /* HTTP/1.1 200 OK */
    if (sse->length < 12 || memcmp(sse->line, "HTTP/1.", 7) != 0 || sse->line[8] != ' ') {
        return ERR(ST_INVALID, "the answer is not HTTP/1.1");
    }
    sse->status = (int)strtol(sse->line + 9, NULL, 10);
    sse->state = SSE_HEADER;
    return ST_OK;
}

static const char *
header_value(const char *line, const char *name)
{
    size_t length = strlen(name);

    if (strncasecmp(line, name, length) != 0 || line[length] != ':') {
        return NULL;
    }
    return line + length + 1 + strspn(line + length + 1, " \t");
}

static enum status
take_header(struct sse *sse)
{
    const char *value;

    if (sse->length == 0) {
        if (sse->status == 100) {
            sse->state = SSE_STATUS_LINE;
            return ST_OK;
        }
        sse->state = sse->is_chunked ? SSE_CHUNK_SIZE : SSE_BODY;
        sse->is_done = !sse->is_chunked && !sse->ends_at_close && sse->left == 0;
        return ST_OK;
    }
    if ((value = header_value(sse->line, "Transfer-Encoding")) != NULL) {
        sse->is_chunked = strncasecmp(value, "chunked", 7) == 0;
    } else if ((value = header_value(sse->line, "Content-Length")) != NULL) {
        sse->left = strtoul(value, NULL, 10);
        sse->ends_at_close = false;
    } else if ((value = header_value(sse->line, "Content-Type")) != NULL) {
        sse->is_events = strncasecmp(value, "text/event-stream", 17) == 0;
    }
    return ST_OK;
}

/* A whole line that is not of the body. */
static enum status
take_line(struct sse *sse)
{
    if (sse->length > 0 && sse->line[sse->length - 1] == '\r') {
        sse->line[--sse->length] = '\0';
    }
    switch (sse->state) {
    case SSE_STATUS_LINE:
        sse->ends_at_close = true; /* until a length is given */
        return take_status_line(sse);
    case SSE_HEADER: return take_header(sse);
    case SSE_CHUNK_SIZE: {
        char *end;

        sse->left = strtoul(sse->line, &end, 16);
        if (end == sse->line) {
            return ERR(ST_INVALID, "the answer's chunks are broken");
        }
        sse->state = sse->left == 0 ? SSE_TRAILER : SSE_BODY;
        return ST_OK;
    }
    case SSE_CHUNK_END: sse->state = SSE_CHUNK_SIZE; return ST_OK;
    case SSE_TRAILER: sse->is_done = sse->length == 0; return ST_OK;
    case SSE_BODY: break;
    }
    return ST_OK;
}

static enum status
feed_line(struct sse *sse, const char *bytes, size_t length, size_t *taken_out)
{
    const char *end = memchr(bytes, '\n', length);
    size_t n = end == NULL ? length : (size_t)(end - bytes);

    TRY(append(&sse->line, &sse->length, &sse->room, bytes, n));
    *taken_out = n;
    if (end != NULL) {
        enum status st = take_line(sse);

        sse->length = 0;
        *taken_out = n + 1;
        return st;
    }
    return ST_OK;
}

static enum status
feed_body(struct sse *sse, const char *bytes, size_t length, size_t *taken_out)
{
    bool is_counted = sse->is_chunked || !sse->ends_at_close;
    size_t n = is_counted && sse->left < length ? sse->left : length;

    TRY(take_body(sse, bytes, n));
    *taken_out = n;
    if (is_counted) {
        sse->left -= n;
        if (sse->left == 0 && sse->is_chunked) {
            sse->state = SSE_CHUNK_END;
        } else if (sse->left == 0) {
            sse->is_done = true;
        }
    }
    return ST_OK;
}

enum status
sse_feed(struct sse *sse, const char *bytes, size_t length)
{
    while (length > 0 && !sse->is_done) {
        size_t taken = 0;

        if (sse->state == SSE_BODY) {
            TRY(feed_body(sse, bytes, length, &taken));
        } else {
            TRY(feed_line(sse, bytes, length, &taken));
        }
        bytes += taken;
        length -= taken;
    }
    return ST_OK;
}

enum status
sse_close(struct sse *sse)
{
    if (!sse->is_done && sse->state == SSE_BODY && sse->ends_at_close && !sse->is_chunked) {
        sse->is_done = true;
    }
    return sse->is_done ? ST_OK : ERR(ST_INVALID, "the connection ended before the answer did");
}
