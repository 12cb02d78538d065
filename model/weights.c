/* SPDX-License-Identifier: Apache-2.0 */
/* One table says which tensor of the file becomes which rows of which weight; planning, checking
 * for strangers and loading all read it.  A tensor is converted row by row: de-quantised to
 * float32, then kept or rounded to bfloat16.
 *
 * The permutation: GGUF's converter stores the rows of each head of Q and K so that rotation pairs
 * are neighbours (2i, 2i + 1).  Checkpoints and our kernels pair (i, i + D/2).  Row 2i + j of the
 * file is row j * D/2 + i here.  Scores do not change, for Q and K move alike. */
#include "model/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/dequant.h"

#define CHUNK_ELEMENTS                                                                             \
    256 /* converted at a time on the way to bfloat16; a multiple of every unit */

/* Dimensions by letter, so that the table can be constant. */
enum extent {
    EXTENT_ONE,
    EXTENT_C,
    EXTENT_F,
    EXTENT_V,
    EXTENT_Q,  /* H * D */
    EXTENT_KV, /* Hkv * D */
};

struct source {
    const char *name; /* of a layer's tensor: without "blk.N." */
    enum weight weight;
    enum extent rows;
    enum extent cols;
    enum extent after[2]; /* rows of the fused weight in front of this one; ONE = none */
    bool is_layered;
    bool is_permuted;
};

static const struct source sources[] = {
    {"token_embd.weight", WEIGHT_EMBED, EXTENT_V, EXTENT_C, {0}, false, false},
    {"output.weight", WEIGHT_OUTPUT, EXTENT_V, EXTENT_C, {0}, false, false},
    {"output_norm.weight", WEIGHT_OUT_NORM, EXTENT_ONE, EXTENT_C, {0}, false, false},
    {"attn_norm.weight", WEIGHT_ATTN_NORM, EXTENT_ONE, EXTENT_C, {0}, true, false},
    {"attn_q.weight", WEIGHT_QKV, EXTENT_Q, EXTENT_C, {0}, true, true},
    {"attn_k.weight", WEIGHT_QKV, EXTENT_KV, EXTENT_C, {EXTENT_Q}, true, true},
    {"attn_v.weight", WEIGHT_QKV, EXTENT_KV, EXTENT_C, {EXTENT_Q, EXTENT_KV}, true, false},
    {"attn_output.weight", WEIGHT_ATTN_OUT, EXTENT_C, EXTENT_Q, {0}, true, false},
    {"ffn_norm.weight", WEIGHT_FFN_NORM, EXTENT_ONE, EXTENT_C, {0}, true, false},
    {"ffn_gate.weight", WEIGHT_GATE_UP, EXTENT_F, EXTENT_C, {0}, true, false},
    {"ffn_up.weight", WEIGHT_GATE_UP, EXTENT_F, EXTENT_C, {EXTENT_F}, true, false},
    {"ffn_down.weight", WEIGHT_DOWN, EXTENT_C, EXTENT_F, {0}, true, false},
};

#define SOURCES (sizeof(sources) / sizeof(sources[0]))

static uint64_t
extent(const struct model_config *config, enum extent which)
{
    switch (which) {
    case EXTENT_ONE: return 1;
    case EXTENT_C: return config->C;
    case EXTENT_F: return config->F;
    case EXTENT_V: return config->V;
    case EXTENT_Q: return (uint64_t)config->H * config->D;
    case EXTENT_KV: return (uint64_t)config->Hkv * config->D;
    }
    assert(false);
    return 0;
}

/* True where the weight lies in another's place: the output matrix of tied embeddings. */
static bool
is_shared(const struct model_config *config, const struct source *source)
{
    return source->weight == WEIGHT_OUTPUT && config->has_tied_embeddings;
}

static uint64_t
rows_before(const struct model_config *config, const struct source *source)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < 2 && source->after[i] != EXTENT_ONE; i++) {
        rows += extent(config, source->after[i]);
    }
    return rows;
}

