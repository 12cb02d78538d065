/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/mem.h"
#include "model/config.h"
#include "tests/support/check_main.h"
#include "tests/support/vocabulary.h"

static char long_good[2000], long_bad[1021], longest[1021];

static void
init_merging(struct vocabulary *v)
{
    vocabulary_init_bpe(v, "smollm");
    vocabulary_add_merge(v, "a b", "ab");
    vocabulary_add(v, "<|end|>", VOCABULARY_CONTROL, 0);
    v->bos = 257;
    v->eos = 257;
}

/* Each spoils a good vocabulary in one way. */

static void
spoil_model(struct vocabulary *v)
{
    v->model = "bert";
}
static void
spoil_pre(struct vocabulary *v)
{
    v->pre = "nobody's";
}
static void
spoil_count(struct vocabulary *v)
{
    v->count = 0;
    v->type_count = 0;
}
static void
spoil_utf8(struct vocabulary *v)
{
    vocabulary_add(v, "ab\xC0", VOCABULARY_NORMAL, 0);
}
static void
spoil_types(struct vocabulary *v)
{
    v->type_count--;
}
static void
spoil_type(struct vocabulary *v)
{
    v->types[7] = 9;
}
static void
spoil_twin(struct vocabulary *v)
{
    vocabulary_add(v, "ab", VOCABULARY_NORMAL, 0);
}
static void
spoil_special(struct vocabulary *v)
{
    vocabulary_add(v, "<|end|>", VOCABULARY_CONTROL, 0);
}
static void
spoil_merge_left(struct vocabulary *v)
{
    vocabulary_add_merge(v, "xy z", "xyz");
}
static void
spoil_merge_right(struct vocabulary *v)
{
    vocabulary_add_merge(v, "x yz", "xyz");
}
static void
spoil_merge_result(struct vocabulary *v)
{
    v->merges[v->merge_count++] = "x y";
}
static void
spoil_merge_control(struct vocabulary *v)
{
    v->types[256] = VOCABULARY_CONTROL;
}
static void
spoil_merge_space(struct vocabulary *v)
{
    v->merges[v->merge_count++] = "xy";
}
static void
spoil_merge_utf8(struct vocabulary *v)
{
    v->merges[v->merge_count++] = "x \xFF";
}
static void
spoil_bos(struct vocabulary *v)
{
    v->bos = 258;
}
static void
spoil_eos(struct vocabulary *v)
{
    v->eos = 1 << 30;
}
static void
spoil_scores(struct vocabulary *v)
{
    v->score_count--;
}
static void
spoil_score(struct vocabulary *v)
{
    v->scores[5] = 0.0f / 0.0f;
}
static void
spoil_byte(struct vocabulary *v)
{
    v->tokens[5] = "<0x0g>";
}
static void
spoil_bytes(struct vocabulary *v)
{
    v->tokens[5] = "<0x41>";
}

static void
spoil_length(struct vocabulary *v)
{
    memset(long_good, 'x', sizeof(long_good) - 1);
    vocabulary_add(v, long_good, VOCABULARY_USER_DEFINED, 0);
}

/* Each of its bytes may come out as U+FFFD. */
static void
spoil_output(struct vocabulary *v)
{
    for (size_t i = 0; i < 510; i++) {
        memcpy(long_bad + 2 * i, "ÿ", 2);
    }
    vocabulary_add(v, long_bad, VOCABULARY_NORMAL, 0);
}

static const struct spoil {
    void (*spoil)(struct vocabulary *v);
    bool is_spm;
    const char *words[3]; /* of the message, which must say where and why */
} spoils[] = {
    {spoil_model, false, {"tokenizer.ggml.model", "bert"}},
    {spoil_pre, false, {"tokenizer.ggml.pre", "nobody's"}},
    {spoil_count, false, {"tokenizer.ggml.tokens", "0 tokens"}},
    {spoil_utf8, false, {": offset ", "tokenizer.ggml.tokens: token 258", "byte 2"}},
    {spoil_types, false, {"tokenizer.ggml.token_type", "257", "258"}},
    {spoil_type, false, {"tokenizer.ggml.token_type", "token 7", "type 9"}},
    {spoil_twin, false, {"tokenizer.ggml.tokens", "256", "258"}},
    {spoil_special, false, {"tokenizer.ggml.tokens", "258"}},
    {spoil_merge_left, false, {"tokenizer.ggml.merges", "merge 1", "left"}},
    {spoil_merge_right, false, {"tokenizer.ggml.merges", "merge 1", "right"}},
    {spoil_merge_result, false, {"tokenizer.ggml.merges", "merge 1", "result"}},
    {spoil_merge_control, false, {"tokenizer.ggml.merges", "merge 0", "result"}},
    {spoil_merge_space, false, {"tokenizer.ggml.merges", "merge 1", "space"}},
    {spoil_merge_utf8, false, {"tokenizer.ggml.merges", "merge 1", "UTF-8"}},
    {spoil_bos, false, {"tokenizer.ggml.bos_token_id", "258"}},
    {spoil_eos, false, {"tokenizer.ggml.eos_token_id", "1073741824"}},
    {spoil_length, false, {"tokenizer.ggml.tokens", "token 258", "1024"}},
    {spoil_output, false, {"tokenizer.ggml.tokens", "token 258", "1024"}},
    {spoil_scores, true, {"tokenizer.ggml.scores", "259", "260"}},
    {spoil_score, true, {"tokenizer.ggml.scores", "token 5"}},
    {spoil_byte, true, {"tokenizer.ggml.tokens", "token 5", "<0xNN>"}},
    {spoil_bytes, true, {"tokenizer.ggml.tokens", "token 68", "another"}},
};

