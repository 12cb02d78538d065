/* SPDX-License-Identifier: Apache-2.0 */
/* One position-free copy of each document serves every order of them, and changes no byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define DOCS          5
#define ORDERS        120
#define ANSWER_TOKENS 12

/* Lengths around the edges of a block of 32 tokens. */
static const struct asking_doc documents[DOCS] = {{40, 1}, {1, 2}, {32, 3}, {33, 4}, {71, 5}};
static const uint32_t document_tokens = 40 + 1 + 32 + 33 + 71;
static const uint32_t document_blocks = 2 + 1 + 1 + 2 + 3;

/* The `index`-th order, by the factorial number system. */
static void
make_order(uint32_t index, struct asking_doc docs_out[DOCS])
{
    struct asking_doc left[DOCS];

    memcpy(left, documents, sizeof(left));
    for (uint32_t count = DOCS; count > 0; count--) {
        uint32_t pick = index % count;
        index /= count;
        *docs_out++ = left[pick];
        memmove(&left[pick], &left[pick + 1], (count - pick - 1) * sizeof(left[0]));
    }
}

static void
ask_in_order(struct host *host, uint32_t index, const char *salt, struct answer *answer_out)
{
    struct asking_doc docs[DOCS];
    struct question question = {.docs = docs,
                                .doc_count = DOCS,
                                .query_seed = 7,
                                .max_tokens = ANSWER_TOKENS,
                                .salt = salt};

    make_order(index, docs);
    ask_ok(host, &question, answer_out);
    ck_assert_uint_eq(answer_out->prompt_tokens, document_tokens + 8);
}

START_TEST(all_orders_of_five_documents_share_one_copy_and_answer_as_if_cold)
{
    struct host *host = host_start(&(struct host_options){.workers = 1, .kv_memory = "128MiB"});
    struct answer *hot = calloc(ORDERS, sizeof(*hot));
    struct answer cold;

    ck_assert_ptr_nonnull(hot);
    ask_in_order(host, 0, NULL, &cold);
    ck_assert_uint_eq(cold.tokens_built, document_tokens);
    ck_assert_uint_eq(cold.tokens_reused, 0);
    for (uint32_t i = 0; i < ORDERS; i++) {
        ask_in_order(host, i, NULL, &hot[i]);
        ck_assert_uint_eq(hot[i].docs_hit, DOCS);
        ck_assert_uint_eq(hot[i].tokens_reused, document_tokens);
        ck_assert_uint_eq(hot[i].tokens_built, 0);
    }
    answer_assert_same(&cold, &hot[0]);
    ck_assert_uint_eq(host_counter(host, "documents"), DOCS);
    ck_assert_uint_eq(host_counter(host, "blocks_docs"), document_blocks);
    ck_assert_uint_eq(host_counter(host, "builds_sealed"), DOCS);

    /* A salt of its own finds nothing cached: the same order, cold. */
    for (uint32_t i = 0; i < ORDERS; i++) {
        char salt[16];
        (void)snprintf(salt, sizeof(salt), "cold-%u", i);
        ask_in_order(host, i, salt, &cold);
        ck_assert_uint_eq(cold.docs_hit, 0);
        ck_assert_uint_eq(cold.tokens_built, document_tokens);
        answer_assert_same(&cold, &hot[i]);
    }
    free(hot);
    host_stop(&host);
}
END_TEST

START_TEST(orders_matter_to_the_model_so_the_comparison_can_fail)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    struct answer first, other;
    bool differs = false;

    ask_in_order(host, 0, NULL, &first);
    for (uint32_t i = 1; i < ORDERS && !differs; i++) {
        ask_in_order(host, i, NULL, &other);
        differs = memcmp(first.ids, other.ids, sizeof(first.ids)) != 0;
    }
    ck_assert(differs);
    host_stop(&host);
}
END_TEST

START_TEST(a_document_twice_in_one_prompt_is_built_once)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    const struct asking_doc docs[] = {{50, 1}, {20, 2}, {50, 1}};
    struct question question = {.docs = docs, .doc_count = 3};
    struct answer cold, hot;

    ask_ok(host, &question, &cold);
    ck_assert_uint_eq(cold.tokens_built, 70);
    ck_assert_uint_eq(host_counter(host, "documents"), 2);
    ask_ok(host, &question, &hot);
    ck_assert_uint_eq(hot.docs_hit, 3);
    answer_assert_same(&cold, &hot);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("one_copy", all_orders_of_five_documents_share_one_copy_and_answer_as_if_cold,
           orders_matter_to_the_model_so_the_comparison_can_fail,
           a_document_twice_in_one_prompt_is_built_once)
