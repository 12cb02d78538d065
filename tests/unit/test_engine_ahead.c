/* SPDX-License-Identifier: Apache-2.0 */
/* The engine plans and sends a step while the one before runs, and keeps to what a device can hold.
 * The device here is the CPU's table of operations with an ear at some of its calls. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

#define CALLS_MAX 4096
#define TINY_DOCS 60
#define TINY_MAX  3 /* tokens of a tiny document */

/* What the device was asked, in order: 'P' a step prepared, 'R' run (its embedding), 'S' tokens
 * drawn, 'W' waited for. */
static char calls[CALLS_MAX];
static size_t n_calls;
static uint64_t pairs_most, segs_most;
static uint32_t n_building;
static uint32_t n_allocated;
static struct ops real;

static void
note(char call)
{
    ck_assert_uint_lt(n_calls, CALLS_MAX - 1);
    calls[n_calls++] = call;
    calls[n_calls] = '\0';
}

static void
count_pairs(const struct attn_seq *seqs, uint32_t n_seqs, uint64_t *pairs, uint64_t *segs)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        *pairs += (uint64_t)seqs[i].n_rows * seqs[i].n_segs;
        *segs += seqs[i].n_segs;
    }
}

static enum status
hear_begin_step(const struct ops *ops, struct attn_step step)
{
    uint64_t pairs = 0, segs = 0;

    note('P');
    n_building += step.is_building;
    count_pairs(step.prefill, step.n_prefill, &pairs, &segs);
    count_pairs(step.decode, step.n_decode, &pairs, &segs);
    pairs_most = pairs > pairs_most ? pairs : pairs_most;
    segs_most = segs > segs_most ? segs : segs_most;
    return real.begin_step(ops, step);
}

static enum status
hear_embed(const struct ops *ops, struct embed_args args)
{
    /* The last layer gathers rows by embeddings as well; only this one is over the vocabulary. */
    if (args.V > 256) {
        note('R');
    }
    return real.embed(ops, args);
}

static enum status
hear_sample(const struct ops *ops, struct sample_args args)
{
    note('S');
    return real.sample(ops, args);
}

static enum status
hear_wait(const struct ops *ops)
{
    note('W');
    return real.wait(ops);
}

static enum status
hear_alloc(const struct ops *ops, size_t bytes, void **memory_out)
{
    n_allocated++;
    return real.alloc(ops, bytes, memory_out);
}

static enum status
hear_alloc_host(const struct ops *ops, size_t bytes, void **memory_out)
{
    n_allocated++;
    return real.alloc_host(ops, bytes, memory_out);
}

static void
forget_calls(void)
{
    n_calls = 0;
    calls[0] = '\0';
    pairs_most = segs_most = 0;
    n_building = 0;
    n_allocated = 0;
}

static struct rig *
open_rig(void)
{
    struct rig_config config = rig_defaults();

    config.step_tokens = 256;
    struct rig *rig = rig_new(&config);

    real = *rig->ops;
    rig->ops->begin_step = hear_begin_step;
    rig->ops->embed = hear_embed;
    rig->ops->sample = hear_sample;
    rig->ops->wait = hear_wait;
    rig->ops->alloc = hear_alloc;
    rig->ops->alloc_host = hear_alloc_host;
    fill_all();
    forget_calls();
    return rig;
}

