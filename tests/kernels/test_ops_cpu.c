/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/ops.h"
#include "kernels/threads.h"
#include "tests/kernels/attn_fixture.h"
#include "tests/support/check_main.h"

static struct ops *
new_ops(uint32_t threads)
{
    struct ops *ops = NULL;

    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = threads}, &ops), ST_OK);
    return ops;
}

struct job {
    _Atomic uint32_t runs[1000];
    uint32_t fail_from;
};

static enum status
count_unit(const void *arg, uint32_t unit)
{
    struct job *job = (struct job *)(uintptr_t)arg;

    job->runs[unit]++;
    return unit < job->fail_from ? ST_OK : ERR(ST_INVALID, "unit %u does not like it", unit);
}

START_TEST(every_unit_runs_once_with_any_number_of_threads)
{
    for (uint32_t count = 1; count <= 5; count++) {
        struct threads *threads = NULL;
        struct job job = {.fail_from = 1000};

        ck_assert_int_eq(threads_new(count, &threads), ST_OK);
        for (uint32_t n = 0; n < 1000; n += 37) {
            memset(&job.runs, 0, sizeof(job.runs));
            ck_assert_int_eq(threads_run(threads, n, count_unit, &job), ST_OK);
            for (uint32_t unit = 0; unit < 1000; unit++) {
                ck_assert_uint_eq(job.runs[unit], unit < n);
            }
        }
        threads_destroy(&threads);
        ck_assert_ptr_null(threads);
        threads_destroy(&threads);
    }
}
END_TEST

START_TEST(the_first_unit_that_fails_is_reported)
{
    struct threads *threads = NULL;
    struct job job = {.fail_from = 700};

    ck_assert_int_eq(threads_new(3, &threads), ST_OK);
    ck_assert_int_eq(threads_run(threads, 1000, count_unit, &job), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unit 700 does not like it");
    job.fail_from = 1000;
    ck_assert_int_eq(threads_run(threads, 1000, count_unit, &job), ST_OK);
    threads_destroy(&threads);
}
END_TEST

/* Units 0 and 1 fail.  Unit 0 holds its thread until unit 2 has run, and of two threads the other
 * one ran that, after the failure of unit 1 was on record. */
static enum status
fail_late(const void *arg, uint32_t unit)
{
    struct job *job = (struct job *)(uintptr_t)arg;

    job->runs[unit]++;
    while (unit == 0 && job->runs[2] == 0) {
        sched_yield();
    }
    return unit < 2 ? ERR(ST_INVALID, "unit %u does not like it", unit) : ST_OK;
}

START_TEST(the_first_unit_is_reported_even_if_it_fails_last)
{
    struct threads *threads = NULL;
    struct job job = {0};

    ck_assert_int_eq(threads_new(2, &threads), ST_OK);
    ck_assert_int_eq(threads_run(threads, 3, fail_late, &job), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unit 0 does not like it");
    threads_destroy(&threads);
}
END_TEST

START_TEST(a_count_of_threads_out_of_range_is_refused)
{
    struct ops *ops = NULL;

    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = 0}, &ops), ST_INVALID);
    ck_assert_int_eq(ops_cpu_new((struct ops_config){.threads = OPS_THREADS_MAX + 1}, &ops),
                     ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "65 threads: must be 1 to 64"));
    ck_assert_ptr_null(ops);
    ops_destroy(&ops);
}
END_TEST

START_TEST(every_allocation_that_fails_is_reported_and_leaks_nothing)
{
    enum status st = ST_NO_MEMORY;

    for (uint64_t n = 1; st != ST_OK; n++) {
        struct ops *ops = NULL;

        ck_assert_uint_lt(n, 20);
        mem_fail_at(n);
        st = ops_cpu_new((struct ops_config){.threads = 2}, &ops);
        mem_fail_at(0);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
        ck_assert_int_eq(ops == NULL, st != ST_OK);
        ops_destroy(&ops);
    }
}
END_TEST

START_TEST(memory_is_zeroed_and_copied_both_ways)
{
    struct ops *ops = new_ops(1);
    const char text[] = "sixteen bytes ok";
    char back[sizeof(text)];
    char *memory = NULL;

    ck_assert_uint_eq(ops->activation_bytes, 4);
    ck_assert_int_eq(ops->alloc(ops, 64, (void **)&memory), ST_OK);
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(memory[i], 0);
    }
    ck_assert_int_eq(ops->upload(ops, memory, text, sizeof(text)), ST_OK);
    ck_assert_int_eq(ops->upload(ops, NULL, NULL, 0), ST_OK);
    ck_assert_int_eq(ops->download(ops, back, memory, sizeof(text)), ST_OK);
    ck_assert_int_eq(ops->begin_step(ops, (struct attn_step){0}), ST_OK);
    ck_assert_int_eq(ops->finish(ops), ST_OK);
    ck_assert_str_eq(back, text);
    ops->release(ops, memory);
    ops->release(ops, NULL);
    mem_fail_at(1);
    ck_assert_int_eq(ops->alloc(ops, 64, (void **)&memory), ST_NO_MEMORY);
    mem_fail_at(0);
    ops_destroy(&ops);
}
END_TEST

