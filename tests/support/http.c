/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>

#include "tests/support/process.h"

#define HEAD_BYTES   16384
#define BUFFER_BYTES (64u << 10)
#define BODY_MAX     (64u << 20)

struct http {
    int fd;
    char *in; /* read and not used yet */
    size_t in_length;
    char head[HEAD_BYTES];
    char *body; /* NUL-terminated */
    size_t body_length, body_capacity;
    bool is_chunked;
    size_t left; /* of the body, or of the chunk */
    bool has_ended;
    bool is_broken; /* closed before its end */
};

/* A receive_bytes other than 0 is the most that the kernel takes in for this end. */
static struct http *
open_connection(unsigned port, int receive_bytes)
{
    struct http *http = calloc(1, sizeof(*http));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    ck_assert_ptr_nonnull(http);
    http->in = malloc(BUFFER_BYTES);
    http->body_capacity = 4096;
    http->body = malloc(http->body_capacity);
    ck_assert(http->in != NULL && http->body != NULL);
    http->body[0] = '\0';
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    http->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(http->fd, 0);
    if (receive_bytes != 0) { /* before the connection, whose window follows from it */
        ck_assert_int_eq(
            setsockopt(http->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes)), 0);
    }
    ck_assert_int_eq(connect(http->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    (void)setsockopt(http->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return http;
}

struct http *
http_open(unsigned port)
{
    return open_connection(port, 0);
}

struct http *
http_open_unread(unsigned port)
{
    return open_connection(port, 4096);
}

void
http_close(struct http **http)
{
    (void)close((*http)->fd);
    free((*http)->in);
    free((*http)->body);
    free(*http);
    *http = NULL;
}

void
http_shut_down(struct http *http)
{
    ck_assert_int_eq(shutdown(http->fd, SHUT_WR), 0);
}

int
http_fd(const struct http *http)
{
    return http->fd;
}

void
http_send(struct http *http, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(http->fd, bytes, length, MSG_NOSIGNAL);

        if (sent < 0) { /* refused before the end: the response says why */
            return;
        }
        bytes += sent;
        length -= (size_t)sent;
    }
}

void
http_request(struct http *http, const char *method, const char *path, const char *headers,
             const char *body)
{
    char head[HEAD_BYTES];
    size_t length = body == NULL ? 0 : strlen(body);
    int size = snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path,
                        headers == NULL ? "" : headers);

    ck_assert(size > 0 && (size_t)size < sizeof(head));
    http_send(http, head, (size_t)size);
    size = body == NULL ? snprintf(head, sizeof(head), "\r\n")
                        : snprintf(head, sizeof(head), "Content-Length: %zu\r\n\r\n", length);
    http_send(http, head, (size_t)size);
    http_send(http, body, length);
}

/* Waits for bytes; false at the end of the connection. */
static bool
fill(struct http *http)
{
    struct pollfd fd = {.fd = http->fd, .events = POLLIN};

    ck_assert_uint_lt(http->in_length, BUFFER_BYTES);
    ck_assert_msg(poll(&fd, 1, process_patience_ms()) == 1,
                  "no bytes within %d ms; body so far: %s", process_patience_ms(), http->body);
    ssize_t got = recv(http->fd, http->in + http->in_length, BUFFER_BYTES - http->in_length, 0);

    if (got <= 0) {
        return false;
    }
    http->in_length += (size_t)got;
    return true;
}

static void
use(struct http *http, size_t length)
{
    memmove(http->in, http->in + length, http->in_length - length);
    http->in_length -= length;
}

/* The length of what is there up to and with `end`, 0 if it is not. */
static size_t
find(const struct http *http, const char *end)
{
    const char *found = memmem(http->in, http->in_length, end, strlen(end));

    return found == NULL ? 0 : (size_t)(found - http->in) + strlen(end);
}

