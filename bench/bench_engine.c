/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on the CPU: tokens a second when it builds documents, when it answers one request and
 * eight, and how much of the machine that is.  The ceiling is a large cblas_sgemm in the same run
 * on as many threads; a token costs at least two operations a weight.
 *
 *   bench_engine [MODEL.gguf [THREADS]]    without a file: a tiny model, whose numbers mean little
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "common/clock.h"
#include "common/mem.h"
#include "model/checkpoint.h"
#include "model/tiny_model.h"
#include "worker/engine.h"
#include "worker/load_weights.h"

#define STEP_TOKENS     512
#define SEQS_MAX        8
#define BLOCK_TOKENS    32
#define BLOCK_COUNT     512
#define DOCUMENT_TOKENS 1024
#define QUERY_TOKENS    32
#define ANSWER_TOKENS   64
#define CEILING_SIZE    1536 /* rows, columns and depth of the product that sets the ceiling */
#define CEILING_ROUNDS  4

struct bench {
    void *bytes; /* of the tiny model */
    struct checkpoint *checkpoint;
    struct model_config model;
    struct weights_plan plan;
    void *weights;
    void *kv;
    struct ops *ops;
    struct engine *engine;
    uint64_t flops_a_token; /* of matrix products, without the output matrix */
    uint64_t flops_a_draw;  /* of the output matrix */
    uint32_t ids[DOCUMENT_TOKENS];
    uint32_t blocks[BLOCK_COUNT];
    double ceiling; /* FLOP/s */
};

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "bench_engine: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static void *
must_alloc(size_t count, size_t size)
{
    void *storage = mem_zalloc(count, size);

    if (storage == NULL) {
        must(ERR(ST_NO_MEMORY, "%zu bytes", count * size));
    }
    return storage;
}

static void
open_bench(struct bench *b, const char *path, uint32_t threads)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct kv_layout layout;
    size_t length;

    if (path != NULL) {
        must(checkpoint_open(path, &b->checkpoint));
    } else {
        must(tiny_model_make(&tiny, &b->bytes, &length));
        must(checkpoint_open_bytes("tiny", b->bytes, length, &b->checkpoint));
    }
    b->model = *checkpoint_config(b->checkpoint);
    must(checkpoint_plan_weights(b->checkpoint, device_cpu.weight_type, device_cpu.keeps_quantised,
                                 &b->plan));
    b->weights = must_alloc(1, b->plan.bytes);
    must(load_weights(&device_cpu, b->checkpoint, &b->plan, b->weights, NULL, NULL));
    layout = (struct kv_layout){
        .P = BLOCK_TOKENS, .L = b->model.L, .Hkv = b->model.Hkv, .D = b->model.D};
    b->kv = must_alloc(BLOCK_COUNT, kv_layout_block_bytes(&layout));
    must(ops_cpu_new((struct ops_config){.threads = threads}, &b->ops));
    must(engine_new(&(struct engine_config){.model = &b->model,
                                            .tokenizer = checkpoint_tokenizer(b->checkpoint),
                                            .plan = &b->plan,
                                            .weights = b->weights,
                                            .kv = b->kv,
                                            .layout = layout,
                                            .block_count = BLOCK_COUNT,
                                            .ops = b->ops,
                                            .step_tokens = STEP_TOKENS,
                                            .seqs_max = SEQS_MAX},
                    &b->engine));
    const struct model_config *m = &b->model;

    b->flops_a_token =
        2ull * m->L * m->C * ((m->H + 2ull * m->Hkv) * m->D + (uint64_t)m->H * m->D + 3ull * m->F);
    b->flops_a_draw = 2ull * m->C * m->V;
    for (uint32_t i = 0; i < BLOCK_COUNT; i++) {
        b->blocks[i] = i;
    }
    for (uint32_t i = 0; i < DOCUMENT_TOKENS; i++) {
        b->ids[i] = 3 + i * 7919 % (m->V - 3);
    }
}

static void
close_bench(struct bench *b)
{
    engine_destroy(&b->engine);
    ops_destroy(&b->ops);
    checkpoint_close(&b->checkpoint);
    mem_free(b->bytes);
    mem_free(b->weights);
    mem_free(b->kv);
}

/* What the library reaches on one big product: nothing of ours can be faster. */
static double
measure_ceiling(uint32_t threads)
{
    size_t n = CEILING_SIZE;
    float *a = must_alloc(n * n, sizeof(float)), *w = must_alloc(n * n, sizeof(float)),
          *y = must_alloc(n * n, sizeof(float));
    double best = 0;

    for (size_t i = 0; i < n * n; i++) {
        a[i] = (float)(i % 7) - 3.0f;
        w[i] = (float)(i % 5) - 2.0f;
    }
    openblas_set_num_threads((int)threads);
    for (int round = 0; round < CEILING_ROUNDS; round++) {
        uint64_t start_us = clock_now_us();

        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)n, (int)n, 1.0f, a,
                    (int)n, w, (int)n, 0.0f, y, (int)n);
        double flops =
            2.0 * (double)n * (double)n * (double)n * 1e6 / (double)(clock_now_us() - start_us);

        best = flops > best ? flops : best;
    }
    mem_free(a);
    mem_free(w);
    mem_free(y);
    return best;
}

