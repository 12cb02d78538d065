/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace.h"

#include "common/clock.h"

void
trace_assigned(const struct calls *calls, uint64_t request)
{
    struct call *call = calls_find(calls, request);

    if (call != NULL && call->trace.sent_us == 0) {
        call->trace.assigned_us = clock_now_us();
    }
}

void
trace_step(const struct calls *calls, const Kvasir__V1__Step *step)
{
    uint64_t now_us = clock_now_us();

    for (size_t i = 0; i < step->n_results; i++) {
        struct call *call = calls_find(calls, step->results[i]->request);

        if (call != NULL && call->trace.sent_us == 0) {
            call->trace.heard_us = step->heard_us;
            call->trace.begun_us = step->begun_us;
            call->trace.ended_us = step->ended_us;
            call->trace.returned_us = now_us;
        }
    }
}

void
trace_sent(struct call *call)
{
    if (call->trace.sent_us == 0) {
        call->trace.sent_us = clock_now_us();
    }
}

void
trace_fill(const struct call *call, Kvasir__V1__Trace *wire)
{
    const struct call_trace *trace = &call->trace;

    kvasir__v1__trace__init(wire);
    wire->has_arrived = wire->has_read = wire->has_assigned = wire->has_heard = true;
    wire->has_begun = wire->has_ended = wire->has_returned = wire->has_sent = true;
    wire->arrived = call->arrival_us;
    wire->read = trace->read_us;
    wire->assigned = trace->assigned_us;
    wire->heard = trace->heard_us;
    wire->begun = trace->begun_us;
    wire->ended = trace->ended_us;
    wire->returned = trace->returned_us;
    wire->sent = trace->sent_us;
}
