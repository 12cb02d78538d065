/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/prctl.h>

#include "model/pretokenize.h"
#include "tests/support/check_main.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static struct pretokenizer *
require_pattern(const char *name)
{
    struct pretokenizer *pretokenizer = NULL;
    struct gguf_string given = {name, strlen(name)};

    ck_assert_int_eq(pretokenizer_new(given, &pretokenizer), ST_OK);
    return pretokenizer;
}

static struct pretokenizer_scratch *
require_scratch(void)
{
    struct pretokenizer_scratch *scratch = NULL;

    ck_assert_int_eq(pretokenizer_scratch_new(&scratch), ST_OK);
    return scratch;
}

/* Writes the words with '|' between them. */
static enum status
write_word(void *arg, const char *word, size_t length)
{
    char *out = arg;
    size_t at = strlen(out);

    if (at > 0) {
        out[at++] = '|';
    }
    memcpy(out + at, word, length);
    out[at + length] = '\0';
    return ST_OK;
}

static enum status
count_bytes(void *arg, const char *word, size_t length)
{
    (void)word;
    *(size_t *)arg += length;
    return ST_OK;
}

static enum status
refuse_word(void *arg, const char *word, size_t length)
{
    (void)arg;
    return ERR(ST_TIMEOUT, "%.*s", (int)length, word);
}

START_TEST(each_pattern_cuts_as_its_family_does)
{
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        {"gpt-2", "I've 1234  two\n\nlines!?", "I|'ve| 1234| | two|\n|\n|lines|!?"},
        {"gpt-2", "WE'VE it's", "WE|'|VE| it|'s"},
        {"default", "a\tb  ", "a|\t|b|  "},
        {"gpt-2",
         "a\xE1\xA0\x8E"
         "b",
         "a|\xE1\xA0\x8E|b"}, /* U+180E is no space */
        {"smollm", "in 2024, x", "in| |2|0|2|4|,| x"},
        {"starcoder", "x1y", "x|1|y"},
        {"llama-bpe", "WE'VE 12345 a\r\n b", "WE|'VE| |123|45| a|\r\n| b"},
        {"llama-bpe", "(foo) !!\n\nbar", "(foo|)| !!\n\n|bar"},
        {"llama-bpe", "x   y \n", "x|  | y| \n"},
        {"llama3", "caf\xC3\xA9's", "caf\xC3\xA9|'s"},
        {"qwen2", "a 123 b", "a| |1|2|3| b"},
        {"deepseek-llm", "a\nb  c12  ", "a|\n|b| | c|1|2|  "},
        {"deepseek-llm", "hi, you", "hi|,| you"},
        {"deepseek-llm",
         "\xE4\xBD\xA0\xE5\xA5\xBD"
         "a",
         "\xE4\xBD\xA0\xE5\xA5\xBD|a"},
        {"deepseek-coder", "a 12 (b)", "a| |1|2| (|b|)"},
        {"falcon", "a 12345 <b>", "a| |123|45| |<|b|>"},
    };
    struct pretokenizer_scratch *scratch = require_scratch();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pretokenizer *pretokenizer = require_pattern(cases[i].name);
        char out[256] = "";

        ck_assert_int_eq(pretokenizer_split(pretokenizer, scratch, cases[i].text,
                                            strlen(cases[i].text), write_word, out),
                         ST_OK);
        ck_assert_msg(strcmp(out, cases[i].words) == 0, "%s: \"%s\" gave \"%s\"", cases[i].name,
                      cases[i].text, out);
        pretokenizer_destroy(&pretokenizer);
    }
    pretokenizer_scratch_destroy(&scratch);
}
END_TEST

/* Each of these, doubled, would take four times as long if a pattern were quadratic in it: at this
 * size, for ever.  They also cross the limits of PCRE2 that stand by default. */
static void
split_long_texts(void)
{
    static const char *const names[] = {
        "gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "falcon",
    };
    static const char *const units[] = {" ", "a", "1",          "\n",          " \n",
                                        "!", "'", "\t\xC3\xA9", "\xE4\xB8\x80"};
#ifdef KVASIR_VALGRIND
    const size_t length = 1u << 16; /* valgrind's build: a hundred times slower */
#else
    const size_t length = 11u << 20;
#endif
    char *text = malloc(length + 1);
    struct pretokenizer_scratch *scratch = require_scratch();

    ck_assert_ptr_nonnull(text);
    for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
        size_t unit = strlen(units[u]);
        size_t filled = length / unit * unit;

        for (size_t at = 0; at < filled; at += unit) {
            memcpy(text + at, units[u], unit);
        }
        text[filled] = 'x'; /* what stands behind a run decides how it is cut */
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            struct pretokenizer *pretokenizer = require_pattern(names[n]);
            /* Words of one byte are many: less of them shows the same. */
            size_t part = filled > length / 32 ? length / 32 / unit * unit : filled;
            size_t seen = 0;

            ck_assert_int_eq(pretokenizer_split(pretokenizer, scratch,
                                                text + (u == 0 ? 0 : filled - part),
                                                (u == 0 ? filled : part) + 1, count_bytes, &seen),
                             ST_OK);
            ck_assert_uint_eq(seen, (u == 0 ? filled : part) + 1);
            pretokenizer_destroy(&pretokenizer);
        }
    }
    pretokenizer_scratch_destroy(&scratch);
    free(text);
}

START_TEST(no_text_makes_a_pattern_slow)
{
    split_long_texts();
}
END_TEST

/* systemd's MemoryDenyWriteExecute=yes; each test is a process of its own, so no other is hurt. */
START_TEST(no_text_makes_an_interpreted_pattern_slow)
{
#ifdef KVASIR_VALGRIND
    printf("SKIP: every pattern is interpreted in this build\n");
    return;
#endif
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0L, 0L, 0L) != 0) {
        printf("SKIP: this kernel cannot refuse executable memory (PR_SET_MDWE)\n");
        return;
    }
    split_long_texts();
}
END_TEST

START_TEST(an_unknown_pattern_is_refused_by_name)
{
    struct pretokenizer *pretokenizer = NULL;

    ck_assert_int_eq(pretokenizer_new((struct gguf_string){"gpt-22", 6}, &pretokenizer),
                     ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "\"gpt-22\""));
    ck_assert_ptr_null(pretokenizer);
}
END_TEST

START_TEST(a_status_of_the_receiver_stops_the_split)
{
    struct pretokenizer *pretokenizer = require_pattern("smollm");
    struct pretokenizer_scratch *scratch = require_scratch();

    ck_assert_int_eq(pretokenizer_split(pretokenizer, scratch, "one two", 7, refuse_word, NULL),
                     ST_TIMEOUT);
    ck_assert_str_eq(status_detail(), "one");
    pretokenizer_destroy(&pretokenizer);
    pretokenizer_scratch_destroy(&scratch);
}
END_TEST

CHECK_MAIN("pretokenize", each_pattern_cuts_as_its_family_does, no_text_makes_a_pattern_slow,
           no_text_makes_an_interpreted_pattern_slow, an_unknown_pattern_is_refused_by_name,
           a_status_of_the_receiver_stops_the_split)
