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

enum status
tokenizer_set_count(struct load *load, size_t count)
{
    struct tokenizer *tokenizer = load->tokenizer;

    if (count == 0 || count > MODEL_VOCAB_MAX) {
        return ERR(ST_INVALID, "%s: %s: %zu tokens; 1 to %u are served", load->file,
                   load->tokens_at, count, MODEL_VOCAB_MAX);
    }
    tokenizer->vocab_size = (uint32_t)count;
    load->tokens = mem_zalloc(count, sizeof(load->tokens[0]));
    tokenizer->types = mem_zalloc(count, sizeof(tokenizer->types[0]));
    tokenizer->is_end = mem_zalloc(count, sizeof(tokenizer->is_end[0]));
    if (load->tokens == NULL || tokenizer->types == NULL || tokenizer->is_end == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu tokens", load->file, count);
    }
    for (size_t i = 0; i < count; i++) {
        load->tokens[i].bytes = "";
    }
    return ST_OK;
}

enum status
tokenizer_set_merge_count(struct load *load, size_t count)
{
    if (count > MERGES_MAX) {
        return ERR(ST_INVALID, "%s: %s: %zu merges; at most %u are served", load->file,
                   load->merges_at, count, MERGES_MAX);
    }
    load->merge_count = count;
    load->merges = mem_zalloc(count, sizeof(load->merges[0]));
    return load->merges != NULL ? ST_OK : ERR(ST_NO_MEMORY, "%s: %zu merges", load->file, count);
}

enum status
tokenizer_set_template(struct load *load, struct gguf_string text)
{
    load->tokenizer->chat_template = mem_dup(text.bytes, text.length);
    load->tokenizer->chat_template_bytes = text.length;
    return load->tokenizer->chat_template != NULL
               ? ST_OK
               : ERR(ST_NO_MEMORY, "%s: chat template of %zu bytes", load->file, text.length);
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

static bool
digest_merges(EVP_MD_CTX *md, const struct merge *merges, size_t count)
{
    bool is_fine = digest(md, &count, sizeof(count));

    for (size_t i = 0; is_fine && i < count; i++) {
        is_fine = digest(md, merges[i].left.bytes, merges[i].left.length)
                  && digest(md, merges[i].right.bytes, merges[i].right.length);
    }
    return is_fine;
}

static bool
digest_patterns(EVP_MD_CTX *md, const struct pretokenizer *pretokenizer)
{
    bool is_fine = true;

    for (size_t i = 0; is_fine && pretokenizer != NULL; i++) {
        const char *pattern = pretokenizer_pattern(pretokenizer, i);

        if (pattern == NULL) {
            break;
        }
        is_fine = digest(md, pattern, strlen(pattern));
    }
    return is_fine;
}

static enum status
take_fingerprint(struct load *load)
{
    static const char domain[] = "kvasir tokenizer 2";
    struct tokenizer *tokenizer = load->tokenizer;
    uint32_t count = tokenizer->vocab_size;
    struct pretokenizer_traits traits = {0};
    EVP_MD_CTX *md = EVP_MD_CTX_new();

    if (tokenizer->pretokenizer != NULL) {
        traits = pretokenizer_traits(tokenizer->pretokenizer);
    }
    uint32_t numbers[] = {
        tokenizer->kind, tokenizer->bos,          tokenizer->unknown,       tokenizer->adds_bos,
        count,           tokenizer->space_prefix, traits.takes_whole_words, traits.composes,
    };
    bool is_fine = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
                   && digest(md, domain, sizeof(domain)) && digest(md, numbers, sizeof(numbers))
                   && digest_patterns(md, tokenizer->pretokenizer)
                   && digest_strings(md, load->tokens, load->tokens == NULL ? 0 : count)
                   && digest_merges(md, load->merges, load->merge_count)
                   && digest(md, load->scores, load->scores == NULL ? 0 : count * sizeof(float))
                   && digest(md, tokenizer->types, count)
                   && digest(md, tokenizer->is_end, count * sizeof(bool))
                   && EVP_DigestFinal_ex(md, tokenizer->fingerprint, NULL) == 1;
    EVP_MD_CTX_free(md);
    return is_fine ? ST_OK : ERR(ST_NO_MEMORY, "%s: fingerprint of the tokenizer", load->file);
}

static enum status
finish(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;

    if (tokenizer->bos == TOKENIZER_NONE) {
        tokenizer->adds_bos = false;
    }
    TRY(tokenizer_index_tokens(load));
    TRY(tokenizer_index_pairs(load));
    mark_ends(tokenizer);
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
tokenizer_load(const char *file, tokenizer_read_fn read, const void *source,
               struct tokenizer **tokenizer_out)
{
    struct load load = {.file = file, .tokenizer = new_empty()};

    if (load.tokenizer == NULL) {
        return ERR(ST_NO_MEMORY, "%s: tokenizer", load.file);
    }
    tokenizer_fill_byte_characters(&load);
    enum status st = read(&load, source);
    if (st == ST_OK) {
        st = finish(&load);
    }
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
