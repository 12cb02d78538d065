/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/llama.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "worker/device.h"
#include "worker/llama_state.h"

/* Rows of a buffer that gemm reads or writes. */
static size_t
whole_rows(const struct llama *llama, uint32_t rows)
{
    size_t multiple = llama->config.ops->row_multiple;

    return (rows + multiple - 1) / multiple * multiple;
}

static size_t
bytes_of_buffer(const struct llama *llama, enum buffer kind)
{
    const struct model_config *m = llama->config.model;
    const struct llama_room *room = &llama->room;
    size_t rows = whole_rows(llama, llama->config.rows_max);
    size_t last = whole_rows(llama, llama->config.logits_max);
    size_t element = llama->config.ops->activation_bytes;
    size_t HD = (size_t)m->H * m->D;

    switch (kind) {
    case BUF_X:
    case BUF_DELTA:
    case BUF_H: return rows * m->C * element;
    case BUF_QKV: return rows * (m->H + 2 * (size_t)m->Hkv) * m->D * element;
    case BUF_Q:
    case BUF_ATTN: return rows * HD * element;
    case BUF_GATE_UP: return rows * 2 * m->F * element;
    case BUF_FFN: return rows * m->F * element;
    case BUF_X_LAST: return last * m->C * element;
    case BUF_ATTN_LAST: return last * HD * element;
    case BUF_LOGITS: return last * m->V * sizeof(float);
    case BUF_IDS:
    case BUF_ROW_BLOCK:
    case BUF_ROW_SLOT:
    case BUF_ROW_POS: return rows * sizeof(uint32_t);
    case BUF_LOGIT_ROWS: return last * sizeof(uint32_t);
    case BUF_SEQS: return rows * sizeof(struct attn_seq);
    case BUF_PARTIAL_FIRST: return (rows + 1) * sizeof(uint32_t);
    case BUF_INV_FREQ: return m->D / 2 * sizeof(double);
    case BUF_PARAMS: return last * sizeof(struct sample_params);
    case BUF_RESULTS: return last * sizeof(struct sample_result);
    case BUF_WORKSPACE: return sample_workspace_bytes((uint32_t)last, m->V);
    case BUF_SEGS: return room->segs * sizeof(struct attn_segment);
    case BUF_BLOCK_IDS: return room->block_ids * sizeof(uint32_t);
    case BUF_O: return room->partials * HD * sizeof(float);
    case BUF_ML: return room->partials * m->H * 2 * sizeof(float);
    case BUF_HISTORY: return room->history * sizeof(uint32_t);
    case BUFFERS: break;
    }
    return 0;
}

/* Makes buffers [first, BUFFERS) as big as the room asks; contents are of one step, so nothing is
 * kept. */
static enum status
allocate_buffers(struct llama *llama, enum buffer first)
{
    const struct ops *ops = llama->config.ops;

    for (int i = first; i < BUFFERS; i++) {
        size_t bytes = bytes_of_buffer(llama, (enum buffer)i);

        if (bytes > llama->buffer_bytes[i]) {
            ops->release(ops, llama->buffers[i]);
            llama->buffers[i] = NULL;
            llama->buffer_bytes[i] = 0;
            TRY(ops->alloc(ops, bytes, &llama->buffers[i]));
            llama->buffer_bytes[i] = bytes;
        }
    }
    return ST_OK;
}

static enum status
check_weights(const struct weights_plan *plan, const struct ops *ops)
{
    for (uint32_t kind = 0; kind < WEIGHT_KINDS; kind++) {
        enum weight_type type = plan->type[kind];
        bool is_plain = type == WEIGHT_F32 || type == WEIGHT_BF16;

        if (is_plain ? weights_row_bytes(type, 1) != ops->activation_bytes
                     : !ops->has_packed_weights) {
            return ERR(ST_INVALID, "weights of type %d: the %s operations do not read it", type,
                       ops->name);
        }
    }
    return ST_OK;
}

static enum status
check_config(const struct llama_config *config)
{
    const struct model_config *m = config->model;

    TRY(kv_layout_check(&config->layout));
    if (config->layout.L != m->L || config->layout.Hkv != m->Hkv || config->layout.D != m->D) {
        return ERR(ST_INVALID, "KV layout of %u layers, %u heads of %u; the model has %u, %u of %u",
                   config->layout.L, config->layout.Hkv, config->layout.D, m->L, m->Hkv, m->D);
    }
    TRY(check_weights(config->plan, config->ops));
    if (config->rows_max == 0 || config->rows_max > LLAMA_ROWS_MAX || config->logits_max == 0
        || config->logits_max > config->rows_max) {
        return ERR(ST_INVALID, "steps of %u rows, %u with logits: 1 to %u, not more with logits",
                   config->rows_max, config->logits_max, LLAMA_ROWS_MAX);
    }
    return ST_OK;
}

