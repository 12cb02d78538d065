/* SPDX-License-Identifier: Apache-2.0 */
/* A file is the length of a header, 8 bytes; the header, a JSON object with one member a tensor;
 * the data.  The parsed header is kept as long as the file is open: names point into it. */
#include "model/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/htab.h"
#include "common/mem.h"
#include "model/dequant.h"
#include "model/file_map.h"
#include "model/gguf_private.h"
#include "model/json.h"

#define LENGTH_BYTES     8u
#define HEADER_BYTES_MAX (100u << 20) /* the format's own limit */
#define TENSORS_MAX      65536
#define METADATA         "__metadata__"

#define REFUSE(file, tensor, fmt, ...)                                                             \
    ERR(ST_INVALID, "%s: tensor %.*s: " fmt, (file)->path, SHOWN((tensor)->name), __VA_ARGS__)

struct named {
    struct htab_node node;
    struct safetensors_tensor tensor;
    uint64_t begin, end; /* of its data, from the end of the header */
};

struct safetensors {
    char *path;
    const uint8_t *bytes;
    size_t length;
    struct file_map map; /* of bytes, unless the caller keeps them */
    struct json_object *header;
    struct named *tensors; /* [count], in order of their data */
    size_t count;
    struct htab names;
};

static bool
is_named(const struct htab_node *node, const void *key)
{
    const struct gguf_string *name = key;
    const struct gguf_string *own = &HTAB_ENTRY(node, struct named, node)->tensor.name;

    return own->length == name->length && memcmp(own->bytes, name->bytes, own->length) == 0;
}

/* -- One tensor ---------------------------------------------------------------------------- */

/* The name goes into messages: nothing that could break a line of a log. */
static enum status
check_name(const struct safetensors *file, const char *name)
{
    if (name[0] == '\0') {
        return ERR(ST_INVALID, "%s: a tensor without a name", file->path);
    }
    for (const char *at = name; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x21 || *at == 0x7f) {
            return ERR(ST_INVALID, "%s: a tensor's name has the character 0x%02x", file->path,
                       (unsigned char)*at);
        }
    }
    return ST_OK;
}

static enum status
read_type(const struct safetensors *file, struct safetensors_tensor *tensor,
          struct json_object *member)
{
    static const struct {
        const char *name;
        enum gguf_tensor_type type;
    } types[] = {{"F32", GGUF_TENSOR_F32}, {"F16", GGUF_TENSOR_F16}, {"BF16", GGUF_TENSOR_BF16}};
    struct gguf_string given = json_text(json_object_object_get(member, "dtype"));

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (json_is_text(given, types[i].name)) {
            tensor->type = types[i].type;
            return ST_OK;
        }
    }
    if (given.length == 0) {
        return REFUSE(file, tensor, "%s", "no dtype");
    }
    return REFUSE(file, tensor, "dtype %.*s is not served; F32 F16 BF16 are", SHOWN(given));
}

/* An integer that is not negative; false for anything else. */
static bool
read_natural(struct json_object *value, uint64_t *number_out)
{
    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0) {
        return false;
    }
    *number_out = json_object_get_uint64(value);
    return true;
}

/* Fills the shape, and the bytes that it takes. */
static enum status
read_shape(const struct safetensors *file, struct safetensors_tensor *tensor,
           struct json_object *member)
{
    struct json_object *shape = json_object_object_get(member, "shape");
    uint64_t bytes = dequant_bytes(tensor->type, 1);

    if (!json_object_is_type(shape, json_type_array)
        || json_object_array_length(shape) > SAFETENSORS_DIMS_MAX) {
        return REFUSE(file, tensor, "no shape of at most %d dimensions", SAFETENSORS_DIMS_MAX);
    }
    tensor->n_dims = (uint32_t)json_object_array_length(shape);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        uint64_t *dim = &tensor->shape[i];

        if (!read_natural(json_object_array_get_idx(shape, i), dim) || *dim == 0
            || __builtin_mul_overflow(bytes, *dim, &bytes)) {
            return REFUSE(file, tensor,
                          "dimension %" PRIu32 " is not a positive integer, or too large", i);
        }
    }
    tensor->bytes = bytes;
    return ST_OK;
}

