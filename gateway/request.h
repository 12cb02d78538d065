/* SPDX-License-Identifier: Apache-2.0 */
/* request - OpenAI's JSON, read into what kvasird takes.
 *
 * Pure: a text goes in, a GenerateRequest and what concerns the gateway alone come out, or a
 * refusal that names the field.  Fields that are not known are counted and ignored; fields that
 * are known, but ask for what is not served, are refused: nobody gets another answer than the one
 * asked for. */
#ifndef GATEWAY_REQUEST_H
#define GATEWAY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "gateway/refusal.h"
#include "kvasir/v1/rag.pb-c.h"

#define REQUEST_STOPS_MAX     16
#define REQUEST_SALT_MAX      64 /* bytes */
#define REQUEST_BIASES_MAX    1024
#define REQUEST_DOCUMENTS_MAX 4095

enum request_kind {
    REQUEST_CHAT,
    REQUEST_COMPLETION,
    REQUEST_TOKENIZE,
    REQUEST_DETOKENIZE,
    REQUEST_DOCUMENT,
    REQUEST_DOCUMENT_ACTION, /* pin, warm */
};

struct request_limits {
    uint32_t choices_max; /* n times prompts */
    float temperature;    /* for requests that name none */
};

struct request_prompt {
    char *text; /* or, if NULL: */
    uint32_t *ids;
    size_t id_count;
};

struct request {
    enum request_kind kind;
    struct json_object *root; /* strings below are borrowed from it */
    void **allocations;
    size_t allocation_count;

    const char *model;      /* NULL: not said */
    const char *cache_salt; /* NULL: none */
    uint32_t n;
    bool is_stream;
    bool include_usage;
    bool wants_logprobs;
    uint32_t top_logprobs;
    bool wants_pieces; /* tokenize: the text of each token, too */
    unsigned unknown_fields;

    struct request_prompt *prompts; /* completion, [prompt_count] */
    size_t prompt_count;
    uint32_t *token_ids; /* detokenize */
    size_t token_count;
    bool has_text; /* tokenize: prompt or content was given */

    /* Of one answer; a completion puts each prompt into it in turn (request_use_prompt). */
    Kvasir__V1__GenerateRequest message;
    Kvasir__V1__Sampling sampling;

    /* document */
    Kvasir__V1__Segment *document;
    uint64_t ttl_ms; /* 0: not said */
    bool is_raw;     /* for completions, not for chats */
};

/* False: refused.  request_deinit in both cases. */
bool request_read(struct request *request, enum request_kind kind, const char *body, size_t length,
                  const struct request_limits *limits, struct refusal *refusal);
void request_deinit(struct request *request);

/* "sha256:" (which may be missing) and 64 hex digits. */
bool request_read_hash(const char *text, uint8_t hash_out[32]);

/* Its cache_salt, or an empty one; NULL: an empty one. */
ProtobufCBinaryData request_salt(const struct request *request);

void request_use_prompt(struct request *request, size_t index);

#endif
