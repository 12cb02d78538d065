/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/gemm.h"

#include <stddef.h>

enum status
gemm_ref(struct gemm_args args)
{
    const float *x = args.x, *w = args.w;
    float *y = args.y;

    for (uint32_t m = 0; m < args.M; m++) {
        for (uint32_t n = 0; n < args.N; n++) {
            double sum = 0.0;

            for (uint32_t k = 0; k < args.K; k++) {
                sum += (double)x[(size_t)m * args.K + k] * w[(size_t)n * args.K + k];
            }
            y[(size_t)m * args.N + n] = (float)sum;
        }
    }
    return ST_OK;
}
