/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/load_weights.h"

#include "common/mem.h"
#include "kernels/dummy_fill.h"

#define DUMMY_SCALE 0x1p-13f /* times 147.8: 0.018 */

enum status
load_dummy_weights(const struct device_kind *kind, const struct model_config *config,
                   const struct weights_plan *plan, uint64_t seed, void *memory)
{
    for (uint32_t w = 0; w < WEIGHT_KINDS; w++) {
        uint32_t layers = plan->stride[w] == 0 ? 1 : config->L;

        if (w == WEIGHT_OUTPUT && config->has_tied_embeddings) {
            continue;
        }
        for (uint32_t layer = 0; layer < layers; layer++) {
            TRY(kind->fill_dummy((struct dummy_fill_args){
                .out = (uint8_t *)memory + weights_offset(plan, (enum weight)w, layer),
                .count = weights_elements(config, (enum weight)w),
                .seed = seed,
                .stream = layer * WEIGHT_KINDS + w,
                .center = weights_is_norm((enum weight)w) ? 1.0f : 0.0f,
                .scale = weights_is_norm((enum weight)w) ? 0.0f : DUMMY_SCALE,
            }));
        }
    }
    return ST_OK;
}

/* All matrices, in arena memory. */
static enum status
pack(const struct device_kind *kind, const struct model_config *config,
     const struct weights_plan *plan, void *memory)
{
    for (uint32_t w = 0; w < WEIGHT_KINDS; w++) {
        uint32_t layers = plan->stride[w] == 0 ? 1 : config->L;
        uint64_t columns = weights_columns(config, (enum weight)w);
        uint64_t rows = weights_elements(config, (enum weight)w) / columns;

        if (weights_is_norm((enum weight)w)
            || (w == WEIGHT_OUTPUT && config->has_tied_embeddings)) {
            continue;
        }
        for (uint32_t layer = 0; layer < layers; layer++) {
            TRY(kind->pack_weight(device_panel_form(plan->type[w]),
                                  (uint8_t *)memory + weights_offset(plan, (enum weight)w, layer),
                                  (uint32_t)rows, (uint32_t)columns));
        }
    }
    return ST_OK;
}

/* Through host memory, where the device's cannot be written. */
static enum status
load_staged(const struct device_kind *kind, const struct checkpoint *checkpoint,
            const struct weights_plan *plan, void *memory, weights_progress_fn progress,
            void *progress_arg)
{
    void *staging = mem_zalloc(plan->bytes, 1);
    enum status st;

    if (staging == NULL) {
        return ERR(ST_NO_MEMORY, "%zu bytes to convert the weights in", plan->bytes);
    }
    st = checkpoint_load_weights(checkpoint, plan, staging, progress, progress_arg);
    if (st == ST_OK) {
        st = kind->write(memory, staging, plan->bytes);
    }
    mem_free(staging);
    return st;
}

enum status
load_weights(const struct device_kind *kind, const struct checkpoint *checkpoint,
             const struct weights_plan *plan, void *memory, weights_progress_fn progress,
             void *progress_arg)
{
    const struct model_config *config = checkpoint_config(checkpoint);
    uint64_t seed;

    if (checkpoint_is_dummy(checkpoint, &seed)) {
        TRY(load_dummy_weights(kind, config, plan, seed, memory));
    } else if (kind->is_host_memory) {
        TRY(checkpoint_load_weights(checkpoint, plan, memory, progress, progress_arg));
    } else {
        TRY(load_staged(kind, checkpoint, plan, memory, progress, progress_arg));
    }
    return kind->pack_weight != NULL ? pack(kind, config, plan, memory) : ST_OK;
}
