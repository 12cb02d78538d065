/* SPDX-License-Identifier: Apache-2.0 */
/* What begin_step prepares travels as one copy: a pinned host buffer and its twin on the device
 * hold the step's segments, sequences, angle indices, items and merge lists at fixed offsets.  The
 * host buffer is written again only after `finish`, so the copy is never overtaken. */
#include "kernels/ops_cuda.h"

#include <assert.h>
#include <string.h>

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/attn_cuda.h"
#include "kernels/attn_plan.h"
#include "kernels/device/cuda_check.cuh"
#include "kernels/gemm_cuda.h"
#include "kernels/graph_cuda.h"

#define CTAS_PER_SM    2
#define ANGLES_PER_ROW 32   /* (row, segment) pairs a step may have, per row */
#define PARTIALS_MAX   8192 /* of split prefills */
#define PLAN_ALIGN     256

/* Offsets into the plan's buffers. */
struct plan_layout {
    size_t segs, prefill, decode, prefill_angles, decode_angles, items, merge_rows, merge_first,
        end;
};

struct cuda_state {
    struct ops_config config;
    int device;
    cudaStream_t stream;
    struct gemm_cuda *gemm;
    struct graph_cuda *graphs;
    uint32_t ctas; /* that run at once, for each key/value head */

    struct plan_layout at;
    uint32_t items_max;
    char *plan_host; /* pinned */
    char *plan;      /* its twin on the device */
    float *angles;   /* prefill sequences first, then decode */
    size_t angle_rows_max;
    float *partials; /* o, then ml */

    struct lazy_prefill_plan prefill;
    struct attn_angles decode_angles;
    uint32_t n_merge_rows;
};

static struct cuda_state *
state_of(const struct ops *ops)
{
    return ops->state;
}

static size_t
reserve(size_t *end, size_t bytes)
{
    size_t at = *end;

    *end = (at + bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

static struct plan_layout
lay_out_plan(const struct ops_config *config, uint32_t items_max)
{
    struct plan_layout at = {0};

    at.segs = reserve(&at.end, config->segs_max * sizeof(struct attn_segment));
    at.prefill = reserve(&at.end, config->seqs_max * sizeof(struct attn_seq));
    at.decode = reserve(&at.end, config->seqs_max * sizeof(struct attn_seq));
    at.prefill_angles = reserve(&at.end, config->seqs_max * sizeof(uint32_t));
    at.decode_angles = reserve(&at.end, config->seqs_max * sizeof(uint32_t));
    at.merge_rows = reserve(&at.end, config->rows_max * sizeof(uint32_t));
    at.merge_first = reserve(&at.end, (config->rows_max + 1) * sizeof(uint32_t));
    at.items =
        reserve(&at.end, items_max * sizeof(struct attn_item)); /* last: copied as far as used */
    return at;
}

static enum status
cuda_bind(const struct ops *ops)
{
    CU_TRY(cudaSetDevice(state_of(ops)->device));
    return ST_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

static enum status
cuda_alloc(const struct ops *ops, size_t bytes, void **memory_out)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);

    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return ERR(ST_NO_MEMORY, "device memory: %zu bytes not to be had", bytes);
    }
    if (error != cudaSuccess) { /* usually of an earlier call */
        return ERR(ST_DEVICE, "cudaMalloc of %zu bytes: %s", bytes, cudaGetErrorName(error));
    }
    error = cudaMemsetAsync(memory, 0, bytes, state_of(ops)->stream);
    if (error != cudaSuccess) {
        (void)cudaFree(memory);
        return ERR(ST_DEVICE, "cudaMemsetAsync of %zu bytes: %s", bytes, cudaGetErrorName(error));
    }
    *memory_out = memory;
    return ST_OK;
}

static void
cuda_release(const struct ops *ops, void *memory)
{
    (void)ops;
    if (memory != NULL) {
        (void)cudaFree(memory);
    }
}

static enum status
cuda_upload(const struct ops *ops, void *memory, const void *host, size_t bytes)
{
    CU_TRY(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, state_of(ops)->stream));
    return ST_OK;
}

