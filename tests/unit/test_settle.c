/* SPDX-License-Identifier: Apache-2.0 */
/* What engine_settle uses of gemm, on operations that note it. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

#define NOTED_MAX 256
#define SEED      11u

struct shape {
    uint32_t N, K, bucket, is_y_f32;
};

/* Of the one instance of a test. */
static struct {
    struct shape shapes[NOTED_MAX];
    size_t n;
    bool is_settled;
    uint32_t n_late, rows_max_late;
    enum status (*gemm)(const struct ops *, struct gemm_args);
} noted;

static bool
is_noted(const struct shape *shape)
{
    for (size_t i = 0; i < noted.n; i++) {
        if (memcmp(&noted.shapes[i], shape, sizeof(*shape)) == 0) {
            return true;
        }
    }
    return false;
}

static enum status
gemm_noting(const struct ops *ops, struct gemm_args args)
{
    const struct shape shape = {args.N, args.K, gemm_bucket(args.M), args.is_y_f32};

    if (!is_noted(&shape)) {
        ck_assert_msg(!noted.is_settled, "%u rows of %u x %u come first in a step", args.M, args.N,
                      args.K);
        ck_assert_uint_lt(noted.n, NOTED_MAX);
        noted.shapes[noted.n++] = shape;
    }
    if (noted.is_settled) {
        noted.n_late++;
        noted.rows_max_late = args.M > noted.rows_max_late ? args.M : noted.rows_max_late;
    }
    return noted.gemm(ops, args);
}

static void
note_settled(const struct ops *ops)
{
    (void)ops;
    noted.is_settled = true;
}

static enum status
noting_ops_new(struct ops_config config, struct ops **ops_out)
{
    TRY(ops_cpu_new(config, ops_out));
    memset(&noted, 0, sizeof(noted));
    noted.gemm = (*ops_out)->gemm;
    (*ops_out)->gemm = gemm_noting;
    (*ops_out)->settle = note_settled;
    return ST_OK;
}

/* A document and a query of many lengths each, several at once. */
static void
run_all_sorts(struct rig *rig)
{
    uint32_t ids[200];
    struct rig_doc docs[7];
    uint64_t id = 1;

    for (uint32_t t = 0; t < 200; t++) {
        ids[t] = 3 + (t * SEED) % 250;
    }
    for (uint32_t n = 1; n <= 64; n *= 2) {
        struct rig_doc *doc = &docs[id - 1];

        *doc = (struct rig_doc){
            .ids = ids, .n_ids = 3 * n - 1, .blocks = rig_blocks(rig, 3 * n - 1), .build = id};
        rig_assign(rig, &(struct rig_request){.id = id,
                                              .docs = doc,
                                              .n_docs = 1,
                                              .query = ids,
                                              .n_query = n + n / 2,
                                              .max_tokens = 4,
                                              .ignores_end = true});
        if (id % 3 == 0) {
            rig_run(rig);
        }
        id++;
    }
    rig_run(rig);
    for (uint64_t i = 1; i < id; i++) {
        ck_assert_str_eq(rig->heard[i].error, "");
        mem_free(docs[i - 1].blocks);
    }
}

static void
check_settled(uint32_t step_tokens, uint32_t seqs_max)
{
    struct device_kind kind = device_cpu;
    struct rig_config config = rig_defaults();

    kind.ops_new = noting_ops_new;
    config.kind = &kind;
    config.step_tokens = step_tokens;
    config.seqs_max = seqs_max;
    struct rig *rig = rig_new(&config);

    ck_assert_int_eq(engine_settle(rig->engine), ST_OK);
    ck_assert(noted.is_settled);
    run_all_sorts(rig);
    ck_assert_uint_gt(noted.n_late, 0);
    ck_assert_uint_eq(noted.rows_max_late, step_tokens);
    rig_destroy(&rig);
}

START_TEST(no_step_brings_a_shape_that_was_not_used_before)
{
    check_settled(64, 8);
}
END_TEST

START_TEST(nor_with_a_step_length_that_is_no_power_of_two)
{
    check_settled(75, 5);
}
END_TEST

START_TEST(a_bucket_ends_at_a_power_of_two)
{
    ck_assert_uint_eq(gemm_bucket(1), 1);
    ck_assert_uint_eq(gemm_bucket(2), 2);
    ck_assert_uint_eq(gemm_bucket(3), 4);
    ck_assert_uint_eq(gemm_bucket(64), 64);
    ck_assert_uint_eq(gemm_bucket(65), 128);
    ck_assert_uint_eq(gemm_bucket(1u << 16), 1u << 16);
}
END_TEST

CHECK_MAIN("settle", no_step_brings_a_shape_that_was_not_used_before,
           nor_with_a_step_length_that_is_no_power_of_two, a_bucket_ends_at_a_power_of_two)
