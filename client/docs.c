/* SPDX-License-Identifier: Apache-2.0 */
#include "client/docs.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <json-c/json.h>

#include "common/mem.h"
#include "proto/wire.h"

/* ---- the list -------------------------------------------------------------------------------- */

static void
segment_destroy(Kvasir__V1__Segment *segment)
{
    if (segment != NULL) {
        mem_free(segment->id);
        mem_free(segment->title);
        mem_free(segment->text);
        mem_free(segment);
    }
}

/* Copies the strings; `title` may be NULL. */
static enum status
add(struct docs *docs, const char *id, const char *title, size_t title_length, const char *text)
{
    if (docs->count == DOCS_MAX) {
        return ERR(ST_INVALID, "%s: more than %d documents", id, DOCS_MAX);
    }
    if (docs->count == docs->capacity) {
        size_t capacity = docs->capacity == 0 ? 16 : 2 * docs->capacity;
        void *grown = mem_realloc(docs->segments, capacity, sizeof(docs->segments[0]));

        if (grown == NULL) {
            return ERR(ST_NO_MEMORY, "%s: no memory", id);
        }
        docs->segments = grown;
        docs->capacity = capacity;
    }
    Kvasir__V1__Segment *segment = mem_zalloc(1, sizeof(*segment));

    if (segment == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory", id);
    }
    kvasir__v1__segment__init(segment);
    segment->id = mem_strdup(id);
    segment->text = mem_strdup(text);
    segment->title = title == NULL ? NULL : mem_zalloc(title_length + 1, 1);
    if (segment->id == NULL || segment->text == NULL || (title != NULL && segment->title == NULL)) {
        segment_destroy(segment);
        return ERR(ST_NO_MEMORY, "%s: no memory", id);
    }
    if (title != NULL) {
        memcpy(segment->title, title, title_length);
    }
    docs->segments[docs->count++] = segment;
    return ST_OK;
}

void
docs_deinit(struct docs *docs)
{
    for (size_t i = 0; i < docs->count; i++) {
        segment_destroy(docs->segments[i]);
    }
    mem_free(docs->segments);
    *docs = (struct docs){0};
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status
read_stream(FILE *file, const char *path, char **text_out, size_t *length_out)
{
    /* Room for one byte too many; pages that are not read into cost nothing. */
    char *text = mem_realloc(NULL, DOCS_BYTES_MAX + 2, 1);

    if (text == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory for its text", path);
    }
    size_t length = fread(text, 1, DOCS_BYTES_MAX + 1, file);

    if (ferror(file) != 0) {
        mem_free(text);
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (length > DOCS_BYTES_MAX) {
        mem_free(text);
        return ERR(ST_INVALID, "%s: larger than %u bytes, the most that a request holds", path,
                   DOCS_BYTES_MAX);
    }
    text[length] = '\0';
    *text_out = text;
    *length_out = length;
    return ST_OK;
}

/* The first line that is not UTF-8; no newline is part of a longer character. */
static size_t
bad_line(const char *text, size_t length)
{
    size_t line = 1;

    for (size_t at = 0; at < length; line++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t next = end == NULL ? length : (size_t)(end - text) + 1;

        if (!wire_is_text(text + at, next - at)) {
            return line;
        }
        at = next;
    }
    return 0;
}

enum status
docs_read_text(const char *path, char **text_out, size_t *length_out)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    char *text;
    size_t length;

    if (file == NULL) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    enum status st = read_stream(file, path, &text, &length);

    if (!is_stdin) {
        (void)fclose(file);
    }
    if (st != ST_OK) {
        return st;
    }
    size_t line = bad_line(text, length);

    if (line != 0) {
        mem_free(text);
        return ERR(ST_INVALID, "%s:%zu: not UTF-8 text", path, line);
    }
    *text_out = text;
    *length_out = length;
    return ST_OK;
}

static enum status
add_file(struct docs *docs, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.');
    size_t name_length = dot == NULL || dot == name ? strlen(name) : (size_t)(dot - name);
    char *text;
    size_t length;

    TRY(docs_read_text(path, &text, &length));
    enum status st = add(docs, path, name, name_length, text);

    mem_free(text);
    return st;
}

/* ---- folders --------------------------------------------------------------------------------- */

static bool
has_suffix(const char *name, const char *suffixes)
{
    size_t name_length = strlen(name);

    while (*suffixes != '\0') {
        size_t length = strcspn(suffixes, ",");

        if (length > 0 && name_length > length
            && strncmp(name + name_length - length, suffixes, length) == 0) {
            return true;
        }
        suffixes += length + (suffixes[length] == ',');
    }
    return false;
}

/* By bytes, so that the order is the same in every locale. */
static int
compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum status
add_entry(struct docs *docs, const char *dir, const char *name, size_t *added)
{
    char path[4096];
    struct stat stat_buffer;
    size_t dir_length = strlen(dir);
    const char *slash = dir_length > 0 && dir[dir_length - 1] == '/' ? "" : "/";
    int n = snprintf(path, sizeof(path), "%s%s%s", dir, slash, name);

    if (n < 0 || (size_t)n >= sizeof(path)) {
        return ERR(ST_INVALID, "%s/%s: path longer than %zu bytes", dir, name, sizeof(path) - 1);
    }
    if (stat(path, &stat_buffer) != 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(stat_buffer.st_mode)) {
        return ST_OK;
    }
    ++*added;
    return add_file(docs, path);
}

static enum status
add_folder(struct docs *docs, const char *path, const char *suffixes)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, compare_names);
    enum status st = ST_OK;
    size_t added = 0;

    if (count < 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        if (st == ST_OK && has_suffix(entries[i]->d_name, suffixes)) {
            st = add_entry(docs, path, entries[i]->d_name, &added);
        }
        free(entries[i]);
    }
    free(entries);
    if (st == ST_OK && added == 0) {
        return ERR(ST_NOT_FOUND, "%s: no file in it whose name ends in one of %s", path, suffixes);
    }
    return st;
}

