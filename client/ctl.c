/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ctl.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "client/pbjson.h"
#include "client/table.h"
#include "kvasir/v1/health.pb-c.h"
#include "proto/endpoints.h"

#define WATCH_MS_MIN 100

int
ctl_bad_input(const struct cli_args *args)
{
    (void)cli_fail(args, ST_INVALID);
    return CLI_USAGE;
}

const ProtobufCFieldDescriptor *
ctl_field(const ProtobufCMessage *message, const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
}

struct table_style
ctl_style(const struct cli_args *args)
{
    return (struct table_style){
        .has_headers = !cli_has(args, "no-headers"),
        .is_raw = cli_has(args, "raw"),
    };
}

int
ctl_print_rows(const struct cli_args *args, const ProtobufCMessage *reply, const char *field_name,
               const char *columns)
{
    const ProtobufCFieldDescriptor *field = ctl_field(reply, field_name);
    const char *chosen = cli_value(args, "columns");
    ProtobufCMessage *const *rows;
    size_t count = pbjson_repeated(reply, field, &rows);

    if (table_print(field->descriptor, rows, count, chosen == NULL ? columns : chosen,
                    ctl_style(args))
        != ST_OK) {
        return ctl_bad_input(args);
    }
    return CLI_OK;
}

bool
ctl_is_confirmed(const struct cli_args *args, const char *what)
{
    char answer[8];

    if (cli_has(args, "yes") || isatty(STDIN_FILENO) != 1) {
        return true;
    }
    (void)fprintf(stderr, "%s: really %s? [y/N] ", args->cli->program, what);
    if (fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y')) {
        return true;
    }
    (void)fprintf(stderr, "%s: not done\n", args->cli->program);
    return false;
}

int
ctl_act(const struct cli_args *args, enum method_id method, const ProtobufCMessage *request)
{
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code =
        st != ST_OK
            ? cli_fail(args, st)
            : cli_call(args, rpc, (struct rpc_call){.method = method, .request = request}, &reply);

    if (code == CLI_OK && cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    }
    rpc_close(&rpc);
    return code;
}

/* A daemon that is there but does not serve is a failure, with --json too. */
static int
exit_of(const ProtobufCMessage *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply;

    return reply->descriptor == &kvasir__v1__health_reply__descriptor
                   && health->status != KVASIR__V1__SERVING_STATUS__SERVING
               ? CLI_FAILURE
               : CLI_OK;
}

/* Calls, prints, and does so again every --watch seconds. */
static int
view_with(const struct cli_args *args, struct rpc *rpc, struct rpc_call call, ctl_print_fn print)
{
    uint32_t watch_ms = 0;
    const ProtobufCMessage *reply;
    int code;

    if (cli_duration_ms(args, "watch", &watch_ms) != ST_OK) {
        return ctl_bad_input(args);
    }
    for (;;) {
        code = cli_call(args, rpc, call, &reply);
        if (code == CLI_OK && watch_ms != 0 && isatty(STDOUT_FILENO) == 1) {
            printf("\033[H\033[J");
        }
        if (code == CLI_OK && cli_has(args, "json")) {
            pbjson_print(stdout, CLI_SCHEMA, reply);
        } else if (code == CLI_OK) {
            code = print(args, rpc, reply);
        }
        if (code != CLI_OK || watch_ms == 0 || fflush(stdout) != 0) {
            return code != CLI_OK ? code : exit_of(reply);
        }
        (void)poll(NULL, 0, (int)(watch_ms < WATCH_MS_MIN ? WATCH_MS_MIN : watch_ms));
    }
}

int
ctl_view(const struct cli_args *args, struct rpc_call call, ctl_print_fn print)
{
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : view_with(args, rpc, call, print);

    rpc_close(&rpc);
    return code;
}
