/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_checksum.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

enum {
    WORDS = 96,
    BYTES = WORDS * 8,
    BLOCKS = 5
};

static void
fill(struct rng *rng, uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        words[i] = rng_next(rng);
    }
}

START_TEST(every_single_bit_counts)
{
    struct rng rng = {test_seed()};
    uint64_t block[WORDS];

    fill(&rng, block, WORDS);
    uint64_t sum = kv_checksum_block(block, BYTES);

    for (uint32_t bit = 0; bit < 8 * BYTES; bit++) {
        block[bit / 64] ^= UINT64_C(1) << bit % 64;
        ck_assert_uint_ne(kv_checksum_block(block, BYTES), sum);
        block[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
    ck_assert_uint_eq(kv_checksum_block(block, BYTES), sum);
}
END_TEST

/* What a sum over unmixed words would miss: the same bit in two words, words that change places. */
START_TEST(faults_that_would_cancel_in_a_plain_sum_are_found)
{
    struct rng rng = {test_seed()};
    uint64_t block[WORDS], other[WORDS];

    fill(&rng, block, WORDS);
    uint64_t sum = kv_checksum_block(block, BYTES);

    for (uint32_t i = 0; i + 1 < WORDS; i++) {
        for (uint32_t bit = 0; bit < 64; bit++) {
            memcpy(other, block, BYTES);
            other[i] ^= UINT64_C(1) << bit;
            other[i + 1] ^= UINT64_C(1) << bit;
            ck_assert_uint_ne(kv_checksum_block(other, BYTES), sum);
        }
        memcpy(other, block, BYTES);
        other[i] = block[i + 1];
        other[i + 1] = block[i];
        ck_assert_uint_ne(kv_checksum_block(other, BYTES), sum);
    }
}
END_TEST

/* By hand: mix(0 ^ golden) is the first output of splitmix64 from seed 0. */
START_TEST(the_definition_is_splitmix64_word_by_word)
{
    uint64_t zeros[2] = {0, 0};

    ck_assert_uint_eq(kv_checksum_block(zeros, 8), UINT64_C(0xE220A8397B1DCDAF));
    ck_assert_uint_eq(kv_checksum_block(zeros, 16),
                      UINT64_C(0xE220A8397B1DCDAF) + UINT64_C(0x6E789E6AA1B965F4));
}
END_TEST

START_TEST(a_block_has_the_same_sum_anywhere_and_with_any_number_of_threads)
{
    struct rng rng = {test_seed()};
    uint64_t *arena = malloc((size_t)BLOCKS * BYTES);
    uint32_t blocks[] = {3, 0, 3, 4};
    uint64_t sums[4], shared[4];
    struct kv_checksum_args args = {.kv = arena,
                                    .block_bytes = BYTES,
                                    .n_blocks = BLOCKS,
                                    .blocks = blocks,
                                    .sums = sums,
                                    .N = 4};
    struct ops *ops = NULL;

    ck_assert_ptr_nonnull(arena);
    fill(&rng, arena, (size_t)BLOCKS * WORDS);
    memcpy(arena + 4 * WORDS, arena, BYTES); /* block 4 is a copy of block 0 */
    ck_assert_int_eq(kv_checksum_ref(args), ST_OK);
    ck_assert_uint_eq(sums[0], kv_checksum_block(arena + 3 * WORDS, BYTES));
    ck_assert_uint_eq(sums[0], sums[2]);
    ck_assert_uint_eq(sums[1], sums[3]);
    ck_assert_uint_ne(sums[0], sums[1]);
    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 3}, &ops), ST_OK);
    args.sums = shared;
    ck_assert_int_eq(ops->kv_checksum(ops, args), ST_OK);
    ck_assert_mem_eq(shared, sums, sizeof(sums));
    ops_destroy(&ops);
    free(arena);
}
END_TEST

START_TEST(a_block_outside_the_arena_is_refused_by_name)
{
    uint64_t block[2] = {0, 0}, sum = 0;
    uint32_t id = 1;
    struct kv_checksum_args args = {.kv = block,
                                    .block_bytes = sizeof(block),
                                    .n_blocks = 1,
                                    .blocks = &id,
                                    .sums = &sum,
                                    .N = 1};

    ck_assert_int_eq(kv_checksum_ref(args), ST_INVALID);
    ck_assert_str_eq(status_detail(), "checksum 0: block id 1, the arena has 1");
}
END_TEST

CHECK_MAIN("kv_checksum", every_single_bit_counts,
           faults_that_would_cancel_in_a_plain_sum_are_found,
           the_definition_is_splitmix64_word_by_word,
           a_block_has_the_same_sum_anywhere_and_with_any_number_of_threads,
           a_block_outside_the_arena_is_refused_by_name)
