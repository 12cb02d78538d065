/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tokenizer.h"

#include <pthread.h>
#include <string.h>

#include "common/htab.h"
#include "common/mem.h"
#include "common/utf8.h"
#include "model/tokenizer_merge.h"
#include "tests/support/check_main.h"
#include "tests/support/vocabulary.h"

static struct tokenizer_scratch *
require_scratch(void)
{
    struct tokenizer_scratch *scratch = NULL;

    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    return scratch;
}

/* Encodes and compares with ids ended by -1. */
static void
check_ids(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch, const char *text,
          bool parse_special, const int64_t *wanted)
{
    const uint32_t *ids;
    size_t count;

    ck_assert_int_eq(
        tokenizer_encode(tokenizer, scratch, text, strlen(text), parse_special, &ids, &count),
        ST_OK);
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(wanted[i] == (int64_t)ids[i], "\"%s\": id %zu is %u, not %lld", text, i,
                      ids[i], (long long)wanted[i]);
    }
    ck_assert_msg(wanted[count] == -1, "\"%s\": only %zu ids", text, count);
}

#define IDS(...)                                                                                   \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__, -1                                                                            \
    }

/* Decodes id by id; each piece that comes out must be UTF-8.  The caller frees the text. */
static char *
decode(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count, size_t *length_out)
{
    struct detokenizer state = {0};
    char *text = malloc((count + 1) * DETOKENIZER_OUT_MAX);
    size_t length = 0;
    bool is_good = text != NULL;

    for (size_t i = 0; i <= count; i++) {
        char *out = text + length;
        size_t written = i < count ? detokenizer_push(tokenizer, &state, ids[i], out)
                                   : detokenizer_finish(&state, out);

        is_good = is_good && written <= DETOKENIZER_OUT_MAX && utf8_check(out, written) == written;
        length += written;
    }
    ck_assert(is_good);
    *length_out = length;
    return text;
}

/* "a b" before "b c" before "ab c"; also a control and two user-defined tokens. */
static void
init_small(struct vocabulary *vocabulary, const char *pre)
{
    vocabulary_init_bpe(vocabulary, pre);
    vocabulary_add_merge(vocabulary, "a b", "ab");                    /* 256 */
    vocabulary_add_merge(vocabulary, "b c", "bc");                    /* 257 */
    vocabulary_add_merge(vocabulary, "ab c", "abc");                  /* 258 */
    vocabulary_add_merge(vocabulary, "a a", "aa");                    /* 259 */
    vocabulary_add_merge(vocabulary, "Ġ a", "Ġa");                    /* 260 */
    vocabulary_add(vocabulary, "<|end|>", VOCABULARY_CONTROL, 0);     /* 261 */
    vocabulary_add(vocabulary, "@@", VOCABULARY_USER_DEFINED, 0);     /* 262 */
    vocabulary_add(vocabulary, "@@@x", VOCABULARY_USER_DEFINED, 0);   /* 263 */
    vocabulary_add(vocabulary, "<|end|>more", VOCABULARY_CONTROL, 0); /* 264 */
}

