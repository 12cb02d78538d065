/* SPDX-License-Identifier: Apache-2.0 */
/* sequence - tokens that are being turned into KV: a request's own tokens, or a document.
 *
 * A document under construction is a sequence like any other without an answer: usually with no
 * documents before it and at offset 0; with full attention it has both.  Everything that came from
 * kvasird is checked here, once; afterwards every block id is below the arena's count and every
 * position fits 32 bits. */
#ifndef WORKER_SEQUENCE_H
#define WORKER_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/status.h"
#include "kernels/sample.h"
#include "worker/answer.h"
#include "worker/constrain.h"
#include "worker/llama.h"

#include "kvasir/v1/worker.pb-c.h"

#define SEQUENCE_SEGS_MAX       4096 /* documents of a request */
#define SEQUENCE_KEY_BYTES      32
#define SEQUENCE_NAME_BYTES_MAX 64

/* What a message is checked against. */
struct sequence_limits {
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t place_count; /* of the host tier; 0: there is none */
    uint32_t vocab_size;
    const struct grammar_vocabulary *vocabulary; /* NULL: no schema can be held to */
};

struct sequence_segment {
    uint32_t n_tokens;
    uint32_t offset;
    uint32_t block_first; /* into doc_blocks */
    uint32_t n_blocks;
    uint64_t build;                  /* readable only after this build; 0: readable */
    uint8_t key[SEQUENCE_KEY_BYTES]; /* which document that is, and which of its builds: told */
    uint64_t generation;             /* when the request is kept (engine_keep.c); 0: not known */
};

struct sequence {
    struct htab_node node; /* the engine's: by id, requests and builds apart */
    struct list_node link; /* the engine's: in order of arrival */
    uint64_t id;
    uint64_t order; /* arrival; of a build: of the oldest request that waits for it */
    bool is_build;
    bool is_background; /* a build that nobody waits for */
    bool is_copy;       /* a build that computes nothing: its blocks are copied, K rotated on */

    struct sequence_segment *segs; /* [n_segs] its documents; of a build: what stands before it */
    uint32_t n_segs;
    uint32_t *doc_blocks; /* [n_doc_blocks] */
    uint32_t n_doc_blocks;

    uint32_t own_offset; /* logical position of ids[0] */
    uint32_t *ids;       /* [ids_max] query, then answer; or the document */
    uint32_t n_ids;
    uint32_t ids_max; /* what its blocks hold, and one token more: the last one drawn */
    uint32_t n_prompt;
    uint32_t n_cached; /* ids whose KV is written */
    uint32_t *blocks;  /* [n_blocks] */
    uint32_t n_blocks;
    uint32_t n_reused;       /* leading ids that were cached when it came */
    uint32_t n_documents;    /* leading ids that are documents (full attention without reuse) */
    uint32_t *source_blocks; /* [n_blocks] of a copy; its turn is own_offset */
    uint64_t source_build;   /* the source is readable only after this build; 0: it is */
    uint32_t *host_places;   /* [n_host] where the host tier has its blocks from n_cached on, */
    uint64_t *host_sums;     /* [n_host] and what they must be */
    uint32_t n_host;
    bool is_loading; /* they are being copied: no rows until then */

    struct sample_params sampling; /* history and counter are set per draw */
    struct constrain constrain;
    struct answer answer;
    uint32_t max_tokens; /* of the whole answer */
    bool has_logprobs;
    bool ignores_end;

    uint8_t name[SEQUENCE_NAME_BYTES_MAX]; /* of the call, for a next kvasird */
    uint32_t n_name;                       /* 0: none, it ends with its kvasird */
    bool is_kept;                          /* nobody has taken it up yet; `id` is the worker's */
    bool is_done;                          /* the answer is whole; it is in no step any more */
    bool is_behind;                        /* taken up, and not all drawn tokens have been told */
    uint32_t n_told;                       /* of them */
    char *untold;                          /* [n_untold] their text, owned; while is_behind */
    size_t n_untold;
    struct kept_message *kept_message; /* owned; while a report points into it */

    uint32_t item; /* its place in the table of the step being planned (plan.h) */
    bool has_turn; /* the decodes of the next step begin with it */

    /* While a step runs: its rows of this sequence, and whether it draws the next token. */
    uint32_t rows_running;
    bool is_drawing;

    /* What this step has to say about it; the message points in here. */
    Kvasir__V1__StepResult result;
    Kvasir__V1__TokenLogprob logprob;
    Kvasir__V1__TokenLogprob *logprobs[1];
    char text[2 * ANSWER_OUT_MAX];
    ProtobufCBinaryData top_texts[SAMPLE_LOGPROBS_MAX];
    struct sample_result draw;
};

/* A build as told by kvasird in an Assign.  ST_INVALID names the build and the limit; ST_NO_MEMORY.
 */
enum status sequence_new_build(const Kvasir__V1__Build *build, const Kvasir__V1__Assign *assign,
                               const struct sequence_limits *limits, struct sequence **seq_out);

/* A request.  With an answer so far it continues: the text state is rebuilt and nothing is sent
 * twice. Whether the builds it names exist is the caller's to check.  ST_INVALID: what is wrong
 * with it. */
enum status sequence_new_request(const Kvasir__V1__Assign *assign,
                                 const struct sequence_limits *limits,
                                 const struct tokenizer *tokenizer, struct sequence **seq_out);

/* NULL is fine; it must be in no table or list. */
void sequence_destroy(struct sequence **seq);

/* Appends blocks.  On failure nothing has changed. */
enum status sequence_grant(struct sequence *seq, const uint32_t *blocks, size_t count,
                           const struct sequence_limits *limits);

/* The most that a step can need for this sequence. */
struct llama_room sequence_room(const struct sequence *seq, uint32_t block_tokens);

/* Takes the token in seq->draw: text, stop strings, end.  Fills seq->result. */
void sequence_take(struct sequence *seq, const struct tokenizer *tokenizer);

/* Prepares to tell what was drawn after the first `n_told` tokens of the answer, whose text has
 * `told_bytes`.  ST_INVALID: they have another length, and nothing has changed; ST_NO_MEMORY. */
enum status sequence_fall_behind(struct sequence *seq, const struct tokenizer *tokenizer,
                                 uint32_t n_told, uint64_t told_bytes);
/* Takes the token in seq->draw while it is behind: it will be told with the others. */
void sequence_take_behind(struct sequence *seq, const struct tokenizer *tokenizer);
/* Fills seq->result with all of them; it is no longer behind. */
void sequence_catch_up(struct sequence *seq);

#endif
