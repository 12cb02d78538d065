/* SPDX-License-Identifier: Apache-2.0 */
/* The model and the whole engine on a GPU against the same on the CPU, on tiny models whose weights
 * both sides hold exactly (bf16).
 *
 * Logits: on these very models transformers in bf16 is off its own float64 by 5.5e-2 (H=4/2) and
 * 7.0e-2 (H=9/3) of the logits' norm; asked for: no worse than the better of the two.
 * Texts: greedy answers may part where two tokens are nearly tied.  The noise of a case is the
 * largest difference of a logit; a log probability differs by at most twice it at the same context,
 * and where the texts part, the device's choice is as probable as the CPU's within twice that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "tests/support/engine_rig.h"
#include "tests/support/gpu_main.h"
#include "worker/llama.h"

#define LOGITS_TOLERANCE 5.5e-2 /* relative, in the 2-norm */
#define ANSWER_TOKENS    48
#define DOCS             3

static const struct tiny_case {
    uint32_t H, Hkv, D, C, F, L;
} cases[] = {
    {4, 2, 64, 128, 256, 2},
    {9, 3, 64, 576, 1536, 3},
    {8, 1, 128, 256, 512, 2},
    {4, 4, 128, 512, 768, 2},
};

static struct tiny_model_config
tiny_of(const struct tiny_case *c)
{
    struct tiny_model_config tiny = tiny_model_defaults();

    tiny.H = c->H;
    tiny.Hkv = c->Hkv;
    tiny.D = c->D;
    tiny.C = c->C;
    tiny.F = c->F;
    tiny.L = c->L;
    tiny.type = GGUF_TENSOR_BF16;
    return tiny;
}

static struct rig *
open_rig(const struct tiny_case *c, const struct device_kind *kind, uint32_t step_tokens)
{
    struct tiny_model_config tiny = tiny_of(c);
    struct rig_config config = rig_defaults();

    config.tiny = &tiny;
    config.kind = kind;
    config.step_tokens = step_tokens;
    return rig_new(&config);
}

/* Three documents, built by request 1 and read again in another order by request 2. */
static void
run_requests(struct rig *rig)
{
    uint32_t ids[DOCS][150];
    uint32_t query[40];
    struct rig_doc docs[DOCS];
    struct rig_doc again[DOCS];

    for (uint32_t i = 0; i < DOCS; i++) {
        uint32_t n = 37 + i * 55;

        for (uint32_t t = 0; t < n; t++) {
            ids[i][t] = 3 + (t * 31 + i * 17 + t * t) % 256;
        }
        docs[i] = (struct rig_doc){
            .ids = ids[i], .n_ids = n, .blocks = rig_blocks(rig, n), .build = i + 1};
        again[DOCS - 1 - i] = docs[i];
        again[DOCS - 1 - i].build = 0;
    }
    for (uint32_t t = 0; t < 40; t++) {
        query[t] = 3 + (t * 7) % 256;
    }
    struct rig_request request = {.id = 1,
                                  .docs = docs,
                                  .n_docs = DOCS,
                                  .query = query,
                                  .n_query = 40,
                                  .max_tokens = ANSWER_TOKENS,
                                  .wants_logprobs = true,
                                  .ignores_end = true};
    rig_assign(rig, &request);
    rig_run(rig);
    request.id = 2;
    request.docs = again;
    rig_assign(rig, &request);
    rig_run(rig);
    for (uint32_t i = 0; i < DOCS; i++) {
        mem_free(docs[i].blocks);
    }
}

