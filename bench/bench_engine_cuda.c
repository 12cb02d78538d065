/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's part of a decode step on a GPU: Llama-3.1-8B shape, random weights, batch 1, 8, 32,
 * each request over 5 x 4096 resident tokens.
 *
 * The gap is host time from the end of the wait for a step's tokens to the launch of the next step:
 * the device has nothing to do then, but for what was sent ahead.  Ahead is what planning and
 * sending the next step takes while the device works. */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/mem.h"
#include "tests/support/engine_rig.h"
#include "tests/support/gpu_main.h"

#define DOCS       5u
#define DOC_TOKENS 4096u
#define QUERY      64u
#define STEPS      80u
#define WARM_UP    16u
#define P          32u
#define SEQS_MAX   32u

static struct ops real;
static uint64_t waited_us, prepare_us;
static uint32_t gaps_us[STEPS], aheads_us[STEPS];
static uint32_t n_gaps, n_aheads;

static enum status
time_wait(const struct ops *ops)
{
    enum status st = real.wait(ops);

    waited_us = clock_now_us();
    return st;
}

static enum status
time_graph_begin(const struct ops *ops, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                 enum ops_graph *found_out)
{
    enum status st = real.graph_begin(ops, key, found_out);

    if (*found_out == OPS_GRAPH_REPLAYED && waited_us != 0 && n_gaps < STEPS) {
        gaps_us[n_gaps++] = (uint32_t)(clock_now_us() - waited_us);
    }
    return st;
}

/* Between the download of the tokens and the mark nothing happens, so this begins the planning. */
static enum status
time_mark(const struct ops *ops)
{
    enum status st = real.mark(ops);

    prepare_us = clock_now_us();
    return st;
}

static enum status
time_begin_step(const struct ops *ops, struct attn_step step)
{
    enum status st = real.begin_step(ops, step);

    if (prepare_us != 0 && n_aheads < STEPS) {
        aheads_us[n_aheads++] = (uint32_t)(clock_now_us() - prepare_us);
    }
    return st;
}

static int
smaller_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t
median(uint32_t *values, uint32_t count)
{
    qsort(values, count, sizeof(values[0]), smaller_first);
    return count == 0 ? 0 : values[count / 2];
}

static void
assign(struct rig *rig, uint64_t id, struct rig_doc *docs)
{
    uint32_t query[QUERY];

    for (uint32_t i = 0; i < QUERY; i++) {
        query[i] = 1 + (uint32_t)(i * 7919 + id * 31) % 250;
    }
    rig_assign(rig, &(struct rig_request){.id = id,
                                          .docs = docs,
                                          .n_docs = DOCS,
                                          .query = query,
                                          .n_query = QUERY,
                                          .max_tokens = STEPS + WARM_UP + 8,
                                          .ignores_end = true});
}

static void
run(struct rig *rig, uint32_t batch)
{
    struct rig_doc docs[DOCS];

    rig_restart(rig, &rig->config);
    for (uint32_t i = 0; i < DOCS; i++) {
        docs[i] = (struct rig_doc){.n_ids = DOC_TOKENS, .blocks = rig_blocks(rig, DOC_TOKENS)};
    }
    for (uint64_t id = 1; id <= batch; id++) {
        assign(rig, id, docs);
    }
    for (uint32_t i = 0; i < WARM_UP; i++) {
        (void)rig_step(rig);
    }
    n_gaps = n_aheads = 0;
    waited_us = prepare_us = 0;
    uint64_t start_us = clock_now_us();

    for (uint32_t i = 0; i < STEPS; i++) {
        (void)rig_step(rig);
    }
    double step_ms = (double)(clock_now_us() - start_us) / 1e3 / STEPS;

    printf("decode b=%-3u %8.3f ms a step, gap %4u us, planned ahead in %4u us\n", batch, step_ms,
           median(gaps_us, n_gaps), median(aheads_us, n_aheads));
    for (uint32_t i = 0; i < DOCS; i++) {
        mem_free(docs[i].blocks);
    }
}

START_TEST(decode_steps)
{
    static const uint32_t batches[] = {1, 8, 32};
    struct rig_config config = rig_defaults();

    config.model_path = "dummy:llama-3.1-8b";
    config.kind = &device_cuda;
    config.block_tokens = P;
    config.block_count = DOCS * DOC_TOKENS / P + SEQS_MAX * ((QUERY + STEPS + WARM_UP) / P + 2);
    config.step_tokens = 4096;
    config.seqs_max = SEQS_MAX;
    struct rig *rig = rig_new(&config);

    real = *rig->ops;
    rig->ops->wait = time_wait;
    rig->ops->mark = time_mark;
    rig->ops->graph_begin = time_graph_begin;
    rig->ops->begin_step = time_begin_step;
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        run(rig, batches[i]);
    }
    rig_destroy(&rig);
}
END_TEST

/* As a test, since the rig checks what it is told. */
GPU_MAIN("bench_engine_cuda", device_cuda.choose(0), decode_steps)
