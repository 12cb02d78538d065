/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/json_read.h"
#include "gateway/text.h"

#define MESSAGES_MAX 4096
#define PROMPTS_MAX  128
#define NAME_BYTES   96

/* ---- messages -------------------------------------------------------------------------------- */

/* The text of content parts, one after the other. */
static bool
join_parts(struct request *request, struct json_object *parts, const char *name, char **out,
           struct refusal *refusal)
{
    struct text joined = {0};
    size_t count = json_object_array_length(parts);
    char *copy;

    for (size_t i = 0; i < count; i++) {
        struct json_object *part = json_object_array_get_idx(parts, i);
        struct json_object *type = NULL, *value = NULL;
        char *text = NULL;

        if (!json_object_is_type(part, json_type_object)
            || !json_object_object_get_ex(part, "type", &type)
            || !json_object_object_get_ex(part, "text", &value)
            || !json_object_is_type(type, json_type_string)
            || strcmp(json_object_get_string(type), "text") != 0) {
            text_deinit(&joined);
            refusal_set(refusal, name,
                        "%s[%zu] is no {\"type\": \"text\", \"text\": ...}: "
                        "nothing else is served",
                        name, i);
            return false;
        }
        if (!json_read_string(value, name, &text, refusal)) {
            text_deinit(&joined);
            return false;
        }
        text_add(&joined, text);
    }
    copy = request_alloc(request, joined.length + 1, 1, refusal);
    if (copy != NULL && joined.length > 0) {
        memcpy(copy, joined.bytes, joined.length);
    }
    text_deinit(&joined);
    *out = copy;
    return copy != NULL;
}

static bool
read_message(struct request *request, struct json_object *value, size_t index,
             Kvasir__V1__Message *message, struct refusal *refusal)
{
    struct json_object *role = NULL, *content = NULL;
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof(name), "messages[%zu]", index);
    if (!json_object_is_type(value, json_type_object)
        || !json_object_object_get_ex(value, "role", &role)
        || !json_object_object_get_ex(value, "content", &content)) {
        refusal_set(refusal, name, "%s must be an object with role and content", name);
        return false;
    }
    (void)snprintf(name, sizeof(name), "messages[%zu].role", index);
    if (!json_read_string(role, name, &message->role, refusal)) {
        return false;
    }
    if (strcmp(message->role, "developer") == 0) { /* OpenAI's newer word for it */
        message->role = (char *)(uintptr_t) "system";
    }
    if (strcmp(message->role, "system") != 0 && strcmp(message->role, "user") != 0
        && strcmp(message->role, "assistant") != 0) {
        refusal_set(refusal, name, "%s is %.32s: system, user and assistant are served", name,
                    message->role);
        return false;
    }
    (void)snprintf(name, sizeof(name), "messages[%zu].content", index);
    return json_object_is_type(content, json_type_array)
               ? join_parts(request, content, name, &message->content, refusal)
               : json_read_string(content, name, &message->content, refusal);
}

bool
request_read_messages(struct request *request, struct json_object *value, const char *name,
                      struct refusal *refusal)
{
    size_t count =
        json_object_is_type(value, json_type_array) ? json_object_array_length(value) : 0;
    Kvasir__V1__Message *messages;
    Kvasir__V1__Message **list;

    if (count == 0 || count > MESSAGES_MAX) {
        refusal_set(refusal, name, "messages must be an array of 1 to %d", MESSAGES_MAX);
        return false;
    }
    messages = request_alloc(request, count, sizeof(*messages), refusal);
    list = messages == NULL ? NULL : request_alloc(request, count, sizeof(*list), refusal);
    for (size_t i = 0; list != NULL && i < count; i++) {
        kvasir__v1__message__init(&messages[i]);
        list[i] = &messages[i];
        if (!read_message(request, json_object_array_get_idx(value, i), i, &messages[i], refusal)) {
            return false;
        }
    }
    request->message.messages = list;
    request->message.n_messages = list == NULL ? 0 : count;
    return list != NULL;
}

/* ---- prompts and tokens ---------------------------------------------------------------------- */

static bool
read_ids(struct request *request, struct json_object *value, const char *name, uint32_t **ids_out,
         size_t *count_out, struct refusal *refusal)
{
    size_t count = json_object_array_length(value);
    uint32_t *ids = request_alloc(request, count, sizeof(*ids), refusal);

    for (size_t i = 0; ids != NULL && i < count; i++) {
        if (!json_read_u32(json_object_array_get_idx(value, i), name, 0, UINT32_MAX - 1, &ids[i],
                           refusal)) {
            return false;
        }
    }
    *ids_out = ids;
    *count_out = count;
    return ids != NULL;
}

