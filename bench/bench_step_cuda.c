/* SPDX-License-Identifier: Apache-2.0 */
/* Whole steps of a Llama-3.1-8B shape on a GPU, random weights: decode at batch 1, 8, 32 with
 * 20,544 tokens each, document encoding, and the query of an all-hot request; each beside its floor
 * (bytes over this run's copy bandwidth, or flops at 790 TFLOP/s).
 *
 * With --deterministic as a worker computes then: the difference is its cost.  With --decode only
 * the decode steps.  With --tier the host tier: its copies alone and beside decode steps, and how
 * long a document of 2048 tokens takes to come back.  With --zipf other steps: requests over 5 of
 * 1000 documents each, drawn by a Zipf law, documents read together and apart; and short queries of
 * several requests on the same 5 hot documents, likewise.
 *
 * Times are host wall-clock of llama_forward plus llama_sample, as a worker's step sees it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "bench/step_cuda.h"
#include "common/clock.h"
#include "worker/device.h"

#define P           32u
#define POOL_BLOCKS 10000u /* 4 MiB each */
#define ROWS_MAX    16384u
#define IDS_MAX     (1u << 17)
#define ZIPF_BLOCKS 30100u /* what fits beside the weights on 141 GB */
#define ZIPF_DOCS   1000u
#define QUERY_CASES 9
#define ZIPF_ROWS   512u /* of the largest step there */
#define GEMM_TFLOPS 790.0
#define FILL_PIECE  ((size_t)64 << 20)

static struct model_config model = {.L = 32,
                                    .C = 4096,
                                    .H = 32,
                                    .Hkv = 8,
                                    .D = 128,
                                    .F = 14336,
                                    .V = 128256,
                                    .context_max = 131072,
                                    .rms_eps = 1e-5f,
                                    .rope_scale = 1.0f};
static struct ops *ops;
struct llama *step_llama;
uint32_t step_pool_blocks = POOL_BLOCKS;
static double copy_gbs;

/* A step under construction. */
static struct attn_seq *seqs;
static struct attn_segment *segs;
static uint32_t *ids, *row_block, *row_slot, *row_pos, *block_ids, *logit_rows;
struct sample_result *step_results;
struct llama_step step;

static void
fill_random(char *memory, size_t bytes, float scale)
{
    uint16_t *host = malloc(FILL_PIECE);
    uint32_t x = 1;

    for (size_t i = 0; i < FILL_PIECE / 2; i++) {
        float v = scale * ((float)((x = x * 1664525u + 1013904223u) >> 8) / 8388608.0f - 1.0f);
        uint32_t bits;

        memcpy(&bits, &v, sizeof(bits));
        host[i] = (uint16_t)(bits >> 16);
    }
    for (size_t at = 0; at < bytes; at += FILL_PIECE) {
        size_t n = bytes - at < FILL_PIECE ? bytes - at : FILL_PIECE;

        MUST(ops->upload(ops, memory + at, host, n));
    }
    MUST(ops->finish(ops));
    free(host);
}

static void *
alloc_host(size_t count, size_t size)
{
    void *memory;

    MUST(ops->alloc_host(ops, count * size, &memory));
    return memory;
}

/* As a worker's, so that uploads are not waited for. */
static void
alloc_step(void)
{
    seqs = alloc_host(STEP_SEQS_MAX, sizeof(*seqs));
    segs = alloc_host((size_t)STEP_SEQS_MAX * 8, sizeof(*segs));
    ids = alloc_host(ROWS_MAX, sizeof(*ids));
    row_block = alloc_host(ROWS_MAX, sizeof(*row_block));
    row_slot = alloc_host(ROWS_MAX, sizeof(*row_slot));
    row_pos = alloc_host(ROWS_MAX, sizeof(*row_pos));
    block_ids = alloc_host(IDS_MAX, sizeof(*block_ids));
    logit_rows = alloc_host(STEP_SEQS_MAX, sizeof(*logit_rows));
    step_results = alloc_host(STEP_SEQS_MAX, sizeof(*step_results));
}

void
step_begin(void)
{
    step = (struct llama_step){.ids = ids,
                               .row_block = row_block,
                               .row_slot = row_slot,
                               .row_pos = row_pos,
                               .seqs = seqs,
                               .segs = segs,
                               .block_ids = block_ids,
                               .logit_rows = logit_rows};
}

/* Blocks from number `first` on, all over the pool. */
static void
add_segment_at(uint32_t first, uint32_t n_tokens, uint32_t offset)
{
    segs[step.n_segs++] = (struct attn_segment){step.n_block_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < (n_tokens + P - 1) / P; i++) {
        block_ids[step.n_block_ids++] = (uint32_t)((uint64_t)(first + i) * 7919 % step_pool_blocks);
    }
}

