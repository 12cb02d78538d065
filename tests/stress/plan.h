/* SPDX-License-Identifier: Apache-2.0 */
/* plan - what one request of a stress run asks, and what happens to it: all of it from a seed.
 *
 * The same (config, round, index) is the same request on every machine, so a failure replays. */
#ifndef TESTS_STRESS_PLAN_H
#define TESTS_STRESS_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/kvasir.h"

#define PLAN_DOCS_MAX   16
#define PLAN_STOPS_MAX  3
#define PLAN_TOKENS_MAX 1024 /* of an answer */
#define PLAN_ALARM_MS   80   /* a process that is killed by the clock lives at most so long */

struct plan_config {
    uint64_t seed;
    uint32_t vocab;      /* ids are drawn from [8, vocab) */
    uint32_t documents;  /* that requests share */
    uint32_t docs_max;   /* a request, at most PLAN_DOCS_MAX */
    uint32_t doc_tokens; /* at most */
    uint32_t max_tokens; /* of an answer, at most PLAN_TOKENS_MAX */
    bool is_greedy;      /* no sampling, no penalty, logprobs always: for near-ties */
    bool is_calm;        /* nothing is cancelled or killed */
};

/* What happens to a request before its end. */
enum plan_fate {
    PLAN_LIVES,
    PLAN_CANCELS,      /* itself, after fate_tokens */
    PLAN_HANGS_UP,     /* its callback returns false after fate_tokens */
    PLAN_IS_CANCELLED, /* by its neighbour, when that one has fate_tokens or has ended */
    PLAN_EXPIRES,      /* a deadline that may pass */
    PLAN_DIES,         /* a process of its own that is killed after fate_tokens, or by the clock */
};

/* What its thread does before it asks. */
enum plan_chore {
    PLAN_ASKS,
    PLAN_EVICTS,
    PLAN_WARMS,   /* registers and warms its first document */
    PLAN_FORGETS, /* registers, pins, unpins and forgets it */
};

struct plan_doc {
    uint32_t n_tokens;
    uint64_t seed;
};

struct plan {
    struct plan_doc docs[PLAN_DOCS_MAX];
    uint32_t doc_count;
    uint32_t query_tokens;
    uint64_t query_seed;
    const char *query; /* text instead of ids; or NULL */
    struct kvasir_sampling sampling;
    char stop_text[PLAN_STOPS_MAX][8];
    const char *stops[PLAN_STOPS_MAX];
    const char *salt; /* NULL: none */
    bool ignore_end;
    uint32_t priority;
    uint32_t timeout_ms;
    enum plan_fate fate;
    uint32_t fate_tokens;
    enum plan_chore chore;
    uint32_t evict_blocks;
};

/* Fills *plan_out, which must not move afterwards: it points into itself. */
void plan_make(const struct plan_config *config, uint32_t round, uint32_t index,
               struct plan *plan_out);

/* The ids of a document or query. */
void plan_fill_ids(const struct plan_config *config, uint64_t seed, uint32_t count,
                   uint32_t *ids_out);

/* Prints it on one line, for a failure. */
void plan_print(const struct plan *plan);

#endif
