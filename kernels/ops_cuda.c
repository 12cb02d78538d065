/* SPDX-License-Identifier: Apache-2.0 */
/* What begin_step prepares travels with the step's other inputs (host_copy): a pinned host buffer
 * and its twin on the device hold segments, sequences, angle indices, items and merge lists at
 * fixed offsets.  There are two host buffers, taken in turn, so that a step is prepared while the
 * one before runs; each is written again only after its last copy. */
#include "kernels/ops_cuda.h"

#include <assert.h>
#include <string.h>

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/attn_cuda.h"
#include "kernels/attn_merge.h"
#include "kernels/attn_plan.h"
#include "kernels/attn_step.h"
#include "kernels/cuda_device.h"
#include "kernels/decode_cuda.h"
#include "kernels/device/cuda_check.cuh"
#include "kernels/gemm_cuda.h"
#include "kernels/gemm_few.h"
#include "kernels/graph_cuda.h"
#include "kernels/host_copy.h"
#include "kernels/plan_buffer.h"
#include "kernels/prefill_cuda.h"

#define ANGLES_PER_ROW 32         /* (row, segment) pairs a step may have, per row, */
#define ANGLES_MIN     (1u << 16) /* and at least */
#define PARTIALS_MAX   8192       /* of the split prefills of a step, and of its decodes as well */
#define PREFILL_ROWS   64         /* packed rows of a CTA of lazy_prefill */
#define DECODE_ROWS    16         /* and of lazy_decode */
#define DECODE_TILES   16         /* of 64 keys for one of its CTAs, where there is work enough */

/* The two kinds of attention of a step. */
enum part {
    PREFILL,
    DECODE,
    PARTS,
};

/* Offsets into the plan's buffers. */
struct plan_layout {
    size_t segs;
    struct {
        size_t seqs, angles, merge_rows, merge_first, items;
    } part[PARTS];
    size_t end;
};

struct cuda_state {
    struct ops_config config;
    int device;
    cudaStream_t stream;
    struct gemm_cuda *gemm;
    uint32_t few_sms; /* multiprocessors for gemm_few; 0: not here */
    struct graph_cuda *graphs;
    uint32_t ctas[PARTS]; /* to be filled at once, for each key/value head */

    struct host_copies copies; /* uploads that go with the next thing that is enqueued */
    struct plan_layout at;
    uint32_t items_max[PARTS];
    char *plan_hosts[2];   /* pinned */
    cudaEvent_t copied[2]; /* the last copy of each */
    uint32_t slot;
    char *plan_host; /* that of this step */
    char *plan;      /* its twin on the device */
    cudaEvent_t marked;
    float *angles; /* of one kind of attention after the other */
    size_t angle_rows_max;
    float *partials; /* o, then ml; of one kind of attention after the other, in order */
    uint32_t partials_max;

    struct attn_device_plan device_plan[PARTS]; /* of this step */
    uint32_t n_merge_rows[PARTS];
    struct decode_cuda *decode;          /* NULL: lazy_decode takes the portable kernel, always */
    bool is_decode_planned;              /* by `decode`, in this step */
    uint32_t n_own;                      /* decodes of this step, */
    uint32_t n_moved;                    /* and rows of queries that go along */
    struct prefill_cuda *prefill[PARTS]; /* lazy_prefill of sm_90a; NULL: the portable kernels */
};

static struct cuda_state *
state_of(const struct ops *ops)
{
    return ops->state;
}

