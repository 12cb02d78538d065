/* SPDX-License-Identifier: Apache-2.0 */
/* config - the shape and the numbers of a model, whatever file they came from. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct gguf;
struct json_view;

#define MODEL_WIDTH_MAX    65536u
#define MODEL_HEADS_MAX    1024u
#define MODEL_FFN_MAX      (1u << 20)
#define MODEL_HEAD_DIM_MAX 256
#define MODEL_LAYERS_MAX   256
#define MODEL_VOCAB_MAX    (1u << 20)
#define MODEL_CONTEXT_MAX  (1u << 24) /* tokens; a sanity bound on files, not a promise */

struct model_config {
    uint32_t L;           /* layers */
    uint32_t C;           /* model width */
    uint32_t H;           /* query heads */
    uint32_t Hkv;         /* key/value heads; H % Hkv == 0 */
    uint32_t D;           /* head dimension */
    uint32_t F;           /* ffn width */
    uint32_t V;           /* vocabulary */
    uint32_t context_max; /* positions the checkpoint was made for */
    float rms_eps;
    bool has_tied_embeddings;                /* the output matrix is the embedding */
    double inv_freq[MODEL_HEAD_DIM_MAX / 2]; /* [D/2] radians a position, scaling regime applied */
    float rope_scale;        /* on cos and sin; 1 unless the regime says otherwise */
    uint8_t fingerprint[32]; /* SHA-256 of the checkpoint's bytes: weights, tokenizer
                                              * and RoPE regime are all in it */
};

/* Reads a Llama-architecture config out of an open GGUF; fills everything but the fingerprint.
 * ST_INVALID names the key and why: missing, of another type, out of its range, or an architecture
 * or feature that is not served (never approximated). */
enum status model_config_from_gguf(const struct gguf *gguf, struct model_config *config_out);

/* The same out of a Hugging Face config.json: LlamaForCausalLM, and MistralForCausalLM without a
 * sliding window. */
enum status model_config_from_hf(const struct json_view *json, struct model_config *config_out);

#endif