static enum status
allocate_host(struct llama *llama)
{
    const struct ops *ops = llama->config.ops;
    void *memory;

    for (int i = 0; i < 2; i++) {
        TRY(ops->alloc_host(ops, ((size_t)llama->config.rows_max + 1) * sizeof(uint32_t), &memory));
        llama->partial_first[i] = memory;
    }
    TRY(ops->alloc_host(ops, llama->config.logits_max * sizeof(llama->params[0]), &memory));
    llama->params = memory;
    return ST_OK;
}

static enum status
start(struct llama *llama)
{
    const struct ops *ops = llama->config.ops;
    const struct model_config *m = llama->config.model;

    TRY(allocate_host(llama));
    llama->room = (struct llama_room){.segs = 1, .block_ids = 1, .partials = 1, .history = 1};
    TRY(allocate_buffers(llama, BUF_X));
    TRY(ops->upload(ops, llama->buffers[BUF_INV_FREQ], m->inv_freq, m->D / 2 * sizeof(double)));
    TRY(ops->finish(ops));
    llama->desc = (struct attn_desc){
        .kv = llama->config.kv,
        .layout = llama->config.layout,
        .n_blocks = llama->config.block_count,
        .H = m->H,
        .inv_freq = llama->buffers[BUF_INV_FREQ],
        .rope_scale = m->rope_scale,
        .scale = (float)(1.0 / sqrt((double)m->D)),
    };
    return ST_OK;
}

enum status
llama_new(const struct llama_config *config, struct llama **llama_out)
{
    TRY(check_config(config));
    struct llama *llama = mem_zalloc(1, sizeof(*llama));

    if (llama == NULL) {
        return ERR(ST_NO_MEMORY, "a model instance");
    }
    llama->config = *config;
    enum status st = start(llama);

    if (st != ST_OK) {
        llama_destroy(&llama);
        return st;
    }
    *llama_out = llama;
    return ST_OK;
}

void
llama_place_kv(struct llama *llama, void *kv, uint32_t block_count)
{
    llama->config.kv = kv;
    llama->config.block_count = block_count;
    llama->desc.kv = kv;
    llama->desc.n_blocks = block_count;
}

void
llama_destroy(struct llama **llama)
{
    if (*llama == NULL) {
        return;
    }
    const struct ops *ops = (*llama)->config.ops;

    for (int i = 0; i < BUFFERS; i++) {
        ops->release(ops, (*llama)->buffers[i]);
    }
    ops->release_host(ops, (*llama)->partial_first[0]);
    ops->release_host(ops, (*llama)->partial_first[1]);
    ops->release_host(ops, (*llama)->params);
    MEM_FREE(*llama);
}

static size_t
larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

enum status
llama_reserve(struct llama *llama, const struct llama_room *room)
{
    llama->room = (struct llama_room){
        .segs = larger(llama->room.segs, room->segs),
        .block_ids = larger(llama->room.block_ids, room->block_ids),
        .partials = larger(llama->room.partials, room->partials),
        .history = larger(llama->room.history, room->history),
    };
    return allocate_buffers(llama, BUF_GROWING);
}

static const void *
weight_at(const struct llama *llama, enum weight kind, uint32_t layer)
{
    return (const char *)llama->config.weights + weights_offset(llama->config.plan, kind, layer);
}

static enum panel_form
panel_form(const struct llama *llama, enum weight kind)
{
    return device_panel_form(llama->config.plan->type[kind]);
}

static enum status
matmul(const struct llama *llama, enum buffer x, enum weight kind, uint32_t layer, enum buffer y,
       uint32_t rows, uint32_t n, uint32_t k)
{
    const struct ops *ops = llama->config.ops;

    return ops->gemm(ops, (struct gemm_args){.x = llama->buffers[x],
                                             .w = weight_at(llama, kind, layer),
                                             .y = llama->buffers[y],
                                             .M = rows,
                                             .N = n,
                                             .K = k,
                                             .is_y_f32 = y == BUF_LOGITS,
                                             .form = panel_form(llama, kind)});
}

