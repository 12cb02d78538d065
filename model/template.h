/* SPDX-License-Identifier: Apache-2.0 */
/* template - a chat or a raw RAG prompt cut into segments: preamble, one per document, query suffix.
 *
 * The rendered text of a document depends on its title and text alone: no number, count or place, or it
 * would never be reused.  Text of users is never parsed for special tokens; the template's own markers
 * are.  So a segment is a list of pieces, each literal (user) or markup (template). */
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
    TEMPLATE_PREAMBLE, /* always present for chat: BOS if asked for, system text */
    TEMPLATE_DOCUMENT,
    TEMPLATE_QUERY, /* turns, question, assistant header: the request's own tokens */
};

typedef enum status (*template_sink_fn)(void *arg, enum template_segment_kind kind,
                                        size_t document_index, const uint32_t *ids, size_t count);

/* Renders and encodes a chat: calls the sink once for each segment in prompt order; ids are borrowed for
 * the call.  ST_INVALID: no user message, an unknown role, a system message that is not first; plus what
 * tokenizer_encode says, with the message or document named. */
enum status template_render_chat(enum template_kind kind, const struct tokenizer *tokenizer,
                                 struct tokenizer_scratch *scratch,
                                 const struct template_message *messages, size_t message_count,
                                 const struct template_document *documents, size_t document_count,
                                 template_sink_fn sink, void *sink_arg);

#endif
