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

size_t
utf8_check(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        enum utf8_part part;
        uint64_t eight;

        if (length - at >= sizeof(eight)) {
            memcpy(&eight, text + at, sizeof(eight));
            if ((eight & 0x8080808080808080u) == 0) {
                at += sizeof(eight);
                continue;
            }
        }
        size_t bytes = utf8_next(text + at, length - at, &part);
        if (part != UTF8_WHOLE) {
            return at;
        }
        at += bytes;
    }
    return length;
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