static enum status
read_place(const struct safetensors *file, struct named *named, struct json_object *member,
           size_t section)
{
    struct json_object *place = json_object_object_get(member, "data_offsets");
    struct safetensors_tensor *tensor = &named->tensor;

    if (!json_object_is_type(place, json_type_array) || json_object_array_length(place) != 2
        || !read_natural(json_object_array_get_idx(place, 0), &named->begin)
        || !read_natural(json_object_array_get_idx(place, 1), &named->end)) {
        return REFUSE(file, tensor, "%s", "data_offsets are not two offsets");
    }
    if (named->begin > named->end || named->end > section) {
        return REFUSE(file, tensor,
                      "data from %" PRIu64 " to %" PRIu64 " does not lie in the file's %zu bytes",
                      named->begin, named->end, section);
    }
    if (named->end - named->begin != tensor->bytes) {
        return REFUSE(file, tensor, "%" PRIu64 " bytes of data, but its shape takes %zu",
                      named->end - named->begin, tensor->bytes);
    }
    if (named->begin % dequant_bytes(tensor->type, 1) != 0) {
        return REFUSE(file, tensor, "data at %" PRIu64 " is not aligned to its elements",
                      named->begin);
    }
    tensor->data = file->bytes + (file->length - section) + named->begin;
    return ST_OK;
}

static enum status
read_tensor(struct safetensors *file, struct named *named, const char *name,
            struct json_object *member, size_t section)
{
    struct safetensors_tensor *tensor = &named->tensor;

    TRY(check_name(file, name));
    tensor->name = (struct gguf_string){name, strlen(name)};
    if (!json_object_is_type(member, json_type_object)) {
        return REFUSE(file, tensor, "%s", "not described by an object");
    }
    json_object_object_foreach(member, key, value)
    {
        (void)value;
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0
            && strcmp(key, "data_offsets") != 0) {
            return REFUSE(file, tensor, "unknown property %.40s", key);
        }
    }
    TRY(read_type(file, tensor, member));
    TRY(read_shape(file, tensor, member));
    return read_place(file, named, member, section);
}

/* -- The whole file ------------------------------------------------------------------------ */

/* Strings for people; only their form is checked. */
static enum status
check_metadata(const struct safetensors *file, struct json_object *metadata)
{
    if (!json_object_is_type(metadata, json_type_object)) {
        return ERR(ST_INVALID, "%s: " METADATA " is not an object", file->path);
    }
    json_object_object_foreach(metadata, key, value)
    {
        if (!json_object_is_type(value, json_type_string)) {
            return ERR(ST_INVALID, "%s: " METADATA ".%.40s is not a string", file->path, key);
        }
    }
    return ST_OK;
}

static enum status
read_tensors(struct safetensors *file, size_t section)
{
    json_object_object_foreach(file->header, key, member)
    {
        if (strcmp(key, METADATA) == 0) {
            TRY(check_metadata(file, member));
        } else {
            TRY(read_tensor(file, &file->tensors[file->count], key, member, section));
            file->count++;
        }
    }
    return ST_OK;
}