static struct plan_layout
lay_out_plan(const struct ops_config *config, const uint32_t items_max[PARTS])
{
    struct plan_layout at = {0};

    at.segs = plan_reserve(&at.end, config->segs_max * sizeof(struct attn_segment));
    for (int k = 0; k < PARTS; k++) {
        uint32_t seqs = k == DECODE ? decode_cuda_rows_max(config) : config->seqs_max;

        at.part[k].seqs = plan_reserve(&at.end, seqs * sizeof(struct attn_seq));
        at.part[k].angles = plan_reserve(&at.end, seqs * sizeof(uint32_t));
        at.part[k].merge_rows = plan_reserve(&at.end, config->rows_max * sizeof(uint32_t));
        at.part[k].merge_first = plan_reserve(&at.end, (config->rows_max + 1) * sizeof(uint32_t));
        at.part[k].items = plan_reserve(&at.end, items_max[k] * sizeof(struct attn_item));
    }
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
    return cuda_device_alloc(bytes, state_of(ops)->stream, memory_out);
}

/* What was uploaded goes ahead of all that is enqueued from now on. */
static enum status
send_copies(const struct ops *ops)
{
    return host_copies_send(&state_of(ops)->copies, state_of(ops)->stream);
}

static enum status
cuda_upload(const struct ops *ops, void *memory, const void *host, size_t bytes)
{
    cudaStream_t stream = state_of(ops)->stream;

    if (host_copy_serves(host, memory, bytes)) {
        return host_copies_add(&state_of(ops)->copies, memory, host, bytes, stream);
    }
    TRY(send_copies(ops));
    CU_TRY(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, stream));
    return ST_OK;
}

static enum status
cuda_download(const struct ops *ops, void *host, const void *memory, size_t bytes)
{
    cudaStream_t stream = state_of(ops)->stream;

    if (host_copy_serves(host, memory, bytes)) {
        return host_copies_add(&state_of(ops)->copies, host, memory, bytes, stream);
    }
    TRY(send_copies(ops));
    CU_TRY(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, stream));
    return ST_OK;
}

static enum status
cuda_fill(const struct ops *ops, void *memory, int byte, size_t bytes)
{
    TRY(send_copies(ops));
    CU_TRY(cudaMemsetAsync(memory, byte, bytes, state_of(ops)->stream));
    return ST_OK;
}

static enum status
cuda_finish(const struct ops *ops)
{
    TRY(send_copies(ops));
    CU_TRY(cudaStreamSynchronize(state_of(ops)->stream));
    return ST_OK;
}

static enum status
cuda_mark(const struct ops *ops)
{
    TRY(send_copies(ops));
    CU_TRY(cudaEventRecord(state_of(ops)->marked, state_of(ops)->stream));
    return ST_OK;
}

static enum status
cuda_wait(const struct ops *ops)
{
    CU_TRY(cudaEventSynchronize(state_of(ops)->marked));
    return ST_OK;
}

/* --- begin_step ------------------------------------------------------------------------------ */

static enum status
send_plan(struct cuda_state *state, size_t from, size_t bytes)
{
    return host_copies_add(&state->copies, state->plan + from, state->plan_host + from, bytes,
                           state->stream);
}

/* Deterministic: all rows go through the kernel of lazy_prefill, since lazy_decode sums in another
 * order. */
static uint32_t
tile_rows(const struct cuda_state *state, enum part part)
{
    return part == DECODE && !state->config.is_deterministic ? DECODE_ROWS : PREFILL_ROWS;
}

/* Gives each (row, segment) pair of some sequences its row of angles. */
static enum status
number_angles(const struct cuda_state *state, const struct attn_seq *seqs, uint32_t n_seqs,
              uint32_t *angle_first, size_t *angle_rows)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        angle_first[i] = (uint32_t)*angle_rows;
        *angle_rows += (size_t)seqs[i].n_rows * seqs[i].n_segs;
    }
    if (*angle_rows > state->angle_rows_max) {
        return ERR(ST_NO_MEMORY, "step of %zu (row, segment) pairs, limit %zu", *angle_rows,
                   state->angle_rows_max);
    }
    return ST_OK;
}

