/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of JSON itself. */
#include <string.h>

#include "model/grammar_write.h"

#define INDENT_MAX   32 /* spaces behind a new line */
#define DIGITS_MAX   15 /* exact in a double, and no model runs away in them */
#define EXPONENT_MAX 3

enum status
grammar_call_common(struct compiler *c, enum common_rule kind)
{
    uint32_t rule;

    TRY(grammar_common_rule(c, kind, &rule));
    return grammar_call(c, rule);
}

/* Nothing, a space, or a new line with its indentation: no model can go on with it for ever. */
static enum status
write_space(struct compiler *c)
{
    uint32_t none, line, ends[INDENT_MAX];

    TRY(grammar_open_split(c, &none));
    TRY(grammar_open_split(c, &line));
    TRY(grammar_emit_text(c, " "));
    TRY(grammar_emit(c, OP_RETURN, 0, 0));
    grammar_close_here(c, line);
    TRY(grammar_emit_text(c, "\n"));
    for (int i = 0; i < INDENT_MAX; i++) {
        TRY(grammar_open_split(c, &ends[i]));
        TRY(grammar_emit_text(c, " "));
    }
    grammar_close_here(c, none);
    for (int i = 0; i < INDENT_MAX; i++) {
        grammar_close_here(c, ends[i]);
    }
    return ST_OK;
}

