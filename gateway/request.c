/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "gateway/json_read.h"
#include "gateway/request_parts.h"
#include "model/json.h"

#define MAX_TOKENS_MAX          (1u << 20)
#define COMPLETION_TOKENS       16 /* what OpenAI's completions give unasked */
#define LOGPROBS_MAX            20
#define COMPLETION_LOGPROBS_MAX 20

/* ---- memory ---------------------------------------------------------------------------------- */

void *
request_alloc(struct request *request, size_t count, size_t size, struct refusal *refusal)
{
    void *storage = mem_zalloc(count, size);
    void **grown = mem_realloc(request->allocations, request->allocation_count + 1, sizeof(void *));

    request->allocations = grown == NULL ? request->allocations : grown;
    if (storage == NULL || grown == NULL) {
        mem_free(storage);
        refusal_set_kind(refusal, 503, "unavailable_error", "no_memory",
                         "no memory for the request");
        return NULL;
    }
    request->allocations[request->allocation_count++] = storage;
    return storage;
}

void
request_deinit(struct request *request)
{
    for (size_t i = 0; i < request->allocation_count; i++) {
        mem_free(request->allocations[i]);
    }
    mem_free(request->allocations);
    json_release(&request->root);
    *request = (struct request){0};
}

/* ---- fields ---------------------------------------------------------------------------------- */

/* A reader gets the request, the field's value and name; false: refused. */
typedef bool (*field_fn)(struct request *request, struct json_object *value, const char *name,
                         struct refusal *refusal);

static bool
read_model(struct request *request, struct json_object *value, const char *name,
           struct refusal *refusal)
{
    char *model = NULL;
    bool is_ok = json_read_string(value, name, &model, refusal);

    request->model = model;
    return is_ok;
}

static bool
read_cache_salt(struct request *request, struct json_object *value, const char *name,
                struct refusal *refusal)
{
    char *salt = NULL;
    bool is_ok = json_read_string(value, name, &salt, refusal);

    if (is_ok && strlen(salt) > REQUEST_SALT_MAX) {
        refusal_set(refusal, name, "cache_salt has %zu bytes: the limit is %d", strlen(salt),
                    REQUEST_SALT_MAX);
        return false;
    }
    request->cache_salt = salt;
    return is_ok;
}

static bool
read_max_tokens(struct request *request, struct json_object *value, const char *name,
                struct refusal *refusal)
{
    request->sampling.has_max_tokens = true;
    return json_read_u32(value, name, 1, MAX_TOKENS_MAX, &request->sampling.max_tokens, refusal);
}

static bool
read_temperature(struct request *request, struct json_object *value, const char *name,
                 struct refusal *refusal)
{
    return json_read_float(value, name, 0, 2, &request->sampling.temperature, refusal);
}

static bool
read_top_p(struct request *request, struct json_object *value, const char *name,
           struct refusal *refusal)
{
    request->sampling.has_top_p = true;
    if (!json_read_float(value, name, 0, 1, &request->sampling.top_p, refusal)) {
        return false;
    }
    if (request->sampling.top_p <= 0) { /* OpenAI takes it; the nearest thing is greedy */
        request->sampling.has_top_p = false;
        request->sampling.has_top_k = true;
        request->sampling.top_k = 1;
    }
    return true;
}

/* -1 is how vLLM's clients say "off". */
static bool
read_top_k(struct request *request, struct json_object *value, const char *name,
           struct refusal *refusal)
{
    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) == -1) {
        return true;
    }
    request->sampling.has_top_k = true;
    return json_read_u32(value, name, 0, 1u << 20, &request->sampling.top_k, refusal);
}

static bool
read_min_p(struct request *request, struct json_object *value, const char *name,
           struct refusal *refusal)
{
    request->sampling.has_min_p = true;
    return json_read_float(value, name, 0, 1, &request->sampling.min_p, refusal);
}

