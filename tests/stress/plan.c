/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stress/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/htab.h"

#define IDS_FIRST       8 /* smaller ids may be control tokens */
#define BLOCK_TOKENS    32
#define QUERY_TOKENS    40
#define EVICT_BLOCKS    32
#define DEADLINE_MS     400
#define LOGPROBS_MAX    5
#define PRIVATE_SEED    (1ull << 40) /* shared documents have smaller seeds */
#define TOP_K_MAX       40
#define TEMPERATURE_MAX 1.5f

struct dice {
    uint64_t state;
};

static uint64_t
roll(struct dice *dice)
{
    dice->state += 0x9e3779b97f4a7c15ull;
    return htab_mix(dice->state);
}

/* 0..below-1 */
static uint32_t
pick(struct dice *dice, uint32_t below)
{
    return (uint32_t)((roll(dice) >> 32) % below);
}

static bool
is_one_in(struct dice *dice, uint32_t n)
{
    return pick(dice, n) == 0;
}

static float
fraction(struct dice *dice)
{
    return (float)(roll(dice) >> 40) / (float)(1u << 24);
}

void
plan_fill_ids(const struct plan_config *config, uint64_t seed, uint32_t count, uint32_t *ids_out)
{
    struct dice dice = {htab_mix(seed)};

    for (uint32_t i = 0; i < count; i++) {
        ids_out[i] = IDS_FIRST + pick(&dice, config->vocab - IDS_FIRST);
    }
}

/* Often next to the edge of a block, where mistakes live. */
static uint32_t
pick_length(struct dice *dice, uint32_t most)
{
    uint32_t length = is_one_in(dice, 2)
                          ? BLOCK_TOKENS * pick(dice, most / BLOCK_TOKENS + 1) + pick(dice, 3) - 1
                          : pick(dice, most + 1);

    return length > most ? 0 : length; /* -1 wraps: an empty one */
}

static struct plan_doc
pick_shared(const struct plan_config *config, struct dice *dice)
{
    uint32_t a = pick(dice, config->documents);
    uint32_t b = pick(dice, config->documents);
    uint64_t seed = htab_mix(config->seed) + (a < b ? a : b); /* some more popular than others */
    struct dice own = {htab_mix(~seed)};

    return (struct plan_doc){
        .n_tokens = pick_length(&own, config->doc_tokens),
        .seed = seed % PRIVATE_SEED,
    };
}

static void
pick_documents(const struct plan_config *config, struct dice *dice, struct plan *plan)
{
    plan->doc_count = pick(dice, config->docs_max + 1);
    for (uint32_t i = 0; i < plan->doc_count; i++) {
        plan->docs[i] = is_one_in(dice, 5) ? (struct plan_doc){
            .n_tokens = pick_length(dice, config->doc_tokens),
            .seed = PRIVATE_SEED + (roll(dice) >> 1),
        } : pick_shared(config, dice);
        if (i > 0 && is_one_in(dice, 10)) {
            plan->docs[i] = plan->docs[i - 1]; /* the same one twice in a prompt */
        }
    }
}

static void
pick_stops(struct dice *dice, struct plan *plan)
{
    static const char *const wide[] = {"\xc3\xa9", "\xef\xbf\xbd", "\xe2\x82\xac", "\n"};
    size_t count = is_one_in(dice, 3) ? 1 + pick(dice, PLAN_STOPS_MAX) : 0;

    for (size_t i = 0; i < count; i++) {
        char *text = plan->stop_text[i];

        if (is_one_in(dice, 3)) {
            (void)snprintf(text, sizeof(plan->stop_text[i]), "%s", wide[pick(dice, 4)]);
        } else {
            text[0] = (char)('!' + pick(dice, 'z' - '!'));
            text[1] = is_one_in(dice, 2) ? (char)('!' + pick(dice, 'z' - '!')) : '\0';
            text[2] = '\0';
        }
        plan->stops[i] = text;
    }
    plan->sampling.stop = plan->stops;
    plan->sampling.stop_count = count;
}