enum status
docs_add_path(struct docs *docs, const char *path, const char *suffixes)
{
    struct stat stat_buffer;

    if (stat(path, &stat_buffer) != 0) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    return S_ISDIR(stat_buffer.st_mode) ? add_folder(docs, path, suffixes) : add_file(docs, path);
}

/* ---- lines of JSON --------------------------------------------------------------------------- */

enum status
docs_string_member(struct json_object *object, const char *name, const char *where,
                   const char **text_out)
{
    json_object *value;

    if (!json_object_object_get_ex(object, name, &value)) {
        return ST_OK;
    }
    if (!json_object_is_type(value, json_type_string)) {
        return ERR(ST_INVALID, "%s: \"%s\" is not a string", where, name);
    }
    const char *text = json_object_get_string(value);

    if (!wire_is_text(text, (size_t)json_object_get_string_len(value))) {
        return ERR(ST_INVALID, "%s: \"%s\" holds a NUL or is not UTF-8", where, name);
    }
    *text_out = text;
    return ST_OK;
}

static enum status
add_object(struct docs *docs, json_object *object, const char *where)
{
    const char *text = NULL, *id = NULL, *title = NULL;

    if (!json_object_is_type(object, json_type_object)) {
        return ERR(ST_INVALID, "%s: not a JSON object", where);
    }
    TRY(docs_string_member(object, "text", where, &text));
    TRY(docs_string_member(object, "id", where, &id));
    TRY(docs_string_member(object, "title", where, &title));
    if (text == NULL) {
        return ERR(ST_INVALID, "%s: no \"text\"", where);
    }
    return add(docs, id == NULL ? where : id, title, title == NULL ? 0 : strlen(title), text);
}

static enum status
add_line(struct docs *docs, struct json_tokener *tokener, const char *line, size_t length,
         const char *where)
{
    json_tokener_reset(tokener);
    json_object *object = json_tokener_parse_ex(tokener, line, (int)length);
    enum json_tokener_error error = json_tokener_get_error(tokener);

    if (error != json_tokener_success) {
        json_object_put(object);
        return error == json_tokener_continue
                   ? ERR(ST_INVALID, "%s: JSON ends too early", where)
                   : ERR(ST_INVALID, "%s: column %zu: %s", where,
                         json_tokener_get_parse_end(tokener) + 1, json_tokener_error_desc(error));
    }
    enum status st = add_object(docs, object, where);

    json_object_put(object);
    return st;
}

static enum status
add_lines(struct docs *docs, struct json_tokener *tokener, const char *path, const char *text,
          size_t length)
{
    size_t line = 1;

    for (size_t at = 0; at < length; line++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t next = end == NULL ? length : (size_t)(end - text);
        char where[4096];

        (void)snprintf(where, sizeof(where), "%s:%zu", strcmp(path, "-") == 0 ? "stdin" : path,
                       line);
        if (strspn(text + at, " \t\r") < next - at) {
            TRY(add_line(docs, tokener, text + at, next - at, where));
        }
        at = next + 1;
    }
    return ST_OK;
}

enum status
docs_add_jsonl(struct docs *docs, const char *path)
{
    char *text;
    size_t length;

    TRY(docs_read_text(path, &text, &length));
    struct json_tokener *tokener = json_tokener_new_ex(DOCS_JSON_DEPTH_MAX);
    enum status st = ERR(ST_NO_MEMORY, "%s: no memory to read JSON", path);

    if (tokener != NULL) {
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        st = add_lines(docs, tokener, path, text, length);
        json_tokener_free(tokener);
    }
    mem_free(text);
    return st;
}