/* x += delta, if there is one; h = norm(x). */
static enum status
norm(const struct llama *llama, enum buffer x, bool has_delta, enum weight kind, uint32_t layer,
     uint32_t rows)
{
    const struct ops *ops = llama->config.ops;

    return ops->rmsnorm(ops,
                        (struct rmsnorm_args){.x = llama->buffers[x],
                                              .delta = has_delta ? llama->buffers[BUF_DELTA] : NULL,
                                              .weight = weight_at(llama, kind, layer),
                                              .out = llama->buffers[BUF_H],
                                              .T = rows,
                                              .C = llama->config.model->C,
                                              .eps = llama->config.model->rms_eps});
}

static enum status
embed(const struct llama *llama, const struct llama_step *step)
{
    const struct ops *ops = llama->config.ops;

    return ops->embed(ops, (struct embed_args){.table = weight_at(llama, WEIGHT_EMBED, 0),
                                               .ids = llama->buffers[BUF_IDS],
                                               .out = llama->buffers[BUF_X],
                                               .T = step->n_rows,
                                               .C = llama->config.model->C,
                                               .V = llama->config.model->V,
                                               .is_packed = ops->has_packed_weights,
                                               .form = panel_form(llama, WEIGHT_EMBED)});
}

/* The rows that want logits: an embedding whose table is the activations. */
static enum status
gather(const struct llama *llama, const struct llama_step *step, enum buffer from, uint32_t width,
       enum buffer to)
{
    const struct ops *ops = llama->config.ops;

    return ops->embed(ops, (struct embed_args){.table = llama->buffers[from],
                                               .ids = llama->buffers[BUF_LOGIT_ROWS],
                                               .out = llama->buffers[to],
                                               .T = step->n_logits,
                                               .C = width,
                                               .V = step->n_rows});
}

/* K and V of all rows of the step go to their blocks; raw Q is gathered. */
static enum status
append(const struct llama *llama, const struct llama_step *step, uint32_t layer)
{
    const struct ops *ops = llama->config.ops;
    const struct model_config *m = llama->config.model;

    TRY(matmul(llama, BUF_H, WEIGHT_QKV, layer, BUF_QKV, step->n_rows, (m->H + 2 * m->Hkv) * m->D,
               m->C));
    return ops->rope_append(ops,
                            (struct rope_append_args){.qkv = llama->buffers[BUF_QKV],
                                                      .q_out = llama->buffers[BUF_Q],
                                                      .kv = llama->config.kv,
                                                      .layout = llama->config.layout,
                                                      .layer = layer,
                                                      .n_blocks = llama->config.block_count,
                                                      .row_block = llama->buffers[BUF_ROW_BLOCK],
                                                      .row_slot = llama->buffers[BUF_ROW_SLOT],
                                                      .row_pos = llama->buffers[BUF_ROW_POS],
                                                      .inv_freq = llama->buffers[BUF_INV_FREQ],
                                                      .rope_scale = m->rope_scale,
                                                      .T = step->n_rows,
                                                      .H = m->H});
}

static enum status
attend_singles(const struct llama *llama, const struct llama_step *step, struct attn_desc desc)
{
    const struct ops *ops = llama->config.ops;

    desc.seqs = llama->buffers[BUF_SEQS];
    desc.n_seqs = step->n_single;
    return ops->lazy_decode(
        ops,
        (struct lazy_decode_args){.desc = desc,
                                  .q = llama->buffers[BUF_Q],
                                  .o = llama->buffers[BUF_O],
                                  .ml = llama->buffers[BUF_ML],
                                  .partial_first = llama->buffers[BUF_PARTIAL_FIRST],
                                  .n_partials =
                                      llama->partial_first[llama->prepared][step->n_single]},
        llama->buffers[BUF_ATTN]);
}

static enum status
attend(const struct llama *llama, const struct llama_step *step, uint32_t layer)
{
    const struct ops *ops = llama->config.ops;
    struct attn_desc desc = llama->desc;

    desc.layer = layer;
    desc.block_ids = llama->buffers[BUF_BLOCK_IDS];
    desc.segs = llama->buffers[BUF_SEGS];
    if (step->n_single > 0) {
        TRY(attend_singles(llama, step, desc));
    }
    if (step->n_seqs > step->n_single) {
        desc.seqs = (const struct attn_seq *)llama->buffers[BUF_SEQS] + step->n_single;
        desc.n_seqs = step->n_seqs - step->n_single;
        TRY(ops->lazy_prefill(ops, (struct lazy_prefill_args){.desc = desc,
                                                              .q = llama->buffers[BUF_Q],
                                                              .out = llama->buffers[BUF_ATTN]}));
    }
    return ST_OK;
}

