/* SPDX-License-Identifier: Apache-2.0 */
/* One table says which tensor of a file becomes which rows of which weight; planning, checking for
 * strangers and loading all read it.  A tensor is converted row by row: de-quantised to float32,
 * then kept or rounded to bfloat16.  Both kinds of file have the same tensors by other names.
 *
 * The permutation: GGUF's converter stores the rows of each head of Q and K so that rotation pairs
 * are neighbours (2i, 2i + 1).  Checkpoints and our kernels pair (i, i + D/2).  Row 2i + j of the
 * file is row j * D/2 + i here.  Scores do not change, for Q and K move alike.  safetensors are
 * checkpoints as they are. */
#include "model/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/dequant.h"

#define CHUNK_ELEMENTS                                                                             \
    256 /* converted at a time on the way to bfloat16; a multiple of every unit */

#define TENSOR_NAME_MAX 80

/* Dimensions by letter, so that the table can be constant. */
enum extent {
    EXTENT_ONE,
    EXTENT_C,
    EXTENT_F,
    EXTENT_V,
    EXTENT_Q,  /* H * D */
    EXTENT_KV, /* Hkv * D */
};

enum dialect {
    DIALECT_GGUF,
    DIALECT_HF,
    DIALECTS,
};

static const char *const layer_prefixes[DIALECTS] = {"blk.", "model.layers."};

/* Tensors without effect: the first is in the config's frequencies, the others are buffers that old
 * Llama checkpoints carry. */
static const char *const ignored_names[DIALECTS] = {"rope_freqs.weight",
                                                    "self_attn.rotary_emb.inv_freq"};

struct source {
    const char *name; /* in GGUF; of a layer's tensor: without "blk.N." */
    enum weight weight;
    enum extent rows;
    enum extent cols;
    enum extent after[2]; /* rows of the fused weight in front of this one; ONE = none */
    bool is_layered;
    bool is_permuted; /* in GGUF */
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

/* The same tensors in a Hugging Face directory; a layer's without "model.layers.N.". */
static const char *const hf_names[] = {
    "model.embed_tokens.weight", "lm_head.weight",          "model.norm.weight",
    "input_layernorm.weight",    "self_attn.q_proj.weight", "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",   "self_attn.o_proj.weight", "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",      "mlp.up_proj.weight",      "mlp.down_proj.weight",
};

static_assert(sizeof(hf_names) / sizeof(hf_names[0]) == SOURCES, "a name for every source");

static const char *
source_name(enum dialect dialect, size_t source)
{
    return dialect == DIALECT_GGUF ? sources[source].name : hf_names[source];
}

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

/* The file's name of a type. */
static enum gguf_tensor_type
tensor_type(enum weight_type type)
{
    switch (type) {
    case WEIGHT_F32: return GGUF_TENSOR_F32;
    case WEIGHT_BF16: return GGUF_TENSOR_BF16;
    case WEIGHT_Q8_0: return GGUF_TENSOR_Q8_0;
    case WEIGHT_Q4_0: return GGUF_TENSOR_Q4_0;
    case WEIGHT_Q4_1: return GGUF_TENSOR_Q4_1;
    }
    assert(false);
    return GGUF_TENSOR_F32;
}

size_t
weights_row_bytes(enum weight_type type, uint64_t cols)
{
    return dequant_bytes(tensor_type(type), cols);
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
        if (__builtin_mul_overflow(
                extent(config, source->rows),
                weights_row_bytes(plan->type[source->weight], extent(config, source->cols)), &size)
            || __builtin_add_overflow(*bytes, size, bytes)) {
            return false;
        }
    }
    return !__builtin_add_overflow(*bytes, WEIGHT_ALIGN - 1, bytes);
}

