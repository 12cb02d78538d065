/* SPDX-License-Identifier: Apache-2.0 */
/* The adversarial texts that come with real vocabularies, and the ids their own tokenizers give.
 * Texts are separated by a line "__ggml_vocab_test__"; ids stand one text a line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "model/template.h"
#include "tests/support/check_main.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static const char *const vocabularies[] = {
    "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-spm", "phi-3", "starcoder",
};

static const char *
data_folder(void)
{
    const char *folder = getenv("KVASIR_SHARED_DATA");

    return folder == NULL ? "../shared/data" : folder;
}

static void
path_of(const char *vocabulary, const char *suffix, char path[static 512])
{
    snprintf(path, 512, "%s/ggml-vocab-%s.gguf%s", data_folder(), vocabulary, suffix);
}

static char *
read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 65536);

    ck_assert_msg(file != NULL && text != NULL, "%s", path);
    ck_assert_uint_lt(fread(text, 1, 65535, file), 65535);
    fclose(file);
    return text;
}

static struct tokenizer *
open_vocabulary(const char *vocabulary)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf = NULL;
    char path[512];

    path_of(vocabulary, "", path);
    ck_assert_msg(gguf_open(path, &gguf) == ST_OK, "%s", status_detail());
    ck_assert_msg(tokenizer_new(gguf, &tokenizer) == ST_OK, "%s", status_detail());
    gguf_close(&gguf);
    return tokenizer;
}

/* Compares ids with a line of numbers; leaves *line behind it. */
static void
check_line(const char *vocabulary, size_t number, const uint32_t *ids, size_t count, char **line)
{
    size_t seen = 0;

    while (**line != '\n' && **line != '\0') {
        if (**line == ' ') {
            (*line)++;
            continue;
        }
        unsigned long wanted = strtoul(*line, line, 10);
        ck_assert_msg(seen < count, "%s: text %zu: %zu ids, more wanted", vocabulary, number,
                      count);
        ck_assert_msg(ids[seen] == wanted, "%s: text %zu: id %zu is %u, not %lu", vocabulary,
                      number, seen, ids[seen], wanted);
        seen++;
    }
    ck_assert_msg(seen == count, "%s: text %zu: %zu ids, not %zu", vocabulary, number, count, seen);
    *line += **line == '\n';
}

/* Passes a vocabulary's vectors; returns how many there were. */
static size_t
check_vectors(const char *vocabulary)
{
    struct tokenizer *tokenizer = open_vocabulary(vocabulary);
    struct tokenizer_scratch *scratch = NULL;
    char path[512];

    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    path_of(vocabulary, ".inp", path);
    char *texts = read_text(path);
    path_of(vocabulary, ".out", path);
    char *lines = read_text(path);
    char *line = lines;
    size_t number = 0;

    for (char *text = texts; text != NULL; number++) {
        char *end = strstr(text, SEPARATOR);
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        const uint32_t *ids;
        size_t count;

        if (end == NULL && length == 0) {
            break;
        }
        ck_assert_int_eq(tokenizer_encode(tokenizer, scratch, text, length, false, &ids, &count),
                         ST_OK);
        check_line(vocabulary, number, ids, count, &line);
        text = end == NULL ? NULL : end + strlen(SEPARATOR);
    }
    ck_assert_msg(*line == '\0', "%s: lines left over", vocabulary);
    free(texts);
    free(lines);
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    return number;
}

START_TEST(every_vector_of_every_vocabulary_passes)
{
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
        size_t count = check_vectors(vocabularies[i]);

        printf("%s: %zu vectors\n", vocabularies[i], count);
        ck_assert_uint_gt(count, 40);
    }
}
END_TEST

/* systemd's MemoryDenyWriteExecute=yes; each test is a process of its own, so no other is hurt. */
START_TEST(vectors_pass_where_memory_may_not_be_executable)
{
    if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0L, 0L, 0L) != 0) {
        printf("SKIP: this kernel cannot refuse executable memory (PR_SET_MDWE)\n");
        return;
    }
    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
        ck_assert_uint_gt(check_vectors(vocabularies[i]), 40);
    }
}
END_TEST

START_TEST(different_vocabularies_have_different_fingerprints)
{
    uint8_t fingerprints[sizeof(vocabularies) / sizeof(vocabularies[0])][32];

    for (size_t i = 0; i < sizeof(vocabularies) / sizeof(vocabularies[0]); i++) {
        for (int again = 0; again < 2; again++) {
            struct tokenizer *tokenizer = open_vocabulary(vocabularies[i]);
            uint8_t fingerprint[32];

            tokenizer_fingerprint(tokenizer, fingerprint);
            ck_assert(again == 0 || memcmp(fingerprint, fingerprints[i], 32) == 0);
            memcpy(fingerprints[i], fingerprint, 32);
            tokenizer_destroy(&tokenizer);
        }
        for (size_t j = 0; j < i; j++) {
            ck_assert(memcmp(fingerprints[i], fingerprints[j], 32) != 0);
        }
    }
}
END_TEST

