/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/yardsticks.h"

#include <stdlib.h>
#include <string.h>

#include "kvpool/evict_heap.h"

struct evict_policy {
    struct evict_heap heap;
    double *value;           /* [doc_count] count, or true popularity */
    struct evict_doc **here; /* [doc_count] */
    double uses;
    uint32_t now;
    size_t next_event;
    bool is_oracle;
    double quadratic_tokens;
};

static const struct workload *followed;

void
yardsticks_follow(const struct workload *workload)
{
    followed = workload;
}

static void
destroy(struct evict_policy **policy)
{
    evict_heap_deinit(&(*policy)->heap);
    free((*policy)->value);
    free((*policy)->here);
    free(*policy);
    *policy = NULL;
}

static enum status
create(const struct evict_config *config, struct evict_policy **policy_out)
{
    struct evict_policy *policy = calloc(1, sizeof(*policy));
    uint32_t docs = followed->trace.doc_count;

    if (policy == NULL || evict_heap_init(&policy->heap, config->block_count) != ST_OK) {
        abort();
    }
    policy->value = calloc(docs, sizeof(policy->value[0]));
    policy->here = calloc(docs, sizeof(struct evict_doc *));
    policy->quadratic_tokens = config->quadratic_tokens;
    if (policy->value == NULL || policy->here == NULL) {
        abort();
    }
    *policy_out = policy;
    return ST_OK;
}

static enum status
oracle_create(const struct evict_config *config, struct evict_policy **policy_out)
{
    enum status st = create(config, policy_out);

    (*policy_out)->is_oracle = true;
    for (uint32_t i = 0; i < followed->trace.doc_count; i++) {
        (*policy_out)->value[i] = (double)followed->popularity[i];
    }
    return st;
}

static uint32_t
number_of(const struct evict_doc *doc)
{
    uint32_t number;

    memcpy(&number, doc->key.bytes + 8, sizeof(number));
    return number;
}

static double
score(const struct evict_policy *policy, const struct evict_doc *doc)
{
    double n = doc->n_tokens, cost = n + n * n / (2 * policy->quadratic_tokens);
    double value = policy->value[number_of(doc)];

    return policy->is_oracle ? value * cost / doc->n_blocks : value;
}

static void
tick(struct evict_policy *policy)
{
    (void)policy;
}

static void
oracle_tick(struct evict_policy *policy)
{
    while (policy->next_event < followed->event_count
           && followed->events[policy->next_event].request <= policy->now) {
        const struct workload_event *event = &followed->events[policy->next_event++];
        struct evict_doc *doc = policy->here[event->doc];

        policy->value[event->doc] = (double)event->popularity;
        if (doc != NULL && doc->place != 0) {
            evict_heap_rescore(&policy->heap, doc->place - 1, score(policy, doc));
        }
    }
    policy->now++;
}

static void
used(struct evict_policy *policy, struct evict_doc *doc)
{
    double *value = &policy->value[number_of(doc)];

    if (!policy->is_oracle) {
        *value = (double)(uint64_t)*value + 1 + (policy->uses += 1e-9); /* the count and a tie */
    }
}

static void
admitted(struct evict_policy *policy, struct evict_doc *doc)
{
    policy->here[number_of(doc)] = doc;
}

static void
evictable(struct evict_policy *policy, struct evict_doc *doc)
{
    if (doc->is_evictable) {
        evict_heap_push(&policy->heap, doc, score(policy, doc));
    } else {
        evict_heap_remove(&policy->heap, doc);
    }
}

static void
awaited(struct evict_policy *policy, struct evict_doc *doc)
{
    (void)policy;
    (void)doc;
}

static void
forgotten(struct evict_policy *policy, struct evict_doc *doc, enum evict_end end)
{
    (void)end;
    evict_heap_remove(&policy->heap, doc);
    policy->here[number_of(doc)] = NULL;
}

static struct evict_doc *
victim(struct evict_policy *policy)
{
    return policy->heap.count == 0 ? NULL : policy->heap.entries[0].doc;
}

#define YARDSTICK(variable, text, create_fn, tick_fn)                                              \
    const struct evict_policy_ops variable = {                                                     \
        .name = text,                                                                              \
        .create = create_fn,                                                                       \
        .destroy = destroy,                                                                        \
        .tick = tick_fn,                                                                           \
        .used = used,                                                                              \
        .admitted = admitted,                                                                      \
        .evictable = evictable,                                                                    \
        .awaited = awaited,                                                                        \
        .forgotten = forgotten,                                                                    \
        .victim = victim,                                                                          \
    }

YARDSTICK(evict_lfu_history, "lfu-history", create, tick);
YARDSTICK(evict_oracle, "oracle", oracle_create, oracle_tick);
