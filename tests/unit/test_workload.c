/* SPDX-License-Identifier: Apache-2.0 */
/* What the generator of kvasir-bench really produces. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/workload.h"
#include "tests/support/check_main.h"

static struct workload_config
defaults(void)
{
    return (struct workload_config){
        .seed = test_seed(),
        .vocab = 32000,
        .n_requests = 2000,
        .rate = 10.0,
        .burstiness = 1.0,
        .pool = 100,
        .cited = 5,
        .document_tokens = {LENGTHS_UNIFORM, 2048, 2048, 0, 0},
        .query_tokens = {LENGTHS_UNIFORM, 32, 32, 0, 0},
        .output_tokens = {LENGTHS_UNIFORM, 16, 16, 0, 0},
        .time_scale = 1.0,
    };
}

static struct workload *
make(const struct workload_config *config)
{
    struct workload *workload = NULL;

    ck_assert_msg(workload_make(config, &workload) == ST_OK, "%s", status_detail());
    return workload;
}

static struct workload_shape
shape_of(const struct workload_config *config)
{
    struct workload *workload = make(config);
    struct workload_shape shape;

    ck_assert_int_eq(workload_shape(workload, &shape), ST_OK);
    workload_destroy(&workload);
    return shape;
}

/* The trace as workload_write gives it; freed by the caller. */
static char *
written(const struct workload *workload)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    ck_assert_ptr_nonnull(out);
    workload_write(workload, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

START_TEST(the_same_seed_gives_the_same_requests_and_another_seed_others)
{
    struct workload_config config = defaults();
    struct workload *a = make(&config), *b = make(&config);
    uint32_t ids[2][64];

    config.alpha = 1.1;
    config.seed++;
    struct workload *c = make(&config);
    char *text_a = written(a), *text_b = written(b), *text_c = written(c);

    ck_assert_str_eq(text_a, text_b);
    ck_assert_str_ne(text_a, text_c);
    workload_ids(a, a->documents[7].stream, 64, ids[0]);
    workload_ids(b, b->documents[7].stream, 64, ids[1]);
    ck_assert_mem_eq(ids[0], ids[1], sizeof(ids[0]));
    workload_ids(a, a->documents[8].stream, 64, ids[1]);
    ck_assert_mem_ne(ids[0], ids[1], sizeof(ids[0]));
    for (int i = 0; i < 64; i++) {
        ck_assert(ids[0][i] >= WORKLOAD_FIRST_ID && ids[0][i] < 32000);
    }
    free(text_a);
    free(text_b);
    free(text_c);
    workload_destroy(&a);
    workload_destroy(&b);
    workload_destroy(&c);
}
END_TEST

START_TEST(more_requests_begin_with_the_same_ones)
{
    struct workload_config config = defaults();
    struct workload *many = make(&config), *few;

    config.n_requests = 100;
    few = make(&config);
    for (size_t i = 0; i < 100; i++) {
        ck_assert_uint_eq(few->requests[i].arrival_us, many->requests[i].arrival_us);
        ck_assert_mem_eq(few->requests[i].documents, many->requests[i].documents,
                         5 * sizeof(uint32_t));
    }
    workload_destroy(&many);
    workload_destroy(&few);
}
END_TEST

/* 2000 gaps: the mean is within 5 of its deviations; a squared coefficient of variation is 1 over
 * the shape. */
START_TEST(gaps_have_the_mean_of_the_rate_and_the_spread_of_the_burstiness)
{
    const double shapes[] = {0.25, 1.0, 4.0};

    for (int s = 0; s < 3; s++) {
        struct workload_config config = defaults();
        double sum = 0, squares = 0, n = config.n_requests;

        config.burstiness = shapes[s];
        struct workload *workload = make(&config);

        for (size_t i = 0; i < workload->n_requests; i++) {
            uint64_t before = i == 0 ? 0 : workload->requests[i - 1].arrival_us;
            double gap = (double)(workload->requests[i].arrival_us - before) * 1e-6;

            sum += gap;
            squares += gap * gap;
        }
        double mean = sum / n, cv2 = (squares / n - mean * mean) / (mean * mean);

        ck_assert_double_eq_tol(mean, 0.1, 5 * 0.1 / sqrt(shapes[s] * n));
        ck_assert_msg(fabs(cv2 * shapes[s] - 1) < 0.35, "shape %g: %g", shapes[s], cv2);
        workload_destroy(&workload);
    }
}
END_TEST

/* By the formula alpha 2.1 over 100 documents gives the top one 0.643 of single draws and the top
 * five 0.914.  Drawn with replacement, citations have just those shares. */
START_TEST(pool_level_zipf_gives_the_shares_that_the_formula_says)
{
    const double alphas[] = {0.0, 0.8, 1.1, 2.1};

    for (int a = 0; a < 4; a++) {
        struct workload_config config = defaults();
        double total = 0, top5 = 0;

        config.sampler = SAMPLER_REPLACEMENT;
        config.alpha = alphas[a];
        for (int i = 1; i <= 100; i++) {
            total += pow(i, -alphas[a]);
            top5 += i <= 5 ? pow(i, -alphas[a]) : 0;
        }
        struct workload_shape shape = shape_of(&config);

        ck_assert_uint_eq(shape.citations, 10000);
        /* With alpha 0 the top ones are the luckiest of 100 equals: some deviations higher. */
        ck_assert_double_eq_tol(shape.top1, 1 / total, a == 0 ? 0.006 : 0.02);
        ck_assert_double_eq_tol(shape.top5, top5 / total, a == 0 ? 0.02 : 0.02);
    }
    ck_assert_double_eq_tol(1 / 1.5548, 0.643, 0.001); /* sum of i^-2.1 to 100 is 1.5548 */
}
END_TEST

START_TEST(distinct_documents_never_come_twice_and_keep_the_order_of_likelihood)
{
    struct workload_config config = defaults();

    config.alpha = 2.1;
    struct workload_shape skewed = shape_of(&config);
    config.alpha = 0.0;
    struct workload_shape flat = shape_of(&config);

    ck_assert_uint_eq(skewed.with_duplicates, 0);
    ck_assert_uint_eq(flat.with_duplicates, 0);
    /* A request cites the top one at most once: its share is at most 1/5, and nearly that. */
    ck_assert_double_le(skewed.top1, 0.2);
    ck_assert_double_ge(skewed.top1, 0.19);
    ck_assert_double_ge(skewed.top5, 0.6);
    ck_assert_uint_eq(flat.distinct, 100);
    config.cited = 100; /* all of them: each request cites each once */
    ck_assert_double_eq_tol(shape_of(&config).top1, 0.01, 1e-9);
}
END_TEST

/* The place in the prompt must not tell how likely a document is. */
START_TEST(the_likeliest_document_stands_in_every_place_alike)
{
    struct workload_config config = defaults();
    uint32_t places[5] = {0}, counts[100] = {0}, top = 0;

    config.alpha = 2.1;
    struct workload *workload = make(&config);

    for (size_t i = 0; i < workload->n_requests; i++) {
        for (int d = 0; d < 5; d++) {
            counts[workload->requests[i].documents[d]]++;
        }
    }
    for (uint32_t i = 0; i < 100; i++) {
        top = counts[i] > counts[top] ? i : top;
    }
    for (size_t i = 0; i < workload->n_requests; i++) {
        for (int d = 0; d < 5; d++) {
            places[d] += workload->requests[i].documents[d] == top;
        }
    }
    for (int d = 0; d < 5; d++) { /* 5 deviations of a binomial around a fifth */
        ck_assert_double_eq_tol(places[d] / (double)counts[top], 0.2, 5 * sqrt(0.16 / counts[top]));
    }
    workload_destroy(&workload);
}
END_TEST

/* Their sampler, run: 120 requests, pool of 100, 5 documents, "--sample-documents 5", alpha 2.1: 87
 * distinct, top-1 0.038, top-5 0.142, a document twice in 120 of 120. */
START_TEST(the_papers_sampler_does_what_theirs_was_seen_to_do)
{
    struct workload_config config = defaults();

    config.sampler = SAMPLER_PAPER;
    config.alpha = 2.1;
    config.n_requests = 120;
    struct workload_shape shape = shape_of(&config);

    ck_assert_uint_ge(shape.distinct, 78);
    ck_assert_uint_le(shape.distinct, 96);
    ck_assert_double_ge(shape.top1, 0.02);
    ck_assert_double_le(shape.top1, 0.06);
    ck_assert_double_ge(shape.top5, 0.10);
    ck_assert_double_le(shape.top5, 0.20);
    ck_assert_uint_ge(shape.with_duplicates, 116); /* without: 0.6 % of requests */
}
END_TEST

START_TEST(lengths_have_their_bounds_and_their_median)
{
    struct draw draw = draw_new(test_seed(), 1);
    struct lengths lengths;
    uint32_t below = 0;

    ck_assert_int_eq(lengths_parse("50-300", &lengths), ST_OK);
    for (int i = 0; i < 10000; i++) {
        uint32_t n = lengths_draw(&lengths, &draw);

        ck_assert(n >= 50 && n <= 300);
        below += n < 175;
    }
    ck_assert(below > 4700 && below < 5300);
    ck_assert_int_eq(lengths_parse("lognormal:200,0.8,4096", &lengths), ST_OK);
    below = 0;
    for (int i = 0; i < 10000; i++) {
        uint32_t n = lengths_draw(&lengths, &draw);

        ck_assert(n >= 1 && n <= 4096);
        below += n < 200;
    }
    ck_assert(below > 4700 && below < 5300);
    ck_assert_int_eq(lengths_parse("7", &lengths), ST_OK);
    ck_assert_uint_eq(lengths_draw(&lengths, &draw), 7);
    for (int i = 0; i < 6; i++) {
        const char *const wrong[] = {"", "x", "5-", "9-3", "lognormal:0,1,9", "7 "};

        ck_assert_int_eq(lengths_parse(wrong[i], &lengths), ST_INVALID);
    }
}
END_TEST

/* --- traces ------------------------------------------------------------------------------- */

static enum status
read_text(const char *text, struct workload **workload_out)
{
    char path[] = "/tmp/kvasir-trace.XXXXXX";
    int fd = mkstemp(path);
    struct workload_config config = defaults();

    config.n_requests = 0;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fd), 0);
    enum status st = workload_read(&config, path, workload_out);

    ck_assert_int_eq(unlink(path), 0);
    return st;
}

