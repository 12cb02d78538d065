/* SPDX-License-Identifier: Apache-2.0 */
/* trace - when a request passed each point on its way to the first token.
 *
 * A few clock readings a request, always taken; they come with the last reply (Trace in rag.proto).
 * What a request passes twice, because it was preempted or its worker died, counts the last time.
 */
#ifndef DAEMON_TRACE_H
#define DAEMON_TRACE_H

#include "daemon/calls.h"

#include "kvasir/v1/rag.pb-c.h"
#include "kvasir/v1/worker.pb-c.h"

/* The Assign of a request is about to be sent. */
void trace_assigned(const struct calls *calls, uint64_t request);

/* A worker's message about a step has come; before its tokens are sent on. */
void trace_step(const struct calls *calls, const Kvasir__V1__Step *step);

/* A token of the call is sent. */
void trace_sent(struct call *call);

void trace_fill(const struct call *call, Kvasir__V1__Trace *wire);

#endif
