/* SPDX-License-Identifier: Apache-2.0 */
/* offer - the arenas that kvasird keeps, and what it checks before it takes them from a worker. */
#ifndef DAEMON_OFFER_H
#define DAEMON_OFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/datagram.h"

#include "kvasir/v1/worker.pb-c.h"

#define ARENA_MECHANISM_BYTES 16

enum arena_index {
    ARENA_INDEX_KV,
    ARENA_INDEX_WEIGHTS,
    ARENA_INDEX_COUNT,
};

struct arena_held {
    int fd; /* -1: none */
    uint64_t bytes;
    char mechanism[ARENA_MECHANISM_BYTES]; /* "shm", "vmm", "ipc" */
};

/* Both arenas are there or none. */
struct arenas {
    struct arena_held held[ARENA_INDEX_COUNT];
    uint32_t block_count;
    uint64_t block_bytes;
};

#define ARENAS_NONE                                                                                \
    (struct arenas)                                                                                \
    {                                                                                              \
        .held = { {.fd = -1}, {.fd = -1} }                                                         \
    }

bool arenas_are_held(const struct arenas *arenas);
void arenas_close(struct arenas *arenas);

/* Whether their fds keep the memory; those of "ipc" only name it while a process maps it. */
bool arenas_outlive_workers(const struct arenas *arenas);

/* Checks what a worker says after it loaded against our fingerprint, and against the arenas held
 * or, if there are none, the kv_memory that it was told to make (0: a share, no number to hold it
 * to).  ST_INVALID names both sides' values. */
enum status offer_check_pool(const Kvasir__V1__Attached *attached, const uint8_t fingerprint[32],
                             const struct arenas *held, uint64_t kv_memory);

/* The same for arenas that an earlier kvasird took: are their fds still what is said of them? */
enum status offer_check_held(const struct arenas *held);

/* Takes both arenas of an offer whose pool passed the check, with their fds out of the datagram.
 * On failure nothing is taken: all fds are in the datagram or closed. */
enum status offer_take(const Kvasir__V1__Attached *attached, struct datagram *datagram,
                       struct arenas *arenas_out);

#endif