static bool
read_repetition_penalty(struct request *request, struct json_object *value, const char *name,
                        struct refusal *refusal)
{
    request->sampling.has_repetition_penalty = true;
    return json_read_float(value, name, 0.01, 100, &request->sampling.repetition_penalty, refusal);
}

/* Zero is what OpenAI's clients send unasked; it changes nothing. */
static bool
read_frequency_penalty(struct request *request, struct json_object *value, const char *name,
                       struct refusal *refusal)
{
    float *field = &request->sampling.frequency_penalty;
    bool is_ok = json_read_float(value, name, -2, 2, field, refusal);

    request->sampling.has_frequency_penalty = is_ok && *field != 0;
    return is_ok;
}

static bool
read_presence_penalty(struct request *request, struct json_object *value, const char *name,
                      struct refusal *refusal)
{
    float *field = &request->sampling.presence_penalty;
    bool is_ok = json_read_float(value, name, -2, 2, field, refusal);

    request->sampling.has_presence_penalty = is_ok && *field != 0;
    return is_ok;
}

static bool
read_min_tokens(struct request *request, struct json_object *value, const char *name,
                struct refusal *refusal)
{
    uint32_t *field = &request->sampling.min_tokens;
    bool is_ok = json_read_u32(value, name, 0, MAX_TOKENS_MAX, field, refusal);

    request->sampling.has_min_tokens = is_ok && *field > 0;
    return is_ok;
}

static bool
read_seed(struct request *request, struct json_object *value, const char *name,
          struct refusal *refusal)
{
    if (!json_object_is_type(value, json_type_int)) {
        refusal_set(refusal, name, "seed must be a whole number");
        return false;
    }
    request->sampling.has_seed = true;
    request->sampling.seed = (uint64_t)json_object_get_int64(value);
    return true;
}

static bool
read_n(struct request *request, struct json_object *value, const char *name,
       struct refusal *refusal)
{
    return json_read_u32(value, name, 1, 128, &request->n, refusal);
}

static bool
read_stream(struct request *request, struct json_object *value, const char *name,
            struct refusal *refusal)
{
    return json_read_bool(value, name, &request->is_stream, refusal);
}

static bool
read_stream_options(struct request *request, struct json_object *value, const char *name,
                    struct refusal *refusal)
{
    struct json_object *option = NULL;

    if (!json_object_is_type(value, json_type_object)) {
        refusal_set(refusal, name, "stream_options must be an object");
        return false;
    }
    if (!json_object_object_get_ex(value, "include_usage", &option) || option == NULL) {
        return true;
    }
    return json_read_bool(option, "stream_options.include_usage", &request->include_usage, refusal);
}

/* A chat says whether, a completion says how many. */
static bool
read_logprobs(struct request *request, struct json_object *value, const char *name,
              struct refusal *refusal)
{
    if (request->kind == REQUEST_CHAT) {
        return json_read_bool(value, name, &request->wants_logprobs, refusal);
    }
    request->wants_logprobs = true;
    return json_read_u32(value, name, 0, COMPLETION_LOGPROBS_MAX, &request->top_logprobs, refusal);
}

static bool
read_top_logprobs(struct request *request, struct json_object *value, const char *name,
                  struct refusal *refusal)
{
    return json_read_u32(value, name, 0, LOGPROBS_MAX, &request->top_logprobs, refusal);
}

static bool
read_ignore_eos(struct request *request, struct json_object *value, const char *name,
                struct refusal *refusal)
{
    bool is_ignored = false;
    bool is_ok = json_read_bool(value, name, &is_ignored, refusal);

    request->message.has_ignore_end = is_ignored;
    request->message.ignore_end = is_ignored;
    return is_ok;
}

static bool
read_pieces(struct request *request, struct json_object *value, const char *name,
            struct refusal *refusal)
{
    return json_read_bool(value, name, &request->wants_pieces, refusal);
}

/* What says something to others, or nothing to us. */
static bool
read_nothing(struct request *request, struct json_object *value, const char *name,
             struct refusal *refusal)
{
    (void)request;
    (void)value;
    (void)name;
    (void)refusal;
    return true;
}

