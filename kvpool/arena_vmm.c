/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of a GPU: CUDA virtual memory management, exported as a POSIX fd.
 *
 * The memory lives as long as any process holds the fd or a mapping, CUDA context or not (tried on
 * an H200: kvasird holds it without ever loading CUDA).  One physical allocation, one mapping;
 * unmapped whole or not at all.  The driver's functions come from cudaGetDriverEntryPoint, so
 * nothing links libcuda and the program starts on a machine without a driver.
 *
 * An import cannot ask the driver how big the allocation is; mapping more than there is fails, and
 * kvasird passes the size on from who made it. */
#include "kvpool/arena_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime.h>

/* The driver functions used here, looked up once an operation: cheap beside what they do. */
struct driver {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*export_fd)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                          unsigned long long);
    CUresult (*import_fd)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*free_range)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*error_name)(CUresult, const char **);
};

static enum status
find_function(const char *name, void *function_out)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;

    if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found)
            != cudaSuccess
        || found != cudaDriverEntryPointSuccess || function == NULL) {
        (void)cudaGetLastError();
        return ERR(ST_UNAVAILABLE, "no CUDA driver with %s", name);
    }
    memcpy(function_out, &function, sizeof(function)); /* ISO C has no cast to a function pointer */
    return ST_OK;
}

static enum status
driver_open(struct driver *driver)
{
    TRY(find_function("cuMemGetAllocationGranularity", &driver->granularity));
    TRY(find_function("cuMemCreate", &driver->create));
    TRY(find_function("cuMemExportToShareableHandle", &driver->export_fd));
    TRY(find_function("cuMemImportFromShareableHandle", &driver->import_fd));
    TRY(find_function("cuMemRelease", &driver->release));
    TRY(find_function("cuMemAddressReserve", &driver->reserve));
    TRY(find_function("cuMemAddressFree", &driver->free_range));
    TRY(find_function("cuMemMap", &driver->map));
    TRY(find_function("cuMemUnmap", &driver->unmap));
    TRY(find_function("cuMemSetAccess", &driver->set_access));
    return find_function("cuGetErrorName", &driver->error_name);
}

static const char *
name_of(const struct driver *driver, CUresult result)
{
    const char *name = NULL;

    return driver->error_name(result, &name) == CUDA_SUCCESS && name != NULL ? name : "unknown";
}

static enum status
current_device(int *device_out)
{
    /* Also brings up the context that the driver functions need. */
    if (cudaGetDevice(device_out) != cudaSuccess || cudaFree(NULL) != cudaSuccess) {
        return ERR(ST_UNAVAILABLE, "no CUDA device: %s", cudaGetErrorName(cudaGetLastError()));
    }
    return ST_OK;
}

static CUmemAllocationProp
properties(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

/* Maps the allocation at a fresh address; the handle stays the caller's. */
static enum status
map(const struct driver *driver, struct arena *arena, CUmemGenericAllocationHandle handle,
    int device, bool is_writable)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = is_writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    CUdeviceptr base = 0;
    CUresult result = driver->reserve(&base, arena->mapped_bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS) {
        return ERR(ST_NO_MEMORY, "%zu bytes of device address space: %s", arena->mapped_bytes,
                   name_of(driver, result));
    }
    result = driver->map(base, arena->mapped_bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        goto free_range;
    }
    result = driver->set_access(base, arena->mapped_bytes, &access, 1);
    if (result != CUDA_SUCCESS) {
        goto unmap_range;
    }
    arena->base = (void *)(uintptr_t)base;
    return ST_OK;

unmap_range:
    (void)driver->unmap(base, arena->mapped_bytes);
free_range:
    (void)driver->free_range(base, arena->mapped_bytes);
    return ERR(ST_DEVICE, "mapping %zu bytes of device memory: %s", arena->mapped_bytes,
               name_of(driver, result));
}

static void
unmap(struct arena *arena)
{
    struct driver driver;

    /* On a lost device nothing can be done and nothing has to be: the process is about to go. */
    if (driver_open(&driver) == ST_OK) {
        (void)driver.unmap((CUdeviceptr)(uintptr_t)arena->base, arena->mapped_bytes);
        (void)driver.free_range((CUdeviceptr)(uintptr_t)arena->base, arena->mapped_bytes);
    }
}

/* The maker's own mapping becomes read-only; importers ask for read-only themselves.  The driver
 * has no seal on the memory: workers of one pool trust one another as they share a user. */