static void
compare(const struct rig_heard *want, const struct rig_heard *got, double noise, const char *what)
{
    size_t n = 0;
    double worst = 0.0;

    ck_assert_str_eq(got->error, "");
    ck_assert_uint_eq(want->n_ids, ANSWER_TOKENS);
    ck_assert_uint_eq(got->n_ids, ANSWER_TOKENS);
    while (n < ANSWER_TOKENS && got->ids[n] == want->ids[n]) {
        worst = fmax(worst, fabs((double)got->logprobs[n] - want->logprobs[n]));
        n++;
    }
    printf("%s: %zu of %d tokens equal, log probabilities within %.4f (noise %.4f)\n", what, n,
           ANSWER_TOKENS, worst, noise);
    ck_assert_msg(worst <= 2 * noise, "%s: log probabilities differ by %g", what, worst);
    if (n < ANSWER_TOKENS) {
        double gap = fabs((double)got->logprobs[n] - want->logprobs[n]);

        ck_assert_msg(gap <= 4 * noise, "%s: token %zu differs, gap %g", what, n, gap);
    }
}

/* --- the model alone ---------------------------------------------------------------------------
 */

#define PART_TOKENS 100 /* of each of two documents, and of the query */
#define PARTS       3
#define PART_BLOCKS 7 /* of 16 tokens */

/* One step: two cold documents and a query over both; the logits of all rows of the query. */
static float *
logits_of(const struct rig *rig)
{
    enum {
        ROWS = PARTS * PART_TOKENS
    };
    uint32_t ids[ROWS], block[ROWS], slot[ROWS], pos[ROWS], blocks[PARTS * PART_BLOCKS];
    uint32_t logit_rows[PART_TOKENS];
    struct attn_segment segs[5];
    struct attn_seq seqs[PARTS];
    struct llama *llama;
    float *logits = mem_zalloc((size_t)PART_TOKENS * rig->model.V, sizeof(*logits));

    for (uint32_t i = 0; i < PARTS * PART_BLOCKS; i++) {
        blocks[i] = 50 - i;
    }
    for (uint32_t i = 0; i < PARTS; i++) {
        segs[i] = (struct attn_segment){i * PART_BLOCKS, PART_TOKENS, 0, 0};
        segs[2 + i] = (struct attn_segment){i * PART_BLOCKS, PART_TOKENS, i * PART_TOKENS, 0};
        seqs[i] = (struct attn_seq){i * PART_TOKENS, PART_TOKENS, 0, i, 1};
        for (uint32_t t = 0; t < PART_TOKENS; t++) {
            uint32_t row = i * PART_TOKENS + t;

            ids[row] = 3 + (t * 31 + i * 17 + t * t) % 256;
            block[row] = blocks[i * PART_BLOCKS + t / 16];
            slot[row] = t % 16;
            pos[row] = t;
            logit_rows[t] = 2 * PART_TOKENS + t;
        }
    }
    seqs[2] = (struct attn_seq){2 * PART_TOKENS, PART_TOKENS, 2 * PART_TOKENS, 2, 3};
    ck_assert_int_eq(llama_new(&(struct llama_config){.model = &rig->model,
                                                      .plan = &rig->plan,
                                                      .weights = rig->weights,
                                                      .kv = rig->kv,
                                                      .layout = rig->layout,
                                                      .block_count = rig->config.block_count,
                                                      .ops = rig->ops,
                                                      .rows_max = ROWS,
                                                      .logits_max = PART_TOKENS},
                               &llama),
                     ST_OK);
    ck_assert_int_eq(
        llama_reserve(llama, &(struct llama_room){.segs = 5, .block_ids = PARTS * PART_BLOCKS}),
        ST_OK);
    ck_assert_int_eq(llama_forward(llama, &(struct llama_step){.n_rows = ROWS,
                                                               .ids = ids,
                                                               .row_block = block,
                                                               .row_slot = slot,
                                                               .row_pos = pos,
                                                               .n_seqs = PARTS,
                                                               .seqs = seqs,
                                                               .segs = segs,
                                                               .n_segs = 5,
                                                               .block_ids = blocks,
                                                               .n_block_ids = PARTS * PART_BLOCKS,
                                                               .logit_rows = logit_rows,
                                                               .n_logits = PART_TOKENS}),
                     ST_OK);
    ck_assert_int_eq(llama_logits(llama, PART_TOKENS, logits), ST_OK);
    llama_destroy(&llama);
    return logits;
}

