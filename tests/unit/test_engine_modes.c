/* SPDX-License-Identifier: Apache-2.0 */
/* What the reuse modes ask of an engine: documents encoded behind others (full attention),
 * documents that are copied to their place, and prompts that bring their documents along. */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"
#include "tests/support/golden.h"
#include "tests/support/mode_rig.h"

/* golden_check.h says what the noise of a case is, and why a few times of it. */
#define NOISE_FACTOR  8.0
#define ANSWER_TOKENS 24

static double
golden_logprob(const struct golden_row *row, uint32_t id)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < row->n_logits; i++) {
        sum += exp((double)row->logits[i] - (double)row->logits[id]);
    }
    return -log(sum);
}

/* A prompt without documents is plain full attention of transformers.  Cut it anywhere: the modes
 * with full attention must say the same. */
static void
check_full_attention(struct rig *rig, const struct golden_case *c, enum mode mode)
{
    static const uint32_t cuts[][DOCS_MAX] = {{96}, {1, 31, 33}, {40, 0, 64, 100}, {32, 64, 32}};
    const struct golden_row *last = &c->rows[c->n_rows - 1];

    ck_assert_uint_eq(last->position, c->prompt.count - 1);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        struct cut cut = {.ids = c->prompt.ids, .count = c->prompt.count};
        uint32_t total = 0;

        for (; total + cuts[i][cut.n_docs] < c->prompt.count && cut.n_docs < 4; cut.n_docs++) {
            cut.lengths[cut.n_docs] = cuts[i][cut.n_docs];
            total += cuts[i][cut.n_docs];
        }
        run_mode(rig, &cut, mode, (struct rig_request){.max_tokens = 1, .wants_logprobs = true});
        ck_assert_uint_eq(rig->heard[1].ids[0], last->top.ids[0]);
        double want = golden_logprob(last, last->top.ids[0]);
        double off = fabs((double)rig->heard[1].logprobs[0] - want);

        /* Two logits' errors: the token's own and that of the sum. */
        ck_assert_msg(off <= 2 * NOISE_FACTOR * c->noise, "%s cut %zu: off by %g, noise %g",
                      c->name, i, off, c->noise);
    }
}

START_TEST(prefix_and_none_equal_a_plain_model_with_full_attention)
{
    const char *const names[] = {"tiny_gqa1", "tiny_gqa3", "tiny_gqa4", "tiny_gqa8"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct golden *golden = golden_load(names[i]);
        struct tiny_model_config tiny = golden_tiny_config(golden);
        struct rig_config config = modes_config();
        const char *const prompts[] = {"prompt_100", "prompt_300"};

        config.tiny = &tiny;
        struct rig *rig = rig_new(&config);

        for (size_t p = 0; p < 2; p++) {
            check_full_attention(rig, golden_find(golden, prompts[p]), MODE_PREFIX);
            check_full_attention(rig, golden_find(golden, prompts[p]), MODE_NONE);
        }
        rig_destroy(&rig);
        golden_destroy(&golden);
    }
}
END_TEST

/* The golden has documents that do not see each other: a copy in its place must say what the
 * document itself says there, token for token where transformers is sure. */
START_TEST(reencode_equals_lazy_and_transformers)
{
    const char *const names[] = {"tiny_gqa1", "tiny_gqa3", "tiny_gqa4", "tiny_gqa8"};
    const char *const cases[] = {"docs_around_a_block", "docs_one_empty", "docs_many",
                                 "docs_one_twice"};

    for (size_t i = 0; i < 16; i++) {
        struct golden *golden = golden_load(names[i / 4]);
        const struct golden_case *c = golden_find(golden, cases[i % 4]);
        struct tiny_model_config tiny = golden_tiny_config(golden);
        struct rig_config config = modes_config();
        struct cut cut = {.ids = c->prompt.ids, .count = c->prompt.count, .n_docs = c->docs.count};

        memcpy(cut.lengths, c->docs.ids, c->docs.count * sizeof(cut.lengths[0]));
        config.tiny = &tiny;
        struct rig *rig = rig_new(&config);

        for (enum mode mode = MODE_LAZY; mode <= MODE_REENCODE; mode++) {
            run_mode(rig, &cut, mode, (struct rig_request){.max_tokens = c->greedy.count});
            ck_assert_uint_eq(rig->heard[1].n_ids, c->greedy.count);
            ck_assert_mem_eq(rig->heard[1].ids, c->greedy.ids,
                             c->greedy.count * sizeof(c->greedy.ids[0]));
        }
        rig_destroy(&rig);
        golden_destroy(&golden);
    }
}
END_TEST