static enum status
compute_angles(struct cuda_state *state, const struct attn_step *step, enum part part,
               uint32_t n_seqs)
{
    const char *at = state->plan;

    TRY(host_copies_send(&state->copies, state->stream));
    return attn_angles_cuda(
        (struct attn_angles_args){
            .segs = (const void *)(at + state->at.segs),
            .seqs = (const void *)(at + state->at.part[part].seqs),
            .n_seqs = n_seqs,
            .inv_freq = step->inv_freq,
            .rope_scale = step->rope_scale,
            .D = step->layout.D,
            .angles = {state->angles, (const void *)(at + state->at.part[part].angles)}},
        state->stream);
}

/* One kind of attention by the planner of its own kernel; ST_NO_MEMORY: too much for it. */
static enum status
begin_planned(struct cuda_state *state, const struct attn_step *step, enum part part,
              const struct attn_seq *seqs, uint32_t n_seqs, size_t *angle_rows)
{
    const size_t seqs_at = state->at.part[part].seqs;
    const size_t angles_at = state->at.part[part].angles;
    uint32_t *angle_first = (void *)(state->plan_host + angles_at);
    size_t rows = *angle_rows;

    TRY(number_angles(state, seqs, n_seqs, angle_first, &rows));
    if (state->prefill[part] != NULL) {
        TRY(prefill_cuda_begin(state->prefill[part], step, seqs, n_seqs, angle_first, state->angles,
                               state->slot, &state->copies, state->stream));
    } else {
        TRY(decode_cuda_begin(state->decode, step, angle_first, state->angles, state->slot,
                              &state->copies, state->stream));
        state->is_decode_planned = true;
    }
    *angle_rows = rows;
    memcpy(state->plan_host + seqs_at, seqs, n_seqs * sizeof(seqs[0]));
    TRY(send_plan(state, seqs_at, n_seqs * sizeof(seqs[0])));
    TRY(send_plan(state, angles_at, n_seqs * sizeof(angle_first[0])));
    return compute_angles(state, step, part, n_seqs);
}

/* Plans one kind of attention, sends the plan and computes its angles from row *angle_rows on. */
static enum status
begin_part(struct cuda_state *state, const struct attn_step *step, enum part part,
           const struct attn_seq *seqs, uint32_t n_seqs, size_t *angle_rows)
{
    const size_t seqs_at = state->at.part[part].seqs;
    uint32_t *angle_first = (void *)(state->plan_host + state->at.part[part].angles);

    if (state->prefill[part] != NULL) {
        return begin_planned(state, step, part, seqs, n_seqs, angle_rows);
    }
    struct attn_plan plan = {
        .items = (void *)(state->plan_host + state->at.part[part].items),
        .items_max = state->items_max[part],
        .merge_rows = (void *)(state->plan_host + state->at.part[part].merge_rows),
        .merge_first = (void *)(state->plan_host + state->at.part[part].merge_first),
        .merge_rows_max = state->config.rows_max,
        .partials_max = state->partials_max,
    };

    TRY(attn_plan_make(&(struct attn_plan_work){.seqs = seqs,
                                                .n_seqs = n_seqs,
                                                .segs = step->segs,
                                                .group = step->H / step->layout.Hkv,
                                                .tile_rows = tile_rows(state, part),
                                                .is_fixed = state->config.is_deterministic,
                                                .ctas = state->ctas[part],
                                                .wave_tiles = part == DECODE ? DECODE_TILES : 0},
                       &plan));
    TRY(number_angles(state, seqs, n_seqs, angle_first, angle_rows));
    if (n_seqs > 0) {
        memcpy(state->plan_host + seqs_at, seqs, n_seqs * sizeof(seqs[0]));
        TRY(send_plan(state, seqs_at,
                      state->at.part[part].items + plan.n_items * sizeof(plan.items[0]) - seqs_at));
    }
    state->n_merge_rows[part] = plan.n_merge_rows;
    state->device_plan[part] = (struct attn_device_plan){
        .angles = {state->angles, (const void *)(state->plan + state->at.part[part].angles)},
        .items = (const void *)(state->plan + state->at.part[part].items),
        .n_items = n_seqs > 0 ? plan.n_items : 0,
        .o = state->partials,
        .ml = state->partials + (size_t)state->partials_max * step->H * step->layout.D,
    };
    return compute_angles(state, step, part, n_seqs);
}

