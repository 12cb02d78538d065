/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the CUDA instance that only move bytes (rmsnorm, swiglu, rope_append, embed) at
 * Llama-3.1-8B's shape: bytes that must be read and written over the time, beside the rate of a
 * device-to-device copy of the same run.
 *
 * Buffers are taken in turn from more than L2 holds; medians of ROUNDS. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include "bench/device_memory.h"
#include "bench/wall_clock.h"
#include "kernels/ops.h"
#include "kernels/ops_cuda.h"

#define ROUNDS 9
#define SETS   8 /* of buffers */

static const uint32_t T_MAX = 4096, C = 4096, F = 14336, H = 32, HKV = 8, D = 128, V = 128256;
static const struct kv_layout layout = {32, 1, 8, 128, KV_BF16, KV_LAYOUT_CK8};

static struct ops *gpu;
static double copy_gbs;
static char *big, *table; /* random bf16 */
static void *row_block, *row_slot, *row_pos, *ids, *inv_freq;
static uint32_t T;

static const size_t SET_BYTES = (size_t)T_MAX * 3 * 14336 * 2; /* what one call touches, at most */

static char *
set(uint32_t i)
{
    return big + (size_t)(i % SETS) * SET_BYTES;
}

static struct rmsnorm_args
rmsnorm_set(uint32_t i, bool has_delta)
{
    const size_t bytes = (size_t)T_MAX * C * 2;

    return (struct rmsnorm_args){.x = set(i),
                                 .delta = has_delta ? set(i) + bytes : NULL,
                                 .weight = table,
                                 .out = set(i) + 2 * bytes,
                                 .T = T,
                                 .C = C,
                                 .eps = 1e-5f};
}

static void
run(int kind, uint32_t i)
{
    switch (kind) {
    case 0: MUST(gpu->rmsnorm(gpu, rmsnorm_set(i, true))); break;
    case 1: MUST(gpu->rmsnorm(gpu, rmsnorm_set(i, false))); break;
    case 2:
        MUST(gpu->swiglu(gpu, (struct swiglu_args){.gate_up = set(i),
                                                   .out = set(i) + (size_t)T_MAX * 2 * F * 2,
                                                   .T = T,
                                                   .F = F}));
        break;
    case 3:
        MUST(gpu->rope_append(
            gpu, (struct rope_append_args){.qkv = set(i),
                                           .q_out = set(i) + (size_t)T_MAX * (H + 2 * HKV) * D * 2,
                                           .kv = set(i) + (size_t)T_MAX * (2 * H + 2 * HKV) * D * 2,
                                           .layout = layout,
                                           .n_blocks = T_MAX / 32,
                                           .row_block = row_block,
                                           .row_slot = row_slot,
                                           .row_pos = row_pos,
                                           .inv_freq = inv_freq,
                                           .rope_scale = 1.0f,
                                           .T = T,
                                           .H = H}));
        break;
    default:
        MUST(gpu->embed(gpu,
                        (struct embed_args){
                            .table = table, .ids = ids, .out = set(i), .T = T, .C = C, .V = V}));
    }
}

static const struct {
    const char *name;
    double row_bytes;
} kinds[] = {
    {"rmsnorm with delta", 4.0 * 4096 * 2},
    {"rmsnorm", 2.0 * 4096 * 2},
    {"swiglu", 3.0 * 14336 * 2},
    {"rope_append", 2.0 * 6144 * 2},
    {"embed", 2.0 * 4096 * 2},
};

/* Median microseconds a call; recorded, so that launches do not count. */
static double
time_us(int kind)
{
    double us[ROUNDS];
    uint8_t key[OPS_GRAPH_KEY_BYTES] = {(uint8_t)kind, (uint8_t)(T >> 8), (uint8_t)T, 1};

    for (int r = -3; r < ROUNDS; r++) {
        double start = now_us();

        for (int k = 0; k < (r < 0 ? 1 : 4); k++) {
            enum ops_graph found;

            MUST(gpu->graph_begin(gpu, key, &found));
            for (uint32_t i = 0; i < SETS && found != OPS_GRAPH_REPLAYED; i++) {
                run(kind, i);
            }
            if (found == OPS_GRAPH_RECORDING) {
                MUST(gpu->graph_end(gpu));
            }
        }
        MUST(gpu->finish(gpu));
        us[r < 0 ? 0 : r] = (now_us() - start) / (4 * SETS);
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_value);
    return us[ROUNDS / 2];
}

static void
measure_copy(void)
{
    const size_t bytes = (size_t)SETS / 2 * SET_BYTES;

    for (int i = 0; i < 6; i++) {
        (void)cudaDeviceSynchronize();
        double start = now_us();

        (void)cudaMemcpyAsync(big, big + bytes, bytes, cudaMemcpyDeviceToDevice, 0);
        (void)cudaDeviceSynchronize();
        copy_gbs = fmax(copy_gbs, 2.0 * (double)bytes / (now_us() - start) / 1e3);
    }
    printf("copy %.0f GB/s\n", copy_gbs);
}

static void
prepare(void)
{
    uint32_t block[4096], slot[4096], pos[4096], id[4096];
    double frequency[64];

    for (uint32_t t = 0; t < T_MAX; t++) {
        block[t] = (t / 32 * 37) % (T_MAX / 32);
        slot[t] = t % 32;
        pos[t] = t;
        id[t] = (t * 2654435761u) % V;
    }
    for (uint32_t i = 0; i < D / 2; i++) {
        frequency[i] = pow(500000.0, -2.0 * i / D);
    }
    row_block = device(gpu, block, sizeof(block));
    row_slot = device(gpu, slot, sizeof(slot));
    row_pos = device(gpu, pos, sizeof(pos));
    ids = device(gpu, id, sizeof(id));
    inv_freq = device(gpu, frequency, sizeof(frequency));
    big = random_bf16(gpu, SETS * SET_BYTES / 2);
    table = random_bf16(gpu, (size_t)V * C);
}

static void
say(const char *name, double row_bytes, double us)
{
    double gbs = row_bytes * T / us / 1e3;

    printf("%-20s T=%-5u %8.1f us %6.0f GB/s %5.1f%% of copy\n", name, T, us, gbs,
           gbs / copy_gbs * 100);
}

int
main(void)
{
    const uint32_t rows[] = {64, 512, 4096};

    if (ops_cuda_new(
            (struct ops_config){
                .H = H, .Hkv = HKV, .D = D, .rows_max = T_MAX, .seqs_max = 1, .segs_max = 1},
            &gpu)
        != ST_OK) {
        printf("SKIP: %s\n", status_detail());
        return 77;
    }
    prepare();
    measure_copy();
    for (int kind = 0; kind < (int)(sizeof(kinds) / sizeof(kinds[0])); kind++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            T = rows[i];
            say(kinds[kind].name, kinds[kind].row_bytes, time_us(kind));
        }
    }
    ops_destroy(&gpu);
    return 0;
}
