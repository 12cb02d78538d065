/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's matrix product, of float32 and of Q4_1 weights, beside its two ceilings of the same
 * run: cblas_sgemm on the whole product, and reading the weights once.
 *
 * One thread, timed by its CPU time, so that neighbours on the machine disturb less.  Weights are
 * as many layers' as exceed the caches, so that each call finds its own cold.  Median of rounds,
 * all three in turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "bench/rounds.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

#define WEIGHT_FLOATS (24u << 20) /* 96 MiB */
#define Q4_COPIES     4           /* of so many elements: 60 MiB */
#define Q4_UNIT_BYTES 20
#define Q4_COPY_BYTES (WEIGHT_FLOATS / PANEL_UNIT * Q4_UNIT_BYTES)
#define M_MAX         512
#define K_MAX         1536
#define N_MAX         3072

struct shape {
    const char *name;
    uint32_t N, K;
};

/* SmolLM2-135M. */
static const struct shape shapes[] = {
    {"qkv", 960, 576}, {"o", 576, 576}, {"gate_up", 3072, 576}, {"down", 576, 1536}};
static const uint32_t rows[] = {1, 2, 8, 16, 35, 64, 512};

static double
read_gbs(const float *w)
{
    double seconds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        double start = cpu_seconds();
        float sums[64] = {0};
        volatile float sink;

        for (size_t i = 0; i < WEIGHT_FLOATS; i += 64) {
            for (int lane = 0; lane < 64; lane++) {
                sums[lane] += w[i + (size_t)lane];
            }
        }
        sink = sums[0];
        (void)sink;
        seconds[round] = cpu_seconds() - start;
    }
    return WEIGHT_FLOATS * 4.0 / median(seconds) / 1e9;
}

/* Q4_1 of plausible scales; each element of a shape's matrices is one, whatever the order. */
static uint8_t *
random_q4(void)
{
    uint8_t *q = (uint8_t *)random_floats((size_t)Q4_COPIES * Q4_COPY_BYTES / sizeof(float));
    const uint32_t scale = 0x2c00, low = 0xb400; /* 1/16, -1/4 in float16, in every half */

    for (size_t at = 0; at < (size_t)Q4_COPIES * Q4_COPY_BYTES; at += PANEL_ROWS * Q4_UNIT_BYTES) {
        for (uint32_t r = 0; r < PANEL_ROWS / 2; r++) {
            uint32_t d = scale * 0x10001, m = low * 0x10001;

            memcpy(&q[at + r * sizeof(d)], &d, sizeof(d));
            memcpy(&q[at + (PANEL_ROWS / 2 + r) * sizeof(m)], &m, sizeof(m));
        }
    }
    return q;
}

struct operands {
    struct ops *ops;
    float *w, *x, *y;
    uint8_t *q4;
};

enum engine {
    ENGINE_F32,
    ENGINE_Q4,
    ENGINE_BLAS,
    ENGINES,
};

/* Seconds of a product of M rows, of weights that are not in the caches. */
static double
time_calls(const struct operands *o, enum engine engine, const struct shape *shape, uint32_t M)
{
    uint32_t N = shape->N, K = shape->K, layers = WEIGHT_FLOATS / (N * K);
    uint32_t calls = M > 64 ? 4 : engine == ENGINE_Q4 ? Q4_COPIES * layers : layers;
    double start = cpu_seconds();

    for (uint32_t c = 0; c < calls; c++) {
        struct gemm_args args = {.x = o->x, .y = o->y, .M = M, .N = N, .K = K};
        size_t first = (size_t)c * N * K;

        if (engine == ENGINE_BLAS) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)M, (blasint)N, (blasint)K,
                        1.0f, o->x, (blasint)K, o->w + first, (blasint)K, 0.0f, o->y, (blasint)N);
            continue;
        }
        args.form = engine == ENGINE_Q4 ? PANEL_Q4_1 : PANEL_F32;
        args.w = engine == ENGINE_Q4 ? (void *)&o->q4[first / PANEL_UNIT * Q4_UNIT_BYTES]
                                     : (void *)&o->w[first];
        o->ops->gemm(o->ops, args);
    }
    return (cpu_seconds() - start) / calls;
}

static void
bench_shape(const struct operands *o, const struct shape *shape, uint32_t M)
{
    double seconds[ENGINES][ROUNDS], t[ENGINES];

    for (int round = 0; round < ROUNDS; round++) {
        for (int e = 0; e < ENGINES; e++) {
            seconds[e][round] = time_calls(o, (enum engine)e, shape, M);
        }
    }
    for (int e = 0; e < ENGINES; e++) {
        t[e] = median(seconds[e]);
    }
    double flops = 2.0 * M * shape->N * shape->K, bytes = 4.0 * shape->N * shape->K;

    printf("%-8s %4u %9.1f %8.1f %6.1f %9.1f %8.1f %9.1f %6.0f%% %6.0f%%\n", shape->name, M,
           t[ENGINE_F32] * 1e6, flops / t[ENGINE_F32] / 1e9, bytes / t[ENGINE_F32] / 1e9,
           t[ENGINE_Q4] * 1e6, flops / t[ENGINE_Q4] / 1e9, t[ENGINE_BLAS] * 1e6,
           100 * t[ENGINE_BLAS] / t[ENGINE_F32], 100 * t[ENGINE_BLAS] / t[ENGINE_Q4]);
    printf("{\"bench\":\"gemm\",\"shape\":\"%s\",\"M\":%u,\"N\":%u,\"K\":%u,\"us\":%.1f,"
           "\"q4_us\":%.1f,\"blas_us\":%.1f}\n",
           shape->name, M, shape->N, shape->K, t[ENGINE_F32] * 1e6, t[ENGINE_Q4] * 1e6,
           t[ENGINE_BLAS] * 1e6);
}

int
main(void)
{
    struct operands o = {.w = random_floats(WEIGHT_FLOATS),
                         .x = random_floats((size_t)M_MAX * K_MAX),
                         .y = random_floats((size_t)M_MAX * N_MAX),
                         .q4 = random_q4()};

    if (ops_cpu_new((struct ops_config){.threads = 1}, &o.ops) != ST_OK) {
        printf("%s\n", status_detail());
        return EXIT_FAILURE;
    }
    openblas_set_num_threads(1);
    printf("one thread; OpenBLAS kernel %s; reading %.1f GB/s\n", openblas_get_corename(),
           read_gbs(o.w));
    printf("%-8s %4s %9s %8s %6s %9s %8s %9s %7s %7s\n", "shape", "M", "f32 us", "GFLOP/s", "GB/s",
           "q4_1 us", "GFLOP/s", "blas us", "f32", "q4_1");
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (size_t m = 0; m < sizeof(rows) / sizeof(rows[0]); m++) {
            bench_shape(&o, &shapes[s], rows[m]);
        }
    }
    ops_destroy(&o.ops);
    free(o.w);
    free(o.x);
    free(o.y);
    free(o.q4);
    return EXIT_SUCCESS;
}