START_TEST(a_written_workload_reads_back_as_itself)
{
    struct workload_config config = defaults();
    struct workload *workload, *again = NULL;

    config.n_requests = 50;
    config.rate = 0;
    workload = make(&config);
    char *text = written(workload);

    ck_assert_msg(read_text(text, &again) == ST_OK, "%s", status_detail());
    ck_assert_uint_eq(again->n_requests, 50);
    for (size_t i = 0; i < 50; i++) {
        const struct workload_request *a = &workload->requests[i], *b = &again->requests[i];

        ck_assert_uint_eq(a->arrival_us, b->arrival_us);
        ck_assert_uint_eq(a->n_documents, b->n_documents);
        ck_assert_uint_eq(a->query_tokens, b->query_tokens);
        ck_assert_uint_eq(a->output_tokens, b->output_tokens);
        for (uint32_t d = 0; d < a->n_documents; d++) { /* the same ones are the same there */
            ck_assert_uint_eq(again->documents[b->documents[d]].tokens, 2048);
        }
    }
    struct workload_shape a, b;
    ck_assert_int_eq(workload_shape(workload, &a), ST_OK);
    ck_assert_int_eq(workload_shape(again, &b), ST_OK);
    ck_assert_uint_eq(a.distinct, b.distinct);
    ck_assert_double_eq(a.top5, b.top5);
    free(text);
    workload_destroy(&workload);
    workload_destroy(&again);
}
END_TEST

