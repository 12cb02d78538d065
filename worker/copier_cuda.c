/* SPDX-License-Identifier: Apache-2.0 */
/* Bound by the link: 4 MiB a block of an 8B shape, 55 GB/s pinned on an H200, 76 us a block.
 *
 * A block is one piece on both sides, so a copy is one call a block on a stream of its own, which
 * the copy engines run beside the steps.  Sums are made on the device by a second stream: of a
 * spill beside the copies, if they are wanted, of a load CHECK_BLOCKS behind them.  Both streams
 * have the lowest priority and the operations' the highest, so a step's kernels go first.
 *
 * Memory that is not pinned is copied at a third of the speed, through the driver's own buffers.
 * Pinning takes the driver's lock, which a step needs to launch; so it is done a piece at a time,
 * after the pages were taken, and a piece is whole blocks, for no copy may cross two of them. */
#include "worker/copier.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/kv_checksum.h"

#define CHECK_BLOCKS 16                /* fewer, larger launches beside a step */
#define PIECE_BYTES  ((size_t)8 << 20) /* 5 ms, for which a load may have to wait */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; elsewhere refused, and pinning takes the pages */
#endif

/* No memory is no broken device: it is asked again some day. */
static enum status
fail(const char *call, cudaError_t error)
{
    bool is_full = error == cudaErrorMemoryAllocation;

    if (is_full) {
        (void)cudaGetLastError(); /* or a later call would be told of it */
    }
    return ERR(is_full ? ST_NO_MEMORY : ST_DEVICE, "%s: %s", call, cudaGetErrorName(error));
}

#define CU(call)                                                                                   \
    do {                                                                                           \
        cudaError_t cu_error = (call);                                                             \
        if (cu_error != cudaSuccess) {                                                             \
            return fail(#call, cu_error);                                                          \
        }                                                                                          \
    } while (0)

struct copier {
    struct copier_config config;
    cudaStream_t copies, checks;
    cudaEvent_t come[COPIER_BATCH_MAX / CHECK_BLOCKS]; /* so many blocks of this batch */
    cudaEvent_t done;
    uint32_t *ids_host; /* pinned */
    uint64_t *sums_host;
    uint32_t *ids; /* device */
    uint64_t *sums;
    size_t piece_bytes;
    size_t pinned_bytes; /* from the start of the host memory */
};

/* Whole blocks and whole pages. */
static size_t
choose_piece(size_t block_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), unit = block_bytes;

    while (unit % page != 0) { /* blocks are multiples of 256 bytes, so soon */
        unit += block_bytes;
    }
    return unit >= PIECE_BYTES ? unit : PIECE_BYTES / unit * unit;
}