/* Places all weights; plan->type is set. */
static enum status
plan_types(const struct model_config *config, struct weights_plan *plan_out)
{
    struct weights_plan plan = *plan_out;
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

enum status
weights_plan(const struct model_config *config, enum weight_type type,
             struct weights_plan *plan_out)
{
    struct weights_plan plan = {0};

    for (size_t kind = 0; kind < WEIGHT_KINDS; kind++) {
        plan.type[kind] = type;
    }
    TRY(plan_types(config, &plan));
    *plan_out = plan;
    return ST_OK;
}

bool
weights_is_norm(enum weight kind)
{
    return kind == WEIGHT_OUT_NORM || kind == WEIGHT_ATTN_NORM || kind == WEIGHT_FFN_NORM;
}

size_t
weights_offset(const struct weights_plan *plan, enum weight kind, uint32_t layer)
{
    assert(kind < WEIGHT_KINDS);
    return plan->base[kind] + layer * plan->stride[kind];
}

uint64_t
weights_elements(const struct model_config *config, enum weight kind)
{
    uint64_t elements = 0;

    for (size_t i = 0; i < SOURCES; i++) {
        if (sources[i].weight == kind) {
            elements += extent(config, sources[i].rows) * extent(config, sources[i].cols);
        }
    }
    return elements;
}

uint64_t
weights_columns(const struct model_config *config, enum weight kind)
{
    size_t i = 0;

    while (sources[i].weight != kind) {
        i++;
    }
    return extent(config, sources[i].cols);
}

/* -- Files --------------------------------------------------------------------------------- */

/* Where the tensors are. */
struct origin {
    const char *path;
    enum dialect dialect;
    const struct gguf *gguf;
    const struct safetensors *const *files; /* [file_count] */
    size_t file_count;
};

/* A tensor of either kind of file. */
struct view {
    const char *file;
    struct gguf_string name;
    enum gguf_tensor_type type;
    uint32_t n_dims;
    const uint64_t *dims; /* as in the file */
    uint64_t rows, cols;  /* rows 0: no matrix */
    const uint8_t *data;
};

static struct view
view_gguf(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
    bool is_matrix = tensor->dims[2] == 1 && tensor->dims[3] == 1;

    return (struct view){.file = gguf_path(gguf),
                         .name = tensor->name,
                         .type = tensor->type,
                         .n_dims = tensor->n_dims,
                         .dims = tensor->dims,
                         .rows = is_matrix ? tensor->dims[1] : 0,
                         .cols = tensor->dims[0],
                         .data = tensor->data};
}

static struct view
view_safetensors(const struct safetensors *file, const struct safetensors_tensor *tensor)
{
    bool is_matrix = tensor->n_dims == 1 || tensor->n_dims == 2;

    return (struct view){.file = safetensors_path(file),
                         .name = tensor->name,
                         .type = tensor->type,
                         .n_dims = tensor->n_dims,
                         .dims = tensor->shape,
                         .rows = !is_matrix            ? 0
                                 : tensor->n_dims == 1 ? 1
                                                       : tensor->shape[0],
                         .cols = is_matrix ? tensor->shape[tensor->n_dims - 1] : 0,
                         .data = tensor->data};
}

static bool
find_tensor(const struct origin *origin, const char *name, struct view *view_out)
{
    if (origin->dialect == DIALECT_GGUF) {
        const struct gguf_tensor *tensor = gguf_tensor_find(origin->gguf, name);

        if (tensor != NULL) {
            *view_out = view_gguf(origin->gguf, tensor);
        }
        return tensor != NULL;
    }
    for (size_t i = 0; i < origin->file_count; i++) {
        const struct safetensors_tensor *tensor = safetensors_find(origin->files[i], name);

        if (tensor != NULL) {
            *view_out = view_safetensors(origin->files[i], tensor);
            return true;
        }
    }
    return false;
}

/* The name of a source's tensor; `layer` is ignored where there is one for the model. */
static void
name_tensor(enum dialect dialect, size_t source, uint32_t layer, char name[TENSOR_NAME_MAX])
{
    if (sources[source].is_layered) {
        (void)snprintf(name, TENSOR_NAME_MAX, "%s%" PRIu32 ".%s", layer_prefixes[dialect], layer,
                       source_name(dialect, source));
    } else {
        (void)snprintf(name, TENSOR_NAME_MAX, "%s", source_name(dialect, source));
    }
}

/* -- Kept types ---------------------------------------------------------------------------- */

/* Whether all tensors of a weight are there and of a type. */
static bool
is_all_of(const struct gguf *gguf, const struct model_config *config, enum weight weight,
          enum weight_type type)
{
    char name[TENSOR_NAME_MAX];

    for (size_t i = 0; i < SOURCES; i++) {
        uint32_t layers = sources[i].is_layered ? config->L : 1;

        for (uint32_t layer = 0; sources[i].weight == weight && layer < layers; layer++) {
            name_tensor(DIALECT_GGUF, i, layer, name);
            const struct gguf_tensor *tensor = gguf_tensor_find(gguf, name);

            if (tensor == NULL || tensor->type != tensor_type(type)) {
                return false;
            }
        }
    }
    return true;
}

enum status
weights_plan_kept(const struct gguf *gguf, const struct model_config *config, enum weight_type type,
                  struct weights_plan *plan_out)
{
    static const enum weight_type kept[] = {WEIGHT_Q8_0, WEIGHT_Q4_0, WEIGHT_Q4_1};
    struct weights_plan plan = {0};

    for (size_t kind = 0; kind < WEIGHT_KINDS; kind++) {
        plan.type[kind] = type;
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
            if (!weights_is_norm((enum weight)kind)
                && is_all_of(gguf, config, (enum weight)kind, kept[i])) {
                plan.type[kind] = kept[i];
            }
        }
    }
    if (config->has_tied_embeddings) {
        plan.type[WEIGHT_OUTPUT] = plan.type[WEIGHT_EMBED];
    }
    TRY(plan_types(config, &plan));
    *plan_out = plan;
    return ST_OK;
}

