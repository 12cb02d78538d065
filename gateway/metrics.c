/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "gateway/metrics_text.h"

void
metrics_init(struct metrics *metrics)
{
    *metrics = (struct metrics){0};
    (void)pthread_mutex_init(&metrics->lock, NULL);
}

void
metrics_deinit(struct metrics *metrics)
{
    (void)pthread_mutex_destroy(&metrics->lock);
}

static struct metrics_route *
find_route(struct metrics *metrics, const char *name)
{
    unsigned i = 0;

    while (i < metrics->route_count && strcmp(metrics->routes[i].name, name) != 0) {
        i++;
    }
    if (i == metrics->route_count && i + 1 < METRICS_ROUTES_MAX) {
        metrics->routes[i].name = name;
        metrics->routes[i].seconds.bounds = &histogram_first_token_s;
        metrics->route_count++;
    }
    return &metrics->routes[i];
}

void
metrics_request(struct metrics *metrics, const char *name, unsigned code, double seconds)
{
    (void)pthread_mutex_lock(&metrics->lock);
    struct metrics_route *route = find_route(metrics, name);
    unsigned i = 0;

    while (i + 1 < METRICS_CODES_MAX && route->codes[i] != 0 && route->codes[i] != code) {
        i++;
    }
    route->codes[i] = code;
    route->counts[i]++;
    histogram_add(&route->seconds, seconds);
    (void)pthread_mutex_unlock(&metrics->lock);
}

void
metrics_add(struct metrics *metrics, uint64_t *field, uint64_t count)
{
    (void)pthread_mutex_lock(&metrics->lock);
    *field += count;
    (void)pthread_mutex_unlock(&metrics->lock);
}

void
metrics_subtract(struct metrics *metrics, uint64_t *field, uint64_t count)
{
    (void)pthread_mutex_lock(&metrics->lock);
    *field -= count;
    (void)pthread_mutex_unlock(&metrics->lock);
}

/* ---- the format ------------------------------------------------------------------------------ */

void
metrics_escaped(struct text *out, const char *value, bool is_label)
{
    for (; *value != '\0'; value++) {
        if (*value == '\\') {
            text_add(out, "\\\\");
        } else if (*value == '\n') {
            text_add(out, "\\n");
        } else if (is_label && *value == '"') {
            text_add(out, "\\\"");
        } else {
            text_append(out, value, 1);
        }
    }
}

void
metrics_head(struct text *out, const struct family *family)
{
    text_format(out, "# HELP %s%s%s ", family->prefix, family->name, family->suffix);
    metrics_escaped(
        out, family->help == NULL || family->help[0] == '\0' ? family->name : family->help, false);
    text_format(out, "\n# TYPE %s%s%s %s\n", family->prefix, family->name, family->suffix,
                family->type);
}

void
metrics_labels(struct text *out, const char *fixed, Kvasir__V1__CounterLabel *const *labels,
               size_t count, const char *le)
{
    const char *separator = "{";

    if (fixed[0] != '\0') {
        text_format(out, "{%s", fixed);
        separator = ",";
    }
    for (size_t i = 0; i < count; i++) {
        text_format(out, "%s%s=\"", separator, labels[i]->name == NULL ? "?" : labels[i]->name);
        metrics_escaped(out, labels[i]->value == NULL ? "" : labels[i]->value, true);
        text_add(out, "\"");
        separator = ",";
    }
    if (le != NULL) {
        text_format(out, "%sle=\"%s\"", separator, le);
        separator = ",";
    }
    if (separator[0] == ',') {
        text_add(out, "}");
    }
}

/* ---- what the daemon counts ------------------------------------------------------------------ */

/* The daemon's name as Prometheus has it: what differs in a reason only is one family, "_count"
 * belongs to histograms, times are in seconds, and a maximum is no counter. */
struct name {
    const char *name;
    const char *reason; /* NULL: none */
    bool is_maximum;
    bool is_us; /* to be told in seconds */
};

static const struct {
    const char *here, *there;
    bool is_us;
} renamed[] = {
    {"block_count", "blocks", false},
    {"host_block_count", "host_blocks_room", false},
    {"host_us_in", "host_copy_in_seconds", true},
    {"host_us_out", "host_copy_out_seconds", true},
};