static enum status
open_device(struct copier *copier)
{
    void *ids_host, *sums_host, *ids, *sums;
    int lowest = 0, highest = 0;

    CU(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    CU(cudaStreamCreateWithPriority(&copier->copies, cudaStreamNonBlocking, lowest));
    CU(cudaStreamCreateWithPriority(&copier->checks, cudaStreamNonBlocking, lowest));
    for (int i = 0; i < COPIER_BATCH_MAX / CHECK_BLOCKS; i++) {
        CU(cudaEventCreateWithFlags(&copier->come[i], cudaEventDisableTiming));
    }
    CU(cudaEventCreateWithFlags(&copier->done, cudaEventDisableTiming | cudaEventBlockingSync));
    CU(cudaMallocHost(&ids_host, COPIER_BATCH_MAX * sizeof(uint32_t)));
    copier->ids_host = ids_host;
    CU(cudaMallocHost(&sums_host, COPIER_BATCH_MAX * sizeof(uint64_t)));
    copier->sums_host = sums_host;
    CU(cudaMalloc(&ids, COPIER_BATCH_MAX * sizeof(uint32_t)));
    copier->ids = ids;
    CU(cudaMalloc(&sums, COPIER_BATCH_MAX * sizeof(uint64_t)));
    copier->sums = sums;
    return ST_OK;
}

static void
destroy(struct copier **copier_ref)
{
    struct copier *copier = *copier_ref;

    if (copier == NULL) {
        return;
    }
    for (size_t at = 0; at < copier->pinned_bytes; at += copier->piece_bytes) {
        (void)cudaHostUnregister((char *)copier->config.host + at);
    }
    for (int i = 0; i < COPIER_BATCH_MAX / CHECK_BLOCKS; i++) {
        if (copier->come[i] != NULL) {
            (void)cudaEventDestroy(copier->come[i]);
        }
    }
    if (copier->done != NULL) {
        (void)cudaEventDestroy(copier->done);
    }
    (void)cudaFreeHost(copier->ids_host);
    (void)cudaFreeHost(copier->sums_host);
    (void)cudaFree(copier->ids);
    (void)cudaFree(copier->sums);
    if (copier->copies != NULL) {
        (void)cudaStreamDestroy(copier->copies);
    }
    if (copier->checks != NULL) {
        (void)cudaStreamDestroy(copier->checks);
    }
    MEM_FREE(*copier_ref);
}

static enum status
create(const struct copier_config *config, struct copier **copier_out)
{
    struct copier *copier = mem_zalloc(1, sizeof(*copier));
    enum status st;

    if (copier == NULL) {
        return ERR(ST_NO_MEMORY, "a copier");
    }
    copier->config = *config;
    copier->piece_bytes = choose_piece(config->block_bytes);
    st = open_device(copier);
    if (st != ST_OK) {
        destroy(&copier);
        return st;
    }
    *copier_out = copier;
    return ST_OK;
}

static char *
block_at(const struct copier *copier, uint32_t block)
{
    return (char *)copier->config.kv + block * copier->config.block_bytes;
}

static char *
place_at(const struct copier *copier, uint32_t place)
{
    return (char *)copier->config.host + place * copier->config.block_bytes;
}

static enum status
send_ids(struct copier *copier, struct copier_batch batch)
{
    memcpy(copier->ids_host, batch.blocks, batch.n * sizeof(copier->ids_host[0]));
    CU(cudaMemcpyAsync(copier->ids, copier->ids_host, batch.n * sizeof(copier->ids[0]),
                       cudaMemcpyHostToDevice, copier->checks));
    return ST_OK;
}

static enum status
check(const struct copier *copier, uint32_t first, uint32_t n)
{
    return kv_checksum_cuda((struct kv_checksum_args){.kv = copier->config.kv,
                                                      .block_bytes = copier->config.block_bytes,
                                                      .n_blocks = copier->config.block_count,
                                                      .blocks = copier->ids + first,
                                                      .sums = copier->sums + first,
                                                      .N = n},
                            copier->checks);
}

/* Waits for both streams; the thread sleeps. */
static enum status
take_sums(struct copier *copier, struct copier_batch batch)
{
    CU(cudaMemcpyAsync(copier->sums_host, copier->sums, batch.n * sizeof(copier->sums[0]),
                       cudaMemcpyDeviceToHost, copier->checks));
    CU(cudaEventRecord(copier->done, copier->checks));
    CU(cudaEventSynchronize(copier->done));
    memcpy(batch.sums, copier->sums_host, batch.n * sizeof(batch.sums[0]));
    return ST_OK;
}

static enum status
spill(struct copier *copier, struct copier_batch batch)
{
    if (batch.sums != NULL) {
        TRY(send_ids(copier, batch));
        TRY(check(copier, 0, batch.n));
    }
    for (uint32_t i = 0; i < batch.n; i++) {
        CU(cudaMemcpyAsync(place_at(copier, batch.places[i]), block_at(copier, batch.blocks[i]),
                           copier->config.block_bytes, cudaMemcpyDeviceToHost, copier->copies));
    }
    if (batch.sums == NULL) {
        CU(cudaEventRecord(copier->done, copier->copies));
        CU(cudaEventSynchronize(copier->done));
        return ST_OK;
    }
    CU(cudaEventRecord(copier->come[0], copier->copies));
    CU(cudaStreamWaitEvent(copier->checks, copier->come[0], 0));
    return take_sums(copier, batch);
}

static enum status
load(struct copier *copier, struct copier_batch batch)
{
    TRY(send_ids(copier, batch));
    for (uint32_t first = 0; first < batch.n; first += CHECK_BLOCKS) {
        uint32_t left = batch.n - first, n = left < CHECK_BLOCKS ? left : CHECK_BLOCKS;

        for (uint32_t i = first; i < first + n; i++) {
            CU(cudaMemcpyAsync(block_at(copier, batch.blocks[i]), place_at(copier, batch.places[i]),
                               copier->config.block_bytes, cudaMemcpyHostToDevice, copier->copies));
        }
        CU(cudaEventRecord(copier->come[first / CHECK_BLOCKS], copier->copies));
        CU(cudaStreamWaitEvent(copier->checks, copier->come[first / CHECK_BLOCKS], 0));
        TRY(check(copier, first, n));
    }
    return take_sums(copier, batch);
}

static bool
prepare(struct copier *copier)
{
    size_t all = copier->config.place_count * copier->config.block_bytes;
    size_t left = all - copier->pinned_bytes;
    size_t bytes = left < copier->piece_bytes ? left : copier->piece_bytes;
    char *at = (char *)copier->config.host + copier->pinned_bytes;

    if (bytes == 0) {
        return false;
    }
    (void)madvise(at, bytes, MADV_POPULATE_WRITE);
    if (cudaHostRegister(at, bytes, cudaHostRegisterDefault) != cudaSuccess) {
        (void)cudaGetLastError(); /* what is not pinned is slower, and that is all */
        return false;
    }
    copier->pinned_bytes += bytes;
    return true;
}

const struct copier_ops copier_cuda = {
    .create = create,
    .destroy = destroy,
    .spill = spill,
    .load = load,
    .prepare = prepare,
};