START_TEST(the_smallest_rank_merges_first_and_the_leftmost_of_equals)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_small(&vocabulary, "gpt-2");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "abc", false, IDS(258));
    check_ids(tokenizer, scratch, "bcb", false, IDS(257, 'b'));
    check_ids(tokenizer, scratch, "aaa", false, IDS(259, 'a'));
    check_ids(tokenizer, scratch, "aab", false, IDS('a', 256));
    check_ids(tokenizer, scratch, "b a", false, IDS('b', 260));
    check_ids(tokenizer, scratch, "\xC3\xA9", false, IDS(0xC3, 0xA9));
    check_ids(tokenizer, scratch, "", false, (const int64_t[]){-1});
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(control_tokens_are_found_only_where_they_may_be)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();
    const uint32_t *ids;
    size_t count;

    init_small(&vocabulary, "gpt-2");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "a<|end|>b", true, IDS('a', 261, 'b'));
    check_ids(tokenizer, scratch, "<|end|>more", true, IDS(264));
    check_ids(tokenizer, scratch, "<|end|>mor", true, IDS(261, 'm', 'o', 'r'));
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "<|end|>", 7, false, &ids, &count),
                     ST_OK);
    ck_assert_uint_eq(count, 7);
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_lt(ids[i], 256);
    }
    ck_assert_uint_eq(tokenizer_find(tokenizer, "<|end|>"), 261);
    ck_assert_uint_eq(tokenizer_find(tokenizer, "abc"), 258);
    ck_assert_uint_eq(tokenizer_find(tokenizer, " a"), 260);
    ck_assert_uint_eq(tokenizer_find(tokenizer, "x<|end|>"), TOKENIZER_NONE);
    ck_assert(tokenizer_is_control(tokenizer, 261) && !tokenizer_is_control(tokenizer, 262));
    ck_assert(tokenizer_is_end(tokenizer, 261) && !tokenizer_is_end(tokenizer, 264));
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(user_defined_tokens_are_found_everywhere_the_longest_first)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_small(&vocabulary, "gpt-2");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "a@@b", false, IDS('a', 262, 'b'));
    check_ids(tokenizer, scratch, "a@@b", true, IDS('a', 262, 'b'));
    check_ids(tokenizer, scratch, "@@@x", false, IDS(263));
    check_ids(tokenizer, scratch, "@@@@x", false, IDS(262, 262, 'x'));
    check_ids(tokenizer, scratch, "@", false, IDS('@'));
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(words_reach_across_the_seams_of_pieces_but_special_tokens_do_not)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();
    const struct tokenizer_piece seam[] = {{"xa", 2, true}, {"bc", 2, false}};
    const struct tokenizer_piece forged[] = {
        {"<|en", 4, true}, {"d|>", 3, true}, {"<|end|>", 7, false}, {"<|end|>", 7, true}};
    const uint32_t *ids;
    size_t count;

    init_small(&vocabulary, "gpt-2");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    ck_assert_int_eq(tokenizer_encode_pieces(tokenizer, scratch, seam, 2, &ids, &count), ST_OK);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(ids[1], 258);
    ck_assert_int_eq(tokenizer_encode_pieces(tokenizer, scratch, forged, 4, &ids, &count), ST_OK);
    ck_assert_uint_eq(count, 15);
    for (size_t i = 0; i < count; i++) {
        ck_assert((ids[i] == 261) == (i == 14));
    }
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(text_that_is_not_utf8_is_refused_with_its_offset)
{
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = require_scratch();
    const struct tokenizer_piece longest[] = {{"ab", 2, false},
                                              {"ab", TOKENIZER_TEXT_BYTES_MAX - 1, false}};
    const uint32_t *ids;
    size_t count;

    ck_assert_int_eq(tokenizer_new_bytes(300, &tokenizer), ST_OK);
    ck_assert_int_eq(
        tokenizer_encode(tokenizer, scratch, "good \xED\xA0\x80", 8, false, &ids, &count),
        ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "byte 5"));
    ck_assert_int_eq(tokenizer_encode_pieces(tokenizer, scratch, longest, 2, &ids, &count),
                     ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "67108864 bytes"));
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

