/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a Hugging Face config.json.  A key that is absent means what transformers takes it for;
 * where that differs between the two architectures, Mistral has to state it.  What would change a
 * result and is not implemented is refused by name; what only describes the file is ignored. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/json.h"
#include "model/rope.h"

#define REFUSE(view, fmt, ...)                                                                     \
    ERR(ST_INVALID, "%s: key %s" fmt, (view)->file, (view)->at, __VA_ARGS__)

#define SHOWN(s) (int)((s).length < 64 ? (s).length : 64), (s).bytes

static enum status
read_count(const struct json_view *json, const char *key, uint32_t max, uint32_t *value_out)
{
    uint64_t value;

    TRY(json_get_u64(json, key, 1, max, &value));
    *value_out = (uint32_t)value;
    return ST_OK;
}

static enum status
read_optional_count(const struct json_view *json, const char *key, uint32_t max, uint32_t fallback,
                    uint32_t *value_out)
{
    if (!json_has(json, key)) {
        *value_out = fallback;
        return ST_OK;
    }
    return read_count(json, key, max, value_out);
}

static enum status
read_positive(const struct json_view *json, const char *key, double *value_out)
{
    double value;

    TRY(json_get_f64(json, key, &value));
    if (value <= 0) {
        return REFUSE(json, "%s is %g, not a positive number", key, value);
    }
    *value_out = value;
    return ST_OK;
}

/* -- What is not served -------------------------------------------------------------------- */

static enum status
check_architecture(const struct json_view *json, bool *is_mistral_out)
{
    struct json_object *names;

    TRY(json_get_array(json, "architectures", &names));
    struct gguf_string name = json_text(json_object_array_get_idx(names, 0));

    *is_mistral_out = json_is_text(name, "MistralForCausalLM");
    if (json_object_array_length(names) != 1
        || (!*is_mistral_out && !json_is_text(name, "LlamaForCausalLM"))) {
        return REFUSE(json,
                      "architectures: \"%.*s\" is not served, LlamaForCausalLM and "
                      "MistralForCausalLM are",
                      SHOWN(name));
    }
    return ST_OK;
}

/* Whether the value says "without": null, false, 0, or 1 for a factor. */
static bool
is_neutral(struct json_object *value, double neutral)
{
    switch (json_object_get_type(value)) {
    case json_type_null: return true;
    case json_type_boolean: return !json_object_get_boolean(value);
    case json_type_int:
    case json_type_double: return json_object_get_double(value) == neutral;
    default: return false;
    }
}

static enum status
check_features(const struct json_view *json)
{
    static const struct {
        const char *key;
        double neutral;
    } features[] = {
        {"attention_bias", 0},
        {"mlp_bias", 0},
        {"sliding_window", 0},
        {"attention_chunk_size", 0},
        {"quantization_config", 0},
        {"auto_map", 0}, /* code of its own */
        {"partial_rotary_factor", 1},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"logit_scale", 1},
        {"logits_scaling", 1},
        {"attention_multiplier", 0},
        {"embedding_multiplier", 1},
        {"residual_multiplier", 1},
        {"query_pre_attn_scalar", 0},
        {"use_qk_norm", 0},
        {"qk_layernorm", 0},
        {"alibi", 0},
        {"num_experts", 0},
        {"num_local_experts", 0},
        {"no_rope_layers", 0},
        {"add_cross_attention", 0},
        {"is_encoder_decoder", 0},
    };

    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
        struct json_object *value = json_object_object_get(json->object, features[i].key);

        if (!is_neutral(value, features[i].neutral)) {
            return REFUSE(json, "%s is %.60s: not served", features[i].key,
                          json_object_to_json_string(value));
        }
    }
    return ST_OK;
}

static enum status
require_text(const struct json_view *json, const char *key, const char *served)
{
    struct gguf_string text;

    if (!json_has(json, key)) {
        return ST_OK;
    }
    TRY(json_get_string(json, key, &text));
    return json_is_text(text, served)
               ? ST_OK
               : REFUSE(json, "%s is \"%.*s\"; only %s is served", key, SHOWN(text), served);
}

/* Newer files name the kind of each layer. */
static enum status
check_layer_types(const struct json_view *json)
{
    struct json_object *types;

    if (!json_has(json, "layer_types")) {
        return ST_OK;
    }
    TRY(json_get_array(json, "layer_types", &types));
    for (size_t i = 0; i < json_object_array_length(types); i++) {
        struct gguf_string type = json_text(json_object_array_get_idx(types, i));

        if (!json_is_text(type, "full_attention")) {
            return REFUSE(json, "layer_types: layer %zu is \"%.*s\"; only full_attention is served",
                          i, SHOWN(type));
        }
    }
    return ST_OK;
}

/* -- Rotary embedding ---------------------------------------------------------------------- */

static enum status
read_llama3(const struct json_view *json, struct rope *rope)
{
    rope->scaling = ROPE_LLAMA3;
    TRY(read_positive(json, "factor", &rope->factor));
    TRY(read_positive(json, "low_freq_factor", &rope->low_freq_factor));
    TRY(read_positive(json, "high_freq_factor", &rope->high_freq_factor));
    TRY(read_positive(json, "original_max_position_embeddings", &rope->original_context));
    if (rope->high_freq_factor <= rope->low_freq_factor) {
        return REFUSE(json, "high_freq_factor is %g, not above low_freq_factor, %g",
                      rope->high_freq_factor, rope->low_freq_factor);
    }
    return ST_OK;
}