static size_t
element_bytes(enum weight_type type)
{
    return type == WEIGHT_F32 ? 4 : 2;
}

/* -- Plan ---------------------------------------------------------------------------------- */

/* Places the weights of one kind of source (the model's, or a layer's) from *bytes on. */
static bool
place(const struct model_config *config, bool is_layered, struct weights_plan *plan, size_t *bytes)
{
    for (size_t i = 0; i < SOURCES; i++) {
        const struct source *source = &sources[i];
        size_t size;

        if (source->is_layered != is_layered || is_shared(config, source)) {
            continue;
        }
        if (source->after[0] == EXTENT_ONE) { /* the first part of a weight opens it, aligned */
            if (__builtin_add_overflow(*bytes, WEIGHT_ALIGN - 1, bytes)) {
                return false;
            }
            *bytes = *bytes / WEIGHT_ALIGN * WEIGHT_ALIGN;
            plan->base[source->weight] = *bytes;
        }
        if (__builtin_mul_overflow(extent(config, source->rows), extent(config, source->cols),
                                   &size)
            || __builtin_mul_overflow(size, element_bytes(plan->type), &size)
            || __builtin_add_overflow(*bytes, size, bytes)) {
            return false;
        }
    }
    return !__builtin_add_overflow(*bytes, WEIGHT_ALIGN - 1, bytes);
}

enum status
weights_plan(const struct model_config *config, enum weight_type type,
             struct weights_plan *plan_out)
{
    struct weights_plan plan = {.type = type};
    size_t fixed = 0;
    size_t layer = 0;
    size_t layers;

    if (!place(config, false, &plan, &fixed) || !place(config, true, &plan, &layer)) {
        return ERR(ST_INVALID, "the weights' size overflows 64 bits");
    }
    fixed = fixed / WEIGHT_ALIGN * WEIGHT_ALIGN;
    layer = layer / WEIGHT_ALIGN * WEIGHT_ALIGN;
    if (__builtin_mul_overflow(layer, (size_t)config->L, &layers)
        || __builtin_add_overflow(fixed, layers, &plan.bytes)) {
        return ERR(ST_INVALID, "the weights' size overflows 64 bits");
    }
    for (size_t i = 0; i < SOURCES; i++) {
        if (sources[i].is_layered && sources[i].after[0] == EXTENT_ONE) {
            plan.base[sources[i].weight] += fixed;
            plan.stride[sources[i].weight] = layer;
        }
    }
    if (config->has_tied_embeddings) {
        plan.base[WEIGHT_OUTPUT] = plan.base[WEIGHT_EMBED];
    }
    *plan_out = plan;
    return ST_OK;
}

size_t
weights_offset(const struct weights_plan *plan, enum weight kind, uint32_t layer)
{
    assert(kind < WEIGHT_KINDS);
    return plan->base[kind] + layer * plan->stride[kind];
}

/* -- Load ---------------------------------------------------------------------------------- */

static bool
is_expected(const struct model_config *config, struct gguf_string name)
{
    char text[80] = {0};
    unsigned layer;
    int prefix = 0;
    bool is_layered;

    if (name.length >= sizeof(text)) {
        return false;
    }
    memcpy(text, name.bytes, name.length);
    if (strcmp(text, "rope_freqs.weight") == 0) { /* is in the config's frequencies */
        return true;
    }
    is_layered = sscanf(text, "blk.%u.%n", &layer, &prefix) == 1 && prefix > 0;
    if (is_layered && layer >= config->L) {
        return false;
    }
    for (size_t i = 0; i < SOURCES; i++) {
        if (sources[i].is_layered == is_layered && strcmp(sources[i].name, text + prefix) == 0) {
            return true;
        }
    }
    return false;
}