/* -- Load ---------------------------------------------------------------------------------- */

static bool
is_expected(const struct model_config *config, enum dialect dialect, struct gguf_string name)
{
    size_t prefix_length = strlen(layer_prefixes[dialect]);
    char text[80] = {0};
    const char *rest = text;
    unsigned layer;
    int digits = 0;
    bool is_layered = false;

    if (name.length >= sizeof(text)) {
        return false;
    }
    memcpy(text, name.bytes, name.length);
    if (strncmp(text, layer_prefixes[dialect], prefix_length) == 0) {
        is_layered = sscanf(text + prefix_length, "%u.%n", &layer, &digits) == 1 && digits > 0;
        rest = text + prefix_length + digits;
    }
    if (is_layered && layer >= config->L) {
        return false;
    }
    if (is_layered == (dialect == DIALECT_HF) && strcmp(rest, ignored_names[dialect]) == 0) {
        return true;
    }
    for (size_t i = 0; i < SOURCES; i++) {
        if (sources[i].is_layered == is_layered && strcmp(source_name(dialect, i), rest) == 0) {
            return true;
        }
    }
    return false;
}

static enum status
refuse_stranger(const struct model_config *config, enum dialect dialect, const char *file,
                struct gguf_string name)
{
    if (is_expected(config, dialect, name)) {
        return ST_OK;
    }
    return ERR(ST_INVALID,
               "%s: tensor %.*s is not part of a model that is served; ignoring it would change "
               "the results",
               file, (int)name.length, name.bytes);
}

static enum status
refuse_strangers(const struct origin *origin, const struct model_config *config)
{
    size_t count = origin->dialect == DIALECT_GGUF ? gguf_tensor_count(origin->gguf) : 0;

    for (size_t i = 0; i < count; i++) {
        TRY(refuse_stranger(config, DIALECT_GGUF, origin->path,
                            gguf_tensor_at(origin->gguf, i)->name));
    }
    for (size_t f = 0; f < origin->file_count; f++) {
        const struct safetensors *file = origin->files[f];

        for (size_t i = 0; i < safetensors_count(file); i++) {
            TRY(refuse_stranger(config, DIALECT_HF, safetensors_path(file),
                                safetensors_at(file, i)->name));
        }
    }
    return ST_OK;
}

/* The shape as the file gives it, for messages. */
static const char *
show_shape(const struct view *view, char text[100])
{
    size_t length = 0;

    for (uint32_t i = 0; i < view->n_dims; i++) {
        length += (size_t)snprintf(text + length, 100 - length, "%s%" PRIu64, i == 0 ? "" : ", ",
                                   view->dims[i]);
    }
    text[length] = '\0';
    return text;
}

static enum status
check_shape(const struct view *view, uint64_t rows, uint64_t cols)
{
    char shape[100];

    if (view->rows == rows && view->cols == cols) {
        return ST_OK;
    }
    return ERR(ST_INVALID, "%s: tensor %.*s is [%s], not %" PRIu64 " rows of %" PRIu64, view->file,
               (int)view->name.length, view->name.bytes, show_shape(view, shape), rows, cols);
}

