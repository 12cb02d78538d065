/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the "llama" architecture.  What would change a result and is not implemented is refused
 * by name; what only describes the file is ignored. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/gguf.h"
#include "model/rope.h"

#define ROPE_FREQS "rope_freqs.weight"

#define REFUSE(gguf, fmt, ...) ERR(ST_INVALID, "%s: " fmt, gguf_path(gguf), __VA_ARGS__)

static bool
is_text(struct gguf_string s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.bytes, text, s.length) == 0;
}

/* An absent key is a broken file here, not a look-up that failed. */
static enum status
require(enum status st)
{
    return st == ST_NOT_FOUND ? ERR(ST_INVALID, "%s", status_detail()) : st;
}

static enum status
read_count(const struct gguf *gguf, const char *key, uint32_t max, uint32_t *value_out)
{
    uint64_t value;

    TRY(require(gguf_u64(gguf, key, &value)));
    if (value < 1 || value > max) {
        return REFUSE(gguf, "key %s is %" PRIu64 ", not from 1 to %" PRIu32, key, value, max);
    }
    *value_out = (uint32_t)value;
    return ST_OK;
}

static enum status
read_optional_count(const struct gguf *gguf, const char *key, uint32_t max, uint32_t fallback,
                    uint32_t *value_out)
{
    if (!gguf_has(gguf, key)) {
        *value_out = fallback;
        return ST_OK;
    }
    return read_count(gguf, key, max, value_out);
}

static enum status
read_positive(const struct gguf *gguf, const char *key, double *value_out)
{
    double value;

    TRY(require(gguf_f64(gguf, key, &value)));
    if (!isfinite(value) || value <= 0) {
        return REFUSE(gguf, "key %s is %g, not a positive number", key, value);
    }
    *value_out = value;
    return ST_OK;
}

/* -- What is not served -------------------------------------------------------------------- */

static enum status
check_architecture(const struct gguf *gguf)
{
    struct gguf_string name;

    TRY(require(gguf_str(gguf, "general.architecture", &name)));
    if (!is_text(name, "llama")) {
        return REFUSE(gguf, "architecture \"%.*s\" is not served, only \"llama\" is",
                      (int)(name.length < 64 ? name.length : 64), name.bytes);
    }
    return ST_OK;
}

static enum status
refuse_unless_zero(const struct gguf *gguf, const char *key, const char *feature)
{
    uint64_t value;

    if (!gguf_has(gguf, key)) {
        return ST_OK;
    }
    TRY(gguf_u64(gguf, key, &value));
    return value == 0 ? ST_OK
                      : REFUSE(gguf, "key %s is %" PRIu64 ": %s not served", key, value, feature);
}

static enum status
refuse_unless_one(const struct gguf *gguf, const char *key)
{
    double value;

    if (!gguf_has(gguf, key)) {
        return ST_OK;
    }
    TRY(gguf_f64(gguf, key, &value));
    return value == 1.0 ? ST_OK : REFUSE(gguf, "key %s is %g: only 1 is served", key, value);
}

static enum status
check_features(const struct gguf *gguf)
{
    static const char *const absent[] = {
        "llama.attention.clamp_kqv", "llama.attention.max_alibi_bias", "llama.attention.scale",
        "llama.attention.logit_softcapping", "llama.final_logit_softcapping"};
    static const char *const scales[] = {"llama.logit_scale", "llama.residual_scale",
                                         "llama.embedding_scale", "llama.rope.scaling.attn_factor"};
    bool is_causal = true;
    bool is_parallel = false;

    TRY(refuse_unless_zero(gguf, "llama.expert_count", "mixtures of experts are"));
    TRY(refuse_unless_zero(gguf, "llama.attention.sliding_window", "a sliding window is"));
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (gguf_has(gguf, absent[i])) {
            return REFUSE(gguf, "key %s: not served", absent[i]);
        }
    }
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        TRY(refuse_unless_one(gguf, scales[i]));
    }
    if (gguf_has(gguf, "llama.attention.causal")) {
        TRY(gguf_bool(gguf, "llama.attention.causal", &is_causal));
    }
    if (gguf_has(gguf, "llama.use_parallel_residual")) {
        TRY(gguf_bool(gguf, "llama.use_parallel_residual", &is_parallel));
    }
    if (!is_causal || is_parallel) {
        return REFUSE(gguf, "%s",
                      is_causal ? "a parallel residual is not served"
                                : "attention that is not causal is not served");
    }
    return ST_OK;
}

/* -- Rotary embedding ---------------------------------------------------------------------- */

/* Divides positions by the factor that linear scaling asks for; Chen et al. (2023), eq. 4. */
static enum status
read_linear_factor(const struct gguf *gguf, double *factor_out)
{
    struct gguf_string type;

    *factor_out = 1.0;
    if (gguf_has(gguf, "llama.rope.scale_linear")) { /* what older files call it */
        return read_positive(gguf, "llama.rope.scale_linear", factor_out);
    }
    if (!gguf_has(gguf, "llama.rope.scaling.type")) {
        return ST_OK;
    }
    TRY(gguf_str(gguf, "llama.rope.scaling.type", &type));
    if (is_text(type, "none")) {
        return ST_OK;
    }
    if (is_text(type, "linear")) {
        return read_positive(gguf, "llama.rope.scaling.factor", factor_out);
    }
    return REFUSE(gguf, "key llama.rope.scaling.type is \"%.*s\"; none and linear are served",
                  (int)(type.length < 64 ? type.length : 64), type.bytes);
}

