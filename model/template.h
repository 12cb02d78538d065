/* SPDX-License-Identifier: Apache-2.0 */
/* template - a chat or a raw RAG prompt in segments: preamble, one per document, query suffix.
 *
 * The rendered text of a document depends on its title and text alone: no number, count or place,
 * or it would never be reused.  Text of users is never parsed for special tokens; the template's
 * own markers are.  So a segment is a list of pieces, each literal (user) or markup (template).
 *
 * Where things stand, for a system text S, documents D1 D2 and a question Q:
 *
 *   kind     preamble                           documents   query
 *   chatml   <|im_start|>system\nS\n\n           D1 D2       <|im_end|>\n<|im_start|>user\n
 *                                                           Q<|im_end|>\n<|im_start|>assistant\n
 *   llama3   the same with its own markers, texts trimmed as its Jinja does
 *   mistral  [INST] S\n\n                       D1 D2       Q [/INST]
 *   plain    S\n\n                              D1 D2       Q
 *
 *   document Title: TITLE\nTEXT\n\n             (the first line only if there is a title)
 *
 * Documents sit where a system prompt would quote them, so that chat models meet a familiar
 * shape, and without documents the ids are those of the checkpoint's own template.  A BOS, if the
 * tokenizer asks for one, comes first in the preamble.  Without a system message chatml takes the
 * default text that the checkpoint's Jinja states, if any: SmolLM2's does.  Later turns follow in
 * the query.  Mistral's markers stand without spaces where they are control tokens. */
#ifndef MODEL_TEMPLATE_H
#define MODEL_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/tokenizer.h"

enum template_kind {
    TEMPLATE_PLAIN, /* no roles: "Title: ...\ntext\n\n" documents, then the turns */
    TEMPLATE_CHATML,
    TEMPLATE_LLAMA3,
    TEMPLATE_MISTRAL,
};

/* Guesses the kind from the checkpoint's Jinja text by its markers; NULL or unknown gives PLAIN.
 * The Jinja itself is not run. */
enum template_kind template_detect(const char *jinja, size_t length);
enum status template_parse(const char *name, enum template_kind *kind_out); /* "chatml" ... */
const char *template_name(enum template_kind kind);

#define TEMPLATE_MESSAGES_MAX 4096 /* of one chat */

struct template_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
    size_t content_length;
};

struct template_document {
    const char *title; /* may be NULL */
    size_t title_length;
    const char *text;
    size_t text_length;
};

/* The three kinds of segment; ids are appended to caller-owned growing arrays by the sink. */
enum template_segment_kind {
    TEMPLATE_PREAMBLE, /* BOS if asked for, system text; left out if that is nothing at all */
    TEMPLATE_DOCUMENT,
    TEMPLATE_QUERY, /* turns, question, assistant header: the request's own tokens */
};

/* document_index counts from 0; it is 0 for other kinds.  A status other than ST_OK ends the
 * rendering. */
typedef enum status (*template_sink_fn)(void *arg, enum template_segment_kind kind,
                                        size_t document_index, const uint32_t *ids, size_t count);

/* Renders and encodes a chat: calls the sink once for each segment in prompt order; ids are
 * borrowed for the call.  ST_INVALID: no user message, too many, an unknown role, a system
 * message that is not first; plus what tokenizer_encode says; the message or document is named. */
enum status template_render_chat(enum template_kind kind, const struct tokenizer *tokenizer,
                                 struct tokenizer_scratch *scratch,
                                 const struct template_message *messages, size_t message_count,
                                 const struct template_document *documents, size_t document_count,
                                 template_sink_fn sink, void *sink_arg);

/* The ids of one document, the same that a chat gives it in any place; borrowed from the scratch
 * until its next use.  Fails as tokenizer_encode does, with title or text named. */
enum status template_encode_document(const struct tokenizer *tokenizer,
                                     struct tokenizer_scratch *scratch,
                                     const struct template_document *document,
                                     const uint32_t **ids_out, size_t *count_out);

/* The ids of a raw segment: the text of a user as it stands, no marker parsed, no BOS; borrowed
 * alike. */
enum status template_encode_raw(const struct tokenizer *tokenizer,
                                struct tokenizer_scratch *scratch, const char *text, size_t length,
                                const uint32_t **ids_out, size_t *count_out);

#endif