static void
convert_row(const struct view *view, uint64_t row, enum weight_type type, uint8_t *to)
{
    uint64_t cols = view->cols;
    const uint8_t *from = view->data + row * dequant_bytes(view->type, cols);
    float chunk[CHUNK_ELEMENTS];

    if (view->type == tensor_type(type)) {
        memcpy(to, from, dequant_bytes(view->type, cols));
        return;
    }
    if (type == WEIGHT_F32) {
        dequant(view->type, from, cols, (float *)(void *)to);
        return;
    }
    assert(type == WEIGHT_BF16);
    for (uint64_t done = 0; done < cols; done += CHUNK_ELEMENTS) {
        size_t n = cols - done < CHUNK_ELEMENTS ? cols - done : CHUNK_ELEMENTS;

        dequant(view->type, from + dequant_bytes(view->type, done), n, chunk);
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
load_source(const struct origin *origin, const struct model_config *config,
            const struct weights_plan *plan, size_t index, uint32_t layer, uint8_t *memory,
            size_t *bytes_done)
{
    const struct source *source = &sources[index];
    uint64_t rows = extent(config, source->rows);
    uint64_t cols = extent(config, source->cols);
    enum weight_type type = plan->type[source->weight];
    size_t row_bytes = weights_row_bytes(type, cols);
    bool is_permuted = source->is_permuted && origin->dialect == DIALECT_GGUF;
    struct view view;
    uint8_t *to;
    char name[TENSOR_NAME_MAX];

    name_tensor(origin->dialect, index, layer, name);
    if (!find_tensor(origin, name, &view)) {
        return ERR(ST_INVALID, "%s: tensor %s is missing", origin->path, name);
    }
    TRY(check_shape(&view, rows, cols));
    to = memory + weights_offset(plan, source->weight, layer)
         + rows_before(config, source) * row_bytes;
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t target = is_permuted ? permuted(row, config->D) : row;

        convert_row(&view, row, type, to + target * row_bytes);
    }
    *bytes_done += rows * row_bytes;
    return ST_OK;
}

static enum status
load_all(const struct origin *origin, const struct model_config *config,
         const struct weights_plan *plan, void *memory, weights_progress_fn progress,
         void *progress_arg)
{
    size_t bytes_done = 0;

    TRY(refuse_strangers(origin, config));
    for (size_t i = 0; i < SOURCES; i++) {
        uint32_t layers = sources[i].is_layered ? config->L : 1;

        if (is_shared(config, &sources[i])) {
            continue;
        }
        for (uint32_t layer = 0; layer < layers; layer++) {
            TRY(load_source(origin, config, plan, i, layer, memory, &bytes_done));
            if (progress != NULL) {
                progress(progress_arg, bytes_done, plan->bytes);
            }
        }
    }
    return ST_OK;
}

enum status
weights_load(const struct gguf *gguf, const struct model_config *config,
             const struct weights_plan *plan, void *memory, weights_progress_fn progress,
             void *progress_arg)
{
    struct origin origin = {.path = gguf_path(gguf), .dialect = DIALECT_GGUF, .gguf = gguf};

    return load_all(&origin, config, plan, memory, progress, progress_arg);
}

/* Some checkpoints store tied embeddings twice.  Two that differ are a contradiction. */
static enum status
check_tied_output(const struct origin *origin, const struct model_config *config)
{
    struct view embed, output;

    if (!config->has_tied_embeddings || !find_tensor(origin, "lm_head.weight", &output)
        || !find_tensor(origin, "model.embed_tokens.weight", &embed)) {
        return ST_OK;
    }
    if (output.type != embed.type || output.rows != embed.rows || output.cols != embed.cols
        || memcmp(output.data, embed.data, embed.rows * dequant_bytes(embed.type, embed.cols))
               != 0) {
        return ERR(ST_INVALID,
                   "%s: tensor lm_head.weight differs from the embedding, but "
                   "tie_word_embeddings is true",
                   output.file);
    }
    return ST_OK;
}

enum status
weights_load_hf(const char *path, const struct safetensors *const *files, size_t count,
                const struct model_config *config, const struct weights_plan *plan, void *memory,
                weights_progress_fn progress, void *progress_arg)
{
    struct origin origin = {
        .path = path, .dialect = DIALECT_HF, .files = files, .file_count = count};

    TRY(check_tied_output(&origin, config));
    return load_all(&origin, config, plan, memory, progress, progress_arg);
}
