/* SPDX-License-Identifier: Apache-2.0 */
/* From a JSON schema to a program.  Everything that occurs more than once is a rule: strings,
 * numbers, white space, properties, items, and what a $ref names, which may be itself. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "model/grammar_write.h"
#include "model/json.h"

static enum status compile_schema(struct compiler *c, struct json_object *schema, const char *at);

/* ---- schemas --------------------------------------------------------------------------------- */

/* What says something and asserts nothing. */
static bool
is_annotation(const char *name)
{
    static const char *const names[] = {
        "title",    "description", "default",  "examples",  "$schema",  "$id",
        "$comment", "deprecated",  "readOnly", "writeOnly", "strict",   "$defs",
        "name",     "definitions", "$anchor",  "example",   "nullable",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static enum status
check_keywords(struct json_object *schema, const char *at)
{
    static const char *const served[] = {
        "type",     "properties", "required",  "items", "minItems",
        "maxItems", "minLength",  "maxLength", "enum",  "const",
        "anyOf",    "oneOf",      "allOf",     "$ref",  "additionalProperties",
    };

    json_object_object_foreach(schema, name, value)
    {
        bool is_known = is_annotation(name);

        (void)value;
        for (size_t i = 0; i < sizeof(served) / sizeof(served[0]) && !is_known; i++) {
            is_known = strcmp(name, served[i]) == 0;
        }
        if (!is_known) {
            return ERR(ST_INVALID, "json_schema%s: %.48s is not served", at, name);
        }
    }
    return ST_OK;
}

static enum status
read_count(struct json_object *schema, const char *name, const char *at, uint32_t absent,
           uint32_t *count_out)
{
    struct json_object *value = NULL;

    *count_out = absent;
    if (!json_object_object_get_ex(schema, name, &value)) {
        return ST_OK;
    }
    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0
        || json_object_get_int64(value) > GRAMMAR_REPEAT_MAX) {
        return ERR(ST_INVALID, "json_schema%s.%s: it must be a whole number, at most %d", at, name,
                   GRAMMAR_REPEAT_MAX);
    }
    *count_out = (uint32_t)json_object_get_int64(value);
    return ST_OK;
}

/* A rule of its own for a part of the schema. */
static enum status
schema_rule(struct compiler *c, struct json_object *schema, const char *at, uint32_t *rule_out)
{
    uint32_t over;

    TRY(grammar_begin_rule(c, rule_out, &over));
    TRY(compile_schema(c, schema, at));
    return grammar_end_rule(c, over);
}

static enum status
write_literal(struct compiler *c, struct json_object *value)
{
    return grammar_emit_text(
        c, value == NULL ? "null"
                         : json_object_to_json_string_ext(
                             value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
}

static enum status
compile_enum(struct compiler *c, struct json_object *values, const char *at)
{
    size_t count =
        json_object_is_type(values, json_type_array) ? json_object_array_length(values) : 0;
    struct alternatives a = {0};

    if (count == 0) {
        return ERR(ST_INVALID, "json_schema%s.enum: it must be an array of one or more", at);
    }
    for (size_t i = 0; i < count; i++) {
        TRY(grammar_begin_alternative(c, &a, i + 1 == count));
        TRY(write_literal(c, json_object_array_get_idx(values, i)));
        TRY(grammar_end_alternative(c, &a));
    }
    return ST_OK;
}

static enum status
compile_any_of(struct compiler *c, struct json_object *schemas, const char *at, bool is_all)
{
    size_t count =
        json_object_is_type(schemas, json_type_array) ? json_object_array_length(schemas) : 0;
    struct alternatives a = {0};

    if (count == 0 || (is_all && count != 1)) {
        return ERR(ST_INVALID, "json_schema%s: %s", at,
                   is_all ? "allOf of one schema is served" : "anyOf needs a schema");
    }
    for (size_t i = 0; i < count; i++) {
        TRY(grammar_begin_alternative(c, &a, i + 1 == count));
        TRY(compile_schema(c, json_object_array_get_idx(schemas, i), at));
        TRY(grammar_end_alternative(c, &a));
    }
    return ST_OK;
}

static enum status
compile_ref(struct compiler *c, struct json_object *value, const char *at)
{
    const char *name = json_object_get_string(value);
    size_t i = 0;

    if (!json_object_is_type(value, json_type_string) || name[0] != '#') {
        return ERR(ST_INVALID, "json_schema%s.$ref: it must point into the schema", at);
    }
    while (i < c->ref_count && strcmp(c->refs[i].name, name) != 0) {
        i++;
    }
    if (i == GRAMMAR_REFS_MAX) {
        return ERR(ST_INVALID, "json_schema: more than %d $refs", GRAMMAR_REFS_MAX);
    }
    if (i == c->ref_count) { /* compiled after what is under way: it may be that */
        TRY(grammar_new_rule(c, &c->refs[i].rule));
        c->refs[i].name = name;
        c->ref_count++;
    }
    return grammar_call(c, c->refs[i].rule);
}

static enum status
find_ref(struct compiler *c, const char *name, struct json_object **schema_out)
{
    char path[256];
    char *rest = path;
    char *step;
    struct json_object *at = c->root;

    (void)snprintf(path, sizeof(path), "%s", name);
    (void)strsep(&rest, "/"); /* the '#' */
    while (at != NULL && (step = strsep(&rest, "/")) != NULL) {
        struct json_object *next = NULL;

        (void)json_object_object_get_ex(at, step, &next);
        at = next;
    }
    *schema_out = at;
    return at != NULL ? ST_OK : ERR(ST_INVALID, "json_schema: $ref %.64s leads nowhere", name);
}

/* ---- objects --------------------------------------------------------------------------------- */

static bool
is_required(struct json_object *schema, const char *name)
{
    struct json_object *required = NULL;
    size_t count;

    if (!json_object_object_get_ex(schema, "required", &required)
        || !json_object_is_type(required, json_type_array)) {
        return false;
    }
    count = json_object_array_length(required);
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(required, i);

        if (json_object_is_type(item, json_type_string)
            && strcmp(json_object_get_string(item), name) == 0) {
            return true;
        }
    }
    return false;
}

/* A name that is required and has no schema could not be written. */
static enum status
check_required(struct json_object *schema, struct json_object *properties, const char *at)
{
    struct json_object *required = NULL;
    size_t count;

    if (!json_object_object_get_ex(schema, "required", &required)) {
        return ST_OK;
    }
    count = json_object_is_type(required, json_type_array) ? json_object_array_length(required) : 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(required, i));

        if (name == NULL || properties == NULL
            || !json_object_object_get_ex(properties, name, NULL)) {
            return ERR(ST_INVALID, "json_schema%s.required: %.48s is not among the properties", at,
                       name == NULL ? "null" : name);
        }
    }
    return ST_OK;
}

