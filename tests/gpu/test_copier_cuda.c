/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that go from a device to the host tier and back are the same bytes with the same sums, be
 * the host's memory pinned, not, or in part; a bit that changed there shows; a load that is
 * cancelled writes nothing more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <check.h>
#include <cuda_runtime.h>

#include "kernels/kv_checksum.h"
#include "tests/support/gpu_main.h"
#include "worker/device.h"
#include "worker/mover.h"

#define BLOCKS 40
#define PLACES 61

struct scene {
    size_t block_bytes;
    char *kv;     /* device */
    char *before; /* host: what kv held at first */
    char *host;   /* the tier's */
    uint32_t blocks[BLOCKS], places[BLOCKS];
    struct copier_config config;
};

static void
fill_random(char *bytes, size_t count)
{
    uint64_t x = 88172645463325252u;

    for (size_t i = 0; i + 8 <= count; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(bytes + i, &x, 8);
    }
}

static struct scene
scene_new(size_t block_bytes)
{
    struct scene s = {.block_bytes = block_bytes};
    void *kv;

    ck_assert_int_eq(cudaMalloc(&kv, BLOCKS * block_bytes), cudaSuccess);
    s.kv = kv;
    s.before = malloc(BLOCKS * block_bytes);
    s.host =
        mmap(NULL, PLACES * block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(s.before != NULL && s.host != MAP_FAILED);
    fill_random(s.before, BLOCKS * block_bytes);
    ck_assert_int_eq(cudaMemcpy(s.kv, s.before, BLOCKS * block_bytes, cudaMemcpyHostToDevice),
                     cudaSuccess);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        s.blocks[i] = (i * 17 + 3) % BLOCKS;
        s.places[i] = (i * 29 + 11) % PLACES;
    }
    s.config = (struct copier_config){.kv = s.kv,
                                      .block_bytes = block_bytes,
                                      .block_count = BLOCKS,
                                      .host = s.host,
                                      .place_count = PLACES};
    return s;
}

static void
scene_free(struct scene *s)
{
    (void)cudaFree(s->kv);
    (void)munmap(s->host, PLACES * s->block_bytes);
    free(s->before);
}

static void
copy_all(const struct scene *s, struct copier *copier,
         enum status (*copy)(struct copier *, struct copier_batch), uint64_t *sums)
{
    for (uint32_t first = 0; first < BLOCKS; first += COPIER_BATCH_MAX) {
        uint32_t n = BLOCKS - first < COPIER_BATCH_MAX ? BLOCKS - first : COPIER_BATCH_MAX;

        ck_assert_msg(copy(copier, (struct copier_batch){.blocks = s->blocks + first,
                                                         .places = s->places + first,
                                                         .sums = sums + first,
                                                         .n = n})
                          == ST_OK,
                      "%s", status_detail());
    }
}

static void
there_and_back(size_t block_bytes, int pieces)
{
    struct scene s = scene_new(block_bytes);
    char *after = malloc(BLOCKS * block_bytes);
    uint64_t out[BLOCKS], in[BLOCKS];
    struct copier *copier = NULL;

    ck_assert_int_eq(copier_cuda.create(&s.config, &copier), ST_OK);
    while (pieces-- > 0 && copier_cuda.prepare(copier)) {
    }
    copy_all(&s, copier, copier_cuda.spill, out);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const char *block = s.before + s.blocks[i] * block_bytes;

        ck_assert(memcmp(s.host + s.places[i] * block_bytes, block, block_bytes) == 0);
        ck_assert_uint_eq(out[i], kv_checksum_block(block, block_bytes));
    }
    memset(s.host, 0, PLACES * block_bytes);
    for (uint32_t i = 0; i < BLOCKS; i++) { /* the same without sums */
        ck_assert_int_eq(copier_cuda.spill(copier, (struct copier_batch){.blocks = &s.blocks[i],
                                                                         .places = &s.places[i],
                                                                         .n = 1}),
                         ST_OK);
    }
    ck_assert_int_eq(cudaMemset(s.kv, 0x55, BLOCKS * block_bytes), cudaSuccess);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    s.host[s.places[7] * block_bytes + block_bytes / 3] ^= 0x20;
    copy_all(&s, copier, copier_cuda.load, in);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_msg((in[i] == out[i]) == (i != 7), "block %u of %zu bytes", i, block_bytes);
    }
    ck_assert_int_eq(cudaMemcpy(after, s.kv, BLOCKS * block_bytes, cudaMemcpyDeviceToHost),
                     cudaSuccess);
    after[s.blocks[7] * block_bytes + block_bytes / 3] ^= 0x20;
    ck_assert(memcmp(after, s.before, BLOCKS * block_bytes) == 0);
    copier_cuda.destroy(&copier);
    scene_free(&s);
    free(after);
}

START_TEST(blocks_come_back_as_they_went_pinned_or_not)
{
    static const size_t sizes[] = {256 * 16 * 9, (size_t)4 << 20, 256 * 1023};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        there_and_back(sizes[i], 0);
        there_and_back(sizes[i], 1);
        there_and_back(sizes[i], 1000);
    }
}
END_TEST

START_TEST(a_cancelled_load_writes_nothing_more)
{
    struct scene s = scene_new((size_t)1 << 20);
    struct mover_config config = {
        .copier = &copier_cuda, .copy = s.config, .bind = device_cuda.choose};
    char *after = malloc(BLOCKS * s.block_bytes);
    struct mover *mover = NULL;

    ck_assert_int_eq(mover_new(&config, &mover), ST_OK);
    for (uint32_t round = 0; round < gpu_cases(3, 10); round++) {
        struct mover_job *job = mover_job_new(MOVER_LOAD, 1, BLOCKS);

        memcpy(job->blocks, s.blocks, sizeof(s.blocks));
        memcpy(job->places, s.places, sizeof(s.places));
        for (uint32_t i = 0; i < BLOCKS; i++) {
            job->sums[i] = kv_checksum_block(s.host + s.places[i] * s.block_bytes, s.block_bytes);
        }
        mover_submit(mover, job);
        mover_cancel_load(mover, 1);
        ck_assert_int_eq(cudaMemset(s.kv, (int)round, BLOCKS * s.block_bytes), cudaSuccess);
        ck_assert_int_eq(cudaMemcpy(after, s.kv, BLOCKS * s.block_bytes, cudaMemcpyDeviceToHost),
                         cudaSuccess);
        memset(s.before, (int)round, BLOCKS * s.block_bytes);
        ck_assert(memcmp(after, s.before, BLOCKS * s.block_bytes) == 0);
        ck_assert_int_eq(mover_take(mover, &job), ST_OK);
        ck_assert_ptr_null(job);
    }
    mover_destroy(&mover);
    scene_free(&s);
    free(after);
}
END_TEST

GPU_MAIN("copier_cuda", device_cuda.choose(0), blocks_come_back_as_they_went_pinned_or_not,
         a_cancelled_load_writes_nothing_more)
