/* SPDX-License-Identifier: Apache-2.0 */
/* rope_angle - cosine and sine of a rotary position, for the CPU twins.
 *
 * The angle position * inv_freq[i] and its cosine and sine are computed in float64 and rounded to
 * float32 once, after `rope_scale`.  Pure: the same position gives the same bits everywhere. */
#ifndef KERNELS_ROPE_ANGLE_H
#define KERNELS_ROPE_ANGLE_H

#include <stdint.h>

#define ROPE_D_MAX 128

struct rope_angle {
    float cos[ROPE_D_MAX / 2];
    float sin[ROPE_D_MAX / 2];
};

/* inv_freq: [D/2], each in [0, 1.5]; D a multiple of 16, at most ROPE_D_MAX. */
void rope_angle_at(struct rope_angle *angle, uint64_t position, const double *inv_freq, uint32_t D,
                   float rope_scale);

/* The angles of the first positions, for one set of frequencies at a time: a question asks for
 * those of (its tokens x documents) in every layer. */
#define ROPE_TABLE_POSITIONS 4096

struct rope_table {
    double inv_freq[ROPE_D_MAX / 2];
    float rope_scale;
    uint32_t D; /* 0: none yet */
    struct rope_angle angles[ROPE_TABLE_POSITIONS];
};

/* Fills the table, unless it is of these frequencies already. */
void rope_table_set(struct rope_table *table, const double *inv_freq, uint32_t D, float rope_scale);

/* The angle at a position: from the table (NULL: there is none) or computed into *room. */
const struct rope_angle *rope_table_angle(const struct rope_table *table, uint64_t position,
                                          const double *inv_freq, uint32_t D, float rope_scale,
                                          struct rope_angle *room);

/* out = R x for one head: pairs (i, i + D/2).  x and out may be the same. */
void rope_angle_rotate(const struct rope_angle *angle, const float *x, float *out, uint32_t D);

/* The same for `count` heads that follow each other, out_stride apart in `out`. */
void rope_angle_rotate_heads(const struct rope_angle *angle, const float *x, uint32_t count,
                             float *out, uint32_t out_stride, uint32_t D);

#endif
