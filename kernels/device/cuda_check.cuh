/* SPDX-License-Identifier: Apache-2.0 */
// cuda_check - CUDA calls to statuses.
#ifndef KERNELS_DEVICE_CUDA_CHECK_CUH
#define KERNELS_DEVICE_CUDA_CHECK_CUH

#include <cuda_runtime.h>

#include "common/status.h"

// Records the call's text and the error's name; ST_DEVICE.
#define CU_TRY(call)                                                                               \
    do {                                                                                           \
        cudaError_t cu_error_ = (call);                                                            \
        if (cu_error_ != cudaSuccess) {                                                            \
            return ERR(ST_DEVICE, "%s: %s", #call, cudaGetErrorName(cu_error_));                   \
        }                                                                                          \
    } while (0)

#endif
