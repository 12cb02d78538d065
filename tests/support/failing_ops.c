/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/failing_ops.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static uint32_t calls_left;
static int signal_instead;     /* 0: none */
static const char *hold_until; /* a FIFO; NULL: nothing holds it */

/* Opening a FIFO to read blocks until somebody opens it to write. */
static void
wait_for_writer(const char *fifo)
{
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Only the CPU's instance breaks: its waits have nothing to wait for. */
static enum status
failing_wait(const struct ops *ops)
{
    (void)ops;
    if (calls_left == 0 && hold_until != NULL) {
        wait_for_writer(hold_until);
        hold_until = NULL;
    }
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

void
failing_ops_hold(const char *fifo)
{
    hold_until = fifo;
}