/* Compares the logits of a case; returns the largest difference of one. */
static double
measure_noise(const struct rig *cpu, const struct rig *gpu, const char *what)
{
    float *want = logits_of(cpu);
    float *got = logits_of(gpu);
    double error = 0.0, norm = 0.0, worst = 0.0;

    for (size_t i = 0; i < (size_t)PART_TOKENS * cpu->model.V; i++) {
        double d = fabs((double)got[i] - want[i]);

        ck_assert(isfinite(got[i]));
        error += d * d;
        norm += (double)want[i] * want[i];
        worst = fmax(worst, d);
    }
    error = sqrt(error / norm);
    printf("%s: logits within %.2e of their norm, worst %.4f\n", what, error, worst);
    ck_assert_msg(error <= LOGITS_TOLERANCE, "%s: logits differ by %g of their norm", what, error);
    mem_free(want);
    mem_free(got);
    return worst;
}

START_TEST(the_gpu_answers_as_the_cpu_does)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t step_tokens = 33; step_tokens <= 512; step_tokens += 479) {
            struct rig *cpu = open_rig(&cases[i], &device_cpu, step_tokens);
            struct rig *gpu = open_rig(&cases[i], &device_cuda, step_tokens);
            char what[96];

            (void)snprintf(what, sizeof(what), "H=%u/%u D=%u", cases[i].H, cases[i].Hkv,
                           cases[i].D);
            double noise = measure_noise(cpu, gpu, what);

            run_requests(cpu);
            run_requests(gpu);
            for (uint32_t r = 1; r <= 2; r++) {
                (void)snprintf(what, sizeof(what), "H=%u/%u D=%u steps of %u, request %u",
                               cases[i].H, cases[i].Hkv, cases[i].D, step_tokens, r);
                compare(&cpu->heard[r], &gpu->heard[r], noise, what);
            }
            rig_destroy(&cpu);
            rig_destroy(&gpu);
        }
    }
}
END_TEST

#define TINY_DOCS 4000u

/* One token a document: more (row, segment) pairs than a device holds at once. */
static void
run_tiny_documents(struct rig *rig)
{
    uint32_t *ids = mem_zalloc(TINY_DOCS, sizeof(ids[0]));
    struct rig_doc *docs = mem_zalloc(TINY_DOCS, sizeof(docs[0]));
    uint32_t query[60];

    ck_assert(ids != NULL && docs != NULL);
    for (uint32_t i = 0; i < TINY_DOCS; i++) {
        ids[i] = 3 + i * 7 % 250;
        docs[i] = (struct rig_doc){
            .ids = &ids[i], .n_ids = 1, .blocks = rig_blocks(rig, 1), .build = i + 1};
    }
    for (uint32_t t = 0; t < 60; t++) {
        query[t] = 3 + (t * 7) % 250;
    }
    for (uint64_t id = 1; id <= 3; id++) {
        rig_assign(rig, &(struct rig_request){.id = id,
                                              .docs = docs,
                                              .n_docs = TINY_DOCS,
                                              .query = query,
                                              .n_query = 60,
                                              .max_tokens = ANSWER_TOKENS,
                                              .wants_logprobs = true,
                                              .ignores_end = true});
        for (uint32_t i = 0; i < TINY_DOCS; i++) {
            docs[i].is_joined = true;
        }
    }
    rig_run(rig);
    for (uint32_t i = 0; i < TINY_DOCS; i++) {
        mem_free(docs[i].blocks);
    }
    mem_free(docs);
    mem_free(ids);
}

