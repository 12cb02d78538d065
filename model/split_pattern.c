/* SPDX-License-Identifier: Apache-2.0 */
#include "model/split_pattern.h"

#include <stdbool.h>
#include <string.h>

#include "common/mem.h"

#define REFUSE(t, what)                                                                            \
    ERR(ST_INVALID, "split pattern: %s at byte %zu is not served", what, (t)->at)

/* A pattern under translation. */
struct translation {
    struct gguf_string from;
    size_t at;
    char *to; /* long enough for a pattern of nothing but \s */
    size_t length;
    bool is_class; /* inside [...] */
};

/* The byte `ahead` of the one at hand; 0 past the end, which no pattern has inside. */
static char
peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->from.length ? t->from.bytes[t->at + ahead] : '\0';
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void
put(struct translation *t, const char *text)
{
    size_t length = strlen(text);

    memcpy(t->to + t->length, text, length);
    t->length += length;
}

static void
copy(struct translation *t, size_t count)
{
    memcpy(t->to + t->length, t->from.bytes + t->at, count);
    t->length += count;
    t->at += count;
}

static enum status
translate_space(struct translation *t, bool is_negated)
{
    if (t->is_class && (is_negated || (peek(t, 2) == '-' && peek(t, 3) != ']'))) {
        return REFUSE(t, "white space of this kind in a set");
    }
    put(t, t->is_class  ? SPLIT_WHITE_SPACE
           : is_negated ? "[^" SPLIT_WHITE_SPACE "]"
                        : "[" SPLIT_WHITE_SPACE "]");
    t->at += 2;
    return ST_OK;
}

static enum status
translate_escape(struct translation *t)
{
    char c = peek(t, 1);

    if (c == 's' || c == 'S') {
        return translate_space(t, c == 'S');
    }
    if ((c == 'p' || c == 'P' || c == 'x') && peek(t, 2) == '{') {
        const char *begin = t->from.bytes + t->at;
        const char *end = memchr(begin, '}', t->from.length - t->at);

        if (end == NULL) {
            return REFUSE(t, "an open brace");
        }
        copy(t, (size_t)(end - begin) + 1);
        return ST_OK;
    }
    bool is_mark = (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a')
                   || (c > 'z' && c < 0x7f);
    if (c == '\0' || (!is_mark && strchr("dDnrt", c) == NULL)) {
        return REFUSE(t, "this escape");
    }
    copy(t, 2);
    return ST_OK;
}

/* "{2}" and its like: neither possessive nor lazy, for those mean something else elsewhere. */
static enum status
translate_interval(struct translation *t)
{
    size_t length = 1;

    if (!is_digit(peek(t, 1))) {
        return REFUSE(t, "a brace that is no interval");
    }
    while (is_digit(peek(t, length)) || peek(t, length) == ',') {
        length++;
    }
    if (peek(t, length) != '}' || peek(t, length + 1) == '+' || peek(t, length + 1) == '?') {
        return REFUSE(t, "an interval of this kind");
    }
    copy(t, length + 1);
    return ST_OK;
}

static enum status
translate_group(struct translation *t)
{
    static const char *const openings[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                           "(?<=", "(?<!", "(?i:", "(?-i:"};

    if (peek(t, 1) != '?') {
        copy(t, 1);
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
        size_t length = strlen(openings[i]);

        if (t->from.length - t->at >= length
            && memcmp(t->from.bytes + t->at, openings[i], length) == 0) {
            copy(t, length);
            return ST_OK;
        }
    }
    return REFUSE(t, "a group of this kind");
}

static enum status
translate_in_class(struct translation *t)
{
    char c = peek(t, 0);

    if (c == '[' || (c == '&' && peek(t, 1) == '&')) {
        return REFUSE(t, "a set in a set");
    }
    t->is_class = c != ']';
    copy(t, 1);
    return ST_OK;
}

static enum status
translate_one(struct translation *t)
{
    char c = peek(t, 0);

    if (c == '\\') {
        return translate_escape(t);
    }
    if (t->is_class) {
        return translate_in_class(t);
    }
    switch (c) {
    case '{': return translate_interval(t);
    case '(': return translate_group(t);
    case '.':
    case '^':
    case '$': return REFUSE(t, "a dot or an anchor");
    case '[':
        t->is_class = true;
        copy(t, peek(t, 1) == '^' ? 2 : 1);
        return peek(t, 0) == ']' ? REFUSE(t, "an empty set") : ST_OK;
    default: copy(t, 1); return ST_OK;
    }
}

enum status
split_pattern_translate(struct gguf_string pattern, char **text_out)
{
    struct translation t = {.from = pattern};
    enum status st = ST_OK;

    if (pattern.length == 0 || pattern.length > SPLIT_PATTERN_BYTES_MAX) {
        return ERR(ST_INVALID, "split pattern of %zu bytes; 1 to %d are served", pattern.length,
                   SPLIT_PATTERN_BYTES_MAX);
    }
    t.to = mem_zalloc(pattern.length, sizeof(SPLIT_WHITE_SPACE) + 3);
    if (t.to == NULL) {
        return ERR(ST_NO_MEMORY, "split pattern of %zu bytes", pattern.length);
    }
    while (st == ST_OK && t.at < pattern.length) {
        st = translate_one(&t);
    }
    if (st == ST_OK && t.is_class) {
        st = REFUSE(&t, "an open set");
    }
    if (st != ST_OK) {
        mem_free(t.to);
        return st;
    }
    *text_out = t.to;
    return ST_OK;
}
