/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize - cuts text into the words inside which byte-level BPE may merge.
 *
 * `tokenizer.ggml.pre` names the pattern.  Immutable: any number of threads may split with one. */
#ifndef MODEL_PRETOKENIZE_H
#define MODEL_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "model/gguf.h"

struct pretokenizer;
struct pretokenizer_scratch;

/* What else the name of a pattern says about its family of checkpoints. */
struct pretokenizer_traits {
    bool takes_whole_words; /* a word that is a token is that token, whatever its merges give */
    bool composes;          /* text is brought to Unicode's NFC first */
    bool adds_bos;          /* where the file does not say */
};

/* ST_INVALID: no pattern of that name is served; the caller adds the file and the key. */
enum status pretokenizer_new(struct gguf_string name, struct pretokenizer **pretokenizer_out);
void pretokenizer_destroy(struct pretokenizer **pretokenizer);

struct pretokenizer_traits pretokenizer_traits(const struct pretokenizer *pretokenizer);

/* Per-thread working memory, good for every pattern. */
enum status pretokenizer_scratch_new(struct pretokenizer_scratch **scratch_out);
void pretokenizer_scratch_destroy(struct pretokenizer_scratch **scratch);

typedef enum status (*pretokenizer_word_fn)(void *arg, const char *word, size_t length);

/* Calls `word` for each word, in order; together they are the whole text, none is empty.  The
 * text must be UTF-8.  A status of `word` that is not ST_OK stops it and is returned.
 * ST_NO_MEMORY. */
enum status pretokenizer_split(const struct pretokenizer *pretokenizer,
                               struct pretokenizer_scratch *scratch, const char *text,
                               size_t length, pretokenizer_word_fn word, void *arg);

#endif
