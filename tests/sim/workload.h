/* SPDX-License-Identifier: Apache-2.0 */
/* workload - synthetic RAG traffic for the eviction simulator, and what an oracle knows of it.
 *
 * Every request cites `per_request` distinct documents.  The kinds, with their parameters:
 *
 *   stat      Zipf(alpha) over the corpus, for ever
 *   churn     a = rank swaps a request: one rank drawn log-uniform, its partner uniform
 *   shift     every a requests the share b of all ranks is permuted anew
 *   flash     every a requests on average five cold documents draw the share b, decaying over c
 *   scan      the share a of requests cites documents that nobody ever cites again
 *   loop      the share a of requests walks round and round b * docs documents
 *   diurnal   two orders of popularity, mixed by a sine of period a
 *   news      documents are born through the trace; popularity decays over a requests
 *   session   a sessions; one goes on with probability b and keeps a document with probability c
 *   topic     a queries of Zipf popularity, each with a fixed list out of one of b topics
 *   mix       churn, flash, sessions, and a tenth each of scan and loop
 *
 * The same seed gives the same traffic for ever: the committed results rest on it. */
#ifndef TESTS_SIM_WORKLOAD_H
#define TESTS_SIM_WORKLOAD_H

#include "kvpool/replay.h"

#define WORKLOAD_BLOCK_TOKENS 16 /* of the simulator */

enum workload_sizes {
    SIZES_LOGNORMAL, /* median 512, sigma 0.8, in 100..4096 */
    SIZES_FIXED,     /* 512 */
    SIZES_BIMODAL,   /* 70 % chunks of about 256, 30 % of 1500..4096 */
    SIZES_POPULAR_LONG,
    SIZES_POPULAR_SHORT,
};

struct workload_spec {
    const char *name;
    const char *kind;
    double alpha;
    double a, b, c;
    uint32_t docs;
    uint32_t per_request;
    uint32_t requests;
    enum workload_sizes sizes;
};

/* From `request` on, the true popularity of `doc` is this. */
struct workload_event {
    uint32_t request;
    uint32_t doc;
    float popularity;
};

struct workload {
    struct replay_trace trace;
    uint64_t corpus_blocks;        /* that budgets are shares of; one-off documents left out */
    float *popularity;             /* [doc_count] at the start */
    struct workload_event *events; /* by request */
    size_t event_count, event_capacity;
    size_t reference_capacity;
};

/* Aborts when memory is out: it is a tool of tests. */
void workload_make(const struct workload_spec *spec, uint64_t seed, struct workload *workload_out);
void workload_deinit(struct workload *workload);

/* The workloads of make check, and all 45 of the bench. */
extern const struct workload_spec workload_ci[];
extern const size_t workload_ci_count;
extern const struct workload_spec workload_full[];
extern const size_t workload_full_count;

#endif
