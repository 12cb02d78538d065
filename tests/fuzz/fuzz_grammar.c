/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas of strangers: compiled or refused; what is compiled is run for some bytes by its own
 * mask. */
#include <assert.h>

#include "model/grammar.h"
#include "tests/fuzz/fuzz.h"

#define STEPS 24

static void
run(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary)
{
    struct grammar_matcher *matcher = NULL;

    if (grammar_matcher_new(grammar, vocabulary, &matcher) != ST_OK) {
        return;
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t *mask = grammar_mask(matcher);
        uint32_t id = (step * 37) % 256;
        uint32_t tried = 0;

        while (mask != NULL && tried < 256 && (mask[id / 32] >> (id % 32) & 1) == 0) {
            id = (id + 1) % 256;
            tried++;
        }
        if (mask == NULL || tried == 256) {
            break;
        }
        assert(grammar_accept(matcher, id));
    }
    grammar_matcher_destroy(&matcher);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct tokenizer *tokenizer;
    static struct grammar_vocabulary *vocabulary;
    struct grammar *grammar = NULL;

    if (vocabulary == NULL) {
        assert(tokenizer_new_bytes(260, &tokenizer) == ST_OK);
        assert(grammar_vocabulary_new(tokenizer, &vocabulary) == ST_OK);
    }
    if (grammar_compile((const char *)bytes, length, &grammar) == ST_OK) {
        run(grammar, vocabulary);
        grammar_destroy(&grammar);
    }
    return 0;
}
