/* SPDX-License-Identifier: Apache-2.0 */
#include "common/utf8.h"

#include <string.h>

/* Bytes of the sequence that `lead` starts, and the range of its second byte: the only place where
 * overlong forms, surrogates and too large code points show.  0 if no sequence starts so. */
static size_t
sequence_bytes(uint8_t lead, uint8_t *low_out, uint8_t *high_out)
{
    *low_out = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *high_out = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t
utf8_next(const char *text, size_t length, enum utf8_part *part_out)
{
    uint8_t low, high;
    size_t bytes = sequence_bytes((uint8_t)text[0], &low, &high);

    *part_out = UTF8_BAD;
    if (bytes == 0) {
        return 1;
    }
    for (size_t i = 1; i < bytes; i++) {
        if (i == length) {
            *part_out = UTF8_CUT;
            return i;
        }
        if ((uint8_t)text[i] < low || (uint8_t)text[i] > high) {
            return i;
        }
        low = 0x80;
        high = 0xBF;
    }
    *part_out = UTF8_WHOLE;
    return bytes;
}

/* ---- many bytes at once ---------------------------------------------------------------------- */

/* What may come next.  A state is a number of bits: each byte's entry of `steps` holds, at the bits
 * of every state, the state that follows.  So a byte is one load and one shift, whatever the text
 * is, where branches on its lengths cost 2 to 3 times as much. */
enum state {
    STATE_BAD = 0, /* where all entries are 0, so nothing leads out of it */
    STATE_ANY = 6, /* between two sequences */
    STATE_1 = 12,  /* 1 to 3 bytes of 80 to BF are to come */
    STATE_2 = 18,
    STATE_3 = 24,
    STATE_E0 = 30, /* the second byte after this lead, whose range is smaller */
    STATE_ED = 36,
    STATE_F0 = 42,
    STATE_F4 = 48,
    STATE_BITS = 63
};

#define STEP(from, to) ((uint64_t)(to) << (from))
#define LEAD(to)       STEP(STATE_ANY, to)
#define TAIL           (STEP(STATE_1, STATE_ANY) | STEP(STATE_2, STATE_1) | STEP(STATE_3, STATE_2))
#define TWO(step)      (step), (step)
#define FOUR(step)     TWO(step), TWO(step)
#define EIGHT(step)    FOUR(step), FOUR(step)
#define SIXTEEN(step)  EIGHT(step), EIGHT(step)
#define MANY(step)     SIXTEEN(step), SIXTEEN(step)

static const uint64_t steps[256] = {
    [0x00] = MANY(LEAD(STATE_ANY)),
    [0x20] = MANY(LEAD(STATE_ANY)),
    [0x40] = MANY(LEAD(STATE_ANY)),
    [0x60] = MANY(LEAD(STATE_ANY)),
    [0x80] = SIXTEEN(TAIL | STEP(STATE_ED, STATE_1) | STEP(STATE_F4, STATE_2)),
    [0x90] = SIXTEEN(TAIL | STEP(STATE_ED, STATE_1) | STEP(STATE_F0, STATE_2)),
    [0xA0] = MANY(TAIL | STEP(STATE_E0, STATE_1) | STEP(STATE_F0, STATE_2)),
    [0xC2] = TWO(LEAD(STATE_1)),
    [0xC4] = FOUR(LEAD(STATE_1)),
    [0xC8] = EIGHT(LEAD(STATE_1)),
    [0xD0] = SIXTEEN(LEAD(STATE_1)),
    [0xE0] = LEAD(STATE_E0),
    [0xE1] = FOUR(LEAD(STATE_2)),
    [0xE5] = EIGHT(LEAD(STATE_2)),
    [0xED] = LEAD(STATE_ED),
    [0xEE] = TWO(LEAD(STATE_2)),
    [0xF0] = LEAD(STATE_F0),
    [0xF1] = LEAD(STATE_3),
    [0xF2] = TWO(LEAD(STATE_3)),
    [0xF4] = LEAD(STATE_F4),
};

/* The bits above a state are left to lie until the end: the shift does not look at them. */
static uint64_t
step(uint64_t state, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        state = steps[(uint8_t)text[i]] >> (state & STATE_BITS);
    }
    return state & STATE_BITS;
}

/* The first bad part of what is known to have one behind `at`, where a sequence begins. */
static size_t
find_bad(const char *text, size_t length, size_t at)
{
    enum utf8_part part = UTF8_WHOLE;

    for (;;) {
        size_t bytes = utf8_next(text + at, length - at, &part);

        if (part != UTF8_WHOLE) {
            return at;
        }
        at += bytes;
    }
}

size_t
utf8_check(const char *text, size_t length)
{
    uint64_t state = STATE_ANY;
    size_t at = 0, good = 0; /* a sequence begins at `good`, and all before is well-formed */
    uint64_t words[2];

    if (length == 0) { /* then `text` may be NULL */
        return 0;
    }
    for (; length - at >= sizeof(words) && state != STATE_BAD; at += sizeof(words)) {
        if (state == STATE_ANY) {
            good = at;
            memcpy(words, text + at, sizeof(words));
            if (((words[0] | words[1]) & 0x8080808080808080u) == 0) {
                continue;
            }
        }
        state = step(state, text + at, sizeof(words));
    }
    state = step(state, text + at, length - at);
    return state == STATE_ANY ? length : find_bad(text, length, good);
}

uint32_t
utf8_decode(const char *text, size_t *bytes_out)
{
    const uint8_t *s = (const uint8_t *)text;

    if (s[0] < 0x80) {
        *bytes_out = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *bytes_out = 2;
        return (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    }
    if (s[0] < 0xF0) {
        *bytes_out = 3;
        return (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    }
    *bytes_out = 4;
    return (s[0] & 0x07u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

size_t
utf8_encode(uint32_t code_point, char out[4])
{
    static const uint8_t leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t bytes = code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;

    for (size_t i = bytes - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (char)(leads[bytes] | code_point);
    return bytes;
}
