/* SPDX-License-Identifier: Apache-2.0 */
/* What upkeep costs at Llama-3.1-8B's shape: checksums, comparison and filling of blocks of 4 MiB,
 * beside the rate of a device-to-device copy of the same run.  Medians of ROUNDS. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include "bench/device_memory.h"
#include "bench/wall_clock.h"
#include "kernels/ops.h"
#include "kernels/ops_cuda.h"

#define ROUNDS 9
#define BLOCKS 2048u /* 8 GiB */

static const struct kv_layout layout = {32, 32, 8, 128, KV_BF16, KV_LAYOUT_CK8};

static struct ops *gpu;
static size_t block_bytes;
static char *kv;
static uint32_t *blocks, *twins, *tokens; /* device */
static uint64_t *sums;
static struct kv_difference *diff;
static uint32_t first; /* of the lists, so that rounds read other blocks */

static void
run_checksum(uint32_t n)
{
    MUST(gpu->kv_checksum(gpu, (struct kv_checksum_args){.kv = kv,
                                                         .block_bytes = block_bytes,
                                                         .n_blocks = BLOCKS,
                                                         .blocks = blocks + first,
                                                         .sums = sums,
                                                         .N = n}));
}

static void
run_compare(uint32_t n)
{
    MUST(gpu->kv_compare(gpu, (struct kv_compare_args){.kv = kv,
                                                       .layout = layout,
                                                       .n_blocks = BLOCKS,
                                                       .a = blocks + first,
                                                       .b = twins + first,
                                                       .tokens = tokens,
                                                       .diff = diff,
                                                       .N = n}));
}

static void
run_fill(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        MUST(gpu->fill(gpu, kv + (first + i) % BLOCKS * block_bytes, 0, block_bytes));
    }
}

static void
run_fill_run(uint32_t n)
{
    MUST(gpu->fill(gpu, kv + first * block_bytes, 0, n * block_bytes));
}

static void
run_copy(uint32_t n)
{
    (void)cudaMemcpyAsync(kv, kv + BLOCKS / 2 * block_bytes, n * block_bytes,
                          cudaMemcpyDeviceToDevice, 0);
    (void)cudaStreamSynchronize(0);
}

static double
time_us(void (*run)(uint32_t n), uint32_t n)
{
    double us[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        first = (uint32_t)round * 67 % (BLOCKS / 2);
        MUST(gpu->finish(gpu));
        double start = now_us();

        run(n);
        MUST(gpu->finish(gpu));
        us[round] = now_us() - start;
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_value);
    return us[ROUNDS / 2];
}

static void
prepare(void)
{
    static uint32_t list[BLOCKS], other[BLOCKS], full[BLOCKS];

    for (uint32_t i = 0; i < BLOCKS; i++) {
        list[i] = i * 37 % BLOCKS;
        other[i] = (i * 37 + 1) % BLOCKS;
        full[i] = layout.P;
    }
    block_bytes = kv_layout_block_bytes(&layout);
    kv = device(gpu, NULL, BLOCKS * block_bytes);
    blocks = device(gpu, list, sizeof(list));
    twins = device(gpu, other, sizeof(other));
    tokens = device(gpu, full, sizeof(full));
    sums = device(gpu, NULL, BLOCKS * sizeof(sums[0]));
    diff = device(gpu, NULL, BLOCKS * sizeof(diff[0]));
}

int
main(void)
{
    const struct {
        const char *name;
        void (*run)(uint32_t n);
        double bytes; /* moved a block, in blocks */
    } kinds[] = {{"copy", run_copy, 2},
                 {"kv_checksum", run_checksum, 1},
                 {"kv_compare", run_compare, 2},
                 {"fill", run_fill, 1},
                 {"fill of a run", run_fill_run, 1}};
    const uint32_t counts[] = {1, 8, 64, 512};
    double copy_gbs = 0;

    if (ops_cuda_new((struct ops_config){.H = 32,
                                         .Hkv = layout.Hkv,
                                         .D = layout.D,
                                         .rows_max = 64,
                                         .seqs_max = 1,
                                         .segs_max = 1},
                     &gpu)
        != ST_OK) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    prepare();
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            double us = time_us(kinds[k].run, counts[i]);
            double gbs = kinds[k].bytes * counts[i] * (double)block_bytes / us / 1e3;

            copy_gbs = k == 0 ? fmax(copy_gbs, gbs) : copy_gbs;
            printf("%-13s %4u blocks of 4 MiB %9.1f us %6.0f GB/s %5.1f%% of copy\n", kinds[k].name,
                   counts[i], us, gbs, gbs / copy_gbs * 100);
        }
    }
    ops_destroy(&gpu);
    return 0;
}
