/* SPDX-License-Identifier: Apache-2.0 */
/* A step's first operations, enqueued behind the copy of its inputs: their beginnings overlap
 * (kernels/device/launch.cuh), and some read inputs ahead of their own wait. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "tests/support/gpu_scene.h"

#define STEPS    64
#define ROWS_MAX 700
#define WORDS    1000

static const uint32_t H = 4, C = 512; /* 4 query heads and 2 times 2, of 64 */
static const struct kv_layout layout = {32, 1, 2, 64, KV_BF16, KV_LAYOUT_CK8};

/* What a step gets by one copy. */
struct inputs {
    uint32_t ids[ROWS_MAX], pos[ROWS_MAX], block[ROWS_MAX], slot[ROWS_MAX];
};

struct chain {
    uint32_t T;
    struct inputs *host; /* STEPS of them, pinned */
    struct inputs *device;
    struct tensor table, weight, x, normed;
    void *inv_freq, *kv;
    size_t kv_bytes;
};

static void
chain_begin(struct chain *chain, uint32_t T)
{
    double inv_freq[32];
    void *memory;

    *chain = (struct chain){.T = T,
                            .kv_bytes = kv_layout_block_bytes(&layout)
                                        * ((STEPS * T + layout.P - 1) / layout.P)};
    CHECK_OK(gpu->alloc_host(gpu, STEPS * sizeof(struct inputs), &memory));
    chain->host = memory;
    CHECK_OK(gpu->alloc(gpu, sizeof(struct inputs), &memory));
    chain->device = memory;
    for (uint32_t row = 0; row < STEPS * T; row++) {
        struct inputs *inputs = &chain->host[row / T];

        inputs->ids[row % T] = random_u32() % WORDS;
        inputs->pos[row % T] = random_u32() % 100000;
        inputs->block[row % T] = row / layout.P;
        inputs->slot[row % T] = row % layout.P;
    }
    for (uint32_t i = 0; i < layout.D / 2; i++) {
        inv_freq[i] = pow(10000.0, -2.0 * i / layout.D);
    }
    chain->inv_freq = to_device(inv_freq, sizeof(inv_freq));
    CHECK_OK(gpu->alloc(gpu, chain->kv_bytes, &chain->kv));
    chain->table = tensor_new((size_t)WORDS * C, true);
    chain->weight = tensor_new(C, true);
    chain->x = tensor_new((size_t)T * C, false);
    chain->normed = tensor_new((size_t)T * C, false);
}

static void
chain_end(struct chain *chain)
{
    const void *memories[] = {chain->device, chain->inv_freq, chain->kv, NULL};

    release_all(memories);
    gpu->release_host(gpu, chain->host);
    tensor_free(&chain->table);
    tensor_free(&chain->weight);
    tensor_free(&chain->x);
    tensor_free(&chain->normed);
}

static void
finish_if(bool is_apart)
{
    if (is_apart) {
        CHECK_OK(gpu->finish(gpu));
    }
}

/* The bytes of K and V after all steps; apart, each operation ends before the next begins. */
static char *
run_steps(struct chain *chain, bool is_apart)
{
    struct inputs *in = chain->device;
    char *kv = malloc(chain->kv_bytes);

    CHECK_OK(gpu->fill(gpu, chain->kv, 0, chain->kv_bytes));
    for (uint32_t i = 0; i < STEPS; i++) {
        CHECK_OK(gpu->upload(gpu, in, &chain->host[i], sizeof(*in)));
        finish_if(is_apart);
        CHECK_OK(gpu->embed(gpu, (struct embed_args){.table = chain->table.device,
                                                     .ids = in->ids,
                                                     .out = chain->x.device,
                                                     .T = chain->T,
                                                     .C = C,
                                                     .V = WORDS}));
        finish_if(is_apart);
        CHECK_OK(gpu->rmsnorm(gpu, (struct rmsnorm_args){.x = chain->x.device,
                                                         .weight = chain->weight.device,
                                                         .out = chain->normed.device,
                                                         .T = chain->T,
                                                         .C = C,
                                                         .eps = 1e-5f}));
        finish_if(is_apart);
        CHECK_OK(gpu->rope_append(
            gpu, (struct rope_append_args){.qkv = chain->normed.device,
                                           .kv = chain->kv,
                                           .layout = layout,
                                           .n_blocks = (STEPS * chain->T + layout.P - 1) / layout.P,
                                           .row_block = in->block,
                                           .row_slot = in->slot,
                                           .row_pos = in->pos,
                                           .inv_freq = chain->inv_freq,
                                           .rope_scale = 1.0f,
                                           .T = chain->T,
                                           .H = H}));
        finish_if(is_apart);
    }
    CHECK_OK(gpu->download(gpu, kv, chain->kv, chain->kv_bytes));
    CHECK_OK(gpu->finish(gpu));
    return kv;
}

START_TEST(each_step_reads_the_inputs_that_were_copied_right_before_it)
{
    const uint32_t rows[] = {1, 3, 64, ROWS_MAX};

    for (size_t i = 0; i < gpu_cases(2, sizeof(rows) / sizeof(rows[0])); i++) {
        struct chain chain;

        chain_begin(&chain, rows[i]);
        char *want = run_steps(&chain, true);

        for (uint32_t round = 0; round < gpu_cases(1, 5); round++) {
            char *got = run_steps(&chain, false);

            ck_assert_msg(memcmp(got, want, chain.kv_bytes) == 0, "%u rows, round %u", rows[i],
                          round);
            free(got);
        }
        free(want);
        chain_end(&chain);
    }
}
END_TEST

GPU_MAIN("chain_cuda", gpu_open(), each_step_reads_the_inputs_that_were_copied_right_before_it)
