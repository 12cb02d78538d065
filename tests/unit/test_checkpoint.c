/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "model/checkpoint.h"
#include "model/file_map.h"
#include "model/tiny_model.h"
#include "tests/support/check_main.h"
#include "tests/support/hf_dir.h"

static const char *const sharded_files[] = {
    "config.json",
    "generation_config.json",
    "model-00001-of-00004.safetensors",
    "model-00002-of-00004.safetensors",
    "model-00003-of-00004.safetensors",
    "model-00004-of-00004.safetensors",
    "model.safetensors.index.json",
};

/* The directory that transformers wrote, with a tokenizer. */
static struct hf_dir
make_sharded(void)
{
    struct hf_dir dir = hf_dir_new();

    for (size_t i = 0; i < sizeof(sharded_files) / sizeof(sharded_files[0]); i++) {
        char source[128];

        (void)snprintf(source, sizeof(source), "hf_sharded/%s", sharded_files[i]);
        hf_dir_copy(&dir, sharded_files[i], source);
    }
    hf_dir_copy(&dir, "tokenizer.json", "tokenizers/llama3.json");
    return dir;
}

static struct checkpoint *
require(const char *path)
{
    struct checkpoint *checkpoint = NULL;

    ck_assert_msg(checkpoint_open(path, &checkpoint) == ST_OK, "%s", status_detail());
    ck_assert_str_eq(checkpoint_path(checkpoint), path);
    return checkpoint;
}

static void
expect_refusal(const struct hf_dir *dir, const char *reason)
{
    struct checkpoint *checkpoint = NULL;

    ck_assert_int_eq(checkpoint_open(dir->path, &checkpoint), ST_INVALID);
    ck_assert_ptr_null(checkpoint);
    ck_assert_msg(strncmp(status_detail(), dir->path, strlen(dir->path)) == 0
                      && strstr(status_detail(), reason) != NULL,
                  "got \"%s\", not \"%s\"", status_detail(), reason);
}

static void
fingerprint_of(const char *path, uint8_t out[32])
{
    struct checkpoint *checkpoint = require(path);

    ck_assert_int_eq(checkpoint_fingerprint(checkpoint, out), ST_OK);
    checkpoint_close(&checkpoint);
}

/* Puts `to` for the first `from` in a file of the directory. */
static void
change(const struct hf_dir *dir, const char *name, const char *from, const char *to)
{
    char source[128], text[8192];
    size_t length;

    (void)snprintf(source, sizeof(source), "hf_sharded/%s", name);
    char *golden = hf_golden_bytes(source, &length);
    char *at = strstr(golden, from);
    ck_assert_ptr_nonnull(at);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - golden), golden, to,
                   at + strlen(from));
    hf_dir_put(dir, name, text);
    free(golden);
}

static void
expect_matrix(const uint8_t *got, const char *name, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        float value;

        memcpy(&value, got + i * sizeof(value), sizeof(value));
        ck_assert_msg(value == hf_matrix_value(name, i), "%s[%llu]", name, (unsigned long long)i);
    }
}

START_TEST(a_directory_of_several_files_gives_config_tokenizer_and_weights)
{
    struct hf_dir dir = make_sharded();
    struct checkpoint *checkpoint = require(dir.path);
    const struct model_config *config = checkpoint_config(checkpoint);
    struct weights_plan plan;
    uint64_t seed;

    ck_assert(config->L == 2 && config->C == 8 && config->H == 1 && config->D == 64);
    ck_assert_uint_eq(tokenizer_vocab_size(checkpoint_tokenizer(checkpoint)), config->V);
    ck_assert(tokenizer_is_end(checkpoint_tokenizer(checkpoint), 2)); /* generation_config.json */
    ck_assert(!checkpoint_is_dummy(checkpoint, &seed));
    ck_assert_int_eq(weights_plan(config, WEIGHT_F32, &plan), ST_OK);
    uint8_t *memory = calloc(1, plan.bytes);
    ck_assert_msg(checkpoint_load_weights(checkpoint, &plan, memory, NULL, NULL) == ST_OK, "%s",
                  status_detail());
    const uint8_t *qkv = memory + weights_offset(&plan, WEIGHT_QKV, 1);
    const uint8_t *gate_up = memory + weights_offset(&plan, WEIGHT_GATE_UP, 0);
    expect_matrix(qkv, "model.layers.1.self_attn.q_proj.weight", 512);
    expect_matrix(qkv + 4 * 512, "model.layers.1.self_attn.k_proj.weight", 512);
    expect_matrix(qkv + 4 * 1024, "model.layers.1.self_attn.v_proj.weight", 512);
    expect_matrix(gate_up + 4 * 64, "model.layers.0.mlp.up_proj.weight", 64);
    expect_matrix(memory + weights_offset(&plan, WEIGHT_OUTPUT, 0), "lm_head.weight", 352 * 8);
    free(memory);
    checkpoint_close(&checkpoint);
    checkpoint_close(&checkpoint);
    hf_dir_remove(&dir);
}
END_TEST