/* ▁ab is worth more than ab, which beats bc; z is no token, but in one. */
static void
init_pieces(struct vocabulary *vocabulary)
{
    vocabulary_init_spm(vocabulary);
    vocabulary_add(vocabulary, "▁", VOCABULARY_NORMAL, -10);       /* 259 */
    vocabulary_add(vocabulary, "a", VOCABULARY_NORMAL, -11);       /* 260 */
    vocabulary_add(vocabulary, "b", VOCABULARY_NORMAL, -12);       /* 261 */
    vocabulary_add(vocabulary, "c", VOCABULARY_NORMAL, -13);       /* 262 */
    vocabulary_add(vocabulary, "ab", VOCABULARY_NORMAL, -2);       /* 263 */
    vocabulary_add(vocabulary, "bc", VOCABULARY_NORMAL, -3);       /* 264 */
    vocabulary_add(vocabulary, "▁ab", VOCABULARY_NORMAL, -1);      /* 265 */
    vocabulary_add(vocabulary, "cz", VOCABULARY_NORMAL, -4);       /* 266 */
    vocabulary_add(vocabulary, "▁▁", VOCABULARY_NORMAL, -5);       /* 267 */
    vocabulary_add(vocabulary, "aa", VOCABULARY_NORMAL, -6);       /* 268 */
    vocabulary_add(vocabulary, "<s", VOCABULARY_NORMAL, -7);       /* 269 */
    vocabulary_add(vocabulary, "<", VOCABULARY_NORMAL, -8);        /* 270 */
    vocabulary_add(vocabulary, "s", VOCABULARY_NORMAL, -8);        /* 271 */
    vocabulary_add(vocabulary, ">", VOCABULARY_NORMAL, -8);        /* 272 */
    vocabulary_add(vocabulary, "[U]", VOCABULARY_USER_DEFINED, 0); /* 273 */
}

START_TEST(sentencepiece_merges_by_score_and_falls_back_to_bytes)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_pieces(&vocabulary);
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    ck_assert(tokenizer_adds_bos(tokenizer));
    check_ids(tokenizer, scratch, "abc", false, IDS(265, 262));
    check_ids(tokenizer, scratch, "xbc", false, IDS(259, 3 + 'x', 264));
    check_ids(tokenizer, scratch, "cz", false, IDS(259, 266));
    check_ids(tokenizer, scratch, "z", false, IDS(259, 3 + 'z'));
    check_ids(tokenizer, scratch, "  ab", false, IDS(267, 265));
    check_ids(tokenizer, scratch, "aaa", false, IDS(259, 268, 260));
    check_ids(tokenizer, scratch, "é", false, IDS(259, 3 + 0xC3, 3 + 0xA9));
    check_ids(tokenizer, scratch, "▁ab", false, IDS(259, 265)); /* as good as a space */
    check_ids(tokenizer, scratch, "a[U]ab", false, IDS(259, 260, 273, 265));
    check_ids(tokenizer, scratch, "", false, (const int64_t[]){-1});
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(merging_never_spells_a_control_token_or_a_byte)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_pieces(&vocabulary);
    vocabulary.adds_space = 0;
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "<s>", false, IDS(269, 272));
    check_ids(tokenizer, scratch, "<s>", true, IDS(1));
    check_ids(tokenizer, scratch, "<0x41>", false,
              IDS(270, 3 + '0', 3 + 'x', 3 + '4', 3 + '1', 272));
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(a_character_without_bytes_is_unknown_or_vanishes)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_pieces(&vocabulary);
    for (size_t i = 3; i < 259; i++) {
        vocabulary.types[i] = VOCABULARY_UNUSED;
    }
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "axa", false, IDS(259, 260, 0, 260));
    tokenizer_destroy(&tokenizer);
    init_small(&vocabulary, "gpt-2");
    vocabulary.types['x'] = VOCABULARY_UNUSED;
    tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "axbc", false, IDS(258)); /* what is gone parts nothing */
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(the_space_put_in_front_is_taken_off_again)
{
    static const char *const texts[] = {"ab c", " ab", "é<s>", "a\xF0\x9F\xA6\x99 b", ""};
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    for (int adds_space = 0; adds_space < 2; adds_space++) {
        init_pieces(&vocabulary);
        vocabulary.adds_space = adds_space;
        struct tokenizer *tokenizer = vocabulary_require(&vocabulary);

        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
            const uint32_t *ids;
            size_t count, length;

            ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, texts[i], strlen(texts[i]), false,
                                              &ids, &count),
                             ST_OK);
            char *text = decode(tokenizer, ids, count, &length);
            ck_assert_uint_eq(length, strlen(texts[i]));
            ck_assert_mem_eq(text, texts[i], length);
            free(text);
        }
        struct detokenizer middle = {.has_started = true};
        char out[DETOKENIZER_OUT_MAX];
        ck_assert_uint_eq(detokenizer_push(tokenizer, &middle, 265, out), 3);
        tokenizer_destroy(&tokenizer);
    }
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(bytes_come_out_as_whole_sequences_with_one_mark_for_each_bad_part)
{
    /* Table 3-11 of the Unicode standard, then a sequence cut by the end. */
    static const uint32_t ids[] = {0xE1, 0x80, 0xE2, 0xF0, 0x91, 0x92, 0xF1,
                                   0xBF, 'A',  256,  999,  0xF0, 0x9F};
    static const char wanted[] =
        UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT "A" UTF8_REPLACEMENT;
    struct tokenizer *tokenizer = NULL;
    size_t length;

    ck_assert_int_eq(tokenizer_new_bytes(300, &tokenizer), ST_OK);
    char *text = decode(tokenizer, ids, sizeof(ids) / sizeof(ids[0]), &length);
    ck_assert_uint_eq(length, sizeof(wanted) - 1);
    ck_assert_mem_eq(text, wanted, length);
    free(text);
    tokenizer_destroy(&tokenizer);
}
END_TEST

