/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <time.h>

uint64_t
clock_now_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t
clock_wall_us(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

uint64_t
clock_wall_s(void)
{
    return clock_wall_us() / 1000000u;
}
