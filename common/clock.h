/* SPDX-License-Identifier: Apache-2.0 */
/* clock - the only place that reads time.  Pure cores take `now_us` as an argument instead. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* CLOCK_MONOTONIC in microseconds; never goes back; for every duration and deadline. */
uint64_t clock_now_us(void);

/* Since 1970; only for what people or other machines read. */
uint64_t clock_wall_us(void);
uint64_t clock_wall_s(void);

/* Somebody's milliseconds; more than there will ever be are UINT64_MAX / 2 microseconds. */
static inline uint64_t
clock_us_of_ms(uint64_t ms)
{
    return ms < UINT64_MAX / 2 / 1000 ? ms * 1000 : UINT64_MAX / 2;
}

#ifdef __cplusplus
}
#endif
#endif
