/* SPDX-License-Identifier: Apache-2.0 */
/* checksum - finds torn and flipped records, fast.  Not against anybody who means it: names of
 * documents are SHA-256 (kvpool/dockey.h). */
#ifndef COMMON_CHECKSUM_H
#define COMMON_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of `length` bytes, from `seed` on: what a record is bound to, its place for one.  Never 0, so
 * that 0 can say "none".  Each word is mixed by a multiplication (Fibonacci hashing's constant), so
 * that a changed bit reaches all higher ones, and folded down again. */
static inline uint64_t
checksum64(uint64_t seed, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint64_t sum = seed ^ (length * UINT64_C(0x9E3779B97F4A7C15));

    while (length > 0) {
        size_t taken = length < sizeof(uint64_t) ? length : sizeof(uint64_t);
        uint64_t word = 0;

        memcpy(&word, at, taken);
        sum = (sum ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        sum ^= sum >> 29;
        at += taken;
        length -= taken;
    }
    sum *= UINT64_C(0xBF58476D1CE4E5B9);
    sum ^= sum >> 32;
    return sum == 0 ? 1 : sum;
}

#endif
