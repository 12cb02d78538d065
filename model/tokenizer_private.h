/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_private - what the files of the tokenizer share: loading, encoding, decoding. */
#ifndef MODEL_TOKENIZER_PRIVATE_H
#define MODEL_TOKENIZER_PRIVATE_H

#include "model/pretokenize.h"
#include "model/tokenizer.h"
#include "model/tokenizer_merge.h"
#include "model/tokenizer_tables.h"

enum tokenizer_kind {
    TOKENIZER_BPE,   /* byte-level BPE: symbols are bytes */
    TOKENIZER_SPM,   /* SentencePiece BPE: symbols are characters */
    TOKENIZER_BYTES, /* id = byte */
};

enum token_type { /* the file format's numbers */
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* Where SentencePiece puts a space. */
enum space_prefix {
    SPACE_PREFIX_NONE,
    SPACE_PREFIX_EACH_RUN,  /* in front of a text and after a special token */
    SPACE_PREFIX_IF_NONE,   /* the same, unless one is there */
    SPACE_PREFIX_FIRST_RUN, /* in front of a text that does not start with a special token or a
                             * space */
};

/* SentencePiece, whose text is one word without end, is cut where no token has the two characters
 * side by side: no merge could reach across.  A bit says "some token may have them". */
#define JOIN_BITS 20

#define SPM_SPACE 0x2581u /* how SentencePiece writes a space inside tokens */

struct tokenizer {
    enum tokenizer_kind kind;
    uint32_t vocab_size;
    struct texts texts;      /* what each token gives */
    uint8_t *types;          /* [vocab_size] enum token_type */
    bool *is_end;            /* [vocab_size] */
    struct text_index index; /* the normal tokens, by what they give */
    struct pair_index pairs; /* of token ids; SPM: a character that is no token is symbol_of it */
    struct special_index specials;
    struct pretokenizer *pretokenizer; /* BPE */
    uint64_t *joins;                   /* SPM [1 << JOIN_BITS bits] */
    uint32_t byte_ids[256];            /* TOKENIZER_NONE where there is no token */
    uint32_t bos, unknown;             /* TOKENIZER_NONE if there is none */
    bool adds_bos;
    enum space_prefix space_prefix;
    char *chat_template;
    size_t chat_template_bytes;
    uint8_t fingerprint[32];
};

/* The bit of two neighbouring characters in joins. */
static inline uint32_t
join_bit(uint32_t left, uint32_t right)
{
    uint64_t mixed = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;

    return (uint32_t)(mixed >> (64 - JOIN_BITS));
}

/* The symbol of a character given as UTF-8: its token, or vocab_size + code point. */
uint32_t tokenizer_symbol(const struct tokenizer *tokenizer, const char *text, size_t length,
                          uint32_t code_point);

#endif