START_TEST(every_file_is_in_the_fingerprint_and_the_path_is_not)
{
    struct hf_dir one = make_sharded(), two = make_sharded();
    uint8_t first[32], again[32], changed[5][32];
    size_t n = 0;

    fingerprint_of(one.path, first);
    fingerprint_of(two.path, again);
    ck_assert_mem_eq(first, again, 32);
    change(&two, "config.json", "1e-06", "1e-05");
    fingerprint_of(two.path, changed[n++]);
    hf_dir_put(&two, "tokenizer_config.json", "{}");
    fingerprint_of(two.path, changed[n++]);
    hf_dir_put(&two, "chat_template.jinja", "x");
    fingerprint_of(two.path, changed[n++]);
    hf_dir_copy(&two, "tokenizer.json", "tokenizers/smollm.json");
    fingerprint_of(two.path, changed[n++]);
    size_t length;
    char *bytes = hf_golden_bytes("hf_sharded/model-00003-of-00004.safetensors", &length);
    bytes[length - 1] ^= 1;
    hf_dir_put_bytes(&two, "model-00003-of-00004.safetensors", bytes, length);
    fingerprint_of(two.path, changed[n++]);
    for (size_t i = 0; i < n; i++) {
        ck_assert_mem_ne(changed[i], first, 32);
        for (size_t k = 0; k < i; k++) {
            ck_assert_mem_ne(changed[i], changed[k], 32);
        }
    }
    free(bytes);
    hf_dir_remove(&one);
    hf_dir_remove(&two);
}
END_TEST

static void
identity_of(const char *path, uint8_t out[32])
{
    struct checkpoint *checkpoint;

    ck_assert_int_eq(checkpoint_open(path, &checkpoint), ST_OK);
    ck_assert_int_eq(checkpoint_identity(checkpoint, out), ST_OK);
    checkpoint_close(&checkpoint);
}

START_TEST(another_opening_of_the_same_files_is_known_by_its_identity)
{
    struct hf_dir one = make_sharded(), two = make_sharded();
    uint8_t first[32], again[32], changed[4][32];
    size_t length, n = 0;

    identity_of(one.path, first);
    identity_of(one.path, again);
    ck_assert_mem_eq(first, again, 32);
    identity_of(two.path, changed[n++]); /* the same bytes in other files */
    char *bytes = hf_golden_bytes("hf_sharded/model-00003-of-00004.safetensors", &length);
    hf_dir_put_bytes(&one, "model-00003-of-00004.safetensors", bytes, length);
    identity_of(one.path, changed[n++]); /* written again */
    change(&one, "config.json", "1e-06", "1e-05");
    identity_of(one.path, changed[n++]);
    hf_dir_put(&one, "chat_template.jinja", "x");
    identity_of(one.path, changed[n++]);
    for (size_t i = 0; i < n; i++) {
        ck_assert_mem_ne(changed[i], first, 32);
    }
    free(bytes);
    hf_dir_remove(&one);
    hf_dir_remove(&two);
}
END_TEST

/* A long file's leaves are hashed by threads; what comes out does not depend on how many. */
START_TEST(a_long_file_is_hashed_in_leaves)
{
    const size_t length = 2 * FILE_MAP_LEAF + 5;
    struct {
        uint64_t length;
        uint8_t leaves[3][32];
    } root = {length, {{0}}};
    uint8_t *bytes = calloc(length, 1);
    uint8_t got[32], want[32];

    ck_assert_ptr_nonnull(bytes);
    bytes[0] = 1;
    bytes[FILE_MAP_LEAF - 1] = 2;
    bytes[2 * FILE_MAP_LEAF] = 3;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(file_map_digest("leaf", bytes + i * FILE_MAP_LEAF,
                                         i < 2 ? FILE_MAP_LEAF : 5, root.leaves[i]),
                         ST_OK);
    }
    ck_assert_int_eq(file_map_digest("root", &root, sizeof(root), want), ST_OK);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(file_map_digest("file", bytes, length, got), ST_OK);
        ck_assert_mem_eq(got, want, 32);
    }
    free(bytes);
}
END_TEST

