/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/outcome.h"

#include <stdio.h>

#include "common/mem.h"

void
outcome_begin(struct outcome *outcome, uint64_t due_us, uint64_t now_us)
{
    *outcome =
        (struct outcome){.due_us = due_us, .sent_us = now_us, .text_hash = 0xcbf29ce484222325u};
}

static void
keep_gap(struct outcome *outcome, uint64_t gap_us)
{
    if (outcome->n_gaps == outcome->gaps_room) {
        size_t room = 2 * outcome->gaps_room + 32;
        void *grown = mem_realloc(outcome->gaps_us, room, sizeof(outcome->gaps_us[0]));

        if (grown == NULL) {
            return;
        }
        outcome->gaps_us = grown;
        outcome->gaps_room = room;
    }
    outcome->gaps_us[outcome->n_gaps++] = gap_us < UINT32_MAX ? (uint32_t)gap_us : UINT32_MAX;
}

void
outcome_output(struct outcome *outcome, const void *text, size_t length, uint64_t now_us)
{
    const uint8_t *bytes = text;

    if (outcome->first_us == 0) {
        outcome->first_us = now_us;
    } else {
        keep_gap(outcome, now_us - outcome->last_us);
    }
    outcome->last_us = now_us;
    for (size_t i = 0; i < length; i++) {
        outcome->text_hash = (outcome->text_hash ^ bytes[i]) * 0x100000001b3u; /* FNV-1a */
    }
}

void
outcome_end(struct outcome *outcome, const char *error, uint64_t now_us)
{
    outcome->end_us = now_us;
    if (error == NULL && outcome->first_us == 0) {
        error = "the answer had no output";
    }
    outcome->is_ok = error == NULL;
    (void)snprintf(outcome->error, sizeof(outcome->error), "%s", error == NULL ? "" : error);
}

void
outcome_deinit(struct outcome *outcome)
{
    mem_free(outcome->gaps_us);
    *outcome = (struct outcome){0};
}

double
outcome_ttft_ms(const struct outcome *outcome)
{
    return (double)(outcome->first_us - outcome->sent_us) / 1000.0;
}

double
outcome_e2el_ms(const struct outcome *outcome)
{
    return (double)(outcome->end_us - outcome->sent_us) / 1000.0;
}

double
outcome_tpot_ms(const struct outcome *outcome)
{
    return outcome->output_tokens < 2 ? 0.0
                                      : (double)(outcome->end_us - outcome->first_us) / 1000.0
                                            / (double)(outcome->output_tokens - 1);
}
