/* SPDX-License-Identifier: Apache-2.0 */
/* How things stand: stats, status, health. */
#include <stdio.h>
#include <string.h>

#include "client/ctl.h"
#include "client/pbjson.h"
#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "proto/endpoints.h"

/* A bound and its count a line, without the empty ends. */
static void
print_histogram(const Kvasir__V1__Histogram *histogram)
{
    size_t first = 0, end = histogram->n_counts;

    while (first < end && histogram->counts[first] == 0) {
        first++;
    }
    while (end > first && histogram->counts[end - 1] == 0) {
        end--;
    }
    if (first == end) {
        return;
    }
    printf("\n%s: %s\n", histogram->name, histogram->help);
    for (size_t i = first; i < end; i++) {
        if (i < histogram->n_bounds) {
            printf("  <= %g: %llu\n", histogram->bounds[i],
                   (unsigned long long)histogram->counts[i]);
        } else {
            printf("  more: %llu\n", (unsigned long long)histogram->counts[i]);
        }
    }
}

static int
print_traffic(const struct cli_args *args, const Kvasir__V1__Traffic *traffic)
{
    printf("\nThe last %llu requests cited %llu documents, %.1f%% of the tokens only once.\n",
           (unsigned long long)traffic->requests, (unsigned long long)traffic->documents,
           100 * traffic->one_time_share);
    printf("hit      %.1f%% of the document tokens; a prefix cache: %.1f%%\n",
           100 * traffic->hit_ratio, 100 * traffic->prefix_hit_ratio);
    if (traffic->has_alpha) {
        printf("alpha    %.2f (Zipf)\n", traffic->alpha);
    }
    printf("drift    %.0f%% of the traffic\n", 100 * traffic->drift);
    printf("computed %llu s ago, %.2f%% of a core\n\n",
           (unsigned long long)(traffic->age_ms / 1000), 100 * traffic->cpu_share);
    return ctl_print_rows(args, &traffic->base, "curve", CTL_POINT_COLUMNS);
}

static int
print_stats(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    const Kvasir__V1__StatsReply *stats = (const void *)reply;
    int code = ctl_print_rows(args, reply, "gauges", "name,value,help");

    if (code == CLI_OK) {
        code = ctl_print_rows(args, reply, "counters", "name,value,help");
    }
    if (code == CLI_OK && !cli_has(args, "columns")) {
        for (size_t i = 0; i < stats->n_histograms; i++) {
            print_histogram(stats->histograms[i]);
        }
        code = stats->traffic == NULL ? CLI_OK : print_traffic(args, stats->traffic);
    }
    return code;
}

int
ctl_run_stats(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_STATS}, print_stats);
}

static int
print_health(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply;
    char status[PBJSON_CELL_BYTES];

    (void)args;
    (void)rpc;
    pbjson_cell(reply, ctl_field(reply, "status"), status);
    printf("%s%s%s\n", status, health->detail == NULL ? "" : ": ",
           health->detail == NULL ? "" : health->detail);
    return CLI_OK;
}

int
ctl_run_health(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_HEALTH}, print_health);
}

static void
print_uptime(uint64_t ms)
{
    uint64_t s = ms / 1000;

    if (s >= 3600) {
        printf("%llu h %llu min\n", (unsigned long long)(s / 3600),
               (unsigned long long)(s % 3600 / 60));
    } else {
        printf("%llu min %llu s\n", (unsigned long long)(s / 60), (unsigned long long)(s % 60));
    }
}

/* One screen: who serves what, the pool's gauges, the workers. */
static int
print_status(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__StatsReply *stats = (const void *)reply;
    const ProtobufCMessage *workers;

    printf("kvasird  %s%s\nmodel    %s\nup       ", stats->version == NULL ? "?" : stats->version,
           stats->is_draining ? ", draining" : "", stats->model == NULL ? "?" : stats->model);
    print_uptime(stats->uptime_ms);
    for (size_t i = 0; i < stats->n_gauges; i++) {
        printf("%s%s %llu",
               i == 0       ? "gauges   "
               : i % 4 == 0 ? "\n         "
                            : ", ",
               stats->gauges[i]->name, (unsigned long long)stats->gauges[i]->value);
    }
    printf("%s\n", stats->n_gauges > 0 ? "\n" : "");
    int code = cli_call(args, rpc, (struct rpc_call){.method = METHOD_WORKERS}, &workers);

    return code != CLI_OK ? code
                          : ctl_print_rows(args, workers, "workers",
                                           "worker,state,device,running,credit,heartbeat_age_ms");
}

int
ctl_run_status(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_STATS}, print_status);
}

/* ---- health in detail ------------------------------------------------------------------------ */

/* What is looked at: a number of Stats that should be 0, or a state of workers. */
struct check {
    const char *code;
    const char *number; /* of a gauge or counter */
    const char *text;
};

