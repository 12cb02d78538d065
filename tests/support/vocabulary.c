/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/vocabulary.h"

#include <stdio.h>
#include <string.h>

#include <check.h>

#include "common/utf8.h"

uint32_t
vocabulary_add(struct vocabulary *vocabulary, const char *text, enum vocabulary_type type,
               float score)
{
    size_t id = vocabulary->count++;

    ck_assert_uint_lt(id, VOCABULARY_TOKENS_MAX);
    vocabulary->tokens[id] = text;
    vocabulary->types[id] = (int32_t)type;
    vocabulary->scores[id] = score;
    vocabulary->type_count = vocabulary->count;
    vocabulary->score_count = vocabulary->count;
    return (uint32_t)id;
}

static void
init(struct vocabulary *vocabulary, const char *model)
{
    memset(vocabulary, 0, sizeof(*vocabulary));
    vocabulary->model = model;
    vocabulary->bos = -1;
    vocabulary->eos = -1;
    vocabulary->unknown = -1;
    vocabulary->adds_bos = -1;
    vocabulary->adds_space = -1;
}

void
vocabulary_init_bpe(struct vocabulary *vocabulary, const char *pre)
{
    uint32_t next = 0x100;

    init(vocabulary, "gpt2");
    vocabulary->pre = pre;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool is_itself = byte > ' ' && byte != 0x7F && (byte < 0x80 || byte > 0xA0) && byte != 0xAD;

        (void)utf8_encode(is_itself ? byte : next++, vocabulary->bytes_text[byte]);
        vocabulary_add(vocabulary, vocabulary->bytes_text[byte], VOCABULARY_NORMAL, 0);
    }
}

void
vocabulary_init_spm(struct vocabulary *vocabulary)
{
    init(vocabulary, "llama");
    vocabulary_add(vocabulary, "<unk>", VOCABULARY_UNKNOWN, 0);
    vocabulary_add(vocabulary, "<s>", VOCABULARY_CONTROL, 0);
    vocabulary_add(vocabulary, "</s>", VOCABULARY_CONTROL, 0);
    for (uint32_t byte = 0; byte < 256; byte++) {
        char *text = vocabulary->bytes_text[byte];

        snprintf(text, sizeof(vocabulary->bytes_text[0]), "<0x%02X>", byte);
        vocabulary_add(vocabulary, text, VOCABULARY_BYTE, 0);
    }
    vocabulary->unknown = 0;
    vocabulary->bos = 1;
    vocabulary->eos = 2;
}

void
vocabulary_add_merge(struct vocabulary *vocabulary, const char *merge, const char *result)
{
    ck_assert_uint_lt(vocabulary->merge_count, VOCABULARY_MERGES_MAX);
    vocabulary->merges[vocabulary->merge_count++] = merge;
    for (size_t i = 0; i < vocabulary->count; i++) {
        if (strcmp(vocabulary->tokens[i], result) == 0) {
            return;
        }
    }
    vocabulary_add(vocabulary, result, VOCABULARY_NORMAL, 0);
}

static void
write_id(struct gguf_writer *writer, const char *key, int64_t id)
{
    if (id >= 0) {
        gguf_write_key_u32(writer, key, (uint32_t)id);
    }
}

enum status
vocabulary_load(struct vocabulary *v, struct tokenizer **tokenizer_out)
{
    struct gguf_writer *writer = &v->writer;
    struct gguf *gguf = NULL;

    gguf_write_deinit(writer);
    gguf_write_key_string(writer, "tokenizer.ggml.model", v->model);
    if (v->pre != NULL) {
        gguf_write_key_string(writer, "tokenizer.ggml.pre", v->pre);
    }
    gguf_write_key_strings(writer, "tokenizer.ggml.tokens", v->tokens, v->count);
    if (v->type_count > 0) {
        gguf_write_key_i32s(writer, "tokenizer.ggml.token_type", v->types, v->type_count);
    }
    if (strcmp(v->model, "llama") == 0) {
        gguf_write_key_f32s(writer, "tokenizer.ggml.scores", v->scores, v->score_count);
    } else {
        gguf_write_key_strings(writer, "tokenizer.ggml.merges", v->merges, v->merge_count);
    }
    write_id(writer, "tokenizer.ggml.bos_token_id", v->bos);
    write_id(writer, "tokenizer.ggml.eos_token_id", v->eos);
    write_id(writer, "tokenizer.ggml.unknown_token_id", v->unknown);
    if (v->adds_bos >= 0) {
        gguf_write_key_bool(writer, "tokenizer.ggml.add_bos_token", v->adds_bos);
    }
    if (v->adds_space >= 0) {
        gguf_write_key_bool(writer, "tokenizer.ggml.add_space_prefix", v->adds_space);
    }
    if (v->chat_template != NULL) {
        gguf_write_key_string(writer, "tokenizer.chat_template", v->chat_template);
    }
    enum status st = gguf_write_finish(writer);
    if (st == ST_OK) {
        st = gguf_open_bytes("vocabulary", writer->bytes, writer->length, &gguf);
    }
    if (st == ST_OK) {
        st = tokenizer_new(gguf, tokenizer_out);
    }
    gguf_close(&gguf);
    gguf_write_deinit(writer);
    return st;
}

struct tokenizer *
vocabulary_require(struct vocabulary *vocabulary)
{
    struct tokenizer *tokenizer = NULL;

    ck_assert_msg(vocabulary_load(vocabulary, &tokenizer) == ST_OK, "%s", status_detail());
    return tokenizer;
}
