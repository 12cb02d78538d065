/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/gguf_write.h"
#include "tests/support/check_main.h"

#define NAME "test.gguf"

/* A config file as a list of keys, so that a test can leave out, change or add one. */
struct key {
    const char *name;
    enum {
        U32,
        F32,
        BOOL,
        TEXT,
        NONE
    } kind;
    double number;
    const char *text;
};

static const struct key whole[] = {
    {"general.architecture", TEXT, 0, "llama"},
    {"llama.block_count", U32, 3, NULL},
    {"llama.context_length", U32, 4096, NULL},
    {"llama.embedding_length", U32, 512, NULL},
    {"llama.feed_forward_length", U32, 1024, NULL},
    {"llama.attention.head_count", U32, 8, NULL},
    {"llama.attention.head_count_kv", U32, 2, NULL},
    {"llama.attention.layer_norm_rms_epsilon", F32, 0.0009765625, NULL},
    {"llama.rope.freq_base", F32, 500000, NULL},
    {"llama.rope.dimension_count", U32, 64, NULL},
    {"llama.vocab_size", U32, 1000, NULL},
};

static void
write_key(struct gguf_writer *w, const struct key *key)
{
    switch (key->kind) {
    case U32: gguf_write_key_u32(w, key->name, (uint32_t)key->number); break;
    case F32: gguf_write_key_f32(w, key->name, (float)key->number); break;
    case BOOL: gguf_write_key_bool(w, key->name, key->number != 0); break;
    case TEXT: gguf_write_key_string(w, key->name, key->text); break;
    case NONE: break;
    }
}

/* Writes all keys, `changes` in place of those of the same name. */
static void
write_keys(struct gguf_writer *w, const struct key *changes, size_t count)
{
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        bool is_changed = false;

        for (size_t c = 0; c < count; c++) {
            is_changed |= strcmp(changes[c].name, whole[i].name) == 0;
        }
        if (!is_changed) {
            write_key(w, &whole[i]);
        }
    }
    for (size_t c = 0; c < count; c++) {
        write_key(w, &changes[c]);
    }
}

static enum status
read_writer(struct gguf_writer *w, struct model_config *config)
{
    struct gguf *gguf = NULL;
    enum status st;

    ck_assert_int_eq(gguf_write_finish(w), ST_OK);
    ck_assert_msg(gguf_open_bytes(NAME, w->bytes, w->length, &gguf) == ST_OK, "%s",
                  status_detail());
    st = model_config_from_gguf(gguf, config);
    gguf_close(&gguf);
    gguf_write_deinit(w);
    return st;
}

static enum status
read_config(const struct key *changes, size_t count, struct model_config *config)
{
    struct gguf_writer w = {0};

    write_keys(&w, changes, count);
    return read_writer(&w, config);
}

START_TEST(all_numbers_come_from_the_file)
{
    struct model_config config;

    ck_assert_msg(read_config(NULL, 0, &config) == ST_OK, "%s", status_detail());
    ck_assert_uint_eq(config.L, 3);
    ck_assert_uint_eq(config.C, 512);
    ck_assert_uint_eq(config.H, 8);
    ck_assert_uint_eq(config.Hkv, 2);
    ck_assert_uint_eq(config.D, 64);
    ck_assert_uint_eq(config.F, 1024);
    ck_assert_uint_eq(config.V, 1000);
    ck_assert_uint_eq(config.context_max, 4096);
    ck_assert_float_eq(config.rms_eps, 0.0009765625f);
    ck_assert_float_eq(config.rope_scale, 1.0f);
    ck_assert(config.has_tied_embeddings);
    ck_assert_double_eq(config.inv_freq[0], 1.0);
    /* 500000^(-1/2) and 500000^(-31/32) */
    ck_assert_double_eq_tol(config.inv_freq[16], 1.4142135623730951e-3, 1e-17);
    ck_assert_double_eq_tol(config.inv_freq[31], 3.0138e-6, 1e-10);
}
END_TEST

START_TEST(what_a_file_may_leave_out_has_its_meaning)
{
    const struct key left_out[] = {{"llama.attention.head_count_kv", NONE, 0, NULL},
                                   {"llama.rope.freq_base", NONE, 0, NULL},
                                   {"llama.rope.dimension_count", NONE, 0, NULL}};
    struct model_config config;

    ck_assert_int_eq(read_config(left_out, 3, &config), ST_OK);
    ck_assert_uint_eq(config.Hkv, 8);
    ck_assert_double_eq_tol(config.inv_freq[16], 0.01, 1e-17); /* base 10000 */
}
END_TEST

