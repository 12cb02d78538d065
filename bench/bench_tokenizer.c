/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tokenizer [VOCABULARY.gguf...] - MB/s of encoding: English in texts of a document's size,
 * and one word without end.  Without arguments, the vocabularies of the shared data. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "model/tokenizer.h"

#define DOCUMENT_BYTES 4000u
#define RUNS           7

static int
compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

/* Encodes the text in documents that end at a space; returns seconds, or dies. */
static double
encode_all(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch, const char *text,
           size_t length, size_t document_bytes, size_t *ids_out)
{
    uint64_t start_us = clock_now_us();

    *ids_out = 0;
    for (size_t at = 0; at < length;) {
        size_t bytes = length - at < document_bytes ? length - at : document_bytes;
        const uint32_t *ids;
        size_t count;

        while (bytes > 1 && at + bytes < length && text[at + bytes] != ' ') {
            bytes--;
        }
        if (tokenizer_encode(tokenizer, scratch, text + at, bytes, false, &ids, &count) != ST_OK) {
            fprintf(stderr, "bench_tokenizer: %s\n", status_detail());
            exit(1);
        }
        *ids_out += count;
        at += bytes;
    }
    return (double)(clock_now_us() - start_us) / 1e6;
}

static void
measure(const char *name, const char *what, const struct tokenizer *tokenizer,
        struct tokenizer_scratch *scratch, const char *text, size_t length, size_t document_bytes)
{
    double seconds[RUNS];
    size_t ids;

    (void)encode_all(tokenizer, scratch, text, length, document_bytes, &ids);
    for (size_t i = 0; i < RUNS; i++) {
        seconds[i] = encode_all(tokenizer, scratch, text, length, document_bytes, &ids);
    }
    qsort(seconds, RUNS, sizeof(seconds[0]), compare);
    double rate = (double)length / 1e6 / seconds[RUNS / 2];
    printf("%-40s %-10s %8zu bytes %8zu ids  median %7.1f ms (%.1f to %.1f)  %6.1f MB/s\n", name,
           what, length, ids, seconds[RUNS / 2] * 1e3, seconds[0] * 1e3, seconds[RUNS - 1] * 1e3,
           rate);
    printf(
        "{\"bench\":\"tokenizer\",\"vocabulary\":\"%s\",\"text\":\"%s\",\"bytes\":%zu,\"ids\":%zu,"
        "\"mb_per_s\":%.2f}\n",
        name, what, length, ids, rate);
}

static void
bench_vocabulary(const char *path, const char *english, size_t english_length)
{
    const size_t word_length = 1u << 20;
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    char *word = malloc(word_length);
    struct tokenizer_scratch *scratch = NULL;
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf = NULL;
    uint64_t start_us = clock_now_us();

    if (word == NULL || gguf_open(path, &gguf) != ST_OK || tokenizer_new(gguf, &tokenizer) != ST_OK
        || tokenizer_scratch_new(&scratch) != ST_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", status_detail());
        exit(1);
    }
    printf("%-40s loaded in %.0f ms\n", name, (double)(clock_now_us() - start_us) / 1e3);
    for (size_t i = 0; i < word_length; i++) {
        word[i] = (char)('a' + i * i * 7 % 26);
    }
    measure(name, "english", tokenizer, scratch, english, english_length, DOCUMENT_BYTES);
    measure(name, "one_word", tokenizer, scratch, word, word_length, word_length);
    free(word);
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    gguf_close(&gguf);
}

int
main(int argc, char **argv)
{
    static const char *const known[] = {"gpt-2", "starcoder", "deepseek-llm", "llama-spm"};
    const char *folder = getenv("KVASIR_SHARED_DATA");
    const size_t room = 4u << 20;
    char *english = malloc(room);
    char path[512];

    folder = folder == NULL ? "../shared/data" : folder;
    snprintf(path, sizeof(path), "%s/2wikimultihopqa_corpus.json", folder);
    FILE *file = fopen(path, "rb");
    if (file == NULL || english == NULL) {
        printf("SKIP: no %s: set KVASIR_SHARED_DATA\n", path);
        free(english);
        return 0;
    }
    size_t length = fread(english, 1, room, file);
    fclose(file);
    for (int i = 1; i < argc; i++) {
        bench_vocabulary(argv[i], english, length);
    }
    for (size_t i = 0; argc == 1 && i < sizeof(known) / sizeof(known[0]); i++) {
        snprintf(path, sizeof(path), "%s/ggml-vocab-%s.gguf", folder, known[i]);
        bench_vocabulary(path, english, length);
    }
    free(english);
    return 0;
}
