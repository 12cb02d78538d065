/* SPDX-License-Identifier: Apache-2.0 */
/* read_rig - messages of clients read as an ingest thread reads them, over a tiny tokenizer. */
#ifndef TESTS_SUPPORT_READ_RIG_H
#define TESTS_SUPPORT_READ_RIG_H

#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "daemon/read_prompt.h"
#include "daemon/registry.h"
#include "model/gguf.h"
#include "model/tiny_model.h"

#include "kvasir/v1/rag.pb-c.h"

#define MEMO_BYTES (1u << 20)

struct rig {
    void *bytes;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    struct wire_arena *arena;
    struct reader reader;
    struct reading reading;
    const char *tenant; /* of what is read */
    const struct tenant_grant *grant;
};

static inline void
rig_open(struct rig *rig)
{
    struct tiny_model_config config = tiny_model_defaults();
    size_t length;

    *rig = (struct rig){.tenant = ""};
    ck_assert_int_eq(tiny_model_make(&config, &rig->bytes, &length), ST_OK);
    ck_assert_int_eq(gguf_open_bytes("tiny", rig->bytes, length, &rig->gguf), ST_OK);
    ck_assert_int_eq(tokenizer_new(rig->gguf, &rig->tokenizer), ST_OK);
    ck_assert_int_eq(tokenizer_scratch_new(&rig->scratch), ST_OK);
    ck_assert_int_eq(wire_arena_new(&rig->arena), ST_OK);
    rig->reader.tokenizer = rig->tokenizer;
    rig->reader.template_kind = TEMPLATE_CHATML;
    rig->reader.vocab_size = config.V;
    rig->reader.keeps_turns = true;
    rig->reader.block_tokens = 4;
    ck_assert_int_eq(memo_new(MEMO_BYTES, &rig->reader.memo), ST_OK);
    ck_assert_int_eq(memo_new(MEMO_BYTES, &rig->reader.registered), ST_OK);
}

static inline void
rig_close(struct rig *rig)
{
    prompt_deinit(&rig->reading.prompt);
    memo_destroy(&rig->reader.memo);
    memo_destroy(&rig->reader.registered);
    wire_arena_destroy(&rig->arena);
    tokenizer_scratch_destroy(&rig->scratch);
    tokenizer_destroy(&rig->tokenizer);
    gguf_close(&rig->gguf);
    mem_free(rig->bytes);
}

static inline enum status
read_message(struct rig *rig, enum method_id method, const ProtobufCMessage *message)
{
    struct wire_buffer buffer = {0};
    enum status st;

    prompt_deinit(&rig->reading.prompt);
    ck_assert_int_eq(wire_pack(&buffer, message), ST_OK);
    st = read_prompt(
        &rig->reader, rig->arena, rig->scratch,
        &(struct client_message){method, rig->tenant, buffer.bytes, buffer.length, rig->grant},
        &rig->reading);
    wire_buffer_deinit(&buffer);
    if (st == ST_OK && method == METHOD_REGISTER) { /* as kvasird does */
        const struct prompt_document *document = &rig->reading.prompt.documents[0];

        ck_assert_int_eq(registry_put(rig->reader.registered, &rig->reading.registration.name,
                                      &document->key, document->tokens),
                         ST_OK);
    }
    return st;
}

/* A raw request over one segment of text. */
struct raw {
    Kvasir__V1__GenerateRequest request;
    Kvasir__V1__Segment segment;
    Kvasir__V1__Segment *segments[1];
    Kvasir__V1__Sampling sampling;
    char text[64], query[64];
};

static inline void
raw_init(struct raw *raw, const char *text)
{
    kvasir__v1__generate_request__init(&raw->request);
    kvasir__v1__segment__init(&raw->segment);
    kvasir__v1__sampling__init(&raw->sampling);
    (void)snprintf(raw->text, sizeof(raw->text), "%s", text);
    (void)snprintf(raw->query, sizeof(raw->query), "why?");
    raw->segment.text = raw->text;
    raw->segments[0] = &raw->segment;
    raw->request.n_segments = 1;
    raw->request.segments = raw->segments;
    raw->request.query = raw->query;
    raw->request.sampling = &raw->sampling;
}

static inline void
expect_refused(struct rig *rig, const struct raw *raw, const char *message)
{
    ck_assert_int_eq(read_message(rig, METHOD_GENERATE, &raw->request.base), ST_INVALID);
    ck_assert_str_eq(status_detail(), message);
}

#endif
