/* SPDX-License-Identifier: Apache-2.0 */
/* decode_group - which requests of a step read which documents together; the first half of
 * decode_plan, which is its only user. */
#ifndef KERNELS_DECODE_GROUP_H
#define KERNELS_DECODE_GROUP_H

#include "kernels/decode_plan.h"

#define DECODE_NONE UINT32_MAX

/* A document of a group. */
struct decode_piece {
    uint32_t block_first;
    uint32_t n_tokens;
    uint32_t sharers; /* first of the group's decode_sharer for this document */
    bool is_own;
    uint32_t next; /* piece of the same group; DECODE_NONE: the last */
};

struct decode_group {
    enum decode_kind kind;
    uint32_t member_first; /* index into members */
    uint32_t n_members;
    uint32_t piece_first;
    uint32_t piece_last;
    uint32_t tiles; /* of all pieces */
};

struct decode_groups {
    struct decode_group *groups;
    struct decode_piece *pieces;
    uint32_t *members; /* sequences */
    uint32_t n_groups;
    uint32_t n_pieces;
    uint32_t n_members;
};

/* Scratch memory, sized by the most segments and sequences of a step. */
struct decode_grouper;

enum status decode_grouper_new(uint32_t seqs_max, uint32_t segs_max,
                               struct decode_grouper **grouper_out);
void decode_grouper_destroy(struct decode_grouper **grouper);

/* Fills plan->sharers; the result belongs to the grouper. */
enum status decode_group_make(struct decode_grouper *grouper, const struct decode_plan_work *work,
                              bool is_shared, struct decode_plan *plan,
                              const struct decode_groups **groups_out);

static inline uint32_t
decode_tiles_of(uint32_t n_tokens)
{
    return n_tokens / DECODE_TILE + (n_tokens % DECODE_TILE != 0);
}

#endif