START_TEST(mooncakes_hash_ids_are_documents_and_the_last_one_is_the_query)
{
    struct workload *w = NULL;

    ck_assert_int_eq(read_text("{\"timestamp\": 5, \"input_length\": 1100, \"output_length\": 9, "
                               "\"hash_ids\": [0, 7, 8]}\n"
                               "{\"timestamp\": 3005, \"input_length\": 600, \"output_length\": 1, "
                               "\"hash_ids\": [7, 9]}\n",
                               &w),
                     ST_OK);
    ck_assert_uint_eq(w->n_requests, 2);
    ck_assert_uint_eq(w->n_documents, 2);
    ck_assert_uint_eq(w->requests[0].n_documents, 2);
    ck_assert_uint_eq(w->requests[0].query_tokens, 1100 - 1024);
    ck_assert_uint_eq(w->requests[0].output_tokens, 9);
    ck_assert_uint_eq(w->requests[1].arrival_us, 3000000);
    ck_assert_uint_eq(w->requests[1].documents[0], w->requests[0].documents[1]);
    ck_assert_uint_eq(w->requests[1].query_tokens, 600 - 512);
    workload_destroy(&w);
}
END_TEST

START_TEST(questions_over_texts_are_read_and_equal_texts_are_one_document)
{
    struct workload *w = NULL;

    ck_assert_int_eq(
        read_text("{\"question\": \"q1\", \"documents\": [{\"title\": \"t\", \"text\": \"a\"}, "
                  "{\"text\": \"b\"}]}\n\n"
                  "{\"question\": \"q2\", \"documents\": [{\"text\": \"b\"}, {\"text\": \"a\"}]}\n",
                  &w),
        ST_OK);
    ck_assert_uint_eq(w->n_documents, 3); /* "a" without its title is another one */
    ck_assert_uint_eq(w->requests[1].documents[0], 1);
    ck_assert_str_eq(w->requests[1].question, "q2");
    ck_assert_str_eq(w->documents[0].title, "t");
    workload_destroy(&w);
}
END_TEST

