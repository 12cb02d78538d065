/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_load.h"

#include <openssl/evp.h>
#include <string.h>

#include "common/mem.h"
#include "model/config.h"

#define BYTES_BOS 256u /* of the byte tokenizer */
#define BYTES_EOS 257u

/* Control tokens that end an answer, whatever else the file says. */
static const char *const end_texts[] = {
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|end_of_text|>", "<|endoftext|>",
    "<|end|>",    "</s>",       "<end_of_turn>", "<EOT>",           "<｜end▁of▁sentence｜>",
};

static enum status
load_model(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct gguf_string model, pre = {"default", strlen("default")};

    TRY(gguf_str(load->gguf, KEY_MODEL, &model));
    if (model.length == 5 && memcmp(model.bytes, "llama", 5) == 0) {
        tokenizer->kind = TOKENIZER_SPM;
        tokenizer->adds_space = true;
        tokenizer->adds_bos = true;
        return ST_OK;
    }
    if (model.length != 4 || memcmp(model.bytes, "gpt2", 4) != 0) {
        return ERR(ST_INVALID, "%s: key %s: tokenizer \"%.*s\" is not served", load->file,
                   KEY_MODEL, model.length > 40 ? 40 : (int)model.length, model.bytes);
    }
    tokenizer->kind = TOKENIZER_BPE;
    if (gguf_has(load->gguf, KEY_PRE)) {
        TRY(gguf_str(load->gguf, KEY_PRE, &pre));
    }
    enum status st = pretokenizer_new(pre, &tokenizer->pretokenizer);
    if (st != ST_OK) {
        return ERR(st, "%s: key %s: %s", load->file, KEY_PRE, status_detail());
    }
    tokenizer->adds_bos = pretokenizer_traits(tokenizer->pretokenizer).adds_bos;
    return ST_OK;
}

/* The token named by a key; TOKENIZER_NONE if the key is absent. */
static enum status
load_id(const struct load *load, const char *key, uint32_t *id_out)
{
    uint64_t id;

    *id_out = TOKENIZER_NONE;
    if (!gguf_has(load->gguf, key)) {
        return ST_OK;
    }
    TRY(gguf_u64(load->gguf, key, &id));
    if (id >= load->tokenizer->vocab_size) {
        return ERR(ST_INVALID, "%s: key %s: token %llu of a vocabulary of %u", load->file, key,
                   (unsigned long long)id, load->tokenizer->vocab_size);
    }
    *id_out = (uint32_t)id;
    return ST_OK;
}

static enum status
load_special_ids(struct load *load)
{
    static const char *const end_keys[] = {KEY_EOS, KEY_EOT, KEY_EOM};
    struct tokenizer *tokenizer = load->tokenizer;

    TRY(load_id(load, KEY_BOS, &tokenizer->bos));
    TRY(load_id(load, KEY_UNKNOWN, &tokenizer->unknown));
    if (tokenizer->kind == TOKENIZER_BPE) {
        tokenizer->unknown =
            TOKENIZER_NONE; /* named in many files, produced by none of their kind */
    }
    for (size_t i = 0; i < sizeof(end_keys) / sizeof(end_keys[0]); i++) {
        uint32_t id;

        TRY(load_id(load, end_keys[i], &id));
        if (id != TOKENIZER_NONE) {
            tokenizer->is_end[id] = true;
        }
    }
    if (!gguf_has(load->gguf, KEY_TYPES)) {
        /* Nothing says which tokens are control tokens: these are, and no text may spell them. */
        for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
            if (i == tokenizer->bos || tokenizer->is_end[i]) {
                tokenizer->types[i] = TOKEN_CONTROL;
            }
        }
    }
    if (gguf_has(load->gguf, KEY_ADD_BOS)) {
        TRY(gguf_bool(load->gguf, KEY_ADD_BOS, &tokenizer->adds_bos));
    }
    if (tokenizer->kind == TOKENIZER_SPM && gguf_has(load->gguf, KEY_PREFIX)) {
        TRY(gguf_bool(load->gguf, KEY_PREFIX, &tokenizer->adds_space));
    }
    if (tokenizer->bos == TOKENIZER_NONE) {
        tokenizer->adds_bos = false;
    }
    return ST_OK;
}

static void
mark_ends(struct tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof(end_texts) / sizeof(end_texts[0]); i++) {
        uint32_t id = tokenizer_find(tokenizer, end_texts[i]);

        if (id != TOKENIZER_NONE && tokenizer->types[id] == TOKEN_CONTROL) {
            tokenizer->is_end[id] = true;
        }
    }
}

static enum status
load_template(struct load *load)
{
    struct gguf_string text;

    if (!gguf_has(load->gguf, KEY_TEMPLATE)) {
        return ST_OK;
    }
    TRY(gguf_str(load->gguf, KEY_TEMPLATE, &text));
    load->tokenizer->chat_template = mem_dup(text.bytes, text.length);
    load->tokenizer->chat_template_bytes = text.length;
    return load->tokenizer->chat_template != NULL
               ? ST_OK
               : ERR(ST_NO_MEMORY, "%s: chat template of %zu bytes", load->file, text.length);
}

/* A field of the fingerprint: its length, its bytes.  OpenSSL fails only for want of memory. */
static bool
digest(EVP_MD_CTX *md, const void *bytes, uint64_t length)
{
    return EVP_DigestUpdate(md, &length, sizeof(length)) == 1
           && EVP_DigestUpdate(md, bytes, length) == 1;
}