START_TEST(thousands_of_tiny_documents_go_through_in_several_steps)
{
    struct tiny_model_config tiny = tiny_of(&cases[0]);
    struct rig_config config = rig_defaults();

    config.tiny = &tiny;
    config.kind = &device_cuda;
    config.step_tokens = 512;
    config.block_count = TINY_DOCS + 64;
    struct rig *rig = rig_new(&config);

    ck_assert_uint_lt(rig->ops->step_pairs_max, 60 * (TINY_DOCS + 1));
    run_tiny_documents(rig);
    for (uint32_t id = 1; id <= 3; id++) {
        ck_assert_str_eq(rig->heard[id].error, "");
        ck_assert_uint_eq(rig->heard[id].n_ids, ANSWER_TOKENS);
        for (size_t i = 0; i < ANSWER_TOKENS; i++) {
            ck_assert(isfinite(rig->heard[id].logprobs[i]));
        }
    }
    printf("3 requests over %u documents: %u steps\n", TINY_DOCS, rig->steps);
    rig_destroy(&rig);
}
END_TEST

static size_t
tuning_bytes(const struct ops *ops)
{
    size_t bytes;

    (void)ops->tuning(ops, &bytes);
    return bytes;
}

/* An instance for the same steps that is given this much of what another one measured. */
static size_t
taken_over(const struct rig *rig, const void *tuning, size_t bytes)
{
    struct ops *ops = NULL;

    ck_assert_int_eq(device_cuda.ops_new((struct ops_config){.threads = 1,
                                                             .tuning = tuning,
                                                             .tuning_bytes = bytes,
                                                             .H = rig->model.H,
                                                             .Hkv = rig->model.Hkv,
                                                             .D = rig->model.D,
                                                             .rows_max = 8,
                                                             .seqs_max = 8,
                                                             .segs_max = 8},
                                         &ops),
                     ST_OK);
    bytes = tuning_bytes(ops);
    ops_destroy(&ops);
    return bytes;
}

START_TEST(after_settling_no_step_chooses_an_algorithm_and_another_worker_takes_them_over)
{
    struct rig *rig = open_rig(&cases[1], &device_cuda, 500);
    size_t none = tuning_bytes(rig->ops);
    size_t bytes;

    ck_assert_int_eq(engine_settle(rig->engine), ST_OK);
    size_t settled = tuning_bytes(rig->ops);
    ck_assert_uint_gt(settled, none);
    run_requests(rig);
    ck_assert_uint_eq(tuning_bytes(rig->ops), settled);

    const void *tuning = rig->ops->tuning(rig->ops, &bytes);
    ck_assert_uint_eq(taken_over(rig, tuning, bytes), settled);
    ck_assert_uint_eq(taken_over(rig, tuning, bytes - 1), none); /* damaged: measured anew */
    ck_assert_uint_eq(taken_over(rig, tuning, 0), none);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_real_model_answers_on_the_gpu_as_on_the_cpu)
{
    struct rig_config config = rig_defaults();

    config.model_path = getenv("KVASIR_TEST_MODEL");
    if (config.model_path == NULL) {
        printf("SKIP: no $KVASIR_TEST_MODEL\n");
        return;
    }
    config.step_tokens = 512;
    struct rig *cpu = rig_new(&config);

    config.kind = &device_cuda;
    struct rig *gpu = rig_new(&config);

    /* The CPU has the file's weights in float32, the GPU rounds them: twice the roundings. */
    double noise = 2 * measure_noise(cpu, gpu, "real model");

    run_requests(cpu);
    run_requests(gpu);
    compare(&cpu->heard[1], &gpu->heard[1], noise, "real model, cold");
    compare(&cpu->heard[2], &gpu->heard[2], noise, "real model, hot");
    rig_destroy(&cpu);
    rig_destroy(&gpu);
}
END_TEST

GPU_MAIN("engine_cuda", device_cuda.choose(0), the_gpu_answers_as_the_cpu_does,
         thousands_of_tiny_documents_go_through_in_several_steps,
         after_settling_no_step_chooses_an_algorithm_and_another_worker_takes_them_over,
         a_real_model_answers_on_the_gpu_as_on_the_cpu)
