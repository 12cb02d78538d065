/* SPDX-License-Identifier: Apache-2.0 */
/* histogram - how often a value fell into which range; counts and a sum, no more.
 *
 * Bounds are upper and inclusive, as Prometheus has them; the last range has none.  One owner, no
 * locks.  The sets of bounds are those that vLLM uses for the same quantities, so that dashboards
 * made for it fit. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BOUNDS_MAX 32

struct histogram_bounds {
    double values[HISTOGRAM_BOUNDS_MAX];
    size_t count;
};

extern const struct histogram_bounds histogram_first_token_s; /* to the first token */
extern const struct histogram_bounds histogram_next_token_s;  /* between two tokens */
extern const struct histogram_bounds histogram_request_s;     /* a request, or a part of it */
extern const struct histogram_bounds histogram_tokens;        /* of a prompt or an answer */
extern const struct histogram_bounds histogram_age_s;         /* of documents: seconds to days */

struct histogram {
    const struct histogram_bounds *bounds;
    uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1];
    double sum;
};

/* An empty one is zeroed, with its bounds set. */
void histogram_add(struct histogram *histogram, double value);
uint64_t histogram_count(const struct histogram *histogram);

#endif
