/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer_load.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

void
tokenizer_fill_byte_characters(struct load *load)
{
    int next = 0x100;

    memset(load->byte_of, 0xFF, sizeof(load->byte_of));
    for (int byte = 0; byte < 256; byte++) {
        bool is_visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);

        load->byte_of[is_visible ? byte : next++] = (int16_t)byte;
    }
}

bool
tokenizer_from_byte_level(const struct load *load, const char *text, size_t length, char *out,
                          size_t *length_out)
{
    *length_out = 0;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t code_point = utf8_decode(text + at, &bytes);

        if (code_point >= BYTE_CHARACTERS || load->byte_of[code_point] < 0) {
            memcpy(out, text, length);
            *length_out = length;
            return false;
        }
        out[(*length_out)++] = (char)load->byte_of[code_point];
    }
    return true;
}

bool
tokenizer_from_spm(const char *text, size_t length, char *out, size_t *length_out)
{
    bool is_clean = true;

    *length_out = 0;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bool is_space = utf8_decode(text + at, &bytes) == SPM_SPACE;

        is_clean = is_clean && text[at] != ' ';
        memcpy(out + *length_out, is_space ? " " : text + at, is_space ? 1 : bytes);
        *length_out += is_space ? 1 : bytes;
    }
    return is_clean;
}

/* The most that the detokeniser may write for a token: an unfinished sequence before it is
 * completed or replaced, and each of its own bytes outside a whole sequence may become U+FFFD. */
static size_t
output_bytes_max(const char *text, size_t length)
{
    size_t most = 4;

    for (size_t at = 0, bytes; at < length; at += bytes) {
        enum utf8_part part;

        bytes = utf8_next(text + at, length - at, &part);
        most += part == UTF8_WHOLE ? bytes : 3 * bytes;
    }
    return most;
}

static enum status
refuse_bytes(const struct load *load, uint32_t token, size_t at)
{
    char offset[40] = "";

    if (load->gguf != NULL) {
        (void)snprintf(offset, sizeof(offset),
                       "offset %zu: ", gguf_offset(load->gguf, load->tokens[token].bytes + at));
    }
    return ERR(ST_INVALID, "%s: %s%s: token %u is not UTF-8 at byte %zu", load->file, offset,
               load->tokens_at, token, at);
}

static enum status
check_texts(const struct load *load)
{
    for (uint32_t i = 0; i < load->tokenizer->vocab_size; i++) {
        size_t good = utf8_check(load->tokens[i].bytes, load->tokens[i].length);

        if (good < load->tokens[i].length) {
            return refuse_bytes(load, i, good);
        }
        if (load->tokens[i].length > 2 * DETOKENIZER_OUT_MAX) {
            return ERR(ST_INVALID, "%s: %s: token %u has %zu bytes; at most %d are served",
                       load->file, load->tokens_at, i, load->tokens[i].length, DETOKENIZER_OUT_MAX);
        }
    }
    return ST_OK;
}

int
tokenizer_byte_token(struct gguf_string token)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (token.length != 6 || memcmp(token.bytes, "<0x", 3) != 0 || token.bytes[5] != '>') {
        return -1;
    }
    high = memchr(digits, token.bytes[3], 16);
    low = memchr(digits, token.bytes[4], 16);
    return high == NULL || low == NULL ? -1 : (int)((high - digits) * 16 + (low - digits));
}

