/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include <math.h>

#define TWO_PI 6.283185307179586476925286766559

/* Llama 3.1's rule.  Between its two wave lengths the frequency goes linearly, in original context
 * a wave, from stretched to kept. */
static double
llama3(const struct rope *rope, double inv_freq)
{
    double waves = rope->original_context * inv_freq / TWO_PI; /* in the original context */

    if (waves < rope->low_freq_factor) {
        return inv_freq / rope->factor;
    }
    if (waves > rope->high_freq_factor) {
        return inv_freq;
    }
    double kept =
        (waves - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (1 - kept) * inv_freq / rope->factor + kept * inv_freq;
}

void
rope_frequencies(const struct rope *rope, uint32_t D, double *inv_freq_out)
{
    for (uint32_t i = 0; i < D / 2; i++) {
        double inv_freq = pow(rope->base, -2.0 * i / D);

        switch (rope->scaling) {
        case ROPE_PLAIN: break;
        case ROPE_LINEAR: inv_freq /= rope->factor; break;
        case ROPE_LLAMA3: inv_freq = llama3(rope, inv_freq); break;
        }
        inv_freq_out[i] = inv_freq;
    }
}
