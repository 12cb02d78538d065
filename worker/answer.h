/* SPDX-License-Identifier: Apache-2.0 */
/* answer - the text side of a request: token ids to bytes, stop strings, what may be sent already.
 *
 * Bytes come out as whole UTF-8 sequences.  Text that could be the start of a stop string is
 * withheld until it is decided; the text of a stop string that is complete is never sent.  The stop
 * string that is complete first wins (of several that end at one byte, the longest), so the cut
 * does not depend on where token borders fall.  Plain data, no allocation after answer_init. */
#ifndef WORKER_ANSWER_H
#define WORKER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/tokenizer.h"

#define ANSWER_STOPS_MAX      16
#define ANSWER_STOP_BYTES_MAX 256
#define ANSWER_HELD_MAX       (ANSWER_STOP_BYTES_MAX - 1)
#define ANSWER_OUT_MAX        (ANSWER_HELD_MAX + DETOKENIZER_OUT_MAX) /* bytes one token can free */

struct answer {
    struct detokenizer detokenizer;
    char *stops; /* owned: the strings one after the other */
    uint16_t stop_lengths[ANSWER_STOPS_MAX];
    uint32_t n_stops;
    char held[ANSWER_HELD_MAX]; /* decoded, not sent: a proper prefix of a stop string */
    uint32_t n_held;
    bool is_stopped; /* a stop string is complete; nothing comes out any more */
};

/* ST_INVALID: too many stop strings, an empty or too long one; ST_NO_MEMORY. */
enum status answer_init(struct answer *answer, char *const *stops, size_t stop_count);
void answer_deinit(struct answer *answer); /* a zeroed struct is fine */

/* Appends one token.  Writes what may be sent now to `out`, returns how many bytes. */
size_t answer_push(struct answer *answer, const struct tokenizer *tokenizer, uint32_t id,
                   char out[ANSWER_OUT_MAX]);

/* The end of the answer for another reason than a stop string: what is still withheld. */
size_t answer_finish(struct answer *answer, char out[ANSWER_OUT_MAX]);

#endif
