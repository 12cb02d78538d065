/* SPDX-License-Identifier: Apache-2.0 */
/* sched_world_state - what the files of the world share; nobody else includes this.
 *
 *   sched_world.c       clients, clock, lives of workers
 *   sched_world_obey.c  the scheduler's actions carried out, and what is checked on the way */
#ifndef TESTS_SUPPORT_SCHED_WORLD_STATE_H
#define TESTS_SUPPORT_SCHED_WORLD_STATE_H

#include "tests/support/fake_worker.h"
#include "tests/support/sched_world.h"

#define WORLD_NAMES_MAX 4096

#define WORLD_OF_MAX 8

/* The last request that had a form of a document written, by the time when it came; and of which
 * documents that form has something. */
struct brought {
    uint64_t name, arrival_us;
    uint64_t of[WORLD_OF_MAX];
    uint32_t of_count, blocks; /* at most so many blocks */
};

struct world {
    struct world_config config;
    struct sched *sched;
    uint64_t now_us;
    uint64_t next_id, next_incarnation;
    uint32_t open_count;
    struct fake_worker workers[WORLD_WORKERS_MAX];
    uint64_t *contents; /* [block_count] */
    uint64_t *host;     /* [host_places] */
    struct world_request requests[WORLD_REQUESTS_MAX];
    uint32_t builds_started[1u << 16];
    struct brought brought[WORLD_NAMES_MAX];
    uint32_t brought_count;
    uint32_t damaged, erased; /* documents */
    uint32_t brought_back;    /* of those erased, before the end of that */
    bool has_damage;          /* found in this event: its readers begin again, the oldest too */
    struct sched_forgotten forgotten; /* the last one */
};

void world_obey(struct world *world);

/* Fails the test if there is anything of what was erased. */
void world_check_erased(struct world *world, const struct sched_forgotten *forgotten);

#endif
