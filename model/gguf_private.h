/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_private - the inside of an open file, shared by the reader (gguf.c) and the accessors
 * (gguf_value.c) alone. */
#ifndef MODEL_GGUF_PRIVATE_H
#define MODEL_GGUF_PRIVATE_H

#include "common/htab.h"
#include "model/file_map.h"
#include "model/gguf.h"

#define SHOWN_BYTES_MAX 100u /* of a foreign name in a message */

/* For "%.*s": foreign names are UTF-8 without control characters by the time they are shown. */
#define SHOWN(s) (int)((s).length < SHOWN_BYTES_MAX ? (s).length : SHOWN_BYTES_MAX), (s).bytes

#define FAIL_AT(gguf, offset, fmt, ...)                                                            \
    ERR(ST_INVALID, "%s: offset %zu: " fmt, (gguf)->path, (size_t)(offset), __VA_ARGS__)

enum value_type { /* the file format's numbers */
    VALUE_U8 = 0,
    VALUE_I8 = 1,
    VALUE_U16 = 2,
    VALUE_I16 = 3,
    VALUE_U32 = 4,
    VALUE_I32 = 5,
    VALUE_F32 = 6,
    VALUE_BOOL = 7,
    VALUE_STRING = 8,
    VALUE_ARRAY = 9,
    VALUE_U64 = 10,
    VALUE_I64 = 11,
    VALUE_F64 = 12,
    VALUE_TYPES,
};

/* Bytes of a value by type; 0 where it carries its own length. */
extern const uint8_t gguf_value_bytes[VALUE_TYPES];

struct pair {
    struct htab_node node;
    struct gguf_string key;
    size_t at;      /* offset of the value, of an array's first element */
    uint64_t count; /* elements; 1 unless an array */
    uint32_t type;  /* of the value or of the elements */
    bool is_array;
};

struct entry {
    struct htab_node node;
    struct gguf_tensor tensor;
    size_t at;       /* offset of its description; for messages */
    uint64_t offset; /* of its data, from the start of the data section */
};

struct gguf {
    char *path;
    const uint8_t *bytes;
    size_t length;
    struct file_map map; /* of bytes, unless the caller keeps them */
    struct pair *pairs;  /* [n_pairs] */
    size_t n_pairs;
    struct htab keys;
    struct entry *entries; /* [n_entries] */
    size_t n_entries;
    struct htab names;
    size_t alignment;
};

/* Hash of a key or a name. */
uint64_t gguf_hash(struct gguf_string name);

/* The key's entry, or NULL. */
const struct pair *gguf_find_pair(const struct gguf *gguf, const char *key);

/* Equality for the two tables; the key is a struct gguf_string. */
bool gguf_is_pair(const struct htab_node *node, const void *key);
bool gguf_is_entry(const struct htab_node *node, const void *name);

#endif
