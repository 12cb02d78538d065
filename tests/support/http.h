/* SPDX-License-Identifier: Apache-2.0 */
/* http - a plain HTTP/1.1 client for tests: bytes out, responses in, one after the other.
 *
 * Nothing is clever: what a test sends is what goes out.  Every wait has a limit and fails the
 * test; functions fail the test instead of returning errors. */
#ifndef TESTS_SUPPORT_HTTP_H
#define TESTS_SUPPORT_HTTP_H

#include <stdbool.h>
#include <stddef.h>

struct http;

/* Connects to 127.0.0.1. */
struct http *http_open(unsigned port);

/* One that does not mean to read: else the kernel may take in tens of megabytes for it. */
struct http *http_open_unread(unsigned port);
void http_close(struct http **http);

/* The other half stays open: we still read. */
void http_shut_down(struct http *http);

/* Bytes as they are. */
void http_send(struct http *http, const char *bytes, size_t length);

/* A request; `headers` are whole lines with their CRLF, or NULL; a body gets a Content-Length. */
void http_request(struct http *http, const char *method, const char *path, const char *headers,
                  const char *body);

/* The next response whole; its status.  Header and body are borrowed until the next one. */
unsigned http_response(struct http *http);
const char *http_head(const struct http *http); /* status line and headers */
const char *http_body(const struct http *http); /* without its chunks' frames; NUL-terminated */

/* The head of a response whose body comes by and by; its status. */
unsigned http_response_head(struct http *http);
/* Reads until the body so far holds `text`; the body so far. */
const char *http_wait_body(struct http *http, const char *text);
/* Whether the body has ended as it should, or the connection before it did. */
bool http_wait_end(struct http *http);

/* Waits until the other side closes. */
void http_wait_closed(struct http *http);

int http_fd(const struct http *http);

/* All in one: a request on a connection of its own.  The body is the caller's to free. */
unsigned http_ask(unsigned port, const char *method, const char *path, const char *headers,
                  const char *body, char **body_out);

#endif
