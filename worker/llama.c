/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/llama.h"

#include <assert.h>
#include <math.h>

#include "common/mem.h"

struct llama {
    struct llama_config config;
    struct attn_desc desc; /* what all attention calls share; the step's part is filled per step */

    /* Activations, [rows_max, ...]. */
    float *x;       /* C: the residual stream */
    float *delta;   /* C: what the last block adds to it */
    float *h;       /* C: normed */
    float *qkv;     /* (H + 2 Hkv) D */
    float *q;       /* H D, raw */
    float *attn;    /* H D */
    float *gate_up; /* 2F */
    float *ffn;     /* F */

    /* Of the rows that want logits, [logits_max, ...]. */
    float *x_last;    /* C */
    float *attn_last; /* H D */
    float *logits;    /* V */

    /* Partial results of single-row sequences; grown by llama_reserve. */
    float *o;                /* [partials_max, H, D] */
    float *ml;               /* [partials_max, H, 2] */
    uint32_t *partial_first; /* [singles_max + 1] */
    uint32_t partials_max;
    uint32_t singles_max;
};

static const void *
weight_at(const struct llama *llama, enum weight kind, uint32_t layer)
{
    return (const char *)llama->config.weights + weights_offset(llama->config.plan, kind, layer);
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
    if (config->plan->type != WEIGHT_F32) {
        return ERR(ST_INVALID, "weights of type %d: the %s operations read float32",
                   (int)config->plan->type, config->ops->name);
    }
    if (config->rows_max == 0 || config->logits_max == 0 || config->logits_max > config->rows_max) {
        return ERR(ST_INVALID, "step of %u rows, %u with logits: both must be at least 1, in order",
                   config->rows_max, config->logits_max);
    }
    return ST_OK;
}

static enum status
allocate_buffers(struct llama *llama)
{
    const struct model_config *m = llama->config.model;
    size_t rows = llama->config.rows_max;
    size_t last = llama->config.logits_max;
    struct {
        float **buffer;
        size_t rows;
        size_t width;
    } wanted[] = {
        {&llama->x, rows, m->C},
        {&llama->delta, rows, m->C},
        {&llama->h, rows, m->C},
        {&llama->qkv, rows, (size_t)(m->H + 2 * m->Hkv) * m->D},
        {&llama->q, rows, (size_t)m->H * m->D},
        {&llama->attn, rows, (size_t)m->H * m->D},
        {&llama->gate_up, rows, 2 * (size_t)m->F},
        {&llama->ffn, rows, m->F},
        {&llama->x_last, last, m->C},
        {&llama->attn_last, last, (size_t)m->H * m->D},
        {&llama->logits, last, m->V},
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        *wanted[i].buffer = mem_zalloc(wanted[i].rows, wanted[i].width * sizeof(float));
        if (*wanted[i].buffer == NULL) {
            return ERR(ST_NO_MEMORY, "activations of %zu rows of %zu", wanted[i].rows,
                       wanted[i].width);
        }
    }
    return ST_OK;
}

enum status
llama_new(const struct llama_config *config, struct llama **llama_out)
{
    enum status st = check_config(config);
    struct llama *llama = NULL;

    if (st != ST_OK) {
        return st;
    }
    llama = mem_zalloc(1, sizeof(*llama));
    if (llama == NULL) {
        return ERR(ST_NO_MEMORY, "llama");
    }
    llama->config = *config;
    llama->desc = (struct attn_desc){
        .kv = config->kv,
        .layout = config->layout,
        .n_blocks = config->block_count,
        .H = config->model->H,
        .inv_freq = config->model->inv_freq,
        .rope_scale = config->model->rope_scale,
        .scale = (float)(1.0 / sqrt((double)config->model->D)),
    };
    st = allocate_buffers(llama);
    if (st == ST_OK) {
        st = llama_reserve(llama, 1, 1);
    }
    if (st != ST_OK) {
        llama_destroy(&llama);
        return st;
    }
    *llama_out = llama;
    return ST_OK;
}

void
llama_destroy(struct llama **llama)
{
    struct llama *l = *llama;

    if (l == NULL) {
        return;
    }
    float *buffers[] = {l->x,   l->delta,  l->h,         l->qkv,    l->q, l->attn, l->gate_up,
                        l->ffn, l->x_last, l->attn_last, l->logits, l->o, l->ml};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        mem_free(buffers[i]);
    }
    mem_free(l->partial_first);
    MEM_FREE(*llama);
}