static int
by_place(const void *left, const void *right)
{
    const struct named *a = left;
    const struct named *b = right;

    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* In order of their data each begins where the one before ends, and the last ends the file. */
static enum status
check_tiling(const struct safetensors *file, size_t section)
{
    uint64_t end = 0;

    for (size_t i = 0; i < file->count; i++) {
        const struct named *named = &file->tensors[i];

        if (named->begin < end) {
            return REFUSE(file, &named->tensor, "overlaps tensor %.*s",
                          SHOWN(file->tensors[i - 1].tensor.name));
        }
        if (named->begin > end) {
            return REFUSE(file, &named->tensor, "%" PRIu64 " bytes before its data are no tensor's",
                          named->begin - end);
        }
        end = named->end;
    }
    if (end != section) {
        return ERR(ST_INVALID, "%s: the last %" PRIu64 " bytes are no tensor's", file->path,
                   section - end);
    }
    return ST_OK;
}

/* Sorted first, for the table links the elements where they lie. */
static enum status
index_names(struct safetensors *file)
{
    TRY(htab_init(&file->names, is_named));
    for (size_t i = 0; i < file->count; i++) {
        struct named *named = &file->tensors[i];

        TRY(htab_insert(&file->names, gguf_hash(named->tensor.name), &named->node));
    }
    return ST_OK;
}

static enum status
read_all(struct safetensors *file)
{
    uint64_t header_bytes = 0;
    size_t members;

    if (file->length < LENGTH_BYTES) {
        return FAIL_AT(file, 0, "%s", "too short for the length of a header");
    }
    memcpy(&header_bytes, file->bytes, LENGTH_BYTES);
    if (header_bytes > HEADER_BYTES_MAX || header_bytes > file->length - LENGTH_BYTES) {
        return FAIL_AT(file, 0, "a header of %" PRIu64 " bytes in a file of %zu", header_bytes,
                       file->length);
    }
    if (header_bytes == 0 || file->bytes[LENGTH_BYTES] != '{') {
        return FAIL_AT(file, LENGTH_BYTES, "%s", "the header is not a JSON object");
    }
    TRY(json_parse(file->path, (const char *)file->bytes + LENGTH_BYTES, header_bytes,
                   &file->header));
    members = (size_t)json_object_object_length(file->header);
    if (members > TENSORS_MAX) {
        return FAIL_AT(file, LENGTH_BYTES, "%zu tensors; at most %d are allowed", members,
                       TENSORS_MAX);
    }
    file->tensors = mem_zalloc(members, sizeof(file->tensors[0]));
    if (file->tensors == NULL) {
        return ERR(ST_NO_MEMORY, "%s: index of %zu tensors", file->path, members);
    }
    TRY(read_tensors(file, file->length - LENGTH_BYTES - header_bytes));
    qsort(file->tensors, file->count, sizeof(file->tensors[0]), by_place);
    TRY(check_tiling(file, file->length - LENGTH_BYTES - header_bytes));
    return index_names(file);
}

static enum status
safetensors_new(const char *path, struct safetensors **file_out)
{
    struct safetensors *file = mem_zalloc(1, sizeof(*file));

    if (file != NULL) {
        file->path = mem_strdup(path);
    }
    if (file == NULL || file->path == NULL) {
        safetensors_close(&file);
        return ERR(ST_NO_MEMORY, "%s: no memory to open it", path);
    }
    *file_out = file;
    return ST_OK;
}

/* Opens what `file` holds, or closes it. */
static enum status
finish_open(struct safetensors *file, enum status st, struct safetensors **file_out)
{
    if (st == ST_OK) {
        st = read_all(file);
    }
    if (st != ST_OK) {
        safetensors_close(&file);
        return st;
    }
    *file_out = file;
    return ST_OK;
}

enum status
safetensors_open(const char *path, struct safetensors **file_out)
{
    struct safetensors *file;
    enum status st;

    TRY(safetensors_new(path, &file));
    st = file_map_open(path, &file->map);
    file->bytes = file->map.bytes;
    file->length = file->map.length;
    return finish_open(file, st, file_out);
}

enum status
safetensors_open_bytes(const char *name, const void *bytes, size_t length,
                       struct safetensors **file_out)
{
    struct safetensors *file;

    TRY(safetensors_new(name, &file));
    file->bytes = bytes;
    file->length = length;
    return finish_open(file, ST_OK, file_out);
}

void
safetensors_close(struct safetensors **file)
{
    if (*file == NULL) {
        return;
    }
    htab_deinit(&(*file)->names);
    mem_free((*file)->tensors);
    json_release(&(*file)->header);
    file_map_close(&(*file)->map);
    mem_free((*file)->path);
    MEM_FREE(*file);
}

const char *
safetensors_path(const struct safetensors *file)
{
    return file->path;
}

const struct file_identity *
safetensors_identity(const struct safetensors *file)
{
    return &file->map.identity;
}

enum status
safetensors_fingerprint(const struct safetensors *file, uint8_t fingerprint_out[32])
{
    return file_map_digest(file->path, file->bytes, file->length, fingerprint_out);
}

size_t
safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_tensor *
safetensors_at(const struct safetensors *file, size_t index)
{
    assert(index < file->count);
    return &file->tensors[index].tensor;
}

const struct safetensors_tensor *
safetensors_find(const struct safetensors *file, const char *name)
{
    struct gguf_string key = {name, strlen(name)};
    struct htab_node *node = htab_find(&file->names, gguf_hash(key), &key);

    return node == NULL ? NULL : &HTAB_ENTRY(node, struct named, node)->tensor;
}