static void
pick_sampling(const struct plan_config *config, struct dice *dice, struct plan *plan)
{
    struct kvasir_sampling *s = &plan->sampling;

    s->max_tokens = 1 + pick(dice, config->max_tokens);
    s->has_seed = true;
    s->seed = roll(dice);
    s->want_logprobs = config->is_greedy || is_one_in(dice, 3);
    s->top_logprobs = config->is_greedy ? 2 : pick(dice, LOGPROBS_MAX + 1);
    if (!config->is_greedy && !is_one_in(dice, 3)) {
        s->temperature = TEMPERATURE_MAX * fraction(dice);
        s->top_k = is_one_in(dice, 2) ? 1 + pick(dice, TOP_K_MAX) : 0;
        s->top_p = is_one_in(dice, 2) ? 0.5f + fraction(dice) / 2 : 0;
        s->min_p = is_one_in(dice, 3) ? fraction(dice) / 4 : 0;
        s->repetition_penalty = is_one_in(dice, 3) ? 1 + fraction(dice) / 2 : 0;
    }
    pick_stops(dice, plan);
}

static void
pick_fate(const struct plan_config *config, struct dice *dice, struct plan *plan)
{
    static const enum plan_fate fates[] = {
        PLAN_CANCELS, PLAN_HANGS_UP, PLAN_IS_CANCELLED, PLAN_IS_CANCELLED, PLAN_EXPIRES, PLAN_DIES,
    };

    if (config->is_calm || !is_one_in(dice, 3)) {
        return;
    }
    plan->fate = fates[pick(dice, sizeof(fates) / sizeof(fates[0]))];
    plan->fate_tokens = pick(dice, plan->sampling.max_tokens + 1);
    if (plan->fate == PLAN_EXPIRES) {
        plan->timeout_ms = 1 + pick(dice, DEADLINE_MS);
    }
}

void
plan_make(const struct plan_config *config, uint32_t round, uint32_t index, struct plan *plan_out)
{
    static const char *const queries[] = {
        "What is it?", "\xc2\xbfQu\xc3\xa9? \xf0\x9f\x99\x82 \xe4\xbd\xa0\xe5\xa5\xbd"};
    static const char *const salts[] = {NULL, NULL, "a", "b"};
    struct dice dice = {htab_mix(htab_mix(config->seed) + ((uint64_t)round << 32 | index))};

    *plan_out = (struct plan){
        .query_tokens = 1 + pick(&dice, QUERY_TOKENS),
        .query_seed = roll(&dice),
        .query = is_one_in(&dice, 8) ? queries[pick(&dice, 2)] : NULL,
        .salt = salts[pick(&dice, 4)],
        .ignore_end = is_one_in(&dice, 2),
        .priority = is_one_in(&dice, 2) ? 50 : pick(&dice, 101),
        .evict_blocks = pick(&dice, EVICT_BLOCKS),
    };
    pick_documents(config, &dice, plan_out);
    pick_sampling(config, &dice, plan_out);
    pick_fate(config, &dice, plan_out);
    if (!config->is_calm && is_one_in(&dice, 6)) {
        plan_out->chore = (enum plan_chore)(1 + pick(&dice, 3));
    }
}

void
plan_print(const struct plan *plan)
{
    const struct kvasir_sampling *s = &plan->sampling;

    printf("  max_tokens=%u temperature=%g top_k=%u top_p=%g min_p=%g penalty=%g seed=%" PRIu64
           " stops=%zu logprobs=%d/%u ignore_end=%d priority=%u timeout_ms=%u fate=%d/%u query=%u"
           " salt=%s docs=",
           s->max_tokens, (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p,
           (double)s->repetition_penalty, s->seed, s->stop_count, s->want_logprobs, s->top_logprobs,
           plan->ignore_end, plan->priority, plan->timeout_ms, (int)plan->fate, plan->fate_tokens,
           plan->query_tokens, plan->salt == NULL ? "-" : plan->salt);
    for (uint32_t i = 0; i < plan->doc_count; i++) {
        printf("%s%u:%" PRIu64, i == 0 ? "" : ",", plan->docs[i].n_tokens, plan->docs[i].seed);
    }
    for (size_t i = 0; i < s->stop_count; i++) {
        printf(" stop=\"%s\"", s->stop[i]);
    }
    printf("\n");
}
