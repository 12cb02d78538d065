/* SPDX-License-Identifier: Apache-2.0 */
/* small_disk - a file system of a few megabytes for a test and the programs that it starts, and
 * ways to have it full.
 *
 * It is in a mount namespace of the test's own, so it is gone with the last of them. */
#ifndef TESTS_SUPPORT_SMALL_DISK_H
#define TESTS_SUPPORT_SMALL_DISK_H

#include <stdbool.h>

/* Before any thread is started.  From then on TMPDIR is there, and standard error is a file on it:
 * the log of each program.  False, and nothing has changed: this machine does not allow it; why is
 * printed. */
bool small_disk_mount(void);

/* No block and no inode is left: writing to a file, or making one, is ENOSPC.  Fails the test if
 * that is not so. */
void small_disk_fill(void);

/* There is room again; the log begins anew. */
void small_disk_free(void);

/* Standard error is what it was. */
void small_disk_end(void);

#endif
