/* SPDX-License-Identifier: Apache-2.0 */
/* The whole file is walked once at open with a cursor that cannot leave the map; keys and tensors
 * go into hash tables on the way.  Values stay in the file: an entry keeps the offset of its value,
 * whose bounds were checked then, so the accessors only convert.  Loads go through memcpy, because
 * the format aligns tensors but not metadata. */
#include "model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "common/htab.h"
#include "common/mem.h"
#include "model/gguf_private.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read as little-endian");
static_assert(sizeof(size_t) == 8, "files and their offsets are 64 bits");

#define GGUF_VERSION           3u
#define GGUF_KEYS_MAX          65536u
#define GGUF_TENSORS_MAX       65536u
#define GGUF_KEY_BYTES_MAX     65535u /* the format's own limit */
#define GGUF_TENSOR_NAME_MAX   64u    /* the format's own limit */
#define GGUF_STRING_BYTES_MAX  (64u << 20)
#define GGUF_ALIGNMENT_DEFAULT 32u
#define GGUF_ALIGNMENT_MIN     8u
#define GGUF_ALIGNMENT_MAX     (1u << 20)
#define GGUF_PAIR_BYTES_MIN    14u /* length, a key of one byte, type, one byte of value */
#define GGUF_TENSOR_BYTES_MIN  33u /* length, a name of one byte, n_dims, one dim, type, offset */

struct cursor {
    const struct gguf *gguf;
    size_t at;
};

/* -- Reading ------------------------------------------------------------------------------- */

static enum status
take(struct cursor *cursor, size_t bytes, const char *what, size_t *at_out)
{
    size_t left = cursor->gguf->length - cursor->at;

    if (bytes > left) {
        return FAIL_AT(cursor->gguf, cursor->at, "%s of %zu bytes, but the file ends after %zu",
                       what, bytes, left);
    }
    *at_out = cursor->at;
    cursor->at += bytes;
    return ST_OK;
}

static enum status
take_u32(struct cursor *cursor, const char *what, uint32_t *value_out)
{
    size_t at;

    TRY(take(cursor, sizeof(*value_out), what, &at));
    memcpy(value_out, cursor->gguf->bytes + at, sizeof(*value_out));
    return ST_OK;
}

static enum status
take_u64(struct cursor *cursor, const char *what, uint64_t *value_out)
{
    size_t at;

    TRY(take(cursor, sizeof(*value_out), what, &at));
    memcpy(value_out, cursor->gguf->bytes + at, sizeof(*value_out));
    return ST_OK;
}

static enum status
take_string(struct cursor *cursor, const char *what, size_t bytes_max,
            struct gguf_string *string_out)
{
    size_t start = cursor->at;
    uint64_t length;
    size_t at;

    TRY(take_u64(cursor, what, &length));
    if (length > bytes_max) {
        return FAIL_AT(cursor->gguf, start, "%s of %" PRIu64 " bytes; at most %zu are allowed",
                       what, length, bytes_max);
    }
    TRY(take(cursor, length, what, &at));
    *string_out = (struct gguf_string){(const char *)cursor->gguf->bytes + at, length};
    return ST_OK;
}

/* A key or tensor name: not empty, UTF-8, nothing that could break a line of a log. */
static enum status
take_name(struct cursor *cursor, const char *what, size_t bytes_max, struct gguf_string *name_out)
{
    size_t start = cursor->at;
    struct gguf_string name;

    TRY(take_string(cursor, what, bytes_max, &name));
    if (name.length == 0) {
        return FAIL_AT(cursor->gguf, start, "%s is empty", what);
    }
    for (size_t i = 0; i < name.length;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)name.bytes + i,
                                              (utf8proc_ssize_t)(name.length - i), &code);

        if (n < 1) {
            return FAIL_AT(cursor->gguf, start + 8 + i, "%s is not UTF-8", what);
        }
        if (code < 0x20 || (code >= 0x7f && code < 0xa0)) {
            return FAIL_AT(cursor->gguf, start + 8 + i, "%s has the control character 0x%02x", what,
                           (unsigned)code);
        }
        i += (size_t)n;
    }
    *name_out = name;
    return ST_OK;
}