/* "rope_type", or "type" in older files. */
static enum status
read_scaling(const struct json_view *json, struct rope *rope)
{
    struct gguf_string type = {"default", strlen("default")};
    const char *key = json_has(json, "rope_type") ? "rope_type" : "type";

    if (json_has(json, key)) {
        TRY(json_get_string(json, key, &type));
    }
    if (json_is_text(type, "default")) {
        return ST_OK;
    }
    if (json_is_text(type, "linear")) {
        rope->scaling = ROPE_LINEAR;
        return read_positive(json, "factor", &rope->factor);
    }
    if (json_is_text(type, "llama3")) {
        return read_llama3(json, rope);
    }
    return REFUSE(json, "%s is \"%.*s\"; default, linear and llama3 are served", key, SHOWN(type));
}

/* Either rope_theta with rope_scaling beside it, or all in rope_parameters, as transformers 5
 * writes it. */
static enum status
read_rope(const struct json_view *json, struct model_config *config)
{
    const char *key = json_has(json, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    struct rope rope = {.base = ROPE_BASE_DEFAULT};

    if (json_has(json, "rope_theta")) {
        TRY(read_positive(json, "rope_theta", &rope.base));
    }
    if (json_has(json, key)) {
        struct json_view scaling;

        TRY(json_get_object(json, key, &scaling));
        if (json_has(&scaling, "rope_theta")) {
            TRY(read_positive(&scaling, "rope_theta", &rope.base));
        }
        if (!is_neutral(json_object_object_get(scaling.object, "partial_rotary_factor"), 1)) {
            return REFUSE(&scaling, "%s is not 1: not served", "partial_rotary_factor");
        }
        TRY(read_scaling(&scaling, &rope));
    }
    rope_frequencies(&rope, config->D, config->inv_freq);
    config->rope_scale = 1.0f;
    return ST_OK;
}

/* -- Shape --------------------------------------------------------------------------------- */

static enum status
read_heads(const struct json_view *json, bool is_mistral, struct model_config *config)
{
    TRY(read_count(json, "num_attention_heads", MODEL_HEADS_MAX, &config->H));
    if (is_mistral) { /* transformers would take 8 */
        TRY(read_count(json, "num_key_value_heads", MODEL_HEADS_MAX, &config->Hkv));
    } else {
        TRY(read_optional_count(json, "num_key_value_heads", MODEL_HEADS_MAX, config->H,
                                &config->Hkv));
    }
    if (config->H % config->Hkv != 0) {
        return REFUSE(json,
                      "num_key_value_heads is %" PRIu32 ", which does not divide the %" PRIu32
                      " query heads",
                      config->Hkv, config->H);
    }
    if (!json_has(json, "head_dim") && config->C % config->H != 0) {
        return REFUSE(
            json, "num_attention_heads is %" PRIu32 ", which does not divide the width %" PRIu32,
            config->H, config->C);
    }
    TRY(read_optional_count(json, "head_dim", MODEL_HEAD_DIM_MAX, config->C / config->H,
                            &config->D));
    if (config->D == 0 || config->D % 2 != 0 || config->D > MODEL_HEAD_DIM_MAX) {
        return ERR(ST_INVALID, "%s: heads of %" PRIu32 " are not served: even, at most %d are",
                   json->file, config->D, MODEL_HEAD_DIM_MAX);
    }
    return ST_OK;
}

enum status
model_config_from_hf(const struct json_view *json, struct model_config *config_out)
{
    struct model_config config = {0};
    double rms_eps = 1e-6;
    bool is_mistral;

    TRY(check_architecture(json, &is_mistral));
    TRY(require_text(json, "model_type", is_mistral ? "mistral" : "llama"));
    TRY(require_text(json, "hidden_act", "silu"));
    TRY(check_features(json));
    TRY(check_layer_types(json));
    if (is_mistral && !json_object_object_get_ex(json->object, "sliding_window", NULL)) {
        return REFUSE(json, "%s is missing, which means a window of 4096: not served",
                      "sliding_window");
    }
    TRY(read_count(json, "num_hidden_layers", MODEL_LAYERS_MAX, &config.L));
    TRY(read_count(json, "hidden_size", MODEL_WIDTH_MAX, &config.C));
    TRY(read_count(json, "intermediate_size", MODEL_FFN_MAX, &config.F));
    TRY(read_count(json, "vocab_size", MODEL_VOCAB_MAX, &config.V));
    TRY(read_count(json, "max_position_embeddings", MODEL_CONTEXT_MAX, &config.context_max));
    TRY(read_heads(json, is_mistral, &config));
    if (json_has(json, "rms_norm_eps")) {
        TRY(read_positive(json, "rms_norm_eps", &rms_eps));
    }
    config.rms_eps = (float)rms_eps;
    if (json_has(json, "tie_word_embeddings")) {
        TRY(json_get_bool(json, "tie_word_embeddings", &config.has_tied_embeddings));
    }
    TRY(read_rope(json, &config));
    *config_out = config;
    return ST_OK;
}