/* Llama 3's scaling comes as a tensor of divisors, one a pair. */
static enum status
apply_rope_freqs(const struct gguf *gguf, struct model_config *config)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, ROPE_FREQS);
    uint32_t half = config->D / 2;

    if (tensor == NULL) {
        return ST_OK;
    }
    if (tensor->type != GGUF_TENSOR_F32 || tensor->n_dims != 1 || tensor->dims[0] != half) {
        return REFUSE(gguf, "tensor " ROPE_FREQS " is not F32 [%" PRIu32 "]", half);
    }
    for (uint32_t i = 0; i < half; i++) {
        float divisor;

        memcpy(&divisor, (const char *)tensor->data + i * sizeof(divisor), sizeof(divisor));
        if (!isfinite(divisor) || divisor <= 0) {
            return REFUSE(gguf, "tensor " ROPE_FREQS ": element %" PRIu32 " is %g, not positive", i,
                          (double)divisor);
        }
        config->inv_freq[i] /= divisor;
    }
    return ST_OK;
}

static enum status
read_rope(const struct gguf *gguf, struct model_config *config)
{
    struct rope rope = {.base = ROPE_BASE_DEFAULT, .scaling = ROPE_LINEAR};
    uint32_t rotated;

    TRY(read_optional_count(gguf, "llama.rope.dimension_count", MODEL_HEAD_DIM_MAX, config->D,
                            &rotated));
    if (rotated != config->D) {
        return REFUSE(gguf,
                      "key llama.rope.dimension_count is %" PRIu32
                      ": rotating a part of the head's %" PRIu32 " is not served",
                      rotated, config->D);
    }
    if (gguf_has(gguf, "llama.rope.freq_base")) {
        TRY(read_positive(gguf, "llama.rope.freq_base", &rope.base));
    }
    TRY(read_linear_factor(gguf, &rope.factor)); /* 1 where there is none */
    rope_frequencies(&rope, config->D, config->inv_freq);
    config->rope_scale = 1.0f;
    return apply_rope_freqs(gguf, config);
}

/* -- Shape --------------------------------------------------------------------------------- */

static enum status
read_heads(const struct gguf *gguf, struct model_config *config)
{
    uint32_t value_length;

    TRY(read_count(gguf, "llama.attention.head_count", MODEL_HEADS_MAX, &config->H));
    TRY(read_optional_count(gguf, "llama.attention.head_count_kv", MODEL_HEADS_MAX, config->H,
                            &config->Hkv));
    if (config->H % config->Hkv != 0) {
        return REFUSE(gguf,
                      "key llama.attention.head_count_kv is %" PRIu32
                      ", which does not divide the %" PRIu32 " query heads",
                      config->Hkv, config->H);
    }
    if (!gguf_has(gguf, "llama.attention.key_length") && config->C % config->H != 0) {
        return REFUSE(gguf,
                      "key llama.attention.head_count is %" PRIu32
                      ", which does not divide the width %" PRIu32,
                      config->H, config->C);
    }
    TRY(read_optional_count(gguf, "llama.attention.key_length", MODEL_HEAD_DIM_MAX,
                            config->C / config->H, &config->D));
    TRY(read_optional_count(gguf, "llama.attention.value_length", MODEL_HEAD_DIM_MAX, config->D,
                            &value_length));
    if (value_length != config->D || config->D % 2 != 0 || config->D > MODEL_HEAD_DIM_MAX) {
        return REFUSE(gguf,
                      "heads of %" PRIu32 " and values of %" PRIu32
                      " are not served: equal, even, at most %d are",
                      config->D, value_length, MODEL_HEAD_DIM_MAX);
    }
    return ST_OK;
}

/* The rows of the embedding are the vocabulary; a file without tensors states it. */
static enum status
read_vocabulary(const struct gguf *gguf, struct model_config *config)
{
    const struct gguf_tensor *embed = gguf_tensor_find(gguf, "token_embd.weight");

    config->has_tied_embeddings = gguf_tensor_find(gguf, "output.weight") == NULL;
    if (embed == NULL || gguf_has(gguf, "llama.vocab_size")) {
        TRY(read_count(gguf, "llama.vocab_size", MODEL_VOCAB_MAX, &config->V));
    } else if (embed->dims[1] > MODEL_VOCAB_MAX) {
        return REFUSE(gguf, "tensor token_embd.weight has %" PRIu64 " rows; at most %u are served",
                      embed->dims[1], MODEL_VOCAB_MAX);
    } else {
        config->V = (uint32_t)embed->dims[1];
    }
    if (embed != NULL && embed->dims[1] != config->V) {
        return REFUSE(
            gguf, "key llama.vocab_size is %" PRIu32 ", but token_embd.weight has %" PRIu64 " rows",
            config->V, embed->dims[1]);
    }
    return ST_OK;
}

enum status
model_config_from_gguf(const struct gguf *gguf, struct model_config *config_out)
{
    struct model_config config = {0};
    double rms_eps;

    TRY(check_architecture(gguf));
    TRY(check_features(gguf));
    TRY(read_count(gguf, "llama.block_count", MODEL_LAYERS_MAX, &config.L));
    TRY(read_count(gguf, "llama.embedding_length", MODEL_WIDTH_MAX, &config.C));
    TRY(read_count(gguf, "llama.feed_forward_length", MODEL_FFN_MAX, &config.F));
    TRY(read_count(gguf, "llama.context_length", MODEL_CONTEXT_MAX, &config.context_max));
    TRY(read_heads(gguf, &config));
    TRY(read_vocabulary(gguf, &config));
    TRY(read_positive(gguf, "llama.attention.layer_norm_rms_epsilon", &rms_eps));
    config.rms_eps = (float)rms_eps;
    TRY(read_rope(gguf, &config));
    *config_out = config;
    return ST_OK;
}