static uint64_t
draw(uint64_t *state)
{
    return htab_mix(*state += 0x9E3779B97F4A7C15u);
}

/* A random text: mostly ASCII, some of every length of sequence. */
static size_t
draw_text(uint64_t *state, char *text, size_t room)
{
    static const uint32_t highest[] = {0x7F, 0x7F, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    size_t length = 0;

    while (length + 4 <= room) {
        uint32_t code_point = (uint32_t)(draw(state) % (highest[draw(state) % 6] + 1));

        if (code_point < 0xD800 || code_point > 0xDFFF) {
            length += utf8_encode(code_point, text + length);
        }
    }
    return length;
}

START_TEST(decoding_gives_back_any_text)
{
    static const char *const pres[] = {"gpt-2",        "smollm",         "llama-bpe",
                                       "deepseek-llm", "deepseek-coder", "falcon"};
    uint64_t state = test_seed();
    struct tokenizer_scratch *scratch = require_scratch();

    for (size_t p = 0; p < sizeof(pres) / sizeof(pres[0]); p++) {
        struct vocabulary vocabulary;

        init_small(&vocabulary, pres[p]);
        struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
        for (size_t round = 0; round < 200; round++) {
            char text[400];
            size_t length = draw_text(&state, text, draw(&state) % sizeof(text));
            const uint32_t *ids;
            size_t count, decoded_length;

            ck_assert_int_eq(
                tokenizer_encode(tokenizer, scratch, text, length, false, &ids, &count), ST_OK);
            char *decoded = decode(tokenizer, ids, count, &decoded_length);
            ck_assert_uint_eq(decoded_length, length);
            ck_assert(memcmp(decoded, text, length) == 0);
            free(decoded);
        }
        tokenizer_destroy(&tokenizer);
    }
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

/* The plainest way: the best pair is looked for from the front, again and again. */
static size_t
merge_plainly(const struct pair_index *pairs, uint32_t *symbols, size_t count)
{
    for (;;) {
        const struct pair_entry *best = NULL;
        size_t best_at = 0;

        for (size_t i = 0; i + 1 < count; i++) {
            const struct pair_entry *entry = pair_index_find(pairs, symbols[i], symbols[i + 1]);

            if (entry != NULL && (best == NULL || entry->rank < best->rank)) {
                best = entry;
                best_at = i;
            }
        }
        if (best == NULL) {
            return count;
        }
        symbols[best_at] = best->merged;
        memmove(&symbols[best_at + 1], &symbols[best_at + 2],
                (count - best_at - 2) * sizeof(symbols[0]));
        count--;
    }
}

START_TEST(long_and_short_words_merge_as_the_plainest_way_does)
{
    uint64_t state = test_seed();
    struct merger merger = {0};

    for (size_t round = 0; round < 3000; round++) {
        struct pair_index pairs = {0};
        uint32_t symbols[130], plain[130];
        size_t count = draw(&state) % 130;
        size_t plain_count = count;
        uint32_t kinds = 2 + (uint32_t)(draw(&state) % 4);

        ck_assert_int_eq(pair_index_init(&pairs, 40), ST_OK);
        for (uint32_t i = 0; i < 40; i++) {
            /* Ranks may repeat, as SentencePiece's do; results may rank before what they are made
             * of. */
            pair_index_add(&pairs, (uint32_t)(draw(&state) % (kinds + i)),
                           (uint32_t)(draw(&state) % (kinds + i)), (uint32_t)(draw(&state) % 30),
                           kinds + i);
        }
        for (size_t i = 0; i < count; i++) {
            symbols[i] = (uint32_t)(draw(&state) % kinds);
            plain[i] = symbols[i];
        }
        ck_assert_int_eq(merge_symbols(&merger, &pairs, symbols, &count), ST_OK);
        plain_count = merge_plainly(&pairs, plain, plain_count);
        ck_assert_uint_eq(count, plain_count);
        ck_assert(memcmp(symbols, plain, count * sizeof(symbols[0])) == 0);
        pair_index_deinit(&pairs);
    }
    merger_deinit(&merger);
}
END_TEST

/* Quadratic work on a megabyte would take hours; Check's limit is minutes. */
START_TEST(a_word_of_a_megabyte_ends_soon)
{
    const size_t length = 1u << 20;
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();
    char *text = malloc(length);
    uint64_t state = test_seed();

    ck_assert_ptr_nonnull(text);
    for (int kind = 0; kind < 4; kind++) {
        const uint32_t *ids;
        size_t count, decoded_length;

        (kind % 2 == 0 ? init_small(&vocabulary, "llama-bpe") : init_pieces(&vocabulary));
        struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
        for (size_t i = 0; i < length; i++) {
            text[i] = kind < 2 ? 'a' : (char)('a' + draw(&state) % 3);
        }
        ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, text, length, false, &ids, &count),
                         ST_OK);
        ck_assert_uint_lt(count, length);
        struct detokenizer streaming = {0};
        char out[DETOKENIZER_OUT_MAX];
        decoded_length = 0;
        for (size_t i = 0; i < count; i++) {
            decoded_length += detokenizer_push(tokenizer, &streaming, ids[i], out);
        }
        ck_assert_uint_eq(decoded_length, length);
        tokenizer_destroy(&tokenizer);
    }
    free(text);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(a_scratch_serves_many_tokenizers_and_allocates_only_to_grow)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();
    uint64_t allocations = 0;

    init_small(&vocabulary, "gpt-2");
    struct tokenizer *small = vocabulary_require(&vocabulary);
    init_pieces(&vocabulary);
    struct tokenizer *pieces = vocabulary_require(&vocabulary);
    for (int round = 0; round < 3; round++) {
        check_ids(small, scratch, "abc abc", false, IDS(258, ' ', 258));
        check_ids(pieces, scratch, "abc abc", false, IDS(265, 262, 265, 262));
        ck_assert(round < 2 || mem_allocations() == allocations);
        allocations = mem_allocations();
    }
    tokenizer_destroy(&small);
    tokenizer_destroy(&pieces);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(qwen2_composes_text_and_bounds_the_marks_on_a_character)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();
    char marks[2 * 300];
    const uint32_t *ids;
    size_t count;

    init_small(&vocabulary, "qwen2");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "e\xCC\x81", false, IDS(0xC3, 0xA9));
    check_ids(tokenizer, scratch, "\xE1\x84\x80\xE1\x85\xA1", false, IDS(0xEA, 0xB0, 0x80));
    check_ids(tokenizer, scratch, "abc", false, IDS(258));
    for (size_t i = 0; i < sizeof(marks); i += 2) {
        memcpy(marks + i, i % 4 == 0 ? "\xCC\x81" : "\xCC\xA3", 2);
    }
    ck_assert_int_eq(
        tokenizer_encode(tokenizer, scratch, marks, sizeof(marks), false, &ids, &count),
        ST_INVALID);
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

