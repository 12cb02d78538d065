/* SPDX-License-Identifier: Apache-2.0 */
/* rope_copy - copies blocks of a document to another place in prompts: K rotated on, V as it is.
 *
 *   K_to[j] = R(turn) K_from[j],  V_to[j] = V_from[j]    for every slot j, layer and head
 *
 * A key that was stored at local position j stands afterwards at turn + j.  This is what systems do
 * that keep keys at positions of the prompt ("reencode"); ours rotate the query instead.  Copy and
 * rotation are one pass over the bytes.  The angle is computed in float64, the rotation is one in
 * float32; a factor that K already carries (rope_scale) is not applied again.
 * Slots behind a document's last token are copied with whatever they hold.
 * Source: Block-Attention (2025), sec. 2.4, position re-encoding; Su et al. 2021. */
#ifndef KERNELS_ROPE_COPY_H
#define KERNELS_ROPE_COPY_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/kv_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rope_copy_args {
    void *kv; /* arena */
    struct kv_layout layout;
    uint32_t n_blocks;      /* blocks in the arena */
    const uint32_t *from;   /* [N] block ids */
    const uint32_t *to;     /* [N] block ids; none of them in `from` */
    const uint32_t *turn;   /* [N] positions by which K is rotated on */
    const double *inv_freq; /* [D/2] */
    uint32_t N;
};

/* ST_INVALID: a layout that kv_layout_check refuses, a block id outside the arena. */
enum status rope_copy_ref(struct rope_copy_args args);

/* On a device; enqueues on `stream` (a cudaStream_t).  ST_INVALID: another layout than ck8. */
enum status rope_copy_cuda(struct rope_copy_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
