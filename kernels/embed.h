/* SPDX-License-Identifier: Apache-2.0 */
/* embed - out[t,:] = table[ids[t],:]. */
#ifndef KERNELS_EMBED_H
#define KERNELS_EMBED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/panel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct embed_args {
    const void *table;   /* cpu f32, cuda bf16 [V, C] */
    const uint32_t *ids; /* [T], each < V */
    void *out;           /* like table [T, C] */
    uint32_t T;
    uint32_t C;
    uint32_t V;
    bool is_packed; /* CPU: the table is in panels, of `form` */
    enum panel_form form;
};

enum status embed_ref(struct embed_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status embed_cuda(struct embed_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