START_TEST(llama_bpe_takes_whole_words)
{
    struct vocabulary vocabulary;
    struct tokenizer_scratch *scratch = require_scratch();

    init_small(&vocabulary, "llama-bpe");
    vocabulary_add(&vocabulary, "cab", VOCABULARY_NORMAL, 0); /* no merge makes it */
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "cab", false, IDS(265));
    tokenizer_destroy(&tokenizer);
    vocabulary.pre = "gpt-2";
    tokenizer = vocabulary_require(&vocabulary);
    check_ids(tokenizer, scratch, "cab", false, IDS('c', 256));
    tokenizer_destroy(&tokenizer);
    tokenizer_scratch_destroy(&scratch);
}
END_TEST

#define THREADS 4

static void *
encode_alone(void *arg)
{
    const struct tokenizer *tokenizer = arg;
    struct tokenizer_scratch *scratch = NULL;
    uint64_t state = 1;
    uintptr_t sum = 0;

    if (tokenizer_scratch_new(&scratch) != ST_OK) {
        return NULL;
    }
    for (size_t round = 0; round < 200; round++) {
        char text[300];
        size_t length = draw_text(&state, text, sizeof(text));
        const uint32_t *ids;
        size_t count = 0;

        if (tokenizer_encode(tokenizer, scratch, text, length, false, &ids, &count) != ST_OK) {
            break;
        }
        for (size_t i = 0; i < count; i++) {
            sum = (uintptr_t)htab_mix(sum + ids[i]);
        }
    }
    tokenizer_scratch_destroy(&scratch);
    return (void *)sum;
}