static bool
digest_strings(EVP_MD_CTX *md, const struct gguf_string *strings, size_t count)
{
    bool is_fine = digest(md, &count, sizeof(count));

    for (size_t i = 0; is_fine && i < count; i++) {
        is_fine = digest(md, strings[i].bytes, strings[i].length);
    }
    return is_fine;
}

static enum status
take_fingerprint(struct load *load)
{
    static const char domain[] = "kvasir tokenizer 1";
    struct tokenizer *tokenizer = load->tokenizer;
    uint32_t count = tokenizer->vocab_size;
    uint32_t numbers[] = {tokenizer->kind,     tokenizer->bos,        tokenizer->unknown,
                          tokenizer->adds_bos, tokenizer->adds_space, count};
    struct gguf_string pre = {"", 0};
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    if (tokenizer->kind == TOKENIZER_BPE && gguf_has(load->gguf, KEY_PRE)) {
        (void)gguf_str(load->gguf, KEY_PRE, &pre); /* read once already */
    }
    bool is_fine = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
                   && digest(md, domain, sizeof(domain)) && digest(md, numbers, sizeof(numbers))
                   && digest(md, pre.bytes, pre.length)
                   && digest_strings(md, load->tokens, load->tokens == NULL ? 0 : count)
                   && digest_strings(md, load->merges, load->merge_count)
                   && digest(md, load->scores, load->scores == NULL ? 0 : count * sizeof(float))
                   && digest(md, tokenizer->types, count)
                   && digest(md, tokenizer->is_end, count * sizeof(bool))
                   && EVP_DigestFinal_ex(md, tokenizer->fingerprint, NULL) == 1;
    EVP_MD_CTX_free(md);
    return is_fine ? ST_OK : ERR(ST_NO_MEMORY, "%s: fingerprint of the tokenizer", load->file);
}

static enum status
load_all(struct load *load)
{
    TRY(load_model(load));
    TRY(tokenizer_load_tokens(load));
    TRY(load_special_ids(load));
    TRY(tokenizer_index_tokens(load));
    TRY(tokenizer_load_pairs(load));
    TRY(load_template(load));
    mark_ends(load->tokenizer);
    return take_fingerprint(load);
}

static struct tokenizer *
new_empty(void)
{
    struct tokenizer *tokenizer = mem_zalloc(1, sizeof(*tokenizer));

    if (tokenizer != NULL) {
        tokenizer->bos = TOKENIZER_NONE;
        tokenizer->unknown = TOKENIZER_NONE;
        memset(tokenizer->byte_ids, 0xFF, sizeof(tokenizer->byte_ids)); /* TOKENIZER_NONE */
    }
    return tokenizer;
}

enum status
tokenizer_new(const struct gguf *gguf, struct tokenizer **tokenizer_out)
{
    struct load load = {.gguf = gguf, .file = gguf_path(gguf), .tokenizer = new_empty()};

    if (load.tokenizer == NULL) {
        return ERR(ST_NO_MEMORY, "%s: tokenizer", load.file);
    }
    enum status st = load_all(&load);
    mem_free(load.tokens);
    mem_free(load.merges);
    mem_free(load.scores);
    if (st != ST_OK) {
        tokenizer_destroy(&load.tokenizer);
        return st;
    }
    *tokenizer_out = load.tokenizer;
    return ST_OK;
}

static enum status
fill_bytes(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct texts *texts = &tokenizer->texts;
    uint32_t count = tokenizer->vocab_size;

    tokenizer->types = mem_zalloc(count, sizeof(tokenizer->types[0]));
    tokenizer->is_end = mem_zalloc(count, sizeof(tokenizer->is_end[0]));
    texts->bytes = mem_zalloc(BYTES_BOS, 1);
    texts->offsets = mem_zalloc((size_t)count + 1, sizeof(texts->offsets[0]));
    if (tokenizer->types == NULL || tokenizer->is_end == NULL || texts->bytes == NULL
        || texts->offsets == NULL) {
        return ERR(ST_NO_MEMORY, "byte tokenizer of %u tokens", count);
    }
    TRY(text_index_init(&tokenizer->index, BYTES_BOS));
    TRY(special_index_init(&tokenizer->specials, 0));
    for (uint32_t i = 0; i < count; i++) {
        bool is_byte = i < BYTES_BOS;

        tokenizer->types[i] = is_byte ? TOKEN_NORMAL : TOKEN_CONTROL;
        texts->offsets[i + 1] = texts->offsets[i] + is_byte;
        if (is_byte) {
            texts->bytes[i] = (char)i;
            tokenizer->byte_ids[i] = i;
            text_index_add(&tokenizer->index, texts, i);
        }
    }
    tokenizer->bos = BYTES_BOS;
    tokenizer->is_end[BYTES_EOS] = true;
    return take_fingerprint(load);
}

enum status
tokenizer_new_bytes(uint32_t vocab_size, struct tokenizer **tokenizer_out)
{
    struct load load = {.file = "byte tokenizer"};

    if (vocab_size <= BYTES_EOS || vocab_size > MODEL_VOCAB_MAX) {
        return ERR(ST_INVALID, "byte tokenizer: %u tokens; %u to %u are served", vocab_size,
                   BYTES_EOS + 1, MODEL_VOCAB_MAX);
    }
    load.tokenizer = new_empty();
    if (load.tokenizer == NULL) {
        return ERR(ST_NO_MEMORY, "byte tokenizer");
    }
    load.tokenizer->kind = TOKENIZER_BYTES;
    load.tokenizer->vocab_size = vocab_size;
    enum status st = fill_bytes(&load);
    if (st != ST_OK) {
        tokenizer_destroy(&load.tokenizer);
        return st;
    }
    *tokenizer_out = load.tokenizer;
    return ST_OK;
}
