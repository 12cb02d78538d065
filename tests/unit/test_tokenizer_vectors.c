/* SPDX-License-Identifier: Apache-2.0 */
/* The adversarial texts that come with real vocabularies, and the ids their own tokenizers give.
 * Texts are separated by a line "__ggml_vocab_test__"; ids stand one text a line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "model/tokenizer.h"
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
#ifdef KVASIR_VALGRIND
    printf("SKIP: every pattern is interpreted in this build\n");
    return;
#endif
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

int
main(void)
{
    const TTest *const tests[] = {every_vector_of_every_vocabulary_passes,
                                  vectors_pass_where_memory_may_not_be_executable,
                                  different_vocabularies_have_different_fingerprints,
                                  a_vocabulary_knows_its_ends_and_its_start};
    char path[512];

    path_of(vocabularies[0], "", path);
    if (access(path, R_OK) != 0) {
        CHECK_SKIP_PROGRAM("no vocabularies: set KVASIR_SHARED_DATA to shared/data");
    }
    return check_run("tokenizer_vectors", tests, sizeof(tests) / sizeof(tests[0]),
                     CHECK_TIMEOUT_SECONDS);
}
