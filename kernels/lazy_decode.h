/* SPDX-License-Identifier: Apache-2.0 */
/* lazy_decode - attention of one new token a sequence, split along the keys.
 *
 * The same function as lazy_prefill for seqs with n_rows == 1, computed as partials over chunks of
 * LAZY_DECODE_CHUNK keys that never straddle segments, so that one long request fills a device.
 * A partial is (o, m, l): unnormalised output, maximum score, sum of exp(score - m); its identity
 * is (0, -inf, 0).  attn_merge turns the partials of a row into its output.
 * Chunk boundaries depend on the sequence alone, so a result never depends on the batch.
 * Source: Flash-Decoding (2023); LazyAttention (2026), sec. 3. */
#ifndef KERNELS_LAZY_DECODE_H
#define KERNELS_LAZY_DECODE_H

#include "common/status.h"
#include "kernels/attn_desc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LAZY_DECODE_CHUNK 1024 /* tokens; a multiple of every block size */

struct lazy_decode_args {
    struct attn_desc desc;
    const void *q; /* raw Q: cpu f32, cuda bf16 [n_seqs, H, D]; row i belongs to seqs[i] */
    float *o;      /* [n_partials, H, D], unnormalised */
    float *ml;     /* [n_partials, H, 2]: m (natural log domain), l */
    const uint32_t *partial_first; /* [n_seqs + 1]: seqs[i] owns partials [first[i], first[i+1]) */
    uint32_t n_partials;           /* partial_first[n_seqs] */
};

/* Partials that a sequence needs: sum over segments of ceil(n_tokens / LAZY_DECODE_CHUNK). */
uint32_t lazy_decode_partials(const struct attn_seq *seq, const struct attn_segment *segs);

enum status lazy_decode_ref(struct lazy_decode_args args);

#ifdef __cplusplus
}
#endif
#endif
