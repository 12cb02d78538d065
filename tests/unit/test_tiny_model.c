/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/mem.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/tiny_model.h"
#include "model/weights.h"
#include "tests/support/check_main.h"
#include "tests/support/golden.h"

#define NAME "tiny"

static void
fingerprint(const struct tiny_model_config *config, char hex_out[65])
{
    struct gguf *gguf = NULL;
    uint8_t print[32];
    size_t length;
    void *bytes;

    ck_assert_msg(tiny_model_make(config, &bytes, &length) == ST_OK, "%s", status_detail());
    ck_assert_msg(gguf_open_bytes(NAME, bytes, length, &gguf) == ST_OK, "%s", status_detail());
    ck_assert_int_eq(gguf_fingerprint(gguf, print), ST_OK);
    for (size_t i = 0; i < 32; i++) {
        (void)snprintf(hex_out + 2 * i, 3, "%02x", print[i]);
    }
    gguf_close(&gguf);
    mem_free(bytes);
}

START_TEST(the_goldens_were_made_from_the_very_files_that_we_make)
{
    static const char *const names[] = {"tiny_gqa1", "tiny_gqa3", "tiny_gqa4", "tiny_gqa8"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct golden *golden = golden_load(names[i]);
        struct tiny_model_config config = golden_tiny_config(golden);
        char hex[65];

        fingerprint(&config, hex);
        ck_assert_msg(strstr(golden->model, hex) != NULL, "%s: %s is not in \"%s\"", names[i], hex,
                      golden->model);
        ck_assert_uint_ge(golden->n_cases, 10);
        for (uint32_t c = 0; c < golden->n_cases; c++) {
            const struct golden_case *one = &golden->cases[c];

            ck_assert_uint_ge(one->n_rows, 1);
            ck_assert_uint_eq(one->rows[0].n_logits, config.V);
            ck_assert_uint_lt(one->rows[one->n_rows - 1].position, one->prompt.count);
        }
        ck_assert_uint_eq(golden_find(golden, "docs_one_twice")->docs.count, 3);
        golden_destroy(&golden);
    }
}
END_TEST

START_TEST(seeds_and_types_make_different_files_and_a_config_the_same_one)
{
    struct tiny_model_config config = tiny_model_defaults();
    char first[65], again[65], other[65];

    fingerprint(&config, first);
    fingerprint(&config, again);
    ck_assert_str_eq(first, again);
    config.seed++;
    fingerprint(&config, other);
    ck_assert_str_ne(first, other);
}
END_TEST

START_TEST(every_vocabulary_size_has_unique_tokens_and_merges_of_known_ones)
{
    static const uint32_t sizes[] = {TINY_MODEL_VOCAB_MIN, TINY_MODEL_VOCAB_MIN + 1, 512, 1000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct tiny_model_config config = tiny_model_defaults();
        struct gguf_string *tokens = mem_zalloc(sizes[i], sizeof(*tokens));
        struct gguf *gguf = NULL;
        size_t length, n_merges;
        void *bytes;

        config.V = sizes[i];
        ck_assert_int_eq(tiny_model_make(&config, &bytes, &length), ST_OK);
        ck_assert_int_eq(gguf_open_bytes(NAME, bytes, length, &gguf), ST_OK);
        ck_assert_int_eq(gguf_array_strings(gguf, "tokenizer.ggml.tokens", tokens, sizes[i]),
                         ST_OK);
        for (uint32_t a = 0; a < sizes[i]; a++) {
            bool is_unique = tokens[a].length > 0;

            for (uint32_t b = 0; b < a; b++) {
                is_unique &= tokens[a].length != tokens[b].length
                             || memcmp(tokens[a].bytes, tokens[b].bytes, tokens[a].length) != 0;
            }
            ck_assert_msg(is_unique, "token %u of %u", a, sizes[i]);
        }
        ck_assert_int_eq(gguf_array_count(gguf, "tokenizer.ggml.merges", &n_merges), ST_OK);
        ck_assert_uint_eq(n_merges, sizes[i] < 512 ? sizes[i] - TINY_MODEL_VOCAB_MIN : 253);
        gguf_close(&gguf);
        mem_free(bytes);
        mem_free(tokens);
    }
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused)
{
    const struct tiny_model_config good = tiny_model_defaults();
    struct tiny_model_config bad[8] = {good, good, good, good, good, good, good, good};
    void *bytes;
    size_t length;

    bad[0].L = 0;
    bad[1].C = 100;
    bad[2].F = 16384;
    bad[3].Hkv = 3;
    bad[4].Hkv = 8;
    bad[5].D = 63;
    bad[6].V = TINY_MODEL_VOCAB_MIN - 1;
    bad[7].context_max = 0;
    for (size_t i = 0; i < 8; i++) {
        ck_assert_int_eq(tiny_model_make(&bad[i], &bytes, &length), ST_INVALID);
        ck_assert_ptr_nonnull(strstr(status_detail(), "not a multiple of"));
    }
}
END_TEST

START_TEST(a_lack_of_memory_at_any_point_is_reported)
{
    struct tiny_model_config config = tiny_model_defaults();
    enum status st = ST_NO_MEMORY;
    void *bytes = NULL;
    size_t length;

    config.V = TINY_MODEL_VOCAB_MIN;
    for (uint64_t n = 1; st != ST_OK; n++) {
        mem_fail_at(n);
        st = tiny_model_make(&config, &bytes, &length);
        mem_fail_at(0);
        ck_assert(st == ST_OK || (st == ST_NO_MEMORY && bytes == NULL));
        ck_assert_uint_lt(n, 1000);
    }
    mem_free(bytes);
}
END_TEST

CHECK_MAIN("tiny_model", the_goldens_were_made_from_the_very_files_that_we_make,
           seeds_and_types_make_different_files_and_a_config_the_same_one,
           every_vocabulary_size_has_unique_tokens_and_merges_of_known_ones,
           sizes_that_cannot_be_are_refused, a_lack_of_memory_at_any_point_is_reported)