static enum status
seal_readonly(struct arena *arena)
{
    struct driver driver;
    int device;
    CUresult result;

    TRY(driver_open(&driver));
    TRY(current_device(&device));
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    result =
        driver.set_access((CUdeviceptr)(uintptr_t)arena->base, arena->mapped_bytes, &access, 1);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
        return ST_OK; /* a driver may refuse to narrow an access; importers map narrowly */
    }
    if (result != CUDA_SUCCESS) {
        return ERR(ST_DEVICE, "read-only mapping: %s", name_of(&driver, result));
    }
    return ST_OK;
}

static const struct arena_impl vmm_impl = {
    .name = "vmm", .unmap = unmap, .seal_readonly = seal_readonly};

/* Makes the memory and its fd; the handle is dropped at the end, the fd and the mapping keep it. */
static enum status
create_memory(const struct driver *driver, struct arena *arena, int device)
{
    CUmemAllocationProp prop = properties(device);
    CUmemGenericAllocationHandle handle;
    size_t granularity = 0;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    enum status st;
    CUresult result =
        driver->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);

    if (result != CUDA_SUCCESS || granularity == 0) {
        return ERR(ST_UNAVAILABLE, "device %d cannot export memory: %s", device,
                   name_of(driver, result));
    }
    arena->mapped_bytes = (arena->bytes + granularity - 1) / granularity * granularity;
    result = driver->create(&handle, arena->mapped_bytes, &prop, 0);
    if (result != CUDA_SUCCESS) {
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        return ERR(ST_NO_MEMORY, "arena of %zu bytes on device %d: %s (%zu of %zu bytes are free)",
                   arena->mapped_bytes, device, name_of(driver, result), free_bytes, total_bytes);
    }
    result = driver->export_fd(&arena->fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        arena->fd = -1;
        st = ERR(ST_UNAVAILABLE, "exporting device memory: %s", name_of(driver, result));
    } else {
        st = map(driver, arena, handle, device, true);
    }
    (void)driver->release(handle);
    return st;
}

static enum status
vmm_create(const char *label, size_t bytes, struct arena **arena_out)
{
    struct driver driver;
    struct arena *arena;
    int device;
    enum status st;

    if (bytes == 0 || bytes > PTRDIFF_MAX) {
        return ERR(ST_INVALID, "arena %s of %zu bytes", label, bytes);
    }
    TRY(driver_open(&driver));
    TRY(current_device(&device));
    TRY(arena_record(&vmm_impl, bytes, -1, &arena));
    st = create_memory(&driver, arena, device);
    if (st == ST_OK
        && (cudaMemset(arena->base, 0, arena->bytes) != cudaSuccess
            || cudaDeviceSynchronize() != cudaSuccess)) {
        st = ERR(ST_DEVICE, "clearing arena %s: %s", label, cudaGetErrorName(cudaGetLastError()));
    }
    if (st == ST_OK && fcntl(arena->fd, F_SETFD, FD_CLOEXEC) != 0) {
        st = ERR(ST_SYSTEM, "arena %s: FD_CLOEXEC: %s", label, strerror(errno));
    }
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

static enum status
import_memory(const struct driver *driver, struct arena *arena, bool is_writable)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    size_t granularity = 0;
    int device;
    enum status st;
    CUresult result;

    TRY(current_device(&device));
    prop = properties(device);
    result = driver->granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS || granularity == 0) {
        return ERR(ST_UNAVAILABLE, "device %d cannot import memory: %s", device,
                   name_of(driver, result));
    }
    arena->mapped_bytes = (arena->bytes + granularity - 1) / granularity * granularity;
    result = driver->import_fd(&handle, (void *)(uintptr_t)arena->fd,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) {
        return ERR(ST_INVALID, "arena fd %d: not device memory that can be imported: %s", arena->fd,
                   name_of(driver, result));
    }
    st = map(driver, arena, handle, device, is_writable);
    (void)driver->release(handle);
    return st;
}

static enum status
vmm_import(int fd, size_t bytes, bool is_writable, struct arena **arena_out)
{
    struct driver driver;
    struct arena *arena;
    enum status st;

    TRY(arena_record(&vmm_impl, bytes, fd, &arena));
    st = bytes == 0 ? ERR(ST_INVALID, "arena fd %d of 0 bytes", fd) : driver_open(&driver);
    if (st == ST_OK) {
        st = import_memory(&driver, arena, is_writable);
    }
    if (st != ST_OK) {
        arena_close(&arena);
        return st;
    }
    *arena_out = arena;
    return ST_OK;
}

const struct arena_ops arena_vmm = {
    .name = "vmm",
    .create = vmm_create,
    .import = vmm_import,
};