/* -- Metadata ------------------------------------------------------------------------------ */

static enum status
check_bools(const struct cursor *cursor, const struct pair *pair)
{
    for (size_t i = 0; i < pair->count; i++) {
        if (cursor->gguf->bytes[pair->at + i] > 1) {
            return FAIL_AT(cursor->gguf, pair->at + i, "key \"%.*s\": %u is no truth value",
                           SHOWN(pair->key), cursor->gguf->bytes[pair->at + i]);
        }
    }
    return ST_OK;
}

/* Steps over the value, or the elements, that pair->type and pair->count promise. */
static enum status
skip_values(struct cursor *cursor, struct pair *pair)
{
    struct gguf_string ignored;
    size_t bytes;
    size_t at;

    pair->at = cursor->at;
    if (pair->type == VALUE_STRING) {
        for (uint64_t i = 0; i < pair->count; i++) {
            TRY(take_string(cursor, "string", GGUF_STRING_BYTES_MAX, &ignored));
        }
        return ST_OK;
    }
    if (__builtin_mul_overflow(pair->count, (uint64_t)gguf_value_bytes[pair->type], &bytes)) {
        return FAIL_AT(cursor->gguf, pair->at, "key \"%.*s\": an array of %" PRIu64 " elements",
                       SHOWN(pair->key), pair->count);
    }
    TRY(take(cursor, bytes, pair->is_array ? "array" : "value", &at));
    return pair->type == VALUE_BOOL ? check_bools(cursor, pair) : ST_OK;
}

static enum status
read_pair(struct cursor *cursor, struct pair *pair)
{
    size_t type_at;

    TRY(take_name(cursor, "key", GGUF_KEY_BYTES_MAX, &pair->key));
    type_at = cursor->at;
    TRY(take_u32(cursor, "type of a value", &pair->type));
    pair->count = 1;
    if (pair->type == VALUE_ARRAY) {
        pair->is_array = true;
        type_at = cursor->at;
        TRY(take_u32(cursor, "type of an array's elements", &pair->type));
        TRY(take_u64(cursor, "count of an array", &pair->count));
        if (pair->type == VALUE_ARRAY) {
            return FAIL_AT(cursor->gguf, type_at, "key \"%.*s\": arrays of arrays are not served",
                           SHOWN(pair->key));
        }
    }
    if (pair->type >= VALUE_TYPES) {
        return FAIL_AT(cursor->gguf, type_at, "key \"%.*s\": unknown value type %" PRIu32,
                       SHOWN(pair->key), pair->type);
    }
    return skip_values(cursor, pair);
}

static enum status
read_pairs(struct cursor *cursor, struct gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_pairs; i++) {
        struct pair *pair = &gguf->pairs[i];
        size_t start = cursor->at;
        uint64_t hash;

        TRY(read_pair(cursor, pair));
        hash = gguf_hash(pair->key);
        if (htab_find(&gguf->keys, hash, &pair->key) != NULL) {
            return FAIL_AT(gguf, start, "key \"%.*s\" occurs twice", SHOWN(pair->key));
        }
        TRY(htab_insert(&gguf->keys, hash, &pair->node));
    }
    return ST_OK;
}

static enum status
read_alignment(struct gguf *gguf)
{
    const struct pair *pair = gguf_find_pair(gguf, "general.alignment");
    uint64_t alignment;

    gguf->alignment = GGUF_ALIGNMENT_DEFAULT;
    if (pair == NULL) {
        return ST_OK;
    }
    TRY(gguf_u64(gguf, "general.alignment", &alignment));
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > GGUF_ALIGNMENT_MAX
        || (alignment & (alignment - 1)) != 0) {
        return FAIL_AT(gguf, pair->at,
                       "general.alignment is %" PRIu64 ", not a power of two from %u to %u",
                       alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    }
    gguf->alignment = alignment;
    return ST_OK;
}

/* -- Tensors ------------------------------------------------------------------------------- */

