/* SPDX-License-Identifier: Apache-2.0 */
/* The four ways of reuse side by side on one daemon: what each finds, builds, copies and answers.
 */
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

/* 40 + 70 + 33 = 143 tokens; no offset is a whole block. */
static const struct asking_doc abc[] = {{40, 1}, {70, 2}, {33, 3}};
static const struct asking_doc acb[] = {{40, 1}, {33, 3}, {70, 2}};

static struct question
over(const struct asking_doc *docs, enum kvasir_reuse reuse)
{
    return (struct question){.docs = docs, .doc_count = 3, .query_seed = 7, .reuse = reuse};
}

static void
ask_over(struct host *host, const struct asking_doc *docs, enum kvasir_reuse reuse, uint32_t built,
         uint32_t copied, struct answer *answer_out)
{
    struct question question = over(docs, reuse);

    ask_ok(host, &question, answer_out);
    ck_assert_int_eq(answer_out->reuse, reuse);
    ck_assert_uint_eq(answer_out->prompt_tokens, 143 + 8);
    ck_assert_uint_eq(answer_out->tokens_built, built);
    ck_assert_uint_eq(answer_out->tokens_reused, reuse == KVASIR_REUSE_NONE ? 0 : 143 - built);
    ck_assert_uint_eq(answer_out->tokens_copied, copied);
}

START_TEST(prefix_and_none_answer_alike_and_prefix_reuses_only_what_comes_first)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer none, cold, warm, other;

    ask_over(host, abc, KVASIR_REUSE_NONE, 143, 0, &none);
    ck_assert_uint_eq(host_counter(host, "documents"), 0);
    ask_over(host, abc, KVASIR_REUSE_PREFIX, 143, 0, &cold);
    ask_over(host, abc, KVASIR_REUSE_PREFIX, 0, 0, &warm);
    answer_assert_same(&none, &cold);
    answer_assert_same(&cold, &warm);
    ask_over(host, acb, KVASIR_REUSE_PREFIX, 33 + 70, 0, &other); /* the first one alone is hit */
    ck_assert_uint_eq(other.docs_hit, 1);
    ask_over(host, acb, KVASIR_REUSE_NONE, 143, 0, &none);
    answer_assert_same(&none, &other);
    ck_assert_uint_eq(host_counter(host, "documents"), 5);
    ck_assert_uint_eq(host_counter(host, "requests_prefix"), 3);
    ck_assert_uint_eq(host_counter(host, "requests_none"), 2);
    ck_assert_uint_eq(host_counter(host, "tokens_reused_prefix"), 143 + 40);
    ck_assert_uint_eq(host_counter(host, "tokens_built_prefix"), 143 + 103);
    ck_assert_uint_eq(host_counter(host, "tokens_built_none"), 2 * 143);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    host_stop(&host);
}
END_TEST

START_TEST(a_prefix_whose_tail_went_is_built_from_there_behind_the_others)
{
    const char *const args[] = {"--eviction", "lru", NULL}; /* the first document goes first */
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct answer cold, again;

    ask_over(host, abc, KVASIR_REUSE_PREFIX, 143, 0, &cold);
    ck_assert_uint_eq(host_evict(host, 3), 3); /* the first document and a block of the second */
    ask_over(host, abc, KVASIR_REUSE_PREFIX, 40 + 70 - 64, 0, &again);
    answer_assert_same(&cold, &again);
    host_stop(&host);
}
END_TEST