START_TEST(a_vocabulary_knows_its_ends_and_its_start)
{
    static const struct {
        const char *vocabulary;
        uint32_t bos, end;
        bool adds_bos;
    } cases[] = {
        {"deepseek-coder", 32013, 32014, true},
        {"deepseek-llm", 100000, 100001, true},
        {"falcon", 11, 11, false},
        {"gpt-2", 50256, 50256, false},
        {"llama-spm", 1, 2, true},
        {"phi-3", 1, 32007, true},
        {"starcoder", 0, 0, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tokenizer *tokenizer = open_vocabulary(cases[i].vocabulary);

        ck_assert_uint_eq(tokenizer_bos(tokenizer), cases[i].bos);
        ck_assert(tokenizer_adds_bos(tokenizer) == cases[i].adds_bos);
        ck_assert(tokenizer_is_end(tokenizer, cases[i].end));
        ck_assert(!tokenizer_is_end(tokenizer, 300));
        ck_assert(!tokenizer_is_end(tokenizer, UINT32_MAX));
        tokenizer_destroy(&tokenizer);
    }
}
END_TEST

struct prompt {
    uint32_t ids[256];
    size_t count;
};

static enum status
keep_segment(void *arg, enum template_segment_kind kind, size_t document_index, const uint32_t *ids,
             size_t count)
{
    struct prompt *prompt = arg;

    (void)kind;
    (void)document_index;
    ck_assert_uint_le(prompt->count + count, sizeof(prompt->ids) / sizeof(prompt->ids[0]));
    memcpy(prompt->ids + prompt->count, ids, count * sizeof(ids[0]));
    prompt->count += count;
    return ST_OK;
}

/* NULL if the real checkpoint is not on this machine. */
static struct gguf *
open_smollm2(void)
{
    const char *given = getenv("KVASIR_TEST_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    struct gguf *gguf = NULL;
    char path[512];

    if (given != NULL) {
        snprintf(path, sizeof(path), "%s", given);
    } else {
        snprintf(path, sizeof(path), "%s%s/kvasir/SmolLM2-135M-Instruct.Q4_1.gguf",
                 cache != NULL  ? cache
                 : home != NULL ? home
                                : "",
                 cache != NULL ? "" : "/.cache");
    }
    if (access(path, R_OK) != 0) {
        printf("SKIP: no SmolLM2-135M-Instruct.Q4_1.gguf (KVASIR_TEST_MODEL or the cache)\n");
        return NULL;
    }
    ck_assert_msg(gguf_open(path, &gguf) == ST_OK, "%s", status_detail());
    return gguf;
}

/* Ids from the checkpoint's Jinja and PyPI's tokenizers; see tests/oracle/compare_tokenizers.py. */
START_TEST(smollm2_reads_a_chat_as_its_own_template_has_it)
{
    static const uint32_t wanted[] = {
        1,     9690,  198,  2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,   34519,
        28,    7018,  411,  407,  19712, 8182, 2,    198,  1,     4093, 198,  10576, 4150,
        357,   281,   216,  33,   41,    40,   36,   47,   2,     198,  1,    520,   9531,
        198,   46844, 5443, 30,   2,     198,  1,    4093, 198,   3528, 1209, 42,    37366,
        15107, 116,   243,  47,   198,   2,    198,  1,    520,   9531, 198,
    };
    static const char last[] = "And now: caf\xC3\xA9 \xF0\x9F\xA6\x99?\n";
    const struct template_message chat[] = {{"user", "Who wrote it in 1984?", 21},
                                            {"assistant", "Nobody knows.", 13},
                                            {"user", last, sizeof(last) - 1}};
    struct gguf *gguf = open_smollm2();
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = NULL;
    struct prompt prompt = {.count = 0};
    size_t length;

    if (gguf == NULL) {
        return;
    }
    ck_assert_msg(tokenizer_new(gguf, &tokenizer) == ST_OK, "%s", status_detail());
    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    const char *jinja = tokenizer_chat_template(tokenizer, &length);
    ck_assert_int_eq(template_detect(jinja, length), TEMPLATE_CHATML);
    ck_assert_int_eq(template_render_chat(TEMPLATE_CHATML, tokenizer, scratch, chat, 3, NULL, 0,
                                          keep_segment, &prompt),
                     ST_OK);
    ck_assert_uint_eq(prompt.count, sizeof(wanted) / sizeof(wanted[0]));
    ck_assert_mem_eq(prompt.ids, wanted, sizeof(wanted));
    ck_assert(tokenizer_is_end(tokenizer, 2) && !tokenizer_adds_bos(tokenizer));
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    gguf_close(&gguf);
}
END_TEST

static int
run(void)
{
    Suite *suite = suite_create("tokenizer_vectors");
    TCase *tcase = tcase_create("tokenizer_vectors");
    SRunner *runner = srunner_create(suite);

    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, every_vector_of_every_vocabulary_passes);
    tcase_add_test(tcase, vectors_pass_where_memory_may_not_be_executable);
    tcase_add_test(tcase, different_vocabularies_have_different_fingerprints);
    tcase_add_test(tcase, smollm2_reads_a_chat_as_its_own_template_has_it);
    tcase_add_test(tcase, a_vocabulary_knows_its_ends_and_its_start);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int
main(void)
{
    char path[512];

    path_of(vocabularies[0], "", path);
    if (access(path, R_OK) != 0) {
        CHECK_SKIP_PROGRAM("no vocabularies: set KVASIR_SHARED_DATA to shared/data");
    }
    return run();
}
