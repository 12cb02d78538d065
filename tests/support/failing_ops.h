/* SPDX-License-Identifier: Apache-2.0 */
/* failing_ops - a device that breaks: from some wait on, everything that waits fails.
 *
 * As a CUDA error that cannot be cleared does: the call that meets it is named, and so is every
 * later one.  One instance a process. */
#ifndef TESTS_SUPPORT_FAILING_OPS_H
#define TESTS_SUPPORT_FAILING_OPS_H

#include "kernels/ops.h"

/* The detail of the status, as CU_TRY writes it: the call, then the error's name. */
#define FAILING_OPS_DETAIL "cudaStreamSynchronize(stream): cudaErrorIllegalAddress"

/* `calls` calls of ops->finish and ops->wait go well; 0: none. */
void failing_ops_break(struct ops *ops, uint32_t calls);

/* What would fail sends this process the signal instead, once; all goes well if it lives on. */
void failing_ops_raise(int signo);

/* What would fail first waits, once, until somebody opens the FIFO to write: what went before has
 * all the time that it takes to reach others.  The path stays the caller's, valid all the while. */
void failing_ops_hold(const char *fifo);

#endif
