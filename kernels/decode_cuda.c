/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/decode_cuda.h"

#include <assert.h>
#include <string.h>

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/attn_cuda.h"
#include "kernels/device/cuda_check.cuh"
#include "kernels/host_copy.h"
#include "kernels/query_rows.h"

#define SLOTS      2
#define PLAN_ALIGN 256

/* Offsets into the plan's buffers. */
struct layout {
    size_t n_units, sharers, flushes, joins, items[DECODE_KINDS], end;
};

struct decode_cuda {
    struct decode_cuda_config config;
    struct decode_planner *planner;
    struct query_rows *query_rows; /* NULL: prefill rows never go along */
    struct layout at;
    uint32_t items_max[DECODE_KINDS];
    uint32_t slots_max;
    char *host[SLOTS]; /* pinned */
    char *device;
    uint32_t *counters; /* arrived [slots_max], then the kernels' own */
    struct decode_tuning tuning;
    bool is_unrotated;
    struct decode_device_plan plan; /* of the step begun last */
};

static size_t
reserve(size_t *end, size_t bytes)
{
    size_t at = *end;

    *end = (at + bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

static struct layout
lay_out(const struct decode_cuda *d)
{
    const struct decode_cuda_config *config = &d->config;
    struct layout at = {0};

    at.n_units = reserve(&at.end, DECODE_KINDS * sizeof(uint32_t));
    at.sharers = reserve(&at.end, config->segs_max * sizeof(struct decode_sharer));
    at.flushes = reserve(&at.end, d->slots_max * sizeof(struct decode_flush));
    at.joins =
        reserve(&at.end, (size_t)config->seqs_max * config->Hkv * sizeof(struct decode_join));
    for (int k = 0; k < DECODE_KINDS; k++) {
        at.items[k] = reserve(&at.end, d->items_max[k] * sizeof(struct decode_item));
    }
    return at;
}

static enum status
start(struct decode_cuda *d)
{
    const struct decode_cuda_config *config = &d->config;
    const size_t slot_bytes = (size_t)config->H / config->Hkv * (config->D + 2) * sizeof(float);
    const uint32_t items =
        decode_plan_items_max(config->seqs_max, config->segs_max, config->Hkv, config->sm_count);
    size_t slots = config->partials_bytes / slot_bytes;

    /* More would be a plan that mostly writes partials. */
    d->slots_max = slots < 1u << 16 ? (uint32_t)slots : 1u << 16;
    const size_t counters = d->slots_max + lazy_decode_sm90_counters();

    d->items_max[DECODE_ROWS_16] = items;
    d->items_max[DECODE_ROWS_64] = items; /* as a rule all are of one kind */
    d->items_max[DECODE_ROWS_128] = items;
    d->at = lay_out(d);
    TRY(decode_planner_new(config->seqs_max, config->segs_max, config->Hkv, &d->planner));
    if (config->is_shared && config->prefills_max > 0) {
        TRY(query_rows_new(config->seqs_max, config->segs_max, config->prefills_max,
                           &d->query_rows));
    }
    for (int i = 0; i < SLOTS; i++) {
        CU_TRY(cudaMallocHost((void **)&d->host[i], d->at.end));
    }
    CU_TRY(cudaMalloc((void **)&d->device, d->at.end));
    CU_TRY(cudaMalloc((void **)&d->counters, counters * sizeof(uint32_t)));
    CU_TRY(cudaMemset(d->counters, 0, counters * sizeof(uint32_t)));
    CU_TRY(cudaDeviceSynchronize()); /* the stream of launches does not wait for this one */
    d->plan = (struct decode_device_plan){
        .n_units = (const void *)(d->device + d->at.n_units),
        .sharers = (const void *)(d->device + d->at.sharers),
        .flushes = (const void *)(d->device + d->at.flushes),
        .joins = (const void *)(d->device + d->at.joins),
        .o = config->partials,
        .ml = (float *)config->partials
              + (size_t)d->slots_max * (config->H / config->Hkv) * config->D,
        .arrived = d->counters,
        .counters = d->counters + d->slots_max,
    };
    for (int k = 0; k < DECODE_KINDS; k++) {
        d->plan.items[k] = (const void *)(d->device + d->at.items[k]);
    }
    return ST_OK;
}

enum status
decode_cuda_new(const struct decode_cuda_config *config, struct decode_cuda **out)
{
    if (config->H / config->Hkv > DECODE_GROUP_MAX) {
        return ERR(ST_UNAVAILABLE, "lazy_decode for sm_90: %u query heads a key/value head",
                   config->H / config->Hkv);
    }
    struct decode_cuda *d = mem_zalloc(1, sizeof(*d));

    if (d == NULL) {
        return ERR(ST_NO_MEMORY, "lazy_decode");
    }
    d->config = *config;
    if (d->config.seqs_max > DECODE_CUDA_SEQS_MAX) {
        d->config.seqs_max = DECODE_CUDA_SEQS_MAX;
    }
    if (d->config.segs_max > DECODE_CUDA_SEGS_MAX) {
        d->config.segs_max = DECODE_CUDA_SEGS_MAX;
    }
    enum status st = start(d);

    if (st != ST_OK) {
        decode_cuda_destroy(&d);
        return st;
    }
    *out = d;
    return ST_OK;
}

void
decode_cuda_destroy(struct decode_cuda **decode)
{
    struct decode_cuda *d = *decode;

    if (d == NULL) {
        return;
    }
    /* Cleanup goes on whatever fails: a device error has been reported by the call that met it. */
    for (int i = 0; i < SLOTS; i++) {
        (void)cudaFreeHost(d->host[i]);
    }
    (void)cudaFree(d->device);
    (void)cudaFree(d->counters);
    decode_planner_destroy(&d->planner);
    query_rows_destroy(&d->query_rows);
    MEM_FREE(*decode);
}

void
decode_cuda_bounds(const struct decode_cuda *decode, uint32_t *seqs_out, uint64_t *segs_out)
{
    *seqs_out = decode == NULL ? 0 : decode->config.seqs_max;
    *segs_out = decode == NULL ? 0 : decode->config.segs_max;
}

void
decode_cuda_tune(struct decode_cuda *decode, struct decode_tuning tuning, bool is_unrotated)
{
    decode->tuning = tuning;
    decode->is_unrotated = is_unrotated;
}

static enum status
send_plan(const struct decode_cuda *d, const struct decode_plan *plan, uint32_t n_seqs,
          uint32_t slot, struct host_copies *copies, void *stream)
{
    const struct layout *at = &d->at;
    const struct {
        size_t at, bytes;
    } parts[] = {
        /* The units' numbers and the sharers lie side by side. */
        {at->n_units, at->sharers + plan->n_sharers * sizeof(struct decode_sharer) - at->n_units},
        {at->flushes, plan->n_slots * sizeof(struct decode_flush)},
        {at->joins, (size_t)n_seqs * d->config.Hkv * sizeof(struct decode_join)},
        {at->items[DECODE_ROWS_16], plan->n_items[DECODE_ROWS_16] * sizeof(struct decode_item)},
        {at->items[DECODE_ROWS_64], plan->n_items[DECODE_ROWS_64] * sizeof(struct decode_item)},
        {at->items[DECODE_ROWS_128], plan->n_items[DECODE_ROWS_128] * sizeof(struct decode_item)},
    };

    static_assert(DECODE_KINDS == 3, "all are sent");
    memcpy(d->host[slot] + at->n_units, plan->n_units, sizeof(plan->n_units));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        TRY(host_copies_add(copies, d->device + parts[i].at, d->host[slot] + parts[i].at,
                            parts[i].bytes, stream));
    }
    return ST_OK;
}

bool
decode_cuda_split(struct decode_cuda *decode, struct attn_step *step)
{
    return decode != NULL && decode->query_rows != NULL
           && query_rows_split(decode->query_rows, step);
}

enum status
decode_cuda_begin(struct decode_cuda *decode, const struct attn_step *step,
                  const uint32_t *angle_first, const float *angles, uint32_t slot,
                  struct host_copies *copies, void *stream)
{
    struct decode_cuda *d = decode;
    const struct decode_plan_work work = {.seqs = step->decode,
                                          .n_seqs = step->n_decode,
                                          .segs = step->segs,
                                          .block_ids = step->block_ids,
                                          .angle_first = angle_first,
                                          .Hkv = d->config.Hkv,
                                          .group = d->config.H / d->config.Hkv,
                                          .P = step->layout.P,
                                          .sm_count = d->config.sm_count,
                                          .is_shared = d->config.is_shared,
                                          .is_fixed = d->config.is_fixed,
                                          .tuning = d->tuning};
    struct decode_plan plan = {
        .sharers = (void *)(d->host[slot] + d->at.sharers),
        .sharers_max = d->config.segs_max,
        .flushes = (void *)(d->host[slot] + d->at.flushes),
        .slots_max = d->slots_max,
        .joins = (void *)(d->host[slot] + d->at.joins),
    };

    d->plan.n_rows = 0;
    if (step->n_decode == 0) {
        return ST_OK;
    }
    for (int k = 0; k < DECODE_KINDS; k++) {
        plan.items[k] = (void *)(d->host[slot] + d->at.items[k]);
        plan.items_max[k] = d->items_max[k];
    }
    TRY(decode_plan_make(d->planner, &work, &plan));
    TRY(send_plan(d, &plan, step->n_decode, slot, copies, stream));
    memcpy(d->plan.ctas, plan.ctas, sizeof(plan.ctas));
    memcpy(d->plan.per_sm, plan.per_sm, sizeof(plan.per_sm));
    d->plan.angles = angles;
    d->plan.n_rows = step->n_decode;
    d->plan.rows_max = plan.rows_max;
    d->plan.joins_in_kernel = plan.joins_in_kernel;
    d->plan.is_unrotated = d->is_unrotated;
    d->plan.is_first = true;
    d->plan.is_building = step->is_building;
    return ST_OK;
}

enum status
decode_cuda_run(struct decode_cuda *decode, struct attn_desc desc, const void *q, void *out,
                void *stream)
{
    struct decode_device_plan plan = decode->plan;

    decode->plan.is_first = false;
    return lazy_decode_sm90(desc, q, out, plan, stream);
}

uint32_t
decode_cuda_shape(const struct decode_cuda *decode)
{
    const struct decode_device_plan *plan = &decode->plan;
    uint32_t shape = (plan->rows_max <= 8) | (uint32_t)plan->joins_in_kernel << 1;

    shape |= (plan->per_sm[DECODE_ROWS_16] - 1) << 2;
    for (int k = 0; k < DECODE_KINDS; k++) { /* two a multiprocessor, fewer than 256 of those */
        assert(plan->ctas[k] < 1u << 9);
        shape |= plan->ctas[k] << (3 + 9 * k);
    }
    shape |= (uint32_t)plan->is_building << 30;
    return plan->n_rows > 0 ? shape : 0;
}