/* The decodes by their own kernel, with short queries that go along: those leave step->prefill.  A
 * step that is too much for it is left to the portable kernel. */
static enum status
begin_decode(struct cuda_state *state, struct attn_step *step, size_t *angle_rows)
{
    struct attn_step tries[] = {*step, *step}; /* the second as it was */
    enum status st = ST_NO_MEMORY;

    state->is_decode_planned = false;
    state->n_own = step->n_decode;
    state->n_moved = 0;
    for (int i = decode_cuda_split(state->decode, &tries[0]) ? 0 : 1; i < 2; i++) {
        const struct attn_step *try = &tries[i];

        if (st == ST_NO_MEMORY && state->decode != NULL && try->n_decode > 0) {
            st = begin_planned(state, try, DECODE, try->decode, try->n_decode, angle_rows);
            if (st == ST_OK) {
                state->n_moved = try->n_decode - state->n_own;
                *step = *try;
            }
        }
    }
    return st == ST_NO_MEMORY ? ST_OK : st;
}

static enum status
cuda_begin_step(const struct ops *ops, struct attn_step step)
{
    struct cuda_state *state = state_of(ops);
    uint32_t n_segs;
    size_t angle_rows = 0;

    TRY(attn_step_check(&step, &state->config, &n_segs));
    state->slot = 1 - state->slot;
    state->plan_host = state->plan_hosts[state->slot];
    CU_TRY(cudaEventSynchronize(state->copied[state->slot])); /* long past, as a rule */
    memcpy(state->plan_host + state->at.segs, step.segs, n_segs * sizeof(step.segs[0]));
    TRY(send_plan(state, state->at.segs, n_segs * sizeof(step.segs[0])));
    TRY(begin_decode(state, &step, &angle_rows));
    TRY(begin_part(state, &step, PREFILL, step.prefill, step.n_prefill, &angle_rows));
    if (!state->is_decode_planned) {
        TRY(begin_part(state, &step, DECODE, step.decode, step.n_decode, &angle_rows));
    }
    CU_TRY(cudaEventRecord(state->copied[state->slot], state->stream));
    return ST_OK;
}

static enum status
cuda_graph_begin(const struct ops *ops, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                 enum ops_graph *found_out)
{
    const struct cuda_state *state = state_of(ops);
    /* The launches depend on the plan's counts as well. */
    uint32_t counts[] = {state->device_plan[DECODE].n_items, state->n_merge_rows[DECODE]};

    if (state->is_decode_planned) {
        counts[0] = decode_cuda_shape(state->decode);
        counts[1] = UINT32_MAX;
    } else if (state->prefill[DECODE] != NULL) {
        counts[0] = prefill_cuda_shape(state->prefill[DECODE]);
    }
    TRY(send_copies(ops));
    return graph_cuda_begin(state->graphs, key, counts, state->stream, found_out);
}

static enum status
cuda_graph_end(const struct ops *ops)
{
    return graph_cuda_end(state_of(ops)->graphs, state_of(ops)->stream);
}

/* --- operations ------------------------------------------------------------------------------ */

/* An operation that is one kernel, and the entry of the table. */
#define STREAM_OPERATION(op)                                                                       \
    static enum status cuda_##op(const struct ops *ops, struct op##_args args)                     \
    {                                                                                              \
        TRY(send_copies(ops));                                                                     \
        return op##_cuda(args, state_of(ops)->stream);                                             \
    }

