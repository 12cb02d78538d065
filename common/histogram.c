/* SPDX-License-Identifier: Apache-2.0 */
#include "common/histogram.h"

const struct histogram_bounds histogram_first_token_s = {
    .values = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
               1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560},
    .count = 22,
};
const struct histogram_bounds histogram_next_token_s = {
    .values = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80},
    .count = 19,
};
const struct histogram_bounds histogram_request_s = {
    .values = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
               30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680},
    .count = 21,
};
const struct histogram_bounds histogram_tokens = {
    .values = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000,
               200000},
    .count = 17,
};
const struct histogram_bounds histogram_age_s = {
    .values = {.001, .01, .1, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400, 43200, 86400, 604800},
    .count = 16,
};

void
histogram_add(struct histogram *histogram, double value)
{
    const struct histogram_bounds *bounds = histogram->bounds;
    size_t i = 0;

    while (i < bounds->count && value > bounds->values[i]) {
        i++;
    }
    histogram->counts[i]++;
    histogram->sum += value;
}

uint64_t
histogram_count(const struct histogram *histogram)
{
    uint64_t count = 0;

    for (size_t i = 0; i <= histogram->bounds->count; i++) {
        count += histogram->counts[i];
    }
    return count;
}
