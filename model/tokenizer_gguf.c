/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of a GGUF. */
#include "model/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "model/tokenizer_load.h"

#define KEY_MODEL    "tokenizer.ggml.model"
#define KEY_PRE      "tokenizer.ggml.pre"
#define KEY_TOKENS   "tokenizer.ggml.tokens"
#define KEY_TYPES    "tokenizer.ggml.token_type"
#define KEY_SCORES   "tokenizer.ggml.scores"
#define KEY_MERGES   "tokenizer.ggml.merges"
#define KEY_BOS      "tokenizer.ggml.bos_token_id"
#define KEY_EOS      "tokenizer.ggml.eos_token_id"
#define KEY_EOT      "tokenizer.ggml.eot_token_id"
#define KEY_EOM      "tokenizer.ggml.eom_token_id"
#define KEY_UNKNOWN  "tokenizer.ggml.unknown_token_id"
#define KEY_ADD_BOS  "tokenizer.ggml.add_bos_token"
#define KEY_PREFIX   "tokenizer.ggml.add_space_prefix"
#define KEY_TEMPLATE "tokenizer.chat_template"

static enum status
read_model(const struct load *load, const struct gguf *gguf)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct gguf_string model, pre = {"default", strlen("default")};

    TRY(gguf_str(gguf, KEY_MODEL, &model));
    if (model.length == 5 && memcmp(model.bytes, "llama", 5) == 0) {
        tokenizer->kind = TOKENIZER_SPM;
        tokenizer->space_prefix = SPACE_PREFIX_EACH_RUN;
        tokenizer->adds_bos = true;
        return ST_OK;
    }
    if (model.length != 4 || memcmp(model.bytes, "gpt2", 4) != 0) {
        return ERR(ST_INVALID, "%s: key %s: tokenizer \"%.*s\" is not served", load->file,
                   KEY_MODEL, model.length > 40 ? 40 : (int)model.length, model.bytes);
    }
    tokenizer->kind = TOKENIZER_BPE;
    if (gguf_has(gguf, KEY_PRE)) {
        TRY(gguf_str(gguf, KEY_PRE, &pre));
    }
    enum status st = pretokenizer_new(pre, &tokenizer->pretokenizer);
    if (st != ST_OK) {
        return ERR(st, "%s: key %s: %s", load->file, KEY_PRE, status_detail());
    }
    tokenizer->adds_bos = pretokenizer_traits(tokenizer->pretokenizer).adds_bos;
    return ST_OK;
}

static enum status
read_tokens(struct load *load, const struct gguf *gguf)
{
    size_t count;

    TRY(gguf_array_count(gguf, KEY_TOKENS, &count));
    TRY(tokenizer_set_count(load, count));
    return gguf_array_strings(gguf, KEY_TOKENS, load->tokens, count);
}

/* ST_INVALID unless the array has one element for each token. */
static enum status
check_count(const struct load *load, const struct gguf *gguf, const char *key)
{
    size_t count;

    TRY(gguf_array_count(gguf, key, &count));
    if (count != load->tokenizer->vocab_size) {
        return ERR(ST_INVALID, "%s: key %s: %zu values for %u tokens", load->file, key, count,
                   load->tokenizer->vocab_size);
    }
    return ST_OK;
}

static enum status
read_types(const struct load *load, const struct gguf *gguf)
{
    struct tokenizer *tokenizer = load->tokenizer;
    uint32_t count = tokenizer->vocab_size;

    if (!gguf_has(gguf, KEY_TYPES)) {
        memset(tokenizer->types, TOKEN_NORMAL, count);
        return ST_OK;
    }
    TRY(check_count(load, gguf, KEY_TYPES));
    int32_t *types = mem_zalloc(count, sizeof(types[0]));
    if (types == NULL) {
        return ERR(ST_NO_MEMORY, "%s: types of %u tokens", load->file, count);
    }
    enum status st = gguf_array_i32(gguf, KEY_TYPES, types, count);
    for (uint32_t i = 0; st == ST_OK && i < count; i++) {
        if (types[i] < TOKEN_NORMAL || types[i] > TOKEN_BYTE) {
            st = ERR(ST_INVALID, "%s: key %s: token %u has the unknown type %" PRId32, load->file,
                     KEY_TYPES, i, types[i]);
        }
        tokenizer->types[i] = (uint8_t)types[i];
    }
    mem_free(types);
    return st;
}

static enum status
read_scores(struct load *load, const struct gguf *gguf)
{
    uint32_t count = load->tokenizer->vocab_size;

    TRY(check_count(load, gguf, KEY_SCORES));
    load->scores = mem_zalloc(count, sizeof(load->scores[0]));
    if (load->scores == NULL) {
        return ERR(ST_NO_MEMORY, "%s: scores of %u tokens", load->file, count);
    }
    TRY(gguf_array_f32(gguf, KEY_SCORES, load->scores, count));
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(load->scores[i])) {
            return ERR(ST_INVALID, "%s: key %s: token %u has no number for a score", load->file,
                       KEY_SCORES, i);
        }
    }
    return ST_OK;
}

