/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#define FAIL_AT(file, offset, fmt, ...)                                                            \
    ERR(ST_INVALID, "%s: offset %zu: " fmt, file, (size_t)(offset), __VA_ARGS__)

#define REFUSE(view, key, fmt, ...)                                                                \
    ERR(ST_INVALID, "%s: key %s%s " fmt, (view)->file, (view)->at, key, __VA_ARGS__)

/* -- Parsing ------------------------------------------------------------------------------- */

/* The code unit of "\uXXXX" at `at`; -1 if that is not there. */
static long
code_unit(const char *text, size_t length, size_t at)
{
    long unit = 0;

    if (at > length || length - at < 6 || text[at] != '\\' || text[at + 1] != 'u') {
        return -1;
    }
    for (size_t i = at + 2; i < at + 6; i++) {
        static const char digits[] = "0123456789abcdefABCDEF";
        const char *digit = text[i] == '\0' ? NULL : strchr(digits, text[i]);

        if (digit == NULL) {
            return -1;
        }
        unit = unit * 16 + (digit - digits < 16 ? digit - digits : digit - digits - 6);
    }
    return unit;
}

/* Steps over the escape at *at inside a string: no NUL, which would end json-c's keys, and no half
 * of a surrogate pair.  What else may be wrong with it the parser finds. */
static enum status
skip_escape(const char *file, const char *text, size_t length, size_t *at)
{
    long unit = code_unit(text, length, *at);

    if (unit == 0) {
        return FAIL_AT(file, *at, "%s", "a NUL character in a string");
    }
    if (unit >= 0xD800 && unit <= 0xDFFF) {
        long low = code_unit(text, length, *at + 6);

        if (unit >= 0xDC00 || low < 0xDC00 || low > 0xDFFF) {
            return FAIL_AT(file, *at, "%s", "half of a surrogate pair");
        }
        *at += 12;
        return ST_OK;
    }
    *at += 2;
    return ST_OK;
}

/* Goes over the text without parsing it: refuses what json-c would let pass, and counts the colons
 * outside of strings, which are the members of all objects. */
static enum status
check_text(const char *file, const char *text, size_t length, size_t *members_out)
{
    bool is_inside = false;
    size_t members = 0;

    for (size_t at = 0; at < length;) {
        unsigned char byte = (unsigned char)text[at];

        if (is_inside && byte < 0x20) {
            return FAIL_AT(file, at, "the control character 0x%02x in a string", byte);
        }
        if (is_inside && byte == '\\') {
            TRY(skip_escape(file, text, length, &at));
            continue;
        }
        if (!is_inside && (byte == '\'' || byte == 'N' || byte == 'I' || byte == '\0')) {
            return FAIL_AT(file, at, "0x%02x is not JSON", byte);
        }
        members += !is_inside && byte == ':';
        is_inside = is_inside != (byte == '"');
        at++;
    }
    *members_out = members;
    return ST_OK;
}

/* Bytes that json-c 0.16 takes on the heap for each, while it makes them, rounded up
 * (test_json: no text takes more than its weight). */
#define WEIGHT_OBJECT 680 /* its table has 16 places at once */
#define WEIGHT_MEMBER 224 /* the key; a table that doubles, and the old one */
#define WEIGHT_ARRAY  128
#define WEIGHT_VALUE  128 /* with its place in an array that doubles */
#define WEIGHT_BYTE   3   /* a string that grows, and its copy */

uint64_t
json_weight(const char *text, size_t length)
{
    uint64_t weight = 4096 + (uint64_t)length * WEIGHT_BYTE; /* the parser itself */
    bool is_inside = false;

    for (size_t at = 0; at < length; at++) {
        char byte = text[at];

        if (byte == '"') {
            is_inside = !is_inside;
        } else if (is_inside) {
            at += byte == '\\';
        } else if (byte == '{') {
            weight += WEIGHT_OBJECT + WEIGHT_VALUE;
        } else if (byte == '[') {
            weight += WEIGHT_ARRAY + WEIGHT_VALUE;
        } else if (byte == ',') {
            weight += WEIGHT_VALUE;
        } else if (byte == ':') {
            weight += WEIGHT_MEMBER;
        }
    }
    return weight;
}

/* Recursion is as deep as the parser allowed. */
static size_t
count_members(struct json_object *value)
{
    size_t count = 0;

    if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            count += count_members(json_object_array_get_idx(value, i));
        }
    } else if (json_object_is_type(value, json_type_object)) {
        count = (size_t)json_object_object_length(value);
        json_object_object_foreach(value, key, member)
        {
            (void)key;
            count += count_members(member);
        }
    }
    return count;
}

static bool
is_blank(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr(" \t\r\n", text[i]) == NULL) { /* there is no NUL in it */
            return false;
        }
    }
    return true;
}

static enum status
run_parser(const char *file, const char *text, size_t length, struct json_object **root_out)
{
    struct json_tokener *parser = json_tokener_new_ex(JSON_DEPTH_MAX);
    enum status st = ST_OK;

    if (parser == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu bytes to parse", file, length);
    }
    json_tokener_set_flags(parser, JSON_TOKENER_STRICT);
    struct json_object *root = json_tokener_parse_ex(parser, text, (int)length);
    enum json_tokener_error error = json_tokener_get_error(parser);
    size_t end = json_tokener_get_parse_end(parser);

    if (error == json_tokener_continue) {
        st = FAIL_AT(file, length, "%s", "the text ends inside a value");
    } else if (error != json_tokener_success) {
        st = FAIL_AT(file, end, "%s", json_tokener_error_desc(error));
    } else if (!is_blank(text + end, length - end)) {
        st = FAIL_AT(file, end, "%s", "something follows the value");
    } else if (!json_object_is_type(root, json_type_object)) {
        st = FAIL_AT(file, 0, "%s", "the value is not an object");
    }
    json_tokener_free(parser);
    if (st != ST_OK) {
        json_release(&root);
        return st;
    }
    *root_out = root;
    return ST_OK;
}

