/* SPDX-License-Identifier: Apache-2.0 */
#include "client/resume.h"

#include <string.h>
#include <sys/random.h>

#include "common/mem.h"

void
resume_init(struct resume *resume, uint32_t retry_ms)
{
    *resume = (struct resume){.window_ms = retry_ms, .pause_ms = RESUME_PAUSE_MS_FIRST};
    if (getrandom(resume->key, sizeof(resume->key), 0) != (ssize_t)sizeof(resume->key)) {
        resume->window_ms = 0; /* a key that is not random might be another call's */
    }
}

void
resume_deinit(struct resume *resume)
{
    MEM_FREE(resume->ids);
}

void
resume_take(struct resume *resume, const Kvasir__V1__GenerateReply *reply)
{
    size_t need = resume->count + reply->n_token_ids;

    if (need > resume->capacity) {
        size_t capacity = need < 256 ? 256 : 2 * need;
        uint32_t *ids = mem_realloc(resume->ids, capacity, sizeof(ids[0]));

        if (ids == NULL) {
            resume->window_ms = 0;
            return;
        }
        resume->ids = ids;
        resume->capacity = capacity;
    }
    if (reply->n_token_ids > 0) {
        memcpy(resume->ids + resume->count, reply->token_ids,
               reply->n_token_ids * sizeof(resume->ids[0]));
    }
    resume->count = need;
    resume->text_bytes += reply->text.len;
}

bool
resume_may_try(struct resume *resume, bool was_lost, enum rpc_code code, uint64_t now_us)
{
    /* After a restart all clients are back at once: full is no answer to a retry. */
    bool is_passing =
        code == RPC_UNAVAILABLE || (code == RPC_RESOURCE_EXHAUSTED && resume->until_us != 0);

    if (resume->window_ms == 0 || !is_passing) {
        return false;
    }
    if (was_lost && (resume->until_us == 0 || resume->count > resume->count_at_loss)) {
        resume->until_us = now_us + resume->window_ms * UINT64_C(1000);
        resume->count_at_loss = resume->count;
        resume->pause_ms = RESUME_PAUSE_MS_FIRST;
    } else {
        resume->pause_ms =
            resume->pause_ms * 2 < RESUME_PAUSE_MS_MAX ? resume->pause_ms * 2 : RESUME_PAUSE_MS_MAX;
    }
    return resume->until_us != 0 && now_us < resume->until_us;
}

void
resume_name_seed(const struct resume *resume, Kvasir__V1__Sampling *sampling)
{
    if (resume->window_ms > 0 && sampling->temperature > 0 && !sampling->has_seed) {
        sampling->has_seed = true;
        memcpy(&sampling->seed, resume->key, sizeof(sampling->seed)); /* it is random */
    }
}

void
resume_fill(const struct resume *resume, Kvasir__V1__Resume *wire,
            Kvasir__V1__GenerateRequest *request)
{
    kvasir__v1__resume__init(wire); /* also when nothing came: it says that this is a retry */
    wire->token_ids = resume->ids;
    wire->n_token_ids = resume->count;
    wire->has_text_bytes = true;
    wire->text_bytes = resume->text_bytes;
    request->resume = wire;
}
