/* SPDX-License-Identifier: Apache-2.0 */
/* compare - seeded numbers for kernel tests, and comparison: NaN and inf in place first, then
 * numbers. */
#ifndef TESTS_KERNELS_COMPARE_H
#define TESTS_KERNELS_COMPARE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include <check.h>

#define EPS_F32  0x1p-24 /* half a unit in the last place, relative */
#define EPS_BF16 0x1p-8

struct rng {
    uint64_t state;
};

static inline uint64_t
rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t
rng_below(struct rng *rng, uint32_t n)
{
    return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

/* Near normal: mean 0, variance 1, in [-6, 6]. */
static inline float
rng_normal(struct rng *rng)
{
    double sum = -6.0;

    for (int i = 0; i < 12; i++) {
        sum += (double)(rng_next(rng) >> 11) * 0x1p-53;
    }
    return (float)sum;
}

static inline float *
rng_floats(struct rng *rng, size_t n)
{
    float *x = malloc((n + 1) * sizeof(*x));

    ck_assert_ptr_nonnull(x);
    for (size_t i = 0; i < n; i++) {
        x[i] = rng_normal(rng);
    }
    return x;
}

/* got must match want: NaN where NaN, the same inf, else |got - want| <= abs + rel * |want|. */
static inline void
assert_close(float got, double want, double abs, double rel, const char *what, size_t at)
{
    /* Passing comparisons stay away from Check, which does a system call for each. */
    if (isfinite(want) && fabs((double)got - want) <= abs + rel * fabs(want)) {
        return;
    }
    if (isnan(want) || isinf(want)) {
        ck_assert_msg(isnan(want) ? isnan(got) : (double)got == want, "%s[%zu]: got %g, want %g",
                      what, at, (double)got, want);
        return;
    }
    ck_abort_msg("%s[%zu]: got %.9g, want %.9g, error %.3g, allowed %.3g", what, at, (double)got,
                 want, fabs((double)got - want), abs + rel * fabs(want));
}

#endif
