/* SPDX-License-Identifier: Apache-2.0 */
#include "common/msgpack.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"

#define BYTES_FIRST 256

/* Types of the specification; in a fix type the low bits are the value. */
enum {
    FIXMAP = 0x80,
    FIXARRAY = 0x90,
    FIXSTR = 0xa0,
    NIL = 0xc0,
    FLOAT64 = 0xcb,
    UINT8 = 0xcc, /* then 16, 32 and 64 bits */
    STR8 = 0xd9,
    STR16 = 0xda,
    ARRAY16 = 0xdc,
    ARRAY32 = 0xdd,
    MAP16 = 0xde,
    MAP32 = 0xdf,
};

static void
add_bytes(struct msgpack *out, const void *bytes, size_t length)
{
    size_t capacity = out->capacity == 0 ? BYTES_FIRST : out->capacity;
    uint8_t *grown;

    while (capacity - out->length < length) {
        capacity *= 2;
    }
    if (!out->has_failed && capacity != out->capacity) {
        grown = mem_realloc(out->bytes, capacity, 1);
        out->has_failed = grown == NULL;
        if (grown != NULL) {
            out->bytes = grown;
            out->capacity = capacity;
        }
    }
    if (!out->has_failed && length > 0) {
        memcpy(out->bytes + out->length, bytes, length);
        out->length += length;
    }
}

/* A type's byte and the low `width` bytes of the value, the highest first. */
static void
put(struct msgpack *out, int type, uint64_t value, int width)
{
    uint8_t bytes[9] = {(uint8_t)type};

    for (int i = 0; i < width; i++) {
        bytes[1 + i] = (uint8_t)(value >> (8 * (width - 1 - i)));
    }
    add_bytes(out, bytes, 1 + (size_t)width);
}

void
msgpack_nil(struct msgpack *out)
{
    put(out, NIL, 0, 0);
}

void
msgpack_u64(struct msgpack *out, uint64_t value)
{
    if (value < 128) {
        put(out, (int)value, 0, 0);
    } else if (value <= UINT8_MAX) {
        put(out, UINT8, value, 1);
    } else if (value <= UINT16_MAX) {
        put(out, UINT8 + 1, value, 2);
    } else if (value <= UINT32_MAX) {
        put(out, UINT8 + 2, value, 4);
    } else {
        put(out, UINT8 + 3, value, 8);
    }
}

void
msgpack_f64(struct msgpack *out, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put(out, FLOAT64, bits, 8);
}

void
msgpack_text(struct msgpack *out, const char *text)
{
    size_t length = strlen(text);

    assert(length <= UINT16_MAX);
    if (length < 32) {
        put(out, FIXSTR | (int)length, 0, 0);
    } else if (length <= UINT8_MAX) {
        put(out, STR8, length, 1);
    } else {
        put(out, STR16, length, 2);
    }
    add_bytes(out, text, length);
}

static void
put_count(struct msgpack *out, uint32_t count, int fix, int type16, int type32)
{
    if (count < 16) {
        put(out, fix | (int)count, 0, 0);
    } else if (count <= UINT16_MAX) {
        put(out, type16, count, 2);
    } else {
        put(out, type32, count, 4);
    }
}

void
msgpack_array(struct msgpack *out, uint32_t count)
{
    put_count(out, count, FIXARRAY, ARRAY16, ARRAY32);
}

void
msgpack_map(struct msgpack *out, uint32_t count)
{
    put_count(out, count, FIXMAP, MAP16, MAP32);
}

void
msgpack_deinit(struct msgpack *out)
{
    mem_free(out->bytes);
    *out = (struct msgpack){0};
}
