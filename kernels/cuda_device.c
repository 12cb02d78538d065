/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda_device.h"

#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "kernels/device/cuda_check.cuh"

static bool
is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && strcmp(value, "1") == 0;
}

enum status
cuda_device_choose(struct ops_config *config, uint32_t *sm_count_out)
{
    int count = 0;
    int device = 0;
    int major = 0;
    int sms = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        (void)cudaGetLastError();
        return ERR(ST_UNAVAILABLE, "no CUDA device");
    }
    CU_TRY(cudaGetDevice(&device));
    CU_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CU_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
    if (major < 8) {
        return ERR(ST_UNAVAILABLE, "device %d has compute capability %d.x, 8.0 is needed", device,
                   major);
    }
    *sm_count_out = (uint32_t)sms;
    config->is_portable = config->is_portable || major != 9 || is_set("KVASIR_CUDA_PORTABLE");
    config->is_mma_prefill = config->is_mma_prefill || is_set("KVASIR_CUDA_MMA_PREFILL");
    config->is_unshared = config->is_unshared || is_set("KVASIR_CUDA_UNSHARED");
    return ST_OK;
}

enum status
cuda_device_alloc(size_t bytes, void *stream, void **memory_out)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);

    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return ERR(ST_NO_MEMORY, "device memory: %zu bytes not to be had", bytes);
    }
    if (error != cudaSuccess) { /* usually of an earlier call */
        return ERR(ST_DEVICE, "cudaMalloc of %zu bytes: %s", bytes, cudaGetErrorName(error));
    }
    error = cudaMemsetAsync(memory, 0, bytes, (cudaStream_t)stream);
    if (error != cudaSuccess) {
        (void)cudaFree(memory);
        return ERR(ST_DEVICE, "cudaMemsetAsync of %zu bytes: %s", bytes, cudaGetErrorName(error));
    }
    *memory_out = memory;
    return ST_OK;
}

void
cuda_device_release(const struct ops *ops, void *memory)
{
    (void)ops;
    if (memory != NULL) {
        (void)cudaFree(memory);
    }
}

enum status
cuda_device_alloc_host(const struct ops *ops, size_t bytes, void **memory_out)
{
    void *memory = NULL;
    cudaError_t error = cudaMallocHost(&memory, bytes == 0 ? 1 : bytes);

    (void)ops;
    if (error != cudaSuccess) {
        return ERR(error == cudaErrorMemoryAllocation ? ST_NO_MEMORY : ST_DEVICE,
                   "cudaMallocHost of %zu bytes: %s", bytes, cudaGetErrorName(error));
    }
    memset(memory, 0, bytes);
    *memory_out = memory;
    return ST_OK;
}

void
cuda_device_release_host(const struct ops *ops, void *memory)
{
    (void)ops;
    if (memory != NULL) {
        (void)cudaFreeHost(memory);
    }
}