/* Writes what token `id` gives to `out`; *is_mergeable_out: merging may produce it. */
static enum status
decode_token(struct load *load, uint32_t id, char *out, size_t *length_out, bool *is_mergeable_out)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct gguf_string token = load->tokens[id];

    *is_mergeable_out = false;
    if (tokenizer->types[id] == TOKEN_BYTE) {
        int byte = tokenizer_byte_token(token);

        if (byte < 0 || tokenizer->byte_ids[byte] != TOKENIZER_NONE) {
            return ERR(ST_INVALID, "%s: %s: token %u is a byte, but %s", load->file,
                       load->tokens_at, id,
                       byte < 0 ? "not written <0xNN>" : "so is another of that value");
        }
        tokenizer->byte_ids[byte] = id;
        out[0] = (char)byte;
        *length_out = 1;
    } else if (tokenizer->types[id] != TOKEN_NORMAL) {
        memcpy(out, token.bytes, token.length);
        *length_out = token.length;
    } else if (tokenizer->kind == TOKENIZER_SPM) {
        *is_mergeable_out = tokenizer_from_spm(token.bytes, token.length, out, length_out);
    } else {
        *is_mergeable_out =
            tokenizer_from_byte_level(load, token.bytes, token.length, out, length_out);
    }
    if (output_bytes_max(out, *length_out) > DETOKENIZER_OUT_MAX) {
        return ERR(ST_INVALID, "%s: %s: token %u may give more than %d bytes of text", load->file,
                   load->tokens_at, id, DETOKENIZER_OUT_MAX);
    }
    *is_mergeable_out = *is_mergeable_out && *length_out > 0;
    return ST_OK;
}

/* What each token gives, and the way back. */
static enum status
index_texts(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;
    struct texts *texts = &tokenizer->texts;
    size_t bytes = 0;

    for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
        bytes += load->tokens[i].length;
    }
    if (bytes > VOCAB_BYTES_MAX) {
        return ERR(ST_INVALID, "%s: %s: %zu bytes of tokens; at most %u are served", load->file,
                   load->tokens_at, bytes, VOCAB_BYTES_MAX);
    }
    texts->bytes = mem_zalloc(bytes, 1);
    texts->offsets = mem_zalloc((size_t)tokenizer->vocab_size + 1, sizeof(texts->offsets[0]));
    if (texts->bytes == NULL || texts->offsets == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu bytes of tokens", load->file, bytes);
    }
    TRY(text_index_init(&tokenizer->index, tokenizer->vocab_size));
    for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
        char *out = texts->bytes + texts->offsets[i];
        size_t length;
        bool is_mergeable;

        TRY(decode_token(load, i, out, &length, &is_mergeable));
        texts->offsets[i + 1] = texts->offsets[i] + (uint32_t)length;
        if (!is_mergeable) {
            continue;
        }
        uint32_t twin = text_index_find(&tokenizer->index, texts, out, length);
        if (twin != TOKENIZER_NONE) {
            return ERR(ST_INVALID, "%s: %s: tokens %u and %u are the same", load->file,
                       load->tokens_at, twin, i);
        }
        text_index_add(&tokenizer->index, texts, i);
        if (tokenizer->kind == TOKENIZER_BPE && length == 1) {
            tokenizer->byte_ids[(uint8_t)out[0]] = i;
        }
    }
    return ST_OK;
}

static bool
is_special(const struct tokenizer *tokenizer, uint32_t id)
{
    uint8_t type = tokenizer->types[id];

    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
}

static enum status
index_specials(struct load *load)
{
    struct tokenizer *tokenizer = load->tokenizer;
    size_t bytes = 0;

    for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
        bytes += is_special(tokenizer, i) ? load->tokens[i].length : 0;
    }
    TRY(special_index_init(&tokenizer->specials, bytes));
    for (uint32_t i = 0; i < tokenizer->vocab_size; i++) {
        struct gguf_string token = load->tokens[i];

        if (is_special(tokenizer, i) && token.length > 0
            && !special_index_add(&tokenizer->specials, token.bytes, token.length, i,
                                  tokenizer->types[i] != TOKEN_USER_DEFINED)) {
            return ERR(ST_INVALID, "%s: %s: special token %u is written like an earlier one",
                       load->file, load->tokens_at, i);
        }
    }
    return ST_OK;
}

enum status
tokenizer_index_tokens(struct load *load)
{
    TRY(check_texts(load));
    TRY(index_texts(load));
    return index_specials(load);
}
