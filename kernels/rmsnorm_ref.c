/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rmsnorm.h"

#include <math.h>

#include "kernels/rows.h"

enum status
rmsnorm_rows(const struct rmsnorm_args *args, uint32_t first, uint32_t end)
{
    uint32_t C = args->C;

    if (C == 0) {
        return ERR(ST_INVALID, "rmsnorm over rows of 0 elements");
    }
    for (uint32_t t = first; t < end; t++) {
        float *x = (float *)args->x + (size_t)t * C;
        float *out = (float *)args->out + (size_t)t * C;
        const float *weight = args->weight;
        double sum = 0.0;

        if (args->delta != NULL) {
            const float *delta = (const float *)args->delta + (size_t)t * C;

            for (uint32_t c = 0; c < C; c++) {
                x[c] += delta[c];
            }
        }
        for (uint32_t c = 0; c < C; c++) {
            sum += (double)x[c] * x[c];
        }
        double inverse = 1.0 / sqrt(sum / C + (double)args->eps);

        for (uint32_t c = 0; c < C; c++) {
            out[c] = (float)(x[c] * inverse * weight[c]);
        }
    }
    return ST_OK;
}

enum status
rmsnorm_ref(struct rmsnorm_args args)
{
    return rmsnorm_rows(&args, 0, args.T);
}
