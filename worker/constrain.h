/* SPDX-License-Identifier: Apache-2.0 */
/* constrain - what of an answer's sampling depends on the answer so far: biases, penalties on what
 * was said, no end before min_tokens, JSON of a schema.
 *
 * It becomes an adjustment for each id and a mask over the vocabulary, which the draw takes.  All
 * of it follows from the tokens, so an answer that is resumed goes on as it would have. */
#ifndef WORKER_CONSTRAIN_H
#define WORKER_CONSTRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/sample.h"
#include "model/grammar.h"
#include "model/tokenizer.h"

#include "kvasir/v1/rag.pb-c.h"

#define CONSTRAIN_BIASES_MAX 1024

/* Beside the adjustment of the same index. */
struct constrain_entry {
    float bias;
    uint32_t count; /* in the answer so far */
    bool is_end;
};

struct constrain {
    struct sample_adjust *adjusts; /* [max] */
    struct constrain_entry *entries;
    uint32_t count, max;
    float frequency, presence;
    uint32_t min_tokens;
    uint32_t n_taken; /* tokens of the answer */
    struct grammar *grammar;
    struct grammar_matcher *matcher; /* NULL: any text */
    uint32_t *allowed;               /* [allowed_words] */
    size_t allowed_words, grammar_words;
};

/* What it is checked and made against; `vocabulary` may be NULL without a schema. */
struct constrain_limits {
    const struct tokenizer *tokenizer;
    const struct grammar_vocabulary *vocabulary;
    uint32_t vocab_size; /* the model's */
};

/* ST_INVALID names the field; ST_NO_MEMORY.  A zeroed one constrains nothing. */
enum status constrain_init(struct constrain *constrain, const Kvasir__V1__Sampling *sampling,
                           const struct constrain_limits *limits);
void constrain_deinit(struct constrain *constrain);

/* Words that its draws bring along at most. */
size_t constrain_words(const struct constrain *constrain);

/* For the next draw; the parameters borrow until the next call here. */
void constrain_fill(struct constrain *constrain, struct sample_params *params);

/* A token of the answer. */
void constrain_take(struct constrain *constrain, uint32_t id);

#endif