static enum status
cuda_download(const struct ops *ops, void *host, const void *memory, size_t bytes)
{
    CU_TRY(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, state_of(ops)->stream));
    return ST_OK;
}

static enum status
cuda_finish(const struct ops *ops)
{
    CU_TRY(cudaStreamSynchronize(state_of(ops)->stream));
    return ST_OK;
}

/* --- begin_step ------------------------------------------------------------------------------ */

/* Fills the index of a list of sequences into the angle rows; returns the rows used so far. */
static size_t
index_angles(const struct attn_seq *seqs, uint32_t n_seqs, size_t rows, uint32_t *first)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        first[i] = (uint32_t)rows;
        rows += (size_t)seqs[i].n_rows * seqs[i].n_segs;
    }
    return rows;
}

static uint32_t
count_segments(const struct attn_step *step)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < step->n_prefill; i++) {
        uint32_t end = step->prefill[i].seg_first + step->prefill[i].n_segs;
        n = end > n ? end : n;
    }
    for (uint32_t i = 0; i < step->n_decode; i++) {
        uint32_t end = step->decode[i].seg_first + step->decode[i].n_segs;
        n = end > n ? end : n;
    }
    return n;
}

static enum status
launch_angles(struct cuda_state *state, const struct attn_step *step)
{
    struct attn_angles_args args = {
        .segs = (const void *)(state->plan + state->at.segs),
        .seqs = (const void *)(state->plan + state->at.prefill),
        .n_seqs = step->n_prefill,
        .inv_freq = step->inv_freq,
        .rope_scale = step->rope_scale,
        .D = step->layout.D,
        .angles = state->prefill.angles,
    };

    TRY(attn_angles_cuda(args, state->stream));
    args.seqs = (const void *)(state->plan + state->at.decode);
    args.n_seqs = step->n_decode;
    args.angles = state->decode_angles;
    return attn_angles_cuda(args, state->stream);
}

static enum status
check_step(const struct cuda_state *state, const struct attn_step *step, uint32_t n_segs)
{
    if (step->n_prefill > state->config.seqs_max || step->n_decode > state->config.seqs_max
        || n_segs > state->config.segs_max) {
        return ERR(ST_NO_MEMORY, "step of %u + %u sequences and %u segments, limits %u and %u",
                   step->n_prefill, step->n_decode, n_segs, state->config.seqs_max,
                   state->config.segs_max);
    }
    if (step->H != state->config.H || step->layout.Hkv != state->config.Hkv
        || step->layout.D != state->config.D) {
        return ERR(ST_INVALID, "step of %u/%u heads of %u, the instance was made for %u/%u of %u",
                   step->H, step->layout.Hkv, step->layout.D, state->config.H, state->config.Hkv,
                   state->config.D);
    }
    return ST_OK;
}

static enum status
cuda_begin_step(const struct ops *ops, struct attn_step step)
{
    struct cuda_state *state = state_of(ops);
    const struct plan_layout *at = &state->at;
    const uint32_t n_segs = count_segments(&step);
    struct attn_plan plan = {
        .items = (void *)(state->plan_host + at->items),
        .items_max = state->items_max,
        .merge_rows = (void *)(state->plan_host + at->merge_rows),
        .merge_first = (void *)(state->plan_host + at->merge_first),
        .merge_rows_max = state->config.rows_max,
        .partials_max = PARTIALS_MAX,
    };
    size_t rows;

    TRY(check_step(state, &step, n_segs));
    rows = index_angles(step.prefill, step.n_prefill, 0,
                        (void *)(state->plan_host + at->prefill_angles));
    rows = index_angles(step.decode, step.n_decode, rows,
                        (void *)(state->plan_host + at->decode_angles));
    if (rows > state->angle_rows_max) {
        return ERR(ST_NO_MEMORY, "step of %zu (row, segment) pairs, limit %zu", rows,
                   state->angle_rows_max);
    }
    memcpy(state->plan_host + at->segs, step.segs, n_segs * sizeof(step.segs[0]));
    memcpy(state->plan_host + at->prefill, step.prefill, step.n_prefill * sizeof(step.prefill[0]));
    memcpy(state->plan_host + at->decode, step.decode, step.n_decode * sizeof(step.decode[0]));
    TRY(attn_plan_prefill(&step, state->ctas, &plan));
    CU_TRY(cudaMemcpyAsync(state->plan, state->plan_host,
                           at->items + plan.n_items * sizeof(struct attn_item),
                           cudaMemcpyHostToDevice, state->stream));
    state->prefill = (struct lazy_prefill_plan){
        .angles = {state->angles, (const void *)(state->plan + at->prefill_angles)},
        .items = (const void *)(state->plan + at->items),
        .n_items = plan.n_items,
        .o = state->partials,
        .ml = state->partials + (size_t)PARTIALS_MAX * step.H * step.layout.D,
    };
    state->decode_angles =
        (struct attn_angles){state->angles, (const void *)(state->plan + at->decode_angles)};
    state->n_merge_rows = plan.n_merge_rows;
    return launch_angles(state, &step);
}