START_TEST(an_index_that_is_wrong_is_refused)
{
    static const char index[] = "model.safetensors.index.json";
    static const struct {
        const char *from, *to, *reason;
    } cases[] = {
        {"\"weight_map\"", "\"map\"", "key weight_map is missing"},
        {"\"model-00004-of-00004.safetensors\"", "\"../evil.safetensors\"",
         "\"../evil.safetensors\" is no name of a safetensors file"},
        {"\"model-00004-of-00004.safetensors\"", "\"model.bin\"", "\"model.bin\" is no name of"},
        {"\"model-00004-of-00004.safetensors\"", "7", "\"\" is no name of"},
        {"\"model-00004-of-00004.safetensors\"", "\"absent.safetensors\"",
         "absent.safetensors: cannot open"},
        {"\"lm_head.weight\": \"model-00004", "\"lm_head.weight\": \"model-00003",
         "key weight_map.lm_head.weight: the tensor is not in model-00003-of-00004.safetensors"},
        {"\"model.layers.0.mlp.up_proj.weight\": \"model-00002-of-00004.safetensors\",", "",
         "names 20 tensors, but its files have "},
        {"\"lm_head.weight\"", "\"lm_head.bias\"",
         "key weight_map.lm_head.bias: the tensor is not"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct hf_dir dir = make_sharded();

        change(&dir, index, cases[i].from, cases[i].to);
        expect_refusal(&dir, cases[i].reason);
        hf_dir_remove(&dir);
    }
    struct hf_dir dir = make_sharded();
    hf_dir_copy(&dir, "model.safetensors", "hf_sharded/model-00001-of-00004.safetensors");
    expect_refusal(&dir, "model.safetensors: lies beside an index that does not name it");
    hf_dir_remove(&dir);
}
END_TEST

START_TEST(a_file_that_is_missing_or_broken_is_named)
{
    static const char *const required[] = {"config.json", "tokenizer.json",
                                           "model-00002-of-00004.safetensors"};
    struct hf_dir dir = make_sharded();
    char path[256];

    for (size_t i = 0; i < 3; i++) {
        char reason[128];

        (void)snprintf(path, sizeof(path), "%s/%s", dir.path, required[i]);
        (void)snprintf(reason, sizeof(reason), "%s: cannot open: No such file", required[i]);
        ck_assert_int_eq(unlink(path), 0);
        expect_refusal(&dir, reason);
        hf_dir_put(&dir, required[i], "{");
        expect_refusal(&dir, required[i]);
        hf_dir_remove(&dir);
        dir = make_sharded();
    }
    change(&dir, "config.json", "\"mlp_bias\": false", "\"mlp_bias\": true");
    expect_refusal(&dir, "config.json: key mlp_bias is true: not served");
    change(&dir, "config.json", "\"vocab_size\": 352", "\"vocab_size\": 300");
    expect_refusal(&dir, "tokenizer.json: key ");
    hf_dir_put(&dir, "config.json", "{}");
    expect_refusal(&dir, "config.json: key architectures is missing");
    hf_dir_remove(&dir);
}
END_TEST

/* Loads what the directory holds into nowhere that matters. */
static enum status
load(const struct hf_dir *dir)
{
    struct checkpoint *checkpoint = require(dir->path);
    struct weights_plan plan;

    ck_assert_int_eq(weights_plan(checkpoint_config(checkpoint), WEIGHT_BF16, &plan), ST_OK);
    void *memory = calloc(1, plan.bytes);
    enum status st = checkpoint_load_weights(checkpoint, &plan, memory, NULL, NULL);
    free(memory);
    checkpoint_close(&checkpoint);
    return st;
}

START_TEST(weights_that_do_not_fit_the_config_are_refused)
{
    struct hf_dir dir = make_sharded();

    ck_assert_int_eq(load(&dir), ST_OK);
    change(&dir, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    ck_assert_int_eq(load(&dir), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "tensor model.layers.1."));
    ck_assert_ptr_nonnull(strstr(status_detail(), "is not part of a model that is served"));
    change(&dir, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    ck_assert_int_eq(load(&dir), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "input_layernorm.weight is missing"));
    change(&dir, "config.json", "\"intermediate_size\": 8", "\"intermediate_size\": 16");
    ck_assert_int_eq(load(&dir), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "gate_proj.weight is [8, 8], not 16 rows of 8"));
    /* Tied, but the file has an output matrix that is another. */
    change(&dir, "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    ck_assert_int_eq(load(&dir), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "tensor lm_head.weight differs"));
    hf_dir_remove(&dir);
}
END_TEST

START_TEST(a_gguf_has_the_same_face)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct checkpoint *in_memory = NULL;
    uint8_t digests[2][32];
    char path[64];
    size_t length;
    void *bytes;

    (void)snprintf(path, sizeof(path), "test_checkpoint_%ld.gguf", (long)getpid());
    ck_assert_int_eq(tiny_model_write(&tiny, path), ST_OK);
    ck_assert_int_eq(tiny_model_make(&tiny, &bytes, &length), ST_OK);
    struct checkpoint *mapped = require(path);
    ck_assert_int_eq(checkpoint_open_bytes("tiny", bytes, length, &in_memory), ST_OK);
    ck_assert_int_eq(checkpoint_fingerprint(mapped, digests[0]), ST_OK);
    ck_assert_int_eq(checkpoint_fingerprint(in_memory, digests[1]), ST_OK);
    ck_assert_mem_eq(digests[0], digests[1], 32);
    ck_assert_uint_eq(checkpoint_config(mapped)->V, 512);
    ck_assert_uint_ne(tokenizer_find(checkpoint_tokenizer(mapped), "<|im_end|>"), TOKENIZER_NONE);
    checkpoint_close(&mapped);
    checkpoint_close(&in_memory);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(checkpoint_open(path, &mapped), ST_SYSTEM);
    mem_free(bytes);
}
END_TEST

