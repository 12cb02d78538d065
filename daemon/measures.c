/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/measures.h"

#include <assert.h>

void
measures_init(struct measures *measures)
{
    *measures = (struct measures){0};
#define SET(name, set, help) measures->name.bounds = &(set);
    MEASURES(SET)
#undef SET
}

static double
seconds(uint64_t us)
{
    return (double)us / 1e6;
}

/* Tokens that come together share the time since those before. */
void
measures_sent(struct measures *m, struct call *call, size_t tokens, uint64_t now_us)
{
    uint64_t since_us = call->last_token_us;

    if (tokens == 0) {
        return;
    }
    call->last_token_us = now_us;
    if (since_us == 0) {
        histogram_add(&m->time_to_first_token_seconds, seconds(now_us - call->arrival_us));
        return;
    }
    for (size_t i = 0; i < tokens; i++) {
        histogram_add(&m->inter_token_latency_seconds, seconds(now_us - since_us) / (double)tokens);
    }
}

static void
count_finish(struct measures *m, const struct sched_action *action)
{
    enum measures_finish finish = MEASURES_ERROR;

    switch (action->end) {
    case SCHED_END_OK:
        finish = action->result != NULL && action->result->finish == SCHED_FINISH_LENGTH
                     ? MEASURES_LENGTH
                     : MEASURES_STOP;
        break;
    case SCHED_END_CANCELLED:
    case SCHED_END_DEADLINE: return;
    default: break;
    }
    m->finishes[finish]++;
}

void
measures_ended(struct measures *m, const struct sched_action *action)
{
    const struct session_usage *u = &action->usage;

    if (action->session == NULL || session_is_warm(action->session)) {
        return; /* refused at the door, or nothing was answered */
    }
    count_finish(m, action);
    if (action->end != SCHED_END_OK || u->completion_tokens == 0) {
        return;
    }
    histogram_add(&m->e2e_request_latency_seconds, seconds(u->total_us));
    histogram_add(&m->request_queue_time_seconds, seconds(u->queue_us));
    histogram_add(&m->request_prefill_time_seconds, seconds(u->ttft_us - u->queue_us));
    histogram_add(&m->request_decode_time_seconds, seconds(u->total_us - u->ttft_us));
    histogram_add(&m->request_inference_time_seconds, seconds(u->total_us - u->queue_us));
    histogram_add(&m->request_prompt_tokens, u->prompt_tokens);
    histogram_add(&m->request_generation_tokens, u->completion_tokens);
    histogram_add(&m->request_cached_tokens, u->tokens_reused);
}

void
measures_step(struct measures *m, uint32_t rows)
{
    if (rows > 0) {
        histogram_add(&m->iteration_tokens, rows);
    }
}

static void
fill(Kvasir__V1__Histogram *wire, const struct histogram *from, const char *name, const char *help)
{
    kvasir__v1__histogram__init(wire);
    wire->name = (char *)(uintptr_t)name; /* all of it is only packed */
    wire->help = (char *)(uintptr_t)help;
    wire->n_bounds = from->bounds->count;
    wire->bounds = (double *)(uintptr_t)from->bounds->values;
    wire->n_counts = from->bounds->count + 1;
    wire->counts = (uint64_t *)(uintptr_t)from->counts;
    wire->has_sum = true;
    wire->sum = from->sum;
}

static size_t
fill_ages(const struct kvpool_ages *ages, Kvasir__V1__Histogram *wire)
{
    fill(&wire[0], &ages->lifetime_s, "doc_lifetime_seconds",
         "from encoded to evicted, of documents that were evicted whole");
    fill(&wire[1], &ages->idle_s, "doc_idle_before_evict_seconds",
         "from their last use to evicted, of those");
    fill(&wire[2], &ages->reuse_gap_s, "doc_reuse_gap_seconds",
         "between two uses of a document that is resident");
    return 3;
}

size_t
measures_fill(const struct measures *m, const struct kvpool_ages *ages, struct measures_wire *wire,
              Kvasir__V1__Histogram **list)
{
    size_t count = 0;

#define FILL(name, set, help) fill(&wire->items[count++], &m->name, #name, help);
    MEASURES(FILL)
#undef FILL
    count += ages == NULL ? 0 : fill_ages(ages, &wire->items[count]);
    assert(count <= MEASURES_WIRE_MAX);
    for (size_t i = 0; i < count; i++) {
        list[i] = &wire->items[i];
    }
    return count;
}

const char *
measures_finish_name(enum measures_finish finish)
{
    static const char *const names[MEASURES_FINISHES] = {"stop", "length", "error"};

    return names[finish];
}
