/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer.h"

#include <assert.h>
#include <string.h>

#include "common/utf8.h"
#include "model/tokenizer_private.h"

/* Moves the whole sequences of `text` to `out` and keeps a cut one at its end; returns bytes
 * written. */
static size_t
take(struct detokenizer *state, const char *text, size_t length, char *out)
{
    size_t written = 0;

    state->n_held = 0;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        enum utf8_part part;

        bytes = utf8_next(text + at, length - at, &part);
        if (part == UTF8_WHOLE) {
            memcpy(out + written, text + at, bytes);
            written += bytes;
        } else if (part == UTF8_BAD) {
            memcpy(out + written, UTF8_REPLACEMENT, sizeof(UTF8_REPLACEMENT) - 1);
            written += sizeof(UTF8_REPLACEMENT) - 1;
        } else {
            memcpy(state->held, text + at, bytes);
            state->n_held = (uint32_t)bytes;
        }
    }
    return written;
}

const char *
tokenizer_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length_out)
{
    *length_out = 0;
    return id >= tokenizer->vocab_size || tokenizer_is_control(tokenizer, id)
               ? ""
               : texts_at(&tokenizer->texts, id, length_out);
}

size_t
detokenizer_push(const struct tokenizer *tokenizer, struct detokenizer *state, uint32_t id,
                 char out[DETOKENIZER_OUT_MAX])
{
    char joined[sizeof(state->held) + DETOKENIZER_OUT_MAX];
    size_t length;

    const char *text = tokenizer_text(tokenizer, id, &length);

    if (id >= tokenizer->vocab_size || tokenizer_is_control(tokenizer, id)) {
        return 0;
    }
    if (!state->has_started && tokenizer->space_prefix != SPACE_PREFIX_NONE && length > 0
        && text[0] == ' ') {
        text++;
        length--;
    }
    state->has_started = true;
    assert(length <= DETOKENIZER_OUT_MAX && state->n_held <= sizeof(state->held));
    memcpy(joined, state->held, state->n_held);
    memcpy(joined + state->n_held, text, length);
    size_t written = take(state, joined, state->n_held + length, out);
    assert(written <= DETOKENIZER_OUT_MAX);
    return written;
}

size_t
detokenizer_finish(struct detokenizer *state, char out[DETOKENIZER_OUT_MAX])
{
    size_t written = state->n_held > 0 ? sizeof(UTF8_REPLACEMENT) - 1 : 0;

    memcpy(out, UTF8_REPLACEMENT, written);
    state->n_held = 0;
    return written;
}
