/* SPDX-License-Identifier: Apache-2.0 */
/* rope - the frequencies of the rotary embedding under the scaling regimes that are served. */
#ifndef MODEL_ROPE_H
#define MODEL_ROPE_H

#include <stdint.h>

#define ROPE_BASE_DEFAULT 10000.0 /* RoFormer's, and what a file without a base means */

enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR, /* positions divided by `factor`: Chen et al. (2023), eq. 4 */
    ROPE_LLAMA3, /* Llama 3.1: long waves are stretched by `factor`, short ones kept */
};

struct rope {
    double base;
    enum rope_scaling scaling;
    double factor;
    double low_freq_factor; /* ROPE_LLAMA3: waves longer than original / low are stretched whole, */
    double high_freq_factor; /* shorter than original / high kept, others in between */
    double original_context; /* tokens */
};

/* Radians a position for each of the D/2 pairs, in double. */
void rope_frequencies(const struct rope *rope, uint32_t D, double *inv_freq_out);

#endif