START_TEST(a_bad_vocabulary_is_refused_with_file_key_and_reason)
{
    const struct spoil *spoil = &spoils[_i];
    struct vocabulary vocabulary;
    struct tokenizer *tokenizer = NULL;

    if (spoil->is_spm) {
        vocabulary_init_spm(&vocabulary);
        vocabulary_add(&vocabulary, "a", VOCABULARY_NORMAL, -1);
    } else {
        init_merging(&vocabulary);
    }
    tokenizer = vocabulary_require(&vocabulary); /* good before it is spoilt */
    tokenizer_destroy(&tokenizer);
    spoil->spoil(&vocabulary);
    ck_assert_int_eq(vocabulary_load(&vocabulary, &tokenizer), ST_INVALID);
    ck_assert_ptr_null(tokenizer);
    ck_assert_ptr_nonnull(strstr(status_detail(), "vocabulary"));
    for (size_t i = 0; i < 3 && spoil->words[i] != NULL; i++) {
        ck_assert_msg(strstr(status_detail(), spoil->words[i]) != NULL, "\"%s\" lacks \"%s\"",
                      status_detail(), spoil->words[i]);
    }
}
END_TEST

START_TEST(a_file_without_a_vocabulary_says_which_key_is_missing)
{
    struct gguf_writer writer = {0};
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;

    gguf_write_key_string(&writer, "general.architecture", "llama");
    ck_assert_int_eq(gguf_write_finish(&writer), ST_OK);
    ck_assert_int_eq(gguf_open_bytes("bare", writer.bytes, writer.length, &gguf), ST_OK);
    ck_assert_int_eq(tokenizer_new(gguf, &tokenizer), ST_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(status_detail(), "tokenizer.ggml.model"));
    gguf_close(&gguf);
    gguf_write_deinit(&writer);
}
END_TEST

START_TEST(a_token_may_give_as_much_as_the_detokeniser_holds)
{
    struct vocabulary vocabulary;
    struct detokenizer state = {0};
    char out[DETOKENIZER_OUT_MAX];

    init_merging(&vocabulary);
    memset(longest, 'x',
           sizeof(longest) - 1); /* 1020: an unfinished sequence before takes up to 3 */
    uint32_t id = vocabulary_add(&vocabulary, longest, VOCABULARY_USER_DEFINED, 0);
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    ck_assert_uint_eq(detokenizer_push(tokenizer, &state, 0xF0, out), 0);
    ck_assert_uint_eq(detokenizer_push(tokenizer, &state, id, out), 3 + 1020);
    tokenizer_destroy(&tokenizer);
}
END_TEST

START_TEST(without_types_only_start_and_end_are_control_tokens)
{
    struct vocabulary vocabulary;

    init_merging(&vocabulary);
    vocabulary.type_count = 0;
    struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
    ck_assert(tokenizer_is_control(tokenizer, 257) && !tokenizer_is_control(tokenizer, 256));
    ck_assert(tokenizer_is_end(tokenizer, 257));
    ck_assert(!tokenizer_adds_bos(tokenizer));
    tokenizer_destroy(&tokenizer);
}
END_TEST

START_TEST(what_the_file_leaves_open_depends_on_the_kind)
{
    struct vocabulary vocabulary;
    struct tokenizer *tokenizer;
    size_t length;

    init_merging(&vocabulary);
    vocabulary.pre = "llama-bpe";
    vocabulary.chat_template = "{{ x }}";
    tokenizer = vocabulary_require(&vocabulary);
    ck_assert(tokenizer_adds_bos(tokenizer));
    ck_assert_uint_eq(tokenizer_bos(tokenizer), 257);
    ck_assert(memcmp(tokenizer_chat_template(tokenizer, &length), "{{ x }}", 7) == 0);
    ck_assert_uint_eq(length, 7);
    tokenizer_destroy(&tokenizer);
    vocabulary.bos = -1; /* nothing to add */
    vocabulary.chat_template = NULL;
    tokenizer = vocabulary_require(&vocabulary);
    ck_assert(!tokenizer_adds_bos(tokenizer));
    ck_assert_uint_eq(tokenizer_bos(tokenizer), TOKENIZER_NONE);
    ck_assert_ptr_null(tokenizer_chat_template(tokenizer, &length));
    tokenizer_destroy(&tokenizer);
}
END_TEST