/* Cuts "LEFT RIGHT" in two. */
static enum status
split_merge(const struct load *load, size_t number, struct gguf_string text, struct merge *merge)
{
    const char *space = text.length < 3 ? NULL : memchr(text.bytes + 1, ' ', text.length - 1);

    if (space == NULL) {
        return ERR(ST_INVALID, "%s: key %s: merge %zu is not two tokens with a space between",
                   load->file, KEY_MERGES, number);
    }
    size_t left_length = (size_t)(space - text.bytes);
    *merge = (struct merge){{text.bytes, left_length}, {space + 1, text.length - left_length - 1}};
    return ST_OK;
}

static enum status
read_merges(struct load *load, const struct gguf *gguf)
{
    enum status st;
    size_t count;

    TRY(gguf_array_count(gguf, KEY_MERGES, &count));
    TRY(tokenizer_set_merge_count(load, count));
    struct gguf_string *texts = mem_zalloc(count, sizeof(texts[0]));
    if (texts == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu merges", load->file, count);
    }
    st = gguf_array_strings(gguf, KEY_MERGES, texts, count);
    for (size_t i = 0; st == ST_OK && i < count; i++) {
        st = split_merge(load, i, texts[i], &load->merges[i]);
    }
    mem_free(texts);
    return st;
}

/* The token named by a key; TOKENIZER_NONE if the key is absent. */
static enum status
read_id(const struct load *load, const struct gguf *gguf, const char *key, uint32_t *id_out)
{
    uint64_t id;

    *id_out = TOKENIZER_NONE;
    if (!gguf_has(gguf, key)) {
        return ST_OK;
    }
    TRY(gguf_u64(gguf, key, &id));
    if (id >= load->tokenizer->vocab_size) {
        return ERR(ST_INVALID, "%s: key %s: token %llu of a vocabulary of %u", load->file, key,
                   (unsigned long long)id, load->tokenizer->vocab_size);
    }
    *id_out = (uint32_t)id;
    return ST_OK;
}

static enum status
read_special_ids(const struct load *load, const struct gguf *gguf)
{
    static const char *const end_keys[] = {KEY_EOS, KEY_EOT, KEY_EOM};
    struct tokenizer *tokenizer = load->tokenizer;

    TRY(read_id(load, gguf, KEY_BOS, &tokenizer->bos));
    TRY(read_id(load, gguf, KEY_UNKNOWN, &tokenizer->unknown));
    if (tokenizer->kind == TOKENIZER_BPE) {
        tokenizer->unknown =
            TOKENIZER_NONE; /* named in many files, produced by none of their kind */
    }
    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]); i++) {
        uint32_t id;

        TRY(read_id(load, gguf, end_keys[i], &id));
        if (id != TOKENIZER_NONE) {
            tokenizer->is_end[id] = true;
        }
    }
    if (!gguf_has(gguf, KEY_TYPES)) {
        /* Nothing says which tokens are control tokens: these are, and no text may spell them. */
        for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
            if (i == tokenizer->bos || tokenizer->is_end[i]) {
                tokenizer->types[i] = TOKEN_CONTROL;
            }
        }
    }
    return ST_OK;
}

static enum status
read_flags(const struct load *load, const struct gguf *gguf)
{
    struct tokenizer *tokenizer = load->tokenizer;

    if (gguf_has(gguf, KEY_ADD_BOS)) {
        TRY(gguf_bool(gguf, KEY_ADD_BOS, &tokenizer->adds_bos));
    }
    if (tokenizer->kind == TOKENIZER_SPM && gguf_has(gguf, KEY_PREFIX)) {
        bool adds_space;

        TRY(gguf_bool(gguf, KEY_PREFIX, &adds_space));
        tokenizer->space_prefix = adds_space ? SPACE_PREFIX_EACH_RUN : SPACE_PREFIX_NONE;
    }
    return ST_OK;
}

static enum status
read_gguf(struct load *load, const void *source)
{
    const struct gguf *gguf = source;
    struct gguf_string text;

    load->gguf = gguf;
    load->tokens_at = "key " KEY_TOKENS;
    load->merges_at = "key " KEY_MERGES;
    TRY(read_model(load, gguf));
    TRY(read_tokens(load, gguf));
    TRY(read_types(load, gguf));
    if (load->tokenizer->kind == TOKENIZER_SPM) {
        TRY(read_scores(load, gguf));
    } else {
        TRY(read_merges(load, gguf));
    }
    TRY(read_special_ids(load, gguf));
    TRY(read_flags(load, gguf));
    if (!gguf_has(gguf, KEY_TEMPLATE)) {
        return ST_OK;
    }
    TRY(gguf_str(gguf, KEY_TEMPLATE, &text));
    return tokenizer_set_template(load, text);
}

enum status
tokenizer_new(const struct gguf *gguf, struct tokenizer **tokenizer_out)
{
    return tokenizer_load(gguf_path(gguf), read_gguf, gguf, tokenizer_out);
}
