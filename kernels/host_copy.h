/* SPDX-License-Identifier: Apache-2.0 */
/* host_copy - what a step takes from the host's memory and gives back, copied by a kernel.
 *
 * A copy engine does one copy after the other, those of all streams: a step's inputs, twenty copies
 * of some hundred bytes, each waited for a block of the host tier (worker/copier_cuda.c, 4 MiB), up
 * to a millisecond a step in all, and its results likewise.  A kernel reads and writes pinned
 * memory itself, whoever uses the link beside it, and does all parts at once.
 *
 * Bound by latency: 2 us of a read over the link, as many of a launch.  Split: a CTA for 4 KiB of a
 * part, 16 bytes a thread. */
#ifndef KERNELS_HOST_COPY_H
#define KERNELS_HOST_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HOST_COPY_PARTS_MAX 24
#define HOST_COPY_BYTES_MAX ((size_t)1 << 20) /* of a part: more is the copy engines' work */

/* One side is pinned memory of the host, the other the device's. */
struct host_copy_part {
    void *to;
    const void *from;
    size_t bytes; /* a multiple of 4, as both addresses */
};

struct host_copies {
    struct host_copy_part parts[HOST_COPY_PARTS_MAX];
    uint32_t n;
};

/* Whether a part may have this side at the host: pinned, of a size and place that fit. */
bool host_copy_serves(const void *host, const void *device, size_t bytes);

/* Adds a part, of no bytes perhaps; sends those before it first if there is no room, or it must
 * come after one of them. */
enum status host_copies_add(struct host_copies *copies, void *to, const void *from, size_t bytes,
                            void *stream);

/* Enqueues all parts on `stream` (a cudaStream_t) and forgets them.  The host's memory is read or
 * written until that was done. */
enum status host_copies_send(struct host_copies *copies, void *stream);

#ifdef __cplusplus
}
#endif
#endif
