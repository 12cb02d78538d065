/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_prefill_sm90 - lazy_prefill on Hopper: wgmma, bulk copies, warps with different jobs. */
#ifndef KERNELS_LAZY_PREFILL_SM90_H
#define KERNELS_LAZY_PREFILL_SM90_H

#include <stdbool.h>

#include "common/status.h"
#include "kernels/lazy_prefill.h"
#include "kernels/prefill_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A prefill_plan on the device; all pointers are device memory. */
struct prefill_device_plan {
    const struct prefill_item *items;
    const uint32_t *tasks;
    const struct prefill_start *starts;
    const float *angles; /* attn_angles.rows */
    uint32_t ctas;       /* to launch; 0: nothing to do */
    uint32_t group;      /* H / Hkv */
    bool is_fixed;       /* a row's result may not depend on its neighbours */
    bool is_split;       /* keys are read about once: they need not stay in L2 */
    float *o;            /* [n_partials, H, D], for attn_merge */
    float *ml;           /* [n_partials, H, 2] */
};

/* Whether this build and the current device have the kernel. */
bool lazy_prefill_sm90_is_there(void);

/* bf16 Q, KV and out; KV in the ck8 layout, D 64 or 128; enqueues on `stream` (a cudaStream_t). */
enum status lazy_prefill_sm90_cuda(struct lazy_prefill_args args, struct prefill_device_plan plan,
                                   void *stream);

#ifdef __cplusplus
}
#endif
#endif