static enum status
property_rule(struct compiler *c, const char *name, struct json_object *schema, const char *at,
              uint32_t *rule_out)
{
    char below[160];
    struct json_object *key = json_object_new_string(name);
    uint32_t over;
    enum status st;

    (void)snprintf(below, sizeof(below), "%.100s.%.48s", at, name);
    TRY(grammar_begin_rule(c, rule_out, &over));
    st = key == NULL ? ERR(ST_NO_MEMORY, "no memory for a grammar") : write_literal(c, key);
    (void)json_object_put(key);
    TRY(st);
    TRY(grammar_emit_text(c, ":"));
    TRY(grammar_call_common(c, RULE_SPACE));
    TRY(compile_schema(c, schema, below));
    return grammar_end_rule(c, over);
}

/* Two lanes side by side: in the first nothing was written yet, so there is no comma.  Writing a
 * property leads to the second lane; leaving out an optional one stays in its lane. */
static enum status
write_members(struct compiler *c, const uint32_t *rules, const bool *required, size_t count)
{
    uint32_t *entries = mem_zalloc(count + 1, sizeof(*entries)); /* jumps into the second lane */
    uint32_t end_first = NO_RULE;
    enum status st = entries == NULL ? ERR(ST_NO_MEMORY, "no memory for a grammar") : ST_OK;

    for (size_t i = 0; st == ST_OK && i < count; i++) {
        uint32_t skip = NO_RULE;

        st = required[i] ? ST_OK : grammar_open_split(c, &skip);
        st = st != ST_OK ? st : grammar_call(c, rules[i]);
        st = st != ST_OK ? st : grammar_open_jump(c, &entries[i]);
        if (skip != NO_RULE && st == ST_OK) {
            grammar_close_here(c, skip);
        }
        if (required[i]) { /* behind it the first lane is dead */
            break;
        }
    }
    st = st != ST_OK ? st : grammar_open_jump(c, &end_first);
    for (size_t i = 0; st == ST_OK && i < count; i++) {
        uint32_t skip = NO_RULE;

        if (i > 0) {
            st = required[i] ? ST_OK : grammar_open_split(c, &skip);
            st = st != ST_OK ? st : grammar_emit_text(c, ",");
            st = st != ST_OK ? st : grammar_call_common(c, RULE_SPACE);
            st = st != ST_OK ? st : grammar_call(c, rules[i]);
        }
        if (st == ST_OK && skip != NO_RULE) {
            grammar_close_here(c, skip);
        }
        if (st == ST_OK && entries[i] != 0) {
            grammar_close_here(c, entries[i]);
        }
    }
    if (st == ST_OK) {
        grammar_close_here(c, end_first);
    }
    mem_free(entries);
    return st;
}