START_TEST(the_next_step_is_sent_before_the_tokens_of_this_one_are_there)
{
    struct rig *rig = open_rig();
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    ck_assert_uint_gt(rig->model.V, 256);
    request.max_tokens = 4;
    request.ignores_end = true;
    rig_assign(rig, &request);
    n_allocated = 0;
    rig_run(rig);
    /* Documents and query are one step, three decodes follow; one wait each, and no step is sent
     * after the last token, which is known to be the last. */
    ck_assert_uint_eq(n_allocated, 0);
    ck_assert_str_eq(calls, "PRSPW"
                            "RSPW"
                            "RSPW"
                            "RSW");
    ck_assert_uint_eq(n_building, 1); /* only the first one writes keys of documents */
    ck_assert_uint_eq(rig->heard[1].n_ids, 4);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* Stop strings and ends are seen on the host: what was sent ahead is void, and no row of it runs.
 */
START_TEST(a_text_that_ends_runs_no_row_more)
{
    struct rig *rig = open_rig();
    struct rig_heard alone;

    run_alone(rig, &alone);
    ck_assert_uint_gt(alone.n_text, 4);
    char stop[] = {alone.text[3], '\0'};

    rig_restart(rig, &rig->config);
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    request.stops[0] = stop;
    request.n_stops = 1;
    forget_calls();
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_int_eq(rig->heard[1].finish, KVASIR__V1__FINISH_REASON__FINISH_STOP);
    size_t runs = 0, sent = 0;

    for (size_t i = 0; i < n_calls; i++) {
        runs += calls[i] == 'R';
        sent += calls[i] == 'P';
    }
    ck_assert_uint_eq(runs, rig->heard[1].n_ids);
    ck_assert_uint_eq(sent, runs + 1); /* one in vain */
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* A request that comes while another decodes joins the next step, though that had been sent. */
START_TEST(a_message_between_steps_joins_the_next_one)
{
    struct rig *rig = open_rig();
    struct rig_heard alone;
    struct abc abc = {0};

    run_alone(rig, &alone);
    rig_restart(rig, &rig->config);
    abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_assign(rig, &request);
    ck_assert(rig_step(rig));
    ck_assert(rig_step(rig));
    rig_assign(rig,
               &(struct rig_request){
                   .id = 2, .query = query, .n_query = 11, .max_tokens = 3, .ignores_end = true});
    ck_assert(rig_step(rig));
    ck_assert_uint_eq(rig->heard[2].n_ids, 1);
    ck_assert(rig_step(rig));
    rig_stop(rig, 2);
    rig_run(rig);
    ck_assert_uint_eq(rig->heard[2].n_ids, 2);
    ck_assert_uint_eq(rig->heard[2].n_released, 1);
    check_same_answer(&alone, &rig->heard[1]);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* --- what a step holds --------------------------------------------------------------- */

struct tiny_docs {
    uint32_t ids[TINY_DOCS][TINY_MAX];
    struct rig_doc docs[TINY_DOCS];
};

static void
make_tiny_docs(struct rig *rig, struct tiny_docs *tiny)
{
    for (uint32_t i = 0; i < TINY_DOCS; i++) {
        uint32_t n_ids = 1 + i % TINY_MAX;

        fill_ids(tiny->ids[i], n_ids, 100 + i);
        tiny->docs[i] = (struct rig_doc){
            .ids = tiny->ids[i], .n_ids = n_ids, .blocks = rig_blocks(rig, n_ids), .build = i + 1};
    }
}

static void
free_tiny_docs(struct tiny_docs *tiny)
{
    for (uint32_t i = 0; i < TINY_DOCS; i++) {
        mem_free(tiny->docs[i].blocks);
    }
}

/* Three requests over the same tiny documents. */
static void
run_tiny(struct rig *rig, struct rig_heard heard_out[3])
{
    struct tiny_docs *tiny = mem_zalloc(1, sizeof(*tiny));

    make_tiny_docs(rig, tiny);
    for (uint64_t id = 1; id <= 3; id++) {
        rig_assign(rig, &(struct rig_request){.id = id,
                                              .docs = tiny->docs,
                                              .n_docs = TINY_DOCS,
                                              .query = query,
                                              .n_query = 11,
                                              .max_tokens = 6,
                                              .seed = id,
                                              .temperature = 0.8f,
                                              .ignores_end = true});
        for (uint32_t i = 0; i < TINY_DOCS; i++) {
            tiny->docs[i].is_joined = true;
        }
    }
    n_allocated = 0;
    rig_run(rig);
    ck_assert_uint_eq(n_allocated, 0);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_str_eq(rig->heard[1 + i].error, "");
        ck_assert_uint_eq(rig->heard[1 + i].n_ids, 6);
        heard_out[i] = rig->heard[1 + i];
    }
    free_tiny_docs(tiny);
    mem_free(tiny);
}

START_TEST(requests_over_many_tiny_documents_keep_to_what_the_device_holds)
{
    static const struct {
        uint64_t segs, pairs;
    } limits[] = {{TINY_DOCS + 1, 1000}, {2 * TINY_DOCS, TINY_DOCS + 1}, {9999, 100}};
    static struct rig_heard free_run[3], limited[3];
    struct rig *rig = open_rig();

    run_tiny(rig, free_run);
    ck_assert_uint_gt(segs_most, 2 * TINY_DOCS);
    ck_assert_uint_gt(pairs_most, 1000);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        rig->ops->step_segs_max = limits[i].segs;
        rig->ops->step_pairs_max = limits[i].pairs;
        rig_restart(rig, &rig->config);
        forget_calls();
        run_tiny(rig, limited);
        ck_assert_uint_le(segs_most, limits[i].segs);
        ck_assert_uint_le(pairs_most, limits[i].pairs);
        for (uint32_t k = 0; k < 3; k++) {
            check_same_answer(&free_run[k], &limited[k]);
        }
    }
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_ahead", the_next_step_is_sent_before_the_tokens_of_this_one_are_there,
           a_text_that_ends_runs_no_row_more, a_message_between_steps_joins_the_next_one,
           requests_over_many_tiny_documents_keep_to_what_the_device_holds)
