/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of what is sealed, checks, comparisons, erasure; the rig poisons fresh blocks. */
#include <string.h>

#include "common/mem.h"
#include "kernels/kv_checksum.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

enum {
    DOC = 61,
    BLOCKS = 4
};

static const uint32_t question[] = {3, 1, 4, 1, 5};
static uint32_t words[DOC], others[DOC];

static struct rig *
start(const struct rig_config *config)
{
    for (uint32_t i = 0; i < DOC; i++) {
        words[i] = 1 + i * 7 % 90;
        others[i] = 1 + i * 11 % 90;
    }
    return rig_new(config);
}

static char *
block_at(const struct rig *rig, uint32_t block)
{
    return (char *)rig->kv + block * kv_layout_block_bytes(&rig->layout);
}

static uint64_t
sum_of(const struct rig *rig, uint32_t block)
{
    return kv_checksum_block(block_at(rig, block), kv_layout_block_bytes(&rig->layout));
}

static void
build(struct rig *rig, struct rig_doc *doc)
{
    rig_assign(rig, &(struct rig_request){.docs = doc, .n_docs = 1});
    rig_run(rig);
    ck_assert_uint_eq(rig->builds[doc->build].n_sealed, 1);
}

static void
check(struct rig *rig, uint64_t id, uint32_t *blocks, uint32_t *twins, size_t count,
      uint32_t tokens)
{
    Kvasir__V1__Check wire = KVASIR__V1__CHECK__INIT;

    wire.check = id;
    wire.block_ids = blocks;
    wire.n_block_ids = count;
    wire.twin_block_ids = twins;
    wire.n_twin_block_ids = twins == NULL ? 0 : count;
    wire.n_tokens = tokens;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_CHECK, &wire);
}

/* Runs steps until the check is answered. */
static void
hear_check(struct rig *rig, uint64_t id)
{
    rig->checked.check = 0;
    while (rig->checked.check != id) {
        ck_assert(rig_step(rig) || engine_has_upkeep(rig->engine));
    }
}

START_TEST(a_seal_brings_the_checksums_of_the_blocks_it_wrote)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    uint64_t whole[BLOCKS];

    build(rig, &doc);
    ck_assert_uint_eq(rig->n_sums, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_uint_eq(rig->sums[i], sum_of(rig, doc.blocks[i]));
        whole[i] = rig->sums[i];
    }
    doc.build = 2; /* its tail again: two blocks, and the same sums */
    doc.start = 32;
    build(rig, &doc);
    ck_assert_uint_eq(rig->n_sums, 2);
    ck_assert_uint_eq(rig->sums[0], whole[2]);
    ck_assert_uint_eq(rig->sums[1], whole[3]);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(two_builds_of_one_step_bring_their_sums_in_the_order_of_their_seals)
{
    struct rig_config config = rig_defaults();

    config.step_tokens = 4 * DOC;
    struct rig *rig = start(&config);
    struct rig_doc docs[2] = {{words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}},
                              {others, 20, rig_blocks(rig, 20), 2, false, 0, {0}}};

    rig_assign(rig, &(struct rig_request){.docs = docs, .n_docs = 2});
    rig_run(rig);
    ck_assert_uint_eq(rig->n_sums, BLOCKS + 2);
    for (uint32_t i = 0; i < BLOCKS + 2; i++) {
        uint32_t block = i < BLOCKS ? docs[0].blocks[i] : docs[1].blocks[i - BLOCKS];

        ck_assert_uint_eq(rig->sums[i], sum_of(rig, block));
    }
    mem_free(docs[0].blocks);
    mem_free(docs[1].blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_check_reads_blocks_again_and_sees_one_flipped_bit)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};

    build(rig, &doc);
    check(rig, 7, doc.blocks, NULL, BLOCKS, 0);
    hear_check(rig, 7);
    ck_assert_uint_eq(rig->checked.n_sums, BLOCKS);
    ck_assert_mem_eq(rig->checked.sums, rig->sums, BLOCKS * sizeof(rig->sums[0]));
    block_at(rig, doc.blocks[2])[1000] ^= 4;
    check(rig, 8, doc.blocks, NULL, BLOCKS, 0);
    hear_check(rig, 8);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_int_eq(rig->checked.sums[i] == rig->sums[i], i != 2);
    }
    ck_assert(!engine_has_upkeep(rig->engine));
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_document_computed_again_differs_in_no_bit_and_another_one_does)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    struct rig_doc again = {words, DOC, rig_blocks(rig, DOC), 2, false, 0, {0}};
    struct rig_doc other = {others, DOC, rig_blocks(rig, DOC), 3, false, 0, {0}};

    build(rig, &doc);
    build(rig, &again);
    build(rig, &other);
    memset(block_at(rig, again.blocks[3]) + (13 * rig->model.D * sizeof(float)), 0x77,
           3 * rig->model.D * sizeof(float)); /* behind its last token */
    check(rig, 1, again.blocks, doc.blocks, BLOCKS, DOC);
    hear_check(rig, 1);
    ck_assert_uint_eq(rig->checked.differing, 0);
    ck_assert_float_eq(rig->checked.relative, 0);
    check(rig, 2, other.blocks, doc.blocks, BLOCKS, DOC);
    hear_check(rig, 2);
    ck_assert_uint_gt(rig->checked.differing, 1000);
    ck_assert_float_gt(rig->checked.relative, 0.1f);
    mem_free(doc.blocks);
    mem_free(again.blocks);
    mem_free(other.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_check_waits_while_there_is_anything_else_to_do)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    struct rig_request request = {
        .id = 1, .query = question, .n_query = 5, .max_tokens = 20, .ignores_end = true};

    build(rig, &doc);
    rig_assign(rig, &request);
    check(rig, 9, doc.blocks, NULL, BLOCKS, 0);
    for (uint32_t tokens = 1; tokens <= 20; tokens++) {
        ck_assert(rig_step(rig));
        ck_assert_uint_eq(rig->heard[1].n_ids, tokens);
        ck_assert_uint_eq(rig->checked.check, 0);
    }
    hear_check(rig, 9);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(erased_blocks_are_zero_and_their_neighbours_are_not)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    Kvasir__V1__Erase erase = KVASIR__V1__ERASE__INIT;
    size_t bytes = kv_layout_block_bytes(&rig->layout);
    char *zeros = mem_zalloc(1, bytes);

    build(rig, &doc);
    erase.erase = 77;
    erase.block_ids = doc.blocks + 1;
    erase.n_block_ids = 2;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE, &erase);
    ck_assert(rig_step(rig));
    ck_assert_uint_eq(rig->erased, 77);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        bool is_zero = memcmp(block_at(rig, doc.blocks[i]), zeros, bytes) == 0;

        ck_assert_int_eq(is_zero, i == 1 || i == 2);
    }
    mem_free(zeros);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(fresh_blocks_are_poisoned_and_no_answer_reads_it)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    size_t bytes = kv_layout_block_bytes(&rig->layout);
    struct rig_request request = {.id = 1,
                                  .docs = &doc,
                                  .n_docs = 1,
                                  .query = question,
                                  .n_query = 5,
                                  .max_tokens = 20,
                                  .ignores_end = true};
    char *poison = mem_zalloc(1, bytes);

    memset(poison, 0xff, bytes);
    rig_assign(rig, &request);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_mem_eq(block_at(rig, doc.blocks[i]), poison, bytes);
    }
    rig_run(rig);
    ck_assert_uint_eq(rig->heard[1].n_ids, 20);
    ck_assert_str_eq(rig->heard[1].error, "");
    mem_free(poison);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

