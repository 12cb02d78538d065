/* SPDX-License-Identifier: Apache-2.0 */
/* wire - bytes to messages and back; trusts nothing that comes in.
 *
 * protobuf-c has no depth limit and amplifies memory (2 MB of empty entries became 45 MB of heap),
 * so: no message type of ours is recursive (a test walks the descriptors), frames are capped before
 * parsing, and parsing allocates from an arena with a budget that is freed at once. */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "common/status.h"

#define WIRE_VERSION          1
#define WIRE_HEADER_BYTES_MAX (64u << 10)
#define WIRE_CLIENT_BYTES_MAX (16u << 20) /* payload of a client's request or reply */
#define WIRE_ADMIN_BYTES_MAX  (1u << 20)
#define WIRE_WORKER_BYTES_MAX (64u << 20)
#define WIRE_BUDGET_FACTOR    8 /* heap a parse may use: this times the frame, */
#define WIRE_BUDGET_BYTES_MIN                                                                      \
    (1u << 20) /* but at least this: small messages have many small fields */

/* Memory of parsed messages: bump-allocated, freed whole. */
struct wire_arena;

enum status wire_arena_new(struct wire_arena **arena_out);
void wire_arena_destroy(struct wire_arena **arena);

/* Forgets every message parsed into it; keeps a little storage for the next. */
void wire_arena_reset(struct wire_arena *arena);

/* Parses one frame.  *message_out is borrowed from the arena until its reset; never call
 * protobuf_c_message_free_unpacked on it.  ST_INVALID: longer than bytes_max, not a message of this
 * type, a string that is not UTF-8 or holds a NUL, or over the memory budget (the detail names the
 * type, the length and the limit).  ST_NO_MEMORY. */
enum status wire_unpack(struct wire_arena *arena, const ProtobufCMessageDescriptor *type,
                        const void *bytes, size_t length, size_t bytes_max,
                        const ProtobufCMessage **message_out);

/* True for UTF-8 without NUL: what a `string` field may hold. */
bool wire_is_text(const void *bytes, size_t length);

/* A growing buffer for outgoing frames; zero it to start. */
struct wire_buffer {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
};

/* Replaces the buffer's contents by the packed message.  ST_NO_MEMORY. */
enum status wire_pack(struct wire_buffer *buffer, const ProtobufCMessage *message);
void wire_buffer_deinit(struct wire_buffer *buffer);

/* Canonical gRPC status codes. */
enum rpc_code {
    RPC_OK = 0,
    RPC_CANCELLED = 1,
    RPC_UNKNOWN = 2,
    RPC_INVALID_ARGUMENT = 3,
    RPC_DEADLINE_EXCEEDED = 4,
    RPC_NOT_FOUND = 5,
    RPC_ALREADY_EXISTS = 6,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_FAILED_PRECONDITION = 9,
    RPC_ABORTED = 10,
    RPC_OUT_OF_RANGE = 11,
    RPC_UNIMPLEMENTED = 12,
    RPC_INTERNAL = 13,
    RPC_UNAVAILABLE = 14,
    RPC_DATA_LOSS = 15,
    RPC_UNAUTHENTICATED = 16,
};

const char *rpc_code_name(uint32_t code); /* "RESOURCE_EXHAUSTED"; "code 99" never: "UNKNOWN" */
enum rpc_code rpc_code_of(enum status kind);

#endif
