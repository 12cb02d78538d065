/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's matrix product beside its two ceilings of the same run: cblas_sgemm on the whole
 * product, and reading the weights once.
 *
 * One thread, timed by its CPU time, so that neighbours on the machine disturb less.  Weights are
 * as many layers' as exceed the caches, so that each call finds its own cold.  Median of rounds,
 * BLAS and ours in turn. */
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>

#include "bench/rounds.h"
#include "kernels/ops.h"

#define WEIGHT_FLOATS (24u << 20) /* 96 MiB */
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

int
main(void)
{
    float *w = random_floats(WEIGHT_FLOATS), *x = random_floats((size_t)M_MAX * K_MAX);
    float *y = random_floats((size_t)M_MAX * N_MAX);
    struct ops *ops = NULL;

    if (ops_cpu_new((struct ops_config){.threads = 1}, &ops) != ST_OK) {
        printf("%s\n", status_detail());
        return EXIT_FAILURE;
    }
    openblas_set_num_threads(1);
    printf("one thread; OpenBLAS kernel %s; reading %.1f GB/s\n", openblas_get_corename(),
           read_gbs(w));
    printf("%-8s %4s %10s %10s %8s %10s %8s\n", "shape", "M", "ours us", "GFLOP/s", "GB/s",
           "blas us", "of blas");
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        uint32_t N = shapes[s].N, K = shapes[s].K, layers = WEIGHT_FLOATS / (N * K);

        for (size_t m = 0; m < sizeof(rows) / sizeof(rows[0]); m++) {
            uint32_t M = rows[m], calls = M > 64 ? 4 : layers;
            double ours[ROUNDS], blas[ROUNDS];

            for (int round = 0; round < ROUNDS; round++) {
                double start = cpu_seconds();

                for (uint32_t c = 0; c < calls; c++) {
                    const float *wc = w + (size_t)c * N * K;

                    ops->gemm(ops,
                              (struct gemm_args){.x = x, .w = wc, .y = y, .M = M, .N = N, .K = K});
                }
                ours[round] = (cpu_seconds() - start) / calls;
                start = cpu_seconds();
                for (uint32_t c = 0; c < calls; c++) {
                    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (blasint)M, (blasint)N,
                                (blasint)K, 1.0f, x, (blasint)K, w + (size_t)c * N * K, (blasint)K,
                                0.0f, y, (blasint)N);
                }
                blas[round] = (cpu_seconds() - start) / calls;
            }
            double t = median(ours), b = median(blas);

            printf("%-8s %4u %10.1f %10.1f %8.1f %10.1f %7.0f%%\n", shapes[s].name, M, t * 1e6,
                   2e-9 * M * N * K / t, 4e-9 * N * K / t, b * 1e6, 100 * b / t);
            printf("{\"bench\":\"gemm\",\"shape\":\"%s\",\"M\":%u,\"N\":%u,\"K\":%u,\"us\":%.1f,"
                   "\"blas_us\":%.1f}\n",
                   shapes[s].name, M, N, K, t * 1e6, b * 1e6);
        }
    }
    ops_destroy(&ops);
    free(w);
    free(x);
    free(y);
    return EXIT_SUCCESS;
}
