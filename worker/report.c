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
    MEM_FREE(report->kept_released);
    MEM_FREE(report->failures);
    MEM_FREE(report->results);
    MEM_FREE(report->loaded);
    MEM_FREE(report->spilled);
    MEM_FREE(report->loaded_list);
    MEM_FREE(report->spilled_list);
    *report = (struct report){0};
}

void
report_reset(struct report *report)
{
    kvasir__v1__step__init(&report->message);
    report->n_failures = 0;
}

static enum status
grow_moves(struct report *report, size_t max)
{
    void *loaded = mem_realloc(report->loaded, max, sizeof(report->loaded[0]));

    report->loaded = loaded != NULL ? loaded : report->loaded;
    void *spilled = mem_realloc(report->spilled, max, sizeof(report->spilled[0]));

    report->spilled = spilled != NULL ? spilled : report->spilled;
    void *loaded_list = mem_realloc(report->loaded_list, max, sizeof(report->loaded_list[0]));

    report->loaded_list = loaded_list != NULL ? loaded_list : report->loaded_list;
    void *spilled_list = mem_realloc(report->spilled_list, max, sizeof(report->spilled_list[0]));

    report->spilled_list = spilled_list != NULL ? spilled_list : report->spilled_list;
    return loaded == NULL || spilled == NULL || loaded_list == NULL || spilled_list == NULL
               ? ERR(ST_NO_MEMORY, "a report of %zu loads and spills", max)
               : ST_OK;
}

/* Lists only ever grow, so a failure half-way leaves all of them at least `max` long. */
static enum status
grow(struct report *report, size_t max)
{
    uint64_t **lists[] = {&report->sealed, &report->released, &report->dropped, &report->erased,
                          &report->kept_released};

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
    TRY(grow_moves(report, max));
    report->max = max;
    return ST_OK;
}

enum status
report_reserve(struct report *report, size_t lines)
{
    size_t used = report->message.n_released;

    used = used > report->message.n_builds_dropped ? used : report->message.n_builds_dropped;
    used = used > report->message.n_erased ? used : report->message.n_erased;
    used = used > report->message.n_loaded ? used : report->message.n_loaded;
    used = used > report->message.n_spilled ? used : report->message.n_spilled;
    used = used > report->message.n_kept_released ? used : report->message.n_kept_released;
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

/* protobuf-c takes no const strings; it only packs them. */
static char *
text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

void
report_loaded(struct report *report, const struct mover_job *job)
{
    assert(report->message.n_loaded < report->max);
    Kvasir__V1__Loaded *loaded = &report->loaded[report->message.n_loaded++];

    kvasir__v1__loaded__init(loaded);
    loaded->has_build = loaded->has_blocks = loaded->has_copy_us = true;
    loaded->build = job->id;
    loaded->blocks = job->done;
    loaded->copy_us = job->copy_us;
    loaded->error = job->error[0] == '\0' ? NULL : text(job->error);
    loaded->has_is_unread = true;
    loaded->is_unread = job->is_unread;
}

void
report_spilled(struct report *report, uint64_t spill, const struct mover_job *job,
               const char *error)
{
    assert(report->message.n_spilled < report->max);
    Kvasir__V1__Spilled *spilled = &report->spilled[report->message.n_spilled++];

    kvasir__v1__spilled__init(spilled);
    spilled->has_spill = true;
    spilled->spill = spill;
    spilled->error = text(error);
    if (job != NULL) {
        spilled->n_sums = job->done;
        spilled->sums = job->sums;
        spilled->has_copy_us = true;
        spilled->copy_us = job->copy_us;
    }
}

void
report_erased(struct report *report, uint64_t erase)
{
    assert(report->message.n_erased < report->max);
    report->erased[report->message.n_erased++] = erase;
}

void
report_probed(struct report *report, uint64_t probe)
{
    report->message.has_probed = true;
    report->message.probed = probe;
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
report_kept_released(struct report *report, uint64_t kept)
{
    assert(report->message.n_kept_released < report->max);
    report->kept_released[report->message.n_kept_released++] = kept;
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
    for (size_t i = 0; i < message->n_loaded; i++) {
        report->loaded_list[i] = &report->loaded[i];
    }
    for (size_t i = 0; i < message->n_spilled; i++) {
        report->spilled_list[i] = &report->spilled[i];
    }
    message->loaded = report->loaded_list;
    message->spilled = report->spilled_list;
    message->sealed = report->sealed;
    message->results = report->results;
    message->released = report->released;
    message->builds_dropped = report->dropped;
    message->erased = report->erased;
    message->kept_released = report->kept_released;
    message->has_rows = true;
    message->rows = rows;
    message->has_rows_built = true;
    message->rows_built = rows_built;
    bool is_empty = rows + message->n_results + message->n_sealed + message->n_released
                            + message->n_builds_dropped + message->n_erased + message->n_checked
                            + message->n_loaded + message->n_spilled + message->n_kept_released
                        == 0
                    && !message->has_reset_life && !message->has_probed;

    return is_empty ? NULL : message;
}
