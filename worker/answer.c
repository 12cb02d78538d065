/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/answer.h"

#include <string.h>

#include "common/mem.h"

enum status
answer_init(struct answer *answer, char *const *stops, size_t stop_count)
{
    size_t total = 0;

    *answer = (struct answer){0};
    if (stop_count > ANSWER_STOPS_MAX) {
        return ERR(ST_INVALID, "%zu stop strings: at most %d", stop_count, ANSWER_STOPS_MAX);
    }
    for (size_t i = 0; i < stop_count; i++) {
        size_t length = strlen(stops[i]);

        if (length == 0 || length > ANSWER_STOP_BYTES_MAX) {
            return ERR(ST_INVALID, "stop string %zu has %zu bytes: 1 to %d are served", i, length,
                       ANSWER_STOP_BYTES_MAX);
        }
        answer->stop_lengths[i] = (uint16_t)length;
        total += length;
    }
    answer->stops = mem_zalloc(total, 1);
    if (answer->stops == NULL) {
        return ERR(ST_NO_MEMORY, "stop strings of %zu bytes", total);
    }
    answer->n_stops = (uint32_t)stop_count;
    for (size_t i = 0, at = 0; i < stop_count; at += answer->stop_lengths[i], i++) {
        memcpy(answer->stops + at, stops[i], answer->stop_lengths[i]);
    }
    return ST_OK;
}

void
answer_deinit(struct answer *answer)
{
    MEM_FREE(answer->stops);
}

/* A stop string starts with a character: inside one, bytes may match by accident. */
static bool
is_char_start(char byte)
{
    return ((unsigned char)byte & 0xC0) != 0x80;
}

/* Length of the longest stop string that text ends with, or 0. */
static size_t
match_at_end(const struct answer *answer, const char *text, size_t length)
{
    const char *stop = answer->stops;
    size_t longest = 0;

    for (uint32_t i = 0; i < answer->n_stops; stop += answer->stop_lengths[i], i++) {
        size_t n = answer->stop_lengths[i];

        if (n > longest && n <= length && is_char_start(text[length - n])
            && memcmp(text + length - n, stop, n) == 0) {
            longest = n;
        }
    }
    return longest;
}

/* Length of the longest end of text that is a proper prefix of a stop string. */
static size_t
undecided(const struct answer *answer, const char *text, size_t length)
{
    const char *stop = answer->stops;
    size_t longest = 0;

    for (uint32_t i = 0; i < answer->n_stops; stop += answer->stop_lengths[i], i++) {
        size_t n = answer->stop_lengths[i] - (size_t)1;

        for (n = n < length ? n : length; n > longest; n--) {
            if (is_char_start(text[length - n]) && memcmp(text + length - n, stop, n) == 0) {
                longest = n;
            }
        }
    }
    return longest;
}

/* `out` holds what was withheld and, from `fresh` on, new text; returns how much may be sent. */
static size_t
release(struct answer *answer, const char *out, size_t fresh, size_t length)
{
    for (size_t end = fresh + 1; end <= length; end++) {
        size_t match = match_at_end(answer, out, end);

        if (match > 0) {
            answer->is_stopped = true;
            answer->n_held = 0;
            return end - match;
        }
    }
    answer->n_held = (uint32_t)undecided(answer, out, length);
    memcpy(answer->held, out + length - answer->n_held, answer->n_held);
    return length - answer->n_held;
}

size_t
answer_push(struct answer *answer, const struct tokenizer *tokenizer, uint32_t id,
            char out[ANSWER_OUT_MAX])
{
    size_t held = answer->n_held;

    if (answer->is_stopped) {
        return 0;
    }
    memcpy(out, answer->held, held);
    size_t length = held + detokenizer_push(tokenizer, &answer->detokenizer, id, out + held);

    return release(answer, out, held, length);
}

size_t
answer_finish(struct answer *answer, char out[ANSWER_OUT_MAX])
{
    size_t held = answer->n_held;

    if (answer->is_stopped) {
        return 0;
    }
    memcpy(out, answer->held, held);
    answer->n_held = 0;
    return held + detokenizer_finish(&answer->detokenizer, out + held);
}
