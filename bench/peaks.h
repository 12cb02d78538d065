/* SPDX-License-Identifier: Apache-2.0 */
/* peaks - the most that was going on at once, as `vllm bench serve` counts it. */
#ifndef BENCH_PEAKS_H
#define BENCH_PEAKS_H

#include "bench/outcome.h"
#include "common/status.h"

struct peaks {
    size_t requests;      /* open at one instant; one that ends makes room for one that begins */
    size_t outputs_per_s; /* of the seconds since the first request was sent */
};

/* Of the requests that were answered.  ST_NO_MEMORY. */
enum status peaks_of(const struct outcome *outcomes, size_t count, struct peaks *peaks_out);

#endif
