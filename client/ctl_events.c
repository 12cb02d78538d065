/* SPDX-License-Identifier: Apache-2.0 */
/* What happens, as it happens. */
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "client/ctl.h"
#include "client/pbjson.h"
#include "proto/endpoints.h"

static struct rpc *listening; /* for the signal handler */

static void
on_signal(int number)
{
    (void)number;
    rpc_cancel(listening);
}

static bool
on_event(void *opaque, const ProtobufCMessage *reply)
{
    const struct cli_args *args = opaque;
    const Kvasir__V1__Event *event = (const void *)reply;
    time_t seconds = (time_t)(event->time_us / 1000000);
    char text[32] = "";
    struct tm local;

    if (!event->has_time_us) {
        return true; /* the last reply is empty */
    }
    if (cli_has(args, "json")) {
        pbjson_print(stdout, CLI_SCHEMA, reply);
    } else {
        if (localtime_r(&seconds, &local) != NULL) {
            (void)strftime(text, sizeof(text), "%H:%M:%S", &local);
        }
        printf("%s.%03u %-5s %s %s\n", text, (unsigned)(event->time_us / 1000 % 1000),
               event->level == NULL ? "" : event->level, event->event == NULL ? "" : event->event,
               event->detail == NULL ? "" : event->detail);
    }
    return fflush(stdout) == 0;
}

/* Listens until somebody interrupts, or --timeout is over: then all is as it was asked for. */
static int
listen_to(const struct cli_args *args, struct rpc *rpc)
{
    Kvasir__V1__EventsRequest request = KVASIR__V1__EVENTS_REQUEST__INIT;
    struct sigaction action = {.sa_handler = on_signal};
    struct rpc_call call = {.method = METHOD_EVENTS,
                            .request = &request.base,
                            .on_reply = on_event,
                            .opaque = (void *)(uintptr_t)args};
    enum rpc_code code;

    request.level = (char *)(uintptr_t)cli_value(args, "level");
    request.has_with_documents = request.with_documents = cli_has(args, "documents");
    if (cli_duration_ms(args, "timeout", &call.timeout_ms) != ST_OK) {
        return ctl_bad_input(args);
    }
    listening = rpc;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    code = rpc_call(rpc, &call, NULL);
    return code == RPC_OK || code == RPC_CANCELLED || code == RPC_DEADLINE_EXCEEDED
               ? CLI_OK
               : cli_fail_call(args, rpc, code);
}

int
ctl_run_events(const struct cli_args *args)
{
    struct rpc *rpc = NULL;
    enum status st = cli_connect(args, ENDPOINT_ADMIN, &rpc);
    int code = st != ST_OK ? cli_fail(args, st) : listen_to(args, rpc);

    rpc_close(&rpc);
    return code;
}
