/* SPDX-License-Identifier: Apache-2.0 */
/* bench_step_cuda --tier: the host tier's copies alone and beside decode steps, and how long a
 * document takes to come back. */
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/step_cuda.h"
#include "common/clock.h"
#include "common/mem.h"
#include "worker/device.h"
#include "worker/mover.h"

#define TIER_PLACES 2048u /* 8 GiB */
#define DOC_BLOCKS  64u   /* 2048 tokens */

static sem_t moved;
static uint32_t block_of[TIER_PLACES]; /* that is copied to a place and back */
static atomic_ullong blocks_moved;

static void
note_move(void *arg)
{
    (void)arg;
    (void)sem_post(&moved);
}

/* All over the pool, none that the present step writes: sealed blocks are not written. */
static void
choose_blocks(void)
{
    uint64_t spare = TIER_PLACES;

    for (uint32_t place = 0; place < TIER_PLACES; place++) {
        block_of[place] = (uint32_t)((uint64_t)place * 7919 % step_pool_blocks);
        for (uint32_t i = 0; i < step.n_rows; i++) {
            if (step.row_block[i] == block_of[place]) {
                block_of[place] = (uint32_t)(spare++ * 7919 % step_pool_blocks);
                i = UINT32_MAX; /* looks at all of them again */
            }
        }
    }
}

/* A document's blocks, all over the pool, to places one behind the other, or back. */
static void
submit(struct mover *mover, bool is_load, uint64_t number, const uint64_t *sums)
{
    struct mover_job *job =
        mover_job_new(is_load ? MOVER_LOAD : MOVER_SPILL, number + 1, DOC_BLOCKS);

    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        uint32_t place = (uint32_t)(number * DOC_BLOCKS + i) % TIER_PLACES;

        job->places[i] = place;
        job->blocks[i] = block_of[place];
        job->sums[i] = is_load ? sums[place] : 0;
    }
    mover_submit(mover, job);
}

/* Waits for one job; its sums are kept by place. */
static uint64_t
take(struct mover *mover, uint64_t *sums)
{
    struct mover_job *job = NULL;
    uint64_t copy_us;

    while (job == NULL) {
        (void)sem_wait(&moved);
        MUST(mover_take(mover, &job));
    }
    if (job->done != job->n) {
        printf("FAIL %s: %s\n", job->kind == MOVER_LOAD ? "load" : "spill", job->error);
        exit(1);
    }
    for (uint32_t i = 0; i < job->n && job->kind == MOVER_SPILL; i++) {
        sums[job->places[i]] = job->sums[i];
    }
    copy_us = job->copy_us;
    atomic_fetch_add(&blocks_moved, job->n);
    mem_free(job);
    return copy_us;
}

/* All of the tier once, two jobs under way; GB/s. */
static double
move_all(struct mover *mover, bool is_load, size_t block_bytes, uint64_t *sums)
{
    uint64_t jobs = TIER_PLACES / DOC_BLOCKS, start_us = clock_now_us();

    submit(mover, is_load, 0, sums);
    for (uint64_t i = 1; i <= jobs; i++) {
        if (i < jobs) {
            submit(mover, is_load, i, sums);
        }
        (void)take(mover, sums);
    }
    return (double)TIER_PLACES * (double)block_bytes / (double)(clock_now_us() - start_us) / 1e3;
}