static enum status
compile_properties(struct compiler *c, struct json_object *schema, struct json_object *properties,
                   const char *at)
{
    size_t count = (size_t)json_object_object_length(properties);
    uint32_t *rules = mem_zalloc(count, sizeof(*rules));
    bool *required = mem_zalloc(count, sizeof(*required));
    enum status st = rules == NULL || required == NULL
                         ? ERR(ST_NO_MEMORY, "no memory for a grammar")
                         : grammar_emit_text(c, "{");
    size_t i = 0;

    st = st != ST_OK ? st : grammar_call_common(c, RULE_SPACE);
    json_object_object_foreach(properties, name, value)
    {
        if (st == ST_OK) {
            required[i] = is_required(schema, name);
            st = property_rule(c, name, value, at, &rules[i]);
            i++;
        }
    }
    st = st != ST_OK ? st : write_members(c, rules, required, count);
    st = st != ST_OK ? st : grammar_call_common(c, RULE_SPACE);
    st = st != ST_OK ? st : grammar_emit_text(c, "}");
    mem_free(rules);
    mem_free(required);
    return st;
}

static enum status
compile_object(struct compiler *c, struct json_object *schema, const char *at)
{
    struct json_object *properties = NULL, *more = NULL;
    uint32_t value;

    if (json_object_object_get_ex(schema, "properties", &properties)
        && !json_object_is_type(properties, json_type_object)) {
        return ERR(ST_INVALID, "json_schema%s.properties: it must be an object", at);
    }
    TRY(check_required(schema, properties, at));
    if (properties != NULL && json_object_object_length(properties) > 0) {
        return compile_properties(c, schema, properties, at);
    }
    if (!json_object_object_get_ex(schema, "additionalProperties", &more)
        || (json_object_is_type(more, json_type_boolean) && json_object_get_boolean(more))) {
        return grammar_call_common(c, RULE_OBJECT);
    }
    if (json_object_is_type(more, json_type_boolean)) {
        TRY(grammar_emit_text(c, "{"));
        TRY(grammar_call_common(c, RULE_SPACE));
        return grammar_emit_text(c, "}");
    }
    TRY(schema_rule(c, more, at, &value));
    return grammar_write_map(c, value);
}

static enum status
compile_array(struct compiler *c, struct json_object *schema, const char *at)
{
    struct json_object *items = NULL;
    uint32_t item, min, max;

    TRY(read_count(schema, "minItems", at, 0, &min));
    TRY(read_count(schema, "maxItems", at, UINT32_MAX, &max));
    if (min > max) {
        return ERR(ST_INVALID, "json_schema%s: minItems is above maxItems", at);
    }
    if (json_object_object_get_ex(schema, "items", &items)) {
        TRY(schema_rule(c, items, at, &item));
    } else {
        TRY(grammar_common_rule(c, RULE_VALUE, &item));
    }
    return grammar_write_list(c, item, min, max);
}

static enum status
compile_string(struct compiler *c, struct json_object *schema, const char *at)
{
    uint32_t min, max;

    TRY(read_count(schema, "minLength", at, 0, &min));
    TRY(read_count(schema, "maxLength", at, UINT32_MAX, &max));
    if (min > max) {
        return ERR(ST_INVALID, "json_schema%s: minLength is above maxLength", at);
    }
    return min == 0 && max == UINT32_MAX ? grammar_call_common(c, RULE_STRING)
                                         : grammar_write_string(c, min, max);
}

static enum status
compile_type(struct compiler *c, struct json_object *schema, const char *type, const char *at)
{
    uint32_t other, end;

    if (strcmp(type, "object") == 0) {
        return compile_object(c, schema, at);
    }
    if (strcmp(type, "array") == 0) {
        return compile_array(c, schema, at);
    }
    if (strcmp(type, "string") == 0) {
        return compile_string(c, schema, at);
    }
    if (strcmp(type, "integer") == 0) {
        return grammar_call_common(c, RULE_INTEGER);
    }
    if (strcmp(type, "number") == 0) {
        return grammar_call_common(c, RULE_NUMBER);
    }
    if (strcmp(type, "null") == 0) {
        return grammar_emit_text(c, "null");
    }
    if (strcmp(type, "boolean") != 0) {
        return ERR(ST_INVALID, "json_schema%s.type: there is no type %.32s", at, type);
    }
    TRY(grammar_open_split(c, &other));
    TRY(grammar_emit_text(c, "true"));
    TRY(grammar_open_jump(c, &end));
    grammar_close_here(c, other);
    TRY(grammar_emit_text(c, "false"));
    grammar_close_here(c, end);
    return ST_OK;
}