START_TEST(reencode_copies_what_stands_elsewhere_and_answers_as_lazy_does)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer lazy, cold, warm, moved;

    ask_over(host, abc, KVASIR_REUSE_LAZY, 143, 0, &lazy);
    /* The documents are there; those behind the first one need a copy each. */
    ask_over(host, abc, KVASIR_REUSE_REENCODE, 0, 70 + 33, &cold);
    ck_assert_uint_eq(host_counter(host, "documents"), 5);
    ask_over(host, abc, KVASIR_REUSE_REENCODE, 0, 0, &warm);
    answer_assert_same(&lazy, &cold);
    answer_assert_same(&cold, &warm);
    /* Other offsets: other copies. */
    ask_over(host, acb, KVASIR_REUSE_LAZY, 0, 0, &lazy);
    ask_over(host, acb, KVASIR_REUSE_REENCODE, 0, 33 + 70, &moved);
    answer_assert_same(&lazy, &moved);
    ck_assert_uint_eq(host_counter(host, "documents"), 7);
    ck_assert_uint_eq(host_counter(host, "copies_made"), 4);
    ck_assert_uint_eq(host_counter(host, "tokens_copied"), 2 * 103);
    ck_assert_uint_eq(host_counter(host, "tokens_reused_reencode"), 3 * 143);
    host_stop(&host);
}
END_TEST

START_TEST(a_cold_reencode_builds_and_copies_in_one_go)
{
    struct host *host = host_start(&(struct host_options){
        .workers = 1,
        .daemon_args = (const char *const[]){"--reuse", "reencode", "--check-pool", NULL}});
    struct question by_default = over(abc, KVASIR_REUSE_DEFAULT);
    struct answer cold, lazy;

    ask_ok(host, &by_default, &cold);
    ck_assert_int_eq(cold.reuse, KVASIR_REUSE_REENCODE);
    ck_assert_uint_eq(cold.tokens_built, 143);
    ck_assert_uint_eq(cold.tokens_copied, 103);
    ask_over(host, abc, KVASIR_REUSE_LAZY, 0, 0, &lazy);
    answer_assert_same(&cold, &lazy);
    host_stop(&host);
}
END_TEST

START_TEST(independent_documents_change_the_model_so_the_comparison_can_fail)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer lazy, none;

    ask_over(host, abc, KVASIR_REUSE_LAZY, 143, 0, &lazy);
    ask_over(host, abc, KVASIR_REUSE_NONE, 143, 0, &none);
    ck_assert_mem_ne(lazy.ids, none.ids, lazy.id_count * sizeof(lazy.ids[0]));
    host_stop(&host);
}
END_TEST

/* Two workers, all modes at once over the same documents.  These are 27 blocks in all their forms,
 * and the pool has 24: some go also when the machine is so slow that nothing is at once. */
START_TEST(all_modes_at_once_in_a_small_pool_answer_as_if_alone)
{
    const char *const args[] = {"--check-pool", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 2, .kv_memory = "1536KiB", .daemon_args = args});
    struct answer alone[2][5], answer;
    struct asking *askings[24];

    for (int order = 0; order < 2; order++) {
        for (enum kvasir_reuse mode = KVASIR_REUSE_LAZY; mode <= KVASIR_REUSE_NONE; mode++) {
            struct question question = over(order == 0 ? abc : acb, mode);

            ask_ok(host, &question, &alone[order][mode]);
        }
    }
    for (int i = 0; i < 24; i++) {
        struct question question =
            over(i % 2 == 0 ? abc : acb, (enum kvasir_reuse)(KVASIR_REUSE_LAZY + i / 2 % 4));

        askings[i] = asking_start(host, &question);
    }
    for (int i = 0; i < 24; i++) {
        asking_end(&askings[i], &answer);
        ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
        answer_assert_same(&alone[i % 2][KVASIR_REUSE_LAZY + i / 2 % 4], &answer);
    }
    ck_assert_uint_gt(host_counter(host, "blocks_evicted"), 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("reuse_modes", prefix_and_none_answer_alike_and_prefix_reuses_only_what_comes_first,
           a_prefix_whose_tail_went_is_built_from_there_behind_the_others,
           reencode_copies_what_stands_elsewhere_and_answers_as_lazy_does,
           a_cold_reencode_builds_and_copies_in_one_go,
           independent_documents_change_the_model_so_the_comparison_can_fail,
           all_modes_at_once_in_a_small_pool_answer_as_if_alone)
