/* SPDX-License-Identifier: Apache-2.0 */
/* utf8 - well-formed UTF-8 as the Unicode standard defines it (table 3-7): no surrogates, nothing
 * overlong, nothing above U+10FFFF.  Pure; allocates nothing. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

enum utf8_part {
    UTF8_WHOLE, /* one well-formed sequence */
    UTF8_CUT,   /* the text ends inside a sequence that is well-formed so far */
    UTF8_BAD,   /* a maximal bad part: what one U+FFFD replaces */
};

/* Looks at the front of `length` > 0 bytes: what it is, and how many bytes it takes (1 to 4). */
size_t utf8_next(const char *text, size_t length, enum utf8_part *part_out);

/* The offset of the first byte that is not well-formed UTF-8; `length` if all of it is. */
size_t utf8_check(const char *text, size_t length);

/* The code point at the front of text that is known to be well-formed; *bytes_out is its length. */
uint32_t utf8_decode(const char *text, size_t *bytes_out);

/* Writes the sequence of a code point that has one; returns its length. */
size_t utf8_encode(uint32_t code_point, char out[4]);

#endif
