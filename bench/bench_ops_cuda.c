/* SPDX-License-Identifier: Apache-2.0 */
/* The attention and matrix operations of the CUDA instance at Llama-3.1-8B's shape, per layer.
 *
 * Each measurement walks the layers of a real pool (different memory each call, so L2 is cold),
 * takes the median of several rounds and prints it beside what bounds it: bytes over the device's
 * copy bandwidth measured in the same run, or floating-point operations a second. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>

#include "bench/device_memory.h"
#include "bench/wall_clock.h"
#include "kernels/ops.h"
#include "kernels/ops_cuda.h"

#define ROUNDS   9
#define LAYERS   8
#define SEQS_MAX 64
#define SEGS_MAX 4096

static struct ops *gpu;
static double copy_gbs;

static const uint32_t H = 32, Hkv = 8, D = 128, P = 32;

struct scene {
    struct kv_layout layout;
    uint32_t n_blocks, n_seqs, n_segs, n_ids, n_rows;
    struct attn_seq seqs[SEQS_MAX];
    struct attn_segment segs[SEGS_MAX];
    uint32_t *ids;
    void *kv, *d_seqs, *d_segs, *d_ids, *d_inv_freq, *q, *out;
};

typedef void (*bench_fn)(void *arg, uint32_t layer);

/* Median microseconds a call over LAYERS calls. */
static double
time_us(bench_fn fn, void *arg)
{
    double us[ROUNDS];
    struct timespec a, b;

    for (uint32_t l = 0; l < LAYERS; l++) {
        fn(arg, l);
    }
    MUST(gpu->finish(gpu));
    for (int r = 0; r < ROUNDS; r++) {
        (void)clock_gettime(CLOCK_MONOTONIC, &a);
        for (int k = 0; k < 4; k++) {
            for (uint32_t l = 0; l < LAYERS; l++) {
                fn(arg, l);
            }
        }
        MUST(gpu->finish(gpu));
        (void)clock_gettime(CLOCK_MONOTONIC, &b);
        us[r] = ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3)
                / (4 * LAYERS);
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_value);
    return us[ROUNDS / 2];
}

static void
add_seq(struct scene *s, uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t n_rows)
{
    struct attn_seq *seq = &s->seqs[s->n_seqs++];
    uint32_t offset = 0;

    *seq = (struct attn_seq){s->n_rows, n_rows, 0, s->n_segs, n_docs + 1};
    for (uint32_t i = 0; i <= n_docs; i++) {
        uint32_t n_tokens = i < n_docs ? doc_tokens : own;
        uint32_t blocks = (n_tokens + P - 1) / P;

        s->segs[s->n_segs++] = (struct attn_segment){s->n_ids, n_tokens, offset, 0};
        for (uint32_t b = 0; b < blocks; b++) {
            s->ids[s->n_ids] = (b * 2654435761u + s->n_ids * 40503u) % s->n_blocks;
            s->n_ids++;
        }
        offset += n_tokens;
    }
    seq->pos_first = offset - n_rows;
    s->n_rows += n_rows;
}

static void
begin(struct scene *s, void *kv, uint32_t n_blocks, void *d_inv_freq)
{
    uint32_t *ids = s->ids == NULL ? malloc(sizeof(uint32_t) << 20) : s->ids;

    memset(s, 0, sizeof(*s));
    s->ids = ids;
    s->layout = (struct kv_layout){P, LAYERS, Hkv, D, KV_BF16, KV_LAYOUT_CK8};
    s->n_blocks = n_blocks;
    s->kv = kv;
    s->d_inv_freq = d_inv_freq;
}

