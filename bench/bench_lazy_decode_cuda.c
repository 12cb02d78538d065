/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_decode on sm_90 at Llama-3.1-8B's shape, per layer: alone and with shared documents.
 *
 *   bench_lazy_decode_cuda [--sweep]     --sweep: other ways to cut beside the default
 *
 * A measurement is a recorded graph of launches over the layers of one pool (different memory each
 * time, so L2 is cold); variants take turns, ROUNDS times, and the median counts.  Percentages are
 * of the read ceiling of the same run: bytes that have to be read at least once, over the time.
 * Every variant's output is compared with the first one's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime.h>

#include "bench/read_ceiling.h"
#include "bench/wall_clock.h"
#include "kernels/attn_cuda.h"
#include "kernels/decode_cuda.h"

#define ROUNDS   11
#define LAYERS   8u
#define SEQS_MAX 128u
#define SEGS_MAX (SEQS_MAX * 132)
#define IDS_MAX  (1u << 20)
#define DOCS     1000u  /* that requests choose from */
#define N_BLOCKS 36007u /* 1 MiB each; a prime, see block_of */

static const uint32_t H = 32, Hkv = 8, D = 128, P = 32;

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess) {                                                               \
            printf("FAIL %s: %s\n", #call, cudaGetErrorName(error_));                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static cudaStream_t stream;
static uint32_t sm_count;
static char *kv;
static void *partials;
static const size_t partials_bytes = (size_t)256 << 20;
static double *d_inv_freq;
static double read_gbs;
static bool is_sweep;
static uint32_t n_wrong;

/* A step of decodes. */
static struct scene {
    struct attn_seq seqs[SEQS_MAX];
    struct attn_segment segs[SEGS_MAX];
    uint32_t angle_first[SEQS_MAX];
    uint32_t *ids;
    uint32_t n_seqs, n_segs, n_ids, n_blocks; /* blocks given out */
    uint32_t n_docs;                          /* distinct */
    double unique_bytes;                      /* a layer */
    void *q, *out, *d_ids, *d_segs, *d_seqs, *d_angle_first;
    float *angles;
} scene;

static void *
upload(const void *host, size_t bytes)
{
    void *memory;

    CUDA(cudaMalloc(&memory, bytes + 16));
    CUDA(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
    return memory;
}

/* Random bf16 in [-2, 2): zeros would make the tensor cores faster than they are. */
static void
fill_random(char *memory, size_t bytes)
{
    const size_t piece = (size_t)64 << 20;
    uint16_t *host = malloc(piece);
    uint32_t x = 1;

    for (size_t i = 0; i < piece / 2; i++) {
        float v = (float)((int)((x = x * 1664525u + 1013904223u) >> 24) - 128) / 64.0f;
        uint32_t bits;

        memcpy(&bits, &v, 4);
        host[i] = (uint16_t)(bits >> 16);
    }
    for (size_t at = 0; at < bytes; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        CUDA(cudaMemcpy(memory + at, host, n, cudaMemcpyHostToDevice));
    }
    free(host);
}

/* The n-th block given out: all over the pool, none twice. */
static uint32_t
block_of(uint32_t n)
{
    return (uint32_t)((uint64_t)n * 7919 % N_BLOCKS);
}

static void
scene_begin(void)
{
    uint32_t *ids = scene.ids == NULL ? malloc(IDS_MAX * sizeof(ids[0])) : scene.ids;

    memset(&scene, 0, sizeof(scene));
    scene.ids = ids;
}

/* A document of `blocks` blocks from number `first` on. */
static void
add_segment(uint32_t first, uint32_t n_tokens, uint32_t offset)
{
    scene.segs[scene.n_segs++] = (struct attn_segment){scene.n_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < (n_tokens + P - 1) / P; i++) {
        scene.ids[scene.n_ids++] = block_of(first + i);
    }
}

static uint32_t
new_blocks(uint32_t n_tokens)
{
    uint32_t first = scene.n_blocks;

    scene.n_blocks += (n_tokens + P - 1) / P;
    scene.unique_bytes += (double)n_tokens * 4 * Hkv * D;
    return first;
}

/* A request over documents (numbers of their first blocks) with `own` tokens of its own. */
static void
add_request(const uint32_t *docs, uint32_t n_docs, uint32_t doc_tokens, uint32_t own,
            bool has_offsets)
{
    uint32_t offset = 0;
    struct attn_seq *seq = &scene.seqs[scene.n_seqs];

    *seq = (struct attn_seq){scene.n_seqs, 1, 0, scene.n_segs, n_docs + 1};
    scene.angle_first[scene.n_seqs++] = scene.n_segs;
    for (uint32_t i = 0; i < n_docs; i++) {
        add_segment(docs[i], doc_tokens, has_offsets ? offset : 0);
        offset += doc_tokens;
    }
    add_segment(new_blocks(own), own, offset);
    seq->pos_first = offset + own - 1;
}

static void
scene_end(void)
{
    size_t count = (size_t)scene.n_seqs * H * D;
    uint16_t *q = malloc(count * 2);

    if (scene.n_blocks > N_BLOCKS || scene.n_ids > IDS_MAX) {
        printf("FAIL: scene of %u blocks, %u ids\n", scene.n_blocks, scene.n_ids);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        float v = (float)((int)((i * 2654435761u >> 7) % 256) - 128) / 64.0f;
        uint32_t bits;

        memcpy(&bits, &v, 4);
        q[i] = (uint16_t)(bits >> 16);
    }
    scene.q = upload(q, count * 2);
    scene.out = upload(q, count * 2);
    scene.d_ids = upload(scene.ids, scene.n_ids * sizeof(scene.ids[0]));
    scene.d_segs = upload(scene.segs, scene.n_segs * sizeof(scene.segs[0]));
    scene.d_seqs = upload(scene.seqs, scene.n_seqs * sizeof(scene.seqs[0]));
    scene.d_angle_first = upload(scene.angle_first, scene.n_seqs * sizeof(uint32_t));
    CUDA(cudaMalloc((void **)&scene.angles, (size_t)scene.n_segs * D * sizeof(float)));
    MUST(attn_angles_cuda((struct attn_angles_args){.segs = scene.d_segs,
                                                    .seqs = scene.d_seqs,
                                                    .n_seqs = scene.n_seqs,
                                                    .inv_freq = d_inv_freq,
                                                    .rope_scale = 1.0f,
                                                    .D = D,
                                                    .angles = {scene.angles, scene.d_angle_first}},
                          stream));
    CUDA(cudaStreamSynchronize(stream));
    free(q);
}

static void
scene_free(void)
{
    void *all[] = {scene.q,      scene.out,           scene.d_ids, scene.d_segs,
                   scene.d_seqs, scene.d_angle_first, scene.angles};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CUDA(cudaFree(all[i]));
    }
}

/* --- variants -------------------------------------------------------------------------------- */

struct variant {
    const char *name;
    struct decode_tuning tuning;
    bool is_unshared, is_fixed, is_unrotated;
    /* Measured. */
    double us;
    double plan_us;
    double round_us[ROUNDS];
    struct decode_cuda *decode;
    cudaGraphExec_t graph;
};

static double
median(const double *values)
{
    double sorted[ROUNDS];

    memcpy(sorted, values, sizeof(sorted));
    qsort(sorted, ROUNDS, sizeof(sorted[0]), by_value);
    return sorted[ROUNDS / 2];
}

static struct attn_desc
desc_of(uint32_t layer)
{
    return (struct attn_desc){.kv = kv,
                              .layout = {P, LAYERS, Hkv, D, KV_BF16, KV_LAYOUT_CK8},
                              .layer = layer,
                              .n_blocks = N_BLOCKS,
                              .block_ids = scene.d_ids,
                              .segs = scene.d_segs,
                              .seqs = scene.d_seqs,
                              .n_seqs = scene.n_seqs,
                              .H = H,
                              .inv_freq = d_inv_freq,
                              .rope_scale = 1.0f,
                              .scale = 0.08838834764f};
}

static void
prepare(struct variant *v, uint32_t repeats)
{
    const struct attn_step step = {.segs = scene.segs,
                                   .block_ids = scene.ids,
                                   .decode = scene.seqs,
                                   .n_decode = scene.n_seqs,
                                   .H = H,
                                   .layout = desc_of(0).layout};
    cudaGraph_t graph;

    MUST(decode_cuda_new(&(struct decode_cuda_config){.H = H,
                                                      .Hkv = Hkv,
                                                      .D = D,
                                                      .seqs_max = scene.n_seqs,
                                                      .segs_max = scene.n_segs,
                                                      .sm_count = sm_count,
                                                      .is_shared = !v->is_unshared,
                                                      .is_fixed = v->is_fixed,
                                                      .partials = partials,
                                                      .partials_bytes = partials_bytes},
                         &v->decode));
    decode_cuda_tune(v->decode, v->tuning, v->is_unrotated);
    for (int i = 0; i < 2; i++) { /* the second time with warm caches */
        double start = now_us();

        struct host_copies copies = {.n = 0};

        MUST(decode_cuda_begin(v->decode, &step, scene.angle_first, scene.angles, 0, &copies,
                               stream));
        MUST(host_copies_send(&copies, stream));
        v->plan_us = now_us() - start;
        CUDA(cudaStreamSynchronize(stream));
    }
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < repeats * LAYERS; i++) {
        MUST(decode_cuda_run(v->decode, desc_of(i % LAYERS), scene.q, scene.out, stream));
    }
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&v->graph, graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

/* The last layer's output against that of the first variant. */
static void
compare(struct variant *v, float *want, bool is_first)
{
    size_t count = (size_t)scene.n_seqs * H * D;
    uint16_t *bits = malloc(count * 2);
    double error = 0.0, norm = 0.0;

    CUDA(cudaMemset(scene.out, 0xff, count * 2));
    CUDA(cudaGraphLaunch(v->graph, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaMemcpy(bits, scene.out, count * 2, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++) {
        uint32_t wide = (uint32_t)bits[i] << 16;
        float x;

        memcpy(&x, &wide, 4);
        want[i] = is_first ? x : want[i];
        error += ((double)x - want[i]) * ((double)x - want[i]);
        norm += (double)want[i] * want[i];
    }
    if (!(error <= norm * 1e-2 * 1e-2) && !v->is_unrotated) {
        printf("  WRONG %s: relative difference %.2e\n", v->name, sqrt(error / norm));
        n_wrong++;
    }
    free(bits);
}

/* Median microseconds of a layer for each variant. */
static void
measure(struct variant *variants, uint32_t n)
{
    double bytes = scene.unique_bytes;
    uint32_t repeats = bytes < 4e8 ? 4 : 1;
    float *want = malloc((size_t)scene.n_seqs * H * D * sizeof(*want));
    cudaEvent_t begin, end;

    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (uint32_t i = 0; i < n; i++) {
        prepare(&variants[i], repeats);
        compare(&variants[i], want, i == 0);
    }
    for (int r = 0; r < ROUNDS; r++) {
        for (uint32_t i = 0; i < n; i++) {
            float ms;

            CUDA(cudaEventRecord(begin, stream));
            CUDA(cudaGraphLaunch(variants[i].graph, stream));
            CUDA(cudaEventRecord(end, stream));
            CUDA(cudaEventSynchronize(end));
            CUDA(cudaEventElapsedTime(&ms, begin, end));
            variants[i].round_us[r] = ms * 1e3 / (repeats * LAYERS);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        variants[i].us = median(variants[i].round_us);
        CUDA(cudaGraphExecDestroy(variants[i].graph));
        decode_cuda_destroy(&variants[i].decode);
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    free(want);
}

/* How much longer `a` takes than `b`, in percent, by rounds. */
static double
slower_by(const struct variant *a, const struct variant *b)
{
    double ratio[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        ratio[r] = (a->round_us[r] / b->round_us[r] - 1) * 100;
    }
    return median(ratio);
}

static double
percent_of_ceiling(double bytes, double us)
{
    return bytes / us / 1e3 / read_gbs * 100;
}

/* --- tables ---------------------------------------------------------------------------------- */

static void
requests(uint32_t batch, uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t sharers,
         bool has_offsets)
{
    uint32_t docs[128];

    scene_begin();
    for (uint32_t i = 0; i < batch; i++) {
        for (uint32_t k = 0; k < n_docs && i % sharers == 0; k++) {
            docs[k] = new_blocks(doc_tokens);
            scene.n_docs++;
        }
        add_request(docs, n_docs, doc_tokens, own, has_offsets);
    }
    scene_end();
}

static void
print_sweep(const struct variant *variants, uint32_t n)
{
    printf("     ");
    for (uint32_t i = 0; i < n; i++) {
        printf(" | %s %.1f", variants[i].name, variants[i].us);
    }
    printf("\n");
}

static void
bench_batches(void)
{
    static const struct {
        uint32_t batch, n_docs, doc_tokens, own;
    } rows[] = {{1, 5, 4096, 64}, {2, 5, 4096, 64},  {4, 5, 4096, 64},
                {8, 5, 4096, 64}, {32, 5, 4096, 64}, {1, 1, 1024, 64},
                {1, 1, 4096, 64}, {8, 1, 1024, 64},  {32, 1, 1024, 64}};

    printf("requests, nothing shared: us a layer (%% of read), plan on the host; fixed cuts\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct variant v[] = {
            {.name = "default"},
            {.name = "fixed", .is_fixed = true},
            {.name = "apart", .tuning = {.joins = 1}},
            {.name = "in kernel", .tuning = {.joins = 2}},
            {.name = "unit 20", .tuning = {.unit_tiles = 20, .ctas_per_sm = 1, .joins = 2}},
            {.name = "1cta", .tuning = {.ctas_per_sm = 1, .static_percent = 100, .joins = 2}},
            {.name = "2cta", .tuning = {.ctas_per_sm = 2, .static_percent = 100, .joins = 2}},
            {.name = "2cta apart", .tuning = {.ctas_per_sm = 2, .static_percent = 100, .joins = 1}},
            {.name = "90+8", .tuning = {.ctas_per_sm = 2, .static_percent = 90, .joins = 2}},
            {.name = "90+8 apart", .tuning = {.ctas_per_sm = 2, .static_percent = 90, .joins = 1}},
            {.name = "95+4 apart",
             .tuning = {.ctas_per_sm = 2, .static_percent = 95, .tail_tiles = 4, .joins = 1}}};
        uint32_t n = is_sweep ? sizeof(v) / sizeof(v[0]) : 2;

        requests(rows[i].batch, rows[i].n_docs, rows[i].doc_tokens, rows[i].own, 1, true);
        measure(v, n);
        printf("b=%-3u %u x %-5u + %-3u %8.1f %5.1f%%  plan %5.0f us | fixed %8.1f (%+.1f%%)\n",
               rows[i].batch, rows[i].n_docs, rows[i].doc_tokens, rows[i].own, v[0].us,
               percent_of_ceiling(scene.unique_bytes, v[0].us), v[0].plan_us, v[1].us,
               slower_by(&v[1], &v[0]));
        if (is_sweep) {
            print_sweep(v, n);
        }
        scene_free();
    }
}

static void
bench_document_lengths(void)
{
    static const uint32_t lengths[] = {16384, 4096, 1024, 512, 256, 128};
    double whole_us = 0.0;

    printf("8 x 16,384 tokens in documents of n: us (%% of read), rate against one document,\n"
           "  cost of rotating Q (against raw Q), of offsets (against offset 0 everywhere)\n");
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct variant v[] = {
            {.name = "rotated"}, {.name = "raw", .is_unrotated = true}, {.name = "rotated again"}};
        struct variant zero[] = {{.name = "zero"}};

        requests(8, 16384 / lengths[i], lengths[i], 64, 1, false);
        measure(zero, 1);
        scene_free();
        requests(8, 16384 / lengths[i], lengths[i], 64, 1, true);
        measure(v, 3);
        whole_us = i == 0 ? v[0].us : whole_us;
        printf("n=%-6u %8.1f %5.1f%%  rate %5.1f%%  rotation %+5.2f%% (noise %+.2f%%)"
               "  offsets %+5.2f%%\n",
               lengths[i], v[0].us, percent_of_ceiling(scene.unique_bytes, v[0].us),
               whole_us / v[0].us * 100, slower_by(&v[0], &v[1]), slower_by(&v[2], &v[0]),
               (v[0].us / zero[0].us - 1) * 100);
        scene_free();
    }
}

static void
bench_sharers(void)
{
    printf("32 x (5 x 4096 + 64), each set of documents held by U requests: us off, on, %% of ideal"
           " (unique bytes at the read ceiling)\n");
    for (uint32_t u = 1; u <= 32; u *= 2) {
        struct variant v[] = {{.name = "off", .is_unshared = true},
                              {.name = "on"},
                              {.name = "3 kinds", .tuning = {.widens = 2}},
                              {.name = "all 128", .tuning = {.widens = 1}},
                              {.name = "beside", .tuning = {.sms_128 = 1}},
                              {.name = "static", .tuning = {.static_percent = 100}},
                              {.name = "80+8", .tuning = {.static_percent = 80}},
                              {.name = "cut 5", .tuning = {.cut_tiles = 5}},
                              {.name = "cut 8", .tuning = {.cut_tiles = 8}},
                              {.name = "unit 10", .tuning = {.unit_tiles = 10}}};
        uint32_t n = is_sweep ? sizeof(v) / sizeof(v[0]) : 2;

        requests(32, 5, 4096, 64, u, true);
        measure(v, n);
        printf("U=%-3u %8.1f %8.1f %5.1f%%  plan %5.0f us  (on %+.2f%%)\n", u, v[0].us, v[1].us,
               percent_of_ceiling(scene.unique_bytes, v[1].us), v[1].plan_us,
               slower_by(&v[1], &v[0]));
        if (is_sweep) {
            print_sweep(v, n);
        }
        scene_free();
    }
    struct variant one[] = {{.name = "one"}}, all[] = {{.name = "all"}};

    requests(1, 1, 16384, 64, 1, true);
    measure(one, 1);
    scene_free();
    requests(32, 1, 16384, 64, 32, true);
    measure(all, 1);
    scene_free();
    printf("one document of 16384: 1 request %.1f us, 32 requests %.1f us (%.2fx)\n", one[0].us,
           all[0].us, all[0].us / one[0].us);
}

/* A roofline: a document costs its bytes or its padded products, whichever is more. */
static double
document_us(uint32_t tokens, uint32_t n_sharers)
{
    double rows = n_sharers * H / Hkv;
    double padded = rows <= 16 ? 16 : rows <= 64 ? 64 : ceil(rows / 128) * 128;
    double bytes_us = (double)tokens * 4 * Hkv * D / read_gbs / 1e3;
    double flops_us = padded * tokens * 4 * D * Hkv / (padded <= 64 ? 400e6 : 560e6);

    return bytes_us > flops_us ? bytes_us : flops_us;
}

static void
bench_zipf(double alpha, uint32_t batch, uint32_t tokens)
{
    static double weight[DOCS];
    static uint32_t first[DOCS], held[DOCS];
    uint64_t x = 42;
    uint32_t most = 0;
    double sum = 0.0, ideal_us = 0.0;

    memset(held, 0, sizeof(held));
    for (uint32_t i = 0; i < DOCS; i++) {
        sum += weight[i] = pow(i + 1, -alpha);
    }
    scene_begin();
    for (uint32_t r = 0; r < batch; r++) {
        uint32_t docs[5], n = 0;

        while (n < 5) { /* distinct ones */
            uint32_t d = 0;
            bool is_new = true;

            x = x * 6364136223846793005u + 1442695040888963407u;
            for (double at = (double)(x >> 11) / 9007199254740992.0 * sum; d + 1 < DOCS; d++) {
                at -= weight[d];
                if (at < 0) {
                    break;
                }
            }
            for (uint32_t k = 0; k < n; k++) {
                is_new = is_new && docs[k] != d;
            }
            if (is_new) {
                docs[n++] = d;
            }
        }
        for (uint32_t k = 0; k < 5; k++) {
            if (held[docs[k]]++ == 0) {
                first[docs[k]] = new_blocks(tokens);
                scene.n_docs++;
            }
            most = held[docs[k]] > most ? held[docs[k]] : most;
            docs[k] = first[docs[k]];
        }
        add_request(docs, 5, tokens, 64, true);
    }
    scene_end();
    for (uint32_t i = 0; i < DOCS; i++) {
        ideal_us += held[i] > 0 ? document_us(tokens, held[i]) : 0.0;
    }
    ideal_us += (double)batch * 64 * 4 * Hkv * D / read_gbs / 1e3;
    struct variant v[] = {{.name = "off", .is_unshared = true},
                          {.name = "on"},
                          {.name = "3 kinds", .tuning = {.widens = 2}},
                          {.name = "all 128", .tuning = {.widens = 1}},
                          {.name = "beside", .tuning = {.sms_128 = 1}},
                          {.name = "static", .tuning = {.static_percent = 100}},
                          {.name = "95+4", .tuning = {.static_percent = 95, .tail_tiles = 4}},
                          {.name = "cut 5", .tuning = {.cut_tiles = 5}},
                          {.name = "cut 8", .tuning = {.cut_tiles = 8}},
                          {.name = "80+8", .tuning = {.static_percent = 80}}};
    uint32_t n = is_sweep ? sizeof(v) / sizeof(v[0]) : 2;

    measure(v, n);
    printf("alpha %.1f b=%-3u %3u documents of %u, most held %3u: off %8.1f on %8.1f (%.2fx)"
           "  roofline %8.1f: %5.1f%%  plan %5.0f us\n",
           alpha, batch, scene.n_docs, tokens, most, v[0].us, v[1].us, v[0].us / v[1].us, ideal_us,
           ideal_us / v[1].us * 100, v[1].plan_us);
    if (is_sweep) {
        print_sweep(v, n);
    }
    scene_free();
}

static void
start(void)
{
    const struct kv_layout layout = desc_of(0).layout;
    double inv_freq[64];
    int sms, major;

    CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    if (major != 9) {
        printf("SKIP: compute capability %d, 9.0 is needed\n", major);
        exit(77);
    }
    sm_count = (uint32_t)sms;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&kv, kv_layout_block_bytes(&layout) * N_BLOCKS));
    fill_random(kv, kv_layout_block_bytes(&layout) * N_BLOCKS);
    CUDA(cudaMalloc(&partials, partials_bytes));
    for (int i = 0; i < 64; i++) {
        inv_freq[i] = pow(500000.0, -2.0 * i / 128);
    }
    d_inv_freq = upload(inv_freq, sizeof(inv_freq));
    read_gbs = read_ceiling_gbs(kv, (size_t)16 << 30);
    printf("read ceiling %.0f GB/s, %d rounds\n", read_gbs, ROUNDS);
}

int
main(int argc, char **argv)
{
    int devices = 0;

    is_sweep = argc == 2 && strcmp(argv[1], "--sweep") == 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("SKIP: no CUDA device\n");
        return 77;
    }
    start();
    bench_batches();
    bench_document_lengths();
    bench_sharers();
    printf("%u documents, 5 a request, Zipf\n", DOCS);
    for (uint32_t batch = 32; batch <= 128; batch *= 4) {
        bench_zipf(1.1, batch, 4096);
        bench_zipf(1.5, batch, 4096);
        bench_zipf(2.1, batch, 4096);
    }
    bench_zipf(0.0, 32, 4096);
    printf("read ceiling at the end %.0f GB/s\n", read_ceiling_gbs(kv, (size_t)16 << 30));
    return n_wrong == 0 ? 0 : 1;
}
