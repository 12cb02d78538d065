/* SPDX-License-Identifier: Apache-2.0 */
/* pretokenize - cuts text into the words inside which byte-level BPE may merge.
 *
 * A GGUF names the pattern, a tokenizer.json states it.  Immutable: any number of threads may split
 * with one. */
#ifndef MODEL_PRETOKENIZE_H
#define MODEL_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"
#include "model/gguf.h"

struct pretokenizer;
struct pretokenizer_scratch;

#define PRETOKENIZER_PATTERNS_MAX 6

/* What else the name of a pattern says about its family of checkpoints. */
struct pretokenizer_traits {
    bool takes_whole_words; /* a word that is a token is that token, whatever its merges give */
    bool composes;          /* text is brought to Unicode's NFC first */
    bool adds_bos;          /* where the file does not say */
};

/* ST_INVALID: no pattern of that name is served; the caller adds the file and the key. */
enum status pretokenizer_new(struct gguf_string name, struct pretokenizer **pretokenizer_out);

/* From patterns for Oniguruma, each applied to what the one before left.  ST_INVALID: which pattern
 * and why; the caller adds the file. */
enum status pretokenizer_new_patterns(const struct gguf_string *patterns, size_t count,
                                      struct pretokenizer_traits traits,
                                      struct pretokenizer **pretokenizer_out);
void pretokenizer_destroy(struct pretokenizer **pretokenizer);

struct pretokenizer_traits pretokenizer_traits(const struct pretokenizer *pretokenizer);

/* Its pattern number `index` as PCRE2 reads it; NULL past the last. */
const char *pretokenizer_pattern(const struct pretokenizer *pretokenizer, size_t index);

/* Per-thread working memory, good for every pattern. */
enum status pretokenizer_scratch_new(struct pretokenizer_scratch **scratch_out);
void pretokenizer_scratch_destroy(struct pretokenizer_scratch **scratch);

typedef enum status (*pretokenizer_word_fn)(void *arg, const char *word, size_t length);

/* Calls `word` for each word, in order; together they are the whole text, none is empty.  The
 * text must be UTF-8.  A status of `word` that is not ST_OK stops it and is returned.
 * ST_NO_MEMORY; ST_INVALID if a pattern out of a tokenizer.json does not come to an end. */
enum status pretokenizer_split(const struct pretokenizer *pretokenizer,
                               struct pretokenizer_scratch *scratch, const char *text,
                               size_t length, pretokenizer_word_fn word, void *arg);

#endif
