/* SPDX-License-Identifier: Apache-2.0 */
#include "client/manifest.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "client/docs.h"
#include "common/conf.h"
#include "common/mem.h"

#define JSON_DEPTH_MAX 4
#define TTL_MS_MAX     (366ull * 24 * 3600 * 1000)

void
manifest_deinit(struct manifest_document *document)
{
    mem_free(document->id);
    mem_free(document->version);
    mem_free(document->path);
    mem_free(document->text);
    mem_free(document->title);
    mem_free(document->tokens);
    *document = (struct manifest_document){0};
}

static enum status
take_string(json_object *object, const char *name, const char *where, char **text_out)
{
    const char *text = NULL;

    TRY(docs_string_member(object, name, where, &text));
    if (text == NULL) {
        return ST_OK;
    }
    *text_out = mem_strdup(text);
    return *text_out == NULL ? ERR(ST_NO_MEMORY, "%s: no memory", where) : ST_OK;
}

static enum status
take_tokens(json_object *object, const char *where, struct manifest_document *document)
{
    json_object *list;

    if (!json_object_object_get_ex(object, "tokens", &list)) {
        return ST_OK;
    }
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) == 0) {
        return ERR(ST_INVALID, "%s: \"tokens\" is not a list of ids", where);
    }
    document->token_count = json_object_array_length(list);
    document->tokens = mem_zalloc(document->token_count, sizeof(document->tokens[0]));
    if (document->tokens == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory", where);
    }
    for (size_t i = 0; i < document->token_count; i++) {
        json_object *id = json_object_array_get_idx(list, i);
        int64_t value = json_object_is_type(id, json_type_int) ? json_object_get_int64(id) : -1;

        if (value < 0 || value > UINT32_MAX) {
            return ERR(ST_INVALID, "%s: \"tokens\"[%zu] is not an id", where, i);
        }
        document->tokens[i] = (uint32_t)value;
    }
    return ST_OK;
}

static enum status
take_weight(json_object *object, const char *where, double *weight_out)
{
    json_object *value;

    *weight_out = 1;
    if (!json_object_object_get_ex(object, "weight", &value)) {
        return ST_OK;
    }
    *weight_out =
        json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double)
            ? json_object_get_double(value)
            : 0;
    return isfinite(*weight_out) && *weight_out > 0
               ? ST_OK
               : ERR(ST_INVALID, "%s: \"weight\" is not a number above 0", where);
}

/* {"pin": true, "ttl": "12h"}; a number is of seconds. */
static enum status
take_pin(json_object *object, const char *where, struct manifest_document *document)
{
    json_object *value;

    if (json_object_object_get_ex(object, "pin", &value)) {
        if (!json_object_is_type(value, json_type_boolean)) {
            return ERR(ST_INVALID, "%s: \"pin\" is neither true nor false", where);
        }
        document->is_pinned = json_object_get_boolean(value) != 0;
    }
    if (!json_object_object_get_ex(object, "ttl", &value)) {
        return ST_OK;
    }
    if (!document->is_pinned) {
        return ERR(ST_INVALID, "%s: \"ttl\" goes with \"pin\"", where);
    }
    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) > 0
        && (uint64_t)json_object_get_int64(value) <= TTL_MS_MAX / 1000) {
        document->ttl_ms = (uint64_t)json_object_get_int64(value) * 1000;
        return ST_OK;
    }
    if (json_object_is_type(value, json_type_string)
        && conf_read_duration("ttl", json_object_get_string(value), &document->ttl_ms) == ST_OK
        && document->ttl_ms > 0 && document->ttl_ms <= TTL_MS_MAX) {
        return ST_OK;
    }
    return ERR(ST_INVALID, "%s: \"ttl\" is not a time like \"90s\" or \"12h\", a year at most",
               where);
}

static enum status
take_members(json_object *object, const char *where, struct manifest_document *document)
{
    if (!json_object_is_type(object, json_type_object)) {
        return ERR(ST_INVALID, "%s: not a JSON object", where);
    }
    TRY(take_string(object, "id", where, &document->id));
    TRY(take_string(object, "version", where, &document->version));
    TRY(take_string(object, "path", where, &document->path));
    TRY(take_string(object, "text", where, &document->text));
    TRY(take_string(object, "title", where, &document->title));
    TRY(take_tokens(object, where, document));
    TRY(take_weight(object, where, &document->weight));
    TRY(take_pin(object, where, document));
    if (document->id == NULL || document->id[0] == '\0') {
        return ERR(ST_INVALID, "%s: no \"id\"", where);
    }
    int sources = (document->path != NULL) + (document->text != NULL) + (document->tokens != NULL);

    if (sources != 1) {
        return ERR(ST_INVALID, "%s: exactly one of \"path\", \"text\" and \"tokens\" must be there",
                   where);
    }
    return document->title != NULL && document->tokens != NULL
               ? ERR(ST_INVALID, "%s: \"title\" goes with a text", where)
               : ST_OK;
}

enum status
manifest_parse(const char *line, size_t length, const char *where,
               struct manifest_document *document_out)
{
    struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
    struct manifest_document document = {0};
    json_object *object;
    enum status st;

    if (tokener == NULL) {
        return ERR(ST_NO_MEMORY, "%s: no memory to read JSON", where);
    }
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    object = json_tokener_parse_ex(tokener, line, (int)length);
    enum json_tokener_error error = json_tokener_get_error(tokener);

    if (error == json_tokener_success) {
        st = take_members(object, where, &document);
    } else if (error == json_tokener_continue) {
        st = ERR(ST_INVALID, "%s: JSON ends too early", where);
    } else {
        st = ERR(ST_INVALID, "%s: column %zu: %s", where, json_tokener_get_parse_end(tokener) + 1,
                 json_tokener_error_desc(error));
    }
    json_object_put(object);
    json_tokener_free(tokener);
    if (st != ST_OK) {
        manifest_deinit(&document);
        return st;
    }
    *document_out = document;
    return ST_OK;
}