START_TEST(each_part_of_a_vocabulary_is_in_its_fingerprint)
{
    uint8_t fingerprints[6][32];

    for (int change = 0; change < 6; change++) {
        struct vocabulary vocabulary;

        init_merging(&vocabulary);
        vocabulary_add_merge(&vocabulary, "b c", "bc");
        if (change == 1) {
            const char *first = vocabulary.merges[0];

            vocabulary.merges[0] = vocabulary.merges[1];
            vocabulary.merges[1] = first;
        }
        vocabulary.pre = change == 2 ? "gpt-2" : vocabulary.pre;
        vocabulary.types['x'] = change == 3 ? VOCABULARY_UNUSED : VOCABULARY_NORMAL;
        vocabulary.adds_bos = change == 4;
        vocabulary.tokens[257] = change == 5 ? "<|END|>" : "<|end|>";
        struct tokenizer *tokenizer = vocabulary_require(&vocabulary);
        tokenizer_fingerprint(tokenizer, fingerprints[change]);
        for (int other = 0; other < change; other++) {
            ck_assert(memcmp(fingerprints[other], fingerprints[change], 32) != 0);
        }
        tokenizer_destroy(&tokenizer);
    }
}
END_TEST

START_TEST(the_byte_tokenizer_has_a_byte_an_id_and_two_control_tokens)
{
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = NULL;
    const uint32_t *ids;
    size_t count;

    ck_assert_int_eq(tokenizer_new_bytes(257, &tokenizer), ST_INVALID);
    ck_assert_int_eq(tokenizer_new_bytes(MODEL_VOCAB_MAX + 1, &tokenizer), ST_INVALID);
    ck_assert_int_eq(tokenizer_new_bytes(258, &tokenizer), ST_OK);
    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, "h\xC3\xA9", 3, true, &ids, &count),
                     ST_OK);
    ck_assert_uint_eq(count, 3);
    ck_assert(ids[0] == 'h' && ids[1] == 0xC3 && ids[2] == 0xA9);
    ck_assert_uint_eq(tokenizer_bos(tokenizer), 256);
    ck_assert(tokenizer_is_end(tokenizer, 257) && tokenizer_is_control(tokenizer, 256));
    ck_assert_uint_eq(tokenizer_vocab_size(tokenizer), 258);
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
}
END_TEST

/* Loads and encodes once; false if memory ran out, which is the only failure allowed. */
static bool
use_once(struct vocabulary *vocabulary)
{
    static const char text[] =
        "some text, 12 ab \xC3\xA9 e\xCC\x81 <|end|>, and one very long word: "
        "abababababababababababababababababababababababababababababab";
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = NULL;
    const uint32_t *ids;
    size_t count;
    enum status st = vocabulary_load(vocabulary, &tokenizer);

    if (st == ST_OK) {
        st = tokenizer_scratch_new(&scratch);
    }
    if (st == ST_OK) {
        st = tokenizer_encode(tokenizer, scratch, text, sizeof(text) - 1, true, &ids, &count);
    }
    ck_assert_msg(st == ST_OK || st == ST_NO_MEMORY, "%s", status_detail());
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    return st == ST_OK;
}

START_TEST(every_failing_allocation_is_survived)
{
    for (int kind = 0; kind < 3; kind++) {
        struct vocabulary vocabulary;
        uint64_t before = mem_allocations();

        if (kind == 2) {
            vocabulary_init_spm(&vocabulary);
            vocabulary_add(&vocabulary, "a", VOCABULARY_NORMAL, -2);
            vocabulary_add(&vocabulary, "b", VOCABULARY_NORMAL, -2);
            vocabulary_add(&vocabulary, "ab", VOCABULARY_NORMAL, -1);
        } else {
            init_merging(&vocabulary);
            vocabulary.pre = kind == 0 ? "deepseek-llm" : "qwen2";
        }
        ck_assert(use_once(&vocabulary));
        uint64_t needed = mem_allocations() - before;
        uint64_t failed = 0;

        ck_assert_uint_gt(needed, 20);
        for (uint64_t n = 1; n <= needed; n++) {
            mem_fail_at(n);
            failed += !use_once(&vocabulary); /* PCRE2 goes on without its machine code */
            mem_fail_at(0);
        }
        ck_assert_uint_gt(failed, needed / 2);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("tokenizer_load");
    TCase *tcase = tcase_create("tokenizer_load");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, CHECK_TIMEOUT_SECONDS);
    tcase_add_loop_test(tcase, a_bad_vocabulary_is_refused_with_file_key_and_reason, 0,
                        (int)(sizeof(spoils) / sizeof(spoils[0])));
    tcase_add_test(tcase, a_file_without_a_vocabulary_says_which_key_is_missing);
    tcase_add_test(tcase, a_token_may_give_as_much_as_the_detokeniser_holds);
    tcase_add_test(tcase, without_types_only_start_and_end_are_control_tokens);
    tcase_add_test(tcase, what_the_file_leaves_open_depends_on_the_kind);
    tcase_add_test(tcase, each_part_of_a_vocabulary_is_in_its_fingerprint);
    tcase_add_test(tcase, the_byte_tokenizer_has_a_byte_an_id_and_two_control_tokens);
    tcase_add_test(tcase, every_failing_allocation_is_survived);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
