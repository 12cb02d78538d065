/* SPDX-License-Identifier: Apache-2.0 */
/* text - a growing byte buffer for what is sent over HTTP: JSON, events, metrics.
 *
 * Zero it to start.  Without memory it stops growing and says so once, at the end: callers look at
 * has_failed when they send, not at each piece. */
#ifndef GATEWAY_TEXT_H
#define GATEWAY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes;
    size_t length;
    size_t capacity;
    bool has_failed;
};

void text_deinit(struct text *text);
void text_append(struct text *text, const void *bytes, size_t length);
void text_add(struct text *text, const char *string);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void text_json(struct text *text, const void *bytes, size_t length);
void text_json_string(struct text *text, const char *string);

/* A finite number as JSON has it, shortest form that reads back the same float; else null. */
void text_json_float(struct text *text, float value);

/* Forgets the first `length` bytes. */
void text_drop(struct text *text, size_t length);

#endif