START_TEST(a_bad_trace_is_refused_with_its_line)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{\"documents\": []}\nnot json\n", ":2: the line is not a JSON object"},
        {"", ": no request"},
        {"{\"timestamp\": 9}\n{}\n", ":2: timestamps must be in all lines or in none"},
        {"{\"timestamp\": 9}\n{\"timestamp\": 8}\n", ":2: timestamps"},
        {"{\"hash_ids\": []}\n", ":1: hash_ids must be an array with members"},
        {"{\"documents\": [{\"title\": \"t\"}]}\n", ":1: a document must have text, or tokens"},
        {"{\"output_tokens\": 0}\n", ":1: output_tokens must be a number from 1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct workload *w = NULL;

        ck_assert_int_eq(read_text(cases[i].text, &w), ST_INVALID);
        ck_assert_msg(strstr(status_detail(), cases[i].why) != NULL, "%s", status_detail());
        ck_assert_ptr_null(w);
    }
}
END_TEST

CHECK_MAIN("workload", the_same_seed_gives_the_same_requests_and_another_seed_others,
           more_requests_begin_with_the_same_ones,
           gaps_have_the_mean_of_the_rate_and_the_spread_of_the_burstiness,
           pool_level_zipf_gives_the_shares_that_the_formula_says,
           distinct_documents_never_come_twice_and_keep_the_order_of_likelihood,
           the_likeliest_document_stands_in_every_place_alike,
           the_papers_sampler_does_what_theirs_was_seen_to_do,
           lengths_have_their_bounds_and_their_median, a_written_workload_reads_back_as_itself,
           mooncakes_hash_ids_are_documents_and_the_last_one_is_the_query,
           questions_over_texts_are_read_and_equal_texts_are_one_document,
           a_bad_trace_is_refused_with_its_line)