static const struct check checks[] = {
    {"DOCUMENTS_IN_QUARANTINE", "docs_in_quarantine",
     "documents are refused because workers died of them: kvasirctl docs"},
    {"DOCUMENTS_DAMAGED", "docs_damaged",
     "documents whose memory was not what had been written; look at the machine's ECC counters"},
    {"BLOCKS_FENCED", "blocks_quarantined",
     "blocks wait for the end of a worker's process: kvasirctl workers"},
    {"REQUESTS_STARVING", "requests_starving",
     "running requests lack a block: a larger --kv-memory or --reserve-tokens"},
    {"KV_EVENTS_LOST", "kv_events_dropped", "batches of KV events were lost: docs/kv-events.md"},
    {"KV_EVENTS_MISSED", "kv_events_missed",
     "batches of KV events did not reach a slow subscriber"},
};

struct findings {
    const struct cli_args *args;
    size_t count;
    bool is_error;
};

static void
report(struct findings *findings, bool is_error, const char *code, uint64_t number,
       const char *text)
{
    bool is_json = cli_has(findings->args, "json");

    printf(is_json ? "%s{\"severity\":\"%s\",\"code\":\"%s\",\"number\":%llu,\"text\":\"%s\"}"
                   : "%s%-5s %s: %llu %s\n",
           is_json && findings->count > 0 ? "," : "", is_error ? "error" : "warn", code,
           (unsigned long long)number, text);
    findings->count++;
    findings->is_error |= is_error;
}

uint64_t
ctl_number(const Kvasir__V1__StatsReply *stats, const char *name)
{
    for (size_t i = 0; i < stats->n_gauges + stats->n_counters; i++) {
        const Kvasir__V1__Counter *counter =
            i < stats->n_gauges ? stats->gauges[i] : stats->counters[i - stats->n_gauges];

        if (strcmp(counter->name, name) == 0) {
            return counter->value;
        }
    }
    return 0;
}

static void
check_stats(const Kvasir__V1__StatsReply *stats, struct findings *findings)
{
    uint64_t queued = ctl_number(stats, "requests_queued");

    if (stats->is_draining) {
        report(findings, true, "DRAINING", ctl_number(stats, "requests_running"),
               "requests to go; nothing new is admitted");
    }
    if (ctl_number(stats, "workers_ready") == 0) {
        report(findings, true, "NO_WORKER", queued, "requests wait, and no worker is ready");
    }
    if (queued > 0 && ctl_number(stats, "block_count") > 0
        && ctl_number(stats, "blocks_free") + ctl_number(stats, "blocks_evictable") == 0) {
        report(findings, false, "POOL_FULL", queued,
               "requests wait while running ones hold the whole pool");
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        uint64_t number = ctl_number(stats, checks[i].number);

        if (number > 0) {
            report(findings, false, checks[i].code, number, checks[i].text);
        }
    }
}

static void
check_workers(const Kvasir__V1__WorkersReply *workers, struct findings *findings)
{
    uint64_t silent = 0, draining = 0;

    for (size_t i = 0; i < workers->n_workers; i++) {
        const char *state = workers->workers[i]->state;

        silent += state != NULL && strcmp(state, "silent") == 0;
        draining += state != NULL && strcmp(state, "draining") == 0;
    }
    if (silent > 0) {
        report(findings, false, "WORKER_SILENT", silent,
               "workers hang: end their processes, and their blocks come back");
    }
    if (draining > 0) {
        report(findings, false, "WORKER_DRAINING", draining, "workers get no new requests");
    }
}

/* The replies of one connection live until its next call: so the numbers are looked at in turn. */
static int
look(const struct cli_args *args, struct rpc *rpc, struct findings *findings)
{
    const ProtobufCMessage *reply;
    int code = cli_call(args, rpc, (struct rpc_call){.method = METHOD_STATS}, &reply);

    if (code != CLI_OK) {
        return code;
    }
    if (cli_has(args, "json")) {
        printf("{" CLI_SCHEMA ",\"checks\":[");
    }
    check_stats((const void *)reply, findings);
    code = cli_call(args, rpc, (struct rpc_call){.method = METHOD_WORKERS}, &reply);
    if (code == CLI_OK) {
        check_workers((const void *)reply, findings);
    }
    if (cli_has(args, "json")) {
        printf("],\"status\":\"%s\"}\n", findings->is_error    ? "error"
                                         : findings->count > 0 ? "warn"
                                                               : "ok");
    } else if (findings->count == 0) {
        printf("ok\n");
    }
    return code == CLI_OK && findings->is_error ? CLI_FAILURE : code;
}

int
ctl_run_health_detail(const struct cli_args *args)
{
    struct findings findings = {.args = args};
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : look(args, rpc, &findings);

    rpc_close(&rpc);
    return code;
}