/* Contents are of one layer only, so nothing is copied: the old storage goes first. */
static enum status
grow_floats(float **buffer, size_t count, size_t width)
{
    float *grown = mem_zalloc(count, width * sizeof(float));

    if (grown == NULL) {
        return ERR(ST_NO_MEMORY, "%zu partial attention results", count);
    }
    mem_free(*buffer);
    *buffer = grown;
    return ST_OK;
}

enum status
llama_reserve(struct llama *llama, uint32_t singles, uint32_t partials)
{
    const struct model_config *m = llama->config.model;

    if (singles > llama->singles_max) {
        uint32_t *grown = mem_realloc(llama->partial_first, (size_t)singles + 1, sizeof(uint32_t));

        if (grown == NULL) {
            return ERR(ST_NO_MEMORY, "%u decoding sequences", singles);
        }
        llama->partial_first = grown;
        llama->singles_max = singles;
    }
    if (partials > llama->partials_max) {
        llama->partials_max = 0;
        TRY(grow_floats(&llama->o, partials, (size_t)m->H * m->D));
        TRY(grow_floats(&llama->ml, partials, (size_t)m->H * 2));
        llama->partials_max = partials;
    }
    return ST_OK;
}

static enum status
matmul(const struct llama *llama, const float *x, enum weight kind, uint32_t layer, float *y,
       uint32_t rows, uint32_t n, uint32_t k)
{
    const struct ops *ops = llama->config.ops;

    return ops->gemm(
        ops, (struct gemm_args){
                 .x = x, .w = weight_at(llama, kind, layer), .y = y, .M = rows, .N = n, .K = k});
}

/* x += delta (NULL: nothing to add); h = norm(x). */
static enum status
norm(const struct llama *llama, float *x, const float *delta, enum weight kind, uint32_t layer,
     uint32_t rows)
{
    const struct ops *ops = llama->config.ops;

    return ops->rmsnorm(ops, (struct rmsnorm_args){.x = x,
                                                   .delta = delta,
                                                   .weight = weight_at(llama, kind, layer),
                                                   .out = llama->h,
                                                   .T = rows,
                                                   .C = llama->config.model->C,
                                                   .eps = llama->config.model->rms_eps});
}

/* Rows of `table` in the order of `rows`: what embed does, over activations. */
static enum status
gather(const struct llama *llama, const float *table, uint32_t table_rows, const uint32_t *rows,
       uint32_t n_rows, uint32_t width, float *out)
{
    const struct ops *ops = llama->config.ops;

    return ops->embed(
        ops,
        (struct embed_args){
            .table = table, .ids = rows, .out = out, .T = n_rows, .C = width, .V = table_rows});
}

/* K and V of all rows of the step go to their blocks; raw Q is gathered. */
static enum status
append(const struct llama *llama, const struct llama_step *step, uint32_t layer)
{
    const struct ops *ops = llama->config.ops;
    const struct model_config *m = llama->config.model;

    TRY(matmul(llama, llama->h, WEIGHT_QKV, layer, llama->qkv, step->n_rows,
               (m->H + 2 * m->Hkv) * m->D, m->C));
    return ops->rope_append(ops, (struct rope_append_args){.qkv = llama->qkv,
                                                           .q_out = llama->q,
                                                           .kv = llama->config.kv,
                                                           .layout = llama->config.layout,
                                                           .layer = layer,
                                                           .n_blocks = llama->config.block_count,
                                                           .row_block = step->row_block,
                                                           .row_slot = step->row_slot,
                                                           .row_pos = step->row_pos,
                                                           .inv_freq = m->inv_freq,
                                                           .rope_scale = m->rope_scale,
                                                           .T = step->n_rows,
                                                           .H = m->H});
}

