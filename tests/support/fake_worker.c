/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_worker.h"

#include <string.h>

#include <check.h>

#include "common/htab.h"
#include "common/mem.h"

uint32_t
fake_token(uint64_t request, uint32_t index)
{
    return (uint32_t)htab_mix(request * 1000003u + index) & 0xffffu;
}

uint64_t
fake_content(uint64_t name, uint32_t index)
{
    return htab_mix(name + index) | 1;
}

/* Whoever gets blocks to write may write them at once. */
static void
scribble(const struct fake_worker *w, const struct fake_blocks *blocks, uint64_t what)
{
    for (uint32_t i = 0; i < blocks->count; i++) {
        w->contents[blocks->ids[i]] = htab_mix(what ^ blocks->ids[i]);
    }
}

/* Own blocks hold what others do not find; with reuse `none` the documents among it. */
static void
write_own(const struct fake_worker *w, const struct fake_run *run)
{
    scribble(w, &run->own, run->request);
    for (uint32_t i = 0; run->name != 0 && i < run->own.count; i++) {
        w->contents[run->own.ids[i]] = fake_content(run->name, i);
    }
}

static void
let_go_places(const struct fake_worker *w, const struct fake_blocks *places, bool is_write)
{
    for (uint32_t i = 0; i < places->count; i++) {
        ck_assert_uint_gt(w->place_uses[places->ids[i]], 0);
        w->place_uses[places->ids[i]]--;
        w->place_writes[places->ids[i]] -= is_write;
    }
}

static void
let_go_blocks(struct fake_worker *w, const struct fake_blocks *blocks, bool is_write)
{
    for (uint32_t i = 0; i < blocks->count; i++) {
        ck_assert_uint_gt(w->uses[blocks->ids[i]], 0);
        w->uses[blocks->ids[i]]--;
        w->writes[blocks->ids[i]] -= is_write;
    }
}

void
fake_blocks_add(struct fake_blocks *to, const uint32_t *ids, uint32_t count)
{
    ck_assert_uint_le(to->count + count, OWN_BLOCKS_MAX);
    if (count > 0) {
        memcpy(to->ids + to->count, ids, count * sizeof(ids[0]));
    }
    to->count += count;
}
uint32_t
fake_worker_find_run(const struct fake_worker *w, uint64_t request)
{
    uint32_t i = 0;

    while (i < w->run_count && w->runs[i]->request != request) {
        i++;
    }
    return i;
}

void
fake_worker_forget(struct fake_worker *w)
{
    for (uint32_t i = 0; i < w->run_count; i++) {
        mem_free(w->runs[i]);
    }
    for (uint32_t i = 0; i < w->build_count; i++) {
        mem_free(w->builds[i]);
    }
    for (uint32_t i = 0; i < w->inbox_count; i++) {
        for (uint32_t b = 0; b < w->inbox[i]->build_count; b++) {
            mem_free(w->inbox[i]->builds[b]);
        }
        mem_free(w->inbox[i]->run);
        mem_free(w->inbox[i]->spill);
        mem_free(w->inbox[i]);
    }
    for (uint32_t i = 0; i < w->outbox_count; i++) {
        mem_free(w->outbox[i]);
    }
    for (uint32_t i = 0; i < w->spill_count; i++) {
        mem_free(w->spills[i]);
    }
    w->check = 0;
    w->run_count = w->build_count = w->inbox_count = w->outbox_count = w->spill_count = 0;
}

static void
end_run(struct fake_worker *w, struct report *report, uint32_t index)
{
    struct fake_run *run = w->runs[index];

    let_go_blocks(w, &run->own, true);
    let_go_blocks(w, &run->read, false);
    report->released[report->step.released_count++] = run->request;
    mem_free(run);
    w->runs[index] = w->runs[--w->run_count];
}

static void
end_build(struct fake_worker *w, uint32_t index)
{
    let_go_blocks(w, &w->builds[index]->blocks, true);
    let_go_blocks(w, &w->builds[index]->read, false);
    let_go_places(w, &w->builds[index]->places, false);
    mem_free(w->builds[index]);
    w->builds[index] = w->builds[--w->build_count];
}

static uint32_t
find_fake_build(const struct fake_worker *w, uint64_t id)
{
    uint32_t i = 0;

    while (i < w->build_count && w->builds[i]->id != id) {
        i++;
    }
    return i;
}

