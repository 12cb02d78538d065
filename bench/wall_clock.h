/* SPDX-License-Identifier: Apache-2.0 */
/* wall_clock - what benches of a device share: a bench that fails says where, times are of the wall
 * and in microseconds, and sort. */
#ifndef BENCH_WALL_CLOCK_H
#define BENCH_WALL_CLOCK_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/status.h"

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != ST_OK) {                                                                     \
            printf("FAIL %s: %s\n", #expr, status_detail());                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline double
now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* For qsort of doubles. */
static inline int
by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

#endif
