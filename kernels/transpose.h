/* SPDX-License-Identifier: Apache-2.0 */
/* transpose - rows of floats into columns. */
#ifndef KERNELS_TRANSPOSE_H
#define KERNELS_TRANSPOSE_H

#include <stdint.h>

/* to[c * to_stride + r] = from[r * from_stride + c] for n_rows rows of n_columns; may not overlap.
 */
void transpose(const float *from, uint32_t from_stride, uint32_t n_rows, uint32_t n_columns,
               float *to, uint32_t to_stride);

#endif
