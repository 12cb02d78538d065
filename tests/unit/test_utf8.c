/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "common/utf8.h"
#include "tests/support/check_main.h"

/* Check reports every assertion to its parent: a million of them would be all the work there is. */
static bool
goes_there_and_back(uint32_t code_point)
{
    char text[4];
    size_t length = utf8_encode(code_point, text);
    size_t taken;
    enum utf8_part part;

    if (code_point >= 0xD800 && code_point <= 0xDFFF) {
        return utf8_check(text, length) == 0;
    }
    for (size_t cut = 1; cut < length; cut++) {
        if (utf8_next(text, cut, &part) != cut || part != UTF8_CUT) {
            return false;
        }
    }
    return utf8_decode(text, &taken) == code_point && taken == length
           && utf8_next(text, length, &part) == length && part == UTF8_WHOLE;
}

START_TEST(every_code_point_goes_there_and_back)
{
    for (uint32_t code_point = 0; code_point <= 0x10FFFF; code_point++) {
        if (!goes_there_and_back(code_point)) {
            ck_abort_msg("U+%04X", code_point);
        }
    }
}
END_TEST

/* Every text of three bytes is good exactly if it is made of encoded code points. */
START_TEST(nothing_else_is_well_formed)
{
    size_t good = 0;

    for (uint32_t n = 0; n < 1u << 24; n++) {
        char text[3] = {(char)(n >> 16), (char)(n >> 8), (char)n};

        good += utf8_check(text, 3) == 3;
    }
    /* One byte 128, two 1920, three 63488 - 2048: sums over the ways to fill three bytes. */
    ck_assert_uint_eq(good, 128u * 128 * 128 + 2u * 128 * 1920 + 61440);
}
END_TEST

/* The examples of the Unicode standard, tables 3-8 to 3-11. */
START_TEST(a_bad_part_is_as_long_as_the_standard_says)
{
    static const struct {
        const char *text;
        size_t lengths[9];
    } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", {2, 1, 3, 2, 1}},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i].text;
        size_t left = strlen(text);

        for (size_t k = 0; left > 0; k++) {
            enum utf8_part part;
            size_t length = utf8_next(text, left, &part);

            ck_assert_uint_eq(length, cases[i].lengths[k]);
            ck_assert_int_eq(part, *text == 'A' ? UTF8_WHOLE : UTF8_BAD);
            text += length;
            left -= length;
        }
    }
}
END_TEST

START_TEST(a_check_names_the_first_bad_byte_at_any_place)
{
    char text[64];

    for (size_t bad = 0; bad < sizeof(text); bad++) {
        memset(text, 'x', sizeof(text));
        text[bad] = (char)0xFF;
        ck_assert_uint_eq(utf8_check(text, sizeof(text)), bad);
        ck_assert_uint_eq(utf8_check(text, bad), bad);
    }
}
END_TEST

/* In `length` bytes the first that utf8_next does not call whole. */
static size_t
first_bad(const char *text, size_t length)
{
    size_t at = 0;
    enum utf8_part part;

    while (at < length) {
        size_t bytes = utf8_next(text + at, length - at, &part);

        if (part != UTF8_WHOLE) {
            break;
        }
        at += bytes;
    }
    return at;
}

static uint64_t
draw(uint64_t *seed, uint64_t count)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % count;
}

/* Code points of every length, most of them ASCII or most not; then up to two bytes are others. */
START_TEST(a_check_of_long_text_ends_where_a_look_at_each_sequence_ends)
{
    uint64_t seed = test_seed();
    size_t good = 0, texts = SCENE(200000, 40000, 4000);

    for (size_t n = 0; n < texts; n++) {
        char text[200];
        uint64_t ascii = draw(&seed, 2) == 0 ? 97 : 20;
        size_t length = 0, wanted = draw(&seed, sizeof(text) - 4);

        while (length < wanted) {
            uint32_t limits[] = {0x80, 0x800, 0xD800, 0x110000};
            uint32_t limit = draw(&seed, 100) < ascii ? 0x80 : limits[draw(&seed, 4)];

            length += utf8_encode((uint32_t)draw(&seed, limit), text + length);
        }
        for (uint64_t k = draw(&seed, 3); k > 0 && length > 0; k--) {
            text[draw(&seed, length)] = (char)draw(&seed, 256);
        }
        char *exact = memcpy(malloc(length == 0 ? 1 : length), text,
                             length); /* the sanitizers see one beyond */

        if (utf8_check(exact, length) != first_bad(text, length)) {
            ck_abort_msg("text %zu of %zu bytes: %zu, not %zu", n, length,
                         utf8_check(exact, length), first_bad(text, length));
        }
        good += first_bad(text, length) == length;
        free(exact);
    }
    ck_assert(good > texts / 10 && good < texts - texts / 10);
}
END_TEST

CHECK_MAIN("utf8", every_code_point_goes_there_and_back, nothing_else_is_well_formed,
           a_bad_part_is_as_long_as_the_standard_says,
           a_check_names_the_first_bad_byte_at_any_place,
           a_check_of_long_text_ends_where_a_look_at_each_sequence_ends)
