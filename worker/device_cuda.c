/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device.h"

#include <cuda_runtime.h>

#include "kernels/ops_cuda.h"

static enum status
choose_cuda(int ordinal)
{
    int count = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        return ERR(ST_UNAVAILABLE, "no CUDA device: %s", cudaGetErrorString(cudaGetLastError()));
    }
    if (ordinal >= count) {
        return ERR(ST_UNAVAILABLE, "no device cuda:%d: this machine has %d", ordinal, count);
    }
    if (cudaSetDevice(ordinal) != cudaSuccess) {
        return ERR(ST_UNAVAILABLE, "device cuda:%d: %s", ordinal,
                   cudaGetErrorString(cudaGetLastError()));
    }
    return ST_OK;
}

static enum status
free_bytes_cuda(uint64_t *bytes_out)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;

    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
        return ERR(ST_DEVICE, "cudaMemGetInfo: %s", cudaGetErrorName(cudaGetLastError()));
    }
    *bytes_out = free_bytes;
    return ST_OK;
}

/* From pageable memory cudaMemcpy returns before the last bytes are on the device; the arena may be
 * made read-only right after, and what comes then is a fault that the next call reports. */
static enum status
write_cuda(void *memory, const void *host, size_t bytes)
{
    if (cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice) != cudaSuccess
        || cudaStreamSynchronize(NULL) != cudaSuccess) {
        return ERR(ST_DEVICE, "copying %zu bytes to the device: %s", bytes,
                   cudaGetErrorString(cudaGetLastError()));
    }
    return ST_OK;
}

static enum status
read_cuda(void *host, const void *memory, size_t bytes)
{
    if (cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) {
        return ERR(ST_DEVICE, "copying %zu bytes from the device: %s", bytes,
                   cudaGetErrorString(cudaGetLastError()));
    }
    return ST_OK;
}

static const struct arena_ops *const arenas[] = {&arena_vmm, &arena_ipc, NULL};

static enum status
fill_dummy_cuda(struct dummy_fill_args args)
{
    TRY(dummy_fill_cuda(args, NULL));
    if (cudaStreamSynchronize(NULL) != cudaSuccess) {
        return ERR(ST_DEVICE, "filling %llu elements on the device: %s",
                   (unsigned long long)args.count, cudaGetErrorString(cudaGetLastError()));
    }
    return ST_OK;
}

const struct device_kind device_cuda = {
    .name = "cuda",
    .kv_type = KV_BF16,
    .kv_layout = KV_LAYOUT_CK8,
    .weight_type = WEIGHT_BF16,
    .arenas = arenas,
    .choose = choose_cuda,
    .ops_new = ops_cuda_new,
    .free_bytes = free_bytes_cuda,
    .write = write_cuda,
    .read = read_cuda,
    .fill_dummy = fill_dummy_cuda,
    .copier = &copier_cuda,
};