/* The value of a header, or NULL. */
static const char *
header(const struct http *http, const char *name)
{
    for (const char *line = strstr(http->head, "\r\n"); line != NULL && line[2] != '\0';
         line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, strlen(name)) == 0 && line[2 + strlen(name)] == ':') {
            return line + 2 + strlen(name) + 1;
        }
    }
    return NULL;
}

unsigned
http_response_head(struct http *http)
{
    size_t length;

    http->body_length = 0;
    http->body[0] = '\0';
    while ((length = find(http, "\r\n\r\n")) == 0) {
        ck_assert_msg(fill(http), "closed without a response");
    }
    ck_assert_uint_lt(length, sizeof(http->head));
    memcpy(http->head, http->in, length);
    http->head[length] = '\0';
    use(http, length);
    ck_assert_msg(strncmp(http->head, "HTTP/1.1 ", 9) == 0, "%s", http->head);
    const char *size = header(http, "Content-Length");
    const char *encoding = header(http, "Transfer-Encoding");

    http->is_chunked = encoding != NULL && strncasecmp(encoding, " chunked", 8) == 0;
    http->left = size == NULL ? 0 : strtoul(size, NULL, 10);
    http->has_ended = !http->is_chunked && http->left == 0;
    http->is_broken = false;
    return (unsigned)strtoul(http->head + 9, NULL, 10);
}

static void
make_room(struct http *http, size_t length)
{
    while (http->body_length + length + 1 > http->body_capacity) {
        http->body_capacity *= 2;
        ck_assert_uint_le(http->body_capacity, BODY_MAX);
        http->body = realloc(http->body, http->body_capacity);
        ck_assert_ptr_nonnull(http->body);
    }
}

/* Moves what is there of the body; false if more must be read first. */
static bool
take(struct http *http)
{
    size_t length = http->left < http->in_length ? http->left : http->in_length;

    if (http->left > 0) {
        make_room(http, length);
        memcpy(http->body + http->body_length, http->in, length);
        http->body_length += length;
        http->body[http->body_length] = '\0';
        http->left -= length;
        use(http, length);
        http->has_ended = !http->is_chunked && http->left == 0;
        return length > 0;
    }
    if (http->in_length >= 2 && memcmp(http->in, "\r\n", 2) == 0) {
        use(http, 2); /* behind a chunk */
        return true;
    }
    length = find(http, "\r\n");
    if (length == 0) {
        return false;
    }
    http->left = strtoul(http->in, NULL, 16);
    if (http->left == 0) {
        size_t all = find(http, "\r\n\r\n");

        if (all == 0) {
            return false;
        }
        length = all;
        http->has_ended = true;
    }
    use(http, length);
    return true;
}

bool
http_wait_end(struct http *http)
{
    while (!http->has_ended && !http->is_broken) {
        if (!take(http) && !fill(http)) {
            http->is_broken = true;
        }
    }
    return !http->is_broken;
}

unsigned
http_response(struct http *http)
{
    unsigned status = http_response_head(http);

    ck_assert_msg(http_wait_end(http), "the response broke off: %s", http->body);
    return status;
}

const char *
http_wait_body(struct http *http, const char *text)
{
    while (strstr(http->body, text) == NULL) {
        ck_assert_msg(!http->has_ended, "no \"%s\" in %s", text, http->body);
        if (!take(http)) {
            ck_assert_msg(fill(http), "closed before \"%s\"; there is %s", text, http->body);
        }
    }
    return http->body;
}

void
http_wait_closed(struct http *http)
{
    while (fill(http)) {
        http->in_length = 0;
    }
}

const char *
http_head(const struct http *http)
{
    return http->head;
}

const char *
http_body(const struct http *http)
{
    return http->body;
}

unsigned
http_ask(unsigned port, const char *method, const char *path, const char *headers, const char *body,
         char **body_out)
{
    struct http *http = http_open(port);

    http_request(http, method, path, headers, body);
    unsigned status = http_response(http);

    if (body_out != NULL) {
        *body_out = strdup(http_body(http));
        ck_assert_ptr_nonnull(*body_out);
    }
    http_close(&http);
    return status;
}
