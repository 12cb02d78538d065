/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/ops_cuda.h"

#define CPU_THREADS 8
#define NOT_WRITTEN 0xffff /* a NaN in bf16, two are one in float32 */

struct ops *gpu;
struct ops *cpu; /* the twins, over some threads */
static uint64_t random_state;

uint32_t
random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 11);
}

float
random_value(void)
{
    return (float)((int)(random_u32() >> 24 & 255) - 128) / 64.0f;
}

uint16_t
to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float
from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

struct tensor
tensor_new(size_t count, bool is_random)
{
    struct tensor t = {calloc(count, sizeof(float)), NULL, count};
    uint16_t *half = malloc(count * sizeof(*half));

    for (size_t i = 0; i < count; i++) {
        t.host[i] = is_random ? random_value() : 0.0f;
        half[i] = is_random ? to_bf16(t.host[i]) : NOT_WRITTEN;
    }
    CHECK_OK(gpu->alloc(gpu, count * sizeof(*half), &t.device));
    CHECK_OK(gpu->upload(gpu, t.device, half, count * sizeof(*half)));
    CHECK_OK(gpu->finish(gpu));
    free(half);
    return t;
}

void
tensor_free(struct tensor *t)
{
    free(t->host);
    gpu->release(gpu, t->device);
}

void
release_all(const void *const *memories)
{
    for (; *memories != NULL; memories++) {
        gpu->release(gpu, (void *)(uintptr_t)*memories);
    }
}

void *
to_device(const void *host, size_t bytes)
{
    void *device;
    CHECK_OK(gpu->alloc(gpu, bytes, &device));
    CHECK_OK(gpu->upload(gpu, device, host, bytes));
    CHECK_OK(gpu->finish(gpu));
    return device;
}

static float *
fetch(const void *device, size_t count, bool is_f32)
{
    float *values = malloc(count * sizeof(*values));

    if (is_f32) {
        CHECK_OK(gpu->download(gpu, values, device, count * sizeof(*values)));
        CHECK_OK(gpu->finish(gpu));
    } else {
        uint16_t *half = malloc(count * sizeof(*half));
        CHECK_OK(gpu->download(gpu, half, device, count * sizeof(*half)));
        CHECK_OK(gpu->finish(gpu));
        for (size_t i = 0; i < count; i++) {
            values[i] = from_bf16(half[i]);
        }
        free(half);
    }
    return values;
}

/* NaN and infinities at the same places, then the relative error in the 2-norm and the worst
 * element. */
