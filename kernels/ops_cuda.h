/* SPDX-License-Identifier: Apache-2.0 */
/* ops_cuda - the instance of the operations for one GPU.
 *
 * One instance a process and device; it owns one stream.  The caller has chosen the device
 * (cudaSetDevice) on the thread that uses the instance. */
#ifndef KERNELS_OPS_CUDA_H
#define KERNELS_OPS_CUDA_H

#include "common/status.h"
#include "kernels/ops.h"

/* ST_UNAVAILABLE: no driver or no device of compute capability 8.0 or later.  ST_NO_MEMORY,
 * ST_DEVICE. */
enum status ops_cuda_new(struct ops_config config, struct ops **ops_out);

#endif
