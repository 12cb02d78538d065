/* SPDX-License-Identifier: Apache-2.0 */
/* What sampling knows of the answer so far: adjustments and mask, by table and when resumed. */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/check_main.h"
#include "worker/constrain.h"

#define V   260 /* byte-level: ids are bytes; bos 256, eos 257 */
#define EOS 257

struct rig {
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    struct constrain_limits limits;
    Kvasir__V1__Sampling sampling;
    Kvasir__V1__LogitBias biases[2];
    Kvasir__V1__LogitBias *list[2];
    struct constrain constrain;
};

static void
rig_open(struct rig *rig)
{
    *rig = (struct rig){0};
    ck_assert_int_eq(tokenizer_new_bytes(V, &rig->tokenizer), ST_OK);
    ck_assert_int_eq(grammar_vocabulary_new(rig->tokenizer, &rig->vocabulary), ST_OK);
    rig->limits = (struct constrain_limits){
        .tokenizer = rig->tokenizer, .vocabulary = rig->vocabulary, .vocab_size = V + 40};
    kvasir__v1__sampling__init(&rig->sampling);
    rig->sampling.max_tokens = 100;
    for (int i = 0; i < 2; i++) {
        kvasir__v1__logit_bias__init(&rig->biases[i]);
        rig->list[i] = &rig->biases[i];
    }
    rig->sampling.logit_bias = rig->list;
}

static void
rig_close(struct rig *rig)
{
    constrain_deinit(&rig->constrain);
    grammar_vocabulary_destroy(&rig->vocabulary);
    tokenizer_destroy(&rig->tokenizer);
}

static void
init(struct rig *rig)
{
    constrain_deinit(&rig->constrain);
    ck_assert_msg(constrain_init(&rig->constrain, &rig->sampling, &rig->limits) == ST_OK, "%s",
                  status_detail());
}

/* What is added to an id's logit now. */
static float
delta(struct rig *rig, uint32_t id)
{
    struct sample_params params = {0};

    constrain_fill(&rig->constrain, &params);
    for (uint32_t i = 0; i < params.n_adjusts; i++) {
        if (params.adjusts[i].id == id) {
            return params.adjusts[i].delta;
        }
    }
    return 0;
}

static bool
is_allowed(struct rig *rig, uint32_t id)
{
    struct sample_params params = {0};

    constrain_fill(&rig->constrain, &params);
    return params.allowed == NULL || (params.allowed[id / 32] >> (id % 32) & 1) != 0;
}

START_TEST(nothing_asked_for_is_nothing_sent)
{
    struct rig rig;
    struct sample_params params = {0};

    rig_open(&rig);
    init(&rig);
    constrain_take(&rig.constrain, 5);
    constrain_fill(&rig.constrain, &params);
    ck_assert_uint_eq(params.n_adjusts, 0);
    ck_assert_ptr_null(params.allowed);
    ck_assert_uint_eq(constrain_words(&rig.constrain), 0);
    rig_close(&rig);
}
END_TEST

START_TEST(biases_stay_and_penalties_grow_with_the_answer)
{
    struct rig rig;

    rig_open(&rig);
    rig.sampling.n_logit_bias = 2;
    rig.biases[0].id = 7;
    rig.biases[0].bias = 5;
    rig.biases[1].id = 7; /* twice the same id: both count */
    rig.biases[1].bias = -1;
    rig.sampling.frequency_penalty = 0.5f;
    rig.sampling.presence_penalty = 0.25f;
    init(&rig);
    ck_assert_float_eq(delta(&rig, 7), 4);
    ck_assert_float_eq(delta(&rig, 8), 0);
    constrain_take(&rig.constrain, 7);
    constrain_take(&rig.constrain, 8);
    constrain_take(&rig.constrain, 8);
    ck_assert_float_eq(delta(&rig, 7), 4 - 0.5f - 0.25f);
    ck_assert_float_eq(delta(&rig, 8), -1.0f - 0.25f);
    rig_close(&rig);
}
END_TEST

START_TEST(an_answer_does_not_end_before_its_least_tokens)
{
    struct rig rig;

    rig_open(&rig);
    rig.sampling.min_tokens = 2;
    init(&rig);
    ck_assert(isinf(delta(&rig, EOS)));
    constrain_take(&rig.constrain, 1);
    ck_assert(isinf(delta(&rig, EOS)));
    constrain_take(&rig.constrain, 1);
    ck_assert_float_eq(delta(&rig, EOS), 0);
    rig_close(&rig);
}
END_TEST

START_TEST(a_schema_allows_what_may_come_and_nothing_beyond_the_vocabulary)
{
    struct rig rig;
    char schema[] = "{\"enum\":[\"ab\",\"ac\"]}";
    static const char text[] = "\"ac\"";

    rig_open(&rig);
    rig.sampling.json_schema = schema;
    init(&rig);
    ck_assert_uint_ge(constrain_words(&rig.constrain), (V + 40) / 32);
    ck_assert(is_allowed(&rig, '"') && !is_allowed(&rig, 'a') && !is_allowed(&rig, EOS));
    ck_assert(!is_allowed(&rig, V + 20));
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        ck_assert(is_allowed(&rig, (uint8_t)text[i]));
        constrain_take(&rig.constrain, (uint8_t)text[i]);
    }
    ck_assert(is_allowed(&rig, EOS) && !is_allowed(&rig, ' '));
    rig_close(&rig);
}
END_TEST

START_TEST(what_is_out_of_range_is_refused)
{
    struct rig rig;
    char schema[] = "{\"pattern\":\"x\"}";

    rig_open(&rig);
    rig.sampling.frequency_penalty = 2.5f;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig.sampling.frequency_penalty = NAN;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig.sampling.frequency_penalty = 0;
    rig.sampling.n_logit_bias = 1;
    rig.biases[0].id = V + 40;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig.biases[0].id = 1;
    rig.biases[0].bias = 101;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig.sampling.n_logit_bias = 0;
    rig.sampling.json_schema = schema;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig.limits.vocabulary = NULL;
    ck_assert_int_eq(constrain_init(&rig.constrain, &rig.sampling, &rig.limits), ST_INVALID);
    rig_close(&rig);
}
END_TEST

CHECK_MAIN("constrain", nothing_asked_for_is_nothing_sent,
           biases_stay_and_penalties_grow_with_the_answer,
           an_answer_does_not_end_before_its_least_tokens,
           a_schema_allows_what_may_come_and_nothing_beyond_the_vocabulary,
           what_is_out_of_range_is_refused)
