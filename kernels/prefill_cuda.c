/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/prefill_cuda.h"

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/attn_merge.h"
#include "kernels/device/cuda_check.cuh"
#include "kernels/host_copy.h"
#include "kernels/lazy_prefill_sm90.h"
#include "kernels/plan_buffer.h"
#include "kernels/prefill_plan.h"

#define SLOTS 2

/* Offsets into the plan's buffers: what is sent together lies together. */
struct layout {
    size_t starts, items, tasks, cta_first, merge_rows, merge_first, end;
};

struct prefill_cuda {
    struct prefill_cuda_config config;
    struct layout at;
    uint32_t items_max;
    char *host[SLOTS]; /* pinned */
    char *device;
    struct prefill_device_plan plan; /* of the step begun last */
    uint32_t n_merge_rows;
};

static enum status
start(struct prefill_cuda *p)
{
    const struct prefill_cuda_config *config = &p->config;

    p->items_max =
        prefill_plan_items_max(config->rows_max, config->seqs_max, config->H / config->Hkv,
                               config->sm_count, config->is_fixed);
    p->at.starts = plan_reserve(&p->at.end, config->sm_count * sizeof(struct prefill_start));
    p->at.items = plan_reserve(&p->at.end, p->items_max * sizeof(struct prefill_item));
    p->at.tasks = plan_reserve(&p->at.end, (size_t)p->items_max * config->Hkv * sizeof(uint32_t));
    p->at.merge_rows = plan_reserve(&p->at.end, config->rows_max * sizeof(uint32_t));
    p->at.merge_first = plan_reserve(&p->at.end, (config->rows_max + 1) * sizeof(uint32_t));
    p->at.cta_first = plan_reserve(&p->at.end, (config->sm_count + 1) * sizeof(uint32_t));
    for (int i = 0; i < SLOTS; i++) {
        CU_TRY(cudaMallocHost((void **)&p->host[i], p->at.end));
    }
    CU_TRY(cudaMalloc((void **)&p->device, p->at.end));
    p->plan = (struct prefill_device_plan){
        .items = (const void *)(p->device + p->at.items),
        .tasks = (const void *)(p->device + p->at.tasks),
        .starts = (const void *)(p->device + p->at.starts),
        .group = config->H / config->Hkv,
        .is_fixed = config->is_fixed,
        .o = config->partials,
        .ml = config->partials + (size_t)config->partials_max * config->H * config->D,
    };
    return ST_OK;
}

enum status
prefill_cuda_new(const struct prefill_cuda_config *config, struct prefill_cuda **out)
{
    if (!lazy_prefill_sm90_is_there() || config->sm_count > PREFILL_CTAS_MAX) {
        return ERR(ST_UNAVAILABLE, "lazy_prefill for sm_90a: not in this build or device");
    }
    struct prefill_cuda *p = mem_zalloc(1, sizeof(*p));

    if (p == NULL) {
        return ERR(ST_NO_MEMORY, "lazy_prefill");
    }
    p->config = *config;
    enum status st = start(p);

    if (st != ST_OK) {
        prefill_cuda_destroy(&p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void
prefill_cuda_destroy(struct prefill_cuda **prefill)
{
    struct prefill_cuda *p = *prefill;

    if (p == NULL) {
        return;
    }
    /* Cleanup goes on whatever fails: a device error has been reported by the call that met it. */
    for (int i = 0; i < SLOTS; i++) {
        (void)cudaFreeHost(p->host[i]);
    }
    (void)cudaFree(p->device);
    MEM_FREE(*prefill);
}

enum status
prefill_cuda_begin(struct prefill_cuda *prefill, const struct attn_step *step,
                   const struct attn_seq *seqs, uint32_t n_seqs, const uint32_t *angle_first,
                   const float *angles, uint32_t slot, struct host_copies *copies, void *stream)
{
    struct prefill_cuda *p = prefill;
    char *host = p->host[slot];
    const struct prefill_work work = {.seqs = seqs,
                                      .n_seqs = n_seqs,
                                      .segs = step->segs,
                                      .angle_first = angle_first,
                                      .Hkv = p->config.Hkv,
                                      .group = p->config.H / p->config.Hkv,
                                      .D = p->config.D,
                                      .ctas = p->config.sm_count,
                                      .is_fixed = p->config.is_fixed};
    struct prefill_plan plan = {.items = (void *)(host + p->at.items),
                                .items_max = p->items_max,
                                .tasks = (void *)(host + p->at.tasks),
                                .cta_first = (void *)(host + p->at.cta_first),
                                .starts = (void *)(host + p->at.starts),
                                .merge_rows = (void *)(host + p->at.merge_rows),
                                .merge_first = (void *)(host + p->at.merge_first),
                                .merge_rows_max = p->config.rows_max,
                                .partials_max = p->config.partials_max};

    p->plan.ctas = 0;
    p->n_merge_rows = 0;
    if (n_seqs == 0) {
        return ST_OK;
    }
    TRY(prefill_plan_make(&work, &plan));
    const struct {
        size_t at, bytes;
    } parts[] = {
        {0, p->at.items + plan.n_items * sizeof(plan.items[0])},
        {p->at.tasks, (size_t)plan.n_items * p->config.Hkv * sizeof(plan.tasks[0])},
        {p->at.merge_rows, plan.n_merge_rows * sizeof(plan.merge_rows[0])},
        {p->at.merge_first,
         plan.n_merge_rows > 0 ? (plan.n_merge_rows + 1) * sizeof(plan.merge_first[0]) : 0},
    };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        TRY(host_copies_add(copies, p->device + parts[i].at, host + parts[i].at, parts[i].bytes,
                            stream));
    }
    p->plan.angles = angles;
    p->plan.ctas = p->config.sm_count;
    p->plan.is_split = plan.n_partials > 0;
    p->n_merge_rows = plan.n_merge_rows;
    return ST_OK;
}

enum status
prefill_cuda_run(const struct prefill_cuda *prefill, const struct lazy_prefill_args *args,
                 void *stream)
{
    const struct prefill_cuda *p = prefill;

    TRY(lazy_prefill_sm90_cuda(*args, p->plan, stream));
    return attn_merge_cuda(
        (struct attn_merge_args){.o = p->plan.o,
                                 .ml = p->plan.ml,
                                 .partial_first = (const void *)(p->device + p->at.merge_first),
                                 .row_ids = (const void *)(p->device + p->at.merge_rows),
                                 .out = args->out,
                                 .n_rows = p->n_merge_rows,
                                 .H = p->config.H,
                                 .D = p->config.D},
        stream);
}

uint32_t
prefill_cuda_shape(const struct prefill_cuda *prefill)
{
    return prefill->n_merge_rows;
}
