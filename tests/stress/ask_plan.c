/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stress/ask_plan.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

struct asking {
    const struct plan *plan;
    struct outcome *outcome;
    ask_plan_fn on_chunk;
    void *opaque;
};

static void
take_logprobs(struct outcome *outcome, const struct kvasir_chunk *chunk, uint32_t first)
{
    for (size_t i = 0; i < chunk->logprob_count; i++) {
        const struct kvasir_logprob *from = &chunk->logprobs[i];

        if (from->token_id != outcome->ids[first + i]) {
            outcome->fault = "a log probability of another token";
        }
        outcome->logprobs[first + i] = from->logprob;
        outcome->gaps[first + i] =
            from->top_count >= 2 ? from->top_logprobs[0] - from->top_logprobs[1] : 0;
    }
    outcome->logprob_count += (uint32_t)chunk->logprob_count;
}

static bool
take_chunk(void *opaque, const struct kvasir_chunk *chunk)
{
    struct asking *asking = opaque;
    struct outcome *outcome = asking->outcome;
    uint32_t first = outcome->id_count;

    if (first + chunk->token_count > asking->plan->sampling.max_tokens) {
        outcome->fault = "more tokens than asked for";
        return false;
    }
    if (outcome->text_length + chunk->text_bytes > sizeof(outcome->text)) {
        outcome->fault = "more text than there is room for";
        return false;
    }
    for (size_t i = 0; i < chunk->token_count; i++) {
        outcome->ids[outcome->id_count++] = chunk->token_ids[i];
    }
    if (chunk->logprob_count != (asking->plan->sampling.want_logprobs ? chunk->token_count : 0)) {
        outcome->fault = "not one log probability a token";
        return false;
    }
    take_logprobs(outcome, chunk, first);
    if (chunk->text_bytes > 0) {
        memcpy(outcome->text + outcome->text_length, chunk->text, chunk->text_bytes);
        outcome->text_length += chunk->text_bytes;
    }
    return asking->on_chunk == NULL || asking->on_chunk(asking->opaque, outcome->id_count);
}

static bool
contains(const struct outcome *outcome, const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i + length <= outcome->text_length; i++) {
        if (memcmp(outcome->text + i, text, length) == 0) {
            return true;
        }
    }
    return false;
}

/* What must hold of every answer. */
static void
check_outcome(const struct plan *plan, const struct kvasir_usage *usage, struct outcome *outcome)
{
    const struct kvasir_sampling *s = &plan->sampling;

    if (outcome->fault != NULL) {
        return;
    }
    if (utf8_check(outcome->text, outcome->text_length) != outcome->text_length) {
        outcome->fault = "text that is not UTF-8";
    }
    for (size_t i = 0; i < s->stop_count; i++) {
        if (contains(outcome, s->stop[i])) {
            outcome->fault = "text with a stop string";
        }
    }
    if (outcome->code != KVASIR_OK) {
        return;
    }
    if (usage->completion_tokens != outcome->id_count) {
        outcome->fault = "usage counts other tokens than came";
    } else if (usage->finish == KVASIR_FINISH_LENGTH) {
        outcome->fault = outcome->id_count == s->max_tokens ? NULL : "length, but not max_tokens";
    } else if (usage->finish != KVASIR_FINISH_STOP) {
        outcome->fault = "an end without a reason";
    } else if (plan->ignore_end && s->stop_count == 0) {
        outcome->fault = "stopped, with nothing to stop at";
    }
}

static void
ask_with(struct kvasir *client, const struct plan *plan, struct kvasir_request *request,
         struct outcome *outcome)
{
    struct kvasir_usage usage = {0};

    request->sampling = plan->sampling;
    request->salt = plan->salt;
    request->salt_bytes = plan->salt == NULL ? 0 : strlen(plan->salt);
    request->ignore_end = plan->ignore_end;
    outcome->code = kvasir_generate(client, request, &usage);
    outcome->finish = usage.finish;
    outcome->preemptions = usage.preemptions;
    (void)snprintf(outcome->message, sizeof(outcome->message), "%s", kvasir_error(client));
    check_outcome(plan, &usage, outcome);
}

void
ask_plan(struct kvasir *client, const struct plan_config *config, const struct plan *plan,
         bool is_solo, ask_plan_fn on_chunk, void *opaque, struct outcome *outcome_out)
{
    struct kvasir_document documents[PLAN_DOCS_MAX] = {0};
    struct asking asking = {plan, outcome_out, on_chunk, opaque};
    uint32_t *ids = mem_zalloc(plan->doc_count + 1, config->doc_tokens * sizeof(*ids));
    uint32_t *query = mem_zalloc(plan->query_tokens, sizeof(*query));
    struct kvasir_request request = {
        .documents = documents,
        .document_count = plan->doc_count,
        .has_priority = !is_solo,
        .priority = plan->priority,
        .timeout_ms = is_solo ? 0 : plan->timeout_ms,
        .on_chunk = take_chunk,
        .opaque = &asking,
    };

    *outcome_out = (struct outcome){.code = KVASIR_RESOURCE_EXHAUSTED, .fault = "no memory"};
    if (ids != NULL && query != NULL) {
        outcome_out->fault = NULL;
        for (uint32_t i = 0; i < plan->doc_count; i++) {
            documents[i].token_ids = ids + (size_t)i * config->doc_tokens;
            documents[i].token_count = plan->docs[i].n_tokens;
            plan_fill_ids(config, plan->docs[i].seed, plan->docs[i].n_tokens,
                          ids + (size_t)i * config->doc_tokens);
        }
        plan_fill_ids(config, plan->query_seed, plan->query_tokens, query);
        request.query = plan->query;
        request.query_ids = plan->query == NULL ? query : NULL;
        request.query_id_count = plan->query == NULL ? plan->query_tokens : 0;
        ask_with(client, plan, &request, outcome_out);
    }
    mem_free(ids);
    mem_free(query);
}

static uint32_t
first_difference(const struct outcome *a, const struct outcome *b)
{
    uint32_t at = 0;

    while (at < a->id_count && at < b->id_count && a->ids[at] == b->ids[at]) {
        at++;
    }
    return at;
}

/* All that the outcome has is the beginning of what the solo has. */
static const char *
compare_exactly(const struct outcome *outcome, const struct outcome *solo, uint32_t at)
{
    if (at < outcome->id_count) {
        return "other tokens than alone";
    }
    if (outcome->text_length > solo->text_length
        || memcmp(outcome->text, solo->text, outcome->text_length) != 0) {
        return "other text than alone";
    }
    if (memcmp(outcome->logprobs, solo->logprobs,
               outcome->logprob_count * sizeof(solo->logprobs[0]))
        != 0) {
        return "other log probabilities than alone";
    }
    if (outcome->code != KVASIR_OK) {
        return NULL;
    }
    if (outcome->id_count != solo->id_count || outcome->text_length != solo->text_length) {
        return "less than alone";
    }
    return outcome->finish == solo->finish ? NULL : "another end than alone";
}

const char *
outcome_compare(const struct outcome *outcome, const struct outcome *solo, double near_tie,
                uint32_t *at_out)
{
    uint32_t at = first_difference(outcome, solo);

    *at_out = at;
    if (near_tie <= 0) {
        return compare_exactly(outcome, solo, at);
    }
    if (at < outcome->id_count && at < solo->id_count) {
        return (double)solo->gaps[at] < near_tie ? NULL
                                                 : "other tokens than alone, and no near-tie";
    }
    return outcome->code != KVASIR_OK || outcome->id_count == solo->id_count
               ? NULL
               : "another length than alone";
}