static bool
read_one_prompt(struct request *request, struct json_object *value, const char *name,
                struct request_prompt *prompt, struct refusal *refusal)
{
    if (json_object_is_type(value, json_type_array) && json_object_array_length(value) > 0) {
        return read_ids(request, value, name, &prompt->ids, &prompt->id_count, refusal);
    }
    return json_read_string(value, name, &prompt->text, refusal);
}

/* A string, ids, or an array of either. */
bool
request_read_prompt(struct request *request, struct json_object *value, const char *name,
                    struct refusal *refusal)
{
    bool is_array = json_object_is_type(value, json_type_array);
    struct json_object *first = is_array && json_object_array_length(value) > 0
                                    ? json_object_array_get_idx(value, 0)
                                    : NULL;
    bool is_list = first != NULL && !json_object_is_type(first, json_type_int);
    size_t count = is_list ? json_object_array_length(value) : 1;

    if (count > PROMPTS_MAX || (is_array && first == NULL)) {
        refusal_set(refusal, name, "prompt must be a string, token ids, or an array of 1 to %d",
                    PROMPTS_MAX);
        return false;
    }
    request->prompts = request_alloc(request, count, sizeof(*request->prompts), refusal);
    for (size_t i = 0; request->prompts != NULL && i < count; i++) {
        if (!read_one_prompt(request, is_list ? json_object_array_get_idx(value, i) : value, name,
                             &request->prompts[i], refusal)) {
            return false;
        }
    }
    request->prompt_count = request->prompts == NULL ? 0 : count;
    return request->prompts != NULL;
}

bool
request_read_text(struct request *request, struct json_object *value, const char *name,
                  struct refusal *refusal)
{
    request->has_text = true;
    return json_read_string(value, name, &request->message.query, refusal);
}

bool
request_read_tokens(struct request *request, struct json_object *value, const char *name,
                    struct refusal *refusal)
{
    if (!json_object_is_type(value, json_type_array)) {
        refusal_set(refusal, name, "tokens must be an array of token ids");
        return false;
    }
    return read_ids(request, value, name, &request->token_ids, &request->token_count, refusal);
}

bool
request_read_add_special(struct request *request, struct json_object *value, const char *name,
                         struct refusal *refusal)
{
    bool is_wanted = false;
    bool is_ok = json_read_bool(value, name, &is_wanted, refusal);

    request->message.add_bos = is_wanted;
    return is_ok;
}

/* ---- documents ------------------------------------------------------------------------------- */

static int
hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool
request_read_hash(const char *text, uint8_t hash_out[32])
{
    size_t i = 0;

    text += strncmp(text, "sha256:", 7) == 0 ? 7 : 0;
    while (i < 64 && hex_digit(text[i]) >= 0) {
        hash_out[i / 2] = (uint8_t)(hash_out[i / 2] << 4 | hex_digit(text[i]));
        i++;
    }
    return i == 64 && text[64] == '\0';
}

static bool
read_hash(struct request *request, struct json_object *value, const char *name,
          Kvasir__V1__Segment *segment, struct refusal *refusal)
{
    char *text = NULL;
    uint8_t *key;

    if (!json_read_string(value, name, &text, refusal)) {
        return false;
    }
    key = request_alloc(request, 32, 1, refusal);
    if (key == NULL) {
        return false;
    }
    if (!request_read_hash(text, key)) {
        refusal_set(refusal, name, "%s: hash must be sha256: and 64 hex digits", name);
        return false;
    }
    segment->has_document_key = true;
    segment->document_key = (ProtobufCBinaryData){.data = key, .len = 32};
    return true;
}

/* One member of a document's object; others are of no concern. */
static bool
read_member(struct request *request, const char *key, struct json_object *value, const char *name,
            Kvasir__V1__Segment *segment, struct refusal *refusal)
{
    static const char *const texts[] = {"text", "content", "snippet"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(key, texts[i]) == 0) {
            if (segment->text != NULL) {
                refusal_set(refusal, name, "%s: one of text, content and snippet", name);
                return false;
            }
            return json_read_string(value, name, &segment->text, refusal);
        }
    }
    if (strcmp(key, "corpus") == 0) {
        return json_read_string(value, name, &segment->corpus, refusal);
    }
    if (strcmp(key, "title") == 0) {
        return json_read_string(value, name, &segment->title, refusal);
    }
    if (strcmp(key, "id") == 0) {
        return json_read_string(value, name, &segment->id, refusal);
    }
    if (strcmp(key, "hash") == 0) {
        return read_hash(request, value, name, segment, refusal);
    }
    return true;
}

