/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "model/checkpoint.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"
#include "worker/load_weights.h"
#include "worker/weights_record.h"

static float *
make_dummy(uint64_t seed, struct model_config *config, struct weights_plan *plan)
{
    struct checkpoint *checkpoint = NULL;
    char path[64];

    (void)snprintf(path, sizeof(path), "dummy:tiny:%llu", (unsigned long long)seed);
    ck_assert_int_eq(checkpoint_open(path, &checkpoint), ST_OK);
    *config = *checkpoint_config(checkpoint);
    ck_assert_int_eq(weights_plan(config, WEIGHT_F32, plan), ST_OK);
    float *memory = calloc(1, plan->bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert_int_eq(load_weights(&device_cpu, checkpoint, plan, memory, NULL, NULL), ST_OK);
    checkpoint_close(&checkpoint);
    return memory;
}

static const float *
weight(const float *memory, const struct weights_plan *plan, enum weight kind, uint32_t layer)
{
    return memory + weights_offset(plan, kind, layer) / sizeof(float);
}

START_TEST(norms_of_a_dummy_are_1_and_every_matrix_is_random_in_its_own_way)
{
    static const enum weight matrices[] = {WEIGHT_EMBED, WEIGHT_QKV, WEIGHT_ATTN_OUT,
                                           WEIGHT_GATE_UP, WEIGHT_DOWN};
    struct model_config config;
    struct weights_plan plan;
    float *memory = make_dummy(3, &config, &plan);
    float first[16];
    size_t n = 0;

    for (uint32_t layer = 0; layer < config.L; layer++) {
        for (uint32_t i = 0; i < config.C; i++) {
            ck_assert_float_eq(weight(memory, &plan, WEIGHT_ATTN_NORM, layer)[i], 1);
            ck_assert_float_eq(weight(memory, &plan, WEIGHT_FFN_NORM, layer)[i], 1);
            ck_assert_float_eq(weight(memory, &plan, WEIGHT_OUT_NORM, 0)[i], 1);
        }
        for (size_t m = layer == 0 ? 0 : 1; m < 5; m++) {
            const float *values = weight(memory, &plan, matrices[m], layer);
            uint64_t count = weights_elements(&config, matrices[m]);
            double squares = 0;

            for (uint64_t i = 0; i < count; i++) {
                squares += (double)values[i] * (double)values[i];
            }
            ck_assert_double_eq_tol(sqrt(squares / (double)count), 0.01804, 0.0005);
            for (size_t other = 0; other < n; other++) {
                ck_assert(first[other] != values[0] || first[other] != values[1]);
            }
            first[n++] = values[0];
        }
    }
    ck_assert_uint_eq(plan.base[WEIGHT_OUTPUT], plan.base[WEIGHT_EMBED]);
    free(memory);
}
END_TEST

START_TEST(the_seed_is_the_model)
{
    struct model_config config;
    struct weights_plan plan;
    float *a = make_dummy(3, &config, &plan);
    float *b = make_dummy(3, &config, &plan);
    float *c = make_dummy(4, &config, &plan);

    ck_assert_mem_eq(a, b, plan.bytes);
    ck_assert_mem_ne(a, c, plan.bytes);
    free(a);
    free(b);
    free(c);
}
END_TEST

START_TEST(a_dummy_answers_text_through_its_byte_tokenizer)
{
    struct rig_config config = rig_defaults();
    const uint32_t query[] = {256, 'h', 'e', 'l', 'l', 'o'};

    config.model_path = "dummy:tiny";
    struct rig *rig = rig_new(&config);
    rig_assign(rig,
               &(struct rig_request){
                   .id = 1, .query = query, .n_query = 6, .max_tokens = 20, .ignores_end = true});
    rig_run(rig);
    ck_assert_str_eq(rig->heard[1].error, "");
    ck_assert_uint_eq(rig->heard[1].n_ids, 20);
    rig_destroy(&rig);
}
END_TEST

/* A worker of another version may order the same weights in another way. */
START_TEST(weights_in_another_order_are_not_mapped)
{
    struct device_kind plain = device_cpu;
    struct model_config config;
    struct weights_plan plan;
    float *memory = make_dummy(3, &config, &plan);
    uint8_t fingerprint[32] = {7};
    struct weights_tuning tuning = {0};
    uint8_t *arena = calloc(1, weights_record_arena_bytes(&plan));

    plain.pack_weight = NULL;
    ck_assert_int_eq(weights_record_write(&device_cpu, &plan, fingerprint, &tuning, arena), ST_OK);
    ck_assert_int_eq(weights_record_check(&device_cpu, &plan, fingerprint, arena, &tuning), ST_OK);
    ck_assert_int_eq(weights_record_check(&plain, &plan, fingerprint, arena, &tuning), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "the weights arena holds weights that another version laid out");
    free(arena);
    free(memory);
}
END_TEST

START_TEST(what_was_measured_lies_behind_the_weights_and_is_refused_when_damaged)
{
    struct model_config config;
    struct weights_plan plan;
    float *memory = make_dummy(3, &config, &plan);
    uint8_t fingerprint[32] = {7};
    struct weights_tuning measured = {.n_bytes = OPS_TUNING_MAX};
    struct weights_tuning found = {0};
    uint8_t *arena = calloc(1, weights_record_arena_bytes(&plan));

    for (size_t i = 0; i < OPS_TUNING_MAX; i++) {
        measured.bytes[i] = (uint8_t)(i * 37 % 251);
    }
    ck_assert_int_eq(weights_record_write(&device_cpu, &plan, fingerprint, &measured, arena),
                     ST_OK);
    ck_assert_int_eq(weights_record_check(&device_cpu, &plan, fingerprint, arena, &found), ST_OK);
    ck_assert_mem_eq(&found, &measured, sizeof(found));
    arena[weights_record_arena_bytes(&plan) - 1] ^= 1;
    ck_assert_int_eq(weights_record_check(&device_cpu, &plan, fingerprint, arena, &found),
                     ST_INVALID);
    ck_assert_str_eq(status_detail(), "the weights arena holds a record that is damaged");
    free(arena);
    free(memory);
}
END_TEST

START_TEST(weights_of_another_type_are_not_mapped)
{
    struct model_config config;
    struct weights_plan plan, kept;
    struct weights_tuning tuning = {0};
    uint8_t fingerprint[32] = {7};

    free(make_dummy(3, &config, &plan));
    kept = plan;
    kept.type[WEIGHT_DOWN] = WEIGHT_Q8_0;
    uint8_t *arena = calloc(1, weights_record_arena_bytes(&plan));
    ck_assert_int_eq(weights_record_write(&device_cpu, &plan, fingerprint, &tuning, arena), ST_OK);
    ck_assert_int_eq(weights_record_check(&device_cpu, &kept, fingerprint, arena, &tuning),
                     ST_INVALID);
    free(arena);
}
END_TEST

START_TEST(quantised_weights_kept_and_turned_to_floats_draw_the_same_tokens)
{
    static const enum gguf_tensor_type types[] = {GGUF_TENSOR_Q8_0, GGUF_TENSOR_Q4_0,
                                                  GGUF_TENSOR_Q4_1};
    const uint32_t query[] = {256, 'h', 'e', 'l', 'l', 'o'};
    struct device_kind plain = device_cpu;

    plain.keeps_quantised = false;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct rig_config config = rig_defaults();
        struct tiny_model_config tiny = tiny_model_defaults();
        struct rig *rigs[2];

        tiny.type = types[i];
        config.tiny = &tiny;
        for (int k = 0; k < 2; k++) {
            config.kind = k == 0 ? &device_cpu : &plain;
            rigs[k] = rig_new(&config);
            rig_assign(rigs[k], &(struct rig_request){.id = 1,
                                                      .query = query,
                                                      .n_query = 6,
                                                      .max_tokens = 40,
                                                      .temperature = 1,
                                                      .seed = 9,
                                                      .ignores_end = true});
            rig_run(rigs[k]);
            ck_assert_uint_eq(rigs[k]->heard[1].n_ids, 40);
        }
        ck_assert_uint_lt(3 * rigs[0]->plan.bytes, rigs[1]->plan.bytes);
        ck_assert_mem_eq(rigs[0]->heard[1].ids, rigs[1]->heard[1].ids, 40 * sizeof(uint32_t));
        rig_destroy(&rigs[0]);
        rig_destroy(&rigs[1]);
    }
}
END_TEST

CHECK_MAIN("load_weights", norms_of_a_dummy_are_1_and_every_matrix_is_random_in_its_own_way,
           the_seed_is_the_model, weights_in_another_order_are_not_mapped,
           what_was_measured_lies_behind_the_weights_and_is_refused_when_damaged,
           weights_of_another_type_are_not_mapped,
           quantised_weights_kept_and_turned_to_floats_draw_the_same_tokens,
           a_dummy_answers_text_through_its_byte_tokenizer)
