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

#ifdef __cplusplus
}
#endif
#endif