START_TEST(a_dummy_is_its_shape_and_seed)
{
    static const char *const bad[] = {"dummy:",
                                      "dummy:llama",
                                      "dummy:tiny:",
                                      "dummy:tiny:x",
                                      "dummy:tiny:1x",
                                      "dummy:tiny:-1",
                                      "dummy:tiny:99999999999999999999"};
    uint8_t plain[32], first[32], second[32], other[32];
    struct checkpoint *checkpoint = require("dummy:llama-3.1-8b:5");
    uint64_t seed = 0;

    ck_assert(checkpoint_is_dummy(checkpoint, &seed) && seed == 5);
    ck_assert_uint_eq(checkpoint_config(checkpoint)->V, 128256);
    ck_assert_uint_eq(tokenizer_vocab_size(checkpoint_tokenizer(checkpoint)), 128256);
    checkpoint_close(&checkpoint);
    fingerprint_of("dummy:tiny", plain);
    fingerprint_of("dummy:tiny:1", first);
    fingerprint_of("dummy:tiny:2", second);
    fingerprint_of("dummy:smollm2-135m:1", other);
    ck_assert_mem_eq(plain, first, 32);
    ck_assert_mem_ne(first, second, 32);
    ck_assert_mem_ne(first, other, 32);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(checkpoint_open(bad[i], &checkpoint) == ST_INVALID, "%s", bad[i]);
    }
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    struct hf_dir dir = make_sharded();
    uint64_t before = mem_allocations();
    struct checkpoint *checkpoint = require(dir.path);
    uint64_t needed = mem_allocations() - before;

    checkpoint_close(&checkpoint);
    for (uint64_t n = 1; n <= needed; n++) {
        mem_fail_at(n);
        enum status st = checkpoint_open(dir.path, &checkpoint);
        mem_fail_at(0);
        ck_assert_msg(st == ST_NO_MEMORY || st == ST_OK, "%s", status_detail());
        checkpoint_close(&checkpoint);
    }
    hf_dir_remove(&dir);
}
END_TEST

CHECK_MAIN("checkpoint", a_directory_of_several_files_gives_config_tokenizer_and_weights,
           every_file_is_in_the_fingerprint_and_the_path_is_not,
           another_opening_of_the_same_files_is_known_by_its_identity,
           a_long_file_is_hashed_in_leaves, an_index_that_is_wrong_is_refused,
           a_file_that_is_missing_or_broken_is_named,
           weights_that_do_not_fit_the_config_are_refused, a_gguf_has_the_same_face,
           a_dummy_is_its_shape_and_seed, every_failing_allocation_is_survived)