static void
read_letter(struct fake_worker *w, struct letter *letter, struct report *report)
{
    uint32_t at = fake_worker_find_run(w, letter->request);

    switch (letter->kind) {
    case SCHED_SEND_ASSIGN:
        for (uint32_t i = 0; i < letter->build_count; i++) {
            w->builds[w->build_count++] = letter->builds[i];
            scribble(w, &letter->builds[i]->blocks, letter->builds[i]->id);
        }
        if (letter->run != NULL) {
            ck_assert_uint_eq(at, w->run_count);
            w->runs[w->run_count++] = letter->run;
            write_own(w, letter->run);
        }
        break;
    case SCHED_SEND_GRANT:
        if (at < w->run_count) {
            fake_blocks_add(&w->runs[at]->own, letter->blocks.ids, letter->blocks.count);
            scribble(w, &letter->blocks, letter->request);
        }
        break;
    case SCHED_SEND_STOP:
        if (at < w->run_count) {
            end_run(w, report, at);
        } else {
            report->released[report->step.released_count++] = letter->request;
        }
        break;
    case SCHED_SEND_STOP_BUILD: {
        uint32_t build = find_fake_build(w, letter->build);

        if (build < w->build_count) {
            end_build(w, build);
        }
        report->dropped[report->step.dropped_count++] = letter->build;
        break;
    }
    case SCHED_SEND_SPILL:
        ck_assert_uint_lt(w->spill_count, SCHED_SPILLS_MAX);
        w->spills[w->spill_count++] = letter->spill;
        break;
    case SCHED_SEND_CHECK:
        ck_assert_uint_eq(w->check, 0);
        w->check = letter->build;
        w->check_blocks = letter->blocks;
        w->check_twins = letter->twins;
        break;
    case SCHED_SEND_ERASE:
        for (uint32_t i = 0; i < letter->blocks.count; i++) {
            w->contents[letter->blocks.ids[i]] = 0;
        }
        for (uint32_t i = 0; i < letter->places.count; i++) {
            w->host[letter->places.ids[i]] = 0;
        }
        let_go_places(w, &letter->places, true);
        let_go_blocks(w, &letter->blocks, true);
        report->erased[report->step.erased_count++] = letter->build;
        break;
    case SCHED_SEND_PROBE: report->step.probed = letter->build; break;
    default: ck_abort_msg("a letter of a wrong kind");
    }
    mem_free(letter);
}

static bool
is_readable(const struct fake_worker *w, const uint64_t *waits_for, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (find_fake_build(w, waits_for[i]) < w->build_count) {
            return false;
        }
    }
    return true;
}

/* One token, if its documents are there and it has room; true if that was its last. */
static bool
decode(uint32_t block_tokens, struct fake_worker *w, struct fake_run *run, struct report *report)
{
    size_t at = report->step.result_count;

    if (!is_readable(w, run->waits_for, run->wait_count)
        || run->query + run->sent > run->turn_tokens + run->own.count * block_tokens) {
        return false;
    }
    report->ids[at] = fake_token(run->request, run->sent);
    run->sent++;
    report->results[at] = (struct sched_result){
        .request = run->request,
        .ids = &report->ids[at],
        .id_count = 1,
        .text = "x",
        .text_bytes = 1,
        .own_tokens = run->query + run->sent - 1,
        .tokens_read = run->has_read ? 0 : run->doc_tokens,
        .own_reused = run->has_read ? 0 : run->turn_tokens,
        .finish = run->sent == run->max_tokens ? SCHED_FINISH_LENGTH : SCHED_FINISH_NONE,
    };
    /* What a silent one reads may be others' by now; nobody listens to it. */
    for (uint32_t i = 0; w->is_heard && !run->has_read && i < run->read.count; i++) {
        ck_assert_msg(run->expected[i] == 0 || run->expected[i] == w->contents[run->read.ids[i]],
                      "request %llu reads a block that is not its document's",
                      (unsigned long long)run->request);
    }
    run->has_read = true;
    report->step.result_count++;
    return run->sent == run->max_tokens;
}

/* A block a step; what it is not is the end of it, and the rest is computed. */
static bool
load(const struct fake_worker *w, uint32_t block_tokens, struct fake_build *build,
     struct report *report)
{
    uint32_t at = build->loaded, count = build->places.count;
    bool is_good =
        at < count && !w->is_starved && w->host[build->places.ids[at]] == build->sums[at];
    uint32_t tokens;

