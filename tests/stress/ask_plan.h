/* SPDX-License-Identifier: Apache-2.0 */
/* ask_plan - asks what a plan says and notes everything that comes; compares two outcomes. */
#ifndef TESTS_STRESS_ASK_PLAN_H
#define TESTS_STRESS_ASK_PLAN_H

#include "tests/stress/plan.h"

#define OUTCOME_TEXT_MAX    (32 * PLAN_TOKENS_MAX)
#define OUTCOME_MESSAGE_MAX 256

struct outcome {
    enum kvasir_code code;
    enum kvasir_finish finish; /* with KVASIR_OK */
    char message[OUTCOME_MESSAGE_MAX];
    uint32_t ids[PLAN_TOKENS_MAX];
    float logprobs[PLAN_TOKENS_MAX]; /* when the plan wants them */
    float gaps[PLAN_TOKENS_MAX];     /* of the two best; with two alternatives or more */
    uint32_t id_count, logprob_count;
    uint32_t preemptions;
    size_t text_length;
    char text[OUTCOME_TEXT_MAX];
    const char *fault; /* what is wrong with it in itself; NULL: nothing */
};

/* Called with the tokens so far, at each chunk.  False ends the call. */
typedef bool (*ask_plan_fn)(void *opaque, uint32_t tokens);

/* Asks and waits for the end.  `is_solo`: alone and undisturbed, with no deadline. */
void ask_plan(struct kvasir *client, const struct plan_config *config, const struct plan *plan,
              bool is_solo, ask_plan_fn on_chunk, void *opaque, struct outcome *outcome_out);

/* NULL, or what differs.  An outcome that is no KVASIR_OK must be the beginning of the solo one.
 * With near_tie > 0 they may go apart where the solo's two best tokens are nearer than that; the
 * position is told. */
const char *outcome_compare(const struct outcome *outcome, const struct outcome *solo,
                            double near_tie, uint32_t *at_out);

#endif