static void
prepare(struct scene *s, bool is_decode)
{
    s->d_seqs = device(gpu, s->seqs, sizeof(s->seqs));
    s->d_segs = device(gpu, s->segs, sizeof(s->segs));
    s->d_ids = device(gpu, s->ids, s->n_ids * 4);
    s->q = random_bf16(gpu, (size_t)s->n_rows * H * D);
    s->out = device(gpu, NULL, (size_t)s->n_rows * H * D * 2);
    MUST(gpu->begin_step(gpu, (struct attn_step){.segs = s->segs,
                                                 .block_ids = s->ids,
                                                 .prefill = is_decode ? NULL : s->seqs,
                                                 .decode = is_decode ? s->seqs : NULL,
                                                 .n_prefill = is_decode ? 0 : s->n_seqs,
                                                 .n_decode = is_decode ? s->n_seqs : 0,
                                                 .H = H,
                                                 .layout = s->layout,
                                                 .inv_freq = s->d_inv_freq,
                                                 .rope_scale = 1.0f}));
    MUST(gpu->finish(gpu));
}

static void
end(struct scene *s)
{
    void *all[] = {s->d_seqs, s->d_segs, s->d_ids, s->q, s->out};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        gpu->release(gpu, all[i]);
    }
}

static struct attn_desc
desc_of(const struct scene *s, uint32_t layer)
{
    return (struct attn_desc){.kv = s->kv,
                              .layout = s->layout,
                              .layer = layer,
                              .n_blocks = s->n_blocks,
                              .block_ids = s->d_ids,
                              .segs = s->d_segs,
                              .seqs = s->d_seqs,
                              .n_seqs = s->n_seqs,
                              .H = H,
                              .inv_freq = s->d_inv_freq,
                              .rope_scale = 1.0f,
                              .scale = 0.08838834764f};
}

static void
run_decode(void *arg, uint32_t layer)
{
    struct scene *s = arg;

    MUST(gpu->lazy_decode(gpu, (struct lazy_decode_args){.desc = desc_of(s, layer), .q = s->q},
                          s->out));
}

static void
run_prefill(void *arg, uint32_t layer)
{
    struct scene *s = arg;

    MUST(gpu->lazy_prefill(
        gpu, (struct lazy_prefill_args){.desc = desc_of(s, layer), .q = s->q, .out = s->out}));
}

static void
bench_decode(struct scene *s, uint32_t batch, uint32_t n_docs, uint32_t doc_tokens, uint32_t own)
{
    for (uint32_t i = 0; i < batch; i++) {
        add_seq(s, n_docs, doc_tokens, own, 1);
    }
    prepare(s, true);
    double us = time_us(run_decode, s);
    double bytes = (double)batch * (n_docs * doc_tokens + own) * 4 * Hkv * D;
    printf("decode  b=%-3u %2u x %-5u + %-4u %9.1f us %7.0f GB/s %5.1f%% of copy\n", batch, n_docs,
           doc_tokens, own, us, bytes / us / 1e3, bytes / us / 1e3 / copy_gbs * 100);
    end(s);
}

static void
bench_prefill(struct scene *s, uint32_t batch, uint32_t n_docs, uint32_t doc_tokens, uint32_t rows)
{
    double pairs = 0;

    for (uint32_t i = 0; i < batch; i++) {
        add_seq(s, n_docs, doc_tokens, rows, rows);
        pairs += (double)rows * n_docs * doc_tokens + (double)rows * (rows + 1) / 2;
    }
    prepare(s, false);
    double us = time_us(run_prefill, s);
    printf("prefill %2u x %-5u rows over %2u x %-5u %9.1f us %6.0f TFLOP/s\n", batch, rows, n_docs,
           doc_tokens, us, pairs * 4 * D * H / us / 1e6);
    end(s);
}

struct product {
    void *x, *w, *y;
    uint32_t M, N, K;
};

static void
run_gemm(void *arg, uint32_t layer)
{
    struct product *p = arg;

    MUST(gpu->gemm(gpu, (struct gemm_args){.x = p->x,
                                           .w = (char *)p->w + (size_t)layer * p->N * p->K * 2,
                                           .y = p->y,
                                           .M = p->M,
                                           .N = p->N,
                                           .K = p->K}));
}

