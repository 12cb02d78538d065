/* SPDX-License-Identifier: Apache-2.0 */
/* simd - the few vector operations that the CPU twins share, on the compiler's vector types.
 *
 * One width, 8 floats: an AVX2 register, and on AVX-512 machines 32 of them.  Wider vectors were
 * tried: no faster where two 256-bit units make a 512-bit one, and very slow on AVX2, where the
 * compiler keeps them in memory.  A lane's result depends on its own inputs alone.  SIMD_CLONES
 * compiles a function for AVX-512, AVX2 and the baseline, and picks at load time; SIMD_CLONES_16
 * without AVX-512, for loops that live in 16 registers: instructions that name the upper 16 are
 * longer, and made a loop of 12 multiply-adds 16 % slower on Zen 4. */
#ifndef KERNELS_SIMD_H
#define KERNELS_SIMD_H

#include <stdint.h>

#if defined(KVASIR_VALGRIND) /* without multiply-adds, which it plays by a call for each lane */
#define SIMD_CLONES_16 __attribute__((target_clones("avx2", "default")))
#define SIMD_CLONES    SIMD_CLONES_16
#elif defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define SIMD_CLONES_16 __attribute__((target_clones("arch=x86-64-v3", "default")))
#ifdef __SANITIZE_ADDRESS__ /* a clone of the largest files takes ten seconds there */
#define SIMD_CLONES SIMD_CLONES_16
#else
#define SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define SIMD_CLONES
#define SIMD_CLONES_16
#endif
#define SIMD_INLINE static inline __attribute__((always_inline))

#define SIMD_F32 8 /* floats in a vector */
#define SIMD_F64 4

typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef double f64x4_any __attribute__((vector_size(32), aligned(8), may_alias));
typedef uint64_t u64x4 __attribute__((vector_size(32)));

/* Vectors travel by pointer: passing them by value has a different ABI in each clone. */
SIMD_INLINE void
simd_load(f32x8 *out, const float *p)
{
    *out = *(const f32x8_any *)p;
}

SIMD_INLINE void
simd_store(float *p, const f32x8 *v)
{
    *(f32x8_any *)p = *v;
}

/* out = mask ? a : b, lane by lane; mask lanes are 0 or -1 as comparisons give them. */
SIMD_INLINE void
simd_select(f32x8 *out, const i32x8 *mask, const f32x8 *a, const f32x8 *b)
{
    *out = (f32x8)((*mask & (i32x8)*a) | (~*mask & (i32x8)*b));
}

/* The larger of each lane; b where either is NaN. */
SIMD_INLINE void
simd_max(f32x8 *out, const f32x8 *a, const f32x8 *b)
{
    i32x8 mask = *a > *b;

    simd_select(out, &mask, a, b);
}

/* Sum over the lanes in a fixed order (a tree). */
SIMD_INLINE float
simd_sum(const f32x8 *v)
{
    f32x8 x = *v;

    x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    x += __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
    return x[0];
}

/* The largest lane; NaN lanes may be passed over. */
SIMD_INLINE float
simd_max_lane(const f32x8 *v)
{
    f32x8 x = *v, y;

    y = __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
    simd_max(&x, &x, &y);
    y = __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5);
    simd_max(&x, &x, &y);
    y = __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6);
    simd_max(&x, &x, &y);
    return x[0];
}

/* exp(r) by its series to r^7 for |r| <= ln 2 / 2; what is left is below 1e-8. */
SIMD_INLINE void
simd_exp_series(f32x8 *out, const f32x8 *in)
{
    f32x8 r = *in, p;

    p = r * (1.0f / 5040) + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    *out = p * r + 1.0f;
}

/* exp(x) within 2 ulp.  Below -87 the result is 0 (float32 would be next to denormal there); above
 * 88.72 it is inf; NaN stays NaN.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, 2^n by adding n to the exponent.  ln 2 is split so that n *
 * hi is exact. */
SIMD_INLINE void
simd_exp(f32x8 *out, const f32x8 *in)
{
    const float round_magic = 12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer */
    const float low = -87.0f, high = 88.72283f;
    const f32x8 zero = {0}, inf = zero + __builtin_inff();
    f32x8 x = *in, clamped, t, n, r, p;
    i32x8 below = x<low, above = x> high, nan = x != x;

    simd_select(&clamped, &below, &zero, &x);
    simd_select(&clamped, &above, &zero, &clamped);
    simd_select(&clamped, &nan, &zero, &clamped);
    t = clamped * 1.44269504f + round_magic;
    n = t - round_magic;
    r = clamped - n * 0.693359375f; /* ln 2 in 9 bits */
    r = r - n * -2.12194440e-4f;
    simd_exp_series(&p, &r);
    p = (f32x8)((u32x8)p + ((u32x8)t << 23));
    simd_select(&p, &below, &zero, &p);
    simd_select(&p, &above, &inf, &p);
    simd_select(out, &nan, &x, &p);
}

/* simd_exp where no x is above 0, as in a softmax, with half its selections.  Below -87 it is 0;
 * NaN is a factor of the result and needs no care. */
SIMD_INLINE void
simd_exp_fall(f32x8 *out, const f32x8 *in)
{
    const float round_magic = 12582912.0f, low = -87.0f;
    const f32x8 zero = {0};
    f32x8 x = *in, t, n, r, p, power;
    i32x8 below = x < low;

    simd_select(&x, &below, &zero, &x);
    t = x * 1.44269504f + round_magic;
    n = t - round_magic;
    r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    simd_exp_series(&p, &r);
    power = (f32x8)(((u32x8)t << 23) + 0x3f800000u); /* 2^n, n from -126 to 0 */
    p *= power;
    simd_select(out, &below, &zero, &p);
}

#endif
