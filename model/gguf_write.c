/* SPDX-License-Identifier: Apache-2.0 */
#include "model/gguf_write.h"

#include <string.h>

#include "common/mem.h"
#include "model/gguf_private.h"

#define ALIGNMENT 32

void
gguf_write_bytes(struct gguf_writer *writer, const void *bytes, size_t length)
{
    size_t needed = writer->length + length;

    if (needed > writer->capacity && !writer->has_failed) {
        size_t capacity = needed < 4096 ? 4096 : needed * 2;
        uint8_t *grown = mem_realloc(writer->bytes, capacity, 1);

        if (grown == NULL) {
            writer->has_failed = true;
        } else {
            writer->bytes = grown;
            writer->capacity = capacity;
        }
    }
    if (!writer->has_failed && length > 0) {
        memcpy(writer->bytes + writer->length, bytes, length);
        writer->length = needed;
    }
}

static void
put_u32(struct gguf_writer *writer, uint32_t value)
{
    gguf_write_bytes(writer, &value, sizeof(value));
}

static void
put_u64(struct gguf_writer *writer, uint64_t value)
{
    gguf_write_bytes(writer, &value, sizeof(value));
}

static void
put_string(struct gguf_writer *writer, const char *text)
{
    put_u64(writer, strlen(text));
    gguf_write_bytes(writer, text, strlen(text));
}

/* The header's place is taken by the first call; the counts come at the end. */
static void
require_header(struct gguf_writer *writer)
{
    if (writer->length == 0) {
        gguf_write_bytes(writer, "GGUF\3\0\0\0", 8);
        put_u64(writer, 0);
        put_u64(writer, 0);
    }
}

static void
put_key(struct gguf_writer *writer, const char *key, enum value_type type)
{
    require_header(writer);
    put_string(writer, key);
    put_u32(writer, type);
    writer->n_keys++;
}

void
gguf_write_key_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    put_key(writer, key, VALUE_U32);
    put_u32(writer, value);
}

void
gguf_write_key_f32(struct gguf_writer *writer, const char *key, float value)
{
    put_key(writer, key, VALUE_F32);
    gguf_write_bytes(writer, &value, sizeof(value));
}

void
gguf_write_key_bool(struct gguf_writer *writer, const char *key, bool value)
{
    uint8_t byte = value;

    put_key(writer, key, VALUE_BOOL);
    gguf_write_bytes(writer, &byte, 1);
}

void
gguf_write_key_string(struct gguf_writer *writer, const char *key, const char *value)
{
    put_key(writer, key, VALUE_STRING);
    put_string(writer, value);
}

void
gguf_write_key_strings(struct gguf_writer *writer, const char *key, const char *const *values,
                       size_t count)
{
    put_key(writer, key, VALUE_ARRAY);
    put_u32(writer, VALUE_STRING);
    put_u64(writer, count);
    for (size_t i = 0; i < count; i++) {
        put_string(writer, values[i]);
    }
}

void
gguf_write_key_i32s(struct gguf_writer *writer, const char *key, const int32_t *values,
                    size_t count)
{
    put_key(writer, key, VALUE_ARRAY);
    put_u32(writer, VALUE_I32);
    put_u64(writer, count);
    gguf_write_bytes(writer, values, count * sizeof(values[0]));
}

void
gguf_write_key_f32s(struct gguf_writer *writer, const char *key, const float *values, size_t count)
{
    put_key(writer, key, VALUE_ARRAY);
    put_u32(writer, VALUE_F32);
    put_u64(writer, count);
    gguf_write_bytes(writer, values, count * sizeof(values[0]));
}

static uint64_t
padded(uint64_t length)
{
    return (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void
gguf_write_tensor(struct gguf_writer *writer, const char *name, enum gguf_tensor_type type,
                  uint32_t n_dims, const uint64_t *dims, size_t bytes)
{
    require_header(writer);
    put_string(writer, name);
    put_u32(writer, n_dims);
    gguf_write_bytes(writer, dims, n_dims * sizeof(dims[0]));
    put_u32(writer, type);
    put_u64(writer, writer->data_bytes);
    writer->data_bytes += padded(bytes);
    writer->n_tensors++;
}

static void
pad(struct gguf_writer *writer)
{
    static const uint8_t zeros[ALIGNMENT];

    gguf_write_bytes(writer, zeros, padded(writer->length) - writer->length);
}

void
gguf_write_data(struct gguf_writer *writer, const void *bytes, size_t length)
{
    pad(writer); /* the first one closes the descriptions */
    gguf_write_bytes(writer, bytes, length);
    pad(writer);
}

enum status
gguf_write_finish(struct gguf_writer *writer)
{
    require_header(writer);
    if (writer->has_failed) {
        return ERR(ST_NO_MEMORY, "a GGUF file of more than %zu bytes", writer->length);
    }
    memcpy(writer->bytes + 8, &writer->n_tensors, sizeof(writer->n_tensors));
    memcpy(writer->bytes + 16, &writer->n_keys, sizeof(writer->n_keys));
    return ST_OK;
}

void
gguf_write_deinit(struct gguf_writer *writer)
{
    MEM_FREE(writer->bytes);
    *writer = (struct gguf_writer){0};
}