STREAM_OPERATION(embed)
STREAM_OPERATION(rmsnorm)
STREAM_OPERATION(rope_append)
STREAM_OPERATION(rope_copy)
STREAM_OPERATION(kv_checksum)
STREAM_OPERATION(kv_compare)
STREAM_OPERATION(swiglu)
STREAM_OPERATION(sample)

static enum status
cuda_gemm(const struct ops *ops, struct gemm_args args)
{
    const struct cuda_state *state = state_of(ops);

    TRY(send_copies(ops));
    if (state->few_sms > 0 && gemm_few_serves(args)) {
        return gemm_few_run(args, state->few_sms, state->stream);
    }
    return gemm_cuda_run(state->gemm, args, state->stream);
}

static void
cuda_settle(const struct ops *ops)
{
    gemm_cuda_settle(state_of(ops)->gemm);
}

static const void *
cuda_tuning(const struct ops *ops, size_t *bytes_out)
{
    return gemm_cuda_tuning(state_of(ops)->gemm, bytes_out);
}

/* Joins the partials of one kind of attention into `out`. */
static enum status
join(const struct cuda_state *state, enum part part, const struct attn_desc *desc, void *out)
{
    const struct attn_device_plan *plan = &state->device_plan[part];
    const char *at = state->plan;

    return attn_merge_cuda(
        (struct attn_merge_args){
            .o = plan->o,
            .ml = plan->ml,
            .partial_first = (const void *)(at + state->at.part[part].merge_first),
            .row_ids = (const void *)(at + state->at.part[part].merge_rows),
            .out = out,
            .n_rows = state->n_merge_rows[part],
            .H = desc->H,
            .D = desc->layout.D,
        },
        state->stream);
}

/* By the kernel of lazy_prefill. */
static enum status
attend_rows(const struct cuda_state *state, enum part part, const struct lazy_prefill_args *args)
{
    if (state->prefill[part] != NULL) {
        return prefill_cuda_run(state->prefill[part], args, state->stream);
    }
    TRY(lazy_prefill_cuda(*args, state->device_plan[part], state->stream));
    return join(state, part, &args->desc, args->out);
}

static enum status
cuda_lazy_prefill(const struct ops *ops, struct lazy_prefill_args args)
{
    const struct cuda_state *state = state_of(ops);

    TRY(send_copies(ops));
    if (state->n_moved > 0) {
        /* lazy_decode attends to them, if it is called at all. */
        if (state->n_own == 0) {
            TRY(decode_cuda_run(state->decode, args.desc, args.q, args.out, state->stream));
        }
        args.desc.seqs = (const void *)(state->plan + state->at.part[PREFILL].seqs);
    }
    return attend_rows(state, PREFILL, &args);
}

static enum status
cuda_lazy_decode(const struct ops *ops, struct lazy_decode_args args, void *out)
{
    const struct cuda_state *state = state_of(ops);

    TRY(send_copies(ops));
    if (state->is_decode_planned) {
        return decode_cuda_run(state->decode, args.desc, args.q, out, state->stream);
    }
    if (state->config.is_deterministic) {
        return attend_rows(state, DECODE,
                           &(struct lazy_prefill_args){.desc = args.desc, .q = args.q, .out = out});
    }
    TRY(lazy_decode_cuda(args.desc, args.q, out, state->device_plan[DECODE], state->stream));
    return join(state, DECODE, &args.desc, out);
}

/* --- life ------------------------------------------------------------------------------------ */

static void
cuda_destroy(struct ops *ops)
{
    struct cuda_state *state = state_of(ops);

    if (state != NULL) {
        /* Cleanup goes on whatever fails: the call that met an error has reported it. */
        decode_cuda_destroy(&state->decode);
        prefill_cuda_destroy(&state->prefill[PREFILL]);
        prefill_cuda_destroy(&state->prefill[DECODE]);
        graph_cuda_destroy(&state->graphs);
        gemm_cuda_destroy(&state->gemm);
        (void)cudaFree(state->partials);
        (void)cudaFree(state->angles);
        (void)cudaFree(state->plan);
        for (int i = 0; i < 2; i++) {
            (void)cudaFreeHost(state->plan_hosts[i]);
            if (state->copied[i] != NULL) {
                (void)cudaEventDestroy(state->copied[i]);
            }
        }
        if (state->marked != NULL) {
            (void)cudaEventDestroy(state->marked);
        }
        if (state->stream != NULL) {
            (void)cudaStreamDestroy(state->stream);
        }
        mem_free(state);
    }
    mem_free(ops);
}

