/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/failing_ops.h"

#include <signal.h>

static uint32_t calls_left;
static int signal_instead; /* 0: none */

/* Only the CPU's instance breaks: its waits have nothing to wait for. */
static enum status
failing_wait(const struct ops *ops)
{
    (void)ops;
    if (calls_left == 0 && signal_instead != 0) {
        (void)raise(signal_instead);
        calls_left = UINT32_MAX;
    }
    if (calls_left == 0) {
        return ERR(ST_DEVICE, "%s", FAILING_OPS_DETAIL);
    }
    calls_left--;
    return ST_OK;
}

void
failing_ops_break(struct ops *ops, uint32_t calls)
{
    calls_left = calls;
    ops->finish = failing_wait;
    ops->wait = failing_wait;
}

void
failing_ops_raise(int signo)
{
    signal_instead = signo;
}
