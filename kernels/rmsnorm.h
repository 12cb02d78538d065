/* SPDX-License-Identifier: Apache-2.0 */
/* rmsnorm - residual add and root-mean-square norm in one pass.
 *
 *   x[t,:] += delta[t,:];  out[t,c] = x[t,c] / sqrt(mean(x[t,:]^2) + eps) * weight[c]
 *
 * Sums in double (twin) or float32 (device).  Source: Zhang and Sennrich (2019), eq. 4. */
#ifndef KERNELS_RMSNORM_H
#define KERNELS_RMSNORM_H

#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rmsnorm_args {
    void *x;            /* cpu f32, cuda bf16 [T, C]: the residual stream, updated in place */
    const void *delta;  /* like x, or NULL: nothing to add */
    const void *weight; /* like x [C] */
    void *out;          /* like x [T, C]; may not alias x or delta */
    uint32_t T;
    uint32_t C;
    float eps;
};

enum status rmsnorm_ref(struct rmsnorm_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status rmsnorm_cuda(struct rmsnorm_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
