/* SPDX-License-Identifier: Apache-2.0 */
/* measures - how long things took and how large they were, as histograms; and why answers ended.
 *
 * Names and bounds are those that vLLM has for the same quantities.  The scheduler's thread writes
 * them, where it carries out what was decided. */
#ifndef DAEMON_MEASURES_H
#define DAEMON_MEASURES_H

#include <stdint.h>

#include "common/histogram.h"
#include "daemon/calls.h"
#include "daemon/sched.h"

#include "kvasir/v1/admin.pb-c.h"

/*    name, bounds, help */
#define MEASURES(X)                                                                                \
    X(time_to_first_token_seconds, histogram_first_token_s,                                        \
      "from a request's arrival to its first token")                                               \
    X(inter_token_latency_seconds, histogram_next_token_s, "between two tokens of an answer")      \
    X(e2e_request_latency_seconds, histogram_request_s, "from a request's arrival to its end")     \
    X(request_queue_time_seconds, histogram_request_s, "waiting for room or a worker")             \
    X(request_prefill_time_seconds, histogram_request_s, "from admission to the first token")      \
    X(request_decode_time_seconds, histogram_request_s, "from the first token to the last")        \
    X(request_inference_time_seconds, histogram_request_s, "from admission to the last token")     \
    X(request_prompt_tokens, histogram_tokens, "tokens of documents and query")                    \
    X(request_generation_tokens, histogram_tokens, "tokens of an answer")                          \
    X(request_cached_tokens, histogram_tokens, "document tokens of a request that were not built") \
    X(iteration_tokens, histogram_tokens, "rows of a worker's step")

enum measures_finish {
    MEASURES_STOP,
    MEASURES_LENGTH,
    MEASURES_ERROR,
    MEASURES_FINISHES,
};

struct measures {
#define MEASURES_FIELD(name, bounds, help) struct histogram name;
    MEASURES(MEASURES_FIELD)
#undef MEASURES_FIELD
    uint64_t finishes[MEASURES_FINISHES];
};

void measures_init(struct measures *measures);

/* Tokens of a call are about to be sent. */
void measures_sent(struct measures *measures, struct call *call, size_t tokens, uint64_t now_us);

/* A request ended; `action` is its SCHED_REPLY_END. */
void measures_ended(struct measures *measures, const struct sched_action *action);

void measures_step(struct measures *measures, uint32_t rows);

#define MEASURES_WIRE_MAX 16

/* The histograms for a reply, the pool's ages (NULL: none) among them, in storage of the caller's;
 * borrows from both.  Returns how many. */
struct measures_wire {
    Kvasir__V1__Histogram items[MEASURES_WIRE_MAX];
};

size_t measures_fill(const struct measures *measures, const struct kvpool_ages *ages,
                     struct measures_wire *wire, Kvasir__V1__Histogram **list);

/* "stop", "length", "error"; who was cancelled is counted by the scheduler. */
const char *measures_finish_name(enum measures_finish finish);

#endif
