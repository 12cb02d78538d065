/* SPDX-License-Identifier: Apache-2.0 */
/* rounds - the method of benchmarks of one thread: its CPU time, so that neighbours on the machine
 * disturb less, and the median of ROUNDS. */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 5

static inline double
cpu_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline double
median(double *seconds)
{
    qsort(seconds, ROUNDS, sizeof(seconds[0]), compare);
    return seconds[ROUNDS / 2];
}

static inline float *
random_floats(size_t n)
{
    float *x = malloc(n * sizeof(*x));
    uint32_t state = 1;

    if (x == NULL) {
        exit(EXIT_FAILURE);
    }
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-31f;
    }
    return x;
}

#endif
