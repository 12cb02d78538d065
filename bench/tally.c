/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tally.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

/* --- numbers -------------------------------------------------------------------------------- */

static int
ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double
percentile(const double *sorted, size_t count, double percent)
{
    double at = percent / 100.0 * (double)(count - 1);
    size_t below = (size_t)at;
    size_t above = below + 1 < count ? below + 1 : below;

    return sorted[below] + (sorted[above] - sorted[below]) * (at - (double)below);
}

struct metric
metric_of(double *samples, size_t count, const struct tally_options *options)
{
    struct metric metric = {.count = count};
    double squares = 0.0;

    if (count == 0) {
        return metric;
    }
    qsort(samples, count, sizeof(samples[0]), ascending);
    for (size_t i = 0; i < count; i++) {
        metric.mean += samples[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        squares += (samples[i] - metric.mean) * (samples[i] - metric.mean);
    }
    metric.std = sqrt(squares / (double)count);
    metric.median = percentile(samples, count, 50.0);
    for (size_t i = 0; i < options->n_percentiles; i++) {
        metric.percentiles[i] = percentile(samples, count, options->percentiles[i]);
    }
    return metric;
}

static bool
belongs(const struct outcome *outcome, enum tally_of of)
{
    return of == TALLY_ALL || outcome->is_warm == (of == TALLY_WARM);
}

static bool
is_good(const struct outcome *o, const struct tally_options *options)
{
    return (options->good_ttft_ms == 0.0 || outcome_ttft_ms(o) <= options->good_ttft_ms)
           && (options->good_tpot_ms == 0.0 || outcome_tpot_ms(o) <= options->good_tpot_ms)
           && (options->good_e2el_ms == 0.0 || outcome_e2el_ms(o) <= options->good_e2el_ms);
}

static void
count_in(struct tally *tally, const struct outcome *o, const struct tally_options *options)
{
    double late_ms = (double)(o->sent_us - o->due_us) / 1000.0;

    tally->completed++;
    tally->good += is_good(o, options);
    tally->input_tokens += o->input_tokens;
    tally->output_tokens += o->output_tokens;
    tally->late_ms_max = fmax(tally->late_ms_max, late_ms);
    if (o->has_reuse) {
        tally->with_reuse++;
        tally->documents += o->documents;
        tally->documents_hit += o->documents_hit;
        tally->document_tokens += o->document_tokens;
        tally->tokens_reused += o->tokens_reused;
        tally->tokens_copied += o->tokens_copied;
    }
}

/* Room for the samples of all metrics; gaps are many. */
struct samples {
    double *ttft, *tpot, *e2el, *itl;
    size_t n, n_tpot, n_itl;
};

static void
add_samples(struct samples *samples, const struct outcome *o)
{
    samples->ttft[samples->n] = outcome_ttft_ms(o);
    samples->e2el[samples->n++] = outcome_e2el_ms(o);
    if (o->output_tokens > 1) {
        samples->tpot[samples->n_tpot++] = outcome_tpot_ms(o);
    }
    for (size_t g = 0; g < o->n_gaps; g++) {
        samples->itl[samples->n_itl++] = (double)o->gaps_us[g] / 1000.0;
    }
}

enum status
tally_make(const struct outcome *outcomes, size_t count, enum tally_of of,
           const struct tally_options *options, struct tally *tally_out)
{
    struct tally tally = {0};
    size_t gaps = 0;
    enum status st = ST_OK;

    for (size_t i = 0; i < count; i++) {
        gaps += outcomes[i].n_gaps;
    }
    struct samples samples = {.ttft = mem_zalloc(count, sizeof(double)),
                              .tpot = mem_zalloc(count, sizeof(double)),
                              .e2el = mem_zalloc(count, sizeof(double)),
                              .itl = mem_zalloc(gaps, sizeof(double))};

    if (samples.ttft == NULL || samples.tpot == NULL || samples.e2el == NULL
        || samples.itl == NULL) {
        st = ERR(ST_NO_MEMORY, "%zu outcomes", count);
    }
    for (size_t i = 0; st == ST_OK && i < count; i++) {
        if (!outcomes[i].is_ok) {
            tally.failed += of == TALLY_ALL;
        } else if (belongs(&outcomes[i], of)) {
            count_in(&tally, &outcomes[i], options);
            add_samples(&samples, &outcomes[i]);
        }
    }
    if (st == ST_OK) {
        tally.ttft = metric_of(samples.ttft, samples.n, options);
        tally.tpot = metric_of(samples.tpot, samples.n_tpot, options);
        tally.itl = metric_of(samples.itl, samples.n_itl, options);
        tally.e2el = metric_of(samples.e2el, samples.n, options);
    }
    if (st == ST_OK && of == TALLY_ALL) {
        st = peaks_of(outcomes, count, &tally.peaks);
    }
    if (st == ST_OK) {
        *tally_out = tally;
    }
    mem_free(samples.ttft);
    mem_free(samples.tpot);
    mem_free(samples.e2el);
    mem_free(samples.itl);
    return st;
}

/* --- options -------------------------------------------------------------------------------- */

enum status
tally_parse_percentiles(const char *text, struct tally_options *options)
{
    size_t n = 0;

    for (const char *at = text;; at++) {
        char *end;
        double value = strtod(at, &end);

        if (end == at || !(value >= 0.0 && value <= 100.0) || n == TALLY_PERCENTILES_MAX
            || (*end != ',' && *end != '\0')) {
            return ERR(ST_INVALID, "percentiles \"%s\": up to %d numbers from 0 to 100", text,
                       TALLY_PERCENTILES_MAX);
        }
        options->percentiles[n++] = value;
        at = end;
        if (*at == '\0') {
            break;
        }
    }
    options->n_percentiles = n;
    return ST_OK;
}

enum status
tally_parse_goodput(const char *text, struct tally_options *options)
{
    const struct {
        const char *name;
        double *value;
    } parts[] = {{"ttft:", &options->good_ttft_ms},
                 {"tpot:", &options->good_tpot_ms},
                 {"e2el:", &options->good_e2el_ms}};

    for (const char *at = text; *at != '\0';) {
        char *end = NULL;

        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            if (strncmp(at, parts[i].name, strlen(parts[i].name)) == 0) {
                *parts[i].value = strtod(at + strlen(parts[i].name), &end);
                end = *parts[i].value > 0.0 ? end : NULL;
            }
        }
        if (end == NULL || (*end != ',' && *end != '\0')) {
            return ERR(ST_INVALID, "goodput \"%s\": ttft:MS, tpot:MS, e2el:MS, with commas", text);
        }
        at = *end == ',' ? end + 1 : end;
    }
    return ST_OK;
}

