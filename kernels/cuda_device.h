/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_device - whether the current device will do, and which kernels it gets. */
#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"

/* ST_UNAVAILABLE unless the current device can run the kernels.  Sets is_portable where it has no
 * others, and what the environment asks for (ops.h). */
enum status cuda_device_choose(struct ops_config *config, uint32_t *sm_count_out);

#endif
