/* SPDX-License-Identifier: Apache-2.0 */
/* panel - how the CPU's matrix product finds its weights: 16 rows side by side.
 *
 * Each whole group of PANEL_ROWS rows of a weight [N, K] is stored with the rows in the lanes, in
 * the place that the rows had; the N % PANEL_ROWS last rows stay as they are.
 *
 *   PANEL_F32   [K][16] floats
 *   quantised   for each 32 columns, GGUF's unit of them (model/dequant.c) of 16 rows:
 *               d float16 [16], Q4_1 also m float16 [16], then q in words of 4 bytes, each [16];
 *               of the float16, those of rows r and r + 8 share a word
 *
 * Quantised elements become floats where they are multiplied, the same floats that model/dequant
 * makes: d, m and q are small enough for d * q to be exact. */
#ifndef KERNELS_PANEL_H
#define KERNELS_PANEL_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum panel_form {
    PANEL_F32,
    PANEL_Q8_0,
    PANEL_Q4_0,
    PANEL_Q4_1,
};

#define PANEL_ROWS 16 /* weight rows; two vectors */
#define PANEL_UNIT 32 /* columns of a quantised weight come in multiples of it */

/* Bytes of `K` columns of a row; K as the form wants it. */
size_t panel_row_bytes(enum panel_form form, uint32_t K);

/* Puts a weight [N, K], rows as checkpoints have them, into panels.  In place; once.
 * ST_NO_MEMORY. */
enum status panel_pack(enum panel_form form, void *w, uint32_t N, uint32_t K);

/* Copies row `n` of a packed weight out, as floats. */
void panel_unpack_row(enum panel_form form, const void *w, uint32_t N, uint32_t K, uint32_t n,
                      float *row_out);

/* Columns [k, k + count) of a quantised row that is in no panel, to floats.  k and count are
 * multiples of PANEL_UNIT. */
void panel_expand_row(enum panel_form form, const void *row, uint32_t k, uint32_t count,
                      float *out);

#endif