/* lazy_decode of its own for sm_90, unless rows must equal those of lazy_prefill. */
static enum status
make_decode(struct cuda_state *state, uint32_t sm_count)
{
    const struct ops_config *config = &state->config;

    if (config->is_portable || config->is_deterministic
        || config->H / config->Hkv > DECODE_GROUP_MAX) {
        return ST_OK;
    }
    return decode_cuda_new(
        &(struct decode_cuda_config){
            .H = config->H,
            .Hkv = config->Hkv,
            .D = config->D,
            .seqs_max = decode_cuda_rows_max(config),
            .segs_max = config->segs_max,
            .prefills_max = config->seqs_max,
            .sm_count = sm_count,
            .is_shared = !config->is_unshared && !config->has_fixed_cuts,
            .is_fixed = config->has_fixed_cuts,
            .partials = state->partials,
            .partials_bytes =
                (size_t)state->partials_max * config->H * (config->D + 2) * sizeof(float),
        },
        &state->decode);
}

/* lazy_prefill of its own for sm_90a. */
static enum status
make_prefill(struct cuda_state *state, uint32_t sm_count, enum part part)
{
    const struct ops_config *config = &state->config;
    const struct prefill_cuda_config wanted = {
        .H = config->H,
        .Hkv = config->Hkv,
        .D = config->D,
        .rows_max = part == DECODE ? config->seqs_max : config->rows_max,
        .seqs_max = config->seqs_max,
        .sm_count = sm_count,
        .is_fixed = config->is_deterministic,
        .partials = state->partials,
        .partials_max = state->partials_max,
    };
    enum status st = config->is_portable || config->is_mma_prefill
                         ? ST_UNAVAILABLE
                         : prefill_cuda_new(&wanted, &state->prefill[part]);

    return st == ST_UNAVAILABLE ? ST_OK : st; /* then the portable kernels do it */
}

/* Items and partials that the plans of a step may need. */
static void
size_plan(struct cuda_state *state)
{
    const struct ops_config *config = &state->config;
    const uint32_t group = config->H / config->Hkv;

    for (int k = 0; k < PARTS; k++) {
        uint32_t rows = k == DECODE ? config->seqs_max : config->rows_max;
        uint32_t tile = tile_rows(state, (enum part)k);

        state->items_max[k] =
            config->is_deterministic
                ? attn_plan_items_fixed(rows, config->seqs_max, group, tile)
                : attn_plan_items_max(rows, config->seqs_max, group, tile, state->ctas[k]);
    }
    state->partials_max =
        config->is_deterministic ? config->rows_max * ATTN_PLAN_FIXED_SPLITS : PARTIALS_MAX;
}

