/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/failing_ops.h"

#include <signal.h>

static enum status (*real_finish)(const struct ops *);
static uint32_t calls_left;
static int signal_instead; /* 0: none */

static enum status
failing_finish(const struct ops *ops)
{
    if (calls_left == 0 && signal_instead != 0) {
        (void)raise(signal_instead);
        calls_left = UINT32_MAX;
    }
    if (calls_left == 0) {
        return ERR(ST_DEVICE, "%s", FAILING_OPS_DETAIL);
    }
    calls_left--;
    return real_finish(ops);
}

void
failing_ops_break(struct ops *ops, uint32_t calls)
{
    real_finish = ops->finish;
    calls_left = calls;
    ops->finish = failing_finish;
}

void
failing_ops_raise(int signo)
{
    signal_instead = signo;
}
