/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/report.h"

#include <assert.h>
#include <stdio.h>

#include "common/mem.h"

void
report_deinit(struct report *report)
{
    MEM_FREE(report->sealed);
    MEM_FREE(report->released);
    MEM_FREE(report->dropped);
    MEM_FREE(report->erased);
    MEM_FREE(report->failures);
    MEM_FREE(report->results);
    *report = (struct report){0};
}

void
report_reset(struct report *report)
{
    kvasir__v1__step__init(&report->message);
    report->n_failures = 0;
}

/* Lists only ever grow, so a failure half-way leaves all of them at least `max` long. */
static enum status
grow(struct report *report, size_t max)
{
    uint64_t **lists[] = {&report->sealed, &report->released, &report->dropped, &report->erased};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        uint64_t *grown = mem_realloc(*lists[i], max, sizeof(grown[0]));

        if (grown == NULL) {
            return ERR(ST_NO_MEMORY, "a report of %zu lines", max);
        }
        *lists[i] = grown;
    }
    struct report_failure *failures = mem_realloc(report->failures, max, sizeof(failures[0]));

    if (failures == NULL) {
        return ERR(ST_NO_MEMORY, "a report of %zu failures", max);
    }
    report->failures = failures;
    Kvasir__V1__StepResult **results = mem_realloc(report->results, 2 * max, sizeof(results[0]));

    if (results == NULL) {
        return ERR(ST_NO_MEMORY, "a report of %zu results", max);
    }
    report->results = results;
    report->max = max;
    return ST_OK;
}

enum status
report_reserve(struct report *report, size_t lines)
{
    size_t used = report->message.n_released;

    used = used > report->message.n_builds_dropped ? used : report->message.n_builds_dropped;
    used = used > report->message.n_erased ? used : report->message.n_erased;
    return used + lines <= report->max ? ST_OK : grow(report, 2 * (used + lines));
}

void
report_sealed(struct report *report, uint64_t build)
{
    assert(report->message.n_sealed < report->max);
    report->sealed[report->message.n_sealed++] = build;
}

void
report_released(struct report *report, uint64_t request)
{
    assert(report->message.n_released < report->max);
    report->released[report->message.n_released++] = request;
}

void
report_dropped(struct report *report, uint64_t build)
{
    assert(report->message.n_builds_dropped < report->max);
    report->dropped[report->message.n_builds_dropped++] = build;
}

void
report_erased(struct report *report, uint64_t erase)
{
    assert(report->message.n_erased < report->max);
    report->erased[report->message.n_erased++] = erase;
}

void
report_sums(struct report *report, uint64_t *sums, size_t count)
{
    report->message.sealed_sums = sums;
    report->message.n_sealed_sums = count;
}

void
report_checked(struct report *report, Kvasir__V1__Checked *checked)
{
    report->checked[0] = checked;
    report->message.checked = report->checked;
    report->message.n_checked = checked != NULL;
}

void
report_was_reset(struct report *report, uint64_t life)
{
    report_reset(report);
    report->message.has_reset_life = true;
    report->message.reset_life = life;
}

void
report_result(struct report *report, Kvasir__V1__StepResult *result)
{
    assert(report->message.n_results < 2 * report->max);
    report->results[report->message.n_results++] = result;
}

void
report_failed(struct report *report, uint64_t request, const char *reason)
{
    assert(report->n_failures < report->max);
    struct report_failure *failure = &report->failures[report->n_failures++];

    failure->request = request;
    (void)snprintf(failure->reason, sizeof(failure->reason), "%s", reason);
    report_released(report, request);
}

Kvasir__V1__Step *
report_finish(struct report *report, uint32_t rows, uint32_t rows_built)
{
    Kvasir__V1__Step *message = &report->message;

    /* Only now: the list of failures moves while it grows. */
    for (size_t i = 0; i < report->n_failures; i++) {
        struct report_failure *failure = &report->failures[i];

        kvasir__v1__step_result__init(&failure->result);
        failure->result.has_request = true;
        failure->result.request = failure->request;
        failure->result.error = failure->reason;
        report_result(report, &failure->result);
    }
    message->sealed = report->sealed;
    message->results = report->results;
    message->released = report->released;
    message->builds_dropped = report->dropped;
    message->erased = report->erased;
    message->has_rows = true;
    message->rows = rows;
    message->has_rows_built = true;
    message->rows_built = rows_built;
    bool is_empty = rows + message->n_results + message->n_sealed + message->n_released
                            + message->n_builds_dropped + message->n_erased + message->n_checked
                        == 0
                    && !message->has_reset_life;

    return is_empty ? NULL : message;
}
