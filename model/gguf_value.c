/* SPDX-License-Identifier: Apache-2.0 */
/* What an open file answers.  Offsets, counts and string lengths were checked at open. */
#include "model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "common/htab.h"
#include "model/gguf_private.h"

/* Bytes of a value; 0 where it carries its own length. */
const uint8_t gguf_value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

uint64_t
gguf_hash(struct gguf_string name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, finished by htab_mix */

    for (size_t i = 0; i < name.length; i++) {
        hash = (hash ^ (uint8_t)name.bytes[i]) * 0x100000001b3u;
    }
    return htab_mix(hash);
}

static bool
is_same(struct gguf_string a, struct gguf_string b)
{
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

bool
gguf_is_pair(const struct htab_node *node, const void *key)
{
    return is_same(HTAB_ENTRY(node, const struct pair, node)->key,
                   *(const struct gguf_string *)key);
}

bool
gguf_is_entry(const struct htab_node *node, const void *name)
{
    return is_same(HTAB_ENTRY(node, const struct entry, node)->tensor.name,
                   *(const struct gguf_string *)name);
}

const struct pair *
gguf_find_pair(const struct gguf *gguf, const char *key)
{
    struct gguf_string name = {key, strlen(key)};
    struct htab_node *node = htab_find(&gguf->keys, gguf_hash(name), &name);

    return node == NULL ? NULL : HTAB_ENTRY(node, const struct pair, node);
}

bool
gguf_has(const struct gguf *gguf, const char *key)
{
    return gguf_find_pair(gguf, key) != NULL;
}

static enum status
find_value(const struct gguf *gguf, const char *key, bool is_array, const struct pair **pair_out)
{
    const struct pair *pair = gguf_find_pair(gguf, key);

    if (pair == NULL) {
        return ERR(ST_NOT_FOUND, "%s: key %s is missing", gguf->path, key);
    }
    if (pair->is_array != is_array) {
        return FAIL_AT(gguf, pair->at, "key %s is %s", key, is_array ? "no array" : "an array");
    }
    *pair_out = pair;
    return ST_OK;
}

static enum status
wrong_type(const struct gguf *gguf, const struct pair *pair, const char *wanted)
{
    return FAIL_AT(gguf, pair->at, "key %.*s has value type %" PRIu32 ", not %s", SHOWN(pair->key),
                   pair->type, wanted);
}

/* An integer of any width at `at`; false if the type is none.  Values above INT64_MAX, which only
 * u64 has, come out negative with *is_huge_out set. */
static bool
load_integer(const uint8_t *at, uint32_t type, int64_t *value_out, bool *is_huge_out)
{
    uint64_t u = 0; /* little-endian: the low bytes of a zeroed word */

    memcpy(&u, at, gguf_value_bytes[type]);
    *is_huge_out = false;
    switch (type) {
    case VALUE_U8:
    case VALUE_U16:
    case VALUE_U32: *value_out = (int64_t)u; return true;
    case VALUE_U64:
        *value_out = (int64_t)u;
        *is_huge_out = u > INT64_MAX;
        return true;
    case VALUE_I8: *value_out = (int8_t)u; return true;
    case VALUE_I16: *value_out = (int16_t)u; return true;
    case VALUE_I32: *value_out = (int32_t)u; return true;
    case VALUE_I64: *value_out = (int64_t)u; return true;
    default: return false;
    }
}

static bool
load_real(const uint8_t *at, uint32_t type, double *value_out)
{
    float f;

    if (type == VALUE_F64) {
        memcpy(value_out, at, sizeof(*value_out));
        return true;
    }
    if (type == VALUE_F32) {
        memcpy(&f, at, sizeof(f));
        *value_out = f;
        return true;
    }
    return false;
}

enum status
gguf_u64(const struct gguf *gguf, const char *key, uint64_t *value_out)
{
    const struct pair *pair;
    int64_t value;
    bool is_huge;

    TRY(find_value(gguf, key, false, &pair));
    if (!load_integer(gguf->bytes + pair->at, pair->type, &value, &is_huge)) {
        return wrong_type(gguf, pair, "an integer");
    }
    if (value < 0 && !is_huge) {
        return FAIL_AT(gguf, pair->at, "key %s is negative: %" PRId64, key, value);
    }
    *value_out = (uint64_t)value;
    return ST_OK;
}

enum status
gguf_f64(const struct gguf *gguf, const char *key, double *value_out)
{
    const struct pair *pair;

    TRY(find_value(gguf, key, false, &pair));
    return load_real(gguf->bytes + pair->at, pair->type, value_out)
               ? ST_OK
               : wrong_type(gguf, pair, "a float");
}

enum status
gguf_bool(const struct gguf *gguf, const char *key, bool *value_out)
{
    const struct pair *pair;

    TRY(find_value(gguf, key, false, &pair));
    if (pair->type != VALUE_BOOL) {
        return wrong_type(gguf, pair, "bool");
    }
    *value_out = gguf->bytes[pair->at] != 0;
    return ST_OK;
}

/* Loads the string at *at, checked at open, and steps over it. */
static struct gguf_string
load_string(const struct gguf *gguf, size_t *at)
{
    uint64_t length;
    struct gguf_string string;

    memcpy(&length, gguf->bytes + *at, sizeof(length));
    string = (struct gguf_string){(const char *)gguf->bytes + *at + sizeof(length), length};
    *at += sizeof(length) + length;
    return string;
}

enum status
gguf_str(const struct gguf *gguf, const char *key, struct gguf_string *value_out)
{
    const struct pair *pair;
    size_t at;

    TRY(find_value(gguf, key, false, &pair));
    if (pair->type != VALUE_STRING) {
        return wrong_type(gguf, pair, "string");
    }
    at = pair->at;
    *value_out = load_string(gguf, &at);
    return ST_OK;
}

enum status
gguf_array_count(const struct gguf *gguf, const char *key, size_t *count_out)
{
    const struct pair *pair;

    TRY(find_value(gguf, key, true, &pair));
    *count_out = pair->count;
    return ST_OK;
}

static enum status
find_array(const struct gguf *gguf, const char *key, size_t count, const struct pair **pair_out)
{
    const struct pair *pair;

    TRY(find_value(gguf, key, true, &pair));
    if (pair->count != count) {
        return FAIL_AT(gguf, pair->at, "key %s has %" PRIu64 " elements, not %zu", key, pair->count,
                       count);
    }
    *pair_out = pair;
    return ST_OK;
}

enum status
gguf_array_strings(const struct gguf *gguf, const char *key, struct gguf_string *strings_out,
                   size_t count)
{
    const struct pair *pair;
    size_t at;

    TRY(find_array(gguf, key, count, &pair));
    if (pair->type != VALUE_STRING) {
        return wrong_type(gguf, pair, "string");
    }
    at = pair->at;
    for (size_t i = 0; i < count; i++) {
        strings_out[i] = load_string(gguf, &at);
    }
    return ST_OK;
}

enum status
gguf_array_f32(const struct gguf *gguf, const char *key, float *values_out, size_t count)
{
    const struct pair *pair;

    TRY(find_array(gguf, key, count, &pair));
    for (size_t i = 0; i < count; i++) {
        double value;

        if (!load_real(gguf->bytes + pair->at + i * gguf_value_bytes[pair->type], pair->type,
                       &value)) {
            return wrong_type(gguf, pair, "floats");
        }
        values_out[i] = (float)value;
    }
    return ST_OK;
}

enum status
gguf_array_i32(const struct gguf *gguf, const char *key, int32_t *values_out, size_t count)
{
    const struct pair *pair;

    TRY(find_array(gguf, key, count, &pair));
    for (size_t i = 0; i < count; i++) {
        size_t at = pair->at + i * gguf_value_bytes[pair->type];
        int64_t value;
        bool is_huge;

        if (!load_integer(gguf->bytes + at, pair->type, &value, &is_huge)) {
            return wrong_type(gguf, pair, "integers");
        }
        if (is_huge || value < INT32_MIN || value > INT32_MAX) {
            return FAIL_AT(gguf, at, "key %s: element %zu does not fit 32 bits", key, i);
        }
        values_out[i] = (int32_t)value;
    }
    return ST_OK;
}

size_t
gguf_tensor_count(const struct gguf *gguf)
{
    return gguf->n_entries;
}

const struct gguf_tensor *
gguf_tensor_at(const struct gguf *gguf, size_t index)
{
    assert(index < gguf->n_entries);
    return &gguf->entries[index].tensor;
}

const struct gguf_tensor *
gguf_tensor_find(const struct gguf *gguf, const char *name)
{
    struct gguf_string key = {name, strlen(name)};
    struct htab_node *node = htab_find(&gguf->names, gguf_hash(key), &key);

    return node == NULL ? NULL : &HTAB_ENTRY(node, const struct entry, node)->tensor;
}
