/* SPDX-License-Identifier: Apache-2.0 */
/* ctl - what the commands of kvasirctl share, and the commands themselves, a file a subject. */
#ifndef CLIENT_CTL_H
#define CLIENT_CTL_H

#include "client/cli.h"
#include "client/table.h"
#include "kvasir/v1/admin.pb-c.h"

/* A command line that is wrong: says so; the exit code. */
int ctl_bad_input(const struct cli_args *args);

const ProtobufCFieldDescriptor *ctl_field(const ProtobufCMessage *message, const char *name);

/* How tables are to look. */
struct table_style ctl_style(const struct cli_args *args);

/* The rows of a reply's repeated field as a table; -o chooses other columns. */
int ctl_print_rows(const struct cli_args *args, const ProtobufCMessage *reply,
                   const char *field_name, const char *columns);

/* Asks on a terminal before something is lost; a script means what it says. */
bool ctl_is_confirmed(const struct cli_args *args, const char *what);

/* One call whose reply is only printed with --json. */
int ctl_act(const struct cli_args *args, enum method_id method, const ProtobufCMessage *request);

/* Prints a reply for people; may make further calls. */
typedef int (*ctl_print_fn)(const struct cli_args *args, struct rpc *rpc,
                            const ProtobufCMessage *reply);

/* A call whose reply is shown: as a JSON object or by `print`, again and again with --watch. */
int ctl_view(const struct cli_args *args, struct rpc_call call, ctl_print_fn print);

#define CTL_POINT_COLUMNS "policy,kv_memory,hit_ratio,ttft_ms,is_running,uncertain"

/* A gauge or counter by its name; 0 if there is none. */
uint64_t ctl_number(const Kvasir__V1__StatsReply *stats, const char *name);

/* ctl_stats.c */
int ctl_run_stats(const struct cli_args *args);
int ctl_run_status(const struct cli_args *args);
int ctl_run_health(const struct cli_args *args);
int ctl_run_health_detail(const struct cli_args *args);

/* ctl_top.c */
int ctl_run_top(const struct cli_args *args);

/* ctl_explain.c */
int ctl_run_explain(const struct cli_args *args);
int ctl_run_requests_trace(const struct cli_args *args);

/* ctl_config.c */
int ctl_run_config_show(const struct cli_args *args);
int ctl_run_config_check(const struct cli_args *args);
int ctl_run_config_reload(const struct cli_args *args);

/* ctl_events.c */
int ctl_run_events(const struct cli_args *args);

/* ctl_bench.c */
int ctl_run_bench(const struct cli_args *args);

#endif