static uint32_t prompt_ids[300];

static struct cut
three_documents(void)
{
    uint32_t seed = 20261129;

    for (uint32_t i = 0; i < 300; i++) {
        seed = seed * 1664525u + 1013904223u;
        prompt_ids[i] = 3 + (seed >> 10) % 300;
    }
    return (struct cut){.ids = prompt_ids, .count = 150, .lengths = {70, 33, 32}, .n_docs = 3};
}

START_TEST(modes_differ_so_the_comparisons_can_fail)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();
    struct rig_request request = {.max_tokens = ANSWER_TOKENS};
    uint32_t lazy[ANSWER_TOKENS], prefix[ANSWER_TOKENS];

    run_mode(rig, &cut, MODE_LAZY, request);
    memcpy(lazy, rig->heard[1].ids, sizeof(lazy));
    run_mode(rig, &cut, MODE_PREFIX, request);
    memcpy(prefix, rig->heard[1].ids, sizeof(prefix));
    ck_assert_mem_ne(lazy, prefix, sizeof(lazy));
    rig_destroy(&rig);
}
END_TEST

/* Resident documents are read as they were built: warm equals cold, byte for byte. */
START_TEST(a_warm_prefix_and_a_warm_copy_answer_as_cold_ones)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();

    for (enum mode mode = MODE_REENCODE; mode <= MODE_PREFIX; mode++) {
        struct rig_doc docs[DOCS_MAX];
        struct rig_request request = {.id = 1,
                                      .docs = docs,
                                      .n_docs = 3,
                                      .query = cut.ids + 135,
                                      .n_query = 15,
                                      .max_tokens = ANSWER_TOKENS,
                                      .ignores_end = true};

        rig_restart(rig, &config);
        make_docs(rig, &cut, mode, docs);
        rig_assign(rig, &request);
        rig_run(rig);
        for (int d = 0; d < 3; d++) {
            docs[d].build = 0;
        }
        request.id = 2;
        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_uint_eq(rig->heard[2].n_ids, ANSWER_TOKENS);
        ck_assert_mem_eq(rig->heard[1].ids, rig->heard[2].ids, ANSWER_TOKENS * sizeof(uint32_t));
        free_docs(docs, 3);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_tail_behind_other_documents_or_by_copy_has_the_bytes_of_the_whole)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();

    for (enum mode mode = MODE_REENCODE; mode <= MODE_PREFIX; mode++) {
        uint32_t at = mode == MODE_PREFIX ? 1 : 0; /* a document of two blocks or more */
        struct rig_doc docs[DOCS_MAX];
        struct rig_request request = {.docs = docs, .n_docs = 3, .order = 1};

        rig_restart(rig, &config);
        make_docs(rig, &cut, mode, docs);
        rig_assign(rig, &request);
        rig_run(rig);
        float *whole = rig_kv(rig, docs[at].blocks, docs[at].n_ids);

        memset((char *)rig->kv + docs[at].blocks[1] * kv_layout_block_bytes(&rig->layout), 0x5a,
               kv_layout_block_bytes(&rig->layout));
        for (int d = 0; d < 3; d++) {
            docs[d].build = 0;
        }
        docs[at].build = 9;
        docs[at].start = 32;
        docs[at].place.source_build = 0;
        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_uint_eq(rig->builds[9].n_sealed, 1);
        float *again = rig_kv(rig, docs[at].blocks, docs[at].n_ids);

        ck_assert_mem_eq(whole, again, rig_kv_bytes(rig, docs[at].n_ids));
        mem_free(whole);
        mem_free(again);
        free_docs(docs, 3);
    }
    rig_destroy(&rig);
}
END_TEST

