/* SPDX-License-Identifier: Apache-2.0 */
/* plan_buffer - a step's plan lies at the same offsets in a pinned host buffer and in its twin on
 * the device. */
#ifndef KERNELS_PLAN_BUFFER_H
#define KERNELS_PLAN_BUFFER_H

#include <stddef.h>

#define PLAN_ALIGN 256

/* Makes room for `bytes` behind *end and returns where. */
static inline size_t
plan_reserve(size_t *end, size_t bytes)
{
    size_t at = *end;

    *end = (at + bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

#endif
