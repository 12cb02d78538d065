/* SPDX-License-Identifier: Apache-2.0 */
/* metrics - the gateway's own numbers, and all numbers as Prometheus reads them.
 *
 * Names of the daemon's counters become kvasir_NAME_total, gauges kvasir_NAME; what is counted here
 * is kvasir_http_*.  With vLLM's names switched on the same numbers are told a second time. */
#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/histogram.h"
#include "gateway/text.h"
#include "kvasir/v1/admin.pb-c.h"

#define METRICS_ROUTES_MAX 32
#define METRICS_CODES_MAX  16

struct metrics_route {
    const char *name;
    unsigned codes[METRICS_CODES_MAX];
    uint64_t counts[METRICS_CODES_MAX]; /* of the code beside it; unused: code 0 */
    struct histogram seconds;
};

struct metrics {
    pthread_mutex_t lock;
    struct metrics_route routes[METRICS_ROUTES_MAX];
    unsigned route_count;
    uint64_t unknown_fields, client_aborts, auth_failures, streams, connections;
    uint64_t connections_open; /* a gauge */
};

void metrics_init(struct metrics *metrics);
void metrics_deinit(struct metrics *metrics);

/* A request ended; `route` is a name for ever, code 499: its client went first. */
void metrics_request(struct metrics *metrics, const char *route, unsigned code, double seconds);

/* Adds to one of the fields above. */
void metrics_add(struct metrics *metrics, uint64_t *field, uint64_t count);
void metrics_subtract(struct metrics *metrics, uint64_t *field, uint64_t count);

/* `stats` may be NULL: the daemon does not answer. `requests_open` is a gauge of the server,
 * `model` what vLLM's names call it. */
void metrics_render(struct metrics *metrics, const Kvasir__V1__StatsReply *stats,
                    uint64_t requests_open, bool is_vllm, const char *model, struct text *out);

#endif
