/* SPDX-License-Identifier: Apache-2.0 */
/* gguf - a GGUF v3 file, mapped and checked.
 *
 * Everything is validated at open: magic, version, counts, string lengths, UTF-8 of keys, types,
 * tensor bounds, alignment, overlap.  After a successful open no accessor can read outside the map.
 * All returned pointers are borrowed and live until gguf_close.  A file cut while it is mapped
 * would fault: checkpoints are not to be written in place. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct gguf;

enum gguf_tensor_type { /* the file format's numbers */
    GGUF_TENSOR_F32 = 0,
    GGUF_TENSOR_F16 = 1,
    GGUF_TENSOR_Q4_0 = 2,
    GGUF_TENSOR_Q4_1 = 3,
    GGUF_TENSOR_Q8_0 = 8,
    GGUF_TENSOR_BF16 = 30,
};

struct gguf_string {
    const char *bytes; /* not terminated */
    size_t length;
};

struct gguf_tensor {
    struct gguf_string name;
    enum gguf_tensor_type type;
    uint32_t n_dims;
    uint64_t dims[4]; /* as in the file: dims[0] is the fastest (the columns of a matrix) */
    const void *data;
    size_t bytes;
};

/* Maps and checks a file.  ST_INVALID: "FILE: offset N: reason"; ST_SYSTEM if it can't be opened or
 * mapped; ST_NO_MEMORY.  The caller closes it. */
enum status gguf_open(const char *path, struct gguf **gguf_out);

/* The same over bytes the caller keeps alive (tests, fuzzing); `name` is used in messages. */
enum status gguf_open_bytes(const char *name, const void *bytes, size_t length,
                            struct gguf **gguf_out);

void gguf_close(struct gguf **gguf);

const char *gguf_path(const struct gguf *gguf);

/* SHA-256 over what the system says of the file (file_identity).  ST_UNAVAILABLE: there is none. */
enum status gguf_identity(const struct gguf *gguf, uint8_t identity_out[32]);

/* SHA-256 over the whole file; for a big file the slow part of a start. */
enum status gguf_fingerprint(const struct gguf *gguf, uint8_t fingerprint_out[32]);

/* Where in the file something lies that an accessor has returned: for messages. */
size_t gguf_offset(const struct gguf *gguf, const void *inside);

/* Metadata.  ST_NOT_FOUND if the key is absent, ST_INVALID if it has another type or does not fit;
 * both name the file and the key.  Integers of any width and sign are accepted where they fit. */
bool gguf_has(const struct gguf *gguf, const char *key);
enum status gguf_u64(const struct gguf *gguf, const char *key, uint64_t *value_out);
enum status gguf_f64(const struct gguf *gguf, const char *key, double *value_out);
enum status gguf_bool(const struct gguf *gguf, const char *key, bool *value_out);
enum status gguf_str(const struct gguf *gguf, const char *key, struct gguf_string *value_out);

/* Arrays: the count, then elements.  The element getters accept an index below the count. */
enum status gguf_array_count(const struct gguf *gguf, const char *key, size_t *count_out);
/* Fills strings_out[0..count): an array of strings, one pass.  ST_INVALID if count is not the
 * array's. */
enum status gguf_array_strings(const struct gguf *gguf, const char *key,
                               struct gguf_string *strings_out, size_t count);
enum status gguf_array_f32(const struct gguf *gguf, const char *key, float *values_out,
                           size_t count);
enum status gguf_array_i32(const struct gguf *gguf, const char *key, int32_t *values_out,
                           size_t count);

/* Tensors.  NULL if there is none of that name. */
size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *gguf, const char *name);

#endif
