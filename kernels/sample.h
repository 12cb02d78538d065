/* SPDX-License-Identifier: Apache-2.0 */
/* sample - the next token of each row from its logits.
 *
 * Order of steps, per row: repetition penalty on the ids in `history` (logit / r if positive,
 * logit * r if negative; each id once); what `adjusts` adds, -inf for a ban; ids without their bit
 * in `allowed` go; log-softmax of these logits gives the reported log
 * probabilities; temperature; top_k; softmax; top_p (smallest set whose mass reaches p, the
 * crossing token included); min_p (tokens below min_p * max probability go); draw.  temperature 0
 * is greedy, ties to the lowest id.  The draw uses a counter-based generator of (seed, counter),
 * counter = index of the token in the answer, so a resumed request draws the same.  NaN logits are
 * ST_INVALID. */
#ifndef KERNELS_SAMPLE_H
#define KERNELS_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SAMPLE_LOGPROBS_MAX 20
#define SAMPLE_REFUSED      UINT32_MAX /* CUDA says so by this id of a row */

struct sample_adjust {
    uint32_t id;
    float delta; /* added to the logit; -INFINITY bans the id; NaN and +INFINITY are ST_INVALID */
};

struct sample_params {
    float temperature;        /* 0 = greedy; < 0 is ST_INVALID */
    uint32_t top_k;           /* 0 = off */
    float top_p;              /* (0, 1]; 1 = off */
    float min_p;              /* [0, 1]; 0 = off */
    float repetition_penalty; /* > 0; 1 = off */
    uint64_t seed;
    uint64_t counter;
    const uint32_t *history; /* [n_history] ids that the penalty applies to */
    uint32_t n_history;
    uint32_t n_adjusts;
    const struct sample_adjust *adjusts; /* [n_adjusts], each id once */
    const uint32_t *allowed;             /* a bit for each id, [(V + 31) / 32]; NULL: all are */
    uint32_t n_logprobs;                 /* alternatives to report, <= SAMPLE_LOGPROBS_MAX */
};

struct sample_result {
    uint32_t id;
    float logprob;                         /* of id */
    uint32_t top_ids[SAMPLE_LOGPROBS_MAX]; /* best first, ties to the lowest id */
    float top_logprobs[SAMPLE_LOGPROBS_MAX];
    uint32_t n_top;
};

struct sample_args {
    const float *logits;                /* [R, V] */
    const struct sample_params *params; /* [R] */
    struct sample_result *results;      /* [R] */
    float *workspace;                   /* sample_workspace_bytes(R, V) */
    uint32_t R;
    uint32_t V;
};

size_t sample_workspace_bytes(uint32_t R, uint32_t V);

/* ST_INVALID names the row and the parameter out of its range. */
enum status sample_ref(struct sample_args args);

/* On a device; enqueues on `stream` (a cudaStream_t). */
enum status sample_cuda(struct sample_args args, void *stream);

#ifdef __cplusplus
}
#endif
#endif