    if (count == 0) {
        return false;
    }
    if (is_good) {
        w->contents[build->blocks.ids[at]] = build->sums[at];
        build->loaded++;
    }
    if (is_good && build->loaded < count) {
        return true;
    }
    report->loaded[report->step.loaded_count++] = (struct sched_loaded){
        .build = build->id, .blocks = build->loaded, .copy_us = 1, .is_unread = w->is_starved};
    tokens = build->start + build->loaded * block_tokens;
    build->done = tokens < build->n_tokens ? tokens : build->n_tokens;
    let_go_places(w, &build->places, false);
    build->places.count = 0;
    return false;
}

static void
fill_built(const struct fake_worker *w, const struct fake_build *build)
{
    for (uint32_t i = build->loaded; i < build->blocks.count; i++) {
        w->contents[build->blocks.ids[i]] = fake_content(build->name, build->first + i);
    }
}

static void
report_sums(const struct fake_worker *w, const struct fake_build *build, struct report *report)
{
    for (uint32_t i = 0; i < build->blocks.count; i++) {
        ck_assert_uint_lt(report->step.sum_count, SEAL_SUMS_MAX);
        report->seal_sums[report->step.sum_count++] = w->contents[build->blocks.ids[i]];
    }
}

/* With nothing else to do. */
static void
answer_check(struct fake_worker *w, struct report *report)
{
    if (w->check == 0 || w->run_count + w->build_count > 0) {
        return;
    }
    for (uint32_t i = 0; i < w->check_blocks.count; i++) {
        report->check_sums[i] = w->contents[w->check_blocks.ids[i]];
    }
    report->checked = (struct sched_checked){
        .check = w->check, .sums = report->check_sums, .sum_count = w->check_blocks.count};
    for (uint32_t i = 0; i < w->check_twins.count; i++) {
        report->checked.differing += report->check_sums[i] != w->contents[w->check_twins.ids[i]];
    }
    report->checked.relative = report->checked.differing > 0 ? w->rounding : 0;
    report->step.checked = &report->checked;
    report->step.checked_count = 1;
    w->check = 0;
}

static void
spill_some(struct fake_worker *w, struct report *report)
{
    for (uint32_t i = 0; i < w->spill_count;) {
        struct fake_spill *spill = w->spills[i];

        if (!w->is_refusing) {
            uint32_t at = spill->done++;

            spill->sums[at] = w->contents[spill->blocks.ids[at]];
            w->host[spill->places.ids[at]] = spill->sums[at];
        }
        if (!w->is_refusing && spill->done < spill->blocks.count) {
            i++;
            continue;
        }
        size_t n = report->step.spilled_count++;

        memcpy(report->sums[n], spill->sums, sizeof(spill->sums));
        report->spilled[n] = (struct sched_spilled){.spill = spill->id,
                                                    .is_refused = w->is_refusing,
                                                    .sums = report->sums[n],
                                                    .sum_count = spill->done};
        let_go_places(w, &spill->places, true);
        mem_free(spill);
        w->spills[i] = w->spills[--w->spill_count];
    }
}

struct report *
fake_worker_step(struct fake_worker *w, uint32_t block_tokens, uint32_t build_tokens)
{
    struct report *report;

    if (w->run_count + w->build_count + w->inbox_count + w->spill_count == 0 && w->check == 0) {
        return NULL;
    }
    report = mem_zalloc(1, sizeof(*report));
    for (uint32_t i = 0; i < w->inbox_count; i++) {
        read_letter(w, w->inbox[i], report);
    }
    w->inbox_count = 0;
    for (uint32_t i = 0; i < w->build_count;) {
        struct fake_build *build = w->builds[i];

        if (load(w, block_tokens, build, report)) {
            i++;
            continue;
        }
        if (is_readable(w, build->waits_for, build->wait_count)) {
            build->done += build_tokens;
        }
        if (build->done >= build->n_tokens) {
            fill_built(w, build);
            report_sums(w, build, report);
            report->sealed[report->step.sealed_count++] = build->id;
            end_build(w, i);
        } else {
            i++;
        }
    }
    for (uint32_t i = 0; i < w->run_count;) {
        if (decode(block_tokens, w, w->runs[i], report)) {
            end_run(w, report, i);
        } else {
            i++;
        }
    }
    spill_some(w, report);
    answer_check(w, report);
    report->step.sums = report->seal_sums;
    report->step.erased = report->erased;
    report->step.step = ++w->steps;
    report->step.loaded = report->loaded;
    report->step.spilled = report->spilled;
    report->step.sealed = report->sealed;
    report->step.results = report->results;
    report->step.released = report->released;
    report->step.dropped = report->dropped;
    return report;
}
