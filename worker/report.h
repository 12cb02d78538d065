/* SPDX-License-Identifier: Apache-2.0 */
/* report - what the next Step message says; collected while messages are taken in and a step runs.
 *
 * report_reserve is called before anything is reported; all else allocates nothing. */
#ifndef WORKER_REPORT_H
#define WORKER_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#include "worker/mover.h"

#include "kvasir/v1/worker.pb-c.h"

struct report_failure {
    uint64_t request;
    char reason[256];
    Kvasir__V1__StepResult result;
};

struct report {
    Kvasir__V1__Step message;
    uint64_t *sealed, *released, *dropped, *erased, *kept_released;
    Kvasir__V1__Checked *checked[1];
    Kvasir__V1__Loaded *loaded;   /* [max], and the lists that the message has of them */
    Kvasir__V1__Spilled *spilled; /* [max] */
    Kvasir__V1__Loaded **loaded_list;
    Kvasir__V1__Spilled **spilled_list;
    struct report_failure *failures;
    Kvasir__V1__StepResult **results;
    size_t n_failures;
    size_t max; /* of each list */
};

/* A zeroed struct is empty. */
void report_deinit(struct report *report);
void report_reset(struct report *report);

/* Room for `lines` more of each kind.  ST_NO_MEMORY. */
enum status report_reserve(struct report *report, size_t lines);

void report_sealed(struct report *report, uint64_t build);
void report_released(struct report *report, uint64_t request);
void report_dropped(struct report *report, uint64_t build);
void report_kept_released(struct report *report, uint64_t kept);

void report_erased(struct report *report, uint64_t erase);
void report_probed(struct report *report, uint64_t probe);

/* Of the blocks that the builds of report_sealed have written, in their order; borrowed. */
void report_sums(struct report *report, uint64_t *sums, size_t count);
/* The answer to a Check; NULL: none.  Borrowed. */
void report_checked(struct report *report, Kvasir__V1__Checked *checked);
/* The job is borrowed until report_reset. */
void report_loaded(struct report *report, const struct mover_job *job);
/* Without a job it is refused, because of `error`. */
void report_spilled(struct report *report, uint64_t spill, const struct mover_job *job,
                    const char *error);

/* Everything that an earlier kvasird gave is let go of; what was collected for it is not said. */
void report_was_reset(struct report *report, uint64_t life);

/* `result` is borrowed until report_reset. */
void report_result(struct report *report, Kvasir__V1__StepResult *result);

/* The request has failed; releases it.  The reason is copied, cut where it is too long. */
void report_failed(struct report *report, uint64_t request, const char *reason);

/* The message, or NULL if it would say nothing.  Borrowed until report_reset. */
Kvasir__V1__Step *report_finish(struct report *report, uint32_t rows, uint32_t rows_built);

#endif