static uint64_t
run(struct bench *b)
{
    uint64_t start_us = clock_now_us();
    Kvasir__V1__Step *step = NULL;

    do {
        must(engine_step(b->engine, &step));
    } while (step != NULL);
    return clock_now_us() - start_us;
}

static void
apply(struct bench *b, Kvasir__V1__Assign *assign)
{
    Kvasir__V1__DaemonMessage message = KVASIR__V1__DAEMON_MESSAGE__INIT;

    message.body_case = KVASIR__V1__DAEMON_MESSAGE__BODY_ASSIGN;
    message.assign = assign;
    must(engine_apply(b->engine, &message));
}

static void
print(const struct bench *b, const char *what, uint32_t tokens, uint64_t elapsed_us, double flops)
{
    double seconds = (double)elapsed_us * 1e-6;
    double share = flops / seconds / b->ceiling;

    (void)printf("%-24s %6" PRIu32 " tokens %10.1f tokens/s %8.2f GFLOP/s %5.1f %% of sgemm\n",
                 what, tokens, tokens / seconds, flops / seconds * 1e-9, 100 * share);
    (void)printf("{\"bench\":\"engine\",\"case\":\"%s\",\"tokens\":%" PRIu32
                 ",\"tokens_per_s\":%.1f,\"share_of_sgemm\":%.3f}\n",
                 what, tokens, tokens / seconds, share);
}

/* A document of its own: prefill without logits. */
static void
bench_build(struct bench *b, uint64_t id, bool is_printed)
{
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    Kvasir__V1__Build build = KVASIR__V1__BUILD__INIT, *builds = &build;

    build.build = id;
    build.n_token_ids = DOCUMENT_TOKENS;
    build.token_ids = b->ids;
    build.n_block_ids = DOCUMENT_TOKENS / BLOCK_TOKENS;
    build.block_ids = b->blocks;
    assign.n_builds = 1;
    assign.builds = &builds;
    apply(b, &assign);
    uint64_t elapsed_us = run(b);

    if (is_printed) {
        print(b, "build", DOCUMENT_TOKENS, elapsed_us,
              (double)DOCUMENT_TOKENS * (double)b->flops_a_token);
    }
}

/* Requests over that document; times the steps after the one that prefills their queries. */
static void
bench_answers(struct bench *b, uint32_t requests)
{
    Kvasir__V1__Assign assign = KVASIR__V1__ASSIGN__INIT;
    Kvasir__V1__AssignSegment segment = KVASIR__V1__ASSIGN_SEGMENT__INIT, *segments = &segment;
    Kvasir__V1__Sampling sampling = KVASIR__V1__SAMPLING__INIT;
    Kvasir__V1__Step *step = NULL;
    char what[32];
    uint32_t own_blocks = (QUERY_TOKENS + ANSWER_TOKENS) / BLOCK_TOKENS;

    segment.n_tokens = DOCUMENT_TOKENS;
    segment.n_block_ids = DOCUMENT_TOKENS / BLOCK_TOKENS;
    segment.block_ids = b->blocks;
    sampling.max_tokens = ANSWER_TOKENS;
    assign.has_request = true;
    assign.n_segments = 1;
    assign.segments = &segments;
    assign.own_offset = DOCUMENT_TOKENS;
    assign.n_own_block_ids = own_blocks;
    assign.n_query_ids = QUERY_TOKENS;
    assign.query_ids = b->ids;
    assign.sampling = &sampling;
    assign.ignore_end = true;
    for (uint32_t i = 0; i < requests; i++) {
        assign.request = i + 1;
        assign.own_block_ids = b->blocks + segment.n_block_ids + (size_t)i * own_blocks;
        apply(b, &assign);
    }
    must(engine_step(b->engine, &step));
    uint64_t elapsed_us = run(b);
    uint32_t tokens = requests * (ANSWER_TOKENS - 1);

    (void)snprintf(what, sizeof(what), "decode, %u at once", requests);
    print(b, what, tokens, elapsed_us,
          (double)tokens * (double)(b->flops_a_token + b->flops_a_draw));
    (void)printf("%-24s every step reads the weights once: %.2f GB/s\n", "",
                 (double)b->plan.bytes * (ANSWER_TOKENS - 1) / (double)elapsed_us * 1e-3);
}

int
main(int argc, char **argv)
{
    struct bench b = {0};
    uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;

    b.ceiling = measure_ceiling(threads);
    open_bench(&b, argc > 1 ? argv[1] : NULL, threads);
    (void)printf("%s, %" PRIu32 " threads, cblas_sgemm reaches %.1f GFLOP/s\n",
                 checkpoint_path(b.checkpoint), threads, b.ceiling * 1e-9);
    bench_build(&b, 1, false);
    bench_build(&b, 2, true);
    bench_answers(&b, 1);
    bench_answers(&b, SEQS_MAX);
    close_bench(&b);
    return EXIT_SUCCESS;
}
