/* SPDX-License-Identifier: Apache-2.0 */
/* weights - a checkpoint's tensors in the order and the element type that the kernels read.
 *
 * The plan says where each weight lies in one contiguous piece of memory (the weights arena, shared
 * by the workers of a device), the load fills it from files.  QKV and gate-up are fused by rows.
 * Rows of Q and K are un-permuted from GGUF's interleaved pairs to halves, so one RoPE pairing
 * (i, i + D/2) reaches the kernels. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/safetensors.h"

enum weight {
    WEIGHT_EMBED,     /* [V, C] */
    WEIGHT_OUTPUT,    /* [V, C]; the same offset as WEIGHT_EMBED when tied */
    WEIGHT_OUT_NORM,  /* [C] */
    WEIGHT_ATTN_NORM, /* [C], a layer */
    WEIGHT_QKV,       /* [(H + 2 Hkv) * D, C], a layer */
    WEIGHT_ATTN_OUT,  /* [C, H * D], a layer */
    WEIGHT_FFN_NORM,  /* [C], a layer */
    WEIGHT_GATE_UP,   /* [2F, C], a layer */
    WEIGHT_DOWN,      /* [C, F], a layer */
    WEIGHT_KINDS,
};

enum weight_type {
    WEIGHT_F32 = 0, /* the CPU's */
    WEIGHT_BF16 = 1,
    /* Rows as a GGUF file has them (dequant.c), for a device that multiplies them so. */
    WEIGHT_Q8_0 = 2,
    WEIGHT_Q4_0 = 3,
    WEIGHT_Q4_1 = 4,
};

#define WEIGHT_ALIGN 256 /* bytes; every weight starts on it */

struct weights_plan {
    enum weight_type type[WEIGHT_KINDS];
    size_t base[WEIGHT_KINDS];   /* of layer 0 */
    size_t stride[WEIGHT_KINDS]; /* from layer to layer; 0 for those that are not per layer */
    size_t bytes;                /* of the whole piece */
};

/* All weights of one type, float32 or bfloat16.  Pure arithmetic; ST_INVALID if the size overflows.
 */
enum status weights_plan(const struct model_config *config, enum weight_type type,
                         struct weights_plan *plan_out);

/* The same, but a matrix whose tensors are all, in every layer, of one quantised type keeps it. */
enum status weights_plan_kept(const struct gguf *gguf, const struct model_config *config,
                              enum weight_type type, struct weights_plan *plan_out);

bool weights_is_norm(enum weight kind);

/* Byte offset of a weight; `layer` is ignored where there is one for the model. */
size_t weights_offset(const struct weights_plan *plan, enum weight kind, uint32_t layer);

/* Elements of a weight of one layer. */
uint64_t weights_elements(const struct model_config *config, enum weight kind);

/* Elements of one of its rows. */
uint64_t weights_columns(const struct model_config *config, enum weight kind);

/* Bytes that `cols` elements of a row take; quantised ones come in multiples of 32. */
size_t weights_row_bytes(enum weight_type type, uint64_t cols);

typedef void (*weights_progress_fn)(void *arg, size_t bytes_done, size_t bytes_total);

/* Converts all tensors into `memory` (plan->bytes).  ST_INVALID names the file, tensor and reason:
 * missing, of another shape, of a type that is not served, an unexpected extra tensor that would
 * change the result (biases, for one).  `progress` may be NULL. */
enum status weights_load(const struct gguf *gguf, const struct model_config *config,
                         const struct weights_plan *plan, void *memory,
                         weights_progress_fn progress, void *progress_arg);

/* The same from the safetensors files of a Hugging Face directory, whose path is for messages.  No
 * name occurs in two of them.  An output matrix beside tied embeddings must equal the embedding. */
enum status weights_load_hf(const char *path, const struct safetensors *const *files, size_t count,
                            const struct model_config *config, const struct weights_plan *plan,
                            void *memory, weights_progress_fn progress, void *progress_arg);

#endif