/* Decode steps of this batch while copies run all the time; what both cost. */
static void
bench_beside(struct mover *mover, bool is_load, uint32_t batch, size_t block_bytes, uint64_t *sums)
{
    uint64_t first, start_us, moved_bytes, number = 0;
    double alone, beside;
    double ms[STEP_ROUNDS * 4];
    static struct sample_params params[STEP_SEQS_MAX];

    step_begin();
    for (uint32_t i = 0; i < batch; i++) {
        step_add_seq(5, 4096, 64, 1, true);
        params[i] = (struct sample_params){.top_p = 1.0f, .repetition_penalty = 1.0f};
    }
    choose_blocks();
    alone = step_time_ms();
    submit(mover, is_load, number++, sums);
    submit(mover, is_load, number++, sums);
    first = atomic_load(&blocks_moved);
    start_us = clock_now_us();
    for (int r = 0; r < STEP_ROUNDS * 4; r++) {
        uint64_t step_us = clock_now_us();

        MUST(llama_forward(step_llama, &step));
        MUST(llama_sample(step_llama, 0, step.n_logits, params, step_results));
        ms[r] = (double)(clock_now_us() - step_us) / 1e3;
        while (sem_trywait(&moved) == 0) {
            (void)sem_post(&moved);
            (void)take(mover, sums);
            submit(mover, is_load, number++ % (TIER_PLACES / DOC_BLOCKS), sums);
        }
    }
    moved_bytes = (atomic_load(&blocks_moved) - first) * block_bytes;
    double gbs = (double)moved_bytes / (double)(clock_now_us() - start_us) / 1e3;

    (void)take(mover, sums);
    (void)take(mover, sums);
    qsort(ms, STEP_ROUNDS * 4, sizeof(ms[0]), by_value);
    beside = ms[STEP_ROUNDS * 2];
    printf("decode b=%-3u beside %-6s %6.2f ms, alone %6.2f: %+5.1f%% (slowest %.2f); copies %5.1f "
           "GB/s\n",
           batch, is_load ? "loads" : "spills", beside, alone, (beside / alone - 1) * 100,
           ms[STEP_ROUNDS * 4 - 1], gbs);
}

void
bench_tier(void *kv, struct kv_layout layout)
{
    size_t block_bytes = kv_layout_block_bytes(&layout);
    struct mover_config config = {.copier = &copier_cuda,
                                  .bind = device_cuda.choose,
                                  .copy = {.kv = kv,
                                           .block_bytes = block_bytes,
                                           .block_count = step_pool_blocks,
                                           .place_count = TIER_PLACES}};
    uint64_t *sums = calloc(TIER_PLACES, sizeof(sums[0]));
    struct copier *copier = NULL;
    struct mover *mover = NULL;
    double us[STEP_ROUNDS];

    config.copy.host = mmap(NULL, TIER_PLACES * block_bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)sem_init(&moved, 0, 0);
    step_begin();
    choose_blocks();
    MUST(copier_cuda.create(&config.copy, &copier)); /* only to see what pinning takes */
    uint64_t start_us = clock_now_us(), worst_us = 0, pieces = 0;

    for (bool more = true; more; pieces += more) {
        uint64_t piece_us = clock_now_us();

        more = copier_cuda.prepare(copier);
        piece_us = clock_now_us() - piece_us;
        worst_us = piece_us > worst_us ? piece_us : worst_us;
    }
    uint64_t pinning_us = clock_now_us() - start_us;

    printf("pinned %.1f GiB in %.2f s, %llu pieces, longest %.1f ms\n",
           (double)TIER_PLACES * (double)block_bytes / (1 << 30), (double)pinning_us / 1e6,
           (unsigned long long)pieces, (double)worst_us / 1e3);
    copier_cuda.destroy(&copier);
    MUST(mover_new(&config, &mover));
    mover_set_wake(mover, note_move, NULL);
    printf("spill, not pinned %5.1f GB/s\n", move_all(mover, false, block_bytes, sums));
    (void)usleep((useconds_t)(pinning_us + pinning_us / 2)); /* now it is idle, and pins */
    for (int i = 0; i < 3; i++) {
        printf("spill %5.1f GB/s", move_all(mover, false, block_bytes, sums));
        printf("   load %5.1f GB/s\n", move_all(mover, true, block_bytes, sums));
    }
    for (int r = 0; r < STEP_ROUNDS; r++) {
        uint64_t begin_us = clock_now_us();

        submit(mover, true, (uint64_t)r, sums);
        (void)take(mover, sums);
        us[r] = (double)(clock_now_us() - begin_us);
    }
    qsort(us, STEP_ROUNDS, sizeof(us[0]), by_value);
    printf("document of 2048 tokens, %.0f MiB, back in %.2f ms (slowest %.2f), checked\n",
           (double)DOC_BLOCKS * (double)block_bytes / (1 << 20), us[STEP_ROUNDS / 2] / 1e3,
           us[STEP_ROUNDS - 1] / 1e3);
    for (uint32_t batch = 1; batch <= 32; batch *= batch == 1 ? 8 : 4) {
        bench_beside(mover, false, batch, block_bytes, sums);
        bench_beside(mover, true, batch, block_bytes, sums);
    }
    step_bench_encode(2048);
    mover_destroy(&mover);
    free(sums);
}
