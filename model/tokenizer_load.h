/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_load - one loading of a vocabulary under way; shared by the files that do it.
 *
 * The file is a stranger's: whatever it says is checked here, so that encoding and decoding need no
 * checks.  Every refusal names the file, the key, the index and the reason. */
#ifndef MODEL_TOKENIZER_LOAD_H
#define MODEL_TOKENIZER_LOAD_H

#include "model/tokenizer_private.h"

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

#define VOCAB_BYTES_MAX (16u << 20) /* of all tokens; five times the largest in use */
#define MERGES_MAX      (4u << 20)  /* four for each token of the largest vocabulary */

#define BYTE_CHARACTERS 0x144u /* code points that stand for bytes in byte-level BPE are below */

struct load {
    const struct gguf *gguf;
    const char *file;
    struct tokenizer *tokenizer;
    struct gguf_string *tokens; /* [vocab_size] as written in the file */
    struct gguf_string *merges; /* [merge_count] */
    size_t merge_count;
    float *scores;                    /* [vocab_size], SPM */
    int16_t byte_of[BYTE_CHARACTERS]; /* code point -> byte, -1 if it stands for none */
};

/* Reads and checks the tokens, their types and scores; fills types, scores and what each token
 * gives. */
enum status tokenizer_load_tokens(struct load *load);

/* Fills the look-ups by text: the normal tokens, and those found in raw text. */
enum status tokenizer_index_tokens(struct load *load);

/* Fills the pairs: from the merges of the file, or from the scores. */
enum status tokenizer_load_pairs(struct load *load);

/* The bytes that a byte-level text stands for, in `out` of at least `length` bytes.  False, with
 * the text itself copied, if it has a character that stands for none. */
bool tokenizer_from_byte_level(const struct load *load, const char *text, size_t length, char *out,
                               size_t *length_out);

#endif
