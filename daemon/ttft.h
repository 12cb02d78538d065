/* SPDX-License-Identifier: Apache-2.0 */
/* ttft - time to the first token, as a line over the document tokens that had to be built.
 *
 * Least squares over the last few hundred requests, from their admission to their first token:
 * without the wait in the queue, which depends on how many come, not on what the pool holds. */
#ifndef DAEMON_TTFT_H
#define DAEMON_TTFT_H

#include <stdbool.h>
#include <stdint.h>

#define TTFT_REQUESTS_MIN 50 /* weight of requests below which nothing is said */

/* Sums, each forgotten a little with every request; zeroed is empty. */
struct ttft {
    double n, x, y, xx, xy;
};

void ttft_add(struct ttft *ttft, uint64_t tokens_missed, uint64_t us);

/* Mean of the last requests, in us; 0 before the first. */
double ttft_mean_us(const struct ttft *ttft);

/* What it would be with so many tokens to build.  False: too few requests, or all alike, so that
 * there is no slope to see. */
bool ttft_predict_us(const struct ttft *ttft, double tokens_missed, double *us_out);

#endif
