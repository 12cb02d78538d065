/* SPDX-License-Identifier: Apache-2.0 */
/* What vLLM counts in blocks of a prefix we count in tokens of documents; the ratio says the same.
 * Blocks that only keep documents for later count as free, as vLLM has it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/metrics_text.h"

#define LABEL_BYTES 320

static uint64_t
find(Kvasir__V1__Counter *const *rows, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i]->name != NULL && strcmp(rows[i]->name, name) == 0) {
            return rows[i]->value;
        }
    }
    return 0;
}

static void
add(struct text *out, const char *labels, const char *name, const char *suffix, const char *type,
    uint64_t value)
{
    metrics_head(out, &(struct family){"vllm:", name, suffix, name, type});
    text_format(out, "vllm:%s%s{%s} %" PRIu64 "\n", name, suffix, labels, value);
}

static void
add_gauges(struct text *out, const char *labels, const Kvasir__V1__StatsReply *stats)
{
#define GAUGE(name) find(stats->gauges, stats->n_gauges, name)
    uint64_t blocks = GAUGE("block_count");
    uint64_t unused = GAUGE("blocks_free") + GAUGE("blocks_evictable");
    double usage = blocks == 0 ? 0 : 1 - (double)unused / (double)blocks;

    add(out, labels, "num_requests_running", "", "gauge", GAUGE("requests_running"));
    add(out, labels, "num_requests_waiting", "", "gauge", GAUGE("requests_queued"));
    metrics_head(out, &(struct family){"vllm:", "kv_cache_usage_perc", "",
                                       "share of the blocks that requests hold", "gauge"});
    text_format(out, "vllm:kv_cache_usage_perc{%s} %.6g\n", labels, usage);
    metrics_head(out,
                 &(struct family){"vllm:", "cache_config_info", "", "size of the pool", "gauge"});
    text_format(out,
                "vllm:cache_config_info{%s,block_size=\"%" PRIu64 "\",num_gpu_blocks=\"%" PRIu64
                "\",enable_prefix_caching=\"True\"} 1\n",
                labels, GAUGE("block_tokens"), blocks);
#undef GAUGE
}

static void
add_counters(struct text *out, const char *labels, const Kvasir__V1__StatsReply *stats)
{
#define COUNTER(name) find(stats->counters, stats->n_counters, name)
    add(out, labels, "prompt_tokens", "_total", "counter", COUNTER("prompt_tokens"));
    add(out, labels, "generation_tokens", "_total", "counter", COUNTER("completion_tokens"));
    add(out, labels, "num_preemptions", "_total", "counter", COUNTER("requests_preempted"));
    add(out, labels, "prefix_cache_queries", "_total", "counter",
        COUNTER("tokens_hit") + COUNTER("tokens_missed"));
    add(out, labels, "prefix_cache_hits", "_total", "counter", COUNTER("tokens_hit"));
#undef COUNTER
    metrics_head(out, &(struct family){"vllm:", "request_success", "_total",
                                       "answers by how they ended", "counter"});
    for (size_t i = 0; i < stats->n_counters; i++) {
        const Kvasir__V1__Counter *row = stats->counters[i];

        if (row->name != NULL && strcmp(row->name, "request_success") == 0) {
            text_add(out, "vllm:request_success_total");
            metrics_labels(out, labels, row->labels, row->n_labels, NULL);
            text_format(out, " %" PRIu64 "\n", row->value);
        }
    }
}

/* Histograms that have vLLM's names already; iteration_tokens is a sum there by name, and what it
 * tells of blocks we tell of documents. */
static const char *
name_there(const char *name)
{
    static const struct {
        const char *here, *there;
    } others[] = {
        {"iteration_tokens", "iteration_tokens_total"},
        {"doc_lifetime_seconds", "kv_block_lifetime_seconds"},
        {"doc_idle_before_evict_seconds", "kv_block_idle_before_evict_seconds"},
        {"doc_reuse_gap_seconds", "kv_block_reuse_gap_seconds"},
    };
    static const char *const names[] = {
        "time_to_first_token_seconds",    "inter_token_latency_seconds",
        "e2e_request_latency_seconds",    "request_queue_time_seconds",
        "request_prefill_time_seconds",   "request_decode_time_seconds",
        "request_inference_time_seconds", "request_prompt_tokens",
        "request_generation_tokens",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return names[i];
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(others[i].here, name) == 0) {
            return others[i].there;
        }
    }
    return NULL;
}

void
metrics_vllm(const Kvasir__V1__StatsReply *stats, const char *model, struct text *out)
{
    char labels[LABEL_BYTES];
    struct text name = {0};

    metrics_escaped(&name, model, true);
    (void)snprintf(labels, sizeof(labels), "model_name=\"%.*s\",engine=\"0\"",
                   name.has_failed ? 0 : (int)(name.length < 256 ? name.length : 256),
                   name.bytes == NULL ? "" : name.bytes);
    text_deinit(&name);
    add_gauges(out, labels, stats);
    add_counters(out, labels, stats);
    for (size_t i = 0; i < stats->n_histograms; i++) {
        const Kvasir__V1__Histogram *h = stats->histograms[i];
        const char *there = h->name == NULL ? NULL : name_there(h->name);

        if (there != NULL && h->n_counts == h->n_bounds + 1) {
            metrics_head(out, &(struct family){"vllm:", there, "", h->help, "histogram"});
            metrics_series(out, &(struct series){"vllm:", there, labels, NULL, 0, h->bounds,
                                                 h->n_bounds, h->counts, h->sum});
        }
    }
}