static bool
read_members(struct request *request, struct json_object *object, const char *name,
             Kvasir__V1__Segment *segment, struct refusal *refusal)
{
    json_object_object_foreach(object, key, value)
    {
        bool is_data = strcmp(key, "data") == 0;

        if (value == NULL) {
            continue;
        }
        if (is_data && json_object_is_type(value, json_type_object)) {
            json_object_object_foreach(value, inner_key, inner)
            {
                if (inner != NULL
                    && !read_member(request, inner_key, inner, name, segment, refusal)) {
                    return false;
                }
            }
        } else if (!read_member(request, is_data ? "text" : key, value, name, segment, refusal)) {
            return false;
        }
    }
    return true;
}

/* A document: a string, {title?, text|content|snippet, id?}, {id?, data}, {id} or {hash}. */
static bool
read_segment(struct request *request, struct json_object *value, const char *name,
             Kvasir__V1__Segment *segment, struct refusal *refusal)
{
    kvasir__v1__segment__init(segment);
    if (json_object_is_type(value, json_type_string)) {
        return json_read_string(value, name, &segment->text, refusal);
    }
    if (!json_object_is_type(value, json_type_object)) {
        refusal_set(refusal, name, "%s must be a string or an object", name);
        return false;
    }
    if (!read_members(request, value, name, segment, refusal)) {
        return false;
    }
    if (segment->text != NULL && segment->has_document_key) {
        refusal_set(refusal, name, "%s: either its text or a hash", name);
        return false;
    }
    if (segment->text == NULL && !segment->has_document_key) {
        if (segment->id == NULL || segment->title != NULL) {
            refusal_set(refusal, name,
                        "%s must have text, content, snippet or data; or, if it is registered, "
                        "only id or hash",
                        name);
            return false;
        }
        segment->document_id = segment->id;
    }
    return true;
}

bool
request_read_documents(struct request *request, struct json_object *value, const char *name,
                       struct refusal *refusal)
{
    size_t count =
        json_object_is_type(value, json_type_array) ? json_object_array_length(value) : SIZE_MAX;
    Kvasir__V1__Segment *segments;
    Kvasir__V1__Segment **list;

    if (count > REQUEST_DOCUMENTS_MAX) {
        refusal_set(refusal, name, "documents must be an array of at most %d",
                    REQUEST_DOCUMENTS_MAX);
        return false;
    }
    segments = request_alloc(request, count, sizeof(*segments), refusal);
    list = segments == NULL ? NULL : request_alloc(request, count, sizeof(*list), refusal);
    for (size_t i = 0; list != NULL && i < count; i++) {
        char field[NAME_BYTES];

        (void)snprintf(field, sizeof(field), "documents[%zu]", i);
        list[i] = &segments[i];
        if (!read_segment(request, json_object_array_get_idx(value, i), field, &segments[i],
                          refusal)) {
            return false;
        }
    }
    request->message.documents = list;
    request->message.n_documents = list == NULL ? 0 : count;
    return list != NULL;
}

bool
request_place_documents(struct request *request, struct refusal *refusal)
{
    Kvasir__V1__GenerateRequest *message = &request->message;

    if (request->kind != REQUEST_COMPLETION) {
        return true;
    }
    for (size_t i = 0; i < message->n_documents; i++) {
        if (message->documents[i]->title != NULL) {
            refusal_set(refusal, "documents",
                        "documents[%zu] has a title: only chats have a place for it", i);
            return false;
        }
    }
    message->segments = message->documents;
    message->n_segments = message->n_documents;
    message->documents = NULL;
    message->n_documents = 0;
    return true;
}

bool
request_read_document_field(struct request *request, struct json_object *value, const char *name,
                            struct refusal *refusal)
{
    if (request->document == NULL) {
        request->document = request_alloc(request, 1, sizeof(*request->document), refusal);
        if (request->document == NULL) {
            return false;
        }
        kvasir__v1__segment__init(request->document);
    }
    return read_member(request, name, value, name, request->document, refusal);
}

bool
request_read_ttl(struct request *request, struct json_object *value, const char *name,
                 struct refusal *refusal)
{
    uint32_t seconds = 0;
    bool is_ok = json_read_u32(value, name, 1, 366u * 86400, &seconds, refusal);

    request->ttl_ms = (uint64_t)seconds * 1000;
    return is_ok;
}

bool
request_read_purpose(struct request *request, struct json_object *value, const char *name,
                     struct refusal *refusal)
{
    char *purpose = NULL;

    if (!json_read_string(value, name, &purpose, refusal)) {
        return false;
    }
    request->is_raw = strcmp(purpose, "completion") == 0;
    if (!request->is_raw && strcmp(purpose, "chat") != 0) {
        refusal_set(refusal, name, "for must be chat or completion");
        return false;
    }
    return true;
}

/* ---- sampling -------------------------------------------------------------------------------- */

bool
request_read_logit_bias(struct request *request, struct json_object *value, const char *name,
                        struct refusal *refusal)
{
    bool is_object = json_object_is_type(value, json_type_object);
    size_t count = is_object ? (size_t)json_object_object_length(value) : REQUEST_BIASES_MAX + 1;
    Kvasir__V1__LogitBias *biases;
    Kvasir__V1__LogitBias **list;
    size_t i = 0;

