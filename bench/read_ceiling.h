/* SPDX-License-Identifier: Apache-2.0 */
/* read_ceiling - how fast this device reads memory, in this run: what memory-bound kernels are
 * measured against. */
#ifndef BENCH_READ_CEILING_H
#define BENCH_READ_CEILING_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GB/s of plain 16-byte loads over `bytes` of device memory, the best of several passes; 0 after a
 * CUDA error. */
double read_ceiling_gbs(const void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