static void
add_segment(uint32_t n_tokens, uint32_t offset)
{
    static uint32_t next;

    add_segment_at(next, n_tokens, offset);
    next += (n_tokens + P - 1) / P;
}

/* A sequence over hot documents whose last `rows` own tokens are rows of this step. */
void
step_add_seq(uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t rows, bool wants_logits)
{
    struct attn_seq *seq = &seqs[step.n_seqs++];

    *seq = (struct attn_seq){step.n_rows, rows, n_docs * doc_tokens + own - rows, step.n_segs,
                             n_docs + 1};
    for (uint32_t i = 0; i < n_docs; i++) {
        add_segment(doc_tokens, i * doc_tokens);
    }
    uint32_t own_first = step.n_block_ids;

    add_segment(own, n_docs * doc_tokens);
    for (uint32_t t = own - rows; t < own; t++, step.n_rows++) {
        ids[step.n_rows] = (t * 2654435761u) % model.V;
        row_block[step.n_rows] = block_ids[own_first + t / P];
        row_slot[step.n_rows] = t % P;
        row_pos[step.n_rows] = t;
    }
    if (wants_logits) {
        logit_rows[step.n_logits++] = step.n_rows - 1;
    }
    step.n_single += rows == 1;
}

double
step_time_ms(void)
{
    static struct sample_params params[STEP_SEQS_MAX];
    double ms[STEP_ROUNDS];

    for (uint32_t i = 0; i < STEP_SEQS_MAX; i++) {
        params[i] = (struct sample_params){.top_p = 1.0f, .repetition_penalty = 1.0f};
    }
    for (int r = -2; r < STEP_ROUNDS; r++) {
        uint64_t start_us = clock_now_us();

        MUST(llama_forward(step_llama, &step));
        MUST(llama_sample(step_llama, 0, step.n_logits, params, step_results));
        if (r >= 0) {
            ms[r] = (double)(clock_now_us() - start_us) / 1e3;
        }
    }
    qsort(ms, STEP_ROUNDS, sizeof(ms[0]), by_value);
    return ms[STEP_ROUNDS / 2];
}

static double
layer_parameters(void)
{
    double C = model.C, HD = (double)model.H * model.D, KD = (double)model.Hkv * model.D;

    return (HD + 2 * KD) * C + HD * C + 3.0 * C * model.F;
}

static void
bench_decode(uint32_t batch)
{
    const double weights = (layer_parameters() * model.L + (double)model.C * model.V) * 2;
    const double kv = (double)batch * 20544 * 4 * model.Hkv * model.D * model.L;

    step_begin();
    for (uint32_t i = 0; i < batch; i++) {
        step_add_seq(5, 4096, 64, 1, true);
    }
    double ms = step_time_ms();
    double floor_ms = (weights + kv) / copy_gbs / 1e6;

    printf("decode step b=%-3u 20544 tokens each %8.2f ms  floor %6.2f  %5.1f%%  %6.0f tok/s\n",
           batch, ms, floor_ms, floor_ms / ms * 100, batch / ms * 1e3);
}

void
step_bench_encode(uint32_t tokens)
{
    double flops = 2.0 * tokens * layer_parameters() * model.L
                   + 2.0 * (double)tokens * tokens * model.H * model.D * model.L;

    step_begin();
    step_add_seq(0, 0, tokens, tokens, false);
    double ms = step_time_ms();
    double floor_ms = flops / GEMM_TFLOPS / 1e9;

    printf("document encode %-6u tokens      %8.2f ms  floor %6.2f  %5.1f%%  %6.0f tok/s\n", tokens,
           ms, floor_ms, floor_ms / ms * 100, tokens / ms * 1e3);
}

static void
bench_query(void)
{
    step_begin();
    step_add_seq(5, 4096, 64, 64, true);
    double ms = step_time_ms();

    printf("query step 64 over 5 x 4096 hot     %8.2f ms  floor   4.36  %5.1f%%\n", ms,
           4.36 / ms * 100);
}

static void
measure_copy(void)
{
    const size_t bytes = (size_t)4 << 30;
    void *a, *b;

    MUST(ops->alloc(ops, bytes, &a));
    MUST(ops->alloc(ops, bytes, &b));
    for (int i = 0; i < 6; i++) {
        (void)cudaDeviceSynchronize();
        uint64_t start_us = clock_now_us();

        (void)cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, 0);
        (void)cudaDeviceSynchronize();
        copy_gbs = fmax(copy_gbs, 2.0 * (double)bytes / (double)(clock_now_us() - start_us) / 1e3);
    }
    ops->release(ops, a);
    ops->release(ops, b);
    printf("copy %.0f GB/s\n", copy_gbs);
}

