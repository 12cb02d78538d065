/* SPDX-License-Identifier: Apache-2.0 */
/* CPU attention over position-free documents at SmolLM2-135M's shape, one layer, one thread.
 *
 * The ceiling is multiply-adds: cblas_sgemm at its best shape in the same run.  The overhead of
 * being position-free is the run beside it, with the same keys as one segment (one rotation of each
 * query instead of one a document). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>

#include "bench/rounds.h"
#include "kernels/lazy_prefill.h"

#define BLOCKS   512
#define ROWS_MAX 512
#define SEGS_MAX 64

enum {
    H = 9,
    D = 64
};

static double
blas_gflops(void)
{
    enum {
        N = 512
    };
    float *a = random_floats((size_t)N * N), *b = random_floats((size_t)N * N);
    float *c = random_floats((size_t)N * N);
    double seconds[ROUNDS];

    openblas_set_num_threads(1);
    for (int round = 0; round < ROUNDS; round++) {
        double start = cpu_seconds();

        for (int i = 0; i < 4; i++) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, N, N, 1, a, N, b, N, 0, c, N);
        }
        seconds[round] = (cpu_seconds() - start) / 4;
    }
    free(a);
    free(b);
    free(c);
    return 2e-9 * N * N * N / median(seconds);
}

struct prompt {
    uint32_t n_docs, doc_tokens, n_rows;
};

/* Seconds of one layer; `n_docs` documents, or all their tokens as one. */
static double
measure(const struct prompt *p, uint32_t n_docs, const float *kv, const float *q, float *out)
{
    const struct kv_layout layout = {.P = 32, .L = 1, .Hkv = 3, .D = D};
    struct attn_segment segs[SEGS_MAX];
    static uint32_t ids[4096];
    double inv_freq[D / 2], seconds[ROUNDS];
    uint32_t n_ids = 0, at = 0, tokens = p->n_docs * p->doc_tokens;

    for (uint32_t s = 0; s <= n_docs; s++) {
        uint32_t n = s == n_docs ? p->n_rows : tokens / n_docs;

        segs[s] = (struct attn_segment){.block_first = n_ids, .n_tokens = n, .offset = at};
        at += n;
        for (uint32_t b = 0; b < (n + layout.P - 1) / layout.P; b++, n_ids++) {
            ids[n_ids] = n_ids * 7 % BLOCKS;
        }
    }
    for (int i = 0; i < D / 2; i++) {
        inv_freq[i] = pow(10000.0, -2.0 * i / D);
    }
    struct attn_seq seq = {.n_rows = p->n_rows, .pos_first = tokens, .n_segs = n_docs + 1};
    struct attn_desc desc = {.kv = kv,
                             .layout = layout,
                             .n_blocks = BLOCKS,
                             .block_ids = ids,
                             .segs = segs,
                             .seqs = &seq,
                             .n_seqs = 1,
                             .H = H,
                             .inv_freq = inv_freq,
                             .rope_scale = 1,
                             .scale = 0.125f};

    for (int round = -1; round < ROUNDS; round++) { /* the first one warms up */
        double start = cpu_seconds();

        if (lazy_prefill_ref((struct lazy_prefill_args){desc, q, out}) != ST_OK) {
            printf("%s\n", status_detail());
            exit(EXIT_FAILURE);
        }
        if (round >= 0) {
            seconds[round] = cpu_seconds() - start;
        }
    }
    return median(seconds);
}

int
main(void)
{
    const struct prompt prompts[] = {
        {10, 150, 1}, {10, 150, 20}, {10, 150, 512}, {5, 2000, 20}, {1, 512, 512}};
    float *kv = random_floats((size_t)BLOCKS * 32 * 2 * 3 * D);
    float *q = random_floats((size_t)ROWS_MAX * H * D),
          *out = random_floats((size_t)ROWS_MAX * H * D);
    double ceiling = blas_gflops();

    printf("one thread; ceiling %.1f GFLOP/s (sgemm 512)\n", ceiling);
    printf("%-12s %5s %10s %9s %8s %14s\n", "documents", "rows", "us/layer", "GFLOP/s", "of peak",
           "one segment us");
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
        const struct prompt *p = &prompts[i];
        double t = measure(p, p->n_docs, kv, q, out), one = measure(p, 1, kv, q, out);
        double keys = p->n_rows * (p->n_docs * p->doc_tokens + (p->n_rows + 1) / 2.0);
        double gflops = keys * H * D * 4e-9 / t;

        printf("%4u x %-5u %5u %10.1f %9.1f %7.0f%% %14.1f\n", p->n_docs, p->doc_tokens, p->n_rows,
               t * 1e6, gflops, 100 * gflops / ceiling, one * 1e6);
        printf("{\"bench\":\"lazy_prefill\",\"docs\":%u,\"tokens\":%u,\"rows\":%u,\"us\":%.1f,"
               "\"one_segment_us\":%.1f,\"of_peak\":%.3f}\n",
               p->n_docs, p->doc_tokens, p->n_rows, t * 1e6, one * 1e6, gflops / ceiling);
    }
    free(kv);
    free(q);
    free(out);
    return EXIT_SUCCESS;
}
