/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/swiglu.h"

#include <stddef.h>
#include <string.h>

#include "kernels/rows.h"
#include "kernels/simd.h"

/* silu(g) * u for 8 elements; a gate of -inf gives NaN (-inf * 0), as the formula does. */
SIMD_INLINE void
swiglu8(f32x8 *out, const f32x8 *gate, const f32x8 *up)
{
    f32x8 e = -*gate;

    simd_exp(&e, &e);
    *out = *gate / (1.0f + e) * *up;
}

SIMD_CLONES enum status
swiglu_rows(const struct swiglu_args *args, uint32_t first, uint32_t end)
{
    uint32_t F = args->F;

    for (uint32_t t = first; t < end; t++) {
        const float *gate = (const float *)args->gate_up + (size_t)t * 2 * F;
        const float *up = gate + F;
        float *out = (float *)args->out + (size_t)t * F;

        uint32_t whole = F / SIMD_F32 * SIMD_F32;
        size_t rest = (F - whole) * sizeof(float);
        f32x8 g = {0}, u = {0};

        for (uint32_t f = 0; f < whole; f += SIMD_F32) {
            simd_load(&g, &gate[f]);
            simd_load(&u, &up[f]);
            swiglu8(&g, &g, &u);
            simd_store(&out[f], &g);
        }
        memcpy(&g, &gate[whole], rest);
        memcpy(&u, &up[whole], rest);
        swiglu8(&g, &g, &u);
        memcpy(&out[whole], &g, rest);
    }
    return ST_OK;
}

enum status
swiglu_ref(struct swiglu_args args)
{
    return swiglu_rows(&args, 0, args.T);
}