static void
bench_gemm(const char *name, uint32_t N, uint32_t K)
{
    static const uint32_t Ms[] = {1, 8, 32, 128, 512, 4096};
    struct product p = {random_bf16(gpu, (size_t)4096 * K),
                        random_bf16(gpu, (size_t)LAYERS * N * K),
                        device(gpu, NULL, (size_t)4096 * N * 2),
                        0,
                        N,
                        K};

    for (size_t i = 0; i < sizeof(Ms) / sizeof(Ms[0]); i++) {
        p.M = Ms[i];
        double us = time_us(run_gemm, &p);
        double gbs = (double)N * K * 2 / us / 1e3;
        printf("gemm %-8s M=%-5u %9.1f us %7.0f GB/s %5.1f%% of copy %6.0f TFLOP/s\n", name, p.M,
               us, gbs, gbs / copy_gbs * 100, 2.0 * p.M * N * K / us / 1e6);
    }
    gpu->release(gpu, p.x);
    gpu->release(gpu, p.w);
    gpu->release(gpu, p.y);
}

static void
measure_copy(void)
{
    const size_t bytes = (size_t)4 << 30;
    char *a = device(gpu, NULL, bytes), *b = device(gpu, NULL, bytes);
    double best = 0;

    for (int i = 0; i < 6; i++) {
        struct timespec t0, t1;
        (void)cudaDeviceSynchronize();
        (void)clock_gettime(CLOCK_MONOTONIC, &t0);
        (void)cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, 0);
        (void)cudaDeviceSynchronize();
        (void)clock_gettime(CLOCK_MONOTONIC, &t1);
        double s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9;
        best = 2.0 * (double)bytes / s / 1e9 > best ? 2.0 * (double)bytes / s / 1e9 : best;
    }
    copy_gbs = best;
    printf("copy %.0f GB/s\n", copy_gbs);
    gpu->release(gpu, a);
    gpu->release(gpu, b);
}

int
main(void)
{
    const struct ops_config config = {
        .H = 32, .Hkv = 8, .D = 128, .rows_max = 16384, .seqs_max = SEQS_MAX, .segs_max = SEGS_MAX};
    static struct scene s;
    const uint32_t n_blocks = 24000; /* 8 layers x 32 tokens x 4 KiB: 25 GB */
    double inv_freq[64];

    if (ops_cuda_new(config, &gpu) != ST_OK) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    measure_copy();
    for (int i = 0; i < 64; i++) {
        inv_freq[i] = pow(500000.0, -2.0 * i / 128);
    }
    void *d_inv_freq = device(gpu, inv_freq, sizeof(inv_freq));
    struct kv_layout layout = {P, LAYERS, Hkv, D, KV_BF16, KV_LAYOUT_CK8};
    void *kv = random_bf16(gpu, kv_layout_block_bytes(&layout) / 2 * n_blocks);

#define SCENE(fn, ...)                                                                             \
    do {                                                                                           \
        begin(&s, kv, n_blocks, d_inv_freq);                                                       \
        fn(&s, __VA_ARGS__);                                                                       \
    } while (0)
    SCENE(bench_decode, 1, 5, 4096, 64);
    SCENE(bench_decode, 8, 5, 4096, 64);
    SCENE(bench_decode, 32, 5, 4096, 64);
    SCENE(bench_decode, 1, 1, 1024, 64);
    SCENE(bench_decode, 1, 1, 4096, 64);
    SCENE(bench_decode, 8, 40, 512, 64);
    SCENE(bench_decode, 8, 128, 128, 64);
    SCENE(bench_prefill, 1, 5, 4096, 64);
    SCENE(bench_prefill, 1, 5, 4096, 16);
    SCENE(bench_prefill, 1, 5, 4096, 512);
    SCENE(bench_prefill, 1, 0, 0, 512);
    SCENE(bench_prefill, 1, 0, 0, 1024);
    SCENE(bench_prefill, 1, 0, 0, 4096);
    SCENE(bench_prefill, 1, 0, 0, 16384);
    SCENE(bench_prefill, 16, 0, 0, 1024);
    bench_gemm("qkv", 6144, 4096);
    bench_gemm("o", 4096, 4096);
    bench_gemm("gate_up", 28672, 4096);
    bench_gemm("down", 4096, 14336);
    ops_destroy(&gpu);
    return 0;
}
