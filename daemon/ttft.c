/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ttft.h"

#define KEPT       0.998 /* of the sums at a request: they span 500 */
#define SPREAD_MIN 1.0   /* tokens^2 of variance */

void
ttft_add(struct ttft *ttft, uint64_t tokens_missed, uint64_t us)
{
    double x = (double)tokens_missed, y = (double)us;

    ttft->n = KEPT * ttft->n + 1;
    ttft->x = KEPT * ttft->x + x;
    ttft->y = KEPT * ttft->y + y;
    ttft->xx = KEPT * ttft->xx + x * x;
    ttft->xy = KEPT * ttft->xy + x * y;
}

double
ttft_mean_us(const struct ttft *ttft)
{
    return ttft->n == 0 ? 0 : ttft->y / ttft->n;
}

bool
ttft_predict_us(const struct ttft *ttft, double tokens_missed, double *us_out)
{
    double variance, slope, us;

    if (ttft->n < TTFT_REQUESTS_MIN) {
        return false;
    }
    variance = ttft->xx / ttft->n - ttft->x / ttft->n * (ttft->x / ttft->n);
    if (variance < SPREAD_MIN) {
        return false;
    }
    slope = (ttft->xy / ttft->n - ttft->x / ttft->n * (ttft->y / ttft->n)) / variance;
    us = ttft->y / ttft->n + slope * (tokens_missed - ttft->x / ttft->n);
    *us_out = us < 0 ? 0 : us;
    return true;
}
