/* SPDX-License-Identifier: Apache-2.0 */
/* pbjson - any protobuf message as JSON, by its descriptor.
 *
 * Fields keep their .proto names and order.  Absent ones are left out, repeated ones are always
 * there. 64-bit numbers are numbers; enums are their names; bytes are lower-case hex, except fields
 * named `text` and `top_texts`, which are strings; NaN and infinities are null. */
#ifndef CLIENT_PBJSON_H
#define CLIENT_PBJSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <protobuf-c/protobuf-c.h>

#define PBJSON_CELL_BYTES 128

/* One object on one line, with a newline behind.  `members` is JSON text of members that come
 * first, e.g. "\"schema\":1", or NULL. */
void pbjson_print(FILE *out, const char *members, const ProtobufCMessage *message);

/* A string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void pbjson_print_string(FILE *out, const char *text, size_t length);

/* One field that is not repeated, as a table shows it: "" if absent, cut at the buffer. */
void pbjson_cell(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                 char cell_out[PBJSON_CELL_BYTES]);

/* The values of a repeated message field; returns how many. */
size_t pbjson_repeated(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       ProtobufCMessage *const **values_out);

#endif
