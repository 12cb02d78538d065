/* SPDX-License-Identifier: Apache-2.0 */
/* load - sends a workload's requests to a target at their times, and collects what became of them.
 *
 * As many threads as requests may be open, each with a connection of its own.  They take requests
 * in order of arrival, prepare them, wait for their time, ask.  So a request is late only when all
 * threads are busy, which is what a closed loop is (all due at once), and what an open loop reports
 * as the latest start. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdatomic.h>

#include "bench/target.h"

#define LOAD_THREADS_MAX 4096

/* Called after each request, from its thread, one at a time. */
typedef void (*load_progress_fn)(void *opaque, size_t done);

struct load {
    const struct target *target;
    struct target_run run;
    size_t first, count; /* requests of the workload; times count from the first of them */
    uint32_t concurrency;
    load_progress_fn on_progress; /* may be NULL */
    void *opaque;
};

/* Runs to the end; outcomes[i] of request i of the whole workload.  *elapsed_us_out: from the start
 * to the last answer.  ST_INVALID, ST_SYSTEM, ST_NO_MEMORY: nothing was sent. */
enum status load_run(const struct load *load, struct outcome *outcomes, uint64_t *elapsed_us_out);

#endif