enum status
json_parse(const char *file, const char *text, size_t length, struct json_object **root_out)
{
    struct json_object *root;
    size_t good, members;

    if (length > JSON_BYTES_MAX) {
        return FAIL_AT(file, 0, "%zu bytes; at most %u are read", length, JSON_BYTES_MAX);
    }
    good = utf8_check(text, length);
    if (good < length) {
        return FAIL_AT(file, good, "%s", "not UTF-8");
    }
    TRY(check_text(file, text, length, &members));
    TRY(run_parser(file, text, length, &root));
    if (count_members(root) != members) {
        json_release(&root);
        return ERR(ST_INVALID, "%s: an object has one key twice", file);
    }
    *root_out = root;
    return ST_OK;
}

void
json_release(struct json_object **root)
{
    (void)json_object_put(*root);
    *root = NULL;
}

/* -- Getters ------------------------------------------------------------------------------- */

struct json_view
json_root(const char *file, struct json_object *root)
{
    return (struct json_view){.file = file, .object = root};
}

bool
json_has(const struct json_view *view, const char *key)
{
    return json_object_object_get(view->object, key) != NULL;
}

static enum status
get(const struct json_view *view, const char *key, struct json_object **value_out)
{
    struct json_object *value = json_object_object_get(view->object, key);

    if (value == NULL) {
        return REFUSE(view, key, "%s", "is missing");
    }
    *value_out = value;
    return ST_OK;
}

static enum status
get_typed(const struct json_view *view, const char *key, enum json_type type, const char *what,
          struct json_object **value_out)
{
    struct json_object *value;

    TRY(get(view, key, &value));
    if (!json_object_is_type(value, type)) {
        return REFUSE(view, key, "is not %s", what);
    }
    *value_out = value;
    return ST_OK;
}

enum status
json_get_u64(const struct json_view *view, const char *key, uint64_t min, uint64_t max,
             uint64_t *value_out)
{
    struct json_object *value;

    TRY(get_typed(view, key, json_type_int, "an integer", &value));
    uint64_t number = json_object_get_int64(value) < 0 ? 0 : json_object_get_uint64(value);
    if (json_object_get_int64(value) < 0 || number < min || number > max) {
        return REFUSE(view, key, "is %s, not from %" PRIu64 " to %" PRIu64,
                      json_object_to_json_string(value), min, max);
    }
    *value_out = number;
    return ST_OK;
}

enum status
json_get_f64(const struct json_view *view, const char *key, double *value_out)
{
    struct json_object *value;

    TRY(get(view, key, &value));
    if (!json_object_is_type(value, json_type_int)
        && !json_object_is_type(value, json_type_double)) {
        return REFUSE(view, key, "%s", "is not a number");
    }
    double number = json_object_get_double(value);
    if (!isfinite(number)) {
        return REFUSE(view, key, "%s", "is too large a number");
    }
    *value_out = number;
    return ST_OK;
}

enum status
json_get_bool(const struct json_view *view, const char *key, bool *value_out)
{
    struct json_object *value;

    TRY(get_typed(view, key, json_type_boolean, "true or false", &value));
    *value_out = json_object_get_boolean(value) != 0;
    return ST_OK;
}

enum status
json_get_string(const struct json_view *view, const char *key, struct gguf_string *value_out)
{
    struct json_object *value;

    TRY(get_typed(view, key, json_type_string, "a string", &value));
    *value_out = json_text(value);
    return ST_OK;
}

/* Names a member of `view`; a path too long for a message ends in dots. */
__attribute__((format(printf, 3, 4))) static void
set_path(struct json_view *child, struct json_object *object, const char *fmt, ...)
{
    va_list args;

    child->object = object;
    va_start(args, fmt);
    if (vsnprintf(child->at, sizeof(child->at), fmt, args) >= (int)sizeof(child->at)) {
        memcpy(child->at + sizeof(child->at) - 4, "...", 4);
    }
    va_end(args);
}

enum status
json_get_object(const struct json_view *view, const char *key, struct json_view *view_out)
{
    struct json_object *value;

    TRY(get_typed(view, key, json_type_object, "an object", &value));
    view_out->file = view->file;
    set_path(view_out, value, "%s%s.", view->at, key);
    return ST_OK;
}

enum status
json_get_array(const struct json_view *view, const char *key, struct json_object **array_out)
{
    return get_typed(view, key, json_type_array, "an array", array_out);
}

enum status
json_get_element(const struct json_view *view, const char *key, struct json_object *array,
                 size_t index, struct json_view *view_out)
{
    struct json_object *value = json_object_array_get_idx(array, index);

    if (!json_object_is_type(value, json_type_object)) {
        return REFUSE(view, key, "has an element %zu that is not an object", index);
    }
    view_out->file = view->file;
    set_path(view_out, value, "%s%s[%zu].", view->at, key, index);
    return ST_OK;
}

struct gguf_string
json_text(const struct json_object *value)
{
    struct json_object *text = (struct json_object *)(uintptr_t)value; /* json-c takes no const */

    if (!json_object_is_type(value, json_type_string)) {
        return (struct gguf_string){"", 0};
    }
    return (struct gguf_string){json_object_get_string(text),
                                (size_t)json_object_get_string_len(value)};
}

bool
json_is_text(struct gguf_string s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.bytes, text, s.length) == 0;
}
