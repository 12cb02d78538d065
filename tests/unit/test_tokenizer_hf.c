/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json files against the ids of the tokenizers package (make_tokenizer_goldens.py), and
 * one of them spoilt in many ways. */
#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
#include "model/pretokenize.h"
#include "model/tokenizer_hf.h"
#include "tests/support/check_main.h"
#include "tests/support/hf_dir.h"

#define NAME      "tokenizer.json"
#define IDS_MAX   1024
#define BYTES_MAX 1024

struct opening {
    const char *config;     /* tokenizer_config.json; NULL: none */
    const char *generation; /* NULL: nothing names an end */
    const char *chat_template;
    uint32_t vocab_size;
};

static enum status
open_text(const char *text, size_t length, const struct opening *opening,
          struct tokenizer **tokenizer_out)
{
    struct json_object *roots[3] = {NULL, NULL, NULL};
    const char *others[] = {opening->config, opening->generation};
    enum status st = json_parse(NAME, text, length, &roots[0]);

    for (size_t i = 0; i < 2 && st == ST_OK; i++) {
        if (others[i] != NULL) {
            st = json_parse(i == 0 ? "tokenizer_config.json" : "generation_config.json", others[i],
                            strlen(others[i]), &roots[1 + i]);
        }
    }
    struct tokenizer_hf files = {
        .tokenizer = json_root(NAME, roots[0]),
        .config = json_root("tokenizer_config.json", roots[1]),
        .generation = json_root("generation_config.json", roots[2]),
        .vocab_size = opening->vocab_size,
    };
    if (opening->chat_template != NULL) {
        files.chat_template =
            (struct gguf_string){opening->chat_template, strlen(opening->chat_template)};
    }
    if (st == ST_OK) {
        st = tokenizer_new_hf(&files, tokenizer_out);
    }
    for (size_t i = 0; i < 3; i++) {
        json_release(&roots[i]);
    }
    return st;
}

static struct tokenizer *
require_golden(const char *name, const struct opening *opening)
{
    struct tokenizer *tokenizer = NULL;
    char source[64];
    size_t length;

    (void)snprintf(source, sizeof(source), "tokenizers/%s.json", name);
    char *text = hf_golden_bytes(source, &length);
    ck_assert_msg(open_text(text, length, opening, &tokenizer) == ST_OK, "%s", status_detail());
    free(text);
    return tokenizer;
}

/* -- Goldens ------------------------------------------------------------------------------- */

static size_t
read_hex(const char *at, char *out)
{
    size_t n = 0;

    for (; at[0] != '\0' && at[0] != '\n'; at += 2) {
        char pair[3] = {at[0], at[1], '\0'};

        ck_assert_uint_lt(n, BYTES_MAX);
        out[n++] = (char)strtoul(pair, NULL, 16);
    }
    return n;
}

static void
check_ids(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch, const char *text,
          size_t length, const char *line)
{
    const uint32_t *ids;
    size_t count;
    char *at;
    size_t expected = strtoul(line, &at, 10);

    ck_assert_msg(tokenizer_encode(tokenizer, scratch, text, length, true, &ids, &count) == ST_OK,
                  "%s", status_detail());
    for (size_t i = 0; i < expected && i < count; i++) {
        uint32_t id = (uint32_t)strtoul(at, &at, 10);

        ck_assert_msg(ids[i] == id, "\"%.*s\": id %zu is %" PRIu32 ", not %" PRIu32, (int)length,
                      text, i, ids[i], id);
    }
    ck_assert_uint_eq(count, expected);
}

static const char *const kinds[] = {"llama3",      "qwen2",     "smollm",     "o200k",
                                    "spm_prepend", "spm_first", "spm_always", "spm_never"};

START_TEST(ids_are_those_of_the_tokenizers_package)
{
    struct tokenizer_scratch *scratch = NULL;
    struct opening opening = {0};
    char source[64], text[BYTES_MAX];
    size_t bytes, length = 0, texts = 0;

    (void)snprintf(source, sizeof(source), "tokenizers/%s.txt", kinds[_i]);
    char *golden = hf_golden_bytes(source, &bytes);
    ck_assert_int_eq(sscanf(golden, "vocab %" SCNu32, &opening.vocab_size), 1);
    struct tokenizer *tokenizer = require_golden(kinds[_i], &opening);
    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    for (const char *line = golden; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "text ", 5) == 0) {
            length = read_hex(line + 5, text);
        } else if (strncmp(line, "ids ", 4) == 0) {
            check_ids(tokenizer, scratch, text, length, line + 4);
            texts++;
        }
    }
    ck_assert_uint_gt(texts, 30);
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    free(golden);
}
END_TEST