/* Unicode's table of well-formed sequences: ranges of the bytes of each. */
static const uint8_t sequences[][4][2] = {
    {{0xC2, 0xDF}, {0x80, 0xBF}},
    {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
    {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
    {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
};

static const char hex_digits[] = "0123456789abcdefABCDEF";

/* Behind the backslash; \u is no half of a surrogate pair. */
static enum status
write_escape(struct compiler *c)
{
    uint32_t simple, low, done, end;

    TRY(grammar_emit_text(c, "\\"));
    TRY(grammar_open_split(c, &simple));
    TRY(grammar_emit_text(c, "u"));
    TRY(grammar_open_split(c, &low));
    TRY(grammar_emit_any_of(c, "0123456789abcefABCEF"));
    TRY(grammar_emit_any_of(c, hex_digits));
    TRY(grammar_open_jump(c, &done));
    grammar_close_here(c, low);
    TRY(grammar_emit_any_of(c, "dD"));
    TRY(grammar_emit_any_of(c, "01234567"));
    grammar_close_here(c, done);
    TRY(grammar_emit_any_of(c, hex_digits));
    TRY(grammar_emit_any_of(c, hex_digits));
    TRY(grammar_open_jump(c, &end));
    grammar_close_here(c, simple);
    TRY(grammar_emit_any_of(c, "\"\\/bfnrt"));
    grammar_close_here(c, end);
    return ST_OK;
}

static enum status
write_character(struct compiler *c)
{
    struct grammar_class plain = {0};
    struct alternatives a = {0};

    grammar_add_range(&plain, 0x20, '"' - 1);
    grammar_add_range(&plain, '"' + 1, '\\' - 1);
    grammar_add_range(&plain, '\\' + 1, 0x7f);
    TRY(grammar_begin_alternative(c, &a, false));
    TRY(grammar_emit_class(c, &plain));
    TRY(grammar_end_alternative(c, &a));
    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
        TRY(grammar_begin_alternative(c, &a, false));
        for (int j = 0; j < 4 && sequences[i][j][1] != 0; j++) {
            TRY(grammar_emit_range(c, sequences[i][j][0], sequences[i][j][1]));
        }
        TRY(grammar_end_alternative(c, &a));
    }
    TRY(grammar_begin_alternative(c, &a, true));
    TRY(write_escape(c));
    return grammar_end_alternative(c, &a);
}

/* Characters between quotes, at least `min`, at most `max` (UINT32_MAX: any number). */
enum status
grammar_write_string(struct compiler *c, uint32_t min, uint32_t max)
{
    uint32_t ends[GRAMMAR_REPEAT_MAX];
    uint32_t end, loop;

    TRY(grammar_emit_text(c, "\""));
    for (uint32_t i = 0; i < min; i++) {
        TRY(grammar_call_common(c, RULE_CHARACTER));
    }
    if (max == UINT32_MAX) {
        loop = grammar_here(c);
        TRY(grammar_open_split(c, &end));
        TRY(grammar_call_common(c, RULE_CHARACTER));
        TRY(grammar_emit(c, OP_JUMP, loop, 0));
        grammar_close_here(c, end);
    } else {
        for (uint32_t i = min; i < max; i++) {
            TRY(grammar_open_split(c, &ends[i - min]));
            TRY(grammar_call_common(c, RULE_CHARACTER));
        }
        for (uint32_t i = min; i < max; i++) {
            grammar_close_here(c, ends[i - min]);
        }
    }
    return grammar_emit_text(c, "\"");
}

/* `first` digits are needed, up to `max` may come. */
static enum status
write_digits(struct compiler *c, int first, int max)
{
    uint32_t ends[DIGITS_MAX];

    for (int i = 0; i < max; i++) {
        if (i >= first) {
            TRY(grammar_open_split(c, &ends[i]));
        }
        TRY(grammar_emit_range(c, '0', '9'));
    }
    for (int i = first; i < max; i++) {
        grammar_close_here(c, ends[i]);
    }
    return ST_OK;
}

static enum status
write_integer(struct compiler *c)
{
    uint32_t sign, zero, end;

    TRY(grammar_open_split(c, &sign));
    TRY(grammar_emit_text(c, "-"));
    grammar_close_here(c, sign);
    TRY(grammar_open_split(c, &zero));
    TRY(grammar_emit_range(c, '1', '9'));
    TRY(write_digits(c, 0, DIGITS_MAX - 1));
    TRY(grammar_open_jump(c, &end));
    grammar_close_here(c, zero);
    TRY(grammar_emit_text(c, "0"));
    grammar_close_here(c, end);
    return ST_OK;
}

static enum status
write_number(struct compiler *c)
{
    uint32_t whole, plain, unsigned_;

    TRY(grammar_call_common(c, RULE_INTEGER));
    TRY(grammar_open_split(c, &whole));
    TRY(grammar_emit_text(c, "."));
    TRY(write_digits(c, 1, DIGITS_MAX));
    grammar_close_here(c, whole);
    TRY(grammar_open_split(c, &plain));
    TRY(grammar_emit_any_of(c, "eE"));
    TRY(grammar_open_split(c, &unsigned_));
    TRY(grammar_emit_any_of(c, "+-"));
    grammar_close_here(c, unsigned_);
    TRY(write_digits(c, 1, EXPONENT_MAX));
    grammar_close_here(c, plain);
    return ST_OK;
}

static enum status
write_value(struct compiler *c)
{
    static const enum common_rule rules[] = {RULE_OBJECT, RULE_ARRAY, RULE_STRING, RULE_NUMBER};
    static const char *const words[] = {"true", "false", "null"};
    struct alternatives a = {0};

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        TRY(grammar_begin_alternative(c, &a, false));
        TRY(grammar_call_common(c, rules[i]));
        TRY(grammar_end_alternative(c, &a));
    }
    for (size_t i = 0; i < 3; i++) {
        TRY(grammar_begin_alternative(c, &a, i == 2));
        TRY(grammar_emit_text(c, words[i]));
        TRY(grammar_end_alternative(c, &a));
    }
    return ST_OK;
}

/* "key": value of a rule. */
static enum status
write_any_member(struct compiler *c, uint32_t value)
{
    TRY(grammar_call_common(c, RULE_STRING));
    TRY(grammar_emit_text(c, ":"));
    TRY(grammar_call_common(c, RULE_SPACE));
    return grammar_call(c, value);
}

/* Members of any name. */
enum status
grammar_write_map(struct compiler *c, uint32_t value)
{
    uint32_t none, loop, end;

    TRY(grammar_emit_text(c, "{"));
    TRY(grammar_call_common(c, RULE_SPACE));
    TRY(grammar_open_split(c, &none));
    TRY(write_any_member(c, value));
    loop = grammar_here(c);
    TRY(grammar_open_split(c, &end));
    TRY(grammar_emit_text(c, ","));
    TRY(grammar_call_common(c, RULE_SPACE));
    TRY(write_any_member(c, value));
    TRY(grammar_emit(c, OP_JUMP, loop, 0));
    grammar_close_here(c, end);
    TRY(grammar_call_common(c, RULE_SPACE));
    grammar_close_here(c, none);
    return grammar_emit_text(c, "}");
}

/* Items of a rule: at least `min`, at most `max` (UINT32_MAX: any number). */
enum status
grammar_write_list(struct compiler *c, uint32_t item, uint32_t min, uint32_t max)
{
    uint32_t ends[GRAMMAR_REPEAT_MAX + 1];
    uint32_t count = max == UINT32_MAX ? (min > 0 ? min : 1) : max;

    TRY(grammar_emit_text(c, "["));
    TRY(grammar_call_common(c, RULE_SPACE));
    for (uint32_t i = 0; i < count; i++) {
        if (i >= min) {
            TRY(grammar_open_split(c, &ends[i]));
        }
        if (i > 0) {
            TRY(grammar_emit_text(c, ","));
            TRY(grammar_call_common(c, RULE_SPACE));
        }
        TRY(grammar_call(c, item));
    }
    if (max == UINT32_MAX) {
        uint32_t loop = grammar_here(c), end;

        TRY(grammar_open_split(c, &end));
        TRY(grammar_emit_text(c, ","));
        TRY(grammar_call_common(c, RULE_SPACE));
        TRY(grammar_call(c, item));
        TRY(grammar_emit(c, OP_JUMP, loop, 0));
        grammar_close_here(c, end);
    }
    for (uint32_t i = min; i < count; i++) {
        grammar_close_here(c, ends[i]);
    }
    TRY(grammar_call_common(c, RULE_SPACE));
    return grammar_emit_text(c, "]");
}

static enum status
write_common(struct compiler *c, enum common_rule kind)
{
    uint32_t value;

    switch (kind) {
    case RULE_SPACE: return write_space(c);
    case RULE_CHARACTER: return write_character(c);
    case RULE_STRING: return grammar_write_string(c, 0, UINT32_MAX);
    case RULE_INTEGER: return write_integer(c);
    case RULE_NUMBER: return write_number(c);
    case RULE_VALUE: return write_value(c);
    case RULE_OBJECT:
        TRY(grammar_common_rule(c, RULE_VALUE, &value));
        return grammar_write_map(c, value);
    default:
        TRY(grammar_common_rule(c, RULE_VALUE, &value));
        return grammar_write_list(c, value, 0, UINT32_MAX);
    }
}

enum status
grammar_common_rule(struct compiler *c, enum common_rule kind, uint32_t *rule_out)
{
    uint32_t over;

    if (c->common[kind] == NO_RULE) {
        TRY(grammar_begin_rule(c, &c->common[kind], &over));
        TRY(write_common(c, kind));
        TRY(grammar_end_rule(c, over));
    }
    *rule_out = c->common[kind];
    return ST_OK;
}
