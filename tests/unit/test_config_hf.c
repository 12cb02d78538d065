/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/json.h"
#include "model/shape.h"
#include "tests/support/check_main.h"

#define NAME "config.json"

static const char llama[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\","
    "\"attention_bias\":false,\"mlp_bias\":false,\"hidden_size\":4096,\"intermediate_size\":14336,"
    "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
    "\"vocab_size\":128256,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-05,"
    "\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"pretraining_tp\":1}";

/* Reads `llama` with its first `from` replaced by `to`; both may be NULL. */
static enum status
read_changed(const char *from, const char *to, struct model_config *config)
{
    char text[2048];
    const char *at = from == NULL ? NULL : strstr(llama, from);
    struct json_object *root = NULL;

    ck_assert(from == NULL || at != NULL);
    if (at == NULL) {
        (void)snprintf(text, sizeof(text), "%s", llama);
    } else {
        (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - llama), llama, to,
                       at + strlen(from));
    }
    ck_assert_msg(json_parse(NAME, text, strlen(text), &root) == ST_OK, "%s", status_detail());
    struct json_view view = json_root(NAME, root);
    enum status st = model_config_from_hf(&view, config);
    json_release(&root);
    return st;
}

static void
require_changed(const char *from, const char *to, struct model_config *config)
{
    ck_assert_msg(read_changed(from, to, config) == ST_OK, "%s", status_detail());
}

START_TEST(the_config_of_llama_3_1_8b_is_that_of_its_shape)
{
    struct model_config config, shape;

    require_changed(NULL, NULL, &config);
    ck_assert_int_eq(shape_find("llama-3.1-8b", &shape), ST_OK);
    ck_assert(config.L == shape.L && config.C == shape.C && config.H == shape.H);
    ck_assert(config.Hkv == shape.Hkv && config.D == shape.D && config.F == shape.F);
    ck_assert(config.V == shape.V && config.context_max == shape.context_max);
    ck_assert_float_eq(config.rms_eps, shape.rms_eps);
    ck_assert(!config.has_tied_embeddings && config.rope_scale == 1.0f);
    for (uint32_t i = 0; i < config.D / 2; i++) {
        ck_assert_double_eq(config.inv_freq[i], shape.inv_freq[i]);
    }
}
END_TEST

/* By hand from the rule: pair 0 turns fast and is kept, pair 63 slowly and is divided by 8. */
START_TEST(llama3_scaling_keeps_short_waves_and_stretches_long_ones)
{
    struct model_config config;

    require_changed(NULL, NULL, &config);
    ck_assert_double_eq(config.inv_freq[0], 1.0);
    ck_assert_double_eq_tol(config.inv_freq[63], pow(500000, -126.0 / 128) / 8, 1e-20);
    for (uint32_t i = 1; i < 64; i++) { /* the two meet where they should */
        double plain = pow(500000, -2.0 * i / 128);
        double kept = (8192 * plain / (2 * acos(-1)) - 1) / 3;

        kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
        ck_assert_double_eq_tol(config.inv_freq[i], plain * (kept + (1 - kept) / 8), 1e-14 * plain);
    }
}
END_TEST

#define SCALING                                                                                    \
    "\"rope_theta\":500000.0,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"            \
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}"

START_TEST(rope_is_read_in_the_old_and_the_new_form)
{
    static const struct {
        const char *text;
        double base, factor;
    } cases[] = {
        {"\"rope_theta\":20000,\"rope_scaling\":null", 20000, 1},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", 10000, 2},
        {"\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":5e5}", 5e5,
         4},
        {"\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}", 5e5, 1},
        {"\"rope_parameters\":{\"rope_theta\":5e5,\"partial_rotary_factor\":1.0}", 5e5, 1},
        {"\"x\":1", 10000, 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_config config;

        require_changed(SCALING, cases[i].text, &config);
        ck_assert_double_eq_tol(config.inv_freq[5],
                                pow(cases[i].base, -10.0 / 128) / cases[i].factor, 1e-15);
    }
}
END_TEST

START_TEST(absent_keys_mean_what_transformers_takes_them_for)
{
    struct model_config config;

    require_changed("\"num_key_value_heads\":8,", "", &config);
    ck_assert_uint_eq(config.Hkv, 32);
    require_changed("\"rms_norm_eps\":1e-05,", "", &config);
    ck_assert_float_eq(config.rms_eps, 1e-6f);
    require_changed("\"tie_word_embeddings\":false,", "", &config);
    ck_assert(!config.has_tied_embeddings);
    require_changed("\"tie_word_embeddings\":false", "\"tie_word_embeddings\":true", &config);
    ck_assert(config.has_tied_embeddings);
    require_changed("\"vocab_size\"", "\"head_dim\":64,\"vocab_size\"", &config);
    ck_assert_uint_eq(config.D, 64);
    require_changed("\"vocab_size\"", "\"head_dim\":null,\"vocab_size\"", &config);
    ck_assert_uint_eq(config.D, 128);
}
END_TEST

#define MISTRAL "\"MistralForCausalLM\"],\"model_type\":\"mistral\""

START_TEST(mistral_is_served_only_where_it_states_no_window)
{
    static const char from[] = "\"LlamaForCausalLM\"],\"model_type\":\"llama\"";
    struct model_config config;

    require_changed(from, MISTRAL ",\"sliding_window\":null", &config);
    ck_assert_uint_eq(config.Hkv, 8);
    ck_assert_int_eq(read_changed(from, MISTRAL, &config), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "sliding_window"));
    ck_assert_int_eq(read_changed(from, MISTRAL ",\"sliding_window\":4096", &config), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key sliding_window is 4096: not served");
}
END_TEST

