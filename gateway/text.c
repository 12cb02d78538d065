/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

#define TEXT_BYTES_MIN 256

void
text_deinit(struct text *text)
{
    mem_free(text->bytes);
    *text = (struct text){0};
}

static bool
reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more;
    size_t capacity = text->capacity == 0 ? TEXT_BYTES_MIN : text->capacity;
    char *grown;

    if (text->has_failed || needed <= text->capacity) {
        return !text->has_failed;
    }
    while (capacity < needed) {
        capacity *= 2;
    }
    grown = mem_realloc(text->bytes, capacity, 1);
    if (grown == NULL) {
        text->has_failed = true;
        return false;
    }
    text->bytes = grown;
    text->capacity = capacity;
    return true;
}

void
text_append(struct text *text, const void *bytes, size_t length)
{
    if (length > 0 && reserve(text, length)) {
        memcpy(text->bytes + text->length, bytes, length);
        text->length += length;
    }
}

void
text_add(struct text *text, const char *string)
{
    text_append(text, string, strlen(string));
}

void
text_format(struct text *text, const char *format, ...)
{
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !reserve(text, (size_t)length + 1)) {
        text->has_failed = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

static void
add_escaped(struct text *text, unsigned char byte)
{
    switch (byte) {
    case '"': text_add(text, "\\\""); break;
    case '\\': text_add(text, "\\\\"); break;
    case '\n': text_add(text, "\\n"); break;
    case '\r': text_add(text, "\\r"); break;
    case '\t': text_add(text, "\\t"); break;
    default: text_format(text, "\\u%04x", byte); break;
    }
}

static bool
is_plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

void
text_json(struct text *text, const void *bytes, size_t length)
{
    const char *from = bytes;
    size_t at = 0;

    text_append(text, "\"", 1);
    while (at < length) {
        size_t run = 0;
        enum utf8_part part;

        while (at + run < length && is_plain((unsigned char)from[at + run])) {
            run++;
        }
        text_append(text, from + at, run);
        at += run;
        if (at == length) {
            break;
        }
        size_t taken = utf8_next(from + at, length - at, &part);

        if (part != UTF8_WHOLE) {
            text_add(text, UTF8_REPLACEMENT);
        } else if (taken > 1) {
            text_append(text, from + at, taken);
        } else {
            add_escaped(text, (unsigned char)from[at]);
        }
        at += taken;
    }
    text_append(text, "\"", 1);
}

void
text_json_string(struct text *text, const char *string)
{
    text_json(text, string, strlen(string));
}

void
text_json_float(struct text *text, float value)
{
    if (isfinite(value)) {
        text_format(text, "%.9g", (double)value);
    } else {
        text_add(text, "null");
    }
}

void
text_drop(struct text *text, size_t length)
{
    memmove(text->bytes, text->bytes + length, text->length - length);
    text->length -= length;
}