/* From attention's output to the end of the layer; what is to be added to x stays in BUF_DELTA. */
static enum status
finish_layer(const struct llama *llama, enum buffer x, enum buffer attn, uint32_t layer,
             uint32_t rows)
{
    const struct ops *ops = llama->config.ops;
    const struct model_config *m = llama->config.model;

    TRY(matmul(llama, attn, WEIGHT_ATTN_OUT, layer, BUF_DELTA, rows, m->C, m->H * m->D));
    TRY(norm(llama, x, true, WEIGHT_FFN_NORM, layer, rows));
    TRY(matmul(llama, BUF_H, WEIGHT_GATE_UP, layer, BUF_GATE_UP, rows, 2 * m->F, m->C));
    TRY(ops->swiglu(ops, (struct swiglu_args){.gate_up = llama->buffers[BUF_GATE_UP],
                                              .out = llama->buffers[BUF_FFN],
                                              .T = rows,
                                              .F = m->F}));
    return matmul(llama, BUF_FFN, WEIGHT_DOWN, layer, BUF_DELTA, rows, m->C, m->F);
}

/* The last layer after its K and V are written, for the rows that want logits only. */
static enum status
finish_model(const struct llama *llama, const struct llama_step *step)
{
    const struct model_config *m = llama->config.model;
    uint32_t n = step->n_logits;

    TRY(attend(llama, step, m->L - 1));
    TRY(gather(llama, step, BUF_X, m->C, BUF_X_LAST));
    TRY(gather(llama, step, BUF_ATTN, m->H * m->D, BUF_ATTN_LAST));
    TRY(finish_layer(llama, BUF_X_LAST, BUF_ATTN_LAST, m->L - 1, n));
    TRY(norm(llama, BUF_X_LAST, true, WEIGHT_OUT_NORM, 0, n));
    return matmul(llama, BUF_H, WEIGHT_OUTPUT, 0, BUF_LOGITS, n, m->V, m->C);
}

static void
plan_partials(struct llama *llama, const struct llama_step *step)
{
    uint32_t *first = llama->partial_first[llama->prepared];
    uint32_t n = 0;

    for (uint32_t i = 0; i < step->n_single; i++) {
        assert(step->seqs[i].n_rows == 1 && step->seqs[i].row_first == i);
        first[i] = n;
        n += lazy_decode_partials(&step->seqs[i], step->segs);
    }
    first[step->n_single] = n;
    assert(n <= llama->room.partials);
}

static enum status
send_step(struct llama *llama, const struct llama_step *step)
{
    const struct ops *ops = llama->config.ops;
    size_t row_bytes = step->n_rows * sizeof(uint32_t);
    const struct {
        enum buffer to;
        const void *from;
        size_t bytes;
    } parts[] = {
        {BUF_ROW_BLOCK, step->row_block, row_bytes},
        {BUF_ROW_SLOT, step->row_slot, row_bytes},
        {BUF_ROW_POS, step->row_pos, row_bytes},
        {BUF_SEQS, step->seqs, step->n_seqs * sizeof(step->seqs[0])},
        {BUF_SEGS, step->segs, step->n_segs * sizeof(step->segs[0])},
        {BUF_BLOCK_IDS, step->block_ids, step->n_block_ids * sizeof(uint32_t)},
        {BUF_PARTIAL_FIRST, llama->partial_first[llama->prepared],
         (step->n_single + (size_t)1) * sizeof(uint32_t)},
        {BUF_LOGIT_ROWS, step->logit_rows, step->n_logits * sizeof(uint32_t)},
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        assert(parts[i].bytes <= llama->buffer_bytes[parts[i].to]);
        if (parts[i].bytes > 0) {
            TRY(ops->upload(ops, llama->buffers[parts[i].to], parts[i].from, parts[i].bytes));
        }
    }
    return ST_OK;
}

static enum status
begin_step(const struct llama *llama, const struct llama_step *step)
{
    const struct ops *ops = llama->config.ops;

    return ops->begin_step(ops, (struct attn_step){.segs = step->segs,
                                                   .block_ids = step->block_ids,
                                                   .prefill = step->seqs + step->n_single,
                                                   .decode = step->seqs,
                                                   .n_prefill = step->n_seqs - step->n_single,
                                                   .n_decode = step->n_single,
                                                   .H = llama->desc.H,
                                                   .layout = llama->desc.layout,
                                                   .inv_freq = llama->desc.inv_freq,
                                                   .rope_scale = llama->desc.rope_scale,
                                                   .is_building = step->is_building});
}

