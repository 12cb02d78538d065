/* SPDX-License-Identifier: Apache-2.0 */
/* A live view: what goes through, what the pool holds, who works, which documents pay. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "client/ctl.h"
#include "client/table.h"
#include "kvasir/v1/documents.pb-c.h"
#include "proto/endpoints.h"

#define INTERVAL_MS_DEFAULT 1000
#define INTERVAL_MS_MIN     100
#define DOCUMENTS_SHOWN     10

/* Counters whose rates are shown. */
#define RATES(X)                                                                                   \
    X(requests_submitted)                                                                          \
    X(requests_finished)                                                                           \
    X(completion_tokens)                                                                           \
    X(tokens_built)                                                                                \
    X(tokens_hit)                                                                                  \
    X(tokens_missed)                                                                               \
    X(blocks_evicted)

#define GAUGES(X)                                                                                  \
    X(requests_queued)                                                                             \
    X(requests_running)                                                                            \
    X(workers_ready)                                                                               \
    X(documents)                                                                                   \
    X(block_count)                                                                                 \
    X(blocks_free)                                                                                 \
    X(blocks_docs)                                                                                 \
    X(blocks_own)                                                                                  \
    X(blocks_pinned)                                                                               \
    X(blocks_evictable)

#define FIELD(name) uint64_t name;
struct frame {
    uint64_t uptime_ms;
    RATES(FIELD)
    GAUGES(FIELD)
};
#undef FIELD

static void
read_frame(const Kvasir__V1__StatsReply *stats, struct frame *frame)
{
    frame->uptime_ms = stats->uptime_ms;
#define READ(name) frame->name = ctl_number(stats, #name);
    RATES(READ)
    GAUGES(READ)
#undef READ
}

/* Per second since the frame before; of the first frame since the daemon's start.  A daemon that
 * was started anew counts from 0. */
static double
rate(uint64_t now, uint64_t before, double seconds)
{
    return seconds <= 0 ? 0 : (double)(now < before ? now : now - before) / seconds;
}

static double
seconds_between(const struct frame *now, const struct frame *before)
{
    uint64_t ms =
        now->uptime_ms < before->uptime_ms ? now->uptime_ms : now->uptime_ms - before->uptime_ms;

    return (double)ms / 1000;
}

static double
share(double part, double whole)
{
    return whole <= 0 ? 0 : part / whole;
}

static void
print_json(const struct frame *now, const struct frame *before)
{
    double s = seconds_between(now, before);
    double hit = rate(now->tokens_hit, before->tokens_hit, s);
    double missed = rate(now->tokens_missed, before->tokens_missed, s);

    printf("{" CLI_SCHEMA ",\"interval_s\":%.3f,\"hit_ratio\":%.4f", s, share(hit, hit + missed));
#define RATE(name) printf(",\"" #name "_per_s\":%.2f", rate(now->name, before->name, s));
    RATES(RATE)
#undef RATE
#define GAUGE(name) printf(",\"" #name "\":%llu", (unsigned long long)now->name);
    GAUGES(GAUGE)
#undef GAUGE
    printf("}\n");
}

static void
print_summary(const struct frame *now, const struct frame *before)
{
    double s = seconds_between(now, before);
    double hit = rate(now->tokens_hit, before->tokens_hit, s);
    double missed = rate(now->tokens_missed, before->tokens_missed, s);
    double blocks = (double)now->block_count;

    printf("requests %.1f/s in, %.1f/s done; %llu wait, %llu run on %llu workers\n",
           rate(now->requests_submitted, before->requests_submitted, s),
           rate(now->requests_finished, before->requests_finished, s),
           (unsigned long long)now->requests_queued, (unsigned long long)now->requests_running,
           (unsigned long long)now->workers_ready);
    printf("tokens   %.1f/s drawn, %.1f/s of documents encoded; %.1f%% hit\n",
           rate(now->completion_tokens, before->completion_tokens, s),
           rate(now->tokens_built, before->tokens_built, s), 100 * share(hit, hit + missed));
    printf(
        "pool     %llu documents; blocks: %llu, %.0f%% free, %.0f%% documents (%.0f%% evictable, "
        "%.0f%% pinned), %.0f%% answers; %.1f/s evicted\n\n",
        (unsigned long long)now->documents, (unsigned long long)now->block_count,
        100 * share((double)now->blocks_free, blocks),
        100 * share((double)now->blocks_docs, blocks),
        100 * share((double)now->blocks_evictable, blocks),
        100 * share((double)now->blocks_pinned, blocks),
        100 * share((double)now->blocks_own, blocks),
        rate(now->blocks_evicted, before->blocks_evicted, s));
}

/* One call and its rows under each other. */
static int
print_list(const struct cli_args *args, struct rpc *rpc, struct rpc_call call, const char *field,
           const char *columns)
{
    const ProtobufCMessage *reply;
    int code = cli_call(args, rpc, call, &reply);

    return code == CLI_OK ? ctl_print_rows(args, reply, field, columns) : code;
}

static int
print_frame(const struct cli_args *args, struct rpc *rpc, const struct frame *now,
            const struct frame *before)
{
    Kvasir__V1__ListRequest list = KVASIR__V1__LIST_REQUEST__INIT;
    char order[] = "saved";
    int code;

    if (isatty(STDOUT_FILENO) == 1) {
        printf("\033[H\033[J");
    }
    print_summary(now, before);
    code = print_list(args, rpc, (struct rpc_call){.method = METHOD_WORKERS}, "workers",
                      "worker,state,device,running,credit,docs_built,docs_read,tokens_decoded");
    if (code != CLI_OK) {
        return code;
    }
    printf("\n");
    list.has_limit = true;
    list.limit = DOCUMENTS_SHOWN;
    list.order = order;
    return print_list(args, rpc, (struct rpc_call){.method = METHOD_LIST, .request = &list.base},
                      "documents", "key,state,tokens,references,pins,hits");
}

/* On a terminal again and again, else once, unless --watch says how often. */
static int
watch(const struct cli_args *args, struct rpc *rpc)
{
    uint32_t interval_ms =
        isatty(STDOUT_FILENO) == 1 && !cli_has(args, "json") ? INTERVAL_MS_DEFAULT : 0;
    struct frame before = {0}, now;
    const ProtobufCMessage *reply;
    int code;

    if (cli_duration_ms(args, "watch", &interval_ms) != ST_OK) {
        return ctl_bad_input(args);
    }
    for (;; before = now) {
        code = cli_call(args, rpc, (struct rpc_call){.method = METHOD_STATS}, &reply);
        if (code != CLI_OK) {
            return code;
        }
        read_frame((const void *)reply, &now);
        if (cli_has(args, "json")) {
            print_json(&now, &before);
        } else {
            code = print_frame(args, rpc, &now, &before);
        }
        if (code != CLI_OK || interval_ms == 0 || fflush(stdout) != 0) {
            return code;
        }
        (void)poll(NULL, 0, (int)(interval_ms < INTERVAL_MS_MIN ? INTERVAL_MS_MIN : interval_ms));
    }
}

int
ctl_run_top(const struct cli_args *args)
{
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : watch(args, rpc);

    rpc_close(&rpc);
    return code;
}
