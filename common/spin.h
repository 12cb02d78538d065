/* SPDX-License-Identifier: Apache-2.0 */
/* spin - waiting without sleeping: a thread that sleeps is woken some 100 us late on many machines.
 * Only where an operator asked for it (--busy-poll), since it keeps a core busy. */
#ifndef COMMON_SPIN_H
#define COMMON_SPIN_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/clock.h"

/* Until *count is another than `seen`, or so many microseconds have passed. */
static inline void
spin_while_equal(const atomic_ullong *count, unsigned long long seen, uint64_t busy_us)
{
    uint64_t until_us = busy_us == 0 ? 0 : clock_now_us() + busy_us;

    while (busy_us > 0 && atomic_load_explicit(count, memory_order_acquire) == seen
           && clock_now_us() < until_us) {
        for (int i = 0; i < 16; i++) {
            __builtin_ia32_pause();
        }
    }
}

#endif
