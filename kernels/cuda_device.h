/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_device - whether the current device will do, which kernels it gets; memory. */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"

/* ST_UNAVAILABLE unless the current device can run the kernels.  Sets is_portable where it has no
 * others, and what the environment asks for (ops.h). */
enum status cuda_device_choose(struct ops_config *config, uint32_t *sm_count_out);

/* Zeroed, in the order of `stream`. */
enum status cuda_device_alloc(size_t bytes, void *stream, void **memory_out);

/* Of the ops table. */
void cuda_device_release(const struct ops *ops, void *memory);
enum status cuda_device_alloc_host(const struct ops *ops, size_t bytes, void **memory_out);
void cuda_device_release_host(const struct ops *ops, void *memory);

#endif