/* kvasird asks so whether what it sent before has been wiped. */
START_TEST(an_erase_of_nothing_is_answered_when_all_before_it_is_wiped)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    struct rig_doc doc = {words, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    struct rig_request request = {.id = 1,
                                  .docs = &doc,
                                  .n_docs = 1,
                                  .query = question,
                                  .n_query = 5,
                                  .max_tokens = 20,
                                  .ignores_end = true};
    Kvasir__V1__Erase erase = KVASIR__V1__ERASE__INIT;
    size_t bytes = kv_layout_block_bytes(&rig->layout);
    char *before = mem_zalloc(1, bytes);

    memset(before, 0x55, bytes);
    for (uint32_t i = 0; i < config.block_count; i++) {
        memcpy(block_at(rig, i), before, bytes);
    }
    rig_assign(rig, &request);
    erase.has_erase = true;
    erase.erase = 77;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE, &erase);
    ck_assert(rig_step(rig));
    ck_assert_uint_eq(rig->erased, 77);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_int_ne(memcmp(block_at(rig, doc.blocks[i]), before, bytes), 0);
    }
    rig_run(rig);
    mem_free(before);
    mem_free(doc.blocks);
    rig_destroy(&rig);
}
END_TEST

START_TEST(what_names_no_block_is_refused_and_answered_by_nothing)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = start(&config);
    Kvasir__V1__Erase erase = KVASIR__V1__ERASE__INIT;
    uint32_t beyond[2] = {0, config.block_count};

    check(rig, 1, beyond, NULL, 2, 0);
    check(rig, 2, beyond, beyond, 1, config.block_tokens + 1);
    check(rig, 3, beyond, NULL, 0, 0);
    ck_assert(!engine_has_upkeep(rig->engine));
    erase.erase = 1;
    erase.block_ids = beyond;
    erase.n_block_ids = 2;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE, &erase);
    ck_assert(!rig_step(rig));
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_upkeep", a_seal_brings_the_checksums_of_the_blocks_it_wrote,
           two_builds_of_one_step_bring_their_sums_in_the_order_of_their_seals,
           a_check_reads_blocks_again_and_sees_one_flipped_bit,
           a_document_computed_again_differs_in_no_bit_and_another_one_does,
           a_check_waits_while_there_is_anything_else_to_do,
           erased_blocks_are_zero_and_their_neighbours_are_not,
           fresh_blocks_are_poisoned_and_no_answer_reads_it,
           an_erase_of_nothing_is_answered_when_all_before_it_is_wiped,
           what_names_no_block_is_refused_and_answered_by_nothing)