/* Prefill and decode through the table. */
static void
attend(const struct ops *ops, const struct fixture *fix, const struct prompt *prompt,
       float *prefill, float *decode)
{
    struct attn_segment segs[FIXTURE_SEGS_MAX];
    uint32_t ids[FIXTURE_SEGS_MAX * 256], row = fix->H * fix->layout.D;
    struct attn_seq seq;
    struct attn_desc desc = fixture_desc(fix, prompt, &seq, segs, ids);
    uint32_t first[2] = {0, lazy_decode_partials(&seq, segs)};
    float *o = malloc(first[1] * row * sizeof(float));
    float *ml = malloc(first[1] * fix->H * 2 * sizeof(float));

    ck_assert_int_eq(ops->lazy_prefill(ops, (struct lazy_prefill_args){desc, prompt->q, prefill}),
                     ST_OK);
    seq.pos_first += prompt->n_rows - 1;
    seq.n_rows = 1;
    ck_assert_int_eq(
        ops->lazy_decode(ops,
                         (struct lazy_decode_args){desc, prompt->q + (prompt->n_rows - 1) * row, o,
                                                   ml, first, first[1]},
                         decode),
        ST_OK);
    free(o);
    free(ml);
}

START_TEST(attention_has_the_same_bits_with_any_number_of_threads_and_allocates_nothing)
{
    enum {
        H = 6,
        ROWS = 50,
        N = ROWS * H * 64
    };
    const struct kv_layout layout = {32, 2, 2, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct fixture fix;
    struct doc a, own;
    struct prompt prompt = {.docs = {&a, &own}, .n_segs = 2, .n_rows = ROWS};
    static float want[N], got[N];
    float last[H * 64];

    fixture_init(&fix, layout, H, 64, test_seed());
    fixture_doc(&fix, &a, 1100);
    fixture_doc(&fix, &own, ROWS);
    prompt.q = fixture_queries(&fix, ROWS);
    fixture_place(&prompt, 0);
    fixture_prefill(&fix, &prompt, ROWS, want);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct ops *ops = new_ops(threads);
        uint64_t before = mem_allocations();

        attend(ops, &fix, &prompt, got, last);
        ck_assert_uint_eq(mem_allocations(), before);
        ck_assert_mem_eq(got, want, sizeof(want));
        ck_assert_mem_eq(last, want + N - H * 64, sizeof(last));
        ops_destroy(&ops);
    }
    free((void *)prompt.q);
    fixture_doc_free(&a);
    fixture_doc_free(&own);
    fixture_deinit(&fix);
}
END_TEST

START_TEST(operations_over_rows_equal_their_twins)
{
    enum {
        T = 21,
        C = 40
    };
    struct ops *ops = new_ops(3);
    struct rng rng = {test_seed()};
    float *x = rng_floats(&rng, T * 2 * C), *weight = rng_floats(&rng, C);
    float a[T * C], b[T * C], stream[T * C];
    uint32_t ids[T];

    for (int t = 0; t < T; t++) {
        ids[t] = rng_below(&rng, T);
    }
    ck_assert_int_eq(ops->embed(ops, (struct embed_args){x, ids, a, T, C, T, false, PANEL_F32}),
                     ST_OK);
    ck_assert_int_eq(embed_ref((struct embed_args){x, ids, b, T, C, T, false, PANEL_F32}), ST_OK);
    ck_assert_mem_eq(a, b, sizeof(a));
    ck_assert_int_eq(ops->swiglu(ops, (struct swiglu_args){x, a, T, C}), ST_OK);
    ck_assert_int_eq(swiglu_ref((struct swiglu_args){x, b, T, C}), ST_OK);
    ck_assert_mem_eq(a, b, sizeof(a));
    memcpy(stream, x, sizeof(stream));
    ck_assert_int_eq(
        ops->rmsnorm(ops, (struct rmsnorm_args){stream, x + T * C, weight, a, T, C, 1}), ST_OK);
    memcpy(stream, x, sizeof(stream));
    ck_assert_int_eq(rmsnorm_ref((struct rmsnorm_args){stream, x + T * C, weight, b, T, C, 1}),
                     ST_OK);
    ck_assert_mem_eq(a, b, sizeof(a));
    ids[20] = T;
    ck_assert_int_eq(ops->embed(ops, (struct embed_args){x, ids, a, T, C, T, false, PANEL_F32}),
                     ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 20: token id 21, the vocabulary has 21");
    free(x);
    free(weight);
    ops_destroy(&ops);
}
END_TEST

START_TEST(an_error_in_a_row_names_the_row_of_the_call)
{
    struct ops *ops = new_ops(3);
    const float logits[] = {0, 1, 0, 1, NAN, 1, 2, 3};
    struct sample_params params[4];
    struct sample_result results[4];
    float space[16];

    for (int r = 0; r < 4; r++) {
        params[r] = (struct sample_params){.top_p = 1, .repetition_penalty = 1};
    }
    ck_assert_int_eq(ops->sample(ops, (struct sample_args){logits, params, results, space, 4, 2}),
                     ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 2: the logit of id 0 is nan");
    ck_assert_int_eq(ops->sample(ops, (struct sample_args){logits, params, results, space, 2, 2}),
                     ST_OK);
    ck_assert_uint_eq(results[1].id, 1);
    ops_destroy(&ops);
}
END_TEST

CHECK_MAIN("ops_cpu", every_unit_runs_once_with_any_number_of_threads,
           the_first_unit_that_fails_is_reported, the_first_unit_is_reported_even_if_it_fails_last,
           a_count_of_threads_out_of_range_is_refused,
           every_allocation_that_fails_is_reported_and_leaks_nothing,
           memory_is_zeroed_and_copied_both_ways,
           attention_has_the_same_bits_with_any_number_of_threads_and_allocates_nothing,
           operations_over_rows_equal_their_twins, an_error_in_a_row_names_the_row_of_the_call)