static enum status
cuda_graph_begin(const struct ops *ops, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                 enum ops_graph *found_out)
{
    return graph_cuda_begin(state_of(ops)->graphs, key, state_of(ops)->stream, found_out);
}

static enum status
cuda_graph_end(const struct ops *ops)
{
    return graph_cuda_end(state_of(ops)->graphs, state_of(ops)->stream);
}

/* --- operations ------------------------------------------------------------------------------ */

static enum status
cuda_embed(const struct ops *ops, struct embed_args args)
{
    return embed_cuda(args, state_of(ops)->stream);
}

static enum status
cuda_rmsnorm(const struct ops *ops, struct rmsnorm_args args)
{
    return rmsnorm_cuda(args, state_of(ops)->stream);
}

static enum status
cuda_gemm(const struct ops *ops, struct gemm_args args)
{
    return gemm_cuda_run(state_of(ops)->gemm, args, state_of(ops)->stream);
}

static enum status
cuda_rope_append(const struct ops *ops, struct rope_append_args args)
{
    return rope_append_cuda(args, state_of(ops)->stream);
}

static enum status
cuda_attn_merge(const struct ops *ops, struct attn_merge_args args)
{
    return attn_merge_cuda(args, state_of(ops)->stream);
}

static enum status
cuda_lazy_prefill(const struct ops *ops, struct lazy_prefill_args args)
{
    const struct cuda_state *state = state_of(ops);

    TRY(lazy_prefill_cuda(args, state->prefill, state->stream));
    if (state->n_merge_rows == 0) {
        return ST_OK;
    }
    return attn_merge_cuda(
        (struct attn_merge_args){
            .o = state->prefill.o,
            .ml = state->prefill.ml,
            .partial_first = (const void *)(state->plan + state->at.merge_first),
            .row_ids = (const void *)(state->plan + state->at.merge_rows),
            .out = args.out,
            .n_rows = state->n_merge_rows,
            .H = args.desc.H,
            .D = args.desc.layout.D,
        },
        state->stream);
}

static enum status
cuda_lazy_decode(const struct ops *ops, struct lazy_decode_args args)
{
    return lazy_decode_cuda(args, state_of(ops)->decode_angles, state_of(ops)->stream);
}

static enum status
cuda_swiglu(const struct ops *ops, struct swiglu_args args)
{
    return swiglu_cuda(args, state_of(ops)->stream);
}

static enum status
cuda_sample(const struct ops *ops, struct sample_args args)
{
    return sample_cuda(args, state_of(ops)->stream);
}

/* --- life ------------------------------------------------------------------------------------ */

static void
cuda_destroy(struct ops *ops)
{
    struct cuda_state *state = state_of(ops);

    if (state != NULL) {
        /* Cleanup goes on whatever fails: a device error has been reported by the call that met it.
         */
        graph_cuda_destroy(&state->graphs);
        gemm_cuda_destroy(&state->gemm);
        (void)cudaFree(state->partials);
        (void)cudaFree(state->angles);
        (void)cudaFree(state->plan);
        (void)cudaFreeHost(state->plan_host);
        if (state->stream != NULL) {
            (void)cudaStreamDestroy(state->stream);
        }
        mem_free(state);
    }
    mem_free(ops);
}