/* A type, or several; without one the schema's other words tell it. */
static enum status
compile_types(struct compiler *c, struct json_object *schema, const char *at)
{
    struct json_object *type = NULL;
    struct alternatives a = {0};
    size_t count;

    if (!json_object_object_get_ex(schema, "type", &type)) {
        bool is_object = json_object_object_get_ex(schema, "properties", NULL);
        bool is_array = json_object_object_get_ex(schema, "items", NULL);

        return is_object  ? compile_object(c, schema, at)
               : is_array ? compile_array(c, schema, at)
                          : grammar_call_common(c, RULE_VALUE);
    }
    if (json_object_is_type(type, json_type_string)) {
        return compile_type(c, schema, json_object_get_string(type), at);
    }
    count = json_object_is_type(type, json_type_array) ? json_object_array_length(type) : 0;
    if (count == 0) {
        return ERR(ST_INVALID, "json_schema%s.type: it must be a string or an array of them", at);
    }
    for (size_t i = 0; i < count; i++) {
        const char *one = json_object_get_string(json_object_array_get_idx(type, i));

        TRY(grammar_begin_alternative(c, &a, i + 1 == count));
        TRY(compile_type(c, schema, one == NULL ? "" : one, at));
        TRY(grammar_end_alternative(c, &a));
    }
    return ST_OK;
}

static enum status
compile_schema(struct compiler *c, struct json_object *schema, const char *at)
{
    struct json_object *part = NULL;

    if (json_object_is_type(schema, json_type_boolean) && json_object_get_boolean(schema)) {
        return grammar_call_common(c, RULE_VALUE);
    }
    if (!json_object_is_type(schema, json_type_object)) {
        return ERR(ST_INVALID, "json_schema%s: a schema must be an object", at);
    }
    TRY(check_keywords(schema, at));
    if (json_object_object_get_ex(schema, "$ref", &part)) {
        return compile_ref(c, part, at);
    }
    if (json_object_object_get_ex(schema, "const", &part)) {
        return write_literal(c, part);
    }
    if (json_object_object_get_ex(schema, "enum", &part)) {
        return compile_enum(c, part, at);
    }
    if (json_object_object_get_ex(schema, "anyOf", &part)
        || json_object_object_get_ex(schema, "oneOf", &part)) {
        return compile_any_of(c, part, at, false);
    }
    if (json_object_object_get_ex(schema, "allOf", &part)) {
        return compile_any_of(c, part, at, true);
    }
    return compile_types(c, schema, at);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static enum status
compile(struct compiler *c)
{
    c->grammar->start = grammar_here(c);
    TRY(grammar_call_common(c, RULE_SPACE));
    TRY(compile_schema(c, c->root, ""));
    TRY(grammar_emit(c, OP_MATCH, 0, 0));
    while (c->ref_done < c->ref_count) {
        struct ref *ref = &c->refs[c->ref_done++];
        struct json_object *schema;

        TRY(find_ref(c, ref->name, &schema));
        c->grammar->rules[ref->rule] = grammar_here(c);
        TRY(compile_schema(c, schema, ref->name + 1));
        TRY(grammar_emit(c, OP_RETURN, 0, 0));
    }
    return ST_OK;
}

enum status
grammar_compile(const char *schema, size_t length, struct grammar **grammar_out)
{
    struct compiler c = {0};
    enum status st;

    if (length > GRAMMAR_SCHEMA_BYTES_MAX) {
        return ERR(ST_INVALID, "json_schema of %zu bytes: the limit is %u", length,
                   GRAMMAR_SCHEMA_BYTES_MAX);
    }
    for (int i = 0; i < COMMON_RULES; i++) {
        c.common[i] = NO_RULE;
    }
    TRY(json_parse("json_schema", schema, length, &c.root));
    c.grammar = mem_zalloc(1, sizeof(*c.grammar));
    st = c.grammar == NULL ? ERR(ST_NO_MEMORY, "no memory for a grammar") : compile(&c);
    json_release(&c.root);
    if (st != ST_OK) {
        grammar_destroy(&c.grammar);
        return st;
    }
    *grammar_out = c.grammar;
    return ST_OK;
}

void
grammar_destroy(struct grammar **grammar)
{
    if (*grammar == NULL) {
        return;
    }
    mem_free((*grammar)->code);
    mem_free((*grammar)->classes);
    mem_free((*grammar)->rules);
    MEM_FREE(*grammar);
}
