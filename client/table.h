/* SPDX-License-Identifier: Apache-2.0 */
/* table - the rows of a reply for people: messages as lines, their fields as columns. */
#ifndef CLIENT_TABLE_H
#define CLIENT_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#include "common/status.h"

#define TABLE_COLUMNS_MAX 32

struct table_style {
    bool has_headers;
    bool is_raw; /* cells parted by one blank, nothing in line: for scripts */
};

/* Prints `count` messages of one type to stdout.  `columns` names fields: "worker,state,running".
 * Numbers stand on the right.  ST_INVALID: an unknown column (the detail lists the known ones). */
enum status table_print(const ProtobufCMessageDescriptor *type, ProtobufCMessage *const *rows,
                        size_t count, const char *columns, struct table_style style);

#endif