/* Document numbers 0.., fewer with a higher number. */
static uint32_t
draw(double alpha, uint64_t *state)
{
    static double sum, sum_alpha = -1.0;
    uint32_t d = 0;

    if (sum_alpha != alpha) {
        sum = 0.0;
        for (uint32_t i = 0; i < ZIPF_DOCS; i++) {
            sum += pow(i + 1, -alpha);
        }
        sum_alpha = alpha;
    }
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    double at = (double)(*state >> 11) / 9007199254740992.0 * sum;

    while (d + 1 < ZIPF_DOCS && (at -= pow(d + 1, -alpha)) >= 0) {
        d++;
    }
    return d;
}

/* One new token of a request over 5 documents; first[d] is document d's first block + 1. */
static void
add_zipf_seq(double alpha, uint32_t tokens, uint32_t *first, uint32_t *blocks, uint64_t *state)
{
    struct attn_seq *seq = &seqs[step.n_seqs++];
    uint32_t docs[5];

    *seq = (struct attn_seq){step.n_rows, 1, 5 * tokens + 63, step.n_segs, 6};
    for (uint32_t n = 0; n < 5;) {
        uint32_t d = draw(alpha, state);
        bool is_new = true;

        for (uint32_t k = 0; k < n; k++) {
            is_new = is_new && docs[k] != d;
        }
        if (is_new) {
            if (first[d] == 0) {
                first[d] = *blocks + 1;
                *blocks += tokens / P;
            }
            add_segment_at(first[d] - 1, tokens, n * tokens);
            docs[n++] = d;
        }
    }
    add_segment_at(*blocks, 64, 5 * tokens);
    *blocks += 64 / P;
    ids[step.n_rows] = step.n_rows * 7919 % model.V;
    row_block[step.n_rows] = block_ids[step.n_block_ids - 1];
    row_slot[step.n_rows] = 63 % P;
    row_pos[step.n_rows] = 63;
    logit_rows[step.n_logits++] = step.n_rows++;
    step.n_single++;
}

static double
bench_zipf(double alpha, uint32_t batch, bool is_shared)
{
    static uint32_t first[ZIPF_DOCS];
    uint32_t tokens = 4096;
    uint32_t blocks, n_docs = 0;

    do { /* the longest that fits */
        uint64_t state = 42;

        blocks = 0;
        memset(first, 0, sizeof(first));
        step_begin();
        for (uint32_t i = 0; i < batch; i++) {
            add_zipf_seq(alpha, tokens, first, &blocks, &state);
        }
        tokens -= blocks > step_pool_blocks ? 256 : 0;
    } while (blocks > step_pool_blocks);
    for (uint32_t d = 0; d < ZIPF_DOCS; d++) {
        n_docs += first[d] > 0;
    }
    double ms = step_time_ms();

    printf("decode step b=%-3u alpha %.1f, %3u documents of %u, read %-8s %8.2f ms  %6.0f tok/s\n",
           batch, alpha, n_docs, tokens, is_shared ? "together" : "apart", ms, batch / ms * 1e3);
    return ms;
}

static void
bench_zipf_all(bool is_shared, double ms[6])
{
    static const double alphas[] = {1.1, 1.5, 2.1};

    for (int i = 0; i < 6; i++) {
        double now = bench_zipf(alphas[i % 3], i < 3 ? 32 : 128, is_shared);

        if (!is_shared) {
            printf("  alpha %.1f b=%d: %.2f times as fast together\n", alphas[i % 3],
                   i < 3 ? 32 : 128, now / ms[i]);
        }
        ms[i] = now;
    }
}

/* Queries of `rows` tokens on the same 5 x 4096. */
static double
bench_queries(uint32_t requests, uint32_t rows, bool is_shared)
{
    step_begin();
    for (uint32_t i = 0; i < requests; i++) {
        seqs[step.n_seqs++] = (struct attn_seq){step.n_rows, rows, 5 * 4096, step.n_segs, 6};
        for (uint32_t k = 0; k < 5; k++) {
            add_segment_at(k * (4096 / P), 4096, k * 4096);
        }
        add_segment_at(5 * (4096 / P) + i, rows, 5 * 4096);
        for (uint32_t t = 0; t < rows; t++, step.n_rows++) {
            ids[step.n_rows] = (step.n_rows * 7919) % model.V;
            row_block[step.n_rows] = block_ids[step.n_block_ids - 1];
            row_slot[step.n_rows] = t;
            row_pos[step.n_rows] = t;
        }
        logit_rows[step.n_logits++] = step.n_rows - 1;
    }
    double ms = step_time_ms();

    printf("query step %2u x %2u rows on the same 5 x 4096, read %-8s %8.2f ms\n", requests, rows,
           is_shared ? "together" : "apart", ms);
    return ms;
}