static void
compare(const char *what, const float *got, const float *want, size_t count, double rel_max)
{
    double error = 0.0, norm = 0.0, worst = 0.0;
    size_t worst_at = 0;
    for (size_t i = 0; i < count; i++) {
        /* Not an assertion each: Check notes every one in a file, millions of them for seconds. */
        if (isfinite(got[i]) != isfinite(want[i])) {
            ck_abort_msg("%s: element %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
        }
        if (isfinite(want[i])) {
            double d = fabs((double)got[i] - want[i]);
            error += d * d;
            norm += (double)want[i] * want[i];
            if (d > worst) {
                worst = d;
                worst_at = i;
            }
        }
    }
    error = sqrt(norm > 0.0 ? error / norm : error);
    printf("%-48s rel %.2e worst %.3g (%.4g for %.4g)\n", what, error, worst,
           count > 0 ? (double)got[worst_at] : 0.0, count > 0 ? (double)want[worst_at] : 0.0);
    ck_assert_msg(error <= rel_max, "%s: relative error %g above %g", what, error, rel_max);
}

void
compare_device(const char *what, const void *device, const float *want, size_t count, bool is_f32,
               double rel_max)
{
    float *got = fetch(device, count, is_f32);
    compare(what, got, want, count, rel_max);
    free(got);
}

/* --- attention ------------------------------------------------------------------------------- */

void
scene_begin(struct scene *s, uint32_t P, uint32_t H, uint32_t Hkv, uint32_t D, uint32_t n_blocks)
{
    memset(s, 0, sizeof(*s));
    s->layout = (struct kv_layout){P, 2, Hkv, D, KV_BF16, KV_LAYOUT_CK8};
    s->H = H;
    s->n_blocks = n_blocks;
    size_t elements = kv_layout_block_bytes(&s->layout) / 2 * n_blocks;
    s->kv = malloc(elements * 2);
    for (size_t i = 0; i < elements; i++) {
        s->kv[i] = to_bf16(random_value());
    }
    for (uint32_t i = 0; i < D / 2; i++) {
        s->inv_freq[i] = pow(500000.0, -2.0 * i / D);
    }
}

void
scene_add_segment(struct scene *s, uint32_t n_tokens, uint32_t offset)
{
    uint32_t n = (n_tokens + s->layout.P - 1) / s->layout.P;

    ck_assert_uint_lt(s->n_segs, SEGS_MAX);
    ck_assert_uint_le(s->n_ids + n, BLOCKS_MAX);
    s->segs[s->n_segs++] = (struct attn_segment){s->n_ids, n_tokens, offset, 0};
    for (uint32_t i = 0; i < n; i++) {
        s->ids[s->n_ids++] = random_u32() % s->n_blocks;
    }
}

void
scene_add_seq(struct scene *s, const uint32_t *docs, uint32_t n_docs, uint32_t base, uint32_t own,
              uint32_t n_rows)
{
    struct attn_seq *seq = &s->seqs[s->n_seqs++];
    uint32_t offset = base;

    *seq = (struct attn_seq){s->n_rows, n_rows, 0, s->n_segs, n_docs + 1};
    for (uint32_t i = 0; i < n_docs; i++) {
        scene_add_segment(s, docs[i], offset);
        offset += docs[i];
    }
    scene_add_segment(s, own, offset);
    seq->pos_first = offset + own - n_rows;
    s->n_rows += n_rows;
}

void
scene_upload(struct scene *s)
{
    s->d_kv = to_device(s->kv, kv_layout_block_bytes(&s->layout) * s->n_blocks);
    s->d_seqs = to_device(s->seqs, sizeof(s->seqs));
    s->d_segs = to_device(s->segs, sizeof(s->segs));
    s->d_ids = to_device(s->ids, sizeof(s->ids));
    s->d_inv_freq = to_device(s->inv_freq, sizeof(s->inv_freq));
}

void
scene_free(struct scene *s)
{
    free(s->kv);
    release_all((const void *[]){s->d_kv, s->d_seqs, s->d_segs, s->d_ids, s->d_inv_freq, NULL});
}

struct attn_desc
scene_desc(const struct scene *s, bool is_device)
{
    return (struct attn_desc){
        .kv = is_device ? s->d_kv : s->kv,
        .layout = s->layout,
        .layer = 1,
        .n_blocks = s->n_blocks,
        .block_ids = is_device ? s->d_ids : s->ids,
        .segs = is_device ? s->d_segs : s->segs,
        .seqs = is_device ? s->d_seqs : s->seqs,
        .n_seqs = s->n_seqs,
        .H = s->H,
        .inv_freq = is_device ? s->d_inv_freq : s->inv_freq,
        .rope_scale = 1.0f,
        .scale = 1.0f / sqrtf((float)s->layout.D),
    };
}

void
use_gpu_with(const struct scene *s, struct ops_config config)
{
    ops_destroy(&gpu);
    config.H = s->H;
    config.Hkv = s->layout.Hkv;
    config.D = s->layout.D;
    config.rows_max = 2048;
    config.seqs_max = SEQS_MAX;
    config.segs_max = SEGS_MAX;
    CHECK_OK(ops_cuda_new(config, &gpu));
}

void
use_gpu_for(const struct scene *s)
{
    use_gpu_with(s, (struct ops_config){0});
}

void
scene_begin_step(const struct scene *s, bool is_decode)
{
    CHECK_OK(gpu->begin_step(gpu, (struct attn_step){.segs = s->segs,
                                                     .block_ids = s->ids,
                                                     .prefill = is_decode ? NULL : s->seqs,
                                                     .decode = is_decode ? s->seqs : NULL,
                                                     .n_prefill = is_decode ? 0 : s->n_seqs,
                                                     .n_decode = is_decode ? s->n_seqs : 0,
                                                     .H = s->H,
                                                     .layout = s->layout,
                                                     .inv_freq = s->d_inv_freq,
                                                     .rope_scale = 1.0f}));
}

void
check_prefill(struct scene *s, const char *what)
{
    size_t count = (size_t)s->n_rows * s->H * s->layout.D;
    struct tensor q = tensor_new(count, true);
    struct tensor out = tensor_new(count, false);

    CHECK_OK(cpu->lazy_prefill(
        cpu,
        (struct lazy_prefill_args){.desc = scene_desc(s, false), .q = q.host, .out = out.host}));
    scene_begin_step(s, false);
    CHECK_OK(gpu->lazy_prefill(
        gpu,
        (struct lazy_prefill_args){.desc = scene_desc(s, true), .q = q.device, .out = out.device}));
    compare_device(what, out.device, out.host, count, false, 6e-3);
    tensor_free(&q);
    tensor_free(&out);
}

void
check_decode(struct scene *s, const char *what)
{
    size_t count = (size_t)s->n_seqs * s->H * s->layout.D;
    struct tensor q = tensor_new(count, true);
    struct tensor out = tensor_new(count, false);

    CHECK_OK(cpu->lazy_prefill(
        cpu,
        (struct lazy_prefill_args){.desc = scene_desc(s, false), .q = q.host, .out = out.host}));
    scene_begin_step(s, true);
    CHECK_OK(gpu->lazy_decode(
        gpu, (struct lazy_decode_args){.desc = scene_desc(s, true), .q = q.device}, out.device));
    compare_device(what, out.device, out.host, count, false, 6e-3);
    tensor_free(&q);
    tensor_free(&out);
}

static struct heads
llama_heads(void)
{
    return getenv("KVASIR_GPU_SMALL") != NULL ? heads[1] : heads[4];
}

void
scene_begin_llama(struct scene *s, uint32_t n_blocks)
{
    struct heads h = llama_heads();

    scene_begin(s, 32, h.H, h.Hkv, h.D, n_blocks);
}

enum status
gpu_open(void)
{
    const char *seed = getenv("TEST_SEED");

    random_state = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)random_state);
    TRY(ops_cpu_new((struct ops_config){.threads = CPU_THREADS}, &cpu));
    return ops_cuda_new((struct ops_config){.H = 9,
                                            .Hkv = 3,
                                            .D = 64,
                                            .rows_max = 2048,
                                            .seqs_max = SEQS_MAX,
                                            .segs_max = SEGS_MAX},
                        &gpu);
}
