/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_write - builds a GGUF v3 file in memory: first keys, then tensor descriptions, then data.
 *
 * Calls never fail one by one: a lack of memory is remembered and reported by gguf_write_finish. */
#ifndef MODEL_GGUF_WRITE_H
#define MODEL_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/gguf.h"

struct gguf_writer { /* zero it to start */
    uint8_t *bytes;
    size_t length;
    size_t capacity;
    uint64_t n_keys;
    uint64_t n_tensors;
    uint64_t data_bytes; /* of the tensors described so far, each padded */
    bool has_failed;
};

void gguf_write_key_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_write_key_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_write_key_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_write_key_string(struct gguf_writer *writer, const char *key, const char *value);
void gguf_write_key_strings(struct gguf_writer *writer, const char *key, const char *const *values,
                            size_t count);
void gguf_write_key_i32s(struct gguf_writer *writer, const char *key, const int32_t *values,
                         size_t count);
void gguf_write_key_f32s(struct gguf_writer *writer, const char *key, const float *values,
                         size_t count);

/* Describes a tensor; its data (`bytes` of it) must follow in the same order. */
void gguf_write_tensor(struct gguf_writer *writer, const char *name, enum gguf_tensor_type type,
                       uint32_t n_dims, const uint64_t *dims, size_t bytes);
/* Appends the data of the next tensor, padded. */
void gguf_write_data(struct gguf_writer *writer, const void *bytes, size_t length);

/* Appends raw bytes; what malformed files in tests are made of. */
void gguf_write_bytes(struct gguf_writer *writer, const void *bytes, size_t length);

/* Writes the counts into the header.  ST_NO_MEMORY if any call found none. */
enum status gguf_write_finish(struct gguf_writer *writer);

/* Frees the bytes. */
void gguf_write_deinit(struct gguf_writer *writer);

#endif
