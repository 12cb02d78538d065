/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_load - one loading of a vocabulary under way; shared by the files that do it.
 *
 * A reader (tokenizer_gguf.c, tokenizer_hf.c) takes the parts out of a file; the rest checks them
 * and builds the tables.  The file is a stranger's: whatever it says is checked here, so that
 * encoding and decoding need no checks.  Every refusal names the file, the place, the index and the
 * reason. */
#ifndef MODEL_TOKENIZER_LOAD_H
#define MODEL_TOKENIZER_LOAD_H

#include "model/tokenizer_private.h"

#define VOCAB_BYTES_MAX (16u << 20) /* of all tokens; five times the largest in use */
#define MERGES_MAX      (4u << 20)  /* four for each token of the largest vocabulary */

#define BYTE_CHARACTERS 0x144u /* code points that stand for bytes in byte-level BPE are below */

struct merge {
    struct gguf_string left, right;
};

struct load {
    const char *file;
    const char *tokens_at, *merges_at; /* the places of the two, for messages */
    const struct gguf *gguf;           /* that the tokens lie in, or NULL */
    struct tokenizer *tokenizer;
    struct gguf_string *tokens; /* [vocab_size] as written in the file */
    struct merge *merges;       /* [merge_count] */
    size_t merge_count;
    float *scores;                    /* [vocab_size], or NULL: SPM without merges */
    int16_t byte_of[BYTE_CHARACTERS]; /* code point -> byte, -1 if it stands for none */
};

/* Fills `load`, and in its tokenizer kind, types, ends, ids, flags, split pattern and template. */
typedef enum status (*tokenizer_read_fn)(struct load *load, const void *source);

/* Makes a tokenizer of what `read` takes out of `source`. */
enum status tokenizer_load(const char *file, tokenizer_read_fn read, const void *source,
                           struct tokenizer **tokenizer_out);

/* Makes room for the tokens of a vocabulary, their types and ends; texts are empty. */
enum status tokenizer_set_count(struct load *load, size_t count);

/* Makes room for merges. */
enum status tokenizer_set_merge_count(struct load *load, size_t count);

enum status tokenizer_set_template(struct load *load, struct gguf_string text);

/* Checks the texts of the tokens, fills what each gives, and the look-ups by text: the normal
 * tokens, and those found in raw text. */
enum status tokenizer_index_tokens(struct load *load);

/* Fills the pairs: from the merges, or from the scores. */
enum status tokenizer_index_pairs(struct load *load);

/* The byte that a token written <0xNN> stands for; -1 if it is written otherwise. */
int tokenizer_byte_token(struct gguf_string token);

/* Byte-level BPE writes each byte as a visible character: itself where it is one in Latin-1, else
 * the next code point from U+0100 on.  Fills byte_of; done before a reader runs. */
void tokenizer_fill_byte_characters(struct load *load);

/* The bytes that a byte-level text stands for, in `out` of at least `length` bytes.  False, with
 * the text itself copied, if it has a character that stands for none. */
bool tokenizer_from_byte_level(const struct load *load, const char *text, size_t length, char *out,
                               size_t *length_out);

/* The same for SentencePiece, where U+2581 is a space.  False if the text has spaces of its own,
 * which no run has. */
bool tokenizer_from_spm(const char *text, size_t length, char *out, size_t *length_out);

#endif
