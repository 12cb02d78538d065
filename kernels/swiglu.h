/* SPDX-License-Identifier: Apache-2.0 */
/* swiglu - out[t,f] = silu(gate[t,f]) * up[t,f], silu(x) = x / (1 + exp(-x)).
 * Source: Shazeer, GLU variants (2020). */
#ifndef KERNELS_SWIGLU_H
#define KERNELS_SWIGLU_H

#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct swiglu_args {
    const void *gate_up; /* cpu f32, cuda bf16 [T, 2F]: gate, then up */
    void *out;           /* like gate_up [T, F] */
    uint32_t T;
    uint32_t F;
};

enum status swiglu_ref(struct swiglu_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status swiglu_cuda(struct swiglu_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
