/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes over a frame.  The first walks the raw bytes along the descriptor and refuses what
 * protobuf-c would let through or silently cut: strings that are not UTF-8 or hold a NUL (its
 * strings are C strings). The second is protobuf-c itself, allocating from a bump arena that stops
 * at the budget.  Nothing is freed piecewise: protobuf-c's frees are no-ops, also on its error
 * paths. */
#include "proto/wire.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

#define ARENA_ALIGN       16u
#define ARENA_CHUNK_FIRST (64u << 10) /* kept over a reset */
#define FIELD_NUMBER_MAX  ((1u << 29) - 1)
#define ARENA_CHUNK_MAX   (1u << 20) /* larger requests get a chunk of their own */

struct chunk {
    struct chunk *next;
    size_t used;
    size_t capacity;
    _Alignas(ARENA_ALIGN) uint8_t bytes[];
};

struct wire_arena {
    struct chunk *newest; /* the last in this list is the one that is kept */
    size_t budget_left;   /* of the running parse */
    bool is_over_budget;
    bool is_out_of_memory;
    ProtobufCAllocator allocator;
};

static enum status
chunk_new(size_t capacity, struct chunk **chunk_out)
{
    /* Not zeroed: protobuf-c initialises what it uses. */
    struct chunk *chunk = mem_realloc(NULL, sizeof(*chunk) + capacity, 1);

    if (chunk == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu bytes of a message", capacity);
    }
    chunk->next = NULL;
    chunk->used = 0;
    chunk->capacity = capacity;
    *chunk_out = chunk;
    return ST_OK;
}

static void *
arena_alloc(void *opaque, size_t size)
{
    struct wire_arena *arena = opaque;
    struct chunk *chunk = arena->newest;

    if (size > arena->budget_left) {
        arena->is_over_budget = true;
        return NULL;
    }
    size_t padded = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);

    arena->budget_left -= padded < arena->budget_left ? padded : arena->budget_left;
    if (padded > chunk->capacity - chunk->used) {
        size_t capacity = chunk->capacity < ARENA_CHUNK_MAX ? chunk->capacity * 2 : ARENA_CHUNK_MAX;

        if (chunk_new(padded > capacity ? padded : capacity, &chunk) != ST_OK) {
            arena->is_out_of_memory = true;
            return NULL;
        }
        chunk->next = arena->newest;
        arena->newest = chunk;
    }
    void *storage = chunk->bytes + chunk->used;

    chunk->used += padded;
    return storage;
}

static void
arena_free(void *opaque, void *storage)
{
    (void)opaque;
    (void)storage;
}

enum status
wire_arena_new(struct wire_arena **arena_out)
{
    struct wire_arena *arena = mem_zalloc(1, sizeof(*arena));

    if (arena == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a message arena");
    }
    enum status st = chunk_new(ARENA_CHUNK_FIRST, &arena->newest);

    if (st != ST_OK) {
        wire_arena_destroy(&arena);
        return st;
    }
    arena->allocator =
        (ProtobufCAllocator){.alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
    *arena_out = arena;
    return ST_OK;
}

void
wire_arena_destroy(struct wire_arena **arena)
{
    if (*arena == NULL) {
        return;
    }
    for (struct chunk *chunk = (*arena)->newest; chunk != NULL;) {
        struct chunk *next = chunk->next;

        mem_free(chunk);
        chunk = next;
    }
    MEM_FREE(*arena);
}

void
wire_arena_reset(struct wire_arena *arena)
{
    while (arena->newest->next != NULL) {
        struct chunk *next = arena->newest->next;

        mem_free(arena->newest);
        arena->newest = next;
    }
    arena->newest->used = 0;
}

/* ---- the first pass -------------------------------------------------------------------------- */

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static bool
read_varint(struct cursor *cursor, uint64_t *value_out)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && cursor->at < cursor->end; shift += 7) {
        uint8_t byte = *cursor->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* Two passes, both of many bytes at a time. */
bool
wire_is_text(const void *bytes, size_t length)
{
    return length == 0 || (memchr(bytes, 0, length) == NULL && utf8_check(bytes, length) == length);
}

static enum status check_message(const ProtobufCMessageDescriptor *type, struct cursor cursor);

/* Checks the body of one length-prefixed field. */
static enum status
check_body(const ProtobufCMessageDescriptor *type, uint32_t number, struct cursor body)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, number);

    if (field == NULL) {
        return ST_OK;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return check_message(field->descriptor, body);
    }
    if (field->type == PROTOBUF_C_TYPE_STRING
        && !wire_is_text(body.at, (size_t)(body.end - body.at))) {
        return ERR(ST_INVALID, "%s.%s: not UTF-8 text, or with a NUL in it", type->short_name,
                   field->name);
    }
    return ST_OK;
}