START_TEST(a_head_may_be_of_another_size_than_the_width_suggests)
{
    const struct key changes[] = {{"llama.attention.key_length", U32, 128, NULL},
                                  {"llama.attention.value_length", U32, 128, NULL},
                                  {"llama.rope.dimension_count", U32, 128, NULL}};
    struct model_config config;

    ck_assert_int_eq(read_config(changes, 3, &config), ST_OK);
    ck_assert_uint_eq(config.D, 128);
}
END_TEST

START_TEST(linear_scaling_divides_every_frequency)
{
    const struct key now[] = {{"llama.rope.scaling.type", TEXT, 0, "linear"},
                              {"llama.rope.scaling.factor", F32, 4, NULL}};
    const struct key old[] = {{"llama.rope.scale_linear", F32, 4, NULL}};
    const struct key none[] = {{"llama.rope.scaling.type", TEXT, 0, "none"}};
    struct model_config plain, scaled;

    ck_assert_int_eq(read_config(none, 1, &plain), ST_OK);
    ck_assert_int_eq(read_config(now, 2, &scaled), ST_OK);
    for (int i = 0; i < 32; i++) {
        ck_assert_double_eq(scaled.inv_freq[i], plain.inv_freq[i] / 4);
    }
    ck_assert_int_eq(read_config(old, 1, &scaled), ST_OK);
    ck_assert_double_eq(scaled.inv_freq[5], plain.inv_freq[5] / 4);
}
END_TEST

/* Reads a config with a tensor of divisors, all 1 but the last. */
static enum status
read_with_divisors(uint64_t count, float last, struct model_config *config)
{
    struct gguf_writer w = {0};
    float divisors[64];

    for (uint64_t i = 0; i < count; i++) {
        divisors[i] = i + 1 < count ? 1.0f : last;
    }
    write_keys(&w, NULL, 0);
    gguf_write_tensor(&w, "rope_freqs.weight", GGUF_TENSOR_F32, 1, &count, count * sizeof(float));
    gguf_write_data(&w, divisors, count * sizeof(float));
    return read_writer(&w, config);
}

START_TEST(a_tensor_of_divisors_divides_its_frequencies)
{
    struct model_config plain, scaled;

    ck_assert_int_eq(read_config(NULL, 0, &plain), ST_OK);
    ck_assert_int_eq(read_with_divisors(32, 8.0f, &scaled), ST_OK);
    ck_assert_double_eq(scaled.inv_freq[30], plain.inv_freq[30]);
    ck_assert_double_eq(scaled.inv_freq[31], plain.inv_freq[31] / 8);
    ck_assert_int_eq(read_with_divisors(31, 8.0f, &scaled), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": tensor rope_freqs.weight is not F32 [32]");
    ck_assert_int_eq(read_with_divisors(32, 0.0f, &scaled), ST_INVALID);
    ck_assert_int_eq(read_with_divisors(32, NAN, &scaled), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     NAME ": tensor rope_freqs.weight: element 31 is nan, not positive");
}
END_TEST

START_TEST(the_embedding_states_the_vocabulary_and_an_output_matrix_unties_it)
{
    const struct key unsaid[] = {{"llama.vocab_size", NONE, 0, NULL}};
    const uint64_t dims[2] = {512, 7};
    static const float data[512 * 7];
    struct model_config config;
    struct gguf_writer w = {0};

    write_keys(&w, unsaid, 1);
    gguf_write_tensor(&w, "token_embd.weight", GGUF_TENSOR_F32, 2, dims, sizeof(data));
    gguf_write_tensor(&w, "output.weight", GGUF_TENSOR_F32, 2, dims, sizeof(data));
    gguf_write_data(&w, data, sizeof(data));
    gguf_write_data(&w, data, sizeof(data));
    ck_assert_int_eq(read_writer(&w, &config), ST_OK);
    ck_assert_uint_eq(config.V, 7);
    ck_assert(!config.has_tied_embeddings);
    write_keys(&w, NULL, 0);
    gguf_write_tensor(&w, "token_embd.weight", GGUF_TENSOR_F32, 2, dims, sizeof(data));
    gguf_write_data(&w, data, sizeof(data));
    ck_assert_int_eq(read_writer(&w, &config), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     NAME ": key llama.vocab_size is 1000, but token_embd.weight has 7 rows");
}
END_TEST