START_TEST(threads_share_a_tokenizer)
{
    struct vocabulary vocabulary;
    pthread_t threads[THREADS];
    void *sums[THREADS];

    init_small(&vocabulary, "deepseek-llm");
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_alone, tokenizer), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &sums[i]), 0);
        ck_assert_ptr_nonnull(sums[i]);
        ck_assert_ptr_eq(sums[i], sums[0]);
    }
    tokenizer_destroy(&tokenizer);
}
END_TEST

CHECK_MAIN("tokenizer", the_smallest_rank_merges_first_and_the_leftmost_of_equals,
           control_tokens_are_found_only_where_they_may_be,
           user_defined_tokens_are_found_everywhere_the_longest_first,
           words_reach_across_the_seams_of_pieces_but_special_tokens_do_not,
           text_that_is_not_utf8_is_refused_with_its_offset,
           sentencepiece_merges_by_score_and_falls_back_to_bytes,
           merging_never_spells_a_control_token_or_a_byte,
           a_character_without_bytes_is_unknown_or_vanishes,
           the_space_put_in_front_is_taken_off_again,
           bytes_come_out_as_whole_sequences_with_one_mark_for_each_bad_part,
           decoding_gives_back_any_text, long_and_short_words_merge_as_the_plainest_way_does,
           a_word_of_a_megabyte_ends_soon,
           a_scratch_serves_many_tokenizers_and_allocates_only_to_grow,
           qwen2_composes_text_and_bounds_the_marks_on_a_character, llama_bpe_takes_whole_words,
           threads_share_a_tokenizer)