/* Recursion ends because no message type of ours contains itself (test_wire.c). */
static enum status
check_message(const ProtobufCMessageDescriptor *type, struct cursor cursor)
{
    while (cursor.at < cursor.end) {
        uint64_t key, length = 0;
        bool is_whole = read_varint(&cursor, &key);

        /* protobuf-c takes the field number 0, and cannot read it back when packed (fuzz_wire). */
        is_whole = is_whole && key >> 3 >= 1 && key >> 3 <= FIELD_NUMBER_MAX;
        switch (key & 7) {
        case PROTOBUF_C_WIRE_TYPE_VARINT:
            is_whole = is_whole && read_varint(&cursor, &length);
            length = 0;
            break;
        case PROTOBUF_C_WIRE_TYPE_64BIT: length = 8; break;
        case PROTOBUF_C_WIRE_TYPE_32BIT: length = 4; break;
        case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
            is_whole = is_whole && read_varint(&cursor, &length);
            break;
        default: is_whole = false; break;
        }
        if (!is_whole || length > (uint64_t)(cursor.end - cursor.at)) {
            return ERR(ST_INVALID, "%s: cut short or malformed", type->short_name);
        }
        if ((key & 7) == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
            TRY(check_body(type, (uint32_t)(key >> 3),
                           (struct cursor){cursor.at, cursor.at + length}));
        }
        cursor.at += length;
    }
    return ST_OK;
}

/* ---- the second pass ------------------------------------------------------------------------- */

enum status
wire_unpack(struct wire_arena *arena, const ProtobufCMessageDescriptor *type, const void *bytes,
            size_t length, size_t bytes_max, const ProtobufCMessage **message_out)
{
    static const uint8_t nothing[1];
    const uint8_t *start = length == 0 ? nothing : bytes;
    size_t budget = length * WIRE_BUDGET_FACTOR;

    assert(bytes_max <= SIZE_MAX / WIRE_BUDGET_FACTOR);
    if (length > bytes_max) {
        return ERR(ST_INVALID, "%s of %zu bytes: at most %zu are taken", type->short_name, length,
                   bytes_max);
    }
    TRY(check_message(type, (struct cursor){start, start + length}));
    budget = budget < WIRE_BUDGET_BYTES_MIN ? WIRE_BUDGET_BYTES_MIN : budget;
    arena->budget_left = budget;
    arena->is_over_budget = false;
    arena->is_out_of_memory = false;

    const ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &arena->allocator, length, start);

    if (message != NULL) {
        *message_out = message;
        return ST_OK;
    }
    if (arena->is_out_of_memory) {
        return ERR(ST_NO_MEMORY, "%s of %zu bytes: %s", type->short_name, length, status_detail());
    }
    if (arena->is_over_budget) {
        return ERR(ST_INVALID, "%s of %zu bytes: would need more than %zu bytes of memory",
                   type->short_name, length, budget);
    }
    return ERR(ST_INVALID, "%s of %zu bytes: not a message of this type", type->short_name, length);
}

enum status
wire_pack(struct wire_buffer *buffer, const ProtobufCMessage *message)
{
    size_t length = protobuf_c_message_get_packed_size(message);

    if (length > buffer->capacity || buffer->bytes == NULL) {
        size_t capacity = length < 256 ? 256 : length + length / 2;
        uint8_t *bytes = mem_realloc(buffer->bytes, capacity, 1);

        if (bytes == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for a %s of %zu bytes",
                       message->descriptor->short_name, length);
        }
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    buffer->length = protobuf_c_message_pack(message, buffer->bytes);
    assert(buffer->length == length);
    return ST_OK;
}

void
wire_buffer_deinit(struct wire_buffer *buffer)
{
    mem_free(buffer->bytes);
    *buffer = (struct wire_buffer){0};
}

/* ---- status codes ---------------------------------------------------------------------------- */

const char *
rpc_code_name(uint32_t code)
{
    static const char *const names[] = {
        [RPC_OK] = "OK",
        [RPC_CANCELLED] = "CANCELLED",
        [RPC_UNKNOWN] = "UNKNOWN",
        [RPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [RPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [RPC_NOT_FOUND] = "NOT_FOUND",
        [RPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
        [RPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [RPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [RPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [RPC_ABORTED] = "ABORTED",
        [RPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
        [RPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [RPC_INTERNAL] = "INTERNAL",
        [RPC_UNAVAILABLE] = "UNAVAILABLE",
        [RPC_DATA_LOSS] = "DATA_LOSS",
        [RPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };

    return code < sizeof(names) / sizeof(names[0]) ? names[code] : names[RPC_UNKNOWN];
}

enum rpc_code
rpc_code_of(enum status kind)
{
    switch (kind) {
    case ST_OK: return RPC_OK;
    case ST_INVALID: return RPC_INVALID_ARGUMENT;
    case ST_NO_MEMORY: return RPC_RESOURCE_EXHAUSTED;
    case ST_UNAVAILABLE: return RPC_UNAVAILABLE;
    case ST_NOT_FOUND: return RPC_NOT_FOUND;
    case ST_TIMEOUT: return RPC_DEADLINE_EXCEEDED;
    case ST_SYSTEM:
    case ST_DEVICE: return RPC_INTERNAL;
    }
    return RPC_UNKNOWN;
}