START_TEST(whoever_waits_for_a_dropped_build_goes_with_it)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();
    struct rig_doc docs[DOCS_MAX];
    struct rig_request request = {
        .id = 1, .docs = docs, .n_docs = 3, .query = cut.ids + 135, .n_query = 15, .max_tokens = 4};

    make_docs(rig, &cut, MODE_PREFIX, docs);
    rig_assign(rig, &request);
    rig_stop_build(rig, 1);
    rig_run(rig);
    for (int d = 1; d <= 3; d++) {
        ck_assert_uint_eq(rig->builds[d].n_dropped, 1);
        ck_assert_uint_eq(rig->builds[d].n_sealed, 0);
    }
    ck_assert_str_eq(rig->heard[1].error, "a document that it waits for was given up");
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    free_docs(docs, 3);
    rig_destroy(&rig);
}
END_TEST

/* A follow-up that finds its first blocks written by an earlier turn. */
START_TEST(own_tokens_that_are_cached_are_not_computed_and_change_nothing)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();
    uint32_t blocks[8] = {100, 101, 102, 103, 104, 105, 106, 107};
    struct rig_request request = {.id = 1,
                                  .query = cut.ids,
                                  .n_query = 150,
                                  .max_tokens = ANSWER_TOKENS,
                                  .own_ids = blocks,
                                  .own_blocks = 8,
                                  .ignores_end = true};

    rig_assign(rig, &request);
    rig_run(rig);
    uint32_t rows = rig->rows;

    request.id = 2;
    request.own_cached = 128;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_uint_eq(rig->rows - rows, rows - 128);
    ck_assert_uint_eq(rig->heard[2].n_ids, ANSWER_TOKENS);
    ck_assert_mem_eq(rig->heard[1].ids, rig->heard[2].ids, ANSWER_TOKENS * sizeof(uint32_t));
    request.id = 3;
    request.own_cached = 100;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_str_eq(rig->heard[3].error, "100 of 150 own tokens in 8 blocks are cached: whole "
                                          "blocks, and not all of the tokens");
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_background_build_waits_until_nothing_else_runs_or_somebody_needs_it)
{
    struct rig_config config = modes_config();
    struct rig *rig = rig_new(&config);
    struct cut cut = three_documents();
    struct rig_doc docs[DOCS_MAX];

    make_docs(rig, &cut, MODE_LAZY, docs);
    rig_assign(rig,
               &(struct rig_request){.docs = docs, .n_docs = 1, .order = 1, .is_background = true});
    rig_assign(
        rig, &(struct rig_request){
                 .id = 2, .query = cut.ids, .n_query = 30, .max_tokens = 10, .ignores_end = true});
    while (rig->heard[2].finish < 0) {
        ck_assert_uint_eq(rig->rows_built, 0);
        ck_assert(rig_step(rig));
    }
    rig_run(rig);
    ck_assert_uint_eq(rig->builds[1].n_sealed, 1);

    /* The third one is asked for behind it, by a request beside one that decodes. */
    rig_assign(rig, &(struct rig_request){
                        .docs = docs + 2, .n_docs = 1, .order = 3, .is_background = true});
    rig_assign(
        rig, &(struct rig_request){
                 .id = 4, .query = cut.ids, .n_query = 3, .max_tokens = 100, .ignores_end = true});
    docs[2].is_joined = true;
    rig_assign(rig, &(struct rig_request){.id = 5,
                                          .docs = docs + 2,
                                          .n_docs = 1,
                                          .query = cut.ids,
                                          .n_query = 3,
                                          .max_tokens = 2,
                                          .ignores_end = true});
    while (rig->heard[5].finish < 0) {
        ck_assert(rig_step(rig));
    }
    ck_assert_int_lt(rig->heard[4].finish, 0);
    rig_run(rig);
    free_docs(docs, 3);
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_modes", prefix_and_none_equal_a_plain_model_with_full_attention,
           reencode_equals_lazy_and_transformers, modes_differ_so_the_comparisons_can_fail,
           a_warm_prefix_and_a_warm_copy_answer_as_cold_ones,
           a_tail_behind_other_documents_or_by_copy_has_the_bytes_of_the_whole,
           whoever_waits_for_a_dropped_build_goes_with_it,
           own_tokens_that_are_cached_are_not_computed_and_change_nothing,
           a_background_build_waits_until_nothing_else_runs_or_somebody_needs_it)
