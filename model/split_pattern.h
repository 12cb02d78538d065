/* SPDX-License-Identifier: Apache-2.0 */
/* split_pattern - a split pattern of a tokenizer.json, written for Oniguruma, as PCRE2 reads it.
 *
 * The two agree on what split patterns are made of, but for white space, which is spelled out.
 * What they read differently is refused: \w and \b, line anchors and the dot, sets in sets,
 * possessive intervals, escapes other than those below. */
#ifndef MODEL_SPLIT_PATTERN_H
#define MODEL_SPLIT_PATTERN_H

#include "common/status.h"
#include "model/gguf.h"

#define SPLIT_PATTERN_BYTES_MAX 4096

/* White_Space of Unicode, for use inside a character class.  PCRE2's \s also has U+180E. */
#define SPLIT_WHITE_SPACE                                                                          \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"       \
    "\\x{3000}"

/* Translates; the caller frees *text_out with mem_free.  ST_INVALID says what and where; the caller
 * adds the file.  ST_NO_MEMORY. */
enum status split_pattern_translate(struct gguf_string pattern, char **text_out);

#endif