static enum status
attend(const struct llama *llama, const struct llama_step *step, uint32_t layer)
{
    const struct ops *ops = llama->config.ops;
    struct attn_desc desc = llama->desc;

    desc.layer = layer;
    desc.block_ids = step->block_ids;
    desc.segs = step->segs;
    if (step->n_single > 0) {
        desc.seqs = step->seqs;
        desc.n_seqs = step->n_single;
        TRY(ops->lazy_decode(ops,
                             (struct lazy_decode_args){.desc = desc,
                                                       .q = llama->q,
                                                       .o = llama->o,
                                                       .ml = llama->ml,
                                                       .partial_first = llama->partial_first}));
        TRY(ops->attn_merge(ops, (struct attn_merge_args){.o = llama->o,
                                                          .ml = llama->ml,
                                                          .partial_first = llama->partial_first,
                                                          .out = llama->attn,
                                                          .n_rows = step->n_single,
                                                          .H = desc.H,
                                                          .D = desc.layout.D}));
    }
    if (step->n_seqs > step->n_single) {
        desc.seqs = step->seqs + step->n_single;
        desc.n_seqs = step->n_seqs - step->n_single;
        TRY(ops->lazy_prefill(
            ops, (struct lazy_prefill_args){.desc = desc, .q = llama->q, .out = llama->attn}));
    }
    return ST_OK;
}

/* From attention's output to the end of the layer; leaves what is to be added to x in `delta`. */
static enum status
finish_layer(const struct llama *llama, float *x, const float *attn, uint32_t layer, uint32_t rows)
{
    const struct ops *ops = llama->config.ops;
    const struct model_config *m = llama->config.model;

    TRY(matmul(llama, attn, WEIGHT_ATTN_OUT, layer, llama->delta, rows, m->C, m->H * m->D));
    TRY(norm(llama, x, llama->delta, WEIGHT_FFN_NORM, layer, rows));
    TRY(matmul(llama, llama->h, WEIGHT_GATE_UP, layer, llama->gate_up, rows, 2 * m->F, m->C));
    TRY(ops->swiglu(ops, (struct swiglu_args){
                             .gate_up = llama->gate_up, .out = llama->ffn, .T = rows, .F = m->F}));
    return matmul(llama, llama->ffn, WEIGHT_DOWN, layer, llama->delta, rows, m->C, m->F);
}

static void
plan_partials(struct llama *llama, const struct llama_step *step)
{
    uint32_t n = 0;

    assert(step->n_single <= llama->singles_max);
    for (uint32_t i = 0; i < step->n_single; i++) {
        assert(step->seqs[i].n_rows == 1 && step->seqs[i].row_first == i);
        llama->partial_first[i] = n;
        n += lazy_decode_partials(&step->seqs[i], step->segs);
    }
    llama->partial_first[step->n_single] = n;
    assert(n <= llama->partials_max);
}

enum status
llama_forward(struct llama *llama, const struct llama_step *step, const float **logits_out)
{
    const struct model_config *m = llama->config.model;
    const float *delta = NULL;

    assert(step->n_rows <= llama->config.rows_max);
    assert(step->n_logits <= llama->config.logits_max);
    plan_partials(llama, step);
    TRY(gather(llama, weight_at(llama, WEIGHT_EMBED, 0), m->V, step->ids, step->n_rows, m->C,
               llama->x));
    for (uint32_t layer = 0; layer < m->L; layer++) {
        TRY(norm(llama, llama->x, delta, WEIGHT_ATTN_NORM, layer, step->n_rows));
        TRY(append(llama, step, layer));
        if (layer + 1 == m->L) {
            break;
        }
        TRY(attend(llama, step, layer));
        TRY(finish_layer(llama, llama->x, llama->attn, layer, step->n_rows));
        delta = llama->delta;
    }
    if (step->n_logits > 0) {
        TRY(attend(llama, step, m->L - 1));
        TRY(gather(llama, llama->x, step->n_rows, step->logit_rows, step->n_logits, m->C,
                   llama->x_last));
        TRY(gather(llama, llama->attn, step->n_rows, step->logit_rows, step->n_logits, m->H * m->D,
                   llama->attn_last));
        TRY(finish_layer(llama, llama->x_last, llama->attn_last, m->L - 1, step->n_logits));
        TRY(norm(llama, llama->x_last, llama->delta, WEIGHT_OUT_NORM, 0, step->n_logits));
        TRY(matmul(llama, llama->h, WEIGHT_OUTPUT, 0, llama->logits, step->n_logits, m->V, m->C));
    }
    *logits_out = llama->logits;
    return ST_OK;
}