/* Elements and bytes of the unit that a type stores; false for types that are not served. */
static bool
type_unit(uint32_t type, uint32_t *elements_out, uint32_t *bytes_out)
{
    switch (type) {
    case GGUF_TENSOR_F32: *elements_out = 1, *bytes_out = 4; return true;
    case GGUF_TENSOR_F16: *elements_out = 1, *bytes_out = 2; return true;
    case GGUF_TENSOR_BF16: *elements_out = 1, *bytes_out = 2; return true;
    case GGUF_TENSOR_Q4_0: *elements_out = 32, *bytes_out = 18; return true;
    case GGUF_TENSOR_Q4_1: *elements_out = 32, *bytes_out = 20; return true;
    case GGUF_TENSOR_Q8_0: *elements_out = 32, *bytes_out = 34; return true;
    default: return false;
    }
}

/* Size of the data from the shape; the description starts at entry->at. */
static enum status
size_tensor(const struct gguf *gguf, struct entry *entry, uint32_t type)
{
    struct gguf_tensor *tensor = &entry->tensor;
    uint32_t unit_elements;
    uint32_t unit_bytes;
    uint64_t elements = 1;

    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (tensor->dims[i] == 0 || __builtin_mul_overflow(elements, tensor->dims[i], &elements)) {
            return FAIL_AT(gguf, entry->at, "tensor \"%.*s\": dimension %" PRIu32 " is %" PRIu64,
                           SHOWN(tensor->name), i, tensor->dims[i]);
        }
    }
    if (!type_unit(type, &unit_elements, &unit_bytes)) {
        return FAIL_AT(gguf, entry->at,
                       "tensor \"%.*s\": type %" PRIu32
                       " is not served; F32 F16 BF16 Q8_0 Q4_0 Q4_1 are",
                       SHOWN(tensor->name), type);
    }
    if (tensor->dims[0] % unit_elements != 0) {
        return FAIL_AT(gguf, entry->at,
                       "tensor \"%.*s\": rows of %" PRIu64
                       " are no multiple of the type's %" PRIu32,
                       SHOWN(tensor->name), tensor->dims[0], unit_elements);
    }
    tensor->type = (enum gguf_tensor_type)type;
    if (__builtin_mul_overflow(elements / unit_elements, (uint64_t)unit_bytes, &tensor->bytes)) {
        return FAIL_AT(gguf, entry->at, "tensor \"%.*s\": %" PRIu64 " elements",
                       SHOWN(tensor->name), elements);
    }
    return ST_OK;
}

static enum status
read_entry(struct cursor *cursor, struct entry *entry)
{
    struct gguf_tensor *tensor = &entry->tensor;
    uint32_t type;

    entry->at = cursor->at;
    TRY(take_name(cursor, "tensor name", GGUF_TENSOR_NAME_MAX, &tensor->name));
    TRY(take_u32(cursor, "dimension count", &tensor->n_dims));
    if (tensor->n_dims < 1 || tensor->n_dims > 4) {
        return FAIL_AT(cursor->gguf, entry->at,
                       "tensor \"%.*s\": %" PRIu32 " dimensions, not 1 to 4", SHOWN(tensor->name),
                       tensor->n_dims);
    }
    for (uint32_t i = 0; i < 4; i++) {
        tensor->dims[i] = 1;
        if (i < tensor->n_dims) {
            TRY(take_u64(cursor, "dimension", &tensor->dims[i]));
        }
    }
    TRY(take_u32(cursor, "tensor type", &type));
    TRY(take_u64(cursor, "tensor offset", &entry->offset));
    if (entry->offset % cursor->gguf->alignment != 0) {
        return FAIL_AT(cursor->gguf, entry->at,
                       "tensor \"%.*s\": data at %" PRIu64 " is not aligned to %zu",
                       SHOWN(tensor->name), entry->offset, cursor->gguf->alignment);
    }
    return size_tensor(cursor->gguf, entry, type);
}

