/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors - a safetensors file, mapped and checked.
 *
 * Everything is validated at open: length and JSON of the header, types, shapes, and that the
 * tensors' data tile the rest of the file without gap or overlap, as the format demands.  After a
 * successful open no accessor can read outside the map.  Pointers are borrowed and live until
 * safetensors_close. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/file_map.h"
#include "model/gguf.h"

struct safetensors;

#define SAFETENSORS_DIMS_MAX 4

struct safetensors_tensor {
    struct gguf_string name;
    enum gguf_tensor_type type; /* F32, F16 or BF16 */
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_DIMS_MAX]; /* as in the file: the last is the fastest */
    const void *data;                     /* maybe not aligned */
    size_t bytes;
};

/* Maps and checks a file.  ST_INVALID: "FILE: offset N: reason" or "FILE: tensor NAME: reason";
 * ST_NOT_FOUND; ST_SYSTEM if it can't be opened or mapped; ST_NO_MEMORY.  The caller closes it. */
enum status safetensors_open(const char *path, struct safetensors **file_out);

/* The same over bytes the caller keeps alive (tests, fuzzing); `name` is used in messages. */
enum status safetensors_open_bytes(const char *name, const void *bytes, size_t length,
                                   struct safetensors **file_out);

/* NULL is fine. */
void safetensors_close(struct safetensors **file);

const char *safetensors_path(const struct safetensors *file);

/* Of its file; zeros if there is none.  Borrowed. */
const struct file_identity *safetensors_identity(const struct safetensors *file);

/* SHA-256 over the whole file. */
enum status safetensors_fingerprint(const struct safetensors *file, uint8_t fingerprint_out[32]);

/* Tensors.  NULL if there is none of that name. */
size_t safetensors_count(const struct safetensors *file);
const struct safetensors_tensor *safetensors_at(const struct safetensors *file, size_t index);
const struct safetensors_tensor *safetensors_find(const struct safetensors *file, const char *name);

#endif
