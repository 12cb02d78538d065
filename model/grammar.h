/* SPDX-License-Identifier: Apache-2.0 */
/* grammar - which tokens may come next, so that an answer is JSON of a schema.
 *
 * A schema is compiled to a program that matches bytes: classes, splits, calls.  A matcher runs it
 * over an answer, byte by byte, all possible readings at once; the states it meets are remembered,
 * so a byte costs a look-up.  The mask of a state comes from one walk over the vocabulary in the
 * order of the tokens' bytes, in which a prefix that is dead skips all tokens that begin with it.
 *
 * Pure; a grammar and a vocabulary do not change, a matcher belongs to one answer. */
#ifndef MODEL_GRAMMAR_H
#define MODEL_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/tokenizer.h"

#define GRAMMAR_SCHEMA_BYTES_MAX (256u << 10)
#define GRAMMAR_CODE_MAX         65536 /* instructions of one program */
#define GRAMMAR_REPEAT_MAX       1024  /* of minLength, maxItems and their like */

struct grammar;
struct grammar_vocabulary;
struct grammar_matcher;

/* Compiles a JSON schema.  Served: type, properties, required, items, minItems, maxItems,
 * minLength, maxLength, enum, const, anyOf, oneOf, allOf of one, $ref into the schema, $defs,
 * definitions, additionalProperties.  Properties come in the schema's order and no others, where
 * it names any.  What describes and does not assert is ignored; what asserts and is not served
 * (pattern, minimum, ...) is refused.
 * ST_INVALID says where and why; ST_NO_MEMORY. */
enum status grammar_compile(const char *schema, size_t length, struct grammar **grammar_out);
void grammar_destroy(struct grammar **grammar);

/* The tokens in the order of their bytes.  ST_NO_MEMORY. */
enum status grammar_vocabulary_new(const struct tokenizer *tokenizer,
                                   struct grammar_vocabulary **vocabulary_out);
void grammar_vocabulary_destroy(struct grammar_vocabulary **vocabulary);

/* At the start of an answer.  Borrows both until it is destroyed. */
enum status grammar_matcher_new(const struct grammar *grammar,
                                const struct grammar_vocabulary *vocabulary,
                                struct grammar_matcher **matcher_out);
void grammar_matcher_destroy(struct grammar_matcher **matcher);

/* The ids that may come next, one bit each, [(V + 31) / 32]; borrowed until the next call.  End
 * tokens are among them when the answer may end here.  NULL: the grammar has more readings at once
 * than are followed.  Allocates nothing. */
const uint32_t *grammar_mask(struct grammar_matcher *matcher);
size_t grammar_mask_words(const struct grammar_vocabulary *vocabulary);

/* Goes on by a token; false, and nothing has changed, if it may not come here. */
bool grammar_accept(struct grammar_matcher *matcher, uint32_t id);

/* Whether the answer so far is whole. */
bool grammar_is_whole(const struct grammar_matcher *matcher);

#endif