    if (count > REQUEST_BIASES_MAX) {
        refusal_set(refusal, name, "logit_bias must be an object of at most %d token ids",
                    REQUEST_BIASES_MAX);
        return false;
    }
    biases = request_alloc(request, count, sizeof(*biases), refusal);
    list = biases == NULL ? NULL : request_alloc(request, count, sizeof(*list), refusal);
    if (list == NULL) {
        return false;
    }
    json_object_object_foreach(value, key, bias)
    {
        char *end = NULL;
        unsigned long id = strtoul(key, &end, 10);

        kvasir__v1__logit_bias__init(&biases[i]);
        if (key[0] < '0' || key[0] > '9' || *end != '\0' || id >= UINT32_MAX) {
            refusal_set(refusal, name, "logit_bias: %.32s is no token id", key);
            return false;
        }
        biases[i].has_id = biases[i].has_bias = true;
        biases[i].id = (uint32_t)id;
        if (!json_read_float(bias, name, -100, 100, &biases[i].bias, refusal)) {
            return false;
        }
        list[i] = &biases[i];
        i++;
    }
    request->sampling.logit_bias = list;
    request->sampling.n_logit_bias = count;
    return true;
}

bool
request_read_stop(struct request *request, struct json_object *value, const char *name,
                  struct refusal *refusal)
{
    bool is_array = json_object_is_type(value, json_type_array);
    size_t count = is_array ? json_object_array_length(value) : 1;
    char **stops = request_alloc(request, count, sizeof(*stops), refusal);

    if (stops == NULL) {
        return false;
    }
    if (count > REQUEST_STOPS_MAX) {
        refusal_set(refusal, name, "stop has %zu strings: the limit is %d", count,
                    REQUEST_STOPS_MAX);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!json_read_string(is_array ? json_object_array_get_idx(value, i) : value, name,
                              &stops[i], refusal)) {
            return false;
        }
    }
    request->sampling.stop = stops;
    request->sampling.n_stop = count;
    return true;
}

/* The schema as JSON text; the daemon compiles it. */
static bool
read_schema(struct request *request, struct json_object *format, const char *name,
            struct refusal *refusal)
{
    struct json_object *outer = NULL, *schema = NULL;

    if (!json_object_object_get_ex(format, "json_schema", &outer)
        || !json_object_is_type(outer, json_type_object)
        || !json_object_object_get_ex(outer, "schema", &schema)
        || !json_object_is_type(schema, json_type_object)) {
        refusal_set(refusal, name, "response_format.json_schema.schema must be an object");
        return false;
    }
    request->sampling.json_schema = (char *)(uintptr_t)json_object_to_json_string_ext(
        schema, JSON_C_TO_STRING_PLAIN); /* lives in the object */
    return true;
}

bool
request_read_response_format(struct request *request, struct json_object *value, const char *name,
                             struct refusal *refusal)
{
    struct json_object *type = NULL;
    const char *text = "";

    if (json_object_is_type(value, json_type_object)
        && json_object_object_get_ex(value, "type", &type)
        && json_object_is_type(type, json_type_string)) {
        text = json_object_get_string(type);
    }
    if (strcmp(text, "text") == 0) {
        return true;
    }
    if (strcmp(text, "json_object") == 0) {
        request->sampling.json_schema = (char *)(uintptr_t) "{\"type\":\"object\"}";
        return true;
    }
    if (strcmp(text, "json_schema") == 0) {
        return read_schema(request, value, name, refusal);
    }
    refusal_set(refusal, name, "response_format.type must be text, json_object or json_schema");
    return false;
}

/* ---- what is served in one form only --------------------------------------------------------- */

bool
request_read_modalities(struct request *request, struct json_object *value, const char *name,
                        struct refusal *refusal)
{
    struct json_object *first =
        json_object_is_type(value, json_type_array) && json_object_array_length(value) == 1
            ? json_object_array_get_idx(value, 0)
            : NULL;

    (void)request;
    if (first == NULL || !json_object_is_type(first, json_type_string)
        || strcmp(json_object_get_string(first), "text") != 0) {
        refusal_set(refusal, name, "modalities: only [\"text\"] is served");
        return false;
    }
    return true;
}

bool
request_read_best_of(struct request *request, struct json_object *value, const char *name,
                     struct refusal *refusal)
{
    uint32_t count = 0;

    (void)request;
    if (!json_read_u32(value, name, 1, 128, &count, refusal)) {
        return false;
    }
    if (count != 1) {
        refusal_set(refusal, name, "best_of is not served: ask for n and choose");
    }
    return count == 1;
}