static const struct refusal {
    const char *from, *to, *reason;
} refusals[] = {
    {"\"LlamaForCausalLM\"", "\"Qwen2ForCausalLM\"",
     "key architectures: \"Qwen2ForCausalLM\" is not served"},
    {"\"LlamaForCausalLM\"", "\"LlamaForCausalLM\",\"X\"", "key architectures: "},
    {"\"LlamaForCausalLM\"", "", "key architectures: \"\" is not served"},
    {"\"architectures\"", "\"no\"", "key architectures is missing"},
    {"\"model_type\":\"llama\"", "\"model_type\":\"llama4\"", "key model_type is \"llama4\""},
    {"\"silu\"", "\"gelu\"", "key hidden_act is \"gelu\"; only silu is served"},
    {"\"attention_bias\":false", "\"attention_bias\":true", "key attention_bias is true: not"},
    {"\"mlp_bias\":false", "\"mlp_bias\":true", "key mlp_bias is true: not served"},
    {"\"pretraining_tp\":1", "\"sliding_window\":1024", "key sliding_window is 1024"},
    {"\"pretraining_tp\":1", "\"quantization_config\":{\"quant_method\":\"awq\"}",
     "key quantization_config is"},
    {"\"pretraining_tp\":1", "\"auto_map\":{\"AutoModel\":\"x.Y\"}", "key auto_map is"},
    {"\"pretraining_tp\":1", "\"partial_rotary_factor\":0.5", "key partial_rotary_factor is 0.5"},
    {"\"pretraining_tp\":1", "\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
     "key layer_types: layer 1 is \"sliding_attention\""},
    {"\"pretraining_tp\":1", "\"num_local_experts\":8", "key num_local_experts is 8"},
    {"\"llama3\"", "\"yarn\"",
     "key rope_scaling.rope_type is \"yarn\"; default, linear and llama3"},
    {"\"llama3\"", "\"dynamic\"", "key rope_scaling.rope_type is \"dynamic\""},
    {"\"factor\":8.0,", "", "key rope_scaling.factor is missing"},
    {"\"factor\":8.0", "\"factor\":-8.0", "key rope_scaling.factor is -8, not a positive"},
    {"\"high_freq_factor\":4.0", "\"high_freq_factor\":1.0",
     "key rope_scaling.high_freq_factor is 1, not above"},
    {"\"rope_scaling\":{", "\"rope_scaling\":{\"partial_rotary_factor\":0.25,",
     "key rope_scaling.partial_rotary_factor is not 1"},
    {"\"rope_theta\":500000.0", "\"rope_theta\":0", "key rope_theta is 0, not a positive number"},
    {"\"hidden_size\":4096", "\"hidden_size\":0", "key hidden_size is 0, not from 1 to 65536"},
    {"\"hidden_size\":4096", "\"hidden_size\":\"4096\"", "key hidden_size is not an integer"},
    {"\"hidden_size\":4096", "\"hidden_size\":4100", "key num_attention_heads is 32, which does"},
    {"\"num_key_value_heads\":8", "\"num_key_value_heads\":5", "key num_key_value_heads is 5"},
    {"\"vocab_size\":128256", "\"vocab_size\":2000000", "key vocab_size is 2000000, not from"},
    {"\"vocab_size\"", "\"head_dim\":63,\"vocab_size\"", "heads of 63 are not served"},
    {"\"vocab_size\"", "\"head_dim\":512,\"vocab_size\"", "key head_dim is 512, not from"},
    {"\"tie_word_embeddings\":false", "\"tie_word_embeddings\":1", "key tie_word_embeddings is"},
    {"\"rope_scaling\":{", "\"rope_scaling\":7,\"y\":{", "key rope_scaling is not an object"},
};

START_TEST(what_is_not_served_is_refused_by_name)
{
    const struct refusal *refusal = &refusals[_i];
    struct model_config config;
    char expected[160];

    ck_assert_int_eq(read_changed(refusal->from, refusal->to, &config), ST_INVALID);
    (void)snprintf(expected, sizeof(expected), NAME ": %s", refusal->reason);
    ck_assert_msg(strncmp(status_detail(), expected, strlen(expected)) == 0,
                  "got \"%s\", not \"%s\"", status_detail(), expected);
}
END_TEST

START_TEST(an_unknown_shape_is_refused_with_the_known_ones)
{
    struct model_config config;

    ck_assert_int_eq(shape_find("llama-4", &config), ST_INVALID);
    ck_assert_str_eq(status_detail(), "shape \"llama-4\": known are " SHAPE_NAMES);
    ck_assert_int_eq(shape_find("smollm2-135m", &config), ST_OK);
    ck_assert(config.D == 64 && config.H == 9 && config.has_tied_embeddings);
    ck_assert_double_eq(config.inv_freq[1], pow(100000, -2.0 / 64));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("config_hf");
    TCase *tcase = tcase_create("config_hf");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tcase, the_config_of_llama_3_1_8b_is_that_of_its_shape);
    tcase_add_test(tcase, llama3_scaling_keeps_short_waves_and_stretches_long_ones);
    tcase_add_test(tcase, rope_is_read_in_the_old_and_the_new_form);
    tcase_add_test(tcase, absent_keys_mean_what_transformers_takes_them_for);
    tcase_add_test(tcase, mistral_is_served_only_where_it_states_no_window);
    tcase_add_loop_test(tcase, what_is_not_served_is_refused_by_name, 0,
                        (int)(sizeof(refusals) / sizeof(refusals[0])));
    tcase_add_test(tcase, an_unknown_shape_is_refused_with_the_known_ones);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