/* Rows of every bucket, on operands like a step's: zeros would take less power. */
static enum status
use_product(const struct llama *llama, enum weight kind, enum buffer x, enum buffer y)
{
    const struct ops *ops = llama->config.ops;
    uint32_t k = (uint32_t)weights_columns(llama->config.model, kind);
    uint32_t n = (uint32_t)(weights_elements(llama->config.model, kind) / k);
    uint32_t rows_max = y == BUF_LOGITS ? llama->config.logits_max : llama->config.rows_max;

    TRY(ops->embed(ops, (struct embed_args){.table = weight_at(llama, kind, 0),
                                            .ids = llama->buffers[BUF_IDS], /* zeros */
                                            .out = llama->buffers[x],
                                            .T = rows_max,
                                            .C = k,
                                            .V = n}));
    for (uint32_t rows = 1; rows < rows_max; rows *= 2) {
        TRY(matmul(llama, x, kind, 0, y, rows, n, k));
    }
    return matmul(llama, x, kind, 0, y, rows_max, n, k);
}

enum status
llama_settle(struct llama *llama)
{
    const struct ops *ops = llama->config.ops;

    if (ops->settle == NULL) {
        return ST_OK;
    }
    TRY(use_product(llama, WEIGHT_QKV, BUF_H, BUF_QKV));
    TRY(use_product(llama, WEIGHT_ATTN_OUT, BUF_ATTN, BUF_DELTA));
    TRY(use_product(llama, WEIGHT_GATE_UP, BUF_H, BUF_GATE_UP));
    TRY(use_product(llama, WEIGHT_DOWN, BUF_FFN, BUF_DELTA));
    TRY(use_product(llama, WEIGHT_OUTPUT, BUF_H, BUF_LOGITS));
    TRY(ops->finish(ops));
    ops->settle(ops);
    return ST_OK;
}

/* Everything that is launched: from the ids to the logits. */
static enum status
run_layers(const struct llama *llama, const struct llama_step *step)
{
    const struct model_config *m = llama->config.model;

    TRY(embed(llama, step));
    for (uint32_t layer = 0; layer < m->L; layer++) {
        TRY(norm(llama, BUF_X, layer > 0, WEIGHT_ATTN_NORM, layer, step->n_rows));
        TRY(append(llama, step, layer));
        if (layer + 1 < m->L) {
            TRY(attend(llama, step, layer));
            TRY(finish_layer(llama, BUF_X, BUF_ATTN, layer, step->n_rows));
        }
    }
    return step->n_logits > 0 ? finish_model(llama, step) : ST_OK;
}

/* What the launches of a pure decode step depend on, memory's contents aside: an instance made anew
 * over the same operations may get some of its old addresses again, so all of them are in the key.
 */
static void
graph_key(const struct llama *llama, const struct llama_step *step,
          uint8_t key[OPS_GRAPH_KEY_BYTES])
{
    struct {
        const void *kv, *weights;
        const void *buffers[BUFFERS];
        uint32_t n_rows, n_logits;
    } parts = {
        .kv = llama->config.kv,
        .weights = llama->config.weights,
        .n_rows = step->n_rows,
        .n_logits = step->n_logits,
    };

    memcpy(parts.buffers, llama->buffers, sizeof(parts.buffers));
    static_assert(sizeof(parts) <= OPS_GRAPH_KEY_BYTES, "the key holds all of it");
    memset(key, 0, OPS_GRAPH_KEY_BYTES);
    memcpy(key, &parts, sizeof(parts));
}

enum status
llama_prepare(struct llama *llama, const struct llama_step *step)
{
    llama->prepared = 1 - llama->prepared;
    plan_partials(llama, step);
    TRY(send_step(llama, step));
    return begin_step(llama, step);
}

enum status
llama_launch(struct llama *llama, const struct llama_step *step)
{
    const struct ops *ops = llama->config.ops;
    enum ops_graph found = OPS_GRAPH_NONE;
    uint8_t key[OPS_GRAPH_KEY_BYTES];

    TRY(ops->upload(ops, llama->buffers[BUF_IDS], step->ids, step->n_rows * sizeof(uint32_t)));
    if (step->n_single == step->n_seqs && step->n_seqs > 0) {
        graph_key(llama, step, key);
        TRY(ops->graph_begin(ops, key, &found));
    }
    if (found == OPS_GRAPH_REPLAYED) {
        return ST_OK;
    }
    TRY(run_layers(llama, step));
    return found == OPS_GRAPH_RECORDING ? ops->graph_end(ops) : ST_OK;
}

enum status
llama_forward(struct llama *llama, const struct llama_step *step)
{
    TRY(llama_prepare(llama, step));
    return llama_launch(llama, step);
}
