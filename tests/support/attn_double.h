/* SPDX-License-Identifier: Apache-2.0 */
/* attn_double - attention of a scene in float64, by the formula and nothing else: the twin of the
 * device's attention that shares no line with the library's own. */
#ifndef TESTS_SUPPORT_ATTN_DOUBLE_H
#define TESTS_SUPPORT_ATTN_DOUBLE_H

#include "kernels/attn_desc.h"

/* Rows of sequences with one row each, in order; kv of the host, bf16 in ck8.  q float, out bf16
 * [n_seqs, H, D]. */
void attn_double(const struct attn_desc *desc, const float *q, uint16_t *out);

#endif
