/* SPDX-License-Identifier: Apache-2.0 */
/* prompt - what a client asked for, once tokenised and keyed; plain data between ingest and
 * scheduler. */
#ifndef DAEMON_PROMPT_H
#define DAEMON_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/reuse.h"
#include "daemon/tokens.h"
#include "kvpool/dockey.h"

#define SAMPLING_MAX_TOKENS_DEFAULT 256
#define SAMPLING_MAX_TOKENS_MAX     (1u << 20)
#define SAMPLING_STOPS_MAX          16
#define SAMPLING_STOP_BYTES_MAX     256
#define SAMPLING_LOGPROBS_MAX       20
#define SAMPLING_BIASES_MAX         1024
#define PROMPT_PRIORITY_DEFAULT     50
#define PROMPT_PRIORITY_MAX         100
#define PROMPT_SALT_BYTES_MAX       64
#define PROMPT_NAME_BYTES_MAX       256 /* a client's own id of a document */

struct sampling_bias {
    uint32_t id;
    float bias;
};

/* How the answer is drawn; every field is set. */
struct sampling {
    uint32_t max_tokens;
    float temperature;        /* 0 is greedy */
    uint32_t top_k;           /* 0 is off */
    float top_p;              /* 1 is off */
    float min_p;              /* 0 is off */
    float repetition_penalty; /* 1 is off */
    uint64_t seed;
    char *stops[SAMPLING_STOPS_MAX]; /* owned */
    uint32_t stop_count;
    bool has_logprobs;
    uint32_t logprobs;            /* alternatives a token */
    struct sampling_bias *biases; /* [bias_count], owned */
    uint32_t bias_count;
    float frequency_penalty, presence_penalty; /* 0 is off */
    uint32_t min_tokens;                       /* 0 is off */
    char *json_schema;                         /* owned; NULL: any text */
    bool ignore_end;
    bool has_max_tokens; /* the client named it; a default one bends to the context */
};

struct prompt_document {
    struct dockey key;     /* the document */
    struct dockey kv_key;  /* its KV as this prompt reads it; differs by mode (reuse.h) */
    struct tokens *tokens; /* one reference */
    char *name;            /* the client's id, owned; may be NULL */
    bool is_shared;        /* of a shared corpus: others may have used it before */
};

struct prompt {
    struct prompt_document *documents; /* [document_count], owned */
    size_t document_count;
    struct tokens *query; /* one reference; NULL: only build the documents */
    enum reuse_mode reuse;
    uint32_t query_documents; /* leading ids of the query that are the documents' (mode none) */
    /* For follow-ups: names of the query's whole blocks, after the documents before it.  NULL: it
     * neither leaves a turn nor looks for one. */
    struct dockey turn_seed;
    struct dockey *turn_keys; /* [turn_key_count], owned */
    uint32_t turn_key_count;
    struct sampling sampling;
    bool is_retry;        /* of a lost answer; it may have brought nothing */
    uint32_t *resume_ids; /* [resume_count], owned: the answer so far, when this is a retry */
    uint32_t resume_count;
    uint64_t resume_text_bytes;
};

/* Documents that its attention reads from blocks of the pool. */
static inline size_t
prompt_segment_count(const struct prompt *prompt)
{
    return prompt->reuse == REUSE_NONE ? 0 : prompt->document_count;
}

/* Frees what the prompt owns and zeroes it; a zeroed prompt is fine. */
void prompt_deinit(struct prompt *prompt);

#endif