static struct name
family_of(const char *name)
{
    static const char misses[] = "doc_misses_";
    size_t length;

    name = name == NULL ? "?" : name;
    length = strlen(name);
    if (strncmp(name, misses, sizeof(misses) - 1) == 0) {
        return (struct name){.name = "doc_misses", .reason = name + sizeof(misses) - 1};
    }
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++) {
        if (strcmp(renamed[i].here, name) == 0) {
            return (struct name){.name = renamed[i].there, .is_us = renamed[i].is_us};
        }
    }
    return (struct name){
        .name = name,
        .is_maximum = length > 4 && strcmp(name + length - 4, "_max") == 0,
    };
}

/* Rows of one name stand together; the first one's help is the family's. */
static bool
is_first(Kvasir__V1__Counter *const *rows, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(family_of(rows[i]->name).name, family_of(rows[index]->name).name) == 0) {
            return false;
        }
    }
    return true;
}

static void
add_rows(struct text *out, Kvasir__V1__Counter *const *rows, size_t count, const char *name,
         const char *suffix)
{
    for (size_t i = 0; i < count; i++) {
        struct name own = family_of(rows[i]->name);

        if (strcmp(own.name, name) != 0) {
            continue;
        }
        text_format(out, "kvasir_%s%s", name, suffix);
        if (own.reason != NULL) {
            text_format(out, "{reason=\"%s\"}", own.reason);
        } else {
            metrics_labels(out, "", rows[i]->labels, rows[i]->n_labels, NULL);
        }
        if (own.is_us) {
            text_format(out, " %.6f\n", (double)rows[i]->value / 1e6);
        } else {
            text_format(out, " %" PRIu64 "\n", rows[i]->value);
        }
    }
}

static void
add_counters(struct text *out, Kvasir__V1__Counter *const *rows, size_t count, bool is_counter)
{
    for (size_t i = 0; i < count; i++) {
        struct name own = family_of(rows[i]->name);
        bool is_total = is_counter && !own.is_maximum;
        const char *suffix = is_total ? "_total" : "";

        if (!is_first(rows, i)) {
            continue;
        }
        metrics_head(out, &(struct family){"kvasir_", own.name, suffix,
                                           own.reason != NULL ? "documents not found whole, by why"
                                                              : rows[i]->help,
                                           is_total ? "counter" : "gauge"});
        add_rows(out, rows, count, own.name, suffix);
    }
}

void
metrics_series(struct text *out, const struct series *s)
{
    uint64_t total = 0;
    struct text le = {0};

    for (size_t i = 0; i <= s->bound_count; i++) {
        total += s->counts[i];
        le.length = 0;
        if (i < s->bound_count) {
            text_format(&le, "%.12g", s->bounds[i]);
        } else {
            text_add(&le, "+Inf");
        }
        text_append(&le, "", 1);
        text_format(out, "%s%s_bucket", s->prefix, s->name);
        metrics_labels(out, s->fixed, s->labels, s->label_count, le.has_failed ? "?" : le.bytes);
        text_format(out, " %" PRIu64 "\n", total);
    }
    text_format(out, "%s%s_sum", s->prefix, s->name);
    metrics_labels(out, s->fixed, s->labels, s->label_count, NULL);
    text_format(out, " %.12g\n%s%s_count", s->sum, s->prefix, s->name);
    metrics_labels(out, s->fixed, s->labels, s->label_count, NULL);
    text_format(out, " %" PRIu64 "\n", total);
    text_deinit(&le);
}

static void
add_histograms(struct text *out, Kvasir__V1__Histogram *const *rows, size_t count)
{
    const char *last = "";

    for (size_t i = 0; i < count; i++) {
        const Kvasir__V1__Histogram *h = rows[i];

        if (h->name == NULL || h->n_counts != h->n_bounds + 1) {
            continue;
        }
        if (strcmp(h->name, last) != 0) {
            metrics_head(out, &(struct family){"kvasir_", h->name, "", h->help, "histogram"});
            last = h->name;
        }
        metrics_series(out, &(struct series){"kvasir_", h->name, "", h->labels, h->n_labels,
                                             h->bounds, h->n_bounds, h->counts, h->sum});
    }
}