/* ST_UNAVAILABLE unless the current device can run the kernels. */
static enum status
check_device(uint32_t *sm_count_out)
{
    int count = 0;
    int device = 0;
    int major = 0;
    int sms = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return ERR(ST_UNAVAILABLE, "no CUDA device");
    }
    CU_TRY(cudaGetDevice(&device));
    CU_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CU_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    if (major < 8) {
        return ERR(ST_UNAVAILABLE, "device %d has compute capability %d.x, 8.0 is needed", device,
                   major);
    }
    *sm_count_out = (uint32_t)sms;
    return ST_OK;
}

static enum status
state_init(struct cuda_state *state, const struct ops_config *config, uint32_t sm_count)
{
    const size_t partial_floats = (size_t)PARTIALS_MAX * config->H * (config->D + 2);
    const uint32_t group = config->H / config->Hkv;

    state->config = *config;
    CU_TRY(cudaGetDevice(&state->device));
    state->ctas = (sm_count * CTAS_PER_SM + config->Hkv - 1) / config->Hkv;
    state->items_max = attn_plan_items_max(config->rows_max, config->seqs_max, group, state->ctas);
    state->at = lay_out_plan(config, state->items_max);
    state->angle_rows_max = (size_t)config->rows_max * ANGLES_PER_ROW;
    CU_TRY(cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking));
    CU_TRY(cudaMallocHost((void **)&state->plan_host, state->at.end));
    CU_TRY(cudaMalloc((void **)&state->plan, state->at.end));
    CU_TRY(cudaMalloc((void **)&state->angles, state->angle_rows_max * config->D * sizeof(float)));
    CU_TRY(cudaMalloc((void **)&state->partials, partial_floats * sizeof(float)));
    TRY(gemm_cuda_new(&state->gemm));
    return graph_cuda_new(&state->graphs);
}

enum status
ops_cuda_new(struct ops_config config, struct ops **ops_out)
{
    struct ops *ops = NULL;
    struct cuda_state *state;
    uint32_t sm_count;
    enum status st = ST_NO_MEMORY;

    if (config.H == 0 || config.Hkv == 0 || config.H % config.Hkv != 0
        || (config.D != 64 && config.D != 128) || config.rows_max == 0 || config.seqs_max == 0
        || config.segs_max == 0) {
        return ERR(ST_INVALID,
                   "operations for %u/%u heads of %u, %u rows, %u sequences, %u segments", config.H,
                   config.Hkv, config.D, config.rows_max, config.seqs_max, config.segs_max);
    }
    TRY(check_device(&sm_count));
    ops = mem_zalloc(1, sizeof(*ops));
    state = mem_zalloc(1, sizeof(*state));
    if (ops == NULL || state == NULL) {
        mem_free(state);
        mem_free(ops);
        return ERR(ST_NO_MEMORY, "operations table");
    }
    *ops = (struct ops){
        .name = "cuda",
        .activation_bytes = 2,
        .state = state,
        .bind = cuda_bind,
        .alloc = cuda_alloc,
        .release = cuda_release,
        .upload = cuda_upload,
        .download = cuda_download,
        .finish = cuda_finish,
        .begin_step = cuda_begin_step,
        .graph_begin = cuda_graph_begin,
        .graph_end = cuda_graph_end,
        .embed = cuda_embed,
        .rmsnorm = cuda_rmsnorm,
        .gemm = cuda_gemm,
        .rope_append = cuda_rope_append,
        .lazy_prefill = cuda_lazy_prefill,
        .lazy_decode = cuda_lazy_decode,
        .attn_merge = cuda_attn_merge,
        .swiglu = cuda_swiglu,
        .sample = cuda_sample,
        .destroy = cuda_destroy,
    };
    st = state_init(state, &config, sm_count);
    if (st != ST_OK) {
        cuda_destroy(ops);
        return st;
    }
    *ops_out = ops;
    return ST_OK;
}
