/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass of generated checkpoints against HF transformers; test_smollm2 does it with a
 * real one. */
#include <stdio.h>

#include "model/json.h"
#include "tests/support/check_main.h"
#include "tests/support/golden_check.h"
#include "tests/support/hf_dir.h"

START_TEST(logits_and_greedy_answers_of_gqa_1_equal_the_goldens)
{
    golden_check("tiny_gqa1", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_3_and_scaled_positions_equal_the_goldens)
{
    golden_check("tiny_gqa3", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_4_and_head_dim_128_equal_the_goldens)
{
    golden_check("tiny_gqa4", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_8_equal_the_goldens)
{
    golden_check("tiny_gqa8", NULL);
}
END_TEST

/* A directory of the config.json that transformers wrote and weights by the rule of
 * make_hf_goldens.py; the tokenizer has fewer tokens than the embedding rows. */
static void
check_hf(const char *name, enum gguf_tensor_type type)
{
    struct hf_dir dir = hf_dir_new();
    struct json_object *root = NULL;
    struct model_config model;
    char source[64];
    size_t length;

    (void)snprintf(source, sizeof(source), "hf/%s.json", name);
    char *text = hf_golden_bytes(source, &length);
    ck_assert_int_eq(json_parse(source, text, length, &root), ST_OK);
    struct json_view view = json_root(source, root);
    ck_assert_msg(model_config_from_hf(&view, &model) == ST_OK, "%s", status_detail());
    hf_dir_put(&dir, "config.json", text);
    hf_dir_put(&dir, "generation_config.json", "{\"eos_token_id\": 347}");
    hf_dir_copy(&dir, "tokenizer.json", "tokenizers/llama3.json");
    hf_dir_put_weights(&dir, &model, type);
    golden_check(name, dir.path);
    hf_dir_remove(&dir);
    json_release(&root);
    free(text);
}

START_TEST(logits_of_a_directory_with_llama3_rope_and_tied_bf16_weights_equal_the_goldens)
{
    check_hf("hf_llama3_tied", GGUF_TENSOR_BF16);
}
END_TEST

START_TEST(logits_of_a_directory_with_llama3_rope_and_untied_f32_weights_equal_the_goldens)
{
    check_hf("hf_llama3_untied", GGUF_TENSOR_F32);
}
END_TEST

START_TEST(logits_of_a_directory_with_linear_rope_and_f16_weights_equal_the_goldens)
{
    check_hf("hf_linear", GGUF_TENSOR_F16);
}
END_TEST

START_TEST(logits_of_a_mistral_directory_equal_the_goldens)
{
    check_hf("hf_mistral", GGUF_TENSOR_BF16);
}
END_TEST

CHECK_MAIN("llama", logits_and_greedy_answers_of_gqa_1_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_3_and_scaled_positions_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_4_and_head_dim_128_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_8_equal_the_goldens,
           logits_of_a_directory_with_llama3_rope_and_tied_bf16_weights_equal_the_goldens,
           logits_of_a_directory_with_llama3_rope_and_untied_f32_weights_equal_the_goldens,
           logits_of_a_directory_with_linear_rope_and_f16_weights_equal_the_goldens,
           logits_of_a_mistral_directory_equal_the_goldens)