static enum status
read_entries(struct cursor *cursor, struct gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_entries; i++) {
        struct entry *entry = &gguf->entries[i];
        uint64_t hash;

        TRY(read_entry(cursor, entry));
        hash = gguf_hash(entry->tensor.name);
        if (htab_find(&gguf->names, hash, &entry->tensor.name) != NULL) {
            return FAIL_AT(gguf, entry->at, "tensor \"%.*s\" occurs twice",
                           SHOWN(entry->tensor.name));
        }
        TRY(htab_insert(&gguf->names, hash, &entry->node));
    }
    return ST_OK;
}

static int
by_offset(const void *left, const void *right)
{
    const struct entry *a = *(const struct entry *const *)left;
    const struct entry *b = *(const struct entry *const *)right;

    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Neighbours in order of offset must not overlap; all bounds were checked before. */
static enum status
check_overlap(const struct gguf *gguf)
{
    const struct entry **sorted = mem_zalloc(gguf->n_entries, sizeof(const struct entry *));
    enum status st = ST_OK;

    if (sorted == NULL) {
        return ERR(ST_NO_MEMORY, "%s: index of %zu tensors", gguf->path, gguf->n_entries);
    }
    for (size_t i = 0; i < gguf->n_entries; i++) {
        sorted[i] = &gguf->entries[i];
    }
    qsort(sorted, gguf->n_entries, sizeof(const struct entry *), by_offset);
    for (size_t i = 1; i < gguf->n_entries && st == ST_OK; i++) {
        const struct entry *a = sorted[i - 1];
        const struct entry *b = sorted[i];

        if (b->offset - a->offset < a->tensor.bytes) {
            st = FAIL_AT(gguf, b->at, "tensor \"%.*s\" overlaps tensor \"%.*s\"",
                         SHOWN(b->tensor.name), SHOWN(a->tensor.name));
        }
    }
    mem_free(sorted);
    return st;
}

/* The data section starts at the next multiple of the alignment after the descriptions. */
static enum status
place_tensors(struct gguf *gguf, size_t descriptions_end)
{
    size_t start = (descriptions_end + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    size_t section = start < gguf->length ? gguf->length - start : 0;

    for (size_t i = 0; i < gguf->n_entries; i++) {
        struct entry *entry = &gguf->entries[i];

        if (entry->offset > section || entry->tensor.bytes > section - entry->offset) {
            return FAIL_AT(gguf, entry->at,
                           "tensor \"%.*s\": %zu bytes of data at %" PRIu64
                           " do not lie in the file's %zu",
                           SHOWN(entry->tensor.name), entry->tensor.bytes, entry->offset, section);
        }
        entry->tensor.data = gguf->bytes + start + entry->offset;
    }
    return check_overlap(gguf);
}

/* -- Open and close ------------------------------------------------------------------------ */

/* A count is believed only if that many records could fit into what is left. */
static enum status
take_count(struct cursor *cursor, const char *what, size_t max, size_t record_bytes,
           size_t *count_out)
{
    size_t start = cursor->at;
    uint64_t count;

    TRY(take_u64(cursor, what, &count));
    if (count > max) {
        return FAIL_AT(cursor->gguf, start, "%" PRIu64 " %s; at most %zu are allowed", count, what,
                       max);
    }
    if (count > (cursor->gguf->length - cursor->at) / record_bytes) {
        return FAIL_AT(cursor->gguf, start, "%" PRIu64 " %s cannot fit in %zu bytes", count, what,
                       cursor->gguf->length - cursor->at);
    }
    *count_out = count;
    return ST_OK;
}

static enum status
read_header(struct cursor *cursor, struct gguf *gguf)
{
    uint32_t version;
    size_t at;

    TRY(take(cursor, 4, "magic", &at));
    if (memcmp(gguf->bytes + at, "GGUF", 4) != 0) {
        return FAIL_AT(gguf, at, "not a GGUF file: it starts with %02x %02x %02x %02x",
                       gguf->bytes[0], gguf->bytes[1], gguf->bytes[2], gguf->bytes[3]);
    }
    TRY(take_u32(cursor, "version", &version));
    if (version != GGUF_VERSION) {
        return FAIL_AT(gguf, 4, "GGUF version %" PRIu32 " is not served, only %u is%s", version,
                       GGUF_VERSION, (version & 0xffff) == 0 ? " (a big-endian file?)" : "");
    }
    TRY(take_count(cursor, "tensors", GGUF_TENSORS_MAX, GGUF_TENSOR_BYTES_MIN, &gguf->n_entries));
    return take_count(cursor, "keys", GGUF_KEYS_MAX, GGUF_PAIR_BYTES_MIN, &gguf->n_pairs);
}

static enum status
read_all(struct gguf *gguf)
{
    struct cursor cursor = {gguf, 0};

    TRY(read_header(&cursor, gguf));
    gguf->pairs = mem_zalloc(gguf->n_pairs, sizeof(gguf->pairs[0]));
    gguf->entries = mem_zalloc(gguf->n_entries, sizeof(gguf->entries[0]));
    if (gguf->pairs == NULL || gguf->entries == NULL) {
        return ERR(ST_NO_MEMORY, "%s: index of %zu keys and %zu tensors", gguf->path, gguf->n_pairs,
                   gguf->n_entries);
    }
    TRY(htab_init(&gguf->keys, gguf_is_pair));
    TRY(htab_init(&gguf->names, gguf_is_entry));
    TRY(read_pairs(&cursor, gguf));
    TRY(read_alignment(gguf));
    TRY(read_entries(&cursor, gguf));
    return place_tensors(gguf, cursor.at);
}

static enum status
gguf_new(const char *path, struct gguf **gguf_out)
{
    struct gguf *gguf = mem_zalloc(1, sizeof(*gguf));

    if (gguf != NULL) {
        gguf->path = mem_strdup(path);
    }
    if (gguf == NULL || gguf->path == NULL) {
        gguf_close(&gguf);
        return ERR(ST_NO_MEMORY, "%s: no memory to open it", path);
    }
    *gguf_out = gguf;
    return ST_OK;
}

enum status
gguf_open(const char *path, struct gguf **gguf_out)
{
    struct gguf *gguf;
    enum status st;

    TRY(gguf_new(path, &gguf));
    st = file_map_open(path, &gguf->map);
    if (st == ST_OK) {
        gguf->bytes = gguf->map.bytes;
        gguf->length = gguf->map.length;
        st = read_all(gguf);
    } else if (st == ST_NOT_FOUND) {
        st = ERR(ST_SYSTEM, "%s", status_detail());
    }
    if (st != ST_OK) {
        gguf_close(&gguf);
        return st;
    }
    *gguf_out = gguf;
    return ST_OK;
}

enum status
gguf_open_bytes(const char *name, const void *bytes, size_t length, struct gguf **gguf_out)
{
    struct gguf *gguf;
    enum status st;

    TRY(gguf_new(name, &gguf));
    gguf->bytes = bytes;
    gguf->length = length;
    st = read_all(gguf);
    if (st != ST_OK) {
        gguf_close(&gguf);
        return st;
    }
    *gguf_out = gguf;
    return ST_OK;
}

void
gguf_close(struct gguf **gguf)
{
    struct gguf *g = *gguf;

    if (g == NULL) {
        return;
    }
    file_map_close(&g->map);
    htab_deinit(&g->keys);
    htab_deinit(&g->names);
    mem_free(g->pairs);
    mem_free(g->entries);
    mem_free(g->path);
    MEM_FREE(*gguf);
}

const char *
gguf_path(const struct gguf *gguf)
{
    return gguf->path;
}

size_t
gguf_offset(const struct gguf *gguf, const void *inside)
{
    return (size_t)((const uint8_t *)inside - gguf->bytes);
}

enum status
gguf_identity(const struct gguf *gguf, uint8_t identity_out[32])
{
    if (gguf->map.bytes == NULL) {
        return ERR(ST_UNAVAILABLE, "%s: is not a file", gguf->path);
    }
    return file_map_digest(gguf->path, &gguf->map.identity, sizeof(gguf->map.identity),
                           identity_out);
}

enum status
gguf_fingerprint(const struct gguf *gguf, uint8_t fingerprint_out[32])
{
    return file_map_digest(gguf->path, gguf->bytes, gguf->length, fingerprint_out);
}
