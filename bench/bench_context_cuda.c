/* SPDX-License-Identifier: Apache-2.0 */
/* What an empty CUDA program takes until it has its context, from the start of its process: prints
 * milliseconds.  The floor of a worker's start. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>

int
main(void)
{
    struct timespec now;
    FILE *stat = fopen("/proc/self/stat", "r");
    unsigned long long ticks = 0;
    long hertz = sysconf(_SC_CLK_TCK);

    /* Field 22: when this process started, in ticks since the machine did. */
    if (stat == NULL
        || fscanf(stat,
                  "%*d %*s %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                  " %*s %*s %*s %llu",
                  &ticks)
               != 1) {
        return EXIT_FAILURE;
    }
    (void)fclose(stat);
    cudaError_t error = cudaFree(NULL);

    if (error != cudaSuccess || clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
        (void)fprintf(stderr, "bench_context_cuda: %s\n", cudaGetErrorString(error));
        return EXIT_FAILURE;
    }
    printf("%lld\n", (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000
                         - (long long)(ticks * 1000 / (unsigned long long)hertz));
    return EXIT_SUCCESS;
}