START_TEST(text_comes_back_from_its_ids)
{
    static const char text[] = "every evening, \xE4\xBD\xA0 12\n";

    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        struct tokenizer *tokenizer =
            require_golden(kinds[k], &(struct opening){.vocab_size = 512});
        struct tokenizer_scratch *scratch = NULL;
        struct detokenizer state = {0};
        char out[sizeof(text) + DETOKENIZER_OUT_MAX];
        const uint32_t *ids;
        size_t count, length = 0;

        ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
        ck_assert_int_eq(
            tokenizer_encode(tokenizer, scratch, text, sizeof(text) - 1, false, &ids, &count),
            ST_OK);
        for (size_t i = 0; i < count; i++) {
            length += detokenizer_push(tokenizer, &state, ids[i], out + length);
            ck_assert_uint_lt(length, sizeof(text));
        }
        ck_assert_uint_eq(length, sizeof(text) - 1);
        ck_assert_mem_eq(out, text, length);
        tokenizer_scratch_destroy(&scratch);
        tokenizer_destroy(&tokenizer);
    }
}
END_TEST

START_TEST(added_tokens_are_control_tokens_only_where_they_are_special)
{
    struct tokenizer *tokenizer = require_golden("llama3", &(struct opening){.vocab_size = 400});
    uint32_t end = tokenizer_find(tokenizer, "<|end|>");
    uint32_t tool = tokenizer_find(tokenizer, "<tool>");

    ck_assert(end != TOKENIZER_NONE && tokenizer_is_control(tokenizer, end));
    ck_assert(tool != TOKENIZER_NONE && !tokenizer_is_control(tokenizer, tool));
    ck_assert(tokenizer_is_end(tokenizer, end)); /* by its name */
    ck_assert_uint_eq(tokenizer_vocab_size(tokenizer), 400);
    ck_assert_uint_eq(tokenizer_bos(tokenizer), TOKENIZER_NONE);
    ck_assert(!tokenizer_adds_bos(tokenizer));
    tokenizer_destroy(&tokenizer);
}
END_TEST

START_TEST(ends_bos_and_template_come_from_the_files_beside_it)
{
    struct opening opening = {
        .config = "{\"bos_token\":{\"content\":\"<|begin|>\"},\"eos_token\":\"<tool>\","
                  "\"add_bos_token\":true,\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},"
                  "{\"name\":\"default\",\"template\":\"d\"}]}",
        .generation = "{\"eos_token_id\":[349,7]}",
        .vocab_size = 352,
    };
    struct tokenizer *tokenizer = require_golden("llama3", &opening);
    size_t length;

    ck_assert_uint_eq(tokenizer_bos(tokenizer), tokenizer_find(tokenizer, "<|begin|>"));
    ck_assert(tokenizer_adds_bos(tokenizer));
    ck_assert(tokenizer_is_end(tokenizer, 349) && tokenizer_is_end(tokenizer, 7));
    ck_assert(tokenizer_is_end(tokenizer, tokenizer_find(tokenizer, "<tool>")));
    ck_assert(!tokenizer_is_end(tokenizer, 8));
    ck_assert(memcmp(tokenizer_chat_template(tokenizer, &length), "d", 1) == 0 && length == 1);
    tokenizer_destroy(&tokenizer);

    opening.config = "{\"chat_template\":\"plain\",\"add_bos_token\":true}";
    opening.generation = "{\"eos_token_id\":9}";
    opening.chat_template = "of its own";
    tokenizer = require_golden("llama3", &opening);
    ck_assert(tokenizer_is_end(tokenizer, 9) && !tokenizer_adds_bos(tokenizer));
    ck_assert_uint_eq(strlen("of its own"), 10);
    ck_assert(memcmp(tokenizer_chat_template(tokenizer, &length), "of its own", 10) == 0);
    tokenizer_destroy(&tokenizer);

    opening.generation = "{\"eos_token_id\":352}";
    size_t bytes;
    char *text = hf_golden_bytes("tokenizers/llama3.json", &bytes);
    ck_assert_int_eq(open_text(text, bytes, &opening, &tokenizer), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "generation_config.json: key eos_token_id: 352 is no token's id");
    free(text);
}
END_TEST

/* -- One file, changed --------------------------------------------------------------------- */

