/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/abc_request.h"

#include <string.h>

#include <check.h>

#include "common/mem.h"

uint32_t doc_a[37], doc_b[16], doc_c[61], doc_d[1], doc_e[48];
uint32_t query[11];

void
fill_ids(uint32_t *ids, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = 3 + (seed >> 10) % 500; /* not the control tokens */
    }
}

void
fill_all(void)
{
    fill_ids(doc_a, 37, 1);
    fill_ids(doc_b, 16, 2);
    fill_ids(doc_c, 61, 3);
    fill_ids(doc_d, 1, 4);
    fill_ids(doc_e, 48, 5);
    fill_ids(query, 11, 6);
}

struct abc
abc_new(struct rig *rig)
{
    return (struct abc){.docs = {
                            {doc_a, 37, rig_blocks(rig, 37), 1, false, 0, {0}},
                            {doc_b, 16, rig_blocks(rig, 16), 2, false, 0, {0}},
                            {doc_c, 61, rig_blocks(rig, 61), 3, false, 0, {0}},
                        }};
}

void
abc_free(struct abc *abc)
{
    for (size_t i = 0; i < 3; i++) {
        MEM_FREE(abc->docs[i].blocks);
    }
}

struct rig_request
abc_request(const struct abc *abc, uint64_t id)
{
    return (struct rig_request){.id = id,
                                .docs = abc->docs,
                                .n_docs = 3,
                                .query = query,
                                .n_query = 11,
                                .max_tokens = ANSWER_TOKENS,
                                .ignores_end = true,
                                .temperature = 0.8f,
                                .repetition_penalty = 1.1f,
                                .seed = 7};
}

void
check_same_answer(const struct rig_heard *a, const struct rig_heard *b)
{
    ck_assert_str_eq(a->error, "");
    ck_assert_str_eq(b->error, "");
    ck_assert_uint_eq(a->n_ids, b->n_ids);
    ck_assert_mem_eq(a->ids, b->ids, a->n_ids * sizeof(a->ids[0]));
    ck_assert_uint_eq(a->n_text, b->n_text);
    ck_assert_mem_eq(a->text, b->text, a->n_text);
    ck_assert_int_eq(a->finish, b->finish);
}

void
run_alone(struct rig *rig, struct rig_heard *heard_out)
{
    struct rig_config config = rig_defaults();

    config.step_tokens = 512;
    rig_restart(rig, &config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    rig_run(rig);
    *heard_out = rig->heard[1];
    ck_assert_int_eq(heard_out->finish, KVASIR__V1__FINISH_REASON__FINISH_LENGTH);
    ck_assert_uint_eq(heard_out->n_ids, ANSWER_TOKENS);
    abc_free(&abc);
}