/* What is known and not served: refused, unless it asks for nothing. */
static bool
read_unserved(struct request *request, struct json_object *value, const char *name,
              struct refusal *refusal)
{
    bool is_nothing =
        (json_object_is_type(value, json_type_boolean) && !json_object_get_boolean(value))
        || (json_object_is_type(value, json_type_array) && json_object_array_length(value) == 0)
        || (json_object_is_type(value, json_type_string)
            && (json_object_get_string_len(value) == 0
                || strcmp(json_object_get_string(value), "none") == 0
                || strcmp(json_object_get_string(value), "auto") == 0));

    (void)request;
    if (!is_nothing) {
        refusal_set(refusal, name, "%s is not served", name);
    }
    return is_nothing;
}

enum {
    CHAT = 1u << REQUEST_CHAT,
    COMPLETION = 1u << REQUEST_COMPLETION,
    TOKENIZE = 1u << REQUEST_TOKENIZE,
    DETOKENIZE = 1u << REQUEST_DETOKENIZE,
    DOCUMENT = 1u << REQUEST_DOCUMENT,
    ACTION = 1u << REQUEST_DOCUMENT_ACTION,
    ANSWERS = CHAT | COMPLETION,
    ALL = ANSWERS | TOKENIZE | DETOKENIZE | DOCUMENT | ACTION,
};

static const struct field {
    const char *name;
    unsigned kinds;
    field_fn read;
} fields[] = {
    {"model", ALL, read_model},
    {"messages", CHAT | TOKENIZE, request_read_messages},
    {"prompt", COMPLETION, request_read_prompt},
    {"prompt", TOKENIZE, request_read_text},
    {"content", TOKENIZE, request_read_text},
    {"tokens", DETOKENIZE, request_read_tokens},
    {"documents", ANSWERS | TOKENIZE, request_read_documents},
    {"max_tokens", ANSWERS, read_max_tokens},
    {"max_completion_tokens", CHAT, read_max_tokens},
    {"temperature", ANSWERS, read_temperature},
    {"top_p", ANSWERS, read_top_p},
    {"top_k", ANSWERS, read_top_k},
    {"min_p", ANSWERS, read_min_p},
    {"repetition_penalty", ANSWERS, read_repetition_penalty},
    {"frequency_penalty", ANSWERS, read_frequency_penalty},
    {"presence_penalty", ANSWERS, read_presence_penalty},
    {"logit_bias", ANSWERS, request_read_logit_bias},
    {"min_tokens", ANSWERS, read_min_tokens},
    {"seed", ANSWERS, read_seed},
    {"stop", ANSWERS, request_read_stop},
    {"n", ANSWERS, read_n},
    {"stream", ANSWERS, read_stream},
    {"stream_options", ANSWERS, read_stream_options},
    {"logprobs", ANSWERS, read_logprobs},
    {"top_logprobs", CHAT, read_top_logprobs},
    {"response_format", ANSWERS, request_read_response_format},
    {"ignore_eos", ANSWERS, read_ignore_eos},
    {"cache_salt", ALL, read_cache_salt},
    {"add_special_tokens", TOKENIZE, request_read_add_special},
    {"add_special", TOKENIZE, request_read_add_special},
    {"with_pieces", TOKENIZE, read_pieces},
    {"text", DOCUMENT, request_read_document_field},
    {"content", DOCUMENT, request_read_document_field},
    {"snippet", DOCUMENT, request_read_document_field},
    {"title", DOCUMENT, request_read_document_field},
    {"id", DOCUMENT, request_read_document_field},
    {"ttl_seconds", ACTION, request_read_ttl},
    {"for", DOCUMENT, request_read_purpose},
    {"user", ANSWERS, read_nothing},
    {"metadata", ANSWERS, read_nothing},
    {"store", ANSWERS, read_nothing},
    {"service_tier", ANSWERS, read_nothing},
    {"parallel_tool_calls", CHAT, read_nothing},
    {"add_generation_prompt", TOKENIZE | CHAT, read_nothing},
    {"tools", CHAT, read_unserved},
    {"tool_choice", CHAT, read_unserved},
    {"functions", CHAT, read_unserved},
    {"function_call", CHAT, read_unserved},
    {"modalities", CHAT, request_read_modalities},
    {"audio", CHAT, read_unserved},
    {"chat_template", CHAT, read_unserved},
    {"echo", COMPLETION, read_unserved},
    {"suffix", COMPLETION, read_unserved},
    {"use_beam_search", ANSWERS, read_unserved},
    {"prompt_logprobs", ANSWERS, read_unserved},
    {"best_of", COMPLETION, request_read_best_of},
};

