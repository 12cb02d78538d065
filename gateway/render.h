/* SPDX-License-Identifier: Apache-2.0 */
/* render - kvasird's replies as OpenAI's JSON: chunks of a stream, whole answers, usage.
 *
 * Pure: from messages to text. */
#ifndef GATEWAY_RENDER_H
#define GATEWAY_RENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/text.h"
#include "kvasir/v1/rag.pb-c.h"

/* What all pieces of one answer say of themselves. */
struct render_head {
    bool is_chat;
    const char *id;    /* "chatcmpl-..." */
    const char *model; /* as the client calls it */
    uint64_t created_s;
    bool has_usage_field; /* of a stream with include_usage: null in every chunk but the last */
};

/* Log probabilities of one choice so far, as parts of JSON. */
struct render_logprobs {
    struct text tokens; /* a chat's whole items; a completion's token texts */
    struct text values; /* completions only, these three */
    struct text tops;
    struct text offsets;
    size_t count;
    size_t text_bytes; /* of the tokens so far */
};

void render_logprobs_deinit(struct render_logprobs *logprobs);
void render_logprobs_add(struct render_logprobs *logprobs, bool is_chat,
                         Kvasir__V1__TokenLogprob *const *items, size_t count);

/* One choice of an answer; what it has not got is NULL. */
struct render_choice {
    unsigned index;
    const char *text;
    size_t text_bytes;
    bool is_first; /* of a chat's stream: the chunk that names the role */
    struct render_logprobs *logprobs;
    const char *finish;
};

/* "stop", "length", "abort"; NULL while it goes on. */
const char *render_finish(Kvasir__V1__FinishReason finish);

/* A chunk as an event, with its empty line. */
void render_chunk(const struct render_head *head, const struct render_choice *choice,
                  struct text *out);

/* Tokens of a request, all its choices together. */
struct render_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    uint64_t loaded_tokens; /* of the cached ones: from the host tier */
    uint64_t queue_us, ttft_us, total_us;
    uint64_t seed;
    uint64_t request;      /* the daemon's number, for kvasirctl explain */
    struct text documents; /* items of usage.documents */
};

void render_usage_deinit(struct render_usage *usage);

/* Adds one answer's usage.  `documents` is how many the client sent: a preamble that stands before
 * them is the daemon's own affair.  `is_first_of_prompt`: prompt and documents count once, not for
 * every choice. */
void render_usage_add(struct render_usage *usage, const Kvasir__V1__Usage *from, size_t documents,
                      bool is_first_of_prompt);

/* The last chunk of a stream that asked for usage. */
void render_usage_chunk(const struct render_head *head, const struct render_usage *usage,
                        struct text *out);

/* A whole answer. */
void render_answer(const struct render_head *head, const struct render_choice *choices,
                   size_t count, const struct render_usage *usage, struct text *out);

#endif
