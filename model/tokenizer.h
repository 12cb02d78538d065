/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer - text to token ids and back, from the vocabulary inside a GGUF.
 *
 * Byte-level BPE with the split patterns of gpt-2, starcoder/smollm, llama-bpe, qwen2,
 * deepseek-llm, deepseek-coder and falcon, and SentencePiece BPE (llama-spm).  Immutable after
 * loading: any number of threads may encode with one tokenizer, each with its own scratch.
 *
 * Ids are those of the checkpoint's own tokenizer (tests/oracle/compare_tokenizers.py).  So text
 * that it cannot say is lost here too: a byte without a token becomes the unknown token
 * (SentencePiece) or vanishes (BPE).  User-defined tokens are found in any text, control tokens
 * only where `parse_special` says so; of those that start at one place the longest is taken. */
#ifndef MODEL_TOKENIZER_H
#define MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/gguf.h"

struct tokenizer;
struct tokenizer_scratch;

#define TOKENIZER_NONE UINT32_MAX /* "the vocabulary has no such token" */

#define TOKENIZER_TEXT_BYTES_MAX (64u << 20) /* one text to encode */

/* Loads the vocabulary.  ST_INVALID: file, key and reason (a model or split pattern that is not
 * served, bad UTF-8 in the vocabulary, a merge of unknown tokens, counts that disagree). */
enum status tokenizer_new(const struct gguf *gguf, struct tokenizer **tokenizer_out);

/* Byte-level stand-in for checkpoints without a vocabulary: id = byte, plus bos 256, eos 257. */
enum status tokenizer_new_bytes(uint32_t vocab_size, struct tokenizer **tokenizer_out);

void tokenizer_destroy(struct tokenizer **tokenizer);

/* SHA-256 over the vocabulary, merges, scores, types, split pattern and special ids. */
void tokenizer_fingerprint(const struct tokenizer *tokenizer, uint8_t fingerprint_out[32]);

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
uint32_t tokenizer_bos(const struct tokenizer *tokenizer); /* TOKENIZER_NONE if none */
bool
tokenizer_adds_bos(const struct tokenizer *tokenizer); /* the checkpoint asks for one in front */

/* True for ids that end an answer: eos, eot and their like (<|im_end|>, <|eot_id|>, </s>...). */
bool tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t id);

/* True for ids that text can't spell unless parse_special says so; they give no text. */
bool tokenizer_is_control(const struct tokenizer *tokenizer, uint32_t id);

/* What a token gives, borrowed: bytes, which may be part of a character.  Control tokens and ids
 * outside the vocabulary give nothing. */
const char *tokenizer_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length_out);

/* The id of the special token written `text`, else of the token that gives exactly `text`, or
 * TOKENIZER_NONE. */
uint32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text);

/* The Jinja text that came with the vocabulary, borrowed; NULL and 0 if none did. */
const char *tokenizer_chat_template(const struct tokenizer *tokenizer, size_t *length_out);

/* Per-thread working memory; grows as needed. */
enum status tokenizer_scratch_new(struct tokenizer_scratch **scratch_out);
void tokenizer_scratch_destroy(struct tokenizer_scratch **scratch);

/* Encodes `length` bytes of UTF-8.  parse_special: control tokens written out in the text become
 * their ids (templates only: never for text of users, or they could forge turns).  No BOS, no EOS
 * is added. *ids_out is borrowed from the scratch until its next use.  ST_INVALID with the byte
 * offset for text that is not UTF-8 or is longer than TOKENIZER_TEXT_BYTES_MAX; ST_NO_MEMORY. */
enum status tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                             const char *text, size_t length, bool parse_special,
                             const uint32_t **ids_out, size_t *count_out);

/* A part of a text: pieces side by side are one text, in which words may reach across their
 * seams, but no special token is found across one. */
struct tokenizer_piece {
    const char *text;
    size_t length;
    bool parse_special;
};

/* tokenizer_encode for a text in pieces; the byte offset in a message is that in its piece. */
enum status tokenizer_encode_pieces(const struct tokenizer *tokenizer,
                                    struct tokenizer_scratch *scratch,
                                    const struct tokenizer_piece *pieces, size_t piece_count,
                                    const uint32_t **ids_out, size_t *count_out);

/* Streaming detokeniser: bytes come out only as whole UTF-8 sequences.  Plain data; zero it to
 * start. Where encoding puts a space in front of a text (SentencePiece), the first token loses
 * one, so that what comes out is the text; set has_started for ids that continue a text. */
struct detokenizer {
    char held[8]; /* an unfinished UTF-8 sequence */
    uint32_t n_held;
    bool has_started; /* the space in front is gone already */
};

#define DETOKENIZER_OUT_MAX                                                                        \
    1024 /* bytes that one token can give; longer tokens are refused at load */

/* Appends one id; writes at most DETOKENIZER_OUT_MAX bytes to `out`, returns how many.  Control
 * and unknown tokens and ids outside the vocabulary give nothing.  An invalid byte sequence comes
 * out as U+FFFD, one for each maximal bad part. */
size_t detokenizer_push(const struct tokenizer *tokenizer, struct detokenizer *state, uint32_t id,
                        char out[DETOKENIZER_OUT_MAX]);

/* What was still held at the end of the answer, as U+FFFD if it is not whole. */
size_t detokenizer_finish(struct detokenizer *state, char out[DETOKENIZER_OUT_MAX]);

#endif
