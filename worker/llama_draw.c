/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "worker/llama_state.h"

static const float *
logits_at(const struct llama *llama, uint32_t row)
{
    return (const float *)llama->buffers[BUF_LOGITS] + (size_t)row * llama->config.model->V;
}

/* Words that a row's draw brings along; they lie one after the other in BUF_HISTORY. */
struct draw_words {
    uint32_t *next; /* device */
    size_t left;
};

static enum status
send_words(struct llama *llama, struct draw_words *words, const void *host, size_t count,
           const void **device_out)
{
    *device_out = NULL;
    if (count == 0) {
        return ST_OK;
    }
    assert(count <= words->left);
    TRY(llama->config.ops->upload(llama->config.ops, words->next, host, count * sizeof(uint32_t)));
    *device_out = words->next;
    words->next += count;
    words->left -= count;
    return ST_OK;
}

static enum status
send_params(struct llama *llama, struct draw_words *words, const struct sample_params *from,
            struct sample_params *to)
{
    static_assert(sizeof(struct sample_adjust) == 2 * sizeof(uint32_t), "counted in words");
    size_t mask = from->allowed == NULL ? 0 : llama_mask_words(llama->config.model->V);
    const void *history, *adjusts, *allowed;

    TRY(send_words(llama, words, from->history, from->n_history, &history));
    TRY(send_words(llama, words, from->adjusts, 2 * (size_t)from->n_adjusts, &adjusts));
    TRY(send_words(llama, words, from->allowed, mask, &allowed));
    *to = *from;
    to->history = history;
    to->adjusts = adjusts;
    to->allowed = allowed;
    return ST_OK;
}

enum status
llama_draw(struct llama *llama, uint32_t first, uint32_t count, const struct sample_params *params,
           struct sample_result *results)
{
    const struct ops *ops = llama->config.ops;
    struct draw_words words = {llama->buffers[BUF_HISTORY], llama->room.history};

    if (count == 0) {
        return ops->mark(ops);
    }
    assert(first + count <= llama->config.logits_max);
    for (uint32_t i = 0; i < count; i++) {
        TRY(send_params(llama, &words, &params[i], &llama->params[i]));
    }
    TRY(ops->upload(ops, llama->buffers[BUF_PARAMS], llama->params, count * sizeof(*params)));
    TRY(ops->sample(ops, (struct sample_args){.logits = logits_at(llama, first),
                                              .params = llama->buffers[BUF_PARAMS],
                                              .results = llama->buffers[BUF_RESULTS],
                                              .workspace = llama->buffers[BUF_WORKSPACE],
                                              .R = count,
                                              .V = llama->config.model->V}));
    TRY(ops->download(ops, results, llama->buffers[BUF_RESULTS], count * sizeof(*results)));
    return ops->mark(ops);
}

enum status
llama_wait(struct llama *llama, uint32_t first, uint32_t count, const struct sample_result *results)
{
    TRY(llama->config.ops->wait(llama->config.ops));
    for (uint32_t i = 0; i < count; i++) {
        if (results[i].id == SAMPLE_REFUSED) {
            return ERR(ST_INVALID, "row %u: logits that are not numbers", first + i);
        }
    }
    return ST_OK;
}

enum status
llama_sample(struct llama *llama, uint32_t first, uint32_t count,
             const struct sample_params *params, struct sample_result *results)
{
    TRY(llama_draw(llama, first, count, params, results));
    return llama_wait(llama, first, count, results);
}

enum status
llama_logits(struct llama *llama, uint32_t count, float *logits_out)
{
    const struct ops *ops = llama->config.ops;
    size_t bytes = (size_t)count * llama->config.model->V * sizeof(float);

    assert(bytes <= llama->buffer_bytes[BUF_LOGITS]);
    TRY(ops->download(ops, logits_out, llama->buffers[BUF_LOGITS], bytes));
    return ops->finish(ops);
}
