/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/constrain.h"

#include <math.h>
#include <string.h>

#include "common/mem.h"

/* The entry of an id; made if it is not there.  There is room: constrain_init counted. */
static struct constrain_entry *
entry_of(struct constrain *c, uint32_t id)
{
    uint32_t i = 0;

    while (i < c->count && c->adjusts[i].id != id) {
        i++;
    }
    if (i == c->count && c->count < c->max) {
        c->adjusts[c->count] = (struct sample_adjust){.id = id};
        c->entries[c->count++] = (struct constrain_entry){0};
    }
    return i < c->count ? &c->entries[i] : NULL;
}

static bool
has_penalties(const struct constrain *c)
{
    return c->frequency != 0.0f || c->presence != 0.0f;
}

/* Written so that NaN is refused. */
static enum status
check(const Kvasir__V1__Sampling *s, uint32_t vocab_size)
{
    if (!(fabsf(s->frequency_penalty) <= 2.0f && fabsf(s->presence_penalty) <= 2.0f)) {
        return ERR(ST_INVALID, "frequency_penalty %g, presence_penalty %g: -2 to 2",
                   (double)s->frequency_penalty, (double)s->presence_penalty);
    }
    if (s->n_logit_bias > CONSTRAIN_BIASES_MAX) {
        return ERR(ST_INVALID, "%zu logit biases: at most %d", s->n_logit_bias,
                   CONSTRAIN_BIASES_MAX);
    }
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        if (s->logit_bias[i]->id >= vocab_size || !(fabsf(s->logit_bias[i]->bias) <= 100.0f)) {
            return ERR(ST_INVALID, "logit bias %g of id %u: -100 to 100, and there are %u ids",
                       (double)s->logit_bias[i]->bias, s->logit_bias[i]->id, vocab_size);
        }
    }
    return ST_OK;
}

static uint32_t
count_ends(const struct constrain_limits *limits)
{
    uint32_t count = 0;

    for (uint32_t id = 0; id < limits->vocab_size; id++) {
        count += tokenizer_is_end(limits->tokenizer, id);
    }
    return count;
}

static enum status
make_entries(struct constrain *c, const Kvasir__V1__Sampling *s,
             const struct constrain_limits *limits)
{
    uint32_t said = s->max_tokens < limits->vocab_size ? s->max_tokens : limits->vocab_size;

    c->max = (uint32_t)s->n_logit_bias + (has_penalties(c) ? said : 0)
             + (c->min_tokens > 0 ? count_ends(limits) : 0);
    c->adjusts = mem_zalloc(c->max, sizeof(*c->adjusts));
    c->entries = mem_zalloc(c->max, sizeof(*c->entries));
    if (c->adjusts == NULL || c->entries == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %u adjustments", c->max);
    }
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        entry_of(c, s->logit_bias[i]->id)->bias += s->logit_bias[i]->bias;
    }
    for (uint32_t id = 0; c->min_tokens > 0 && id < limits->vocab_size; id++) {
        if (tokenizer_is_end(limits->tokenizer, id)) {
            entry_of(c, id)->is_end = true;
        }
    }
    return ST_OK;
}

static enum status
make_grammar(struct constrain *c, const char *schema, const struct constrain_limits *limits)
{
    if (schema == NULL) {
        return ST_OK;
    }
    if (limits->vocabulary == NULL) {
        return ERR(ST_INVALID, "json_schema: no vocabulary to hold to it");
    }
    TRY(grammar_compile(schema, strlen(schema), &c->grammar));
    TRY(grammar_matcher_new(c->grammar, limits->vocabulary, &c->matcher));
    c->grammar_words = grammar_mask_words(limits->vocabulary);
    c->allowed_words = ((size_t)limits->vocab_size + 31) / 32;
    if (c->allowed_words < c->grammar_words) { /* ids that the model does not have */
        c->grammar_words = c->allowed_words;
    }
    c->allowed = mem_zalloc(c->allowed_words, sizeof(*c->allowed));
    return c->allowed != NULL ? ST_OK : ERR(ST_NO_MEMORY, "no memory for a mask");
}

enum status
constrain_init(struct constrain *c, const Kvasir__V1__Sampling *sampling,
               const struct constrain_limits *limits)
{
    enum status st;

    *c = (struct constrain){
        .frequency = sampling->frequency_penalty,
        .presence = sampling->presence_penalty,
        .min_tokens = sampling->min_tokens,
    };
    TRY(check(sampling, limits->vocab_size));
    st = make_entries(c, sampling, limits);
    st = st != ST_OK ? st : make_grammar(c, sampling->json_schema, limits);
    if (st != ST_OK) {
        constrain_deinit(c);
    }
    return st;
}

void
constrain_deinit(struct constrain *c)
{
    mem_free(c->adjusts);
    mem_free(c->entries);
    mem_free(c->allowed);
    grammar_matcher_destroy(&c->matcher);
    grammar_destroy(&c->grammar);
    *c = (struct constrain){0};
}

size_t
constrain_words(const struct constrain *c)
{
    return c->max * (sizeof(struct sample_adjust) / sizeof(uint32_t)) + c->allowed_words;
}

/* Without a mask nothing is allowed: the draw fails, and with it the request. */
static void
fill_mask(struct constrain *c)
{
    const uint32_t *mask = grammar_mask(c->matcher);

    if (mask == NULL) {
        memset(c->allowed, 0, c->allowed_words * sizeof(*c->allowed));
    } else {
        memcpy(c->allowed, mask, c->grammar_words * sizeof(*c->allowed));
    }
}

void
constrain_fill(struct constrain *c, struct sample_params *params)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const struct constrain_entry *e = &c->entries[i];

        c->adjusts[i].delta =
            e->is_end && c->n_taken < c->min_tokens
                ? -INFINITY
                : e->bias - c->frequency * (float)e->count - (e->count > 0 ? c->presence : 0.0f);
    }
    params->adjusts = c->adjusts;
    params->n_adjusts = c->count;
    params->allowed = NULL;
    if (c->matcher != NULL) {
        fill_mask(c);
        params->allowed = c->allowed;
    }
}

/* A token that the grammar does not take can only be an end token before its time, for someone who
 * asked that ends be ignored: the text is not part of the JSON, and it stays where it is. */
void
constrain_take(struct constrain *c, uint32_t id)
{
    c->n_taken++;
    if (has_penalties(c)) {
        struct constrain_entry *entry = entry_of(c, id);

        if (entry != NULL) {
            entry->count++;
        }
    }
    if (c->matcher != NULL) {
        (void)grammar_accept(c->matcher, id);
    }
}
