/* SPDX-License-Identifier: Apache-2.0 */
/* read_prompt - a client's message, checked, rendered, tokenised and keyed: what the scheduler
 * takes.
 *
 * The work of an ingest thread, without the thread.  Every refusal names the field and the limit.
 */
#ifndef DAEMON_READ_PROMPT_H
#define DAEMON_READ_PROMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/corpus.h"
#include "daemon/memo.h"
#include "daemon/prompt.h"
#include "daemon/tenants.h"
#include "kvpool/dockey.h"
#include "model/template.h"
#include "model/tokenizer.h"
#include "proto/methods.h"
#include "proto/wire.h"

/* What all threads share; constant but for the memos, which lock for themselves. */
struct reader {
    const struct tokenizer *tokenizer;
    uint8_t tokenizer_fingerprint[32];
    uint8_t pool_fingerprint[32];
    enum template_kind template_kind;
    enum reuse_mode reuse; /* of requests that name none */
    bool keeps_turns;      /* of chats, for their follow-ups */
    uint32_t block_tokens;
    uint32_t vocab_size;     /* ids a client may send are below it */
    struct memo *memo;       /* texts */
    struct memo *registered; /* documents, by key */
};

/* What a client sent. */
struct client_message {
    enum method_id method;
    const char *tenant; /* whose documents: the salt is of its name and the message's; "": nobody's,
                           the salt is the message's */
    const void *payload;
    size_t length;
    const struct tenant_grant *grant; /* what of shared corpora it may use; NULL: nothing */
};

/* How a document is registered. */
struct registration {
    double weight;       /* 0: it is only known, not of the corpus */
    struct dockey name;  /* that its client gave it, or else its key */
    struct dockey scope; /* of the corpus */
    char version[CORPUS_VERSION_BYTES_MAX + 1];
    bool is_pinned;
    uint64_t pin_ttl_ms; /* 0: for ever */
};

/* What comes of a message. */
struct reading {
    struct registration registration; /* Register */
    struct prompt prompt;
    uint32_t priority;
};

/* Methods: Generate (everything), Tokenize (query), Probe (documents), Register (one document;
 * whoever takes the reading remembers it).  `arena` and `scratch` are the thread's.  ST_INVALID,
 * ST_NOT_FOUND (a document key), ST_NO_MEMORY; *reading_out is written only on ST_OK and then owned
 * by the caller. */
enum status read_prompt(const struct reader *reader, struct wire_arena *arena,
                        struct tokenizer_scratch *scratch, const struct client_message *message,
                        struct reading *reading_out);

#endif
