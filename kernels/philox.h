/* SPDX-License-Identifier: Apache-2.0 */
/* philox - the counter-based generator Philox4x32-10: four random words as a function of (key,
 * counter).
 *
 * No state, so a resumed answer draws what it would have drawn, on any device.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

#define PHILOX_ROUNDS 10

/* The sampling kernel draws with the same code. */
#ifdef __CUDACC__
#define PHILOX_INLINE static __host__ __device__ inline
#else
#define PHILOX_INLINE static inline
#endif

PHILOX_INLINE void
philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];

    for (int i = 0; i < 4; i++) {
        out[i] = counter[i];
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * out[0];
        uint64_t b = (uint64_t)0xCD9E8D57u * out[2];

        out[0] = (uint32_t)(b >> 32) ^ out[1] ^ k0;
        out[2] = (uint32_t)(a >> 32) ^ out[3] ^ k1;
        out[1] = (uint32_t)b;
        out[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Uniform in [0, 1) with 53 bits: key = seed, counter = (counter, 0). */
PHILOX_INLINE double
philox_uniform(uint64_t seed, uint64_t counter)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t block[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    uint32_t out[4];

    philox4x32(key, block, out);
    return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1.0p-53;
}

#endif
