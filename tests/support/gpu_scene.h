/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_scene - what tests of the CUDA operations share: the same numbers on both sides, comparison
 * with the twins, and scenes: steps over documents in shared blocks. */
#ifndef TESTS_SUPPORT_GPU_SCENE_H
#define TESTS_SUPPORT_GPU_SCENE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <check.h>

#include "kernels/ops.h"
#include "tests/support/gpu_main.h"

#define CHECK_OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_detail())

/* The instance under test; opened by gpu_open, made anew by use_gpu_for. */
extern struct ops *gpu;
/* What it is compared with. */
extern struct ops *cpu;

/* Prints the seed of random data: $TEST_SEED, or the clock's.  ST_UNAVAILABLE without a device. */
enum status gpu_open(void);

uint32_t random_u32(void);
/* Uniform in [-2, 2) on a grid of 1/64: exact in bf16. */
float random_value(void);
uint16_t to_bf16(float x);
float from_bf16(uint16_t x);

/* The same numbers twice: float32 on the host, bf16 on the device.  What is not random is for an
 * output: zeros on the host, NaN on the device. */
struct tensor {
    float *host;
    void *device;
    size_t count;
};

struct tensor tensor_new(size_t count, bool is_random);
void tensor_free(struct tensor *t);

/* Up to a NULL. */
void release_all(const void *const *memories);
void *to_device(const void *host, size_t bytes);

/* NaN and infinities at the same places, then the relative error in the 2-norm; prints it with the
 * worst element. */
void compare_device(const char *what, const void *device, const float *want, size_t count,
                    bool is_f32, double rel_max);

/* --- scenes ---------------------------------------------------------------------------------- */

#define SEQS_MAX   64
#define SEGS_MAX   1024
#define BLOCKS_MAX 4096

/* A step made of sequences over shared blocks; the arena holds the same bytes on both sides. */
struct scene {
    struct kv_layout layout;
    uint32_t H;
    uint32_t n_blocks;
    uint32_t n_seqs, n_segs, n_ids, n_rows;
    uint16_t *kv;
    struct attn_seq seqs[SEQS_MAX];
    struct attn_segment segs[SEGS_MAX];
    uint32_t ids[BLOCKS_MAX];
    double inv_freq[64];
    void *d_kv, *d_seqs, *d_segs, *d_ids, *d_inv_freq;
};

/* Small ones first: gpu_cases takes those under a sanitizer. */
static const struct heads {
    uint32_t H, Hkv, D;
} heads[] = {{3, 1, 64},   {4, 2, 128},  {4, 4, 64},   {9, 3, 64},
             {32, 8, 128}, {16, 2, 128}, {16, 1, 128}, {32, 1, 64}};
#define HEADS (sizeof(heads) / sizeof(heads[0]))

void scene_begin(struct scene *s, uint32_t P, uint32_t H, uint32_t Hkv, uint32_t D,
                 uint32_t n_blocks);
/* Llama-3.1-8B's heads in blocks of 32; under a sanitizer fewer. */
void scene_begin_llama(struct scene *s, uint32_t n_blocks);
/* Blocks past a segment's tokens are poisoned by whoever wants to; ids are random, shared or not.
 */
void scene_add_segment(struct scene *s, uint32_t n_tokens, uint32_t offset);
/* A sequence over documents of these lengths with `own` tokens of its own, of which the last n_rows
 * are rows of this step. */
void scene_add_seq(struct scene *s, const uint32_t *docs, uint32_t n_docs, uint32_t base,
                   uint32_t own, uint32_t n_rows);
void scene_upload(struct scene *s);
void scene_free(struct scene *s);
struct attn_desc scene_desc(const struct scene *s, bool is_device);

/* The instance is made for one model; make it anew for this scene's heads. */
void use_gpu_for(const struct scene *s);
/* With the switches of `config`; the scene gives its sizes. */
void use_gpu_with(const struct scene *s, struct ops_config config);
void scene_begin_step(const struct scene *s, bool is_decode);

/* Runs the scene on the device and compares with the twin. */
void check_prefill(struct scene *s, const char *what);
void check_decode(struct scene *s, const char *what);

#endif
