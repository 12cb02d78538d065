/* SPDX-License-Identifier: Apache-2.0 */
/* gemm - y[m,n] = sum_k x[m,k] w[n,k]: activations times a weight stored [N, K], as checkpoints do;
 * the CPU instance reads it in panels (panel.h).
 *
 * CPU: one running float32 sum over k in order, so that a row's result does not depend on how many
 * rows share the call, nor on the number of threads (gemm_cpu.h). */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/panel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm_args {
    const void *x; /* cpu f32, cuda bf16 [M, K] */
    const void *w; /* like x [N, K]; cpu: in panels, of `form` */
    void *y;       /* like x, or f32 for logits [M, N]; may not alias x */
    uint32_t M;
    uint32_t N;
    uint32_t K;
    uint32_t is_y_f32; /* CUDA: y is f32 (logits); the CPU's always is */
    enum panel_form form;
};

/* Rows up to a bucket's are served by one choice of algorithm, where an instance chooses: M rounded
 * up to a power of two. */
static inline uint32_t
gemm_bucket(uint32_t M)
{
    uint32_t bucket = 1;

    while (bucket < M) {
        bucket *= 2;
    }
    return bucket;
}

/* Plain loops, sums in double. */
enum status gemm_ref(struct gemm_args args);

#ifdef __cplusplus
}
#endif
#endif