static enum status
refuse_strangers(const struct gguf *gguf, const struct model_config *config)
{
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

        if (!is_expected(config, tensor->name)) {
            return ERR(ST_INVALID,
                       "%s: tensor %.*s is not part of a model that is served; ignoring it would "
                       "change the results",
                       gguf_path(gguf), (int)tensor->name.length, tensor->name.bytes);
        }
    }
    return ST_OK;
}

static enum status
check_shape(const struct gguf *gguf, const struct gguf_tensor *tensor, uint64_t rows, uint64_t cols)
{
    if (tensor->dims[0] == cols && tensor->dims[1] == rows && tensor->dims[2] == 1
        && tensor->dims[3] == 1) {
        return ST_OK;
    }
    return ERR(ST_INVALID,
               "%s: tensor %.*s is [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
               "], not %" PRIu64 " rows of %" PRIu64,
               gguf_path(gguf), (int)tensor->name.length, tensor->name.bytes, tensor->dims[0],
               tensor->dims[1], tensor->dims[2], tensor->dims[3], rows, cols);
}

static void
convert_row(const struct gguf_tensor *tensor, uint64_t row, enum weight_type type, uint8_t *to)
{
    uint64_t cols = tensor->dims[0];
    const uint8_t *from = (const uint8_t *)tensor->data + row * dequant_bytes(tensor->type, cols);
    float chunk[CHUNK_ELEMENTS];

    if (type == WEIGHT_F32) {
        dequant(tensor->type, from, cols, (float *)(void *)to);
        return;
    }
    for (uint64_t done = 0; done < cols; done += CHUNK_ELEMENTS) {
        size_t n = cols - done < CHUNK_ELEMENTS ? cols - done : CHUNK_ELEMENTS;

        dequant(tensor->type, from + dequant_bytes(tensor->type, done), n, chunk);
        dequant_to_bf16(chunk, n, (uint16_t *)(void *)to + done);
    }
}

/* The row of our weight that row `row` of the file becomes. */
static uint64_t
permuted(uint64_t row, uint32_t D)
{
    uint64_t in_head = row % D;

    return row - in_head + (in_head % 2) * (D / 2) + in_head / 2;
}

static enum status
load_source(const struct gguf *gguf, const struct model_config *config,
            const struct weights_plan *plan, const struct source *source, uint32_t layer,
            uint8_t *memory, size_t *bytes_done)
{
    uint64_t rows = extent(config, source->rows);
    uint64_t cols = extent(config, source->cols);
    size_t row_bytes = cols * element_bytes(plan->type);
    const struct gguf_tensor *tensor;
    uint8_t *to;
    char name[80];

    (void)snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", layer, source->name);
    tensor = gguf_tensor_find(gguf, source->is_layered ? name : source->name);
    if (tensor == NULL) {
        return ERR(ST_INVALID, "%s: tensor %s is missing", gguf_path(gguf),
                   source->is_layered ? name : source->name);
    }
    TRY(check_shape(gguf, tensor, rows, cols));
    to = memory + weights_offset(plan, source->weight, layer)
         + rows_before(config, source) * row_bytes;
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t target = source->is_permuted ? permuted(row, config->D) : row;

        convert_row(tensor, row, plan->type, to + target * row_bytes);
    }
    *bytes_done += rows * row_bytes;
    return ST_OK;
}

enum status
weights_load(const struct gguf *gguf, const struct model_config *config,
             const struct weights_plan *plan, void *memory, weights_progress_fn progress,
             void *progress_arg)
{
    size_t bytes_done = 0;

    TRY(refuse_strangers(gguf, config));
    for (size_t i = 0; i < SOURCES; i++) {
        uint32_t layers = sources[i].is_layered ? config->L : 1;

        if (is_shared(config, &sources[i])) {
            continue;
        }
        for (uint32_t layer = 0; layer < layers; layer++) {
            TRY(load_source(gguf, config, plan, &sources[i], layer, memory, &bytes_done));
            if (progress != NULL) {
                progress(progress_arg, bytes_done, plan->bytes);
            }
        }
    }
    return ST_OK;
}
