/* SPDX-License-Identifier: Apache-2.0 */
/* decode_cuda - lazy_decode on sm_90 for a stream: its planner, the plan's way to the device, and
 * the launches.  Used by ops_cuda. */
#ifndef KERNELS_DECODE_CUDA_H
#define KERNELS_DECODE_CUDA_H

#include <stdbool.h>

#include "common/status.h"
#include "kernels/attn_desc.h"
#include "kernels/decode_plan.h"
#include "kernels/host_copy.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A step with more takes the portable kernel; ops->step_singles_max tells the engine. */
#define DECODE_CUDA_SEQS_MAX 512
#define DECODE_CUDA_SEGS_MAX 16384

struct decode_cuda;

struct decode_cuda_config {
    uint32_t H;
    uint32_t Hkv;
    uint32_t D;
    uint32_t seqs_max; /* of a step; more than DECODE_CUDA_SEQS_MAX count as that many */
    uint32_t segs_max;
    uint32_t prefills_max; /* sequences that decode_cuda_split may get; 0: it moves none */
    uint32_t sm_count;
    bool is_shared; /* documents of several requests are read once */
    bool is_fixed;  /* a row's result has the same bits in any company; shares nothing */
    void *partials; /* device memory, the caller's */
    size_t partials_bytes;
};

/* ST_UNAVAILABLE: a shape that the kernels do not serve (a group of more than DECODE_GROUP_MAX). */
enum status decode_cuda_new(const struct decode_cuda_config *config, struct decode_cuda **out);
void decode_cuda_destroy(struct decode_cuda **decode);

/* The most that a step may have for this kernel; 0 and 0 for NULL. */
void decode_cuda_bounds(const struct decode_cuda *decode, uint32_t *seqs_out, uint64_t *segs_out);

/* Rows that an instance of the operations may give to decode_cuda: those of its decodes, and of
 * queries that go along. */
static inline uint32_t
decode_cuda_rows_max(const struct ops_config *config)
{
    uint32_t rows =
        config->rows_max < DECODE_CUDA_SEQS_MAX ? config->rows_max : DECODE_CUDA_SEQS_MAX;

    return rows > config->seqs_max ? rows : config->seqs_max;
}

/* query_rows_split, where documents are shared; false for a decode of NULL. */
bool decode_cuda_split(struct decode_cuda *decode, struct attn_step *step);

/* Plans step->decode and adds the plan to `copies`, which the caller sends on the same stream.  The
 * host side of `slot` (0 or 1) is written: its last copy must be over.  `angles` are rows of angles
 * on the device, angle_first [n_decode] in the host's memory.  ST_NO_MEMORY: too large a step. */
enum status decode_cuda_begin(struct decode_cuda *decode, const struct attn_step *step,
                              const uint32_t *angle_first, const float *angles, uint32_t slot,
                              struct host_copies *copies, void *stream);

/* For a layer of the step that was begun last. */
enum status decode_cuda_run(struct decode_cuda *decode, struct attn_desc desc, const void *q,
                            void *out, void *stream);

/* What the launches of a step depend on beside pointers and the number of rows. */
uint32_t decode_cuda_shape(const struct decode_cuda *decode);

/* For benchmarks: how streams are cut, and whether Q is rotated (not: wrong results). */
void decode_cuda_tune(struct decode_cuda *decode, struct decode_tuning tuning, bool is_unrotated);

#ifdef __cplusplus
}
#endif
#endif
