/* SPDX-License-Identifier: Apache-2.0 */
/* threads - a fixed set of threads that share the units of one job at a time.
 *
 * Which thread runs a unit is left to chance, so units must not depend on each other or on their
 * order; how a job is cut into units is the caller's and must not depend on the number of threads.
 */
#ifndef KERNELS_THREADS_H
#define KERNELS_THREADS_H

#include <stdint.h>

#include "common/status.h"

struct threads;

typedef enum status (*threads_unit_fn)(const void *job, uint32_t unit);

/* `count` threads take part in a job: the caller's and count - 1 of its own.
 * ST_INVALID for 0; ST_NO_MEMORY; ST_SYSTEM. */
enum status threads_new(uint32_t count, struct threads **threads_out);

/* Joins the threads; no job may be running.  NULL is fine; sets *threads to NULL. */
void threads_destroy(struct threads **threads);

/* Runs fn(job, unit) for all units and returns when they are done; one caller at a time.  If units
 * fail, the first in unit order is reported, with its detail; the others still run. */
enum status threads_run(struct threads *threads, uint32_t n_units, threads_unit_fn fn,
                        const void *job);

#endif
