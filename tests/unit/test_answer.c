/* SPDX-License-Identifier: Apache-2.0 */
/* Text of answers over the byte tokenizer, where every token border is possible. */
#include <string.h>

#include "tests/support/check_main.h"
#include "worker/answer.h"

#define TEXT_MAX 4096

struct run {
    char text[TEXT_MAX];
    size_t length;
    size_t most_held;
    bool is_stopped;
};

/* Feeds the bytes of a text one token each, until a stop string is complete. */
static void
feed(struct run *run, const char *text, char *const *stops, size_t n_stops)
{
    struct tokenizer *tokenizer = NULL;
    struct answer answer;
    char out[ANSWER_OUT_MAX];

    *run = (struct run){.length = 0};
    ck_assert_int_eq(tokenizer_new_bytes(258, &tokenizer), ST_OK);
    ck_assert_int_eq(answer_init(&answer, stops, n_stops), ST_OK);
    for (const char *at = text; *at != '\0' && !answer.is_stopped; at++) {
        size_t n = answer_push(&answer, tokenizer, (unsigned char)*at, out);

        memcpy(run->text + run->length, out, n);
        run->length += n;
        run->most_held = answer.n_held > run->most_held ? answer.n_held : run->most_held;
    }
    size_t n = answer_finish(&answer, out);

    memcpy(run->text + run->length, out, n);
    run->length += n;
    run->is_stopped = answer.is_stopped;
    ck_assert_uint_eq(answer_push(&answer, tokenizer, 'x', out), answer.is_stopped ? 0 : 1);
    answer_deinit(&answer);
    tokenizer_destroy(&tokenizer);
}

#define CHECK_TEXT(given, expected, stopped, ...)                                                  \
    do {                                                                                           \
        static char *stops_[] = {__VA_ARGS__};                                                     \
        struct run run_;                                                                           \
        feed(&run_, given, stops_, sizeof(stops_) / sizeof(stops_[0]));                            \
        ck_assert_str_eq(run_.text, expected);                                                     \
        ck_assert_int_eq(run_.is_stopped, stopped);                                                \
    } while (0)

static char stop_end[] = "END", stop_aab[] = "aab", stop_b[] = "b", stop_abc[] = "abc";
static char stop_euro[] = "\xe2\x82\xac", stop_tail[] = "\x82\xac", stop_xb[] = "xb";

START_TEST(text_before_a_stop_string_comes_out_and_no_more)
{
    CHECK_TEXT("hello END of it", "hello ", true, stop_end);
    CHECK_TEXT("ENDless", "", true, stop_end);
    CHECK_TEXT("EN", "EN", false, stop_end);
    CHECK_TEXT("the ENEND", "the EN", true, stop_end);
    CHECK_TEXT("aaaab", "aa", true, stop_aab);
    CHECK_TEXT("plain", "plain", false, stop_end, stop_aab);
}
END_TEST

START_TEST(the_stop_string_that_is_complete_first_wins_and_of_two_the_longer)
{
    CHECK_TEXT("abc", "a", true, stop_abc, stop_b);
    CHECK_TEXT("axb", "a", true, stop_b, stop_xb);
}
END_TEST

START_TEST(characters_stay_whole_and_are_not_cut_in_their_middle)
{
    CHECK_TEXT("5 \xe2\x82\xac each", "5 ", true, stop_euro);
    /* Bytes that only look like the stop string: they are inside a character. */
    CHECK_TEXT("5 \xe2\x82\xac each", "5 \xe2\x82\xac each", false, stop_tail);
    CHECK_TEXT("bad \xe2\x82 byte", "bad \xef\xbf\xbd byte", false, stop_end);
    CHECK_TEXT("bad \xe2\x82", "bad \xef\xbf\xbd", false, stop_end);
}
END_TEST

START_TEST(only_what_may_begin_a_stop_string_is_withheld)
{
    static char *stops[] = {stop_end};
    struct run run;

    feed(&run, "A sentence about ENERGY and EN", stops, 1);
    ck_assert_uint_eq(run.most_held, 2);
    ck_assert_str_eq(run.text, "A sentence about ENERGY and EN");
}
END_TEST

START_TEST(stop_strings_of_any_served_length_work_and_others_are_refused)
{
    static char longest[ANSWER_STOP_BYTES_MAX + 2];
    static char text[600];
    static char empty[] = "";
    char *stops[ANSWER_STOPS_MAX + 1];
    struct answer answer;
    struct run run;

    memset(longest, 'q', ANSWER_STOP_BYTES_MAX);
    memset(text, 'q', 300);
    stops[0] = longest;
    feed(&run, text, stops, 1);
    ck_assert(run.is_stopped);
    ck_assert_uint_eq(run.length, 0);
    ck_assert_uint_eq(run.most_held, ANSWER_HELD_MAX);
    longest[ANSWER_STOP_BYTES_MAX] = 'q';
    ck_assert_int_eq(answer_init(&answer, stops, 1), ST_INVALID);
    stops[0] = empty;
    ck_assert_int_eq(answer_init(&answer, stops, 1), ST_INVALID);
    for (size_t i = 0; i <= ANSWER_STOPS_MAX; i++) {
        stops[i] = stop_end;
    }
    ck_assert_int_eq(answer_init(&answer, stops, ANSWER_STOPS_MAX + 1), ST_INVALID);
}
END_TEST

/* Random texts over two letters: the text must be what a search over the whole text says. */
START_TEST(random_texts_are_cut_where_a_plain_search_cuts_them)
{
    unsigned long long state = test_seed();

    for (int round = 0; round < 300; round++) {
        char text[41] = {0}, stop[5] = {0};
        char *stops[] = {stop};
        struct run run;

        for (size_t i = 0; i < 40; i++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            text[i] = (state >> 40) % 2 == 0 ? 'a' : 'b';
        }
        for (size_t i = 0; i < 1 + (state >> 50) % 4; i++) {
            stop[i] = (state >> (20 + i)) % 2 == 0 ? 'a' : 'b';
        }
        feed(&run, text, stops, 1);
        const char *found = strstr(text, stop);
        size_t length = found == NULL ? 40 : (size_t)(found - text);

        ck_assert_uint_eq(run.length, length);
        ck_assert_mem_eq(run.text, text, length);
    }
}
END_TEST

CHECK_MAIN("answer", text_before_a_stop_string_comes_out_and_no_more,
           the_stop_string_that_is_complete_first_wins_and_of_two_the_longer,
           characters_stay_whole_and_are_not_cut_in_their_middle,
           only_what_may_begin_a_stop_string_is_withheld,
           stop_strings_of_any_served_length_work_and_others_are_refused,
           random_texts_are_cut_where_a_plain_search_cuts_them)
