/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_text - Prometheus' text format, for the two files that write it. */
#ifndef GATEWAY_METRICS_TEXT_H
#define GATEWAY_METRICS_TEXT_H

#include "gateway/text.h"
#include "kvasir/v1/admin.pb-c.h"

/* What is known of all rows of one name. */
struct family {
    const char *prefix; /* "kvasir_" */
    const char *name;
    const char *suffix; /* "_total" */
    const char *help;   /* NULL, "": the name */
    const char *type;
};

void metrics_head(struct text *out, const struct family *family);
void metrics_escaped(struct text *out, const char *value, bool is_label);

/* Labels in braces: `fixed` as text, then `labels`, then `le` if it is not NULL. */
void metrics_labels(struct text *out, const char *fixed, Kvasir__V1__CounterLabel *const *labels,
                    size_t count, const char *le);

/* One histogram. */
struct series {
    const char *prefix;
    const char *name;
    const char *fixed; /* labels as text, or "" */
    Kvasir__V1__CounterLabel *const *labels;
    size_t label_count;
    const double *bounds;
    size_t bound_count;
    const uint64_t *counts; /* [bound_count + 1] */
    double sum;
};

void metrics_series(struct text *out, const struct series *series);

/* metrics_vllm.c: the daemon's numbers under the names that dashboards and routers made for vLLM
 * look for. */
void metrics_vllm(const Kvasir__V1__StatsReply *stats, const char *model, struct text *out);

#endif