/* --- the block ------------------------------------------------------------------------------ */

#define WIDTH 50

static void
rule(FILE *out, const char *title, char with)
{
    int left = (WIDTH - (int)strlen(title)) / 2;

    for (int i = 0; i < WIDTH; i++) {
        if (i == left) {
            i += fprintf(out, "%s", title);
        }
        if (i < WIDTH) {
            (void)fputc(with, out);
        }
    }
    (void)fputc('\n', out);
}

static void
line(FILE *out, const char *label, double value, int digits)
{
    (void)fprintf(out, "%-40s %-10.*f\n", label, digits, value);
}

static void
print_metric(FILE *out, const char *title, const char *name, const struct metric *metric,
             const struct tally_options *options)
{
    char label[40];

    rule(out, title, '-');
    (void)snprintf(label, sizeof(label), "Mean %s (ms):", name);
    line(out, label, metric->mean, 2);
    (void)snprintf(label, sizeof(label), "Median %s (ms):", name);
    line(out, label, metric->median, 2);
    (void)snprintf(label, sizeof(label), "Std %s (ms):", name);
    line(out, label, metric->std, 2);
    for (size_t i = 0; i < options->n_percentiles; i++) {
        (void)snprintf(label, sizeof(label), "P%g %s (ms):", options->percentiles[i], name);
        line(out, label, metric->percentiles[i], 2);
    }
}

static double
share(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole;
}

static void
print_reuse(FILE *out, const struct tally *all, const struct tally *cold, const struct tally *warm)
{
    rule(out, "Documents", '-');
    if (all->documents > 0) {
        line(out, "Document hit ratio (%):", share(all->documents_hit, all->documents), 2);
    }
    if (all->with_reuse > 0) {
        line(out, "Token hit ratio (%):", share(all->tokens_reused, all->document_tokens), 2);
    }
    if (all->tokens_copied > 0) {
        line(out,
             "Of them copied for the request (%):", share(all->tokens_copied, all->document_tokens),
             2);
    }
    line(out, "Cold requests:", (double)cold->completed, 0);
    line(out, "Median TTFT of cold ones (ms):", cold->ttft.median, 2);
    line(out, "Warm requests:", (double)warm->completed, 0);
    line(out, "Median TTFT of warm ones (ms):", warm->ttft.median, 2);
}

static bool
has_goodput(const struct tally_options *options)
{
    return options->good_ttft_ms > 0 || options->good_tpot_ms > 0 || options->good_e2el_ms > 0;
}

