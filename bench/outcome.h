/* SPDX-License-Identifier: Apache-2.0 */
/* outcome - what became of one request, on one monotonic clock (common/clock.h) from its sending to
 * its end. */
#ifndef BENCH_OUTCOME_H
#define BENCH_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTCOME_ERROR_MAX 160

struct outcome {
    bool is_ok;
    char error[OUTCOME_ERROR_MAX];
    uint64_t due_us;   /* when it should have been sent */
    uint64_t sent_us;  /* the call began: TTFT and E2EL count from here */
    uint64_t first_us; /* first output; 0: none came */
    uint64_t last_us;  /* latest output */
    uint64_t end_us;   /* the call returned */
    uint32_t *gaps_us; /* [n_gaps] between outputs, in order: ITL */
    size_t n_gaps;
    size_t gaps_room;
    uint32_t input_tokens;
    uint32_t output_tokens;
    /* What the server says that it reused. */
    bool has_reuse;
    /* All of its documents were there; with a server that does not say it: asked for before. */
    bool is_warm;
    uint32_t documents, documents_hit; /* 0: it counts tokens only */
    uint64_t document_tokens, tokens_reused, tokens_built;
    uint64_t tokens_copied;            /* of those reused: through a copy made for this request */
    uint64_t queue_us, server_ttft_us; /* 0: it does not say */
    uint64_t text_hash;                /* of all that came: equal texts have equal ones */
};

/* Zeroed, with its due time. */
void outcome_begin(struct outcome *outcome, uint64_t due_us, uint64_t now_us);

/* A piece of output came.  Never fails: where memory is short the gap is not kept. */
void outcome_output(struct outcome *outcome, const void *text, size_t length, uint64_t now_us);

/* The call returned; error NULL: well.  An answer without output is a failure. */
void outcome_end(struct outcome *outcome, const char *error, uint64_t now_us);

void outcome_deinit(struct outcome *outcome);

/* Of one that is OK.  TPOT is 0 where there is one token or none. */
double outcome_ttft_ms(const struct outcome *outcome);
double outcome_tpot_ms(const struct outcome *outcome);
double outcome_e2el_ms(const struct outcome *outcome);

#endif
