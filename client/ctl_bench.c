/* SPDX-License-Identifier: Apache-2.0 */
/* `kvasirctl bench`: kvasir-bench, found beside this program or in the PATH. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl.h"

#define BENCH "kvasir-bench"

int
ctl_run_bench(const struct cli_args *args)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - sizeof(BENCH) - 1);
    char *slash = NULL;
    char name[] = BENCH;
    char **argv = args->operands - 1; /* what stands there is our own name, and has been read */

    argv[0] = name;
    if (length > 0) {
        path[length] = '\0';
        slash = strrchr(path, '/');
    }
    if (slash != NULL) {
        memcpy(slash + 1, BENCH, sizeof(BENCH));
        (void)execv(path, argv);
    }
    (void)execvp(name, argv);
    (void)fprintf(stderr, "%s: %s: %s\n", args->cli->program, name, strerror(errno));
    return CLI_FAILURE;
}