static void
add_daemon(struct text *out, const Kvasir__V1__StatsReply *stats)
{
    metrics_head(out, &(struct family){"kvasir_", "up", "", "whether kvasird answers", "gauge"});
    text_format(out, "kvasir_up %d\n", stats != NULL);
    if (stats == NULL) {
        return;
    }
    metrics_head(
        out, &(struct family){"kvasir_", "uptime_seconds", "", "since kvasird started", "gauge"});
    text_format(out, "kvasir_uptime_seconds %.3f\n", (double)stats->uptime_ms / 1000);
    metrics_head(out, &(struct family){"kvasir_", "draining", "",
                                       "whether kvasird admits nothing new", "gauge"});
    text_format(out, "kvasir_draining %d\n", stats->is_draining);
    metrics_head(out, &(struct family){"kvasir_", "build_info", "", "what is running", "gauge"});
    text_add(out, "kvasir_build_info{version=\"");
    metrics_escaped(out, stats->version == NULL ? "" : stats->version, true);
    text_add(out, "\"} 1\n");
    add_counters(out, stats->counters, stats->n_counters, true);
    add_counters(out, stats->gauges, stats->n_gauges, false);
    add_histograms(out, stats->histograms, stats->n_histograms);
}

/* ---- what is counted here -------------------------------------------------------------------- */

static void
add_one(struct text *out, const char *name, const char *help, const char *type, uint64_t value)
{
    metrics_head(out, &(struct family){"kvasir_http_", name, "", help, type});
    text_format(out, "kvasir_http_%s %" PRIu64 "\n", name, value);
}

static void
add_routes(struct text *out, const struct metrics *metrics)
{
    metrics_head(out, &(struct family){"kvasir_http_", "requests", "_total",
                                       "requests by route and status; 499: the client went first",
                                       "counter"});
    for (unsigned i = 0; i < metrics->route_count; i++) {
        const struct metrics_route *route = &metrics->routes[i];

        for (unsigned j = 0; j < METRICS_CODES_MAX && route->codes[j] != 0; j++) {
            text_format(out, "kvasir_http_requests_total{route=\"%s\",code=\"%u\"} %" PRIu64 "\n",
                        route->name, route->codes[j], route->counts[j]);
        }
    }
    metrics_head(out, &(struct family){"kvasir_http_", "request_duration_seconds", "",
                                       "from the first header to the last byte", "histogram"});
    for (unsigned i = 0; i < metrics->route_count; i++) {
        const struct metrics_route *route = &metrics->routes[i];
        struct text labels = {0};

        text_format(&labels, "route=\"%s\"", route->name);
        metrics_series(out,
                       &(struct series){"kvasir_http_", "request_duration_seconds",
                                        labels.has_failed ? "" : labels.bytes, NULL, 0,
                                        route->seconds.bounds->values, route->seconds.bounds->count,
                                        route->seconds.counts, route->seconds.sum});
        text_deinit(&labels);
    }
}

void
metrics_render(struct metrics *metrics, const Kvasir__V1__StatsReply *stats, uint64_t requests_open,
               bool is_vllm, const char *model, struct text *out)
{
    add_daemon(out, stats);
    if (is_vllm && stats != NULL) {
        metrics_vllm(stats, model, out);
    }
    (void)pthread_mutex_lock(&metrics->lock);
    add_routes(out, metrics);
    add_one(out, "requests_open", "requests without an end yet", "gauge", requests_open);
    add_one(out, "connections_open", "connections of clients", "gauge", metrics->connections_open);
    add_one(out, "connections_total", "connections of clients, ever", "counter",
            metrics->connections);
    add_one(out, "streams_total", "answers sent as events", "counter", metrics->streams);
    add_one(out, "client_aborts_total", "requests whose client went first", "counter",
            metrics->client_aborts);
    add_one(out, "auth_failures_total", "requests without a key that is known", "counter",
            metrics->auth_failures);
    add_one(out, "unknown_fields_total", "fields of requests that are not known, and ignored",
            "counter", metrics->unknown_fields);
    (void)pthread_mutex_unlock(&metrics->lock);
}