static enum status
state_init(struct cuda_state *state, const struct ops_config *config, uint32_t sm_count)
{
    int lowest = 0, highest = 0;

    state->config = *config;
    state->few_sms = config->is_portable || config->is_deterministic ? 0 : sm_count;
    CU_TRY(cudaGetDevice(&state->device));
    /* Two CTAs a multiprocessor in lazy_prefill, in lazy_decode one: a second one there makes both
     * slower, and one request alone is done sooner (measured). */
    state->ctas[PREFILL] = (2 * sm_count + config->Hkv - 1) / config->Hkv;
    state->ctas[DECODE] = sm_count / config->Hkv > 0 ? sm_count / config->Hkv : 1;
    size_plan(state);
    state->at = lay_out_plan(config, state->items_max);
    state->angle_rows_max = (size_t)config->rows_max * ANGLES_PER_ROW;
    state->angle_rows_max = state->angle_rows_max > ANGLES_MIN ? state->angle_rows_max : ANGLES_MIN;
    /* What runs beside the steps (worker/copier.h) must not hold them up. */
    CU_TRY(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CU_TRY(cudaStreamCreateWithPriority(&state->stream, cudaStreamNonBlocking, highest));
    CU_TRY(cudaEventCreateWithFlags(&state->marked, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CU_TRY(cudaEventCreateWithFlags(&state->copied[i], cudaEventDisableTiming));
        CU_TRY(cudaMallocHost((void **)&state->plan_hosts[i], state->at.end));
    }
    CU_TRY(cudaMalloc((void **)&state->plan, state->at.end));
    CU_TRY(cudaMalloc((void **)&state->angles, state->angle_rows_max * config->D * sizeof(float)));
    CU_TRY(cudaMalloc((void **)&state->partials,
                      (size_t)state->partials_max * config->H * (config->D + 2) * sizeof(float)));
    TRY(make_decode(state, sm_count));
    TRY(make_prefill(state, sm_count, PREFILL));
    if (config->is_deterministic) {
        TRY(make_prefill(state, sm_count, DECODE));
    }
    TRY(gemm_cuda_new(config->is_deterministic, config->tuning, config->tuning_bytes,
                      &state->gemm));
    return graph_cuda_new(&state->graphs);
}

enum status
ops_cuda_new(struct ops_config config, struct ops **ops_out)
{
    struct ops *ops = NULL;
    struct cuda_state *state;
    uint32_t sm_count;

    if (config.H == 0 || config.Hkv == 0 || config.H % config.Hkv != 0
        || (config.D != 64 && config.D != 128) || config.rows_max == 0 || config.seqs_max == 0
        || config.segs_max == 0) {
        return ERR(ST_INVALID,
                   "operations for %u/%u heads of %u, %u rows, %u sequences, %u segments", config.H,
                   config.Hkv, config.D, config.rows_max, config.seqs_max, config.segs_max);
    }
    TRY(cuda_device_choose(&config, &sm_count));
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
        .row_multiple = config.is_deterministic ? GEMM_CUDA_FIXED_ROWS : 1,
        .step_segs_max = config.segs_max,
        .state = state,
        .bind = cuda_bind,
        .alloc = cuda_alloc,
        .release = cuda_device_release,
        .alloc_host = cuda_device_alloc_host,
        .release_host = cuda_device_release_host,
        .upload = cuda_upload,
        .download = cuda_download,
        .fill = cuda_fill,
        .finish = cuda_finish,
        .mark = cuda_mark,
        .wait = cuda_wait,
        .settle = cuda_settle,
        .tuning = cuda_tuning,
        .begin_step = cuda_begin_step,
        .graph_begin = cuda_graph_begin,
        .graph_end = cuda_graph_end,
        .embed = cuda_embed,
        .rmsnorm = cuda_rmsnorm,
        .gemm = cuda_gemm,
        .rope_append = cuda_rope_append,
        .rope_copy = cuda_rope_copy,
        .kv_checksum = cuda_kv_checksum,
        .kv_compare = cuda_kv_compare,
        .lazy_prefill = cuda_lazy_prefill,
        .lazy_decode = cuda_lazy_decode,
        .swiglu = cuda_swiglu,
        .sample = cuda_sample,
        .destroy = cuda_destroy,
    };
    enum status st = state_init(state, &config, sm_count);

    if (st != ST_OK) {
        cuda_destroy(ops);
        return st;
    }
    ops->step_pairs_max = state->angle_rows_max;
    decode_cuda_bounds(state->decode, &ops->step_singles_max, &ops->step_single_segs_max);
    *ops_out = ops;
    return ST_OK;
}
