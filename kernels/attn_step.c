/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/attn_step.h"

static uint32_t
count_segments(const struct attn_seq *seqs, uint32_t n_seqs, uint32_t n_segs)
{
    for (uint32_t i = 0; i < n_seqs; i++) {
        uint32_t end = seqs[i].seg_first + seqs[i].n_segs;
        n_segs = end > n_segs ? end : n_segs;
    }
    return n_segs;
}

enum status
attn_step_check(const struct attn_step *step, const struct ops_config *config, uint32_t *n_segs_out)
{
    uint32_t n_segs = count_segments(step->prefill, step->n_prefill, 0);

    n_segs = count_segments(step->decode, step->n_decode, n_segs);
    if (step->n_prefill > config->seqs_max || step->n_decode > config->seqs_max
        || n_segs > config->segs_max) {
        return ERR(ST_NO_MEMORY, "step of %u + %u sequences and %u segments, limits %u and %u",
                   step->n_prefill, step->n_decode, n_segs, config->seqs_max, config->segs_max);
    }
    if (step->H != config->H || step->layout.Hkv != config->Hkv || step->layout.D != config->D) {
        return ERR(ST_INVALID, "step of %u/%u heads of %u, the instance was made for %u/%u of %u",
                   step->H, step->layout.Hkv, step->layout.D, config->H, config->Hkv, config->D);
    }
    *n_segs_out = n_segs;
    return ST_OK;
}
