/* SPDX-License-Identifier: Apache-2.0 */
/* replay - what would this traffic have hit, with another policy or another size of pool?
 *
 * Runs a trace through a real pool (no device, no blocks behind the ids), so what is measured is
 * the code that serves.  A request claims its documents, which are counted then, builds what is
 * missing, and lets go when `in_flight` later ones have come. */
#ifndef KVPOOL_REPLAY_H
#define KVPOOL_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kvpool/evict.h"

/* Requests over numbered documents. */
struct replay_trace {
    uint32_t request_count;
    uint32_t doc_count;
    uint32_t *starts; /* [request_count + 1] into `docs` */
    uint32_t *docs;   /* [starts[request_count]]; no document twice in a request */
    uint32_t *tokens; /* [doc_count] */
};

void replay_trace_deinit(struct replay_trace *trace);

struct replay_config {
    const struct evict_policy_ops *policy;
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t seed;
    double quadratic_tokens;
    uint32_t in_flight;            /* at least 1 */
    uint32_t ahead;                /* requests in the queue that are seen */
    uint32_t uncounted;            /* requests at the start that only warm the pool */
    const atomic_bool *is_stopped; /* somebody wants it to give up; NULL: nobody */
};

struct replay_result {
    uint64_t requests;                 /* counted ones */
    uint64_t documents, documents_hit; /* hit whole */
    uint64_t tokens, tokens_hit;
    uint64_t tokens_early, tokens_hit_early; /* of these, in the first half of what counts */
    uint64_t tokens_first;   /* of the missed: never asked for before in the trace */
    bool was_full;           /* something had to go, at some time */
    uint64_t blocks_evicted; /* while counting */
    double drift;            /* of the zipf policy, else 0 */
};

/* ST_NO_MEMORY; ST_INVALID as kvpool_new; ST_UNAVAILABLE: stopped. */
enum status replay_run(const struct replay_trace *trace, const struct replay_config *config,
                       struct replay_result *result_out);

/* The same traffic as a prefix cache sees it: a document counts only with exactly those before it.
 * Its "documents" are such chains, the longest of a request first, as a least recently used one
 * wants them: then a leaf goes before its stem.  ST_NO_MEMORY. */
enum status replay_prefixes(const struct replay_trace *trace, struct replay_trace *prefixes_out);

#endif