static void
bench_queries_all(bool is_shared, double ms[QUERY_CASES])
{
    static const uint32_t cases[QUERY_CASES][2] = {{2, 4},  {8, 4},  {32, 4}, {2, 8},  {8, 8},
                                                   {32, 8}, {2, 16}, {8, 16}, {32, 16}};

    for (int i = 0; i < QUERY_CASES; i++) {
        double now = bench_queries(cases[i][0], cases[i][1], is_shared);

        if (!is_shared) {
            printf("  %u x %u rows: %.2f times as fast together\n", cases[i][0], cases[i][1],
                   now / ms[i]);
        }
        ms[i] = now;
    }
}

static void
open_ops(bool is_deterministic, bool is_unshared)
{
    MUST(device_cuda.ops_new((struct ops_config){.is_deterministic = is_deterministic,
                                                 .is_unshared = is_unshared,
                                                 .H = model.H,
                                                 .Hkv = model.Hkv,
                                                 .D = model.D,
                                                 .rows_max = ROWS_MAX,
                                                 .seqs_max = STEP_SEQS_MAX,
                                                 .segs_max = STEP_SEQS_MAX * 8},
                             &ops));
}

static void
open_llama(const struct weights_plan *plan, void *weights, void *kv, struct kv_layout layout,
           uint32_t rows_max)
{
    MUST(llama_new(&(struct llama_config){.model = &model,
                                          .plan = plan,
                                          .weights = weights,
                                          .kv = kv,
                                          .layout = layout,
                                          .block_count = step_pool_blocks,
                                          .ops = ops,
                                          .rows_max = rows_max,
                                          .logits_max = STEP_SEQS_MAX},
                   &step_llama));
    MUST(llama_reserve(step_llama, &(struct llama_room){.segs = STEP_SEQS_MAX * 8,
                                                        .block_ids = IDS_MAX,
                                                        .partials = STEP_SEQS_MAX * 32,
                                                        .history = 1}));
}

static void
bench_plain(bool is_decode_only)
{
    bench_decode(1);
    bench_decode(2);
    bench_decode(4);
    bench_decode(8);
    bench_decode(16);
    bench_decode(32);
    if (is_decode_only) {
        return;
    }
    bench_query();
    step_bench_encode(512);
    step_bench_encode(1024);
    step_bench_encode(4096);
    step_bench_encode(16384);
}

int
main(int argc, char **argv)
{
    bool is_deterministic = argc == 2 && strcmp(argv[1], "--deterministic") == 0;
    bool is_zipf = argc == 2 && strcmp(argv[1], "--zipf") == 0;
    struct kv_layout layout = {P, model.L, model.Hkv, model.D, KV_BF16, KV_LAYOUT_CK8};
    struct weights_plan plan;
    void *weights, *kv;
    double ms[6], query_ms[QUERY_CASES];

    if (device_cuda.choose(0) != ST_OK) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    for (uint32_t i = 0; i < model.D / 2; i++) {
        model.inv_freq[i] = pow(500000.0, -2.0 * i / model.D);
    }
    open_ops(is_deterministic, false);
    printf("deterministic: %s\n", is_deterministic ? "yes" : "no");
    alloc_step();
    measure_copy();
    MUST(weights_plan(&model, WEIGHT_BF16, &plan));
    MUST(ops->alloc(ops, plan.bytes, &weights));
    fill_random(weights, plan.bytes, 0.02f);
    step_pool_blocks = is_zipf ? ZIPF_BLOCKS : POOL_BLOCKS;
    while (ops->alloc(ops, step_pool_blocks * kv_layout_block_bytes(&layout), &kv) != ST_OK) {
        step_pool_blocks -= 500;
    }
    fill_random(kv, step_pool_blocks * kv_layout_block_bytes(&layout), 2.0f);
    open_llama(&plan, weights, kv, layout, is_zipf ? ZIPF_ROWS : ROWS_MAX);
    if (is_zipf) {
        bench_zipf_all(true, ms);
        bench_queries_all(true, query_ms);
        llama_destroy(&step_llama);
        ops_destroy(&ops);
        open_ops(false, true);
        open_llama(&plan, weights, kv, layout, ZIPF_ROWS);
        bench_zipf_all(false, ms);
        bench_queries_all(false, query_ms);
    } else if (argc == 2 && strcmp(argv[1], "--tier") == 0) {
        bench_tier(kv, layout);
    } else {
        bench_plain(argc == 2 && strcmp(argv[1], "--decode") == 0);
    }
    llama_destroy(&step_llama);
    ops_destroy(&ops);
    return 0;
}
