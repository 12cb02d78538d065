/* SPDX-License-Identifier: Apache-2.0 */
/* vocabulary - small vocabularies made by hand, as GGUF files in memory. */
#ifndef TESTS_SUPPORT_VOCABULARY_H
#define TESTS_SUPPORT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/gguf.h"
#include "model/gguf_write.h"
#include "model/tokenizer.h"

#define VOCABULARY_TOKENS_MAX 700
#define VOCABULARY_MERGES_MAX 400

enum vocabulary_type { /* the file format's numbers */
    VOCABULARY_NORMAL = 1,
    VOCABULARY_UNKNOWN = 2,
    VOCABULARY_CONTROL = 3,
    VOCABULARY_USER_DEFINED = 4,
    VOCABULARY_UNUSED = 5,
    VOCABULARY_BYTE = 6,
};

/* What goes into the file; -1 and NULL leave a key out. */
struct vocabulary {
    const char *model, *pre, *chat_template;
    const char *tokens[VOCABULARY_TOKENS_MAX];
    int32_t types[VOCABULARY_TOKENS_MAX];
    float scores[VOCABULARY_TOKENS_MAX];
    size_t count, type_count, score_count; /* the last two follow the first unless changed */
    const char *merges[VOCABULARY_MERGES_MAX];
    size_t merge_count;
    int64_t bos, eos, unknown;
    int adds_bos, adds_space;
    char bytes_text[256][8]; /* spelling of the byte tokens */
    struct gguf_writer writer;
};

/* Byte-level BPE: id = byte, `pre` as given, no merges, no control tokens. */
void vocabulary_init_bpe(struct vocabulary *vocabulary, const char *pre);

/* SentencePiece: <unk> 0, <s> 1, </s> 2, then the bytes <0x00> ... as 3 + byte. */
void vocabulary_init_spm(struct vocabulary *vocabulary);

/* Appends a token and returns its id. */
uint32_t vocabulary_add(struct vocabulary *vocabulary, const char *text, enum vocabulary_type type,
                        float score);

/* Appends a merge "a b" (as the file writes it) and, if it is new, the token "ab" given as
 * `result`. */
void vocabulary_add_merge(struct vocabulary *vocabulary, const char *merge, const char *result);

/* Writes the file, opens it and loads the tokenizer from it. */
enum status vocabulary_load(struct vocabulary *vocabulary, struct tokenizer **tokenizer_out);

/* The same where it has to succeed. */
struct tokenizer *vocabulary_require(struct vocabulary *vocabulary);

#endif