static const struct field *
find_field(enum request_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if ((fields[i].kinds & (1u << kind)) != 0 && strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void
set_defaults(struct request *request, enum request_kind kind, const struct request_limits *limits)
{
    *request = (struct request){.kind = kind, .n = 1};
    kvasir__v1__generate_request__init(&request->message);
    kvasir__v1__sampling__init(&request->sampling);
    request->message.sampling = &request->sampling;
    request->sampling.has_temperature = true;
    request->sampling.temperature = limits->temperature;
    if (kind == REQUEST_COMPLETION) {
        request->sampling.has_max_tokens = true;
        request->sampling.max_tokens = COMPLETION_TOKENS;
    }
}

/* What concerns several fields. */
static bool
check(struct request *request, const struct request_limits *limits, struct refusal *refusal)
{
    size_t choices = request->n;

    if (request->kind == REQUEST_CHAT && request->message.n_messages == 0) {
        refusal_set(refusal, "messages", "messages is missing or empty");
        return false;
    }
    if (request->kind == REQUEST_COMPLETION && request->prompt_count == 0) {
        refusal_set(refusal, "prompt", "prompt is missing or empty");
        return false;
    }
    choices *= request->kind == REQUEST_COMPLETION ? request->prompt_count : 1;
    if (choices > limits->choices_max) {
        refusal_set(refusal, "n", "%zu answers to one request: the limit is %u", choices,
                    limits->choices_max);
        return false;
    }
    if (request->top_logprobs > 0 && !request->wants_logprobs) {
        refusal_set(refusal, "top_logprobs", "top_logprobs needs logprobs: true");
        return false;
    }
    if (request->include_usage && !request->is_stream) {
        refusal_set(refusal, "stream_options", "stream_options needs stream: true");
        return false;
    }
    request->sampling.has_logprobs = request->wants_logprobs;
    request->sampling.logprobs = request->top_logprobs;
    return request_place_documents(request, refusal);
}

bool
request_read(struct request *request, enum request_kind kind, const char *body, size_t length,
             const struct request_limits *limits, struct refusal *refusal)
{
    set_defaults(request, kind, limits);
    if (json_parse("request body", body == NULL ? "" : body, length, &request->root) != ST_OK) {
        refusal_set(refusal, NULL, "%s", status_detail());
        return false;
    }
    json_object_object_foreach(request->root, name, value)
    {
        const struct field *field = find_field(kind, name);

        if (field == NULL) {
            request->unknown_fields++;
        } else if (value != NULL && !field->read(request, value, field->name, refusal)) {
            return false;
        }
    }
    return check(request, limits, refusal);
}

void
request_use_prompt(struct request *request, size_t index)
{
    const struct request_prompt *prompt = &request->prompts[index];

    request->message.query = prompt->text;
    request->message.query_ids = prompt->ids;
    request->message.n_query_ids = prompt->id_count;
    request->message.has_add_bos = prompt->text != NULL;
    request->message.add_bos = prompt->text != NULL;
}

ProtobufCBinaryData
request_salt(const struct request *request)
{
    const char *salt = request == NULL || request->cache_salt == NULL ? "" : request->cache_salt;

    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)salt, .len = strlen(salt)};
}