void
tally_print(FILE *out, const char *name, const struct tally *all, const struct tally *cold,
            const struct tally *warm, const struct tally_options *options, double seconds)
{
    char title[80];

    (void)snprintf(title, sizeof(title), " Serving Benchmark Result: %s ", name);
    rule(out, title, '=');
    line(out, "Successful requests:", (double)all->completed, 0);
    line(out, "Failed requests:", (double)all->failed, 0);
    if (options->concurrency > 0) {
        line(out, "Maximum request concurrency:", options->concurrency, 0);
    }
    if (options->rate > 0) {
        line(out, "Request rate configured (RPS):", options->rate, 2);
    }
    line(out, "Benchmark duration (s):", seconds, 2);
    line(out, "Total input tokens:", (double)all->input_tokens, 0);
    line(out, "Total generated tokens:", (double)all->output_tokens, 0);
    line(out, "Request throughput (req/s):", (double)all->completed / seconds, 2);
    if (has_goodput(options)) {
        line(out, "Request goodput (req/s):", (double)all->good / seconds, 2);
    }
    line(out, "Output token throughput (tok/s):", (double)all->output_tokens / seconds, 2);
    line(out, "Peak output token throughput (tok/s):", (double)all->peaks.outputs_per_s, 2);
    line(out, "Peak concurrent requests:", (double)all->peaks.requests, 2);
    line(out, "Total token throughput (tok/s):",
         (double)(all->input_tokens + all->output_tokens) / seconds, 2);
    line(out, "Latest start after its time (ms):", all->late_ms_max, 2);
    print_metric(out, "Time to First Token", "TTFT", &all->ttft, options);
    print_metric(out, "Time per Output Token (excl. 1st token)", "TPOT", &all->tpot, options);
    print_metric(out, "Inter-token Latency", "ITL", &all->itl, options);
    print_metric(out, "End-to-end Latency", "E2EL", &all->e2el, options);
    print_reuse(out, all, cold, warm);
    rule(out, "", '=');
}

/* --- JSON ----------------------------------------------------------------------------------- */

static void
put(struct json_object *object, const char *key, double value)
{
    (void)json_object_object_add(object, key, json_object_new_double(value));
}

static void
put_count(struct json_object *object, const char *key, uint64_t value)
{
    (void)json_object_object_add(object, key, json_object_new_int64((int64_t)value));
}

static void
metric_to_json(struct json_object *object, const char *name, const struct metric *metric,
               const struct tally_options *options)
{
    char key[40];

    (void)snprintf(key, sizeof(key), "mean_%s_ms", name);
    put(object, key, metric->mean);
    (void)snprintf(key, sizeof(key), "median_%s_ms", name);
    put(object, key, metric->median);
    (void)snprintf(key, sizeof(key), "std_%s_ms", name);
    put(object, key, metric->std);
    for (size_t i = 0; i < options->n_percentiles; i++) {
        (void)snprintf(key, sizeof(key), "p%g_%s_ms", options->percentiles[i], name);
        put(object, key, metric->percentiles[i]);
    }
}

void
tally_to_json(struct json_object *object, const struct tally *tally,
              const struct tally_options *options, double seconds)
{
    put_count(object, "completed", tally->completed);
    put_count(object, "failed", tally->failed);
    put_count(object, "total_input_tokens", tally->input_tokens);
    put_count(object, "total_output_tokens", tally->output_tokens);
    if (seconds > 0.0) {
        put(object, "duration", seconds);
        put(object, "request_throughput", (double)tally->completed / seconds);
        (void)json_object_object_add(
            object, "request_goodput",
            has_goodput(options) ? json_object_new_double((double)tally->good / seconds) : NULL);
        put(object, "output_throughput", (double)tally->output_tokens / seconds);
        put(object, "total_token_throughput",
            (double)(tally->input_tokens + tally->output_tokens) / seconds);
        put(object, "max_output_tokens_per_s", (double)tally->peaks.outputs_per_s);
        put_count(object, "max_concurrent_requests", tally->peaks.requests);
        put(object, "latest_start_ms", tally->late_ms_max);
    }
    metric_to_json(object, "ttft", &tally->ttft, options);
    metric_to_json(object, "tpot", &tally->tpot, options);
    metric_to_json(object, "itl", &tally->itl, options);
    metric_to_json(object, "e2el", &tally->e2el, options);
    if (tally->with_reuse > 0) {
        put(object, "document_hit_ratio", share(tally->documents_hit, tally->documents) / 100.0);
        put(object, "token_hit_ratio", share(tally->tokens_reused, tally->document_tokens) / 100.0);
        put_count(object, "documents", tally->documents);
        put_count(object, "documents_hit", tally->documents_hit);
        put_count(object, "document_tokens", tally->document_tokens);
        put_count(object, "tokens_reused", tally->tokens_reused);
        put_count(object, "tokens_copied", tally->tokens_copied);
    }
}