/* The golden `name` with the first `from` replaced by `to`; the caller frees. */
static char *
changed(const char *name, const char *from, const char *to)
{
    char source[64];
    size_t length;

    (void)snprintf(source, sizeof(source), "tokenizers/%s.json", name);
    char *text = hf_golden_bytes(source, &length);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "no %s in %s", from, name);
    size_t room = length + strlen(to) + 1;
    char *out = malloc(room);
    (void)snprintf(out, room, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

#define TEMPLATE                                                                                   \
    "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"          \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<|begin|>\","        \
    "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]}]}"

START_TEST(a_template_that_starts_with_a_token_adds_it_unless_told_otherwise)
{
    struct opening opening = {.vocab_size = 352};
    char *text = changed("llama3", "\"post_processor\":null", TEMPLATE);
    struct tokenizer *tokenizer = NULL;

    ck_assert_msg(open_text(text, strlen(text), &opening, &tokenizer) == ST_OK, "%s",
                  status_detail());
    ck_assert(tokenizer_adds_bos(tokenizer));
    ck_assert_uint_eq(tokenizer_bos(tokenizer), tokenizer_find(tokenizer, "<|begin|>"));
    tokenizer_destroy(&tokenizer);
    opening.config = "{\"add_bos_token\":false,\"bos_token\":null}";
    ck_assert_int_eq(open_text(text, strlen(text), &opening, &tokenizer), ST_OK);
    ck_assert(!tokenizer_adds_bos(tokenizer));
    tokenizer_destroy(&tokenizer);
    free(text);
}
END_TEST

START_TEST(merges_are_read_in_the_old_form_too)
{
    struct opening opening = {.vocab_size = 352};
    char *text = changed("llama3", "[\"e\",\"r\"]", "\"e r\"");
    struct tokenizer *tokenizer = NULL;
    uint8_t ours[32], golden[32];

    ck_assert_msg(open_text(text, strlen(text), &opening, &tokenizer) == ST_OK, "%s",
                  status_detail());
    tokenizer_fingerprint(tokenizer, ours);
    tokenizer_destroy(&tokenizer);
    tokenizer = require_golden("llama3", &opening);
    tokenizer_fingerprint(tokenizer, golden);
    tokenizer_destroy(&tokenizer);
    ck_assert_mem_eq(ours, golden, 32);
    free(text);
}
END_TEST

static const struct refusal {
    const char *name, *from, *to, *reason;
} refusals[] = {
    {"llama3", "\"type\":\"BPE\"", "\"type\":\"Unigram\"", "key model.type: \"Unigram\" is not"},
    {"llama3", "\"type\":\"BPE\"", "\"type\":\"WordPiece\"", "key model.type: \"WordPiece\""},
    {"llama3", "\"dropout\":null", "\"dropout\":0.1", "key model.dropout is 0.1"},
    {"llama3", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
     "key model.end_of_word_suffix: not served"},
    {"llama3", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
     "key normalizer.type: \"Lowercase\" is not served"},
    {"llama3", "\"normalizer\":null",
     "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
     "{\"type\":\"NFKC\"}]}",
     "key normalizer.normalizers[1].type: \"NFKC\" is not served"},
    {"llama3", "\"type\":\"Split\"", "\"type\":\"Punctuation\"",
     "key pre_tokenizer.pretokenizers[0].type: \"Punctuation\" is not served"},
    {"llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Removed\"",
     "key pre_tokenizer.pretokenizers[0].behavior: only Isolated"},
    {"llama3", "\"invert\":false", "\"invert\":true",
     "key pre_tokenizer.pretokenizers[0].invert is true"},
    {"llama3", "\"Regex\"", "\"String\"", "key pre_tokenizer.pretokenizers[0].pattern.Regex is"},
    {"llama3", "\"Regex\":\"(?i:", "\"Regex\":\"\\\\b(?i:",
     "key pre_tokenizer: split pattern: this escape at byte 0 is not served"},
    {"llama3",
     "\"Regex\":\"(?i:", "\"Regex\":\"\\\\p{Nonsense}(?i:", "key pre_tokenizer: split pat"},
    {"llama3", "\"add_prefix_space\":false", "\"add_prefix_space\":true",
     "key pre_tokenizer.pretokenizers[1].add_prefix_space is true"},
    {"llama3", "\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"WordPiece\"",
     "key decoder.type: \"WordPiece\""},
    {"llama3", "\"byte_fallback\":false", "\"byte_fallback\":true", "key model.byte_fallback"},
    {"llama3", "\"lstrip\":false", "\"lstrip\":true", "key added_tokens[0].lstrip is true"},
    {"llama3", "\"single_word\":false", "\"single_word\":true", "key added_tokens[0].single_word"},
    {"llama3", "\"content\":\"<|begin|>\"", "\"content\":\"\"", "key added_tokens[0].content is"},
    {"llama3", "\"content\":\"<|begin|>\"", "\"content\":\"he\"", "key added_tokens[0].id: \"he\""},
    {"llama3", "\"content\":\"<|begin|>\"", "\"content\":\"<|end|>\"",
     "key model.vocab: special token "},
    {"llama3", "\"!\":0", "\"!\":-1", "key model.vocab: token \"!\" has the id -1"},
    {"llama3", "\"!\":0", "\"!\":352",
     "key model.vocab: token \"!\" has the id 352; the embedding"},
    {"llama3", "\"!\":0", "\"!\":1", "key model.vocab: tokens \"!\" and \"\"\" have the id 1"},
    {"llama3", "\"!\":0", "\"!\":\"0\"", "key model.vocab: token \"!\" has no id"},
    {"llama3", "[\"e\",\"r\"]", "[\"e\",\"\"]", "key model.merges: merge "},
    {"llama3", "[\"e\",\"r\"]", "[\"e\",\"r\",\"x\"]", "key model.merges: merge "},
    {"llama3", "[\"e\",\"r\"]", "\"er\"", "key model.merges: merge "},
    {"llama3", "[\"e\",\"r\"]", "[\"e\",\"zzz\"]", "key model.merges: merge "},
    {"llama3", "\"unk_token\":null", "\"unk_token\":\"x\"", NULL}, /* all bytes are there */
    {"smollm", "\"type\":\"Digits\",\"individual_digits\":true",
     "\"type\":\"ByteLevel\",\"add_prefix_space\":false",
     "key pre_tokenizer.pretokenizers[1].type: nothing is served behind ByteLevel"},
    {"spm_first", "\"normalizer\":null",
     "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}",
     "key model.type: a BPE neither over bytes nor"},
    {"qwen2", "\"normalized\":false", "\"normalized\":true",
     "key added_tokens[0].normalized: \"<|begin|>\" is looked for in normalised text"},
    {"spm_first", "\"split\":false", "\"split\":true", "key pre_tokenizer.split is true"},
    {"spm_first", "\"prepend_scheme\":\"first\"", "\"prepend_scheme\":\"often\"",
     "key pre_tokenizer.prepend_scheme is none of"},
    {"spm_first", "\"replacement\":\"\xE2\x96\x81\"", "\"replacement\":\"_\"",
     "key pre_tokenizer.replacement is not U+2581"},
    {"spm_first", "\"byte_fallback\":true", "\"byte_fallback\":false",
     "key model.type: a BPE neither over bytes nor of SentencePiece's kind"},
    {"spm_first", "\"<0x41>\":68,", "",
     "key model.vocab: tokens for 255 bytes; byte_fallback needs"},
    {"spm_prepend", "\"prepend\":\"\xE2\x96\x81\"", "\"prepend\":\" \"",
     "key normalizer.normalizers[0].type: \"Prepend\" is not served"},
    {"spm_prepend", "\"String\":\" \"", "\"String\":\"x\"",
     "key normalizer.normalizers[1].pattern.String is not a space"},
};

START_TEST(what_is_not_served_is_refused_by_name)
{
    const struct refusal *refusal = &refusals[_i];
    char *text = changed(refusal->name, refusal->from, refusal->to);
    struct tokenizer *tokenizer = NULL;
    struct opening opening = {.vocab_size = strncmp(refusal->name, "spm", 3) == 0 ? 512 : 352};
    enum status st = open_text(text, strlen(text), &opening, &tokenizer);
    char expected[160];

    if (refusal->reason == NULL) {
        ck_assert_msg(st == ST_OK, "%s", status_detail());
    } else {
        (void)snprintf(expected, sizeof(expected), NAME ": %s", refusal->reason);
        ck_assert_int_eq(st, ST_INVALID);
        ck_assert_msg(strncmp(status_detail(), expected, strlen(expected)) == 0,
                      "got \"%s\", not \"%s\"", status_detail(), expected);
    }
    tokenizer_destroy(&tokenizer);
    free(text);
}
END_TEST

/* -- Patterns ------------------------------------------------------------------------------ */

static enum status
translate(const char *text, struct pretokenizer **out)
{
    struct gguf_string pattern = {text, strlen(text)};

    return pretokenizer_new_patterns(&pattern, 1, (struct pretokenizer_traits){0}, out);
}

START_TEST(the_pattern_of_llama_3_becomes_the_one_that_its_name_means)
{
    static const char text[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    struct pretokenizer *named = NULL, *stated = NULL;

    ck_assert_int_eq(pretokenizer_new((struct gguf_string){"llama-bpe", 9}, &named), ST_OK);
    ck_assert_msg(translate(text, &stated) == ST_OK, "%s", status_detail());
    ck_assert_str_eq(pretokenizer_pattern(stated, 0), pretokenizer_pattern(named, 0));
    ck_assert_ptr_null(pretokenizer_pattern(stated, 1));
    pretokenizer_destroy(&named);
    pretokenizer_destroy(&stated);
}
END_TEST

START_TEST(a_pattern_that_the_two_dialects_read_differently_is_refused)
{
    static const char *const patterns[] = {
        "",      "a.b",     "^a",     "a$",   "\\w+",  "\\ba",   "\\Aa",    "\\h",
        "\\x41", "[[a]b]",  "[a&&b]", "[]a]", "[^]a]", "[a",     "[\\Sa]",  "[\\s-x]",
        "a{,3}", "a{1,2}+", "a{2}?",  "a{x}", "\\p{L", "(?m:a)", "(?<n>a)", "(?i)a",
        "\\",    "a*",      "a|b*",   "(a",   "(?:",   "\\1(a)", "\\u0041", "a{2",
    };
    struct pretokenizer *pretokenizer = NULL;

    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        ck_assert_msg(translate(patterns[i], &pretokenizer) == ST_INVALID, "\"%s\" is taken",
                      patterns[i]);
        ck_assert_ptr_nonnull(strstr(status_detail(), "split pattern"));
        ck_assert_ptr_null(pretokenizer);
    }
}
END_TEST

static enum status
count_word(void *arg, const char *word, size_t length)
{
    (void)word;
    (void)length;
    (*(size_t *)arg)++;
    return ST_OK;
}

/* (a+)+b tries every way to cut a run of a's: 2^n. */
START_TEST(a_pattern_that_runs_away_is_stopped)
{
    struct pretokenizer *pretokenizer = NULL;
    struct pretokenizer_scratch *scratch = NULL;
    char text[60];
    size_t words = 0;

    memset(text, 'a', sizeof(text));
    ck_assert_int_eq(translate("(?:a|a|aa)+b|x", &pretokenizer), ST_OK);
    ck_assert_int_eq(pretokenizer_scratch_new(&scratch), ST_OK);
    ck_assert_int_eq(
        pretokenizer_split(pretokenizer, scratch, text, sizeof(text), count_word, &words),
        ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "runs away"));
    pretokenizer_scratch_destroy(&scratch);
    pretokenizer_destroy(&pretokenizer);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    struct opening opening = {.config = "{\"chat_template\":\"t\"}", .vocab_size = 512};

    for (size_t k = 1; k < 5; k += 3) {
        char source[64];
        size_t length;
        struct tokenizer *tokenizer = NULL;

        (void)snprintf(source, sizeof(source), "tokenizers/%s.json", kinds[k]);
        char *text = hf_golden_bytes(source, &length);
        uint64_t before = mem_allocations();
        ck_assert_int_eq(open_text(text, length, &opening, &tokenizer), ST_OK);
        uint64_t needed = mem_allocations() - before;
        tokenizer_destroy(&tokenizer);
        for (uint64_t n = 1; n <= needed; n++) {
            mem_fail_at(n);
            enum status st = open_text(text, length, &opening, &tokenizer);
            mem_fail_at(0);
            /* PCRE2 goes on without its machine code. */
            ck_assert_msg(st == ST_NO_MEMORY || st == ST_OK, "%s", status_detail());
            tokenizer_destroy(&tokenizer);
        }
        free(text);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("tokenizer_hf");
    TCase *tcase = tcase_create("tokenizer_hf");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS);
    tcase_add_loop_test(tcase, ids_are_those_of_the_tokenizers_package, 0,
                        (int)(sizeof(kinds) / sizeof(kinds[0])));
    tcase_add_test(tcase, text_comes_back_from_its_ids);
    tcase_add_test(tcase, added_tokens_are_control_tokens_only_where_they_are_special);
    tcase_add_test(tcase, ends_bos_and_template_come_from_the_files_beside_it);
    tcase_add_test(tcase, a_template_that_starts_with_a_token_adds_it_unless_told_otherwise);
    tcase_add_test(tcase, merges_are_read_in_the_old_form_too);
    tcase_add_loop_test(tcase, what_is_not_served_is_refused_by_name, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, the_pattern_of_llama_3_becomes_the_one_that_its_name_means);
    tcase_add_test(tcase, a_pattern_that_the_two_dialects_read_differently_is_refused);
    tcase_add_test(tcase, a_pattern_that_runs_away_is_stopped);
    tcase_add_test(tcase, every_failing_allocation_is_survived);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