START_TEST(every_missing_key_is_named)
{
    static const char *const required[] = {
        "general.architecture",      "llama.block_count",
        "llama.context_length",      "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.vocab_size",          "llama.attention.layer_norm_rms_epsilon"};

    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        const struct key left_out = {required[i], NONE, 0, NULL};
        struct model_config config;
        char expected[128];

        (void)snprintf(expected, sizeof(expected), NAME ": key %s is missing", required[i]);
        ck_assert_int_eq(read_config(&left_out, 1, &config), ST_INVALID);
        ck_assert_str_eq(status_detail(), expected);
    }
}
END_TEST

START_TEST(what_is_not_served_is_refused_by_name)
{
    static const struct {
        struct key key;
        const char *reason;
    } cases[] = {
        {{"general.architecture", TEXT, 0, "qwen2"}, "architecture \"qwen2\" is not served"},
        {{"general.architecture", U32, 1, NULL}, "key general.architecture has value type 4"},
        {{"llama.block_count", U32, 0, NULL}, "key llama.block_count is 0, not from 1 to 256"},
        {{"llama.block_count", U32, 257, NULL}, "key llama.block_count is 257, not from"},
        {{"llama.block_count", F32, 3, NULL}, "key llama.block_count has value type 6"},
        {{"llama.vocab_size", U32, 1 << 21, NULL}, "key llama.vocab_size is 2097152"},
        {{"llama.attention.head_count_kv", U32, 3, NULL}, "key llama.attention.head_count_kv is 3"},
        {{"llama.attention.head_count", U32, 6, NULL}, "key llama.attention.head_count is 6"},
        {{"llama.attention.value_length", U32, 32, NULL}, "heads of 64 and values of 32"},
        {{"llama.rope.dimension_count", U32, 32, NULL}, "key llama.rope.dimension_count is 32"},
        {{"llama.rope.freq_base", F32, -1, NULL}, "key llama.rope.freq_base is -1"},
        {{"llama.rope.scaling.type", TEXT, 0, "yarn"}, "key llama.rope.scaling.type is \"yarn\""},
        {{"llama.rope.scaling.type", TEXT, 0, "linear"},
         "key llama.rope.scaling.factor is missing"},
        {{"llama.rope.scaling.attn_factor", F32, 2, NULL},
         "key llama.rope.scaling.attn_factor is 2"},
        {{"llama.attention.layer_norm_rms_epsilon", F32, NAN, NULL},
         "key llama.attention.layer_norm"},
        {{"llama.expert_count", U32, 8, NULL}, "key llama.expert_count is 8: mixtures of experts"},
        {{"llama.attention.sliding_window", U32, 512, NULL}, "key llama.attention.sliding_window"},
        {{"llama.attention.clamp_kqv", F32, 1, NULL}, "key llama.attention.clamp_kqv: not served"},
        {{"llama.attention.causal", BOOL, 0, NULL}, "attention that is not causal"},
        {{"llama.use_parallel_residual", BOOL, 1, NULL}, "a parallel residual"},
        {{"llama.logit_scale", F32, 0.5, NULL}, "key llama.logit_scale is 0.5: only 1 is served"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config config;

        ck_assert_int_eq(read_config(&cases[i].key, 1, &config), ST_INVALID);
        ck_assert_msg(strstr(status_detail(), cases[i].reason) != NULL
                          && strncmp(status_detail(), NAME ": ", strlen(NAME ": ")) == 0,
                      "got \"%s\", not \"%s\"", status_detail(), cases[i].reason);
    }
}
END_TEST

CHECK_MAIN("config", all_numbers_come_from_the_file, what_a_file_may_leave_out_has_its_meaning,
           a_head_may_be_of_another_size_than_the_width_suggests,
           linear_scaling_divides_every_frequency, a_tensor_of_divisors_divides_its_frequencies,
           the_embedding_states_the_vocabulary_and_an_output_matrix_unties_it,
           every_missing_key_is_named, what_is_not_served_is_refused_by_name)
